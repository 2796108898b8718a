# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""For tests/e2e/scope_cost.py, with the path of usdt_scopes.so: for each line "WHAT N" on stdin, begins and ends N scopes, and prints the CPU time of one in ns."""
import ctypes
import os
import resource
import sys

import torch
from torch.profiler import record_function

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools", "packaging", "wheel"))
from phases import phase  # noqa: E402 pylint: disable=wrong-import-position


def nvtx(n):
    for _ in range(n):
        torch.cuda.nvtx.range_push("scope")
        torch.cuda.nvtx.range_pop()


def recorded(n):
    for _ in range(n):
        with record_function("scope"):
            pass


def phased(n):
    for _ in range(n):
        with phase("scope"):
            pass


def usdt(n):
    probes.loop(ctypes.c_long(n))


def cpu():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


probes = ctypes.CDLL(sys.argv[1])
print("ready", flush=True)
for line in sys.stdin:
    what, count = line.split()
    begin = cpu()
    {"nvtx": nvtx, "record_function": recorded, "phase": phased, "usdt": usdt}[what](int(count))
    print("took %.0f" % ((cpu() - begin) / int(count) * 1e9), flush=True)

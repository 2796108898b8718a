# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Shared by the parts: a process's resource use, a workload's output, the states of a target, medians."""
import contextlib
import json
import re
import statistics
import sys
import time

import harness

STATES = ("untraced", "empty", "recorded")
STEP_STATES = ("untraced", "empty", "recorded", "no autograd")


def cpu_seconds(pid):
    """User and system time of all threads, also ended ones, in s with ns resolution: clock_getcpuclockid(3)."""
    return time.clock_gettime((~pid << 3) | 2)


def memory(pid):
    with open("/proc/%d/status" % pid, encoding="ascii", errors="replace") as f:
        text = f.read()
    return {k: int(re.search(r"%s:\s+(\d+) kB" % k, text)[1]) * 1024 for k in ("VmRSS", "VmHWM")}


class Tail:
    """The lines that a workload adds to its file between two moments of its own clock."""

    def __init__(self, path):
        self.path = path

    def between(self, begin, end):
        with open(self.path, encoding="utf-8") as f:
            rows = [json.loads(line) for line in f if line.endswith("\n")]
        return [r for r in rows if begin <= r[0] <= end]


def attach(state, pid, path, *options):
    if state == "untraced":
        return None
    command = [harness.TOOL, "record", "-p", str(pid), "-o", path, "-f", *options]
    if state == "no autograd":
        command.append("--no-autograd")
    if state == "empty":
        command = ["env", "MEMTRACE_BENCH=empty", *command]
    p = harness.spawn(command, root=True)
    p.wait_line(harness.ATTACHED, 30, stream="err")
    return p


def tracer_pid(p):
    """The tracer's PID: env executes the program, sudo starts a child."""
    return p.pid


def spread(values):
    q = statistics.quantiles(values, n=4) if len(values) > 1 else [values[0]] * 3
    return {"median": statistics.median(values), "quartiles": [q[0], q[2]], "values": values}


def line(name, s, digits=0):
    """A row of text: median and quartiles of a spread."""
    print("  %-44s %10.*f   (quartiles %.*f .. %.*f)" % (name, digits, s["median"], digits, s["quartiles"][0], digits,
                                                         s["quartiles"][1]))


HOLD_STATS = r"""
import ctypes, os, platform, struct, sys
number = {"x86_64": 321, "aarch64": 280}[platform.machine()]
libc = ctypes.CDLL(None, use_errno=True)
fd = libc.syscall(number, 32, struct.pack("I", 0), 4)  # BPF_ENABLE_STATS, BPF_STATS_RUN_TIME
if fd < 0:
    sys.exit(os.strerror(ctypes.get_errno()))
print("on", flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def bpf_stats():
    """Makes the kernel count runs and time of BPF programs while the returned descriptor is open."""
    p = harness.spawn([sys.executable, "-c", HOLD_STATS], root=True)
    try:
        p.wait_line("^on", 10)
        yield
    finally:
        p.stop()

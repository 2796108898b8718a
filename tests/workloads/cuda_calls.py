# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Calls CUDA's functions from C in a process with PyTorch. usage: cuda_calls.py LIBRARY EARLY FUNCTION RUNTIME DRIVER [FUNCTION
RUNTIME DRIVER]...; LIBRARY is tests/programs/cuda_calls.c, compiled. The first EARLY groups are loaded before "ready", the
others after. Waits for a line before loading, before calling and before ending."""
import ctypes
import sys

import torch

library, early, *rest = sys.argv[1:]
lib = ctypes.CDLL(library)
block = torch.empty(1)
jobs = [(rest[i], [path.encode() for path in rest[i + 1:i + 3]]) for i in range(0, len(rest), 3)]


def load(some):
    for _, paths in some:
        if paths and lib.cuda_load(*paths):
            sys.exit(1)


load(jobs[:int(early)])
print("ready", flush=True)
sys.stdin.readline()
load(jobs[int(early):])
print("loaded", flush=True)
sys.stdin.readline()
code = 0
for function, paths in jobs:
    load([(function, paths)])
    code |= getattr(lib, function)()
print("done", flush=True)
sys.stdin.readline()
sys.exit(code)

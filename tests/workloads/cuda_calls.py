# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
Calls CUDA's functions from C in a process with PyTorch in it. usage: cuda_calls.py LIBRARY early|late FUNCTION RUNTIME
DRIVER; LIBRARY is tests/programs/cuda_calls.c, compiled; RUNTIME and DRIVER are loaded before or after "ready".
Waits for a line before each of loading, calling and ending.
"""
import ctypes
import sys

import torch

library, when, function, *paths = sys.argv[1:]
lib = ctypes.CDLL(library)
block = torch.empty(1)
code = 0


def load():
    return lib.cuda_load(*[p.encode() for p in paths])


if when == "early":
    code |= load()
print("ready", flush=True)
sys.stdin.readline()
if when == "late":
    code |= load()
print("loaded", flush=True)
sys.stdin.readline()
code |= getattr(lib, function)() if not code else 0
print("done", flush=True)
sys.stdin.readline()
sys.exit(code)

# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""A CUDA job that grows as fast as it can, and shrinks. usage: cuda_grow.py STEPS. Waits for a line before it begins, at its peak
and at the end. Prints its memory as JSON: before, and at the peak."""
import ctypes
import json
import sys

import torch

BLOCK, OTHER = (20 << 20) + 1, 4 << 20  # one segment each; whole driver pages


def has(others):
    return {"allocated": torch.cuda.memory_allocated(), "reserved": torch.cuda.memory_reserved(), "others": len(others) * OTHER}


steps = int(sys.argv[1])
runtime = ctypes.CDLL(None)
first = torch.ones(1, device="cuda")
print("ready", json.dumps(has([])), flush=True)
sys.stdin.readline()
held, others = [], []
for i in range(steps):
    held.append(torch.empty(BLOCK, dtype=torch.uint8, device="cuda"))
    if i % 4 == 0:
        others.append(ctypes.c_void_p())
        assert runtime.cudaMalloc(ctypes.byref(others[-1]), ctypes.c_size_t(OTHER)) == 0
print("peak", json.dumps(has(others)), flush=True)
sys.stdin.readline()
del held[steps // 2:]
torch.cuda.empty_cache()
for p in others:
    runtime.cudaFree(p)
print("done", flush=True)
sys.stdin.readline()

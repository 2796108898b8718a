# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Tensors on a CUDA device, with the allocator of the environment or of a library. usage: cuda_blocks.py [PLUGGABLE [LIBRARY]];
PLUGGABLE: tests/programs/cuda_pluggable.c, compiled; LIBRARY takes memory for itself. Waits for a line before choosing the
allocator, before allocating and after. Prints the allocations as JSON."""
import ctypes
import json
import sys

import torch

print("imported", flush=True)
sys.stdin.readline()
if len(sys.argv) > 1:
    torch.cuda.memory.change_current_allocator(
        torch.cuda.memory.CUDAPluggableAllocator(sys.argv[1], "take", "give"))

SIZES = [1000, 4096, 100000, 3 << 20, 30 << 20, 700]


def allocate(size):
    return torch.empty(size, dtype=torch.uint8, device="cuda")


print("ready", flush=True)
sys.stdin.readline()
blocks = [allocate(size) for size in SIZES]
addresses = [b.data_ptr() for b in blocks]
stream = torch.cuda.Stream()
with torch.cuda.stream(stream):
    beside = allocate(12345)
told = {"sizes": SIZES, "addresses": addresses, "line": allocate.__code__.co_firstlineno + 1,
        "beside": [beside.data_ptr(), 12345, stream.stream_id]}
if len(sys.argv) > 2:
    library = ctypes.CDLL(sys.argv[2])
    library.take.restype = ctypes.c_void_p
    told["library"] = [library.take(ctypes.c_ssize_t(5 << 20), 0, None), 5 << 20]
del blocks[1::2]
if len(sys.argv) == 1:
    told["reserved"] = torch.cuda.memory_stats().get("reserved_bytes.all.current", 0)
print(json.dumps(told), flush=True)
print("done", flush=True)
sys.stdin.readline()

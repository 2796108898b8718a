# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
Memory that PyTorch reports twice or in another way: CPU tensors while torch.profiler traces memory, storages mapped from files,
shared storages.

Prints "ready", waits for a line on standard input, does all that, prints one JSON object with its actions and live tensors, and
keeps everything until the next line or the end of input.
"""
import json
import os
import sys
import tempfile

import torch
from torch.profiler import ProfilerActivity, profile

keep = []
allocs = frees = 0


def some(n, size):
    global allocs
    for i in range(n):
        keep.append(torch.empty(size + i, dtype=torch.uint8))
        allocs += 1


def drop(n):
    global frees
    del keep[:n]
    frees += n


def passing(n):
    global allocs, frees
    for _ in range(n):
        torch.empty(5000, dtype=torch.uint8)
        allocs += 1
        frees += 1


def mapped(folder, n):
    global allocs
    size = 4096 * n
    path = os.path.join(folder, "file_%d" % n)
    with open(path, "wb") as f:
        f.write(b"x" * size)
    for shared in (False, True):
        keep.append(torch.from_file(path, shared=shared, size=size, dtype=torch.uint8))
        allocs += 1


def moved_to_shared(n):
    global allocs, frees
    keep.append(torch.empty(4096 * n, dtype=torch.uint8).share_memory_())
    allocs += 2  # the tensor's own memory, then the shared memory
    frees += 1


def main():
    print("ready", flush=True)
    if not sys.stdin.readline():
        return
    with tempfile.TemporaryDirectory() as folder:
        for r in range(3):
            some(50, 1000)
            with profile(activities=[ProfilerActivity.CPU], profile_memory=True):
                some(100, 2000)
                passing(100)
                drop(70)
                mapped(folder, 2 * r + 1)
                moved_to_shared(2 * r + 1)
                passing(10)
            passing(30)
            mapped(folder, 2 * r + 2)
            moved_to_shared(2 * r + 2)
            drop(60)
        keep.append(torch.empty(0))  # without memory
    live = sorted([t.untyped_storage().data_ptr(), t.untyped_storage().nbytes()] if hasattr(t, "untyped_storage")
                  else [t.storage().data_ptr(), t.storage().nbytes()] for t in keep[:-1])
    print(json.dumps({"allocs": allocs, "frees": frees, "live": live}), flush=True)
    sys.stdin.readline()


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
A target that makes children of all kinds while it allocates: os.fork with tensors in the child, a DataLoader's workers, programs
started in a loop (vfork and exec).

Prints "ready", waits for a line on standard input, does all that, prints one JSON object with its live tensors and results, and
keeps everything until the next line or the end of input.
"""
import argparse
import json
import os
import subprocess
import sys

import torch
from torch.utils.data import DataLoader, Dataset

keep = []


def parent(size):
    keep.append(torch.empty(size, dtype=torch.uint8))


def child(size):
    return torch.empty(size, dtype=torch.uint8)


class Numbers(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, i):
        return torch.full((1000,), float(i))


def in_fork(n):
    """A child that allocates, frees inherited tensors and exits; the exit code says whether that worked."""
    pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) if hasattr(os, "waitstatus_to_exitcode") else \
            os.WEXITSTATUS(os.waitpid(pid, 0)[1])
    code = 1
    try:
        keep.clear()
        tensors = [child(1000 + i) for i in range(n)]
        code = 42 if sum(t.numel() for t in tensors) == sum(range(1000, 1000 + n)) else 2
    finally:
        os._exit(code)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--rounds", type=int, default=4)
    args = p.parse_args()
    torch.set_num_threads(1)
    print("ready", flush=True)
    if not sys.stdin.readline():
        return
    codes, sums, programs = [], [], []
    for r in range(args.rounds):
        for i in range(50):
            parent(3000 + 100 * r + i)
        codes.append(in_fork(500))
        for i in range(10):
            parent(5000 + 100 * r + i)
            programs.append(subprocess.run([sys.executable, "-S", "-c", "print(6 * 7)"] if not i else ["/bin/true"],
                                           stdout=subprocess.DEVNULL, check=False).returncode)
        loader = DataLoader(Numbers(), batch_size=8, num_workers=2)
        sums.append(float(sum(batch.sum() for batch in loader)))
        del keep[:5]
    print(json.dumps({"count": len(keep), "bytes": sum(t.numel() for t in keep), "codes": codes, "sums": sums,
                      "programs": programs, "line": parent.__code__.co_firstlineno + 1,
                      "made": 60 * args.rounds}), flush=True)
    sys.stdin.readline()


if __name__ == "__main__":
    main()

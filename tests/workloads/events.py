# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Measures the cost of an allocation and a free on the thread that makes them, repeatedly, for tools/dev/bench.py: one JSON line
[monotonic time, ns of CPU per allocation, ns of CPU per free] per batch. The allocations have a model's stacks: inside three
modules, about ten Python frames deep, on the given device."""
import argparse
import functools
import json
import time

import torch
import torch.nn as nn

BATCH = 2000


class Inner(nn.Module):
    def __init__(self, device):
        super().__init__()
        self.empty = torch.empty if device == "cpu" else functools.partial(torch.empty, device=device)

    def forward(self, out):
        empty = self.empty
        begin = time.thread_time_ns()
        for i in range(BATCH):
            out[i] = empty(64)
        return time.thread_time_ns() - begin


class Outer(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, out):
        return self.inner(out)


def drop(out):
    begin = time.thread_time_ns()
    for i in range(BATCH):
        out[i] = None
    return time.thread_time_ns() - begin


def main():
    p = argparse.ArgumentParser()
    p.add_argument("times", help="file for the lines")
    p.add_argument("--device", default="cpu")
    p.add_argument("--pause", type=float, default=0.004, help="seconds between two batches")
    args = p.parse_args()
    torch.set_num_threads(1)
    model = Outer(Outer(Inner(args.device)))
    out = [None] * BATCH
    with open(args.times, "w", encoding="utf-8") as f:
        print("ready", flush=True)
        while True:
            allocs = model(out)
            frees = drop(out)
            f.write(json.dumps([time.monotonic(), allocs / BATCH, frees / BATCH]) + "\n")
            f.flush()
            time.sleep(args.pause)


if __name__ == "__main__":
    main()

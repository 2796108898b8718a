# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""A script whose memory is estimated. Prints PyTorch's own counters after each step as JSON lines, and has no code for the
tracer. At its end it writes --saved, which a run stopped earlier must not write."""
import argparse
import json
import os
import sys

import torch


class Net(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up = torch.nn.Linear(width, 4 * width, bias=False)
        self.down = torch.nn.Linear(4 * width, width, bias=False)

    def forward(self, x):
        return self.down(torch.relu(self.up(x)))


def counts(step):
    return {"step": step, "allocated": torch.cuda.max_memory_allocated(), "reserved": torch.cuda.max_memory_reserved(),
            "now": torch.cuda.memory_allocated()}


def greedy(rows):
    """A request that may be refused; then half as much."""
    while True:
        try:
            return torch.empty(rows, 1 << 20, device="cuda").sum()
        except torch.cuda.OutOfMemoryError:
            rows //= 2


def lookups(n):
    """The gradient of many lookups is sorted, by code that checks its compiled version."""
    weight = torch.nn.Parameter(torch.zeros(100, 8, device="cuda"))
    torch.nn.functional.embedding(torch.zeros(n, dtype=torch.long, device="cuda"), weight).sum().backward()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=40)
    p.add_argument("--width", type=int, default=512)
    p.add_argument("--batch", type=int, default=2048)
    p.add_argument("--accumulate", type=int, default=2)
    p.add_argument("--greedy", type=int, default=0, help="MiB to ask for, less where that is refused")
    p.add_argument("--lookups", type=int, default=0, help="rows to look up, before all else")
    p.add_argument("--workers", type=int, default=0)
    p.add_argument("--fail", action="store_true", help="raise an error of its own in the second step")
    p.add_argument("--leak", type=int, default=0, help="MiB that each step keeps")
    p.add_argument("--saved")
    args = p.parse_args()
    data = torch.utils.data.DataLoader([torch.zeros(4)] * 1000000, num_workers=args.workers) if args.workers else None
    batches = iter(data) if data else None
    if args.lookups:
        lookups(args.lookups)
    model = Net(args.width).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    if args.greedy:
        greedy(args.greedy // 4)
    kept = []
    for step in range(1, args.steps + 1):
        if batches:
            next(batches)
        for _ in range(args.accumulate):
            loss = model(torch.randn(args.batch, args.width, device="cuda")).square().mean()
            loss.backward()
        if args.fail and step == 2:
            raise ValueError("this script is wrong")
        if args.leak:
            kept.append(torch.zeros(args.leak << 20, dtype=torch.uint8, device="cuda"))
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        print(json.dumps(counts(step)), flush=True)
    if args.saved:
        with open(args.saved, "w", encoding="utf-8") as f:
            f.write("saved by %d\n" % os.getpid())
    return 0


if __name__ == "__main__":
    sys.exit(main())

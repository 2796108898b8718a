# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
A job for `serve` to trace: a model that fits its input's shape, on a GPU or in the dry run.

    served.py                 runs --times batches of the shape in MEMTRACE_INPUT_SHAPE, then ends
    served.py --train         trains until the end of its input; each line is a command, run between two steps:
                              "reset" resets PyTorch's peaks, "figures" prints its counters, "pause" and "go", "go N" for N
                              steps, "end"

Prints PyTorch's counters as JSON on standard output; a job that ends writes them to --told. torch >= 2.1, Python >= 3.8.
"""
import argparse
import json
import os
import re
import select
import sys
import time

import torch
import torch.nn as nn

NAMES = ("MEMTRACE_INPUT_SHAPE", "MEMTRACE_BATCH_SIZE", "MEMTRACE_MODEL_NAME")


class Images(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, 8, 3, 2, 1)
        self.bn1 = nn.BatchNorm2d(8)
        self.layer1 = nn.Sequential(nn.Conv2d(8, 16, 3, 2, 1), nn.ReLU())
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(16, 10)

    def forward(self, x):
        return self.fc(self.pool(self.layer1(self.bn1(self.conv1(x)).relu())).flatten(1))


class Rows(nn.Module):
    """For tensors whose last dimension has the features."""

    def __init__(self, width):
        super().__init__()
        self.embed = nn.Linear(width, 64)
        self.blocks = nn.ModuleList(nn.Sequential(nn.LayerNorm(64), nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 64)) for _ in range(2))
        self.head = nn.Linear(64, 10)

    def forward(self, x):
        x = self.embed(x)
        for block in self.blocks:
            x = x + block(x)
        return self.head(x)


def build(shape, device):
    return (Images(shape[1]) if len(shape) == 4 else Rows(shape[-1])).to(device)


def figures():
    if not torch.cuda.is_available():
        return {}
    stats = torch.cuda.memory_stats()
    return {"peak_allocated": stats["allocated_bytes.all.peak"], "peak_reserved": stats["reserved_bytes.all.peak"],
            "allocated": stats["allocated_bytes.all.current"], "allocs": stats["allocation.all.allocated"]}


def count_inside(model):
    """Allocations of each module's calls, with all inner calls: {name: [calls, allocations]}"""
    counts = {name: [0, 0] for name, _ in model.named_modules()}

    def watch(name, module):
        begun = []
        module.register_forward_pre_hook(lambda *_: begun.append(figures()["allocs"]))

        def left(*_):
            counts[name][0] += 1
            counts[name][1] += figures()["allocs"] - begun.pop()

        module.register_forward_hook(left)

    for name, module in model.named_modules():
        watch(name, module)
    return counts


def answer(args, shape):
    model = build(shape, args.device).eval()
    counts = count_inside(model) if args.device == "cuda" else {}
    with torch.no_grad():
        for _ in range(args.times):
            model(torch.empty(shape, device=args.device))
    told = dict(figures(), modules=counts, environment={n: os.environ.get(n) for n in NAMES}, pid=os.getpid())
    if args.told:
        with open(args.told + ".new", "w", encoding="utf-8") as f:
            json.dump(told, f)
        os.rename(args.told + ".new", args.told)


def train(args, shape):
    model = build(shape, args.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    running, steps, last = True, 0, None
    while True:
        while select.select([sys.stdin], [], [], 0 if running else None)[0]:
            command = sys.stdin.readline().strip()
            if command in ("end", ""):
                return
            if command.split()[0] in ("pause", "go"):
                running = command != "pause"
                last = steps + int(command[3:]) if command[3:].isdecimal() else None
            if command == "reset":
                torch.cuda.reset_peak_memory_stats()
            print("did %s %s" % (command, json.dumps(dict(figures(), steps=steps))), flush=True)
        for _ in range(args.spread):
            torch.empty(64, device=args.device)
        model(torch.empty(shape, device=args.device)).sum().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        steps += 1
        running = steps != last
        if steps == 3:
            print("ready " + json.dumps([name for name, _ in model.named_modules()]), flush=True)
        time.sleep(args.pause)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--train", action="store_true")
    p.add_argument("--device", default="cuda")
    p.add_argument("--shape", help="4,16,64: where none comes from the environment")
    p.add_argument("--times", type=int, default=2)
    p.add_argument("--pause", type=float, default=0.02, help="seconds between two steps of training")
    p.add_argument("--spread", type=int, default=0, help="more allocations in each step, of so many tensors that nobody keeps")
    p.add_argument("--told")
    p.add_argument("name", nargs="?", help="nothing but a word in the command line")
    args = p.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    shape = [int(n) for n in re.findall(r"\d+", os.environ.get(NAMES[0]) or args.shape or "4,16,64")]
    train(args, shape) if args.train else answer(args, shape)


main()

# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
Models built, called once or a few times and dropped, again and again: the addresses of modules mean others all the
time, of the same class and with other names. Each call allocates a tensor whose size occurs nowhere else.

Prints "ready", waits for a line on standard input, runs for --seconds, writes [[size, dotted name, class, class of
the root], ...] to EXPECTED, prints "done CALLS ADDRESSES", ends with the input.
"""
import argparse
import json
import random
import sys
import time

import torch
import torch.nn as nn

made = 0
rows = []
addresses = set()


class Leaf(nn.Module):
    def forward(self):
        global made
        made += 1
        torch.empty(made, dtype=torch.uint8)
        return made


class Other(Leaf):
    def forward(self):
        return super().forward()


class Model(nn.Module):
    def __init__(self, name, leaf, depth):
        super().__init__()
        addresses.add(id(leaf))
        self.path = name
        if depth:
            leaf = nn.ModuleList([leaf])
            self.path += ".0"
        self.add_module(name, leaf)
        self.leaf = [leaf[0] if depth else leaf]

    def forward(self):
        leaf = self.leaf[0]
        size = leaf()
        rows.append((size, self.path, type(leaf).__name__, type(self).__name__))


class Twin(Model):
    pass


def main():
    p = argparse.ArgumentParser()
    p.add_argument("expected", help="file for the answer")
    p.add_argument("--seconds", type=float, default=3)
    p.add_argument("--pause", type=float, default=0, help="seconds that a model lives")
    args = p.parse_args()
    torch.set_num_threads(1)
    print("ready", flush=True)
    if not sys.stdin.readline():
        return
    rnd = random.Random(1)
    kept = []
    until = time.monotonic() + args.seconds
    while time.monotonic() < until:
        kind = Model if rnd.random() < 0.7 else Twin
        model = kind("part_%d" % rnd.randrange(1000), Leaf() if rnd.random() < 0.7 else Other(), rnd.random() < 0.3)
        if rnd.random() < 0.2:
            kept.append(model)
        for m in (model, rnd.choice(kept) if kept else model):
            m()
        if args.pause:
            time.sleep(args.pause)
            model()
        if len(kept) > 20:
            kept.clear()
    with open(args.expected, "w", encoding="utf-8") as f:
        json.dump(rows, f)
    print("done %d %d" % (len(rows), len(addresses)), flush=True)
    sys.stdin.readline()


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Modules and functions that call one another at random in all ways that Python has, allocating in between. The frames below a
module call must be reported right whatever happened before. The same sequences repeat. Ends after --seconds."""
import argparse
import functools
import random
import threading
import time

import torch
import torch.nn as nn

DEPTH = 6
TURNS = 30


class Left(Exception):
    pass


class Node(nn.Module):
    def __init__(self, world):
        super().__init__()
        self.world = [world]  # not a submodule

    def forward(self, depth):
        return self.world[0].turn(depth)


class Other(Node):
    def forward(self, depth):
        kept = torch.empty(3)
        self.world[0].turn(depth)
        self.world[0].turn(depth)
        return kept


class Caught(Node):
    def forward(self, depth):
        try:
            return self.world[0].turn(depth)
        except Left:
            return torch.empty(5)


class World:
    def __init__(self, seed):
        self.random = random.Random(seed)
        self.modules = [Node(self), Other(self), Caught(self), nn.Sequential(Node(self)), Node(self)]
        self.started = []
        self.ways = [self.module, self.module, self.module, self.plain, self.deeper, self.loop, self.lines, self.generator,
                     self.resume, self.callback, self.leave, self.partial, self.recursion]

    def turn(self, depth):
        out = torch.empty(1)
        if depth < DEPTH:
            out = self.random.choice(self.ways)(depth + 1)
        torch.empty(2)
        return out

    def module(self, depth):
        return self.random.choice(self.modules)(depth)

    def plain(self, depth):
        return torch.empty(7)

    def deeper(self, depth):
        def inner(n):
            return inner(n - 1) if n else self.turn(depth)
        return inner(self.random.randrange(4))

    def loop(self, depth):
        for _ in range(2):
            self.module(depth)
            torch.empty(9)

    def lines(self, depth):
        """The same callee at the same depth, from two lines."""
        self.same(depth)
        self.same(depth)
        self.same(depth)

    def same(self, depth):
        return self.modules[0](DEPTH)

    def generator(self, depth):
        def values():
            for _ in range(4):
                torch.empty(11)
                yield self.turn(depth)
        g = values()
        next(g)
        if len(self.started) < 20:
            self.started.append(g)

    def resume(self, depth):
        """Resumes a generator in another module than the one that started it."""
        if self.started:
            g = self.started.pop(self.random.randrange(len(self.started)))
            try:
                next(g)
                self.started.append(g)
            except (StopIteration, ValueError):
                pass

    def callback(self, depth):
        return sorted([3, 1, 2], key=lambda x: torch.empty(x).numel() + 0 * len(str(self.modules[0](DEPTH))))

    def leave(self, depth):
        try:
            self.module(depth)
            if self.random.random() < 0.5:
                raise Left
        except Left:
            if self.random.random() < 0.5:
                raise

    def partial(self, depth):
        return functools.partial(self.module, depth)()

    def recursion(self, depth):
        return self.modules[0](depth)


def work(seed, until):
    world = World(seed)
    n = 0
    while time.monotonic() < until:
        n += 1
        world.random.seed(seed * TURNS + n % TURNS)
        try:
            world.turn(0)
        except Left:
            pass


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--seconds", type=float, default=10)
    p.add_argument("--threads", type=int, default=2)
    args = p.parse_args()
    torch.set_num_threads(1)
    torch.empty(1)
    until = time.monotonic() + args.seconds
    threads = [threading.Thread(target=work, args=(i, until)) for i in range(1, args.threads)]
    for t in threads:
        t.start()
    print("ready", flush=True)
    work(0, until)
    for t in threads:
        t.join()


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
Calls of a model through its stored bound method, as generate() of transformers makes them.

usage: bound.py CALLS: prints "ready PID", generates with one call of each way until a line comes, prints how often, and generates.
Each way of a call is made so many times: f(x), f(**inputs), and model(x). The root calls two modules as usual and one through a
bound method.
"bound.py --serve" only serves: 60 requests of 8 calls, of which each leaves 64 KiB in a list.
"""
import os
import select
import sys
import time

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(64, 64)

    def forward(self, x):
        torch._C._get_tracing_state()
        return self.linear(x)


class Outer(nn.Module):
    def __init__(self):
        super().__init__()
        self.net, self.head = nn.ModuleList([Net(), Net()]), nn.Linear(64, 8)
        self.head_forward = self.head.__call__

    def forward(self, x):
        for net in self.net:
            x = net(x)
        return self.head_forward(x)

    def generate(self, x, calls):
        f = self.__call__
        KEPT.append(f)
        for _ in range(calls):
            f(x).clone()
            torch.ones(100)
        for _ in range(calls):
            f(**{"x": x})
            torch.ones(100)
        for _ in range(calls):
            self(x)


class Small(nn.Module):
    """Allocates within its own module only."""

    def __init__(self):
        super().__init__()
        self.net = Net()

    def forward(self, x):
        return self.net(x)


def serve(model, requests, tokens):
    """Each request leaves something behind."""
    for _ in range(requests):
        step, x = model.__call__, torch.ones(4, 64)
        for _ in range(tokens):
            x = step(x)
        HISTORY.append(torch.zeros(16384))


HISTORY, KEPT = [], []


def main():
    serves = sys.argv[1] == "--serve"
    calls = 0 if serves else int(sys.argv[1])
    torch.set_num_threads(1)
    model = Small() if serves else Outer()
    work = (lambda n: serve(model, n, 8)) if serves else (lambda n: model.generate(torch.ones(32, 64), n))
    print("ready", os.getpid(), flush=True)
    starts = 0
    with torch.no_grad():
        while not select.select([sys.stdin], [], [], 0.05)[0]:
            work(1)
            starts += 1
        print("starts", starts, flush=True)
        work(60 if serves else calls)
    print("done", flush=True)
    time.sleep(2)  # a busy recorder still reads the methods of the last calls


main()

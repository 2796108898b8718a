#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
Calls of a model through its stored bound method, as generate() of transformers makes them.

usage: bound.py [calls]: prints "ready PID", waits for a line, generates once as a start and again half a second later. Each way of a
call is made so many times: f(x), f(**inputs), and model(x). The root calls two modules as usual and one through a bound method.
"""
import os
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
        f, kept = self.__call__, []
        for _ in range(calls):
            kept.append(f(x).clone())
            torch.ones(100)
        for _ in range(calls):
            kept.append(f(**{"x": x}))
            torch.ones(100)
        for _ in range(calls):
            kept.append(self(x))
        return kept


def main():
    calls = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    torch.set_num_threads(1)
    model = Outer()
    print("ready", os.getpid(), flush=True)
    sys.stdin.readline()
    with torch.no_grad():
        model.generate(torch.ones(32, 64), 1)
        time.sleep(0.5)
        kept = model.generate(torch.ones(32, 64), calls)
    print("done", len(kept), flush=True)


main()

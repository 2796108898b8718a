# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""A small job with known memory, for tools/dev/matrix_python.py. PyTorch 1.4 and Python 3.8 or newer. Prints "ready", works after a
line of input, prints what it allocated as JSON, and waits for another line."""
import json
import sys
import threading

import torch
from torch import nn

STEPS, IN_FORWARD, BESIDE = 5, 50000, 30000
KEPT, TRUTH = [], {"lines": {}}


def here():
    return sys._getframe(1).f_lineno


class Inner(nn.Module):
    def __init__(self):
        super(Inner, self).__init__()
        self.weight = nn.Parameter(torch.ones(300, 100))
        self.register_buffer("table", torch.zeros(700))

    def forward(self, x):
        KEPT.append(torch.empty(IN_FORWARD, dtype=torch.uint8)); TRUTH["lines"][here()] = STEPS * IN_FORWARD
        return x


class Outer(nn.Module):
    def __init__(self):
        super(Outer, self).__init__()
        self.inner = Inner()

    def forward(self, x):
        return self.inner(x)


def beside():
    for _ in range(STEPS):
        KEPT.append(torch.empty(BESIDE, dtype=torch.uint8)); TRUTH["lines"][here()] = STEPS * BESIDE


def main():
    net, x = Outer(), torch.ones(1)
    TRUTH["names"] = {"inner.weight": 300 * 100 * 4, "inner.table": 700 * 4}
    TRUTH["modules"] = {"inner": STEPS * IN_FORWARD}
    TRUTH["allocs"] = 2 * STEPS
    TRUTH["bytes"] = STEPS * (IN_FORWARD + BESIDE)
    print("ready", flush=True)
    sys.stdin.readline()
    for _ in range(STEPS):
        net(x)
    thread = threading.Thread(target=beside)
    thread.start()
    thread.join()
    print(json.dumps(TRUTH), flush=True)
    sys.stdin.readline()


main()

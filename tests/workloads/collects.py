# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Training steps of a process with many objects, whose garbage collector runs most of the time. Prints "ready" after the first step.
With an argument, it has an optimizer, and waits for a line of input then."""
import gc
import sys

import torch

OBJECTS = 400_000


def main():
    things = [[i] for i in range(OBJECTS)]
    model = torch.nn.Linear(64, 64)
    optimizer = torch.optim.AdamW(model.parameters()) if sys.argv[1:] else None
    while things:
        model(torch.randn(4, 64)).sum().backward()
        if optimizer:
            optimizer.step()
        print("ready", flush=True)
        if sys.argv[1:]:
            sys.stdin.readline()
            del sys.argv[1:]
        gc.collect()


main()

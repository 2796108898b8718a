# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Training steps of a process with many objects, whose garbage collector runs most of the time. Prints "ready" after the first step."""
import gc

import torch

OBJECTS = 1_500_000


def main():
    things = [[i] for i in range(OBJECTS)]
    model = torch.nn.Linear(64, 64)
    while things:
        model(torch.randn(4, 64)).sum().backward()
        print("ready", flush=True)
        gc.collect()


main()

# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Gradients that need memory of their own: those of a sum are an expanded number, so the node that accumulates them allocates the
gradient. Each parameter has its own size. Prints "ready" and, as JSON, {name: bytes}; then trains. On a line of standard
input, other parameters with the same names and other sizes replace the first; after three steps, it prints them, too."""
import gc
import json
import sys
import threading
import time

import torch


class Part(torch.nn.Module):
    def __init__(self, size):
        super().__init__()
        self.weight, self.bias = torch.nn.Parameter(torch.ones(size)), torch.nn.Parameter(torch.ones(size + 1))

    def forward(self):
        return self.weight.sum() + self.bias.sum()


class Net(torch.nn.Module):
    def __init__(self, base):
        super().__init__()
        self.parts = torch.nn.ModuleList([Part(base + 10 * i) for i in range(8)])

    def forward(self):
        return sum(part() for part in self.parts)


def main():
    net, go = Net(1000), threading.Event()
    threading.Thread(target=lambda: (sys.stdin.readline(), go.set()), daemon=True).start()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    print("ready " + json.dumps({name: 4 * p.numel() for name, p in net.named_parameters()}), flush=True)
    steps, swapped = 0, False
    while True:
        optimizer.zero_grad()
        net().backward()
        optimizer.step()
        time.sleep(0.02)
        steps += 1
        if swapped and steps == 3:
            print("swapped " + json.dumps({name: 4 * p.numel() for name, p in net.named_parameters()}), flush=True)
        if go.is_set():
            go.clear()
            del net, optimizer
            gc.collect()
            net = Net(3000)
            optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
            steps, swapped = 0, True


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Leaks 16 KiB per step into a module's list. Prints ready after WARM steps; each line "N" on standard input runs N more steps
and prints done."""
import sys

import torch
from torch import nn

WARM = 20
history = []


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.act, self.down = nn.Linear(128, 512), nn.GELU(), nn.Linear(512, 128)

    def forward(self, x):
        return x + self.down(self.act(self.up(x)))


def step(model, optimizer):
    x = torch.randn(256, 128)
    out = model(x)
    loss = (out - x).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    history.append(out[:32].detach().clone())  # 32 x 128 x 4 bytes


def main():
    torch.set_num_threads(1)
    model = nn.Sequential(*(Block() for _ in range(4)))
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(WARM):
        step(model, optimizer)
    print("ready", flush=True)
    for line in sys.stdin:
        for _ in range(int(line)):
            step(model, optimizer)
        print("done", flush=True)


main()

# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Trains modules within modules for three steps. FILE gets torch.cuda.memory._snapshot(), with a Python stack for each event."""
import pickle
import sys
import time

import torch
from torch import nn

time.sleep(1)  # on a busy machine a recorder needs this long to see that torch.nn is there
torch.cuda.memory._record_memory_history(stacks="python", max_entries=100000)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.act, self.down = nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64)

    def forward(self, x):
        return x + self.down(self.act(self.up(x)))


def main():
    net = nn.Sequential(*(Block() for _ in range(3))).cuda()
    optimizer = torch.optim.AdamW(net.parameters())
    for _ in range(3):
        loss = net(torch.randn(32, 64, device="cuda")).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    with open(sys.argv[1], "wb") as f:
        pickle.dump(torch.cuda.memory._snapshot(), f)
    time.sleep(2)  # a recorder reads the modules' names while they live


main()

# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""One block of several is compiled, by AOTAutograd."""
import torch
import zoo
from torch import nn


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(x)))


net = nn.Sequential(*(Block(64) for _ in range(4))).to(zoo.DEVICE)
net[1].compile(backend="aot_eager")
zoo.name(net)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
going = True
while going:
    net(torch.randn(128, 64, device=zoo.DEVICE)).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    going = zoo.step()
zoo.end()

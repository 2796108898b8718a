# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""AdamW of bitsandbytes with 8 bits, and a layer with 4."""
import bitsandbytes as bnb
import torch
import zoo
from torch import nn

net = nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 256)).to(zoo.DEVICE)
zoo.name(net)
optimizer = bnb.optim.AdamW8bit(net.parameters(), lr=1e-3)
small = bnb.nn.Linear4bit(256, 1024, compute_dtype=torch.bfloat16).to(zoo.DEVICE)
going = True
while going:
    x = torch.randn(64, 256, device=zoo.DEVICE)
    net(x).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    with torch.no_grad():
        small(x.bfloat16())
    going = zoo.step()
zoo.end()

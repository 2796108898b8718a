# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Weights of 8 bits for inference, next to training, by torchao."""
import torch
import zoo
from torch import nn
from torchao.quantization import Int8WeightOnlyConfig, quantize_


def net():
    return nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 256)).to(zoo.DEVICE)


served, trained = net().eval(), net()
quantize_(served, Int8WeightOnlyConfig())
zoo.name(served, "served")
zoo.name(trained, "trained")
optimizer = torch.optim.AdamW(trained.parameters())
going = True
while going:
    x = torch.randn(64, 256, device=zoo.DEVICE)
    trained(x).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    with torch.no_grad():
        served(x)
    going = zoo.step()
zoo.end()

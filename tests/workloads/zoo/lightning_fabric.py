# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Fabric of lightning: bfloat16, accumulation, clipped gradients."""
import torch
import zoo
from lightning.fabric import Fabric
from torch import nn

fabric = Fabric(accelerator="cuda", devices=1, precision="bf16-mixed")
fabric.launch()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.TransformerEncoder(nn.TransformerEncoderLayer(128, 4, 256, batch_first=True), 2)
        self.head = nn.Linear(128, 10)

    def forward(self, x):
        return self.head(self.body(x).mean(1))


net = Net()
net, optimizer = fabric.setup(net, torch.optim.AdamW(net.parameters(), fused=True))
zoo.name(net)
going = True
while going:
    for last in (False, True):
        with fabric.no_backward_sync(net, enabled=not last):
            x = torch.randn(8, 32, 128, device=fabric.device)
            fabric.backward(nn.functional.cross_entropy(net(x), torch.zeros(8, dtype=torch.long, device=fabric.device)))
    fabric.clip_gradients(net, optimizer, max_norm=1.0)
    optimizer.step()
    optimizer.zero_grad()
    going = zoo.step()
zoo.end()

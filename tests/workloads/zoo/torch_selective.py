# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Selective checkpointing, and a layer replayed as a CUDA graph."""
import functools

import torch
import zoo
from torch import nn
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts


def policy(_context, operation, *_args, **_kwargs):
    return CheckpointPolicy.MUST_SAVE if operation == torch.ops.aten.addmm.default else CheckpointPolicy.PREFER_RECOMPUTE


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64)) for _ in range(3))

    def forward(self, x):
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False, context_fn=functools.partial(create_selective_checkpoint_contexts, policy))
        return x


net = Net().to(zoo.DEVICE)
graphed = torch.cuda.make_graphed_callables(nn.Linear(64, 64).to(zoo.DEVICE), (torch.randn(32, 64, device=zoo.DEVICE, requires_grad=True),))
zoo.name(net, "net")
optimizer = torch.optim.AdamW([*net.parameters(), *graphed.parameters()], capturable=True)
going = True
while going:
    net(graphed(torch.randn(32, 64, device=zoo.DEVICE, requires_grad=True))).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    going = zoo.step()
zoo.end()

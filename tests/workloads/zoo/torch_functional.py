# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""An ensemble by vmap of grad, next to a network that is trained in the ordinary way."""
import torch
import zoo
from torch import nn
from torch.func import functional_call, grad, stack_module_state, vmap


def net():
    return nn.Sequential(nn.Linear(64, 128), nn.Tanh(), nn.Linear(128, 10)).to(zoo.DEVICE)


nets, plain = [net() for _ in range(4)], net()
parameters, buffers = stack_module_state(nets)
zoo.name(nets[0], "nets[*]")
zoo.name(plain, "plain")
optimizer = torch.optim.SGD(plain.parameters(), lr=0.1)


def loss_of(p, b, x):
    return functional_call(nets[0], (p, b), (x,)).pow(2).mean()


going = True
while going:
    x = torch.randn(128, 64, device=zoo.DEVICE)
    vmap(grad(loss_of), in_dims=(0, 0, None))(parameters, buffers, x)
    plain(x).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    going = zoo.step()
zoo.end()

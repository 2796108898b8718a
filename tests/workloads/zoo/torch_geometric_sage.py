# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""GraphSAGE and GAT of torch_geometric, which writes Python files of its own."""
import torch
import zoo
from torch import nn
from torch_geometric.nn import GATConv, SAGEConv


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = SAGEConv(64, 128), GATConv(128, 7, heads=4, concat=False)

    def forward(self, x, edges):
        return self.two(torch.relu(self.one(x, edges)), edges)


x, edges, kinds = torch.randn(1000, 64), torch.randint(0, 1000, (2, 8000)), torch.randint(0, 7, (1000,))
x, edges, kinds = (t.to(zoo.DEVICE) for t in (x, edges, kinds))
net = Net().to(zoo.DEVICE)
zoo.name(net)
optimizer = torch.optim.Adam(net.parameters())
going = True
while going:
    optimizer.zero_grad()
    nn.functional.cross_entropy(net(x, edges), kinds).backward()
    optimizer.step()
    going = zoo.step()
zoo.end()

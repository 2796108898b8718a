# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""A residual network of convolutions and batch norms, SGD; --cudnn: with cuDNN's algorithms and workspaces."""
import torch
import torch.nn as nn
import torch.nn.functional as F

from common import oracle


class Residual(nn.Module):
    def __init__(self, inside, out, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inside, out, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(out)
        self.conv2 = nn.Conv2d(out, out, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(out)
        self.short = nn.Conv2d(inside, out, 1, stride, bias=False)

    def forward(self, x):
        y = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(y)) + self.short(x))


def job(args):
    torch.backends.cudnn.enabled = args.cudnn
    model = nn.Sequential(Residual(3, 16, 1), Residual(16, 32, 2), Residual(32, 64, 2),
                          nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)).to(args.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    while True:
        x = torch.randn(8 + int(torch.randint(8, ())), 3, 32, 32).to(args.device)
        y = torch.randint(10, (x.shape[0],)).to(args.device)
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
        yield


if __name__ == "__main__":
    parser = oracle.arguments(__doc__)
    parser.add_argument("--cudnn", action="store_true")
    oracle.main(job, parser.parse_args())

# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Shared by the jobs in this folder. torch >= 2.1, Python >= 3.8."""
import os
import sys

import torch
import torch.nn as nn

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import oracle  # noqa: E402, F401


def mlp(width=1024, layers=4, classes=10):
    parts = []
    for _ in range(layers):
        parts += [nn.Linear(width, width), nn.ReLU()]
    return nn.Sequential(*parts, nn.Linear(width, classes))


def batch(args, rows=256, width=1024, classes=10):
    """The last batch of an epoch is smaller: sizes change from step to step, as in real jobs."""
    rows -= int(torch.randint(rows // 2, ()))
    return torch.randn(rows, width).to(args.device), torch.randint(classes, (rows,)).to(args.device)

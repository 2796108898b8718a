# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Activation checkpointing, with and without re-entrance: the forward pass runs again on autograd's thread."""
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

from common import batch, mlp, oracle


def job(args):
    stages = torch.nn.ModuleList([mlp(1024, 2, 1024) for _ in range(4)]).to(args.device)
    optimizer = torch.optim.AdamW(stages.parameters())
    step = 0
    while True:
        x, y = batch(args)
        x.requires_grad_()
        for stage in stages:
            x = checkpoint(stage, x, use_reentrant=step % 2 == 1)
        optimizer.zero_grad()
        F.cross_entropy(x, y).backward()
        optimizer.step()
        step += 1
        yield


if __name__ == "__main__":
    oracle.main(job, oracle.arguments(__doc__).parse_args())

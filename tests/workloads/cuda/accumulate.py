# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Gradients of four batches for each step of the optimizer; gradients are set to zero, not to None."""
import torch
import torch.nn.functional as F

from common import batch, mlp, oracle


def job(args):
    model = mlp().to(args.device)
    optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
    while True:
        for _ in range(4):
            x, y = batch(args)
            (F.cross_entropy(model(x), y) / 4).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
        yield


if __name__ == "__main__":
    oracle.main(job, oracle.arguments(__doc__).parse_args())

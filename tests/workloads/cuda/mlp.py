# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""A multi-layer perceptron, Adam."""
import torch
import torch.nn.functional as F

from common import batch, mlp, oracle


def job(args):
    model = mlp().to(args.device)
    optimizer = torch.optim.Adam(model.parameters())
    while True:
        x, y = batch(args)
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
        yield


if __name__ == "__main__":
    oracle.main(job, oracle.arguments(__doc__).parse_args())

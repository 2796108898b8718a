# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""A DataLoader with worker processes and pinned memory; a step is an epoch of five batches."""
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

from common import mlp, oracle


def job(args):
    data = TensorDataset(torch.randn(300, 512), torch.randint(10, (300,)))
    model = mlp(512, 2).to(args.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    cuda = args.device.startswith("cuda")
    while True:
        for x, y in DataLoader(data, batch_size=64, shuffle=True, num_workers=2, pin_memory=cuda):
            x, y = x.to(args.device, non_blocking=True), y.to(args.device, non_blocking=True)
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
        yield


if __name__ == "__main__":
    oracle.main(job, oracle.arguments(__doc__, steps=4).parse_args())

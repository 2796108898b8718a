# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Model parallel on two devices: autograd has a thread for each."""
import torch
import torch.nn.functional as F

from common import batch, mlp, oracle


def job(args):
    first, second = (args.device + ":0", args.device + ":1") if args.device == "cuda" else (args.device, args.device)
    bottom, top = mlp(1024, 3, 512).to(first), mlp(512, 3, 10).to(second)
    optimizer = torch.optim.Adam([*bottom.parameters(), *top.parameters()])
    while True:
        x, y = batch(args)
        out = top(bottom(x.to(first)).to(second))
        optimizer.zero_grad()
        F.cross_entropy(out, y.to(second)).backward()
        optimizer.step()
        yield


if __name__ == "__main__":
    oracle.main(job, oracle.arguments(__doc__).parse_args())

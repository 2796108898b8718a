# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""A torch.cuda.MemPool: blocks in segments of their own. torch >= 2.5."""
import torch

from common import oracle


def job(args):
    cuda = args.device.startswith("cuda")
    pool = torch.cuda.MemPool() if cuda else None
    inside = []
    step = 0
    while True:
        outside = [torch.zeros(n * 7777, device=args.device) for n in range(1, 30)]
        if cuda:
            with torch.cuda.use_mem_pool(pool):
                inside.append([torch.zeros(n * 33333, device=args.device) for n in range(1, 30)])
        inside = inside[-2:]
        step += 1
        yield
        del outside


if __name__ == "__main__":
    oracle.main(job, oracle.arguments(__doc__).parse_args())

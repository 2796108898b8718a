# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Fragmentation: blocks of many sizes, of which every other one stays, so that requests that grow find no piece."""
import torch

from common import oracle


def job(args):
    kept, step = [], 0
    while True:
        made = [torch.empty((1 + i % 7) * (300 << 10) + step * (64 << 10), dtype=torch.uint8, device=args.device) for i in range(60)]
        small = [torch.empty(1 + i * 97, dtype=torch.uint8, device=args.device) for i in range(200)]
        kept = kept[40:] + made[::2] + small[::3]
        del made, small
        large = torch.empty((9 << 20) + step * (3 << 20), dtype=torch.uint8, device=args.device)
        step += 1
        yield
        del large


if __name__ == "__main__":
    oracle.main(job, oracle.arguments(__doc__).parse_args())

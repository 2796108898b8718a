# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Very many events at a steady rate: per step 1,000 allocations of varying sizes and as many frees."""
import time

import torch

from common import oracle

SIZES = [1, 700, 5000, 70000, 1 << 20, 3 << 20]


def job(args):
    kept = [None] * 1000
    begin = time.monotonic()
    step = 0
    while True:
        for i in range(1000):
            kept[i * 7 % 1000] = torch.empty(SIZES[(i + step) % 6] + i, dtype=torch.uint8, device=args.device)
        step += 1
        ahead = step * 2000 / args.rate - (time.monotonic() - begin)
        if ahead > 0:
            time.sleep(ahead)
        yield


if __name__ == "__main__":
    parser = oracle.arguments(__doc__, steps=100)
    parser.add_argument("--rate", type=float, default=150000, help="events a second, at most")
    oracle.main(job, parser.parse_args())

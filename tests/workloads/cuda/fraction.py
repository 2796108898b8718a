# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""torch.cuda.set_per_process_memory_fraction(): out of memory by PyTorch's own limit, caught."""
import torch

from common import oracle


def job(args):
    cuda = args.device.startswith("cuda")
    if cuda:
        torch.cuda.set_per_process_memory_fraction(0.01)
    kept = []
    while True:
        try:
            for i in range(200 if cuda else 3):
                kept.append(torch.empty((i % 9 + 1) << 20, dtype=torch.float32, device=args.device))
        except torch.cuda.OutOfMemoryError:
            kept = kept[::3]
        yield


if __name__ == "__main__":
    oracle.main(job, oracle.arguments(__doc__).parse_args())

# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Out of memory once per step, caught: alternately the device is filled first, so that the allocator frees its cache and tries
again, or the request is larger than any device."""
import torch

from common import oracle

GIB = 1 << 30


def ask(args):
    try:
        return torch.empty(1 << 50, dtype=torch.uint8, device=args.device)
    except RuntimeError as e:
        # with 2.4's cudaMallocAsync the message is cut off early: the device number in it is a NUL byte
        assert isinstance(e, torch.cuda.OutOfMemoryError) or "emory" in str(e), e


def fill(args):
    kept = []
    try:
        for i in range(1000):
            kept.append(torch.empty((1 + i % 5) * args.unit * GIB // 4, dtype=torch.uint8, device=args.device))
    except torch.cuda.OutOfMemoryError:
        return len(kept)


def job(args):
    kept = [torch.zeros(n * 1000, device=args.device) for n in range(1, 50)]
    step = 0
    while True:
        full = step % 2 == 0 and not args.only_ask and args.device.startswith("cuda")
        assert not full or fill(args), "nothing fits"
        if not full:
            ask(args)
        kept[step % len(kept)] = torch.zeros((step % 50 + 1) * 1111, device=args.device)
        step += 1
        yield


if __name__ == "__main__":
    parser = oracle.arguments(__doc__, steps=8)
    parser.add_argument("--only-ask", action="store_true")
    parser.add_argument("--unit", type=int, default=4, help="of the blocks that fill the device, in quarters of a GiB")
    oracle.main(job, parser.parse_args())

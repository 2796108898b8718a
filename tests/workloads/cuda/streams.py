# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Blocks of several streams, some used on another stream: they are free only when that stream is done."""
import torch

from common import oracle


def job(args):
    cuda = args.device.startswith("cuda")
    streams = [torch.cuda.Stream() for _ in range(3)] if cuda else [None] * 3
    kept = []
    while True:
        made = []
        for i, stream in enumerate(streams):
            with torch.cuda.stream(stream):
                for n in range(1, 9):
                    made.append(torch.zeros(n * 100003 * (i + 1), device=args.device) + 1)
        if cuda:
            for i in range(len(made)):
                made[i].record_stream(streams[(i + 1) % 3])
        kept = made[::5]
        del made
        with torch.cuda.stream(streams[1]):
            kept.append(torch.cat([t[:1000] for t in kept]))
        yield


if __name__ == "__main__":
    oracle.main(job, oracle.arguments(__doc__).parse_args())

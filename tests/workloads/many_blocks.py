# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
Very many live blocks: allocates them after a line on standard input, prints their number, and replaces them one by one until the
next line. --before N exist from the start.

torch >= 2.1, Python >= 3.8.
"""
import argparse
import select
import sys

import torch


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--device", default="cpu")
    p.add_argument("--blocks", type=int, default=1000000)
    p.add_argument("--before", type=int, default=0)
    args = p.parse_args()
    held = [torch.empty(64, device=args.device) for _ in range(args.before)]
    print("ready", flush=True)
    sys.stdin.readline()
    held += [torch.empty(64, device=args.device) for _ in range(args.blocks - args.before)]
    print("live", len(held), flush=True)
    at = 0
    while not select.select([sys.stdin], [], [], 0)[0]:
        for _ in range(100):
            held[at] = None
            held[at] = torch.empty(64, device=args.device)
            at = (at + 1) % len(held)


if __name__ == "__main__":
    main()

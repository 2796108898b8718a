#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Allocates small CPU tensors on two lines for so many seconds, as fast as it can, and then holds the last ones. Prints the bytes
that each line holds: "holds LINE BYTES LINE BYTES"."""
import sys
import time

import torch


def allocate(tiny, small):
    tiny.append(torch.empty(256))  # 1 KiB
    small.append(torch.empty(5000))  # 20,000 bytes


def main():
    print("ready", flush=True)
    end, rounds = time.monotonic() + float(sys.argv[1]), 0
    while time.monotonic() < end or rounds < 3:
        tiny, small = [], []
        for _ in range(3000):
            allocate(tiny, small)
        rounds += 1
    first = allocate.__code__.co_firstlineno + 1
    print("holds", first, len(tiny) * 1024, first + 1, len(small) * 20000, flush=True)
    sys.stdin.readline()


main()

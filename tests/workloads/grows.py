# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""A Python program without PyTorch whose memory grows: by one MiB for each line on standard input."""
import sys

CACHE = {}


def grow(number):
    CACHE[number] = [bytes(16 << 10) for _ in range(64)]  # GROWS


print("ready", flush=True)
for n, _ in enumerate(sys.stdin):
    grow(n)
    print("grown", n, flush=True)

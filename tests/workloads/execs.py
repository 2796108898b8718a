# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Allocates a tensor from time to time, and executes another program after a line on standard input."""
import os
import select
import sys
import time

import torch


def main():
    keep = []
    end = time.monotonic() + 120
    print("ready", flush=True)
    while time.monotonic() < end:
        keep.append(torch.empty(4096, dtype=torch.uint8))
        if select.select([sys.stdin], [], [], 0.05)[0]:
            os.execv("/bin/sleep", ["sleep", "60"])


if __name__ == "__main__":
    main()

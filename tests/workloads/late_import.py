# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Python that imports torch after a line on standard input, then allocates ten tensors per second."""
import sys
import time


def main():
    print("ready", flush=True)
    if not sys.stdin.readline():
        return
    import torch
    print("imported", flush=True)
    keep = []
    end = time.monotonic() + 120
    while time.monotonic() < end:
        keep.append(torch.empty(4096, dtype=torch.uint8))
        time.sleep(0.1)


if __name__ == "__main__":
    main()

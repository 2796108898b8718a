#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""After a line on standard input, runs out of GPU memory the given number of times, continuing each time. Ends with its input."""
import sys

import torch

held = [torch.empty(64 << 20, dtype=torch.uint8, device="cuda") for _ in range(8)]
print("ready", flush=True)
sys.stdin.readline()
caught = 0
for i in range(int(sys.argv[1])):
    t = torch.empty((1 + i % 7) << 20, dtype=torch.uint8, device="cuda")
    try:
        torch.empty(90 << 30, dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError:
        caught += 1
    del t
print("caught %d, counted %d" % (caught, torch.cuda.memory_stats()["num_ooms"]), flush=True)
sys.stdin.read()

# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Measures reads of a kernel's result: microseconds per item() on a device, in a loop at one place."""
import time

import torch

x = torch.randn(8, device="cuda").sum()
for _ in range(1000):
    x.item()
best = None
for _ in range(20):
    begin = time.perf_counter()
    for _ in range(1000):
        x.item()
    took = (time.perf_counter() - begin) * 1000
    best = took if best is None else min(best, took)
print("%.2f" % best)

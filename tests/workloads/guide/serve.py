# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""A server with three workers that hold memory of the GPU, the example of docs/guide/gpu-full.md. Its workers outlive it."""
import os
import time

import torch

for i in range(3):
    if not os.fork():
        held = torch.empty(18 << 30, dtype=torch.uint8, device="cuda")
        os.write(1, b"worker %d\n" % os.getpid())
        time.sleep(600)
time.sleep(600)

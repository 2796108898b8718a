# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
A job that is found by what it is called: named.py TITLE SEED N [hold]

Waits for a line, makes N tensors, each of a size of its own and of nobody else's, writes "made" and their sizes as JSON, and ends; "hold":
waits for a line first. SEED tells jobs' sizes apart. Its PID as it sees it comes first: "ready PID".
"""
import json
import os
import sys

import torch

FIRST = 300007  # bytes

seed, n = int(sys.argv[2]), int(sys.argv[3])
print("ready", os.getpid(), flush=True)
if "now" not in sys.argv:
    sys.stdin.readline()
kept = [torch.empty(FIRST + 100003 * seed + 1013 * i, dtype=torch.uint8) for i in range(n)]
print("made " + json.dumps([t.numel() for t in kept]), flush=True)
if "hold" in sys.argv:
    sys.stdin.readline()

# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
A job found by its name: named.py TITLE SEED N [now] [gloo] [fork] [hold]

Prints "ready PID" (the PID in its own namespace), waits for a line, makes N tensors of globally unique sizes, prints "made" and
the sizes as JSON, and ends. "now": does not wait for that line; "gloo": a barrier with the other ranks of torchrun before and
after; "fork": a child makes tensors first, and prints "forked" and their sizes; "hold": waits for a line before it ends. SEED
makes the jobs' sizes differ.
"""
import json
import os
import sys

import torch

FIRST = 300007  # bytes



def tell(*words):
    """One write per line: ranks share a pipe, and print() may split a line."""
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


seed, n = int(sys.argv[2]) + int(os.environ.get("RANK", "0")), int(sys.argv[3])
tell("ready", os.getpid())
if "now" not in sys.argv:
    sys.stdin.readline()
if "gloo" in sys.argv:
    torch.distributed.init_process_group("gloo")
    torch.distributed.barrier()
if "fork" in sys.argv:
    pid = os.fork()
    kept = [torch.empty(FIRST + 100003 * seed + 1013 * (n + i), dtype=torch.uint8) for i in range(7)] if not pid else []
    if not pid:
        tell("forked", json.dumps([t.numel() for t in kept]))
        os._exit(0)
    os.waitpid(pid, 0)
kept = [torch.empty(FIRST + 100003 * seed + 1013 * i, dtype=torch.uint8) for i in range(n)]
tell("made", json.dumps([t.numel() for t in kept]))
if "gloo" in sys.argv:
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()
if "hold" in sys.argv:
    sys.stdin.readline()

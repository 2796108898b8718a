# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""A service without PyTorch, the example of docs/guide/host.md: it imported a large batch once, and keeps a small part of it."""
import sys

CACHE = {}


def import_batch(n):
    rows = [{"id": i, "text": "%d " % i * (150 + i % 700)} for i in range(n)]
    for row in rows[::400]:
        CACHE[row["id"]] = row["text"]


import_batch(40000)
print("ready", flush=True)
sys.stdin.read()

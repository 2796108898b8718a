# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Phases of memtrace_bpf.phase() with CPU tensors: nested, of threads, coroutines, generators and a forked process. Begins a phase,
prints "ready", and goes on with each line of its input. phased.py FOLDER-OF-phases.py"""
import asyncio
import os
import sys
import threading

import torch

sys.path.insert(0, sys.argv[1])
from phases import phase  # noqa: E402

KIB = 1 << 10


def take(kib):
    return torch.empty(kib * KIB, dtype=torch.uint8)


def work():
    with phase("in thread"):
        kept.append(take(50))


@phase("generate")
async def generate():
    first = take(300)
    await asyncio.sleep(0)
    with phase("decode"):
        second = take(10)
        await asyncio.sleep(0)
    return first, second


async def score():
    with phase("score"):
        large = take(4000)
        del large
        await asyncio.sleep(0)
        kept.append(take(7))


async def tasks():
    await asyncio.gather(generate(), score())


@phase("batches")
def batches():
    for _ in range(2):
        batch = take(20)
        yield batch


@phase("train")
def train(depth):
    kept.append(take(1))
    if depth:
        train(depth - 1)


def fork():
    pid = os.fork()
    if not pid:
        with phase("in child"):
            pass
        os._exit(0)
    os.waitpid(pid, 0)


kept = []
with phase("outer"):
    kept.append(take(100))
    print("ready", flush=True)
    sys.stdin.readline()
    with phase("inner"):
        kept.append(take(200))
        kept.pop()
thread = threading.Thread(target=work)
thread.start()
thread.join()
asyncio.run(tasks())
for _ in batches():
    with phase("consume"):
        unused = take(5000)
        del unused
train(2)
with phase("fork"):
    fork()
print("done", flush=True)
sys.stdin.readline()

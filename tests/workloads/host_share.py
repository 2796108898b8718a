# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
A job whose lines allocate small objects in turn, at random, for the error of sampled rows of host memory.

    host_share.py malloc|python|thread [--mib M] [--seed N]

malloc: objects of 600 to 4000 bytes. python: of 100 to 400 bytes, which CPython's arenas have. thread: as malloc, in a thread with a
malloc arena of its own. Fills the free memory, prints READY, waits for a line on stdin, allocates M MiB, prints DONE with the line
numbers and their bytes, and waits again.
"""
import argparse
import random
import sys
import threading

import torch

SIZES = {"malloc": (600, 4000), "python": (100, 400), "thread": (600, 4000)}
OBJECT = sys.getsizeof(b"")


def taken(kind, size):
    """Bytes that the allocator uses for an object."""
    return (size + OBJECT + 15) // 16 * 16 if kind == "python" else (size + OBJECT + 8 + 15) // 16 * 16


def first(n):
    return bytes(n)  # SHARE: 0


def second(n):
    return bytes(n)  # SHARE: 1


def third(n):
    return bytes(n)  # SHARE: 2


def fourth(n):
    return bytes(n)  # SHARE: 3


LINES = (first, second, third, fourth)
WEIGHTS = (50, 30, 15, 5)


def fill(kind, mib, rng, make, weights, kept, truth):
    left, at = mib << 20, 0
    while left > 0:
        which, size = rng.choices(range(len(make)), weights)[0], rng.randint(*SIZES[kind])
        kept[at] = make[which](size)
        at += 1
        truth[which] += taken(kind, size)
        left -= taken(kind, size)


def work(args):
    room = (args.mib << 20) // SIZES[args.kind][0] + 1
    before, kept, truth = [None] * room, [None] * room, [0] * len(LINES)
    rng = random.Random(args.seed)
    torch.ones(1)
    fill(args.kind, min(args.mib, 24), rng, (bytes,), (1,), before, [0])
    print("READY", flush=True)
    sys.stdin.readline()
    torch.ones(1)
    fill(args.kind, args.mib, rng, LINES, WEIGHTS, kept, truth)
    print("DONE", *("%d:%d" % (f.__code__.co_firstlineno + 1, n) for f, n in zip(LINES, truth)), flush=True)
    sys.stdin.readline()


def main():
    args = argparse.ArgumentParser()
    args.add_argument("kind", choices=sorted(SIZES))
    args.add_argument("--mib", type=int, default=64)
    args.add_argument("--seed", type=int, default=1)
    args = args.parse_args()
    if args.kind != "thread":
        work(args)
        return
    thread = threading.Thread(target=work, args=(args,))
    thread.start()
    thread.join()


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
A random mix of host memory of several kinds, from a seed, and what the program itself knows about it. Prints "ready" and writes the
figures as JSON to a file, then waits for a line on its standard input. Arguments: FILE SEED [KIND...]; without kinds a random choice.
"""
import ctypes
import gc
import json
import mmap
import os
import random
import sys
import threading

import torch

try:
    import numpy
except ImportError:
    numpy = None

MIB = 1 << 20
PAGE = mmap.PAGESIZE
LIBC = ctypes.CDLL(None, use_errno=True)


class Mallinfo2(ctypes.Structure):
    _fields_ = [(n, ctypes.c_size_t) for n in
                "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()]


def random_tensors(rng, keep, truth):
    sizes = [rng.choice((8, 100, 4000, 70000, 3 * MIB)) + rng.randrange(64) for _ in range(rng.randrange(20, 60))]
    keep.append([torch.ones(n, dtype=torch.uint8) for n in sizes])
    truth["tensors"] = truth.get("tensors", 0) + sum(sizes)


def bytes_list(rng, keep, _truth):
    keep.append([os.urandom(rng.choice((16, 200, 480, 5000, 40000))) for _ in range(rng.randrange(2000, 8000))])


def dictionary(rng, keep, _truth):
    keep.append({i: str(i) * rng.randrange(1, 9) for i in range(rng.randrange(10000, 60000))})


def arrays(rng, keep, _truth):
    if numpy:
        keep.append([numpy.ones(rng.choice((1000, 50000, MIB)), dtype=numpy.uint8) for _ in range(rng.randrange(4, 20))])


def mapped(rng, keep, truth):
    pages = rng.randrange(256, 4096)
    m = mmap.mmap(-1, pages * PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    touched = rng.randrange(1, pages)
    for i in range(touched):
        m[i * PAGE] = 1
    keep.append(m)
    truth["mmap"] = truth.get("mmap", 0) + touched * PAGE


def mapped_file(rng, keep, _truth):
    path = "%s.data-%d" % (sys.argv[1], len(keep))
    with open(path, "wb") as f:
        f.write(os.urandom(rng.randrange(1, 8) * MIB))
    with open(path, "r+b") as f:
        m = mmap.mmap(f.fileno(), 0, flags=mmap.MAP_PRIVATE)
    os.unlink(path)
    sum(m[::PAGE])
    m[0:PAGE] = b"x" * PAGE
    keep.append(m)


def shared(rng, keep, truth):
    ts = [torch.ones(rng.randrange(1, 4) * MIB, dtype=torch.uint8).share_memory_() for _ in range(rng.randrange(1, 4))]
    fd = os.memfd_create("of-the-mix")
    size = rng.randrange(1, 6) * MIB
    os.ftruncate(fd, size)
    m = mmap.mmap(fd, size)
    m[:] = b"y" * size
    keep.extend((ts, m))
    truth["shared_loader"] = truth.get("shared_loader", 0) + sum(t.numel() for t in ts)
    truth["shared"] = truth.get("shared", 0) + size


def threads(rng, keep, truth):
    stop = threading.Event()
    n = rng.randrange(2, 12)

    def deep(levels):
        return deep(levels - 1) if levels else allocate()

    def allocate():
        mine = [os.urandom(rng.choice((600, 3000, 20000))) for _ in range(200)]
        del mine[::2]
        started.release()
        stop.wait()
        return mine

    started = threading.Semaphore(0)
    for _ in range(n):
        threading.Thread(target=deep, args=(rng.randrange(5, 60),), daemon=True).start()
    for _ in range(n):
        started.acquire()
    keep.append(stop)
    truth["threads"] = truth.get("threads", 0) + n


def fragments(rng, keep, _truth):
    blocks = [os.urandom(rng.choice((1000, 2000, 60000))) for _ in range(4000)]
    keep.append(blocks[::rng.randrange(5, 40)])


def large(_rng, keep, truth):
    """More than the gibibyte from which memtrace-bpf reads the page map instead of smaps, half of it with zeros that are not resident."""
    keep.append((torch.ones(1 << 30, dtype=torch.uint8), mmap.mmap(-1, 1 << 29, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)))
    sum(keep[-1][1][::1 << 20])
    truth["tensors"] = truth.get("tensors", 0) + (1 << 30)


def pinned(rng, keep, truth):
    """
    Blocks of PyTorch's host allocator. Sizes are powers of two for some, so that all of a block is touched; the others are rounded up,
    and the rest of a block is touched, too. One is freed, which caches it.
    """
    sizes = [(1 << rng.randrange(16, 23)) - (i % 2) * rng.randrange(1, 30000) for i in range(6)]
    blocks = [torch.empty(n, dtype=torch.uint8, pin_memory=True) for n in sizes]
    for b, n in zip(blocks, sizes):
        ctypes.memset(b.data_ptr(), 1, 1 << (n - 1).bit_length())
    torch.zeros(1, device="cuda")
    freed = sizes.pop(0)
    del blocks[0], b
    keep.append([b[10:] for b in blocks])  # a view keeps the whole storage
    rounded = sum(1 << (n - 1).bit_length() for n in sizes)
    truth["pinned"], truth["cached"] = rounded + freed, freed
    truth["requested"], truth["rounding"] = sum(sizes), rounded - sum(sizes)
    truth["allocated"] = getattr(torch.cuda, "host_memory_stats", dict)().get("allocated_bytes.current")


def forked(_rng, keep, _truth):
    r, w = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(w)
        os.read(r, 1)  # until the parent ends
        os._exit(0)
    os.close(r)
    keep.append(w)


KINDS = {f.__name__: f for f in (random_tensors, bytes_list, dictionary, arrays, mapped, mapped_file, shared, threads, fragments, forked)}
CHOSEN = {"pinned": pinned, "large": large}


def known(truth):
    """What the program's own allocators say, after everything else."""
    gc.collect()
    if hasattr(LIBC, "mallinfo2"):
        LIBC.mallinfo2.restype = Mallinfo2
        info = LIBC.mallinfo2()
        truth["mallinfo"] = {n: getattr(info, n) for n, _ in Mallinfo2._fields_}
    truth["blocks"] = sys.getallocatedblocks()
    truth["pid"] = os.getpid()


def main():
    rng = random.Random(int(sys.argv[2]))
    names = sys.argv[3:] or rng.sample(sorted(KINDS), rng.randrange(4, len(KINDS) + 1))
    torch.set_num_threads(1)
    keep, truth = [], {"kinds": names}
    for name in names:
        {**KINDS, **CHOSEN}[name](rng, keep, truth)
    gc.collect()
    with open(sys.argv[1], "w", encoding="utf-8") as f:
        known(truth)
        json.dump(truth, f)
    print("ready", flush=True)
    sys.stdin.readline()
    return keep


if __name__ == "__main__":
    main()

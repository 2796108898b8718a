# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
A job on the CPU that leaks host memory in one of twelve ways, for tests of host memory by line.

    host_leaks.py KIND [--steps N] [--mib M] [--pause SECONDS] [--wait]

Each step leaks M MiB. The line that leaks has a comment LEAK: KIND. --wait: prints READY and waits for a line on stdin before
the first step, and for another one after the last.
"""
import argparse
import concurrent.futures
import ctypes
import mmap
import os
import subprocess
import sys
import tempfile
import threading
import time
from multiprocessing import shared_memory

import numpy
import torch

MIB = 1 << 20
KEPT = []
CACHE = {}


def tensors(mib):
    KEPT.append(torch.ones(mib * MIB // 4))  # LEAK: tensors


def byte_strings(mib):
    KEPT.extend([os.urandom(1) * (256 << 10) for _ in range(mib * 4)])  # LEAK: bytes


def dict_cache(mib):
    for i in range(mib * 1024):
        CACHE[len(CACHE)] = "%d" % i * 150  # LEAK: dict


def pinned(mib):
    KEPT.append(torch.ones(mib * MIB // 4, pin_memory=True))  # LEAK: pinned


def library():
    """A small library with a function that allocates and never frees."""
    folder = tempfile.mkdtemp(prefix="host-leaks-")
    source, built = os.path.join(folder, "leak.c"), os.path.join(folder, "libhostleak.so")
    with open(source, "w", encoding="ascii") as f:
        f.write("#include <stdlib.h>\n#include <string.h>\n"
                "void leak(long n) { while (n--) memset(malloc(4000), 1, 4000); }\n")
    subprocess.run(["cc", "-O1", "-g", "-shared", "-fPIC", "-o", built, source], check=True)
    return ctypes.CDLL(built)


def extension(mib):
    if not CACHE:
        CACHE["lib"] = library()
    CACHE["lib"].leak(ctypes.c_long(mib * MIB // 4000))  # LEAK: extension


def arrays(mib):
    KEPT.append(numpy.ones(mib * MIB // 8))  # LEAK: arrays


class Numbers(torch.utils.data.Dataset):
    def __init__(self, mib):
        self.mib = mib
        self.kept = []

    def __len__(self):
        return 2

    def __getitem__(self, i):
        self.kept.append(bytearray(self.mib * MIB // 2))  # LEAK: loader
        return torch.zeros(4)


def loader(mib):
    if not CACHE:
        CACHE["loader"] = torch.utils.data.DataLoader(Numbers(mib), num_workers=1, persistent_workers=True)
    for _ in CACHE["loader"]:
        pass


def shared(mib):
    segment = shared_memory.SharedMemory(create=True, size=mib * MIB)  # LEAK: shared
    segment.buf[:] = bytes(mib * MIB)
    KEPT.append(segment)


def forked(mib):
    """A child process writes to the pages that it has from its parent."""
    if not CACHE:
        CACHE["pages"] = bytearray(256 * MIB)
        for i in range(0, len(CACHE["pages"]), 4096):
            CACHE["pages"][i] = 1
        to_child, of_parent = os.pipe()
        CACHE["pipe"] = of_parent
        if not os.fork():
            os.close(of_parent)
            done = 0
            while os.read(to_child, 1):
                for i in range(done, done + mib * MIB, 4096):
                    CACHE["pages"][i] = 2  # LEAK: forked
                done += mib * MIB
                torch.ones(1)
            os._exit(0)
    os.write(CACHE["pipe"], b"x")


def mapped(mib):
    area = mmap.mmap(-1, mib * MIB)  # LEAK: mapped
    for i in range(0, mib * MIB, 4096):
        area[i] = 1
    KEPT.append(area)


def threads(mib):
    """Threads that never end, each with a stack that it has used."""
    def body(lock):
        use_stack(mib)
        lock.acquire()

    threading.stack_size((mib + 1) * MIB)
    lock = threading.Lock()
    lock.acquire()
    thread = threading.Thread(target=body, args=(lock,), daemon=True)
    thread.start()  # LEAK: threads
    KEPT.append((thread, lock))


def use_stack(mib):
    """Touches the thread's C stack, from near its lowest address up to near the running frames."""
    libc = ctypes.CDLL(None)
    attr = (ctypes.c_char * 64)()
    low, size = ctypes.c_void_p(), ctypes.c_size_t()
    libc.pthread_self.restype = ctypes.c_void_p
    libc.pthread_getattr_np(ctypes.c_void_p(libc.pthread_self()), attr)
    libc.pthread_attr_getstack(attr, ctypes.byref(low), ctypes.byref(size))
    libc.pthread_attr_destroy(attr)
    ctypes.memset(low.value + (64 << 10), 1, (mib * MIB) - (320 << 10))


def fragments(mib):
    """The thread has a malloc arena of its own, without holes at first."""
    if not CACHE:
        CACHE["worker"] = concurrent.futures.ThreadPoolExecutor(1)
    CACHE["worker"].submit(fragment, mib).result()


def fragment(mib):
    """Blocks shrink in place. The next step's are larger, so that no hole has room for one."""
    libc = ctypes.CDLL(None)
    libc.malloc.restype = libc.realloc.restype = ctypes.c_void_p
    size = 40000 + 64 * len(CACHE)
    CACHE[size] = None
    for _ in range(mib * MIB // size):
        block = libc.malloc(ctypes.c_size_t(size))  # LEAK: fragments
        ctypes.memset(block, 1, size)
        CACHE.setdefault("blocks", []).append(block)
    for block in CACHE["blocks"]:
        KEPT.append(libc.realloc(ctypes.c_void_p(block), ctypes.c_size_t(64)))
    CACHE["blocks"].clear()


KINDS = {"tensors": tensors, "bytes": byte_strings, "dict": dict_cache, "pinned": pinned, "extension": extension,
         "arrays": arrays, "loader": loader, "shared": shared, "forked": forked, "mapped": mapped, "threads": threads,
         "fragments": fragments}


def main():
    args = argparse.ArgumentParser()
    args.add_argument("kind", choices=sorted(KINDS))
    args.add_argument("--steps", type=int, default=20)
    args.add_argument("--mib", type=int, default=4)
    args.add_argument("--pause", type=float, default=0.1)
    args.add_argument("--wait", action="store_true")
    args = args.parse_args()
    model = torch.nn.Linear(64, 64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    if args.wait:
        print("READY", flush=True)
        sys.stdin.readline()
    for _ in range(args.steps):
        loss = model(torch.ones(8, 64)).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        KINDS[args.kind](args.mib)
        time.sleep(args.pause)
    if args.wait:
        print("DONE", flush=True)
        sys.stdin.readline()


if __name__ == "__main__":
    main()


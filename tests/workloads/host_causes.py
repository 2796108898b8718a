# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
As tests/programs/host/causes.c, in Python without PyTorch: host_causes.py KIND MIB. Prints "ready", waits for a line, takes the
memory, prints "grown", and waits for another line.
"""
import ctypes
import sys

KEPT, CACHE = [], {}


def take_bytes(mib):
    for _ in range(mib * 64):
        KEPT.append(bytes(16000))  # LEAK: bytes


def take_dict(mib):
    for i in range(mib * 2048):
        CACHE[i] = "%0400d" % i  # LEAK: dict


def take_arrays(mib):
    import numpy
    for _ in range(mib):
        KEPT.append(numpy.ones((1 << 20) // 8))  # LEAK: arrays


def take_extension(mib):
    libc = ctypes.CDLL(None)
    libc.malloc.restype = ctypes.c_void_p
    for _ in range(mib * 64):
        ctypes.memset(libc.malloc(ctypes.c_size_t(16000)), 1, 16000)  # LEAK: extension


KINDS = {"bytes": take_bytes, "dict": take_dict, "arrays": take_arrays, "extension": take_extension}

if __name__ == "__main__":
    print("ready", flush=True)
    if sys.stdin.readline():
        KINDS[sys.argv[1]](int(sys.argv[2]))
        print("grown", flush=True)
        sys.stdin.readline()

# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
One rank of a made-up job without PyTorch, for tests of many: fleet.py HOOKS. Calls the allocator's report function of
the library HOOKS (tests/programs/hooks.cc), as PyTorch does: WEIGHTS once, then ACTIVATIONS for each step, every 10 ms, until
its input ends. FLEET_EXTRA in the environment: bytes that this rank keeps once more, in odd().
"""
import ctypes
import os
import select
import sys

WEIGHTS, ACTIVATIONS, CUDA = 64 << 20, 16 << 20, 1
library = ctypes.CDLL(sys.argv[1])
call = getattr(library, "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE")
call.argtypes = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_uint16]
call.restype = None
allocated, kept = 0, {}


def taken(address, size):
    """Arguments of the call that reports an allocation, which each function makes itself: the lines differ."""
    global allocated
    allocated += size
    kept[address] = size
    return address, size, allocated, 1 << 30, CUDA


def free(address):
    global allocated
    size = kept.pop(address)
    allocated -= size
    call(address, -size, allocated, 1 << 30, CUDA)


def weights():
    call(*taken(1 << 40, WEIGHTS))


def forward(n):
    call(*taken(2 << 40 | n << 28, ACTIVATIONS))


def odd(size):
    call(*taken(3 << 40, size))


def main():
    step = 0
    print("ready", flush=True)
    while not select.select([sys.stdin], [], [], 0.01)[0]:
        # Again and again, so that a window has them, too.
        for address in (1 << 40, 3 << 40):
            if address in kept:
                free(address)
        weights()
        if "FLEET_EXTRA" in os.environ:
            odd(int(os.environ["FLEET_EXTRA"]))
        for n in range(4):
            forward(n)
        for n in range(4):
            free(2 << 40 | n << 28)
        step += 1


main()

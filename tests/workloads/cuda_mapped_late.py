# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Maps a CUDA runtime as the dynamic loader does: first all of it, then its data over the end of that. In between it waits until
the first of its functions has a probe. usage: cuda_mapped_late.py RUNTIME; waits for a line before mapping and before ending."""
import ctypes
import mmap
import os
import sys
import time

import torch

block = torch.empty(1)
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
fd = os.open(sys.argv[1], os.O_RDONLY)
text = os.read(fd, os.fstat(fd).st_size)
size = len(text) // mmap.PAGESIZE * mmap.PAGESIZE
print("ready", flush=True)
sys.stdin.readline()
at = libc.mmap(None, size, mmap.PROT_READ | mmap.PROT_EXEC, mmap.MAP_PRIVATE, fd, 0)
end = time.monotonic() + 30
while ctypes.string_at(at, size) == text[:size] and time.monotonic() < end:
    pass
libc.mmap(at + size - mmap.PAGESIZE, mmap.PAGESIZE, mmap.PROT_READ, mmap.MAP_PRIVATE | 0x10, fd, size - mmap.PAGESIZE)  # MAP_FIXED
print("mapped", flush=True)
sys.stdin.readline()

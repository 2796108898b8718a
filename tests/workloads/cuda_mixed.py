# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Python that takes CUDA memory through a C library: cuda_mixed.py LIBRARY [torch]. Waits for a line of input, then takes 64 MiB in
the library and, with torch, 32 MiB in a tensor; again for each line."""
import ctypes
import sys

if "torch" in sys.argv:
    import torch

library = ctypes.CDLL(sys.argv[1])
library.init_library.restype = ctypes.c_void_p
library.init_library.argtypes = [ctypes.c_size_t]


def communicate():
    return library.init_library(64 << 20)  # the line of communicate


print("ready", flush=True)
held = []
for _ in sys.stdin:
    if "torch" in sys.argv:
        held.append(torch.empty(32 << 20, dtype=torch.uint8, device="cuda"))
    communicate()
    print("done", flush=True)

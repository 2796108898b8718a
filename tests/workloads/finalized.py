# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Says "ready". After a line its Python ends, and the process stays: C's exit() makes it wait for a signal."""
import ctypes
import sys

libc = ctypes.CDLL(None)
libc.__cxa_atexit(ctypes.cast(libc.pause, ctypes.c_void_p), None, None)
print("ready", flush=True)
sys.stdin.readline()

# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Prints "ready". After a line its Python ends, but the process stays: an exit handler waits for a signal."""
import ctypes
import sys

libc = ctypes.CDLL(None)
libc.__cxa_atexit(ctypes.cast(libc.pause, ctypes.c_void_p), None, None)
print("ready", flush=True)
sys.stdin.readline()

# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Calls the hooks of c10.c from five threads: 250 blocks of 64 bytes, every second one freed. usage: target.py LIBRARY DELAY"""
import ctypes
import sys
import threading
import time

lib = ctypes.CDLL(sys.argv[1])
new = lib._ZN3c1025ProfiledCPUMemoryReporter3NewEPvm
new.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
delete = lib._ZN3c1025ProfiledCPUMemoryReporter6DeleteEPv
delete.argtypes = [ctypes.c_void_p, ctypes.c_void_p]


def allocate(i):
    new(None, 0x100000 + i * 64, 64)


def work(k):
    for i in range(k * 1000, k * 1000 + 50):
        allocate(i)
        if i % 2:
            delete(None, 0x100000 + i * 64)


print("ready", flush=True)
time.sleep(float(sys.argv[2]))
threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
for t in threads:
    t.start()
for t in threads:
    t.join()
work(9)
print("done", flush=True)

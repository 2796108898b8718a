# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""A Python whose type of code objects points to a function of another library: tenant_pointer.py LIBRARY SYMBOL. Runs until its
standard input ends, without freeing a code object."""
import ctypes
import gc
import sys

TP_DEALLOC = 6 * ctypes.sizeof(ctypes.c_void_p)  # ob_refcnt, ob_type, ob_size, tp_name, tp_basicsize, tp_itemsize

gc.disable()
function = getattr(ctypes.CDLL(sys.argv[1]), sys.argv[2])
read = sys.stdin.read
at = ctypes.c_void_p.from_address(ctypes.addressof(ctypes.py_object.in_dll(ctypes.pythonapi, "PyCode_Type")) + TP_DEALLOC)
was = at.value
at.value = ctypes.cast(function, ctypes.c_void_p).value
print("ready", flush=True)
read()
at.value = was

#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""A Python whose PyCode_Type.tp_dealloc points to another function: points.py LIBRARY FUNCTION; LIBRARY "" is the interpreter. Runs
until its standard input ends, and frees no code object."""
import ctypes
import gc
import os
import sys

gc.disable()
library = ctypes.CDLL(sys.argv[1]) if sys.argv[1] else ctypes.pythonapi
code = ctypes.addressof(ctypes.py_object.in_dll(ctypes.pythonapi, "PyCode_Type"))
# behind ob_refcnt, ob_type, ob_size, tp_name, tp_basicsize, tp_itemsize
ctypes.c_void_p.from_address(code + 48).value = ctypes.cast(library[sys.argv[2]], ctypes.c_void_p).value
os.write(1, b"ready\n")
os.read(0, 1)
os._exit(0)

# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
Imports PyTorch as on a slow disk: nothing happens for SECONDS after CUDA's libraries were mapped, and PyTorch's come later.
slow_import.py SECONDS. Then it keeps 20 tensors of 4,000 bytes.
"""
import ctypes
import sys
import time

really = ctypes.CDLL
waited = []


def slowly(name, *args, **kwargs):
    library = really(name, *args, **kwargs)
    if "libtorch_global_deps" in str(name):
        time.sleep(float(sys.argv[1]))
        waited.append(name)
    return library


ctypes.CDLL = slowly
import torch  # noqa: E402

kept = [torch.ones(1000) for _ in range(20)]
print("waited" if waited else "did not wait")

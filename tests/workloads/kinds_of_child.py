# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Makes children of each kind; after each, a function named after the kind keeps 20 tensors: kinds_of_child.py [LIBRARY]. LIBRARY:
tests/programs/shares_memory.c, for children that no Python call makes. Prints PyTorch's peak if it has CUDA."""
import ctypes
import os
import subprocess
import sys
import tempfile

import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
BYTES = 1 << 20
NOT_EXECUTABLE = tempfile.NamedTemporaryFile()
kept = []


def twenty():
    return [torch.empty(BYTES, dtype=torch.uint8, device=DEVICE) for _ in range(20)]


def start(*args, **kwargs):
    try:
        subprocess.run(list(args), stderr=subprocess.DEVNULL, check=False, **kwargs)
    except OSError:
        pass


def program_exists():
    start("true")
    kept.append(twenty())


def missing_in_a_shell():
    start("no-such-program", shell=True)
    kept.append(twenty())


def missing_after_a_function():
    start("no-such-program", preexec_fn=lambda: None)
    kept.append(twenty())


def missing():
    start("no-such-program")
    kept.append(twenty())


def missing_folder():
    start("true", cwd="/no/such/folder")
    kept.append(twenty())


def not_executable():
    start(NOT_EXECUTABLE.name)
    kept.append(twenty())


def missing_spawned():
    try:
        os.posix_spawn("/no/such/program", ["x"], {})
    except OSError:
        pass
    kept.append(twenty())


def forked():
    pid = os.fork()
    if not pid:
        os._exit(0)
    os.waitpid(pid, 0)
    kept.append(twenty())


def vforked():
    library.vforked()
    kept.append(twenty())


def cloned():
    """The child also reports an allocation to PyTorch's profiler, on this process's memory."""
    c10 = ctypes.CDLL(os.path.join(os.path.dirname(torch.__file__), "lib", "libc10.so"))
    try:
        report = c10._ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE
    except AttributeError:  # before PyTorch 2.1
        report = c10._ZN3c1027reportMemoryUsageToProfilerEPvlllNS_6DeviceE
    library.cloned(ctypes.cast(report, ctypes.c_void_p))
    kept.append(twenty())


kinds = [program_exists, missing_in_a_shell, missing_after_a_function, missing, missing_folder, not_executable, missing_spawned, forked]
if len(sys.argv) > 1:
    library = ctypes.CDLL(sys.argv[1])
    kinds += [vforked, cloned]
for kind in kinds:
    kind()
if DEVICE == "cuda":
    print("peak", torch.cuda.max_memory_allocated(), flush=True)

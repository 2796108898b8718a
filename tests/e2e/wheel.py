# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""The wheel's package memtrace_bpf for tests: its modules, and the program of this build."""
import glob
import os

import harness

MODULES = os.path.join(harness.REPO, "tools", "packaging", "wheel")


def package(program=True):
    """A folder for PYTHONPATH with the package. program: it has the program, too."""
    path = harness.scratch("package" if program else "package-alone")
    inside = os.path.join(path, "memtrace_bpf")
    if not os.path.exists(path):
        os.makedirs(os.path.join(inside, "bin"))
        for module in glob.glob(os.path.join(MODULES, "*.py")):
            os.symlink(module, os.path.join(inside, os.path.basename(module)))
        os.symlink(os.path.join(MODULES, "__init__.py.in"), os.path.join(inside, "__init__.py"))
        if program:
            os.symlink(harness.TOOL, os.path.join(inside, "bin", "memtrace-bpf"))
    return path

# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
Python imports this file at its start in every process of the tests (harness.py). Garbage collections take a third of the time of
`import torch`, and the tests import it several hundred times: they are off during that import.

It leaves no frame on the stack during the import: importlib sets an attribute of the module's spec before and after.
"""
import gc
import os
import sys
from importlib.machinery import ModuleSpec, PathFinder


class Quiet(ModuleSpec):
    @property
    def _initializing(self):
        return self.__dict__.get("_initializing", False)

    @_initializing.setter
    def _initializing(self, value):
        self.__dict__["_initializing"] = value
        (gc.disable if value else gc.enable)()


class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name not in ("torch", "torch._dynamo"):
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec and gc.isenabled():
            spec.__class__ = Quiet
        return spec


sys.meta_path.insert(0, Finder)

if "MEMTRACE_FORKS" in os.environ:
    import forks
    forks.serve(int(os.environ.pop("MEMTRACE_FORKS")))

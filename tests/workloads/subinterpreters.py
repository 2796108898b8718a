# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Allocations before, within and after a subinterpreter on the same thread. usage: subinterpreters.py LIBRARY; LIBRARY is
tests/kernels/c10.c, compiled. Prints "ready", continues after a line on standard input, then prints "done". Sizes identify the
cases: 1000 before, 2000 within, 3000 after, 4000 on another thread that has run a subinterpreter, 5000 in a module that has
run one, while another thread may have its thread state at the subinterpreter's old address."""
import ctypes
import sys
import threading
import types

try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters

lib = ctypes.CDLL(sys.argv[1])
new = lib._ZN3c1025ProfiledCPUMemoryReporter3NewEPvm
new.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
INNER = """
import ctypes
new = ctypes.CDLL(%r)._ZN3c1025ProfiledCPUMemoryReporter3NewEPvm
new.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]


def inner():
    new(None, 0x2000, 2000)


inner()
""" % sys.argv[1]


def create():
    """A subinterpreter that can import ctypes."""
    try:
        return interpreters.create("legacy")
    except TypeError:
        return interpreters.create(isolated=False)


def before():
    new(None, 0x1000, 1000)


def after(size):
    new(None, 0x100 * size, size)


def run(size):
    interpreters.run_string(interpreter, INNER)
    after(size)


class Module:
    """The attributes of torch.nn.Module that the tool reads."""

    def __init__(self):
        self._modules, self._parameters, self._buffers = {}, {}, {}

    def _wrapped_call_impl(self, *args):
        return self.forward(*args)

    __call__ = _wrapped_call_impl


Module.__module__ = "torch.nn.modules.module"
sys.modules[Module.__module__] = types.ModuleType(Module.__module__)
sys.modules[Module.__module__].Module = Module


def decoy(started, over):
    started.set()
    over.wait()


class Runs(Module):
    def forward(self, number):
        interpreters.run_string(interpreter, INNER)
        over, threads = threading.Event(), []
        for _ in range(8):
            started = threading.Event()
            threads.append(threading.Thread(target=decoy, args=(started, over)))
            threads[-1].start()
            started.wait()
        for _ in range(10):
            after(5000 + number)
        over.set()
        for t in threads:
            t.join()


interpreter = create() if sys.version_info >= (3, 9) else interpreters.create()
print("ready", flush=True)
sys.stdin.readline()
before()
run(3000)
other = threading.Thread(target=run, args=(4000,))
other.start()
other.join()
list(map(Runs(), range(3)))
print("done", flush=True)
sys.stdin.readline()

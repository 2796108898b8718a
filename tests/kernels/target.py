# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
Calls the hooks of c10.c a known number of times. usage: target.py LIBRARY

Commands, one per line: "work": 250 blocks of 64 bytes from five threads, every second one freed, within two nested modules;
"backward": autograd nodes that allocate on their own thread; "fork N": children that work and exit; "calls N": N blocks from one
line of C, answered with the nanoseconds; "maps N": maps N areas; "run": works until the next line; "grow": takes memory until it is
killed. Answers each line with its own counts.
"""
import ctypes
import mmap
import os
import select
import sys
import threading
import types

lib = ctypes.CDLL(sys.argv[1])
new = lib._ZN3c1025ProfiledCPUMemoryReporter3NewEPvm
new.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
delete = lib._ZN3c1025ProfiledCPUMemoryReporter6DeleteEPv
delete.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
lib.calls_take.restype = ctypes.c_int64


class Module:
    """The attributes of torch.nn.Module that the tool reads."""

    def __init__(self, **modules):
        self._modules = modules
        self._parameters = {}
        self._buffers = {}

    def _wrapped_call_impl(self, *args):
        return self.forward(*args)

    __call__ = _wrapped_call_impl


Module.__module__ = "torch.nn.modules.module"
sys.modules[Module.__module__] = types.ModuleType(Module.__module__)
sys.modules[Module.__module__].Module = Module


class Inner(Module):
    def forward(self, i):
        new(None, 0x100000 + i * 64, 64)


class Outer(Module):
    def forward(self, numbers):
        return list(map(self._modules["inner"], numbers))


model = Outer(inner=Inner())
areas = []


def work(k):
    for i in range(k * 1000, k * 1000 + 50):
        list(map(model, [[i]]))
        if i % 2:
            delete(None, 0x100000 + i * 64)


def threads():
    some = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in some:
        t.start()
    for t in some:
        t.join()
    work(9)
    return "250 125"


def backward():
    for _ in range(20):
        lib.forward()
    return "%d" % lib.backward(ctypes.c_void_p(0x80000000))


def fork(n):
    bad = 0
    for _ in range(n):
        child = os.fork()
        if not child:
            work(20)
            os._exit(7)
        bad += os.waitpid(child, 0)[1] != 7 << 8
    return "%d bad" % bad


def forever():
    rounds = 0
    print("runs", flush=True)  # flush before the next line, which could be read together with this one
    while not select.select([sys.stdin], [], [], 0)[0]:
        work(30)
        rounds += 1
    sys.stdin.readline()
    return "%s rounds" % ("some" if rounds else "no")


def grow():
    """Takes memory until the process is killed."""
    taken = []
    while True:
        taken.append(b"x" * (1 << 20))
        work(31)


def calls(n):
    """Nanoseconds for n allocations from C, at one line."""
    return "%d" % lib.calls_take(n)


def maps(n):
    """Maps n areas of 1 MiB, writes to all pages of each, and unmaps every second one."""
    for i in range(n):
        area = mmap.mmap(-1, 1 << 20)
        area.write(b"x" * (1 << 20))
        if i % 2:
            area.close()
        else:
            areas.append(area)
    return "%d areas" % len(areas)


print("ready", flush=True)
for line in iter(sys.stdin.readline, ""):
    what, *n = line.split()
    print("done", {"work": threads, "backward": backward, "run": forever, "grow": grow, "maps": lambda: maps(int(n[0])), "fork": lambda: fork(int(n[0])), "calls": lambda: calls(int(n[0]))}[what](), flush=True)

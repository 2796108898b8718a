# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""A program with hostile names (a JSON list of hex digits, argument 1) for its files, functions, modules, classes, threads,
variables and itself; modules in a cycle, a list that contains itself, a name of many megabytes. Each line of input makes it
allocate once from a thousand functions."""
import ctypes
import json
import sys
import threading

import torch
from torch import nn

with open(sys.argv[1], encoding="ascii") as f:
    names = [bytes.fromhex(n).decode("utf-8", "surrogateescape") for n in json.load(f)]


def plain(name):
    """The name as an identifier: without NUL, which module and class names reject."""
    return name.replace("\0", "\1")


def function(i):
    """A function whose file and name are hostile."""
    code = compile("def f(keep, torch):\n    keep.append(torch.empty(1024))\n", "x.py", "exec").co_consts[0]
    name = names[i] or "empty"
    changes = {"co_name": name, "co_filename": names[-i - 1] or "empty"}
    if sys.version_info >= (3, 11):
        changes["co_qualname"] = name
    return type(function)(code.replace(**changes), {})


def module(i):
    name = plain(names[i]).encode("utf-8", "replace").decode("utf-8")  # CPython rejects incomplete characters there
    cls = type(name or "Empty", (nn.Linear,), {"__module__": plain(names[-i - 1])})
    return cls(2, 2)


class Circle(nn.Module):
    def forward(self, x):
        return x


model = nn.Module()
for i in range(0, 400):
    model._modules[plain(names[i])] = module(i)
circle = Circle()
circle._modules["back"] = circle
circle._modules["up"] = model
model._modules["circle"] = circle
model._modules["\x1b[31m" * 2000000] = nn.Linear(2, 2)
for i in range(0, 200):
    model._parameters[plain(names[i + 400])] = nn.Parameter(torch.empty(16))
    globals()[names[i + 600]] = torch.empty(32)
cyclic = [torch.empty(8)]
cyclic.append(cyclic)
optimizer = torch.optim.SGD(model._modules[plain(names[5])].parameters(), lr=0.1, momentum=0.9)
functions = [function(i) for i in range(1000)]
ctypes.CDLL(None).prctl(15, b"\x1b[31m\xe2\x80\xae\xff\n", 0, 0, 0)  # PR_SET_NAME


def work(which, into):
    ctypes.CDLL(None).prctl(15, names[which].encode("utf-8", "surrogateescape")[:15], 0, 0, 0)
    for f in functions[which::4]:
        f(into, torch)
    for child in list(model._modules.values())[which:40:4]:
        into.append(child(torch.empty(3, 2)))


print("ready", flush=True)
kept = []
for line in sys.stdin:
    threads = [threading.Thread(target=work, args=(k, kept)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    print("done", flush=True)

# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
Memory that code in no file allocates: code that a library makes with exec(), that dataclasses makes, and that this program makes. The library has a class whose __init__
allocates: CPython 3.13 and newer put a frame around it that is in no file.

usage: generated_code.py FOLDER: writes a library into FOLDER/site-packages. Prints "ready", the PID of this process and that of a
child that the library runs, allocates after a line of input, prints the bytes of each line, and waits for another line. Python >= 3.11.
"""
import functools
import json
import multiprocessing
import os
import sys
import types
from dataclasses import dataclass, field

import torch

LIBRARY = '''
import torch

SOURCE = """
def execution_fn(n):
    return torch.zeros(n)
"""


def compiled():
    namespace = {"torch": torch}
    exec(SOURCE, namespace)
    return namespace["execution_fn"]


def run(n):
    return compiled()(n)  # LINE run


class Buffer:
    def __init__(self, n):
        self.t = torch.zeros(n)


def serve(connection):
    torch.set_num_threads(1)
    kept = []
    connection.send("ready")
    connection.recv()
    kept.append(run(7000))  # LINE serve
    connection.send("done")
    connection.recv()
'''
MINE = """
def mine():
    return torch.zeros(5000)
"""


CELL = """
def cell(n):
    return torch.zeros(n)


def holder(n):
    held = torch.ones(n)
    yield held
"""


def cells():
    """Functions of two notebook cells. IPython, which is not needed here, has the number of the first one."""
    paths = ["/tmp/ipykernel_%d/%d.py" % (os.getpid(), n) for n in (3425228602, 99)]
    shell = types.ModuleType("IPython.core.interactiveshell")
    shell.InteractiveShell = type("InteractiveShell", (), {})
    shell.InteractiveShell._instance = shell.InteractiveShell()
    shell.InteractiveShell._instance.compile = type("CachingCompiler", (), {})()
    shell.InteractiveShell._instance.compile._filename_map = {"/tmp/other.py": 3, paths[0]: 7}
    sys.modules[shell.__name__] = shell
    for path in paths:
        namespace = {"torch": torch}
        exec(compile(CELL, path, "exec"), namespace)
        yield namespace


@dataclass
class State:
    size: int
    cache: torch.Tensor = field(default_factory=functools.partial(torch.zeros, 1000))


def allocate(engine):
    namespace = {"torch": torch}
    exec(MINE, namespace)
    of_cells = list(cells())
    holder = of_cells[0]["holder"](17000)
    next(holder)
    typed = {"torch": torch}  # in IPython's shell
    exec(compile(CELL, "<ipython-input-8-ab66366a8312>", "exec"), typed)
    of_shell = typed["holder"](19000)
    next(of_shell)
    return [
        holder,
        of_shell,
        State(1),  # LINE dataclass
        engine.run(3000),  # LINE library
        namespace["mine"](),
        [cell["cell"](11000 + 2000 * i) for i, cell in enumerate(of_cells)],
        [engine.Buffer(9000) for _ in range(40)],  # LINE class
    ]


def main():
    path = os.path.join(sys.argv[1], "site-packages")
    os.makedirs(path, exist_ok=True)
    with open(os.path.join(path, "an_engine.py"), "w", encoding="utf-8") as f:
        f.write(LIBRARY)
    sys.path.insert(0, path)
    import an_engine
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    child = context.Process(target=an_engine.serve, args=(theirs,))
    child.start()
    ours.recv()
    print("ready", os.getpid(), child.pid, flush=True)
    sys.stdin.readline()
    kept = allocate(an_engine)
    ours.send("go")
    ours.recv()
    print(json.dumps({"dataclass": 4000, "library": 12000, "mine": 20000, "serve": 28000, "class": 40 * 36000, "cells": [44000, 52000], "kept": len(kept)}), flush=True)
    sys.stdin.readline()
    ours.send("end")
    child.join()


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
Memory that code in no file allocates: code that a library makes with exec(), that dataclasses makes, and that this program makes.

usage: generated_code.py FOLDER: writes a library into FOLDER/site-packages. Prints "ready", the PID of this process and that of a
child that the library runs, allocates after a line of input, prints the bytes of each line, and waits for another line. Python >= 3.11.
"""
import functools
import json
import multiprocessing
import os
import sys
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


@dataclass
class State:
    size: int
    cache: torch.Tensor = field(default_factory=functools.partial(torch.zeros, 1000))


def allocate(engine):
    namespace = {"torch": torch}
    exec(MINE, namespace)
    return [
        State(1),  # LINE dataclass
        engine.run(3000),  # LINE library
        namespace["mine"](),
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
    print(json.dumps({"dataclass": 4000, "library": 12000, "mine": 20000, "serve": 28000, "kept": len(kept)}), flush=True)
    sys.stdin.readline()
    ours.send("end")
    child.join()


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""What a phase costs beside other context managers, in ns of processor time: phase_cost.py FOLDER-OF-phases.py [TURNS [C-PROGRAM]].

They take turns. Prints a line for each: name, median, and the range that the median of such turns has in 95 % of samples drawn from
them. C-PROGRAM is tests/programs/phased.c. torch.cuda.nvtx and record_function need PyTorch, nvtx one with CUDA."""
import itertools
import os
import random
import statistics
import struct
import subprocess
import sys
import time

sys.path.insert(0, sys.argv[1])
from phases import SIZE, phase  # noqa: E402

EACH = 5000
turns = int(sys.argv[2]) if len(sys.argv) > 2 else 40
record = struct.Struct("QQQIHxx80s8xQ").pack_into
memory, numbers, now = bytearray(SIZE), itertools.count(1), time.monotonic_ns


class Nothing:
    """The least that a with statement can be: one object that is there."""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


class Named(Nothing):
    """A new object for each run, with a name."""
    __slots__ = ("name",)

    def __init__(self, name):
        self.name = name


class Records(Named):
    """The least that a phase has to do: take two numbers and times, and write two records. It knows no thread, and does not nest."""
    __slots__ = ()

    def __enter__(self):
        number = next(numbers)
        record(memory, 0, number, now(), 0, 0, 1, self.name, number)
        return self

    def __exit__(self, *_):
        number = next(numbers)
        record(memory, 0, number, now(), number, 0, 2, self.name, number)


def loop(_):
    for _ in range(EACH):
        pass


def reused(_):
    nothing = Nothing()
    for _ in range(EACH):
        with nothing:
            pass


def runs_of(make, name="rollout"):
    def run(_):
        for _ in range(EACH):
            with make(name):
                pass
    return run


def nested(_):
    for _ in range(EACH // 2):
        with phase("rollout"):
            with phase("generate"):
                pass


def c_header(program):
    """The program measures by itself; it is one process for a turn."""
    return float(subprocess.run([program, "measure"], capture_output=True, text=True, check=True).stdout)


what = {"loop": loop, "one object, reused": reused, "a new object with a name": runs_of(Named), "two records and no more": runs_of(Records, b"rollout"),
        "phase": runs_of(phase), "phase in a phase": nested}
try:
    import torch
    what["torch.profiler.record_function"] = runs_of(torch.profiler.record_function)
    torch.cuda.nvtx.range_push("x")
    torch.cuda.nvtx.range_pop()
    what["torch.cuda.nvtx.range"] = runs_of(torch.cuda.nvtx.range)
except (ImportError, RuntimeError):
    pass
took = {name: [] for name in what}
if len(sys.argv) > 3:
    took["C header"] = []
for _ in range(turns):
    empty = 0.0
    for name, f in what.items():
        before = time.process_time_ns()
        f(name)
        each = (time.process_time_ns() - before) / EACH
        empty = each if name == "loop" else empty
        took[name].append(each - (0 if name == "loop" else empty))
    if "C header" in took:
        took["C header"].append(c_header(sys.argv[3]))
draw = random.Random(1)
print("# Python %s, %d turns, PID %d" % (sys.version.split()[0], turns, os.getpid()))
for name, values in took.items():
    medians = sorted(statistics.median(draw.choices(values, k=len(values))) for _ in range(1000))
    print("%-32s %7.0f %7.0f %7.0f" % (name, statistics.median(values), medians[25], medians[974]))

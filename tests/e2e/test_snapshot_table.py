#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# run: long nightly=versions cpu=600
"""PyTorch's snapshots of each version, kind of history and way of writing, compared with the recording of the same run.
`tools/dev/matrix.py snapshots` writes the table of docs/reference/SUPPORT.md from it."""
import json
import os
import subprocess

import harness
from harness import check, python, run
from torch_snapshots import compare_files, run_both

# What the table calls a job of tests/workloads/cuda/several.py, and the oldest PyTorch that has what it needs.
JOBS = {"mlp": ("training", (2, 1)), "gpt": ("transformer", (2, 1)), "decoding": ("inference", (2, 1)), "checkpointing": ("checkpointing", (2, 1)),
        "streams": ("streams", (2, 1)), "threads": ("threads", (2, 1)), "two_devices": ("two devices", (2, 1)), "fragments": ("fragmentation", (2, 1)),
        "empty_cache": ("empty_cache", (2, 1)), "loader": ("pinned memory", (2, 1)), "graphs": ("CUDA graphs", (2, 1)),
        "mempool": ("MemPool", (2, 5)), "oom": ("out of memory", (2, 1))}
FEW = ("mlp", "decoding")
# The call, the allocator, options of the workload, jobs, whether the snapshot has no trace.
RUNS = (
    ('enabled="all", stacks="python"', "native", (), tuple(JOBS), False),
    ('enabled="all", stacks="python"', "expandable", (), ("mlp", "gpt", "streams", "fragments", "empty_cache", "oom"), False),
    ('enabled="all", stacks="all"', "native", ("--stacks", "all"), FEW, False),
    ('enabled="state", stacks="python"', "native", ("--history", "state"), FEW, True),
    ('enabled="state", stacks="all"', "native", ("--history", "state", "--stacks", "all"), FEW, True),
    # PyTorch 2.1 passes this call's arguments in another order than it takes them, and keeps one entry at most.
    ("enabled=True, PyTorch 2.0's call", "native", ("--history", "legacy"), FEW, False))
# How the file was written: its name's end, and whether it has no trace.
WAYS = (("_dump_snapshot()", "", False), ("_snapshot(), protocol 0", ".hand", False), ("memory_snapshot()", ".list", True))


def version_of(role):
    return subprocess.run([python(role), "-W", "ignore", "-c", "import torch; print(torch.__version__)"], capture_output=True, text=True, check=True).stdout.strip()


def note(cell):
    """A row of the table, if `matrix.py` asks for it."""
    if os.environ.get("MATRIX"):
        subprocess.run([os.path.join(harness.REPO, "tools", "dev", "matrix.py"), "add", "snapshots", json.dumps(cell)], check=True)


def table_of(role):
    torch, bad = version_of(role), []
    for history, backend, options, jobs, state in RUNS:
        jobs = [j for j in jobs if JOBS[j][1] <= tuple(map(int, torch.split(".")[:2]))]
        path, snapshot = run_both("cuda/several.py", (",".join(jobs), "--each-way", *options), backend, role, devices=2)
        for written, end, without_trace in WAYS:
            what, lines, result = "%s, torch %s, %s, %s" % (history, torch, backend, written), 0, "equal"
            try:
                lines = compare_files(path, snapshot + end, what, state or without_trace or (torch.startswith("2.1.") and "--history" in options))
                print("     %s: %d lines are equal" % (what, lines), flush=True)
            except harness.Failure as e:
                bad.append(str(e))
                result = "failed: %s" % what
            note({"torch": torch, "history": history, "allocator": backend, "written": written, "jobs": ", ".join(JOBS[j][0] for j in jobs),
                  "lines": lines, "result": result})
    check(not bad, "torch %s: %s", torch, "\n     ".join(bad))


def test_2_1():
    table_of("old")


def test_2_4():
    table_of("cu12")


def test_2_8():
    table_of("middle")


def test_2_11():
    table_of("main")


def test_newest():
    table_of("newest")


run(globals())

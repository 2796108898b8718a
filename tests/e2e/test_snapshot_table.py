#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# run: long nightly=versions cpu=900
"""PyTorch's snapshots of each version, kind of history and way of writing, compared with the recording of the same run.
`tools/dev/matrix.py snapshots` writes the table of docs/reference/SUPPORT.md from it."""
import json
import os
import subprocess

import harness
import truth
from harness import check, python, run
from torch_snapshots import compare

# What the table calls a job; its name in truth.JOBS, and the allocator's setting.
JOBS = (
    ("training", "mlp", "native"), ("transformer", "gpt", "native"), ("inference", "inference", "native"), ("checkpointing", "checkpointing", "native"),
    ("CUDA graphs", "CUDA graphs", "native"), ("MemPool", "MemPool", "native"), ("streams", "streams", "native"), ("threads", "threads", "native"),
    ("two devices", "two devices", "native"), ("out of memory", "caught OOM", "native"), ("fragmentation", "fragments", "native"),
    ("empty_cache", "empty_cache", "native"), ("pinned memory", "loader, pinned", "native"),
    ("expandable training", "mlp", "expandable"), ("expandable fragmentation", "fragments", "expandable"),
    ("expandable streams", "streams", "expandable"), ("expandable out of memory", "caught OOM", "expandable"),
    ("expandable empty_cache", "empty_cache", "expandable"))
FEW = ("training", "inference")
# The history, how the file was written, whether it has no trace, options of the workload, jobs.
HISTORIES = (
    ('enabled="all", stacks="python"', "_dump_snapshot()", False, (), None),
    ('enabled="all", stacks="all"', "_dump_snapshot()", False, ("--stacks", "all"), FEW),
    ('enabled="state", stacks="python"', "_dump_snapshot()", True, ("--history", "state"), FEW),
    ('enabled="state", stacks="all"', "_dump_snapshot()", True, ("--history", "state", "--stacks", "all"), FEW),
    ("enabled=True (PyTorch 2.0's call)", "_dump_snapshot()", False, ("--history", "legacy"), FEW),
    ('enabled="all", stacks="python"', "_snapshot(), pickled with protocol 0", False, ("--written", "by hand"), FEW),
    ('enabled="state", stacks="python"', "memory_snapshot(), pickled", True, ("--history", "state", "--written", "list"), FEW))


def version_of(role):
    return subprocess.run([python(role), "-W", "ignore", "-c", "import torch; print(torch.__version__)"], capture_output=True, text=True, check=True).stdout.strip()


def note(torch, history, written, jobs, lines, result):
    """A row of the table, if `matrix.py` asks for it."""
    if os.environ.get("MATRIX"):
        cell = {"torch": torch, "history": history, "written": written, "jobs": jobs, "lines": lines, "result": result}
        subprocess.run([os.path.join(harness.REPO, "tools", "dev", "matrix.py"), "add", "snapshots", json.dumps(cell)], check=True)


def history_of(role, torch, history, written, state, options, wanted):
    """Compares the jobs of one row. Returns what differs."""
    release, n, done, bad = tuple(map(int, torch.split(".")[:2])), 0, [], []
    for title, job, backend in JOBS:
        if (wanted and title not in wanted) or {j.name: j for j in truth.JOBS}[job].torch > release:
            continue
        try:
            n += compare(job, backend, role, options, state)
        except harness.Failure as e:
            bad.append("%s: %s" % (title, e))
        done.append(title)
    note(torch, history, written, ", ".join(done), n, "failed: %s" % "; ".join(b.split(":")[0] for b in bad) if bad else "equal")
    return bad


def table_of(role):
    torch, bad = version_of(role), []
    for row in HISTORIES:
        bad += history_of(role, torch, *row)
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

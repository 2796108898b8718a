#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# run: long nightly=versions cpu=300
"""What only the history of PyTorch 2.15 has: pinned host memory, texts of blocks, annotations, compiled regions, skipped actions."""
import pickle

from harness import equal, report, run, scratch, tool
from torch_snapshots import compare_files, run_both

MIB = 1 << 20


def annotated(*options):
    """Paths of the recording and of the snapshot of tests/workloads/cuda/annotated.py."""
    return run_both("cuda/annotated.py", options, role="newest")


def pinned(path, at):
    return report(path, "--device", "cuda:0", at=at)["devices"][0]["reconciliation"]["pinned_host"]


def names(path):
    """name -> MiB at the end"""
    return {r["name"]: r["bytes"] // MIB for r in report(path, "--device", "cuda:0", at="end")["rows"] if r.get("name")}


def test_pinned_memory():
    """Pinned host memory is that of the recording, with what was pinned before the history."""
    path, snapshot = annotated()
    for at, mib in (("peak", 7), ("end", 5)):
        equal(pinned(path, at), mib * MIB, "pinned memory in the recording at the " + at)
        equal(pinned(snapshot, at), mib * MIB, "pinned memory in the snapshot at the " + at)
    compare_files(path, snapshot, "annotated.py")


def test_round_trip():
    """An export has the pinned memory and the names of what it was made of."""
    for name, source in zip(("recording", "snapshot"), annotated()):
        made = scratch("again.pickle")
        equal(tool("export", "snapshot", source, "--at", "end", "-f", "-o", made)[0], 0, "export")
        equal(pinned(made, "end"), 5 * MIB, "pinned memory of the " + name)
        equal(names(made), names(source), "names of the " + name)
        with open(made, "rb") as f:
            actions = [e["action"] for e in pickle.load(f)["host_traces"]]
        equal((actions.count("segment_alloc"), actions.count("segment_free")), (5, 3), "host_traces of the " + name)


def test_texts():
    """Metadata, annotations and the compiled region of a block are its name."""
    equal(names(annotated()[1]), {'{"part":"weights"}, frozen': 3, "saved for backward": 5, "Torch-Compiled Region: 0/0": 5}, "names")


def test_skipped_actions():
    """Without some actions, the end is the same. The frees that are left are enough for the peak."""
    for skip in ("free_requested", "free_completed", "snapshot,oom"):
        path, snapshot = annotated("--skip", skip)
        compare_files(path, snapshot, "annotated.py without " + skip)


run(globals())

#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# run: long
"""Configurations captured by one script into one folder and compared in one table; by night, twice, and equal to the byte."""
import json
import os
import subprocess

import harness
from harness import check, equal, python, report, run, scratch, spawn, tool

NAMES = ["baseline", "checkpointing", "amp", "both"]
SMALL = ("--layers", "2", "--width", "64", "--context", "32")


def sweep(folder, names):
    return spawn([os.path.join(harness.HERE, "windows.sh"), folder, *SMALL],
                 env={**os.environ, "PYTHON": python(), "MEMTRACE": harness.TOOL, "CONFIGURATIONS": " ".join(names)}, stdin=subprocess.DEVNULL)


def peaks_of(folder, names):
    if not harness.IS_ROOT:
        subprocess.run(harness.sudo(["chown", "-R", str(os.getuid()), folder]), check=True)
    code, out, err = tool("compare", "--format", "json", folder)
    equal(code, 0, "compare: " + err)
    doc = json.loads(out)["captures"]
    equal([c["name"] for c in doc], names, "the table's rows")
    return doc


def captured(folders, names):
    """Runs the script once for each folder, at the same time. What PyTorch said in each: a list by configuration."""
    jobs = [sweep(folder, names) for folder in folders]
    said = []
    for job in jobs:
        equal(job.wait(600), 0, "windows.sh: " + job.tail(job.stderr()))
        said.append([json.loads(line) for line in job.stdout().splitlines()])
        for name in names:
            check(name in job.stderr(), "%s is not in the table: %s", name, job.stderr())
    return said


def test_two_configurations():
    folder, names = scratch("first"), ["baseline", "amp"]
    (said,) = captured([folder], names)
    first = peaks_of(folder, names)
    for a, torch in zip(first, said):
        # The warm-up's peak is not higher than the later steps', so that PyTorch's peak is the window's.
        equal((a["peak_allocated"], a["steps"], a["steps_timed"]), (torch["max_memory_allocated"], 5, 5), a["name"])
    index = harness.read_json(os.path.join(folder, "index.json"))["recordings"]
    equal([(e["name"], e["first_step"], e["last_step"], e["ended"]) for e in index], [(name, 2, 6, "5 steps") for name in names], "index")
    for entry, row in zip(index, first):
        gpu = [d for d in entry["devices"] if d["device"] == "cuda:0"][0]
        equal((gpu["peak_allocated"], gpu["peak_reserved"]), (row["peak_allocated"], row["peak_reserved"]), "index and compare")
        doc = report(os.path.join(folder, entry["file"]), at="peak")
        equal(sum(r["bytes"] for r in doc["rows"]), gpu["peak_allocated"], "rows at the peak")
        equal((row["window_start"], row["duration"]), (doc["capture"]["window_start"], doc["capture"]["duration"]), "the window in compare and report")
        gpu_now = harness.device(report(os.path.join(folder, entry["file"]), at="end"), "cuda:0")
        equal((gpu_now["allocated"], gpu_now["drift"], gpu_now["before_attach"], gpu_now["state"]), (gpu["allocated"], 0, 0, "exact"), "end")
    code, out, err = tool("diff", "--format", "json", folder)
    equal(code, 0, "diff of a folder, its first against its last: " + err)
    doc = json.loads(out)
    equal([doc[side]["allocated"] for side in ("old", "new")], [first[0]["peak_allocated"], first[-1]["peak_allocated"]], "diff")
    code, out, _ = tool("report", "--format", "json", folder + "#amp")
    equal((code, json.loads(out)["allocated"]), (0, first[1]["peak_allocated"]), "report of one of them")


@harness.nightly("long")
def test_four_configurations_twice():
    folders = [scratch("once"), scratch("again")]
    said = captured(folders, NAMES)
    for a, b in zip(*(peaks_of(folder, NAMES) for folder in folders)):
        for key in ("peak_allocated", "peak_reserved", "steps", "steps_timed"):
            equal(a[key], b[key], "%s, %s, the same script once more" % (a["name"], key))
    equal(said[0][0]["max_memory_allocated"], said[1][0]["max_memory_allocated"], "PyTorch's own")


if __name__ == "__main__":
    run(globals())

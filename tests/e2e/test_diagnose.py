#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# run: reads-code cpu=40
"""`diagnose`: the right finding comes first, healthy jobs have none; from recordings and from running processes."""
import json
import os

import harness
from harness import REPO, check, equal, nightly, python, run, spawn_job, tool

GUIDE = os.path.join(REPO, "tests", "data", "guide")
LEAK = os.path.join(harness.WORKLOADS, "leak.py")
CLEAN, FOUND, USAGE = 0, 4, 64


def diagnosed(*args, expect, root=False):
    code, out, err = tool("diagnose", "--format", "json", *args, root=root, seconds=120)
    equal(code, expect, "diagnose %s: %s %s" % (" ".join(args), out[-500:], err[-500:]))
    return json.loads(out)


def faults(document):
    return [f["code"] for f in document["findings"] if f["fault"]]


def test_recordings():
    leak = diagnosed(os.path.join(GUIDE, "leak.mtr"), expect=FOUND)
    equal(faults(leak), ["leak"], "faults of leak.mtr")
    first = leak["findings"][0]
    equal((first["where"], first["held_by"], first["confidence"]), ("train.py:56 (GPT.forward)", "global history[*]", "high"), "the leak")
    equal(first["bytes_per_step"], 8 * 2**20, "bytes of the leak in a step")
    oom = diagnosed(os.path.join(GUIDE, "oom.mtr"), expect=FOUND)
    equal(faults(oom), ["out_of_memory", "leak"], "faults of oom.mtr")
    equal(oom["findings"][0]["bytes"], 16 * 2**20, "bytes asked for")
    equal(faults(diagnosed(os.path.join(GUIDE, "base.mtr"), expect=CLEAN)), [], "faults of base.mtr")
    tiny = diagnosed(harness.made("diagnose-tiny.mtr", "tiny"), expect=FOUND)
    equal([(f["code"], f["fault"]) for f in tiny["findings"]], [("out_of_memory", True), ("logits", False)], "findings of a made-up recording")


def test_ranks():
    """A finding stands once, with the ranks that have it, and a rank that has more than the others is one."""
    job = diagnosed(os.path.join(GUIDE, "job"), expect=FOUND)
    equal([(f["code"], f["recordings"]) for f in job["findings"] if f["fault"]], [("leak", [2]), ("ranks_differ", [2])], "faults of the ranks")
    equal(([r["rank"] for r in job["recordings"]], job["one_job"]), ([0, 1, 2, 3], True), "the ranks")
    code, out, _ = tool("diagnose", os.path.join(GUIDE, "job"))
    check(code == FOUND and "Leak on cuda:0 in rank 2 of 4: +4.00 MiB/step" in out, "text: %s", out)


def test_twenty_lines():
    """The text has at most 20 lines on terminals of all widths, none wider than the terminal."""
    for columns in (40, 60, 80, 120, 200):
        for name in ("leak.mtr", "oom.mtr", "base.mtr", "job"):
            _, out, _ = tool("diagnose", os.path.join(GUIDE, name), env={**os.environ, "COLUMNS": str(columns)})
            lines = out.splitlines()
            check(1 <= len(lines) <= 20, "%s has %d lines in %d columns: %s", name, len(lines), columns, out)
            wide = [line for line in lines if len(line) > columns and " " in line.strip() and not line.startswith("Details")]
            equal(wide, [], "%s: lines wider than %d columns" % (name, columns))


def attached(mode, expect):
    job = spawn_job([python(), LEAK, mode, "--steps", "100000", "--pause", "0.02"])
    job.wait_line("step 3")
    document = diagnosed("-p", str(job.pid), expect=expect, root=True)
    job.stop()
    return document


def test_attached_leak():
    """It ends as soon as it is sure."""
    document = attached("list", FOUND)
    equal(faults(document)[0], "leak", "first fault")
    places = [f["where"] for f in document["findings"]]
    equal(len(places), len(set(places)), "a line is named once, although tensors on the CPU are host memory, too: %s" % places)
    equal(document["findings"][0]["held_by"], "global history[*]", "holder")
    check(document["steps"] >= 24, "steps: %s", document["steps"])


def test_attached_graph():
    document = attached("graph", FOUND)
    equal(faults(document)[0], "graph_kept", "first fault")


def test_attached_healthy():
    document = attached("none", CLEAN)
    equal(document["findings"], [], "findings")  # 50 KiB of gradients are not worth a line
    check(document["steps"] >= 60, "steps: %s", document["steps"])


# The first fault of each kind of job in leak.py; None: it is healthy, although some look like a leak for a while.
KINDS = {"list": "leak", "closure": "leak", "attribute": "leak", "concat": "leak", "graph": "graph_kept", "stepless": "leak",
         "none": None, "cache": None, "sawtooth": None, "cycles": None, "kv": None, "lengths": None}


@nightly("long")
def test_kinds():
    """Each job attached to late: the right fault comes first, and a healthy job has none."""
    wrong = []
    for kind, expected in KINDS.items():
        job = spawn_job([python(), LEAK, kind, "--steps", "100000", "--pause", "0.05"])
        job.wait_line("step 3")
        code, out, err = tool("diagnose", "--format", "json", "-p", str(job.pid), root=True, seconds=120)
        job.stop()
        got = faults(json.loads(out)) if code in (CLEAN, FOUND) else [err]
        if got[:1] != ([expected] if expected else []):
            wrong.append("%s: %s, expected %s" % (kind, got, expected))
    check(not wrong, "%s", "; ".join(wrong))


def test_kept():
    """-o keeps the recording, which says the same."""
    job = spawn_job([python(), LEAK, "list", "--steps", "100000", "--pause", "0.02"])
    job.wait_line("step 3")
    path = harness.scratch("kept.mtr")
    first = diagnosed("-p", str(job.pid), "--steps", "50", "-o", path, expect=FOUND, root=True)
    job.stop()
    harness.own(path)
    equal(diagnosed(path, expect=FOUND)["findings"], first["findings"], "findings of the recording that was kept")


def test_usage():
    for args in ((), ("-p", "1", "x.mtr"), ("-o", "y.mtr", "x.mtr"), ("-p", "1", "-o", "-"), ("-p", "1", "-o", "runs/"), ("--steps", "5", "x.mtr"), ("-d", "5s", "x.mtr")):
        code, out, err = tool("diagnose", *args)
        equal((code, out), (USAGE, ""), "diagnose %s" % " ".join(args))
        check("diagnose" in err, "error: %s", err)


if __name__ == "__main__":
    run(globals())

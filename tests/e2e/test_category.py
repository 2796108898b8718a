#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""What memory is for at the peak, against what the job itself sums up over its tensors at that moment."""
import os

import harness
from harness import WORKLOADS, check, equal, python, read_json, report, run, scratch, tool

CATEGORIES = os.path.join(WORKLOADS, "categories.py")
# From the lives of blocks alone; parameters and buffers only the program's own objects tell.
BY_LIFE = ("gradient", "optimizer_state", "activation", "input")
BY_NAME = ("parameter", "buffer")


def compare(doc, truth):
    got = doc["categories"]
    equal(sum(got.values()), doc["allocated"], "sum of the categories")
    equal(sum(r["bytes"] for r in doc["rows"]), doc["allocated"], "sum of the rows")
    for category in BY_LIFE:
        check(truth[category] > 0, "the job has no %s at its peak", category)
        equal(got[category], truth[category], category)
    # What is on its way at the peak nobody sums up.
    check(truth["temporary"] <= got["temporary"] < truth["temporary"] + (1 << 20), "temporary: %d", got["temporary"])
    if got["parameter"]:
        for category in BY_NAME:
            equal(got[category], truth[category], category)
    else:
        nameless = truth["parameter"] + truth["buffer"]
        check(got["unknown"] >= nameless, "unknown: %d, less than what only names tell, %d", got["unknown"], nameless)


def from_start(device, *options):
    recording, told = scratch("start-%s.mtr" % device), scratch("start-%s.json" % device)
    code, out, err = tool("run", *options, "-o", recording, "--", python(), CATEGORIES, device, "7", told, root=True, seconds=120)
    equal(code, 0, "exit code of run (%s)" % err)
    truth = read_json(told)
    name = "cpu" if device == "cpu" else "cuda:0"
    doc = report(recording, "--device", name, at="peak")
    if "allocated" in truth:
        equal(doc["allocated"], truth["allocated"], "the peak")
    compare(doc, truth)
    return recording, name


def combinations(recording, name):
    """However rows are split, they are the same memory."""
    doc = report(recording, "--device", name, at="peak")
    for by in ("category", "category,module", "module,category", "line,category", "phase,category,thread", "module,phase"):
        other = report(recording, "--device", name, at="peak", by=by)
        equal(sum(r["bytes"] for r in other["rows"]), doc["allocated"], "rows by %s" % by)
        equal(other["categories"], doc["categories"], "categories by %s" % by)
        if "category" not in by:
            continue
        for category, size in doc["categories"].items():
            equal(sum(r["bytes"] for r in other["rows"] if r["category"] == category), size, "%s by %s" % (category, by))


def test_cpu():
    combinations(*from_start("cpu"))


def test_cuda_without_a_gpu():
    recording, name = from_start("cuda", "--dry-run-cuda")
    combinations(recording, name)
    code, out, _ = tool("report", recording, "--device", name, "--tree")
    equal(code, 0, "exit code of report --tree")
    lines = [line.split()[-2:] for line in out.splitlines() if line.endswith(")")]
    check(["first", "(Linear)"] in lines and ["norm", "(BatchNorm1d)"] in lines, "--tree: %s", out)


if __name__ == "__main__":
    run(globals())

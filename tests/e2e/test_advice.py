#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Advice: a job that wastes memory in every way gets it, one without waste does not; predicted savings are real."""
import json
import os

from harness import WORKLOADS, check, equal, nightly, python, report, run, scratch, tool

WORKLOAD = os.path.join(WORKLOADS, "advised.py")
ALL = {"checkpoint", "gradients_late", "buffers", "logits", "outputs_held"}
OPTIONS = ("--vocab", "4000", "--mask", "1536", "--steps", "3")


def peak_of(out):
    return json.loads([line for line in out.splitlines() if line.startswith("{")][-1])["max_memory_allocated"]


def recorded(name, *arguments):
    path = scratch(name + ".mtr")
    code, out, err = tool("run", "--dry-run-cuda", "-o", path, "--", python(), WORKLOAD, *arguments, root=True, seconds=400)
    equal(code, 0, "exit code of run (%s)" % err[-800:])
    doc = report(path, "--advice", "--device", "cuda:0")
    device = [d for d in doc["devices"] if d["device"] == "cuda:0"][0]
    peak = peak_of(out)
    equal(device["peak_allocated"], peak, "the peak")
    for a in doc["advice"]:
        whole = {"allocated": peak, "reserved": device["peak_reserved"], "host": doc["host"] and doc["host"]["highest"]["rss"]}[a["of"]]
        equal(a["saves_bytes"] + a["peak_after"], whole, "what is saved and what is left (%s)" % a["kind"])
        check(a["saves_bytes"] >= whole // 100 * 1 or a["of"] == "reserved", "%s saves %d bytes", a["kind"], a["saves_bytes"])
        check(a["figure"] in ("exact", "estimate", "upper_bound") and a["text"] and a["basis"], "%r", a)
    return path, peak, {a["kind"]: a for a in doc["advice"]}


@nightly("long")
def test_wasteful():
    path, peak, advice = recorded("wasteful", "all", *OPTIONS)
    check(ALL <= set(advice), "of all its wastes it is told of %s", sorted(advice))
    equal(advice["buffers"]["saves_bytes"], 5 * 4 * 1536 * 1536, "five masks of six")
    check(advice["checkpoint"]["where"] == "blocks.* (Masked)", "checkpoint: %r", advice["checkpoint"])
    code, out, err = tool("report", "--advice", "--device", "cuda:0", path, root=True)
    equal((code, err), (0, ""), "report --advice")
    for words in ("checkpoint blocks.*", "set_to_none=True", "mask in blocks.0 and 5 more (Masked)", "cross entropy in parts"):
        check(words in out, "the text does not say %r:\n%s", words, out)
    _, better, advice = recorded("thrifty", "all", *OPTIONS, "--remedied")
    equal(ALL & set(advice), set(), "advice for a job that does all of it")
    check(better < peak * 0.7, "peak %d, then %d", peak, better)


def test_checkpoint_is_as_said():
    _, peak, advice = recorded("plain", "checkpoint", *OPTIONS)
    code, out, err = tool("run", "--dry-run-cuda", "--no-trace", "--", python(), WORKLOAD, "checkpoint", *OPTIONS, "--remedied", seconds=400)
    equal(code, 0, "exit code of run (%s)" % err[-800:])
    said, after = advice["checkpoint"]["peak_after"], peak_of(out)
    check(abs(said - after) < peak * 0.05, "peak %d, said to be %d then, was %d", peak, said, after)


def test_not_with():
    for options in (["--format", "csv"], ["--together"]):
        code, out, err = tool("report", "--advice", *options, os.devnull)
        equal((code, out), (64, ""), "report --advice %s (%s)" % (" ".join(options), err))


if __name__ == "__main__":
    run(globals())

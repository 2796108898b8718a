#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# run: long cpu=65
"""Recordings of CUDA jobs compared with PyTorch's own history of the same run, event for event and byte for byte: a quick part of
`make truth`, which runs all jobs on all versions. No GPU is needed."""
import copy
import json

import truth
from harness import check, equal, nightly, python, run, scratch, tool

BY_NAME = {job.name: job for job in truth.JOBS}


def exact(name, backend="native", mode="start", role="main"):
    v = truth.verdict(BY_NAME[name], role, backend, mode, options=["--requested"] if truth.has_requested() else [])
    check(v.exact(), "%s, %s, %s, torch %s: %s", name, backend, mode, role, v.why())
    check(v.events > 0, "no events in it")
    print("     %s, %s, %s, torch %s: %d events" % (name, backend, mode, role, v.events))


def replayed(name, *args, **kwargs):
    """The same, and the replay through PyTorch's allocator equals the job."""
    exact(name, *args, **kwargs)
    code, out, err = tool("replay", "--python", python(kwargs.get("role", "main")), "--format", "json", scratch("truth.mtr"))
    check(code == 0, "replay ended with %d: %s", code, err)
    own = json.loads(out)["own_settings"]
    check(own["equal"] and own["events_compared"] > 50, "%s, replayed: %s", name, own)


def test_from_the_start():
    replayed("two devices")
    exact("empty_cache", "expandable")


@nightly("versions")
def test_cuda_12():
    replayed("gpt", role="cu12")


def test_attached():
    replayed("gpt", mode="attached")
    replayed("streams", "expandable", mode="attached")


def test_attached_at_full_speed():
    exact("threads", mode="running")


def test_out_of_memory():
    replayed("1,000 OOMs", mode="attached")


@nightly("long")
def test_other_backend():
    exact("mlp", "async")


@nightly("long")
def test_the_comparison_finds_what_is_wrong():
    """Small changes of each of PyTorch's figures must be noticed."""
    path, oracle = truth.run_job(BY_NAME["empty_cache"], mode="start")
    told = truth.load(oracle)
    check(truth.compare(path, told).exact(), "not exact as it is: %s", truth.compare(path, told).why())
    trace = told["end"]["traces"][0]
    of = {action: max(i for i, e in enumerate(trace) if e[0] == action) for action in
          ("alloc", "free_requested", "segment_alloc", "segment_free")}

    def changed(aspect, change):
        other = copy.deepcopy(told)
        change(other["end"])
        v = truth.compare(path, other)
        check(not v.aspects[aspect].startswith("exact"), "%s: a change was not noticed: %s", aspect, v.aspects)

    def edit(i, **new):
        def change(end):
            e = dict(zip(("action", "addr", "size", "stream"), end["traces"][0][i]), **new)
            end["traces"][0][i] = tuple(e.values())
        return change

    def drop(i):
        return lambda end: end["traces"][0].pop(i)

    for action, i in of.items():
        changed("events", drop(i))
        changed("events", edit(i, addr=trace[i][1] + 512))
    changed("sizes", edit(of["alloc"], size=1 << 40))
    for key, aspect in (("allocated_bytes.all.peak", "peaks"), ("reserved_bytes.all.peak", "peaks"),
                        ("allocated_bytes.all.allocated", "sizes"), ("allocation.all.freed", "sizes"),
                        ("reserved_bytes.all.allocated", "segments"), ("allocated_bytes.all.current", "report")):
        changed(aspect, lambda end, key=key: end["stats"][0].update({key: end["stats"][0][key] + 512}))

    def resize_block(end):
        for s in end["segments"]:
            for i, b in enumerate(s["blocks"]):
                if b[3] == "active_allocated":
                    s["blocks"][i] = (b[0], b[1] + 512, *b[2:])
                    return
    changed("live", resize_block)
    changed("segments", lambda end: end["segments"].pop())
    equal(truth.compare(path, told).exact(), True, "exact again")


if __name__ == "__main__":
    run(globals())

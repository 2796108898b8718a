#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
A recording replayed through PyTorch's allocator: under its own settings the reserved memory is the recorded one after each
event; under others it is what a dry run with these settings has, by its own history.
"""
import csv
import functools
import json
import os

import mtr_reader
from harness import TOOL, WORKLOADS, Failure, check, equal, python, run, scratch, spawn, tool

MIB = 1 << 20
CUDA = 1
SMALL = 560 * MIB  # a device that the job does not fit, whatever the settings
CONTEXT = 64 * MIB
OTHERS = ("expandable_segments:True", "max_split_size_mb:20", "roundup_power2_divisions:4",
          "expandable_segments:True,roundup_power2_divisions:8")


def job(name, *args, vram="80G", parts="streams,empty,graph"):
    """Recorded in a dry run: the paths of the recording and of what the job knows."""
    path, truth = scratch(name + ".mtr"), scratch(name + ".json")
    env = dict(os.environ, MEMTRACE_DRYRUN_CONTEXT=str(CONTEXT))
    for key in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"):
        env.pop(key, None)
    p = spawn([TOOL, "run", "--dry-run-cuda", "--vram", str(vram), "--requested", "-f", "-o", path, "--", python("main"),
               os.path.join(WORKLOADS, "replayed.py"), truth, "--parts", parts, *args], root=True, env=env)
    code = p.wait(300)
    check(code == 0, "the job ended with %s: %s", code, p.tail(p.stderr()))
    with open(truth, encoding="utf-8") as f:
        return path, json.load(f)


@functools.lru_cache(maxsize=None)
def recorded():
    return job("replayed", *(word for conf in OTHERS for word in ("--conf", conf)))


def replay(path, *options, expect=0):
    code, out, err = tool("replay", *options, "--format", "json", path)
    check(code == expect, "replay %s ended with %d: %s", " ".join(options), code, err[-800:])
    return json.loads(out) if not code else err


def curve(path, *options):
    file = scratch("curve.csv")
    if os.path.exists(file):
        os.unlink(file)
    replay(path, "--curve", file, *options)
    with open(file, encoding="ascii") as f:
        return [int(row["reserved"]) for row in csv.DictReader(f)]


def events_before_oom(path):
    n = 0
    with open(path, "rb") as f:
        for e in mtr_reader.Recording(f).events():
            kind = mtr_reader.KINDS[e["kind"]]
            if kind == "oom":
                return n
            n += e["type"] == CUDA and kind in ("alloc", "free")
    raise Failure("no out of memory in " + path)


def test_own_settings():
    path, truth = recorded()
    own = replay(path)["own_settings"]
    equal((own["known"], own["equal"], own["first_difference"], own["largest_difference"]), (True, True, None, 0), "its own settings")
    check(own["events_compared"] > 500, "%d events are too few to say anything", own["events_compared"])
    equal(curve(path), [reserved for _, reserved in truth[""]], "reserved under its own settings")
    check(replay(path)["recording"]["pools"] > 2, "two streams and a private pool are not told apart")


def test_other_settings():
    path, truth = recorded()
    for conf in OTHERS:
        equal(curve(path, "--alloc-conf", conf), [reserved for _, reserved in truth[conf]], "reserved under " + conf)
    peaks = [max(reserved for _, reserved in points) for points in truth.values()]
    equal(len(set(peaks)), len(peaks), "settings with a peak of their own")


def test_search():
    path, truth = recorded()
    doc = replay(path, "--search")
    peak = {t["alloc_conf"]: t["peak_reserved"] for t in doc["tries"]}
    equal(peak["expandable_segments:True"], max(reserved for _, reserved in truth["expandable_segments:True"]), "peak, expandable")
    best = doc["recommended"]
    equal(peak[best], min(peak.values()), "the peak of what is recommended")
    check(peak[best] < peak[""], "%s gains nothing and is recommended", best)
    check([t["costs"] for t in doc["tries"] if t["alloc_conf"] == best][0], "nothing is said of what %s costs", best)


def test_less_memory():
    """A dry run with less memory, and a replay of one with enough."""
    path, _ = recorded()
    less, _ = job("less", "--oom", vram=SMALL)
    there = replay(less)
    equal(there["own_settings"]["equal"], True, "its own settings, where memory runs out")
    oom = replay(less, "--vram", str(SMALL))["tries"][0]["oom"]
    predicted = replay(path, "--vram", str(SMALL))["tries"][0]
    check(predicted["oom"], "it fits %d MiB", SMALL // MIB)
    keys = ("asked", "allocated", "reserved", "where")
    equal([predicted["oom"][k] for k in keys], [oom[k] for k in keys], "out of memory as predicted, and as it was")
    equal(predicted["events"], events_before_oom(less), "allocations and frees until then")
    check("replayed.py" in predicted["oom"]["where"], "it is said to be at %s", predicted["oom"]["where"])
    smallest = replay(path, "--smallest")["tries"][0]["smallest_vram"]
    equal([bool(replay(path, "--vram", str(v))["tries"][0]["oom"]) for v in (smallest, smallest - 2 * MIB)], [False, True],
          "out of memory with the smallest that fits, and with 2 MiB less")


def test_refused():
    path, _ = recorded()
    check("foo" in replay(path, "--alloc-conf", "foo:1", expect=1), "settings that PyTorch does not know")
    check("torch" in replay(path, "--python", "/bin/true", expect=2).lower(), "an interpreter that is none")
    replay(path, "--device", "cuda:3", expect=2)
    replay(os.devnull, expect=2)
    for options in (["--vram", "1"], ["--search", "--alloc-conf", ""], ["--device", "cpu"], ["--smallest", "--vram", "1G"]):
        equal(tool("replay", *options, path)[0], 64, "exit with " + " ".join(options))


def test_other_versions():
    """The allocators of other PyTorches are called, too; that of another version than recorded is."""
    path, _ = recorded()
    for role in ("newest", "cu12", "old"):
        doc = replay(path, "--python", python(role))
        check(doc["allocator"]["torch"] != doc["recording"]["torch"], "torch of %s is the recorded one", role)
        check(doc["tries"][0]["peak_reserved"] > doc["recording"]["peak_allocated"], "%s: %s", role, doc["tries"][0])
        check(replay(path, "--python", python(role), "--alloc-conf", "expandable_segments:True")["tries"][1]["peak_reserved"] <
              doc["tries"][0]["peak_reserved"], "%s: expandable segments do nothing", role)


if __name__ == "__main__":
    run(globals())

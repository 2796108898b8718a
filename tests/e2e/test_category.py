#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# run: long cpu=80
"""Categories of memory at the peak, compared with the job's own sums over its tensors at that moment."""
import json
import os
import re
import signal
import time

import harness
import mtr_reader
from harness import (TOOL, WORKLOADS, check, equal, finish, interrupt, nightly, own, python, read_json, record, report, run,
                     scratch, spawn, tool, until_recorded, workload)

CATEGORIES = os.path.join(WORKLOADS, "categories.py")
ALL = ("parameter", "buffer", "gradient", "optimizer_state", "activation", "input")


def compare(doc, truth):
    got = doc["categories"]
    equal(sum(got.values()), doc["allocated"], "sum of the categories")
    equal(sum(r["bytes"] for r in doc["rows"]), doc["allocated"], "sum of the rows")
    for category in ALL:
        check(truth[category] > 0, "the job has no %s at its peak", category)
        equal(got[category], truth[category], category)
    # The job does not count temporaries at the peak.
    check(truth["temporary"] <= got["temporary"] < truth["temporary"] + (1 << 20), "temporary: %d", got["temporary"])


def from_start(device, *options, role="main"):
    recording, told = scratch("start-%s-%s.mtr" % (device, role)), scratch("start-%s-%s.json" % (device, role))
    p = spawn([TOOL, "run", *options, "-v", "-o", recording, "--", python(role), CATEGORIES, device, "7", told, "wait"], root=True)
    p.wait_line("^ready", 120)
    # An earlier census may have been before there were parameters.
    until_recorded(recording, lambda doc: any(r["category"] == "parameter" for r in doc["rows"]), "a census", "--at", "end", "--top", "0", "--device",
                   "cpu" if device == "cpu" else "cuda:0")
    p.send()
    equal(p.wait(120), 0, "exit code of run (%s)" % p.stderr()[-800:])
    truth = read_json(told)
    name = "cpu" if device == "cpu" else "cuda:0"
    doc = report(recording, "--device", name, at="peak")
    if "allocated" in truth:
        equal(doc["allocated"], truth["allocated"], "the peak")
    compare(doc, truth)
    return recording, name


def combinations(recording, name):
    """All groupings of rows have the same sums."""
    doc = report(recording, "--device", name, at="peak")
    for by in ("category", "category,module", "module,category", "line,category", "phase,category,thread", "module,phase"):
        other = report(recording, "--device", name, at="peak", by=by)
        equal(sum(r["bytes"] for r in other["rows"]), doc["allocated"], "rows by %s" % by)
        equal(other["categories"], doc["categories"], "categories by %s" % by)
        if "category" not in by:
            continue
        for category, size in doc["categories"].items():
            rows = [r for r in other["rows"] if (r["category"] if r["category"] != "unknown" or not r.get("before_attach") else "before_attach") == category]
            equal(sum(r["bytes"] for r in rows), size, "%s by %s" % (category, by))


def attached(target, device, told):
    """Attached to a job that has trained: memory from before attach has names."""
    recording, pid = scratch("attached-%s.mtr" % device), target.wait_line("^ready", 120).split()[1]
    recorder = record(pid, recording, "-v")
    recorder.wait_line("storages named .* at attach", 60, stream="err")
    target.send()
    equal(target.wait(120), 0, "the job's exit code")
    equal(recorder.wait(60), 0, "exit code of record")
    name = "cpu" if device == "cpu" else "cuda:0"
    doc, truth = report(recording, "--device", name, at="peak"), read_json(told)
    compare(doc, truth)
    before = [r for r in doc["rows"] if r.get("before_attach")]
    for category in ("parameter", "buffer", "optimizer_state"):
        equal(sum(r["bytes"] for r in before if r["category"] == category), truth[category], "%s from before" % category)
    names = {r["name"]: r["bytes"] for r in before if "name" in r}
    check("first.weight" in names and any("exp_avg of first.weight" in n for n in names), "names: %s", sorted(names))
    combinations(recording, name)


def test_own_optimizer():
    """Tensors of a dict with parameters as keys are optimizer state, whoever keeps it, and those of an attribute ..._grad are gradients.
    Without steps of torch.optim, the report counts calls of the model, and says so."""
    told, recording = scratch("own.json"), scratch("own.mtr")
    target = workload("categories.py", "cpu", "9", told, "wait", "own")
    pid = target.wait_line("^ready", 120).split()[1]
    recorder = record(pid, recording, "-v")
    recorder.wait_line("storages named .* at attach", 60, stream="err")
    target.send()
    equal(target.wait(120), 0, "the job's exit code")
    equal(recorder.wait(60), 0, "exit code of record")
    doc, truth = report(recording, at="peak"), read_json(told)
    for role in ("optimizer_state", "gradient"):
        equal(doc["categories"][role], truth[role], role)
    own(recording)
    _, out, _ = tool("report", recording)
    check(re.search("[0-9] calls of ", out), "calls of the model are not called that: %s", out[:400])


def test_attached_cpu():
    told = scratch("attached-cpu.json")
    target = workload("categories.py", "cpu", "9", told, "wait")
    attached(target, "cpu", told)


def test_attached_cuda_without_a_gpu():
    told = scratch("attached-cuda.json")
    target = spawn([TOOL, "run", "--no-trace", "--dry-run-cuda", "--", python(), CATEGORIES, "cuda", "9", told, "wait"])
    attached(target, "cuda", told)


def test_cpu():
    combinations(*from_start("cpu"))


def test_debian_torch():
    from_start("cpu", role="debian")


@nightly("versions")
def test_newest_torch():
    from_start("cpu", role="newest")


@nightly("versions")
def test_old_torch():
    from_start("cpu", role="old")


@nightly("versions")
def test_oldest_torch():
    from_start("cpu", role="oldest")


def test_cuda_without_a_gpu():
    recording, name = from_start("cuda", "--dry-run-cuda")
    combinations(recording, name)
    code, out, _ = tool("report", recording, "--device", name, "--tree")
    equal(code, 0, "exit code of report --tree")
    lines = [line.split()[-2:] for line in out.splitlines() if line.endswith(")")]
    check(["first", "(Linear)"] in lines and ["norm", "(BatchNorm1d)"] in lines, "--tree: %s", out)


def test_accumulated():
    """A node that accumulates a gradient has its parameter's name, also after the parameter was replaced."""
    target = workload("accumulate.py")
    sizes = [json.loads(target.wait_line("^ready", 120).split(" ", 1)[1])]
    recording = scratch("accumulated.mtr")
    recorder = record(target.pid, recording, "-v")
    recorder.wait_line("storages named .* at attach", 60, stream="err")
    harness.until_recorded(recording, lambda doc: doc["capture"]["steps"] >= 3, "steps with the first parameters")
    target.send()
    sizes.append(json.loads(target.wait_line("^swapped", 60).split(" ", 1)[1]))
    harness.settle(recorder)
    interrupt(recorder)
    target.stop()
    names = {size: name for one in sizes for name, size in one.items()}
    equal(len(names), 32, "sizes that are told apart")
    seen = {}
    own(recording)
    with open(recording, "rb") as f:
        r = mtr_reader.Recording(f)
        for e in r.events():
            cls, _, name, module = r.nodes[e["node"]] if e["kind"] == mtr_reader.ALLOC else (0, 0, 0, 0)
            if r.strings[cls] != "AccumulateGrad" or e["size"] not in names:
                continue
            want = names[e["size"]]
            if name:
                equal(r.strings[name], want, "the parameter of %d bytes" % e["size"])
                equal(r.strings[r.modules[module][0]], want.rsplit(".", 1)[0], "the module of %s" % want)
            seen.setdefault(e["size"], []).append(bool(name))
    for name, size in sizes[0].items():
        check(size in seen and any(seen[size]), "%s (%d bytes) was never named: %s", name, size, seen.get(size))
    check(set(seen) >= set(sizes[1].values()), "not all of those that came later were seen: %s", sorted(seen))


def test_kv_cache():
    """Keys and values by what holds them, in dump and in a recording."""
    target = workload("kv_caches.py")
    wanted = int(target.wait_line("ready", 120).split()[2])
    code, out, err = tool("dump", "-p", str(target.pid), "--by", "tensor", "--format", "json", root=True)
    equal(code, 0, "dump: %s" % err[-300:])
    doc = json.loads(out)
    equal(doc["devices"][0]["categories"]["kv_cache"]["bytes"], wanted, "bytes in dump")
    names = {r["name"] for r in doc["rows"] if r["category"] == "kv_cache"}
    for name in ("DynamicCache layers[2].keys", "StaticCache value_cache[1]", "MHATokenToKVPool k_buffer[0]", "0.kv_cache[0]", "1.kv_cache", "v_cache"):
        check(name in names, "no %r in %s", name, sorted(names))
    path = scratch("kv.mtr")
    equal(record(target.pid, path, "-d", "1s").wait(60), 0, "the recorder's end")
    target.send()
    equal(target.wait(60), 0, "the target's end")
    doc = report(path)
    equal(doc["categories"]["kv_cache"], wanted, "bytes in a report")
    equal(sum(r["bytes"] for r in report(path, "--filter", "category:kv_cache")["rows"]), wanted, "filtered")
    check("KV cache" in tool("report", path)[1], "no row of the text")


def stop_while_it_collects(target):
    """Stops the target while its garbage collector runs, when `dump` does not find the collector's lists."""
    for i in range(60):
        os.kill(target.pid, signal.SIGSTOP)
        code, _, err = tool("dump", "-p", str(target.pid), root=True)
        if code:
            return check("runs all the time" in err and "try again later" in err, "dump: %s", err)
        os.kill(target.pid, signal.SIGCONT)
        time.sleep(0.03 + i % 7 * 0.01)
    return check(False, "the target was never stopped within its collector")


def test_while_it_collects():
    """A capture that begins while the garbage collector runs finds roles later. (vLLM's engine collects when it is forked.)"""
    target, path = workload("collects.py"), scratch("collects.mtr")
    target.wait_line("^ready", 120)
    stop_while_it_collects(target)
    recorder = record(target.pid, path, "-v", wait=False)
    recorder.wait_line("attached to PID", 30, stream="err")
    time.sleep(1)
    os.kill(target.pid, signal.SIGCONT)
    recorder.wait_line("[1-9][0-9]* storages named", 60, stream="err")
    finish(recorder)
    doc = report(path)
    for category in ("parameter", "gradient"):
        equal(doc["categories"][category], 64 * 65 * 4, category)


@nightly("long")
def test_ends_while_it_collects():
    """A collection takes the optimizer and the module out of the collector's lists. A last reading then takes no role away."""
    target, path = workload("collects.py", "optimizer"), scratch("ends_collecting.mtr")
    target.wait_line("^ready", 120)
    recorder = record(target.pid, path, "-v")
    recorder.wait_line("[1-9][0-9]* storages named", 60, stream="err")
    target.send()
    stop_while_it_collects(target)
    finish(recorder)
    check("parts kept changing" in recorder.stderr() or "the garbage collector runs all the time" in recorder.stderr(), "the last reading: %s", recorder.stderr())
    os.kill(target.pid, signal.SIGCONT)
    doc = report(path, at="end")
    equal({c: doc["categories"].get(c) for c in ("parameter", "optimizer_state")}, {"parameter": 64 * 65 * 4, "optimizer_state": 2 * 64 * 65 * 4 + 8}, "roles")


if __name__ == "__main__":
    run(globals())

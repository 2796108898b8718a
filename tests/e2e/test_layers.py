#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Modules entered and left: counts, durations and names, compared with a timed nn.Module.__call__ and named_modules()
(tests/workloads/layers.py)."""
import collections
import json

import harness
import mtr_reader
from harness import check, equal, finish, nightly, own, record, report, run, scratch, tool, workload


class Calls:
    """By root class and dotted name: calls (a wrapper and its module count once), ns; read by docs/reference/mtr.md alone."""

    def __init__(self, recording):
        self.calls, self.ns, self.open = collections.Counter(), collections.Counter(), collections.defaultdict(list)
        self.unnamed, self.unmatched, self.backward = 0, 0, collections.Counter()
        with open(recording, "rb") as stream:
            self.r = mtr_reader.Recording(stream)
            for e in self.r.events():
                if e["kind"] == mtr_reader.ENTER:
                    self.enter(e)
                elif e["kind"] == mtr_reader.LEAVE:
                    self.leave(e)
        check(self.r.complete, "%s is not complete", recording)

    def key(self, module):
        name, _, root = self.r.modules[module]
        return self.r.strings[root], self.r.strings[name]

    def enter(self, e):
        inside, key = self.open[e["thread"]], self.key(e["module"])
        self.unnamed += not e["module"]
        wrapped = inside and inside[-1][0] != e["module"] and self.key(inside[-1][0]) == key
        self.calls[key] += not wrapped
        self.backward[key] += e["node"] != 0
        inside.append((e["module"], e["time"]))

    def leave(self, e):
        inside = self.open[e["thread"]]
        if not inside or inside[-1][0] != e["module"]:
            self.unmatched += 1
            return
        module, since = inside.pop()
        if not any(self.key(m) == self.key(module) for m, _ in inside):
            self.ns[self.key(module)] += e["time"] - since


def run_jobs(role, *options, jobs=None):
    recording, truth = scratch("layers-%s.mtr" % role), scratch("layers-%s.jsonl" % role)
    target = workload("layers.py", truth, "--wait", *(["--jobs", jobs] if jobs else []), role=role)
    target.wait_line("ready", 120)
    recorder = record(target.pid, recording, *options)
    target.send()
    target.wait_line("done", 240)
    equal(target.wait(), 0, "the job's end")
    equal(recorder.wait(60), 0, "the recorder's end: %s" % recorder.tail(recorder.stderr()))
    own(recording)
    wanted, ns = collections.Counter(), collections.Counter()
    with open(truth, encoding="utf-8") as f:
        for root, name, calls, took in (m for line in f for m in json.loads(line)["modules"]):
            wanted[root, name] += calls
            ns[root, name] += took
    return recording, wanted, ns


def accept(role, recording, wanted):
    got = Calls(recording)
    # Compiled code has its own module, which named_modules() lacks; a new module's name is known slightly after its first call,
    # later on a busy machine.
    calls = collections.Counter({k: n for k, n in got.calls.items() if "?" not in k[1]})
    print("     %-7s %5d calls of %d modules, %d wrong, %d without a name" % (
        role, sum(wanted.values()), len(wanted), sum(((calls - wanted) + (wanted - calls)).values()),
        sum(got.calls.values()) - sum(calls.values())), flush=True)
    late = got.calls["Replaced", "?"]
    check(late <= 6 and calls["Replaced", "head"] + late == wanted["Replaced", "head"], "%d of %d calls of the replaced module are unnamed",
          late, wanted["Replaced", "head"])
    del wanted["Replaced", "head"], calls["Replaced", "head"]
    equal(dict(calls - wanted), {}, "calls that nobody made")
    missing = wanted - calls
    # Only the first call of the compiled module may have no name: it compiles, so the recorder reads the name meanwhile.
    check(missing.pop(("Compiled", ""), 0) <= 1, "%d of %d calls of the compiled module have its name", calls["Compiled", ""], wanted["Compiled", ""])
    equal(dict(missing), {}, "calls that were not seen")
    equal(got.unmatched, 0, "exits without an entry")
    equal(got.unnamed, 0, "entries without a module")
    check(got.backward["Checkpointed", "old"] == 3 and got.backward["Checkpointed", "new"] == 3 and not got.backward["Plain", ""],
          "calls in backward: %s", dict(got.backward))
    return got


def durations(got, took):
    """A module that sleeps has its duration; nothing is too short, and the sum is at most slightly longer."""
    slept = got.ns["Plain", "sleeper"] / 1e6
    real = took["Plain", "sleeper"] / 1e6
    check(real - 1 <= slept <= 1.1 * real + 20, "slept %.1f ms, recorded %.1f ms", real, slept)
    for root in ("Plain", "Reused", "Generates", "Replaced", "Sharded", "FSDPSharded"):
        whole = got.ns[root, ""]
        children = sum(ns for (r, name), ns in got.ns.items() if r == root and name and "." not in name)
        check(whole >= children, "%s: %d ns, its children %d", root, whole, children)
        check(whole >= took[root, ""] * 0.8, "%s: %d ns, recorded %d", root, took[root, ""], whole)


def documents(recording, got):
    """Report and timeline agree."""
    layers = report(recording)["layers"]
    for (root, name), calls in got.calls.items():
        l = layers.get(name) or layers.get("%s:%s" % (root, name))
        if l is None or l["root_class"] != root:
            l = layers["%s:%s" % (root, name)]
        equal(l["calls"], calls, "calls of %s %r" % (root, name))
        equal(l["forward"]["calls"] + l["backward"]["calls"], calls, "forward and backward of %s %r" % (root, name))
    sleeper = layers["sleeper"]
    check(abs(sleeper["duration_ms"] - got.ns["Plain", "sleeper"] / 1e6) < 0.01, "%s: %r", got.ns["Plain", "sleeper"], sleeper)
    code, out, err = tool("export", "timeline", recording, "-o", "-")
    equal(code, 0, "export: %s" % err[-300:])
    events = [e for e in json.loads(out)["events"] if e["event_type"] in ("layer_enter", "layer_exit")]
    entered = sum(e["event_type"] == "layer_enter" for e in events)
    check(entered >= sum(got.calls.values()) and entered * 2 == len(events), "%d of %d are layer_enter", entered, len(events))


def test_in_the_middle():
    """Attached during module calls: no module is named without its outer modules."""
    target = workload("layers.py", "--slow")
    target.wait_line("ready", 120)
    allowed = {("Slow", "")} | {("Slow", name % i) for i in range(20) for name in ("layers.%d", "layers.%d.0", "layers.%d.1")}
    for i in range(2):
        path = scratch("middle-%d.mtr" % i)
        recorder = record(target.pid, path)
        harness.until_recorded(path, lambda doc: doc["capture"]["counters"]["hits.module_call"] > 60, "calls")
        finish(recorder)
        got = Calls(path)
        equal(set(got.calls) - allowed, set(), "names that there are not")
        check(sum(got.calls.values()) > 30 and got.calls["Slow", ""] >= 1, "only %s", dict(got.calls))
        equal(got.unmatched, 0, "exits without an entry")
    path = scratch("none.mtr")
    equal(record(target.pid, path, "--no-modules", "-d", "1s").wait(60), 0, "the recorder's end")
    own(path)
    equal(dict(Calls(path).calls), {}, "with --no-modules")
    doc = report(path)
    check(doc["layers"] and all(l["calls"] is None for l in doc["layers"].values()), "calls with --no-modules: %s", doc["layers"])
    target.send()
    equal(target.wait(60), 0, "the target's end")


def test_all_jobs():
    recording, wanted, took = run_jobs("main")
    got = accept("main", recording, wanted)
    durations(got, took)
    documents(recording, got)


def record_bound(path, *args, role="main"):
    """The first such call shows the recorder that there are any. Returns how often the target began with three of them."""
    target = workload("bound.py", *args, role=role)
    target.wait_line("ready", 120)
    recorder = record(target.pid, path, "-v")
    recorder.wait_line("bound methods are recorded", 60, stream="err")
    target.send()
    starts = int(target.wait_line("starts", 60).split()[1])
    target.wait_line("done", 60)
    equal(target.wait(60), 0, "the target's end")
    equal(recorder.wait(60), 0, "the recorder's end")
    own(path)
    return starts


def bound(role):
    """A call through a stored bound method is a call of the root module: it has a name, makes a step, and ends."""
    calls, path = 20, scratch("bound-%s.mtr" % role)
    most = 3 * (record_bound(path, str(calls), role=role) + calls)
    got = Calls(path)
    for name in ("", "net.0", "net.1", "net.0.linear", "net.1.linear"):
        check(3 * calls <= got.calls["Outer", name] <= most, "calls of %r: %s", name, dict(got.calls))
    equal(got.unmatched, 0, "exits without an entry")
    check(not any(got.open.values()), "modules without an exit: %s", dict(got.open))
    doc = report(path)
    check(3 * calls <= doc["capture"]["steps"] <= most, "steps: %d", doc["capture"]["steps"])
    equal(set(doc["layers"]) & {"", "head", "net.0", "net.1.linear"}, {"", "head", "net.0", "net.1.linear"}, "modules")


def test_bound_method():
    bound("main")


def test_bound_method_debian():
    bound("debian")


@nightly("versions")
def test_bound_method_newest():
    bound("newest")


@nightly("versions")
def test_bound_method_old():
    bound("old")


def test_bound_method_leak():
    """A server that calls its model like that has steps, and a leak of a request has its rate by call and by minute."""
    path = scratch("bound-leak.mtr")
    record_bound(path, "--serve")
    code, out, err = tool("leaks", path)
    equal(code, 0, "leaks: %s" % err[-300:])
    out = " ".join(out.split())
    for what in ("calls of the model", "(serve): +8.0 KiB a call (+64.0 KiB for each block allocated there)", "KiB/call ("):
        check(what in out, "%r is not in %s", what, out)


FEW = "plain,recursive,raises,generates,checkpointed,threads"


@nightly("versions")
def test_newest():
    recording, wanted, took = run_jobs("newest", jobs=FEW)
    durations(accept("newest", recording, wanted), took)


@nightly("versions")
def test_old():
    recording, wanted, took = run_jobs("old", jobs=FEW)
    durations(accept("old", recording, wanted), took)


run(globals())

#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# run: long cpu=80
"""Backward's allocations belong to the line of forward that made the node: compared with PyTorch's anomaly mode, node by node
(tests/workloads/backward.py)."""
import collections
import json
import os
import signal

import mtr_reader
from harness import (TOOL, WORKLOADS, check, equal, finish, hold_up, nightly, python, record, report, run, scratch, settle, spawn,
                     spawn_job, tool, until_recorded)
from truth import dry_run

JOBS = ("gpt", "encoder", "mixed", "exceptions", "again")
STARTERS = {"_engine_run_backward": "graph.py", "backward": "__init__.py", "grad": "__init__.py"}
BACKWARD_WORKLOAD = os.path.join(WORKLOADS, "backward.py")


class Verdict:
    """
    Bytes of backward by result, and in right modules; nodes; errors in words.

    joined: at the right line of forward. python: Python code ran in the node, and its stack counts. attached: nodes from before
    attach, class known. class only, none: as named. unmarked: before the first node, or of a node without marks. part: in a
    module with its name in the part of the model that was called separately. homeless: without a right module; lineless: without
    a line, by class.
    """

    def __init__(self):
        self.bytes, self.nodes, self.wrong, self.stale, self.outside = collections.Counter(), set(), [], 0, 0
        self.module, self.homeless, self.lineless = 0, collections.Counter(), collections.Counter()

    def inside(self):
        """All of it."""
        return sum(self.bytes[k] for k in ("joined", "python", "attached", "any Function", "class only", "none"))

    def known(self):
        return self.bytes["joined"] + self.bytes["python"]

    def share(self):
        return self.known() / self.inside() if self.inside() else 0

    def line_share(self):
        """Share of the bytes of nodes made since attach."""
        return self.known() / max(self.inside() - self.bytes["attached"], 1)

    def module_share(self):
        """The same without modules called before attach."""
        return self.module / max(self.inside() - self.bytes["module from before"] - self.bytes["part"], 1)


class Judge:
    """Reads a recording by docs/reference/mtr.md alone."""

    def __init__(self, recording, truth, device):
        with open(truth, encoding="utf-8") as f:
            self.nodes = {n["node"]: n for n in map(json.loads, f)}
        self.roots = {n["of"] for n in self.nodes.values() if "" in n.get("call", ())}
        self.device = device
        self.running = collections.defaultdict(list)  # marks by thread
        self.over = {}  # by thread: the node that has just run, and its nesting depth
        self.verdict = Verdict()
        with open(recording, "rb") as stream:
            self.r = mtr_reader.Recording(stream)
            for e in self.r.events():
                if e["kind"] == mtr_reader.ALLOC:
                    self.alloc(e)
        check(self.r.complete, "%s is not complete", recording)

    def frames(self, stack):
        """Frames, innermost first: file, line, bare name of the function, and (name, class of the root) of a module called there
        or None."""
        found = []
        for location, module in self.r.stacks[stack][1]:
            file, func, line = self.r.locations[location]
            called = tuple(self.r.strings[self.r.modules[module][i]] for i in (0, 2)) if module else None
            found.append((self.r.strings[file], line, self.r.strings[func].rpartition(".")[2], called))
        return found

    def of_engine(self, thread):
        return self.r.strings[self.r.threads[thread][1]].startswith("pt_autograd_")

    def starts_engine(self, frame):
        return os.path.basename(frame[0]) == STARTERS.get(frame[2]) and "/torch/autograd/" in frame[0]

    def mark(self, thread, number, begins):
        marks, call = self.running[thread], "call" in self.nodes.get(number, ())
        self.over.pop(thread, None)
        if begins:
            marks.append(number)
        elif number in marks:
            while marks.pop() != number:  # inner nodes were left by an exception
                pass
            if not call:
                self.over[thread] = number

    def alloc(self, e):
        thread = e["thread"]
        if e["type"] == 0 and e["size"] % 2:
            self.mark(thread, e["size"] // 4, e["size"] % 4 == 1)
            return
        if e["type"] != self.device:
            return
        frames, marks = self.frames(e["stack"]), self.running[thread]
        if not self.of_engine(thread) and frames and not any(self.starts_engine(f) for f in frames):
            # Outside of backward, whatever node ran before.
            self.verdict.outside += 1
            self.verdict.stale += e["node"] != 0
            marks.clear()
            return
        if thread in self.over and (not frames or self.starts_engine(frames[0])):
            # The engine adds the node's result to the next node's gradients.
            self.inside(e, frames, self.nodes[self.over[thread]], [])
            return
        nodes = [i for i, number in enumerate(marks) if "call" not in self.nodes[number]]
        if nodes:
            self.inside(e, frames, self.nodes[marks[nodes[-1]]], marks[nodes[-1] + 1:])
        else:
            self.verdict.bytes["unmarked"] += e["size"]

    def maker(self, truth):
        """The node whose line counts: a node made by another node without Python is its derivative."""
        seen = 0
        while truth.get("parent") and seen < 8 and (not truth["frames"] or self.starts_engine(truth["frames"][0])):
            truth, seen = self.nodes[truth["parent"]], seen + 1
        return truth

    def inside(self, e, frames, truth, calls):
        v, (cls, stack, name, module) = self.verdict, self.r.nodes[e["node"]]
        v.nodes.add(truth["node"])
        cls = self.r.strings[cls]
        where = "%d bytes in %s (node %d)" % (e["size"], truth["class"], truth["node"])
        known = self.maker(truth)
        if frames and not self.starts_engine(frames[0]):
            # Python code ran in the node: its stack counts. Inner nodes were run by this Python code.
            v.bytes["python"] += e["size"]
            called = {"modules": self.nodes[calls[-1]]["call"]} if calls else known
            self.in_module(e, self.python_module(frames, stack), called, where)
            return
        if cls == "PyNode" != truth["class"]:
            v.bytes["any Function"] += e["size"]  # the node ended before the offset of its own class was known
        elif e["node"] and cls != truth["class"]:
            v.wrong.append("%s: said to be of %s" % (where, cls))
        elif not e["node"]:
            v.bytes["none"] += e["size"]
        elif cls == "AccumulateGrad":
            self.accumulates(e, self.r.strings[name], module, truth, where)
            return
        elif not stack:
            # PyTorch knows no line either for a node made by the engine's thread, if no other node caused it.
            what = "joined" if not known["frames"] else "attached" if known.get("attached") is False else "class only"
            v.bytes[what] += e["size"]
            v.lineless[truth["class"]] += e["size"] * (what == "class only")
        else:
            v.bytes["joined"] += e["size"]
            forward = [list(f[:3]) for f in self.frames(stack)][:8]
            # Anomaly mode's own frames are not in forward's.
            expected = [f for f in known["frames"]][:len(forward)]
            if forward != expected:
                v.wrong.append("%s: at %s instead of %s" % (where, forward[:2], expected[:2]))
        self.in_module(e, self.module_of(stack), known, where)

    def module_of(self, stack):
        """The innermost module; None: no module."""
        return next((f[3] for f in self.frames(stack) if f[3] is not None), None)

    def python_module(self, frames, stack):
        """The module of the Python code in the node, otherwise the node's."""
        for f in frames:
            if self.starts_engine(f):
                break
            if f[3] is not None:
                return f[3]
        return self.module_of(stack)

    def in_module(self, e, got, truth, where):
        v, modules, (name, root) = self.verdict, truth.get("modules", False), got or (None, None)
        if modules is False:
            return  # the job does not know
        # All jobs' models live at once. Where two have a name in common, the variable `model` comes before both's.
        plain = "" if name == "model" else (name or "").removeprefix("model.")
        if got is None and not modules or modules and {name, plain} & set(modules):
            v.module += e["size"]
        elif truth.get("attached") is False and got is None:
            v.bytes["module from before"] += e["size"]
        elif got and root not in self.roots and any(not name or m.endswith("." + name) for m in modules or ()):
            v.bytes["part"] += e["size"]
        elif got is None or "?" in name.split("."):
            v.homeless[truth.get("class", "a call")] += e["size"]
        else:
            v.wrong.append("%s: in module %r of %s, not %s" % (where, name, root, modules))

    def accumulates(self, e, name, module, truth, where):
        """A parameter's gradient: its name, and its module."""
        v, want = self.verdict, truth.get("parameter")
        v.bytes["joined" if name or not want else "class only"] += e["size"]
        if not want:
            if name and "parameter" in truth:
                v.wrong.append("%s: of %s, which is no parameter" % (where, name))
            elif not module:
                v.module += e["size"]
        elif name and name != want:
            v.wrong.append("%s: of %s, not %s" % (where, name, want))
        elif name:
            owner = self.r.strings[self.r.modules[module][0]]
            v.module += e["size"] if owner == want.rpartition(".")[0] else 0
        else:
            v.homeless[truth["class"]] += e["size"]
            v.lineless[truth["class"]] += e["size"]


HEAD = "     %-7s %-5s %6s %12s %9s %8s %8s %7s" % ("torch", "on", "nodes", "bytes", "joined", "Python", "module", "wrong")


def accept(role, device, v, least=0.99, nodes=5):
    inside = max(v.inside(), 1)
    print(HEAD)
    print("     %-7s %-5s %6d %12d %8.2f%% %7.2f%% %7.2f%% %7d" % (
        role, device, len(v.nodes), inside, 100 * v.share(), 100 * v.bytes["python"] / inside, 100 * v.module / inside,
        len(v.wrong)), flush=True)
    check(not v.wrong, "%d wrong: %s", len(v.wrong), "; ".join(v.wrong[:5]))
    equal(v.stale, 0, "of %d allocations outside of backward, those said to be in a node" % v.outside)
    check(v.outside > 10, "only %d allocations outside of backward", v.outside)
    check(len(v.nodes) >= nodes, "only %d nodes", len(v.nodes))
    check(v.share() >= least, "only %.2f %% of the bytes have their line: %s", 100 * v.share(), dict(v.bytes))
    check(v.module / inside >= least - 0.02, "only %.2f %% of the bytes are in their module: %s, %s", 100 * v.module / inside,
          dict(v.bytes), v.homeless)
    check(v.bytes["any Function"] <= inside / 100, "of Functions without a name: %s", dict(v.bytes))


_recorded = {}


def from_start(role, device="cpu", jobs=JOBS, prefix=()):
    """All jobs in one process, two steps each; recorded once for all tests."""
    key = (role, device, jobs, prefix)
    if key not in _recorded:
        recording, truth = (scratch("%d.%s" % (len(_recorded), end)) for end in ("mtr", "jsonl"))
        dry = ["--dry-run-cuda", "--vram", "80G"] if device != "cpu" else []
        job = spawn([*prefix, TOOL, "run", "-f", "-o", recording, *dry, "--", python(role), BACKWARD_WORKLOAD, ",".join(jobs), "--device",
                     device, "--steps", "2", "--truth", truth, "--wait"])
        # On a busy machine the job's first steps come before the last probes.
        for line in ("^ready", "^done"):
            job.wait_line(line, 240)
            settle(job)
            job.send()
        equal(job.wait(60), 0, "torch %s on %s: %s %s" % (role, device, job.stdout()[-300:], job.stderr()[-500:]))
        _recorded[key] = recording, truth
    return _recorded[key]


def all_jobs(role, device, jobs=JOBS, nodes=300):
    recording, truth = from_start(role, device, jobs)
    accept(role, device, Judge(recording, truth, 0 if device == "cpu" else 1).verdict, nodes=nodes)


def test_cpu():
    all_jobs("main", "cpu")


def test_debian():
    all_jobs("debian", "cpu")


@nightly("versions")
def test_newest():
    all_jobs("newest", "cpu")


@nightly("versions")
def test_old():
    all_jobs("old", "cpu")


@nightly("versions")
def test_oldest():
    all_jobs("oldest", "cpu")


def test_engine_threads():
    """CUDA tensors: nodes run on the engine's threads, which have no Python frames."""
    all_jobs("main", "cuda")


def test_gradient_that_is_copied():
    """AccumulateGrad copies a gradient of another layout than the parameter's: it has the line that the gradient comes from."""
    recording = scratch("cloned.mtr")
    code, _, err = tool("run", "-f", "-o", recording, "--dry-run-cuda", "--", python(), BACKWARD_WORKLOAD, "cloned", "--device", "cuda",
                        "--steps", "2", seconds=200)
    equal(code, 0, err[-500:])
    with open(BACKWARD_WORKLOAD, encoding="utf-8") as f:
        line = next(n for n, text in enumerate(f, 1) if text.rstrip().endswith("# LINE cloned"))
    rows = [r for r in report(recording, "--device", "cuda:0", by="stack")["rows"] if r.get("node_class") == "AccumulateGrad"]
    check(rows, "no gradient was copied")
    equal({(os.path.basename(r["file"] or ""), r["line"], r["source"]) for r in rows}, {("backward.py", line, "autograd")}, "lines")


@nightly("versions")
def test_engine_threads_cuda_12():
    all_jobs("cu12", "cuda", ("gpt", "mixed"), 100)


def test_while_it_runs():
    """Attached in the middle of a step: nodes from before have a class and no line, later ones both."""
    for device in ("cpu", "cuda"):
        recording, truth = scratch("middle-%s.mtr" % device), scratch("middle-%s.jsonl" % device)
        env = dict(os.environ, PYTHONUTF8="1", PYTHONUNBUFFERED="1") if device == "cpu" else dry_run()
        target = spawn_job([python(), BACKWARD_WORKLOAD, "mixed", "--device", device, "--truth", truth], env=env)
        target.wait_line("^step 2", 120)
        recorder = record(target.popen.pid, recording)
        until_recorded(recording, lambda doc: doc["capture"]["counters"]["autograd.joined"] > 2000, "nodes with their line")
        finish(recorder)
        target.signal(signal.SIGTERM)
        equal(target.wait(60), 0, "the job's exit code")
        v = Judge(recording, truth, 0 if device == "cpu" else 1).verdict
        accept("main", device, v, least=0.97)
        doc = report(recording, at="peak")
        counters = doc["capture"]["counters"]
        check(counters["autograd.joined"] > 100, "joined: %s", counters)
        check(counters["autograd.unjoined"] <= counters["autograd.joined"] / 20, "not joined: %s", counters)


def test_report():
    """Rows: a line of forward in backward is marked; a custom Function's line is an ordinary line."""
    recording, _ = from_start("main")
    rows = report(recording, by="stack")["rows"]
    rows += report(recording, at="peak")["rows"]
    charged = [r for r in rows if r["source"] == "autograd"]
    check(charged, "no row from autograd at the peak, of %d", len(rows))
    for r in charged:
        equal(r["phase"], "backward", "phase of %s" % r)
        check(r["node_class"] and r["file"] and r["line"], "a row without class or line: %s", r)
        check("stack" not in r or r["stack"][-1] == r["node_class"], "the innermost frame is not the node: %s", r)
        check(r["function"] != "_engine_run_backward", "at the engine's line: %s", r)
    code, folded, err = tool("export", "folded", recording, "-o", "-", "--at", "peak")
    equal(code, 0, err)
    check(any(";" + r["node_class"] + " " in folded for r in charged), "no node in the folded stacks")


@nightly("long")
def test_blocks_that_are_calls():
    """backend:cudaMallocAsync: a block is a call into CUDA, whose entry has the node."""
    recording, truth = from_start("main", "cuda", ("mixed",), ("env", "PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync"))
    accept("main", "async", Judge(recording, truth, 1).verdict)


def lines_by_size(recording):
    """Allocations in nodes with a line: the job's line, by size and class. And the number of LOST events."""
    lines, lost = collections.defaultdict(collections.Counter), 0
    with open(recording, "rb") as stream:
        r = mtr_reader.Recording(stream)
        for e in r.events():
            lost += e["kind"] == mtr_reader.LOST
            cls, stack, _, _ = r.nodes[e["node"]]
            if e["kind"] != mtr_reader.ALLOC or not stack:
                continue
            for location, _ in r.stacks[stack][1]:
                file, _, line = r.locations[location]
                if r.strings[file] == BACKWARD_WORKLOAD:
                    lines[e["size"], r.strings[cls]][line] += 1
                    break
    return lines, r.facts, lost


@nightly("long")
def test_losses():
    """Lost records of nodes made, nodes that run, or allocations: less is known, and nothing is wrong."""
    whole, lossy = scratch("whole.mtr"), scratch("lossy.mtr")
    code, out, err = tool("run", "-f", "-o", whole, "--", python(), BACKWARD_WORKLOAD, "sizes", "--steps", "3", seconds=120)
    check(code == 0 and "done" in out, "%d %s %s", code, out[-300:], err[-500:])
    known, _, lost = lines_by_size(whole)
    equal(lost, 0, "losses in the whole recording")
    known = {key: lines for key, lines in known.items() if len(lines) == 1}
    check(len({line for lines in known.values() for line in lines}) >= 6, "sizes tell too few lines: %s", known)
    target = spawn_job([python(), BACKWARD_WORKLOAD, "sizes"], env=dict(os.environ, PYTHONUTF8="1", PYTHONUNBUFFERED="1"))
    target.wait_line("^step 10", 120)
    recorder = record(target.popen.pid, lossy, "--ring-size", "64K")
    for _ in range(8):
        hold_up(recorder, target.popen.pid, 0.2)
        settle(recorder)
    finish(recorder)
    target.signal(signal.SIGTERM)
    equal(target.wait(60), 0, "the job's exit code")
    got, facts, lost = lines_by_size(lossy)
    for what in ("autograd_edge", "autograd_node", "cpu_new"):
        check(int(facts.get("counter.lost." + what, 0)) > 0, "nothing lost of %s: %s", what, facts)
    every = ("report", "oom", "cpu_new", "cpu_delete", "cuda_call", "asked", "set_device", "scope_end", "scope", "module_call", "autograd_edge", "autograd_node")
    equal(int(facts["lost"]), sum(int(facts.get("counter.lost." + what, 0)) for what in every), "the fact `lost`")
    code, out, err = tool("report", lossy)
    check(code == 0 and "autograd nodes lost" in out, "the report does not speak of lost nodes: %d %s %s", code, out[-500:], err)
    compared = 0
    for key, lines in got.items():
        if key in known:
            compared += sum(lines.values())
            equal(set(lines), set(known[key]), "lines of %s" % (key,))
    check(compared > 500, "only %d allocations compared", compared)
    print("     %d allocations compared; lost: %s" % (compared, {k[13:]: v for k, v in facts.items() if k.startswith("counter.lost")}))


def test_switched_off():
    recording, truth = scratch("off.mtr"), scratch("off.jsonl")
    code, out, err = tool("run", "-f", "--no-autograd", "-o", recording, "--", python(), BACKWARD_WORKLOAD, "gpt", "--steps", "2",
                          "--truth", truth, seconds=120)
    check(code == 0 and "done" in out, "%d %s %s", code, out[-300:], err[-500:])
    with open(recording, "rb") as stream:
        r = mtr_reader.Recording(stream)
        check(not any(e["node"] for e in r.events()), "an event has a node")
        check(not any("autograd" in key for key in r.facts), "facts: %s", sorted(r.facts))


if __name__ == "__main__":
    run(globals())

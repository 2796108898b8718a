#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
What backward allocates belongs to the line of forward that made the node: against PyTorch's anomaly mode, which knows that
line, node by node (tests/workloads/backward.py).
"""
import collections
import json
import os
import signal
import time

import mtr_reader
from harness import Skip, TOOL, WORKLOADS, check, equal, finish, python, record, report, run, scratch, spawn, tool
from truth import dry_run

JOBS = ("gpt", "encoder", "mixed", "exceptions", "again")
STARTERS = {"_engine_run_backward": "graph.py", "backward": "__init__.py", "grad": "__init__.py"}
BACKWARD_WORKLOAD = os.path.join(WORKLOADS, "backward.py")


class Verdict:
    """bytes by what became of them; nodes; what is wrong, in words."""

    def __init__(self):
        self.bytes, self.nodes, self.wrong, self.stale, self.outside = collections.Counter(), set(), [], 0, 0

    def share(self):
        inside = self.bytes["joined"] + self.bytes["python"] + self.bytes["class only"] + self.bytes["none"]
        return (inside - self.bytes["none"] - self.bytes["class only"]) / inside if inside else 0


class Judge:
    """Reads a recording by docs/FORMAT.md alone."""

    def __init__(self, recording, truth, device):
        with open(truth, encoding="utf-8") as f:
            self.nodes = {n["node"]: n for n in map(json.loads, f)}
        self.device = device
        self.running = collections.defaultdict(list)  # marks by thread
        self.verdict = Verdict()
        with open(recording, "rb") as stream:
            self.r = mtr_reader.Recording(stream)
            for e in self.r.events():
                if e["kind"] == mtr_reader.ALLOC:
                    self.alloc(e)
        check(self.r.complete, "%s is not complete", recording)

    def frames(self, stack):
        """Innermost first: file, line, bare name of the function."""
        found = []
        for location, _ in self.r.stacks[stack][1]:
            file, func, line = self.r.locations[location]
            found.append((self.r.strings[file], line, self.r.strings[func].rpartition(".")[2]))
        return found

    def of_engine(self, thread):
        return self.r.strings[self.r.threads[thread][1]].startswith("pt_autograd_")

    def starts_engine(self, frame):
        return os.path.basename(frame[0]) == STARTERS.get(frame[2]) and "/torch/autograd/" in frame[0]

    def alloc(self, e):
        marks = self.running[e["thread"]]
        if e["type"] == 0 and e["size"] % 2:
            number = e["size"] // 4
            if e["size"] % 4 == 1:
                marks.append(number)
            elif number in marks:
                while marks.pop() != number:  # those within it were left by an exception
                    pass
            return
        if e["type"] != self.device:
            return
        frames = self.frames(e["stack"])
        if not self.of_engine(e["thread"]) and frames and not any(self.starts_engine(f) for f in frames):
            # Outside of backward, whatever ran in it before.
            self.verdict.outside += 1
            self.verdict.stale += e["node"] != 0
            marks.clear()
            return
        if marks:
            self.inside(e, frames, self.nodes[marks[-1]])

    def inside(self, e, frames, truth):
        v, (cls, stack, _, _) = self.verdict, self.r.nodes[e["node"]]
        v.nodes.add(truth["node"])
        cls = self.r.strings[cls]
        where = "%d bytes in %s (node %d)" % (e["size"], truth["class"], truth["node"])
        if frames and not self.starts_engine(frames[0]):
            # Python ran in the node: the stack tells. A node within it is one that this Python made run.
            v.bytes["python"] += e["size"]
            return
        if e["node"] and cls != truth["class"]:
            v.wrong.append("%s: said to be of %s" % (where, cls))
        elif not e["node"]:
            v.bytes["none"] += e["size"]
        elif not stack:
            # Of a node that the engine's own thread made, for a second derivative, PyTorch knows no line either.
            v.bytes["joined" if cls == "AccumulateGrad" or not truth["frames"] else "class only"] += e["size"]
        else:
            v.bytes["joined"] += e["size"]
            forward = [[file, line, func] for file, line, func in self.frames(stack)][:8]
            # Anomaly mode's own frames are no part of the forward call's.
            known = [f for f in truth["frames"]][:len(forward)]
            if forward != known:
                v.wrong.append("%s: at %s instead of %s" % (where, forward[:2], known[:2]))


HEAD = "     %-10s %-7s %-5s %6s %12s %9s %8s %7s" % ("job", "torch", "on", "nodes", "bytes", "joined", "Python", "wrong")


def show(name, role, device, v):
    inside = sum(v.bytes.values())
    print("     %-10s %-7s %-5s %6d %12d %8.2f%% %7.2f%% %7d" % (
        name, role, device, len(v.nodes), inside, 100 * v.share(), 100 * v.bytes["python"] / max(inside, 1), len(v.wrong)), flush=True)


def accept(name, role, device, v, least=0.99):
    show(name, role, device, v)
    check(not v.wrong, "%s: %d wrong: %s", name, len(v.wrong), "; ".join(v.wrong[:5]))
    equal(v.stale, 0, "%s: of %d allocations outside of backward, those said to be in a node" % (name, v.outside))
    check(v.outside > 10, "%s: only %d allocations outside of backward", name, v.outside)
    check(len(v.nodes) >= 5, "%s: only %d nodes", name, len(v.nodes))
    check(v.share() >= least, "%s: only %.2f %% of the bytes have their line: %s", name, 100 * v.share(), dict(v.bytes))


def from_start(role, name, device="cpu", steps=4, prefix=()):
    recording, truth = (scratch("%s-%s-%s.%s" % (name, role, device, end)) for end in ("mtr", "jsonl"))
    dry = ["--dry-run-cuda", "--vram", "80G"] if device != "cpu" else []
    code, out, err = tool("run", "-f", "-o", recording, *dry, "--", python(role), BACKWARD_WORKLOAD, name, "--device", device,
                          "--steps", str(steps), "--truth", truth, seconds=240, prefix=prefix)
    check(code == 0 and "done" in out, "%s with torch %s: %d, %s %s", name, role, code, out[-300:], err[-500:])
    return recording, truth


def all_jobs(role, device, names=JOBS):
    print(HEAD)
    for name in names:
        recording, truth = from_start(role, name, device)
        v = Judge(recording, truth, 0 if device == "cpu" else 1).verdict
        accept(name, role, device, v)


def test_cpu():
    all_jobs("main", "cpu")


def test_newest():
    all_jobs("newest", "cpu")


def test_old():
    all_jobs("old", "cpu")


def test_engine_threads():
    """CUDA tensors: nodes run on threads of the engine, which have no Python frames at all."""
    all_jobs("main", "cuda")


def test_engine_threads_cuda_12():
    all_jobs("cu12", "cuda", ("gpt", "mixed"))


def test_while_it_runs():
    """Attached in the middle of a step: nodes from before have their class and no line, those of later steps have both."""
    print(HEAD)
    for device in ("cpu", "cuda"):
        recording, truth = scratch("middle-%s.mtr" % device), scratch("middle-%s.jsonl" % device)
        env = dict(os.environ, PYTHONUTF8="1", PYTHONUNBUFFERED="1") if device == "cpu" else dry_run()
        target = spawn([python(), BACKWARD_WORKLOAD, "mixed", "--device", device, "--truth", truth], env=env)
        target.wait_line("^step 2", 120)
        recorder = record(target.popen.pid, recording, "-d", "5s")
        equal(recorder.wait(60), 0, "exit code of record")
        target.signal(signal.SIGTERM)
        equal(target.wait(60), 0, "the job's exit code")
        v = Judge(recording, truth, 0 if device == "cpu" else 1).verdict
        accept("mixed", "main", device, v, least=0.97)
        doc = report(recording, at="peak")
        counters = doc["capture"]["counters"]
        check(counters["autograd.joined"] > 100, "joined: %s", counters)
        check(counters["autograd.unjoined"] <= counters["autograd.joined"] / 20, "not joined: %s", counters)


def test_report():
    """Rows: a line of forward in backward says so, and a custom Function's own line is a line like any other."""
    recording, _ = from_start("main", "mixed")
    rows = report(recording, at="peak", by="stack")["rows"]
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


def test_blocks_that_are_calls():
    """backend:cudaMallocAsync: a block is a call into CUDA, and its entry is where the node is told."""
    print(HEAD)
    recording, truth = from_start("main", "mixed", "cuda", prefix=("env", "PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync"))
    v = Judge(recording, truth, 1).verdict
    accept("mixed", "main", "async", v)


def lines_by_size(recording):
    """Of allocations in nodes that have a line: the job's own line, by size and class. And how many events say LOST."""
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


def test_losses():
    """Records that are lost, of nodes made, of nodes that run, of allocations, leave less known and nothing wrong."""
    whole, lossy = scratch("whole.mtr"), scratch("lossy.mtr")
    code, out, err = tool("run", "-f", "-o", whole, "--", python(), BACKWARD_WORKLOAD, "sizes", "--steps", "3", seconds=120)
    check(code == 0 and "done" in out, "%d %s %s", code, out[-300:], err[-500:])
    known, _, lost = lines_by_size(whole)
    equal(lost, 0, "losses in the whole recording")
    known = {key: lines for key, lines in known.items() if len(lines) == 1}
    check(len({line for lines in known.values() for line in lines}) >= 6, "sizes tell too few lines: %s", known)
    target = spawn([python(), BACKWARD_WORKLOAD, "sizes"], env=dict(os.environ, PYTHONUTF8="1", PYTHONUNBUFFERED="1"))
    target.wait_line("^step 10", 120)
    recorder = record(target.popen.pid, lossy, "--ring-size", "64K")
    for _ in range(8):
        recorder.signal(signal.SIGSTOP)
        time.sleep(0.2)
        recorder.signal(signal.SIGCONT)
        time.sleep(0.3)
    finish(recorder)
    target.signal(signal.SIGTERM)
    equal(target.wait(60), 0, "the job's exit code")
    got, facts, lost = lines_by_size(lossy)
    for what in ("autograd_edge", "autograd_node", "cpu_new"):
        check(int(facts.get("counter.lost." + what, 0)) > 0, "nothing lost of %s: %s", what, facts)
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

#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Windows of a running job: by steps, time, condition, mark, signal, ctl and clock; each is a complete recording."""
import json
import os
import re
import signal
import subprocess

import harness
from harness import check, device, equal, python, report, run, scratch, spawn, spawn_job, tool

DRYRUN = os.path.join(os.path.dirname(harness.TOOL), "dryrun")
MIB = 1 << 20
WAITS = "nothing is written until"


class Job:
    def __init__(self):
        libraries = " ".join(os.path.join(DRYRUN, name) for name in ("libcuda.so.1", "libnvidia-ml.so.1"))
        self.p = spawn_job([python(), os.path.join(harness.WORKLOADS, "windows.py")], env={**os.environ, "LD_PRELOAD": libraries})
        self.n = 0
        self.p.wait_line("^ready", 120)

    def tell(self, *words):
        self.p.send(" ".join(map(str, words)) + "\n")
        self.n += 1

    def do(self, *words):
        """PyTorch's allocated bytes then, and its peak since the last reset."""
        self.tell(*words)
        return [int(n) for n in self.p.wait_line(r"^done %d " % self.n, 60).split()[2:]]

    def record(self, output, *options):
        p = spawn([harness.TOOL, "record", "-p", str(self.p.pid), "-o", output, *options], root=True)
        p.wait_line("attached to PID", 60, stream="err")
        return p


def ended(recorder, what):
    equal(recorder.wait(60), 0, "%s: exit code: %s" % (what, recorder.tail(recorder.stderr())))


def ctl(job, *words, expect=0):
    code, out, err = tool("ctl", "--format", "json", "-p", str(job.p.pid), *words, root=True)
    equal(code, expect, "ctl %s: %s" % (" ".join(words), err))
    return json.loads(out) if out else err


def index_of(folder):
    if not harness.IS_ROOT:
        subprocess.run(harness.sudo(["chown", "-R", str(os.getuid()), folder]), check=True)
    return harness.read_json(os.path.join(folder, "index.json"))


def whole(path, allocated, peak):
    """Peak and end equal PyTorch's, and rows add up to them. None: unknown."""
    for at, want in (("peak", peak), ("end", allocated)):
        doc = report(path, at=at)
        gpu = device(doc, "cuda:0")
        want = gpu["allocated"] if want is None else want
        equal((doc["allocated"], sum(r["bytes"] for r in doc["rows"])), (want, want), "%s, at the %s" % (path, at))
        equal((gpu["drift"], gpu["state"], doc["capture"]["lost"]), (0, "exact", 0), path)
    return doc


def in_folder(folder, entry, allocated, peak):
    gpu = [d for d in entry["devices"] if d["device"] == "cuda:0"][0]
    equal((gpu["allocated"], gpu["peak_allocated"]), (allocated, peak), "index: " + entry["file"])
    return whole(os.path.join(folder, entry["file"]), allocated, peak)


def steps_and_conditions(job):
    path = scratch("steps.mtr")
    r = job.record(path, "--skip", "2", "--steps", "3")
    job.do("hold", 40)
    job.do("step", 3, 200)  # the step active at attach, then two to skip
    job.do("reset")
    peak = job.do("step", 3, 50)[1]
    job.do("step", 2, 300)
    ended(r, "--skip --steps")
    doc = whole(path, None, peak)  # the window ended with the optimizer's step, before gradients were freed
    equal(doc["capture"]["steps"], 3, "steps in it")
    check(any(r["bytes"] == 40 * MIB and r["line"] and (r["function"] or "").endswith("hold") for r in doc["rows"]),
          "what was made before the window began, but after we came, has its line: %s", doc["rows"])

    path = scratch("until.mtr")
    r = job.record(path, "--until", "allocated>150M or ooms>0")
    job.do("step", 2, 20)
    job.do("hold", 100)
    job.do("hold", 64)
    ended(r, "--until")
    equal(report(path)["capture"]["stop_reason"], "condition", "why it ended")

    path = scratch("growth.mtr")
    r = job.record(path, "--on-growth", "20M/10steps", "--steps", "2", "--windows", "1")
    job.do("step", 12, 20)
    check(not os.path.exists(path) or not os.path.getsize(path), "it began without growth")
    for _ in range(30):
        job.do("hold", 4)
        job.do("step", 1, 20)
    ended(r, "--on-growth")
    equal(report(path)["capture"]["steps"], 2, "whole steps")
    job.do("drop")


def marks_and_ctl(job):
    folder = scratch("told")
    r = job.record(folder + "/", "--wait", "--label", "told")
    r.wait_line(WAITS, 20, stream="err")
    status = ctl(job, "status")
    equal([(p["pid"], p["writing"], p["windows"]) for p in status["processes"]], [(job.p.pid, False, 0)], "status")
    check("no window" in ctl(job, "stop", expect=1)["error"], "stop, with none open")
    job.do("hold", 30)
    job.do("reset")
    ctl(job, "start")
    check("a window is open already" in ctl(job, "start", expect=1)["error"], "start, with one open")
    check(ctl(job, "status")["processes"][0]["writing"], "status, with one open")
    first = job.do("step", 2, 60)
    ctl(job, "mark", "epoch 3")
    file = ctl(job, "stop")["processes"][0]["file"]
    equal(os.path.dirname(file), folder, "the file that stop names")
    job.do("step", 1, 500)
    job.do("reset")
    r.signal(signal.SIGUSR1)
    while not ctl(job, "status")["processes"][0]["writing"]:
        pass
    second = job.do("step", 2, 10)
    r.signal(signal.SIGUSR2)
    while ctl(job, "status")["processes"][0]["writing"]:
        pass
    ctl(job, "save")
    third = job.do("step", 1, 1)
    harness.finish(r)
    entries = index_of(folder)["recordings"]
    equal([(e["name"], e["began"], e["ended"]) for e in entries],
          [("told-001", "ctl", "ctl"), ("told-002", "signal", "signal"), ("told-003", "ctl", "ctl")], "index")
    in_folder(folder, entries[0], *first)
    in_folder(folder, entries[1], *second)
    equal(third[0], first[0], "no more is held than before")
    in_folder(folder, entries[2], third[0], third[0])
    code, out, err = tool("export", "ndjson", folder + "#told-001", "-o", "-")
    equal(code, 0, err)
    equal([json.loads(line).get("name") for line in out.splitlines() if '"mark"' in line], ["epoch 3"], "the mark in it")
    job.do("drop")


def marks_are_no_events(job):
    """The message when a recording is written equals its report."""
    path = scratch("marked.mtr")
    r = job.record(path)
    job.do("step", 2, 10)
    ctl(job, "mark", "here")
    job.do("step", 1, 10)
    r.signal(signal.SIGINT)
    ended(r, "record")
    said = int(re.search(r"([\d,]+) events, 0 lost", r.stderr())[1].replace(",", ""))
    equal(said, report(path)["capture"]["events"], "events that were recorded, and those of the report")


def between_marks(job):
    path = scratch("marks.mtr")
    r = job.record(path, "--from-mark", "a", "--to-mark", "b", "--windows", "1")
    job.do("step", 1, 200)
    ctl(job, "mark", "b")
    ctl(job, "mark", "a")
    job.do("reset")
    want = job.do("step", 1, 5)
    ctl(job, "mark", "b")
    job.do("step", 1, 200)
    ended(r, "--from-mark --to-mark")
    whole(path, *want)


def look_back(job):
    folder = scratch("back")
    r = job.record(folder + "/", "--on", "allocated>90M", "--before", "10m", "--until", "allocated<90M", "--windows", "1")
    job.do("reset")
    job.do("step", 2, 30)
    peak = job.do("hold", 120)[1]
    allocated = job.do("drop")[0]
    ended(r, "--on --before")
    entry = index_of(folder)["recordings"][0]
    doc = in_folder(folder, entry, allocated, peak)
    check(doc["capture"]["steps"] == 1 and "allocated" in entry["began"], "what came before the condition held: %s", entry)


def clock(job):
    folder = scratch("clock")
    r = job.record(folder + "/", "--every", "300ms", "-d", "100ms", "--windows", "4", "--keep", "2", "--label", "tick")
    job.do("spin", 2.5)
    ended(r, "--every --keep")
    index = index_of(folder)
    equal([e["name"] for e in index["recordings"]], ["tick-003", "tick-004"], "those that are kept")
    equal(sorted(os.listdir(folder)), ["index.json", "tick-003.mtr", "tick-004.mtr"], "files")
    equal(sum(g["why"] == "keep" for g in index["gaps"]) >= 1, True, "what is gone is noted")
    for e in index["recordings"]:
        check(e["to"] - e["from"] <= 0.1, "as long as it was to be: %s", e)
        equal(device(report(os.path.join(folder, e["file"])), "cuda:0")["drift"], 0, e["file"])
    code, out, err = tool("compare", "--format", "json", folder)
    equal((code, [c["name"] for c in json.loads(out)["captures"]]), (0, ["tick-003", "tick-004"]), err)
    code, _, err = tool("report", folder)
    check(code == 64 and "tick-003" in err, "several windows of one process are not added up: %s", err)


def test_of_one_job():
    job = Job()
    for part in (steps_and_conditions, marks_and_ctl, marks_are_no_events, between_marks, look_back, clock):
        part(job)


def test_refused():
    for options, word in (
            (("--on-oom", "--skip", "3"), "--on-oom"), (("--rolling", "1M", "--skip", "3"), "--rolling"),
            (("--rolling", "1M", "--on-oom"), "--on-oom"), (("--rolling", "1M", "--max-size", "1M"), "--max-size"),
            (("--rolling", "1M", "-o", "-"), "-o -"), (("--every", "1s"), "how long"), (("--on", "allocated>1G"), "when does"),
            (("--on", "allocated>"), "allocated"), (("--until", "rss>1G"), "rss"), (("--keep", "3"), "several"),
            (("--wait", "-o", scratch("one.mtr")), "-o NAME/"), (("--before", "3s"), "--before needs"), (("--skip", "x"), "--skip")):
        code, _, err = tool("record", "-p", str(os.getpid()), *options, root=True)
        check(code == 64 and word in err, "%s: %d, %s", options, code, err)
    code, _, err = tool("ctl", "-p", "1", "status", root=True)
    check(code == 2 and "no capture" in err, "ctl without a capture: %d, %s", code, err)
    folder = scratch("hostile")
    os.mkdir(folder)
    for text in ('{"memtrace_folder": 1, "recordings": [{"file": "../../etc/passwd"}]}', "x", '{"memtrace_folder": 9, "recordings": []}'):
        with open(os.path.join(folder, "index.json"), "w", encoding="utf-8") as f:
            f.write(text)
        for command in (("compare",), ("report",), ("diff",), ("leaks",), ("export", "folded")):
            code, out, err = tool(*command, folder)
            check(code == 2 and not out and "index.json" in err, "%s of %r: %d, %s", command, text, code, err)


if __name__ == "__main__":
    run(globals())

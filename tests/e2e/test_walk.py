#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Walks that end at known frames: each is repeated in full and must give the same stack."""
import contextlib
import json
import os
import subprocess
import time

import harness
import mtr_reader
from harness import ATTACHED, IS_ROOT, TOOL, Skip, check, equal, finish, nightly, own, record, report, run, scratch, spawn, workload


def verified(role, script, *args):
    target = workload(script, *args, role=role)
    target.wait_line("^(ready|step)", 120)
    path = scratch("walk-%s-%s.mtr" % (script, role))
    recorder = spawn(["env", "MEMTRACE_BENCH=verify", TOOL, "record", "-p", str(target.popen.pid), "-o", path, "-f", "-d", "3s"],
                     root=True)
    recorder.wait_line(ATTACHED, 60, stream="err")
    equal(recorder.wait(60), 0, "exit code (%s)" % recorder.stderr()[-400:])
    target.stop()
    own(path)
    doc = report(path)
    counters = doc["capture"]["counters"]
    equal(counters.get("walked_again.otherwise", 0), 0, "walks of %s on %s that came to another stack" % (script, role))
    again = counters.get("walked_again.all", 0)
    print("     %-16s %-7s %d of %d walks ended early, none wrongly" % (script, role, again, counters["walks.ok"]))
    return again


def test_anything_that_calls():
    check(verified("main", "suspended.py", "--seconds", "60") > 1000, "next to no walk ended early")


@nightly("versions")
def test_anything_that_calls_newest():
    check(verified("newest", "suspended.py", "--seconds", "60") > 1000, "next to no walk ended early")


def test_training():
    check(verified("main", "train_gpt.py", *harness.TINY, "--seconds", "60") > 1000, "next to no walk ended early")


def test_cpus_share_what_was_sent():
    """A stack that one CPU has sent is not sent by another."""
    if not IS_ROOT or os.cpu_count() < 2:
        raise Skip("needs root and two processors")
    target = workload("churn.py", "--seconds", "3", "--rate", "5000")
    target.wait_line("^ready", 120)
    path = scratch("cpus.mtr")
    recorder = record(target.popen.pid, path)
    target.send()
    i = 0
    while target.alive() and not any(line.startswith("{") for _, line in list(target.out)):
        for tid in os.listdir("/proc/%d/task" % target.popen.pid):
            with contextlib.suppress(OSError):
                os.sched_setaffinity(int(tid), {i % 2})
        i += 1
        time.sleep(0.05)
    truth = json.loads(target.wait_line("^{", 60))
    finish(recorder)
    doc = report(path)
    counters = doc["capture"]["counters"]
    again, sent = counters["stacks_again"], counters["records.stack"]
    check(again <= sent / 10, "%d of %d stacks were sent again", again, sent)
    equal(counters["stacks_unknown"], 0, "stacks used before they were sent")
    equal(harness.device(doc)["allocs"], truth["allocs"], "allocations")


def innermost(path):
    """By size: functions that allocated this much."""
    found = {}
    with open(path, "rb") as f:
        r = mtr_reader.Recording(f)
        for e in r.events():
            if e["kind"] == mtr_reader.ALLOC:
                frames = r.stacks[e["stack"]][1] if e["stack"] else []
                found.setdefault(e["size"], set()).add(r.strings[r.locations[frames[0][0]][1]] if frames else "")
    return found


def subinterpreters(role):
    """A thread that runs a subinterpreter has two thread states. From 3.12 on, frames within it are the subinterpreter's; before
    3.12, those that run it. Frames before and after are unaffected."""
    library = scratch("libc10.so")
    subprocess.run(["gcc", "-O2", "-shared", "-fPIC", "-o", library, os.path.join(harness.REPO, "tests", "kernels", "c10.c")], check=True)
    python = harness.python(role)
    is_312 = subprocess.run([python, "-c", "import sys; sys.exit(sys.version_info < (3, 12))"], check=False).returncode == 0
    within = {"inner"} if is_312 else {"run", "forward"}  # "Runs.forward" from 3.11 on
    p = spawn([python, os.path.join(harness.WORKLOADS, "subinterpreters.py"), library])
    p.wait_line("^ready", 60)
    path = scratch("sub-%s.mtr" % role)
    recorder = record(p.popen.pid, path)
    p.send()
    p.wait_line("^done", 60)
    p.send()
    equal((p.wait(30), recorder.wait(30)), (0, 0), "exit codes (%s; %s)" % (p.stderr(), recorder.stderr()))
    own(path)
    found = innermost(path)
    found[2000] = {name.rpartition(".")[2] for name in found[2000]}
    found[2000].discard("")  # the subinterpreter's code may be freed before its name is read
    equal(found, {1000: {"before"}, 2000: within, **{n: {"after"} for n in (3000, 4000, 5000, 5001, 5002)}},
          "innermost functions by size (%s)" % role)


def test_subinterpreters():
    subinterpreters("main")


def test_subinterpreters_debian():
    subinterpreters("debian")


@nightly("versions")
def test_subinterpreters_of_versions():
    subinterpreters("newest")
    subinterpreters("old")


if __name__ == "__main__":
    run(globals())

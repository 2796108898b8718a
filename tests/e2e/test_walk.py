#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Walks that end where known frames begin: each is made once more in full, and has to come to the same stack."""
import contextlib
import json
import os
import time

import harness
from harness import ATTACHED, IS_ROOT, TOOL, Skip, check, equal, finish, own, record, report, run, scratch, spawn, workload


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
    for role in ("main", "newest"):
        check(verified(role, "suspended.py", "--seconds", "60") > 1000, "next to no walk ended early")


def test_training():
    check(verified("main", "train_gpt.py", *harness.TINY, "--seconds", "60") > 1000, "next to no walk ended early")


def test_each_cpu_sends_its_own():
    """A stack that another CPU sends again is known: its frames are named once."""
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
    check(sent / 3 < again < sent, "%d of %d stacks were known, though two CPUs sent them", again, sent)
    equal(harness.device(doc)["allocs"], truth["allocs"], "allocations")


if __name__ == "__main__":
    run(globals())

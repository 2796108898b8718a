#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# run: check
"""A capture of one process records all of its threads and no other process, whether the kernel filters or the programs do (as on
Linux 6.6 to 6.9, whose own filter misses threads). Uses two equal processes with the same library."""
import os
import subprocess
import sys

from harness import ATTACHED, REPO, TOOL, check, equal, own, report, run, scratch, spawn, sudo

KERNELS = os.path.join(REPO, "tests", "kernels")


def library():
    path = scratch("libc10.so")
    if not os.path.exists(path):
        subprocess.run(["gcc", "-O2", "-shared", "-fPIC", "-o", path, os.path.join(KERNELS, "c10.c")], check=True)
    return path


def target():
    p = spawn([sys.executable, os.path.join(KERNELS, "target.py"), library()])
    p.wait_line("^ready", 30)
    return p


def ask(process, line, answer):
    process.send(line + "\n")
    process.wait_line("^done " + answer, 60)


def recorded(bench):
    ours, other = target(), target()
    path = scratch("filter-%s.mtr" % bench)
    recorder = spawn(["env", "MEMTRACE_BENCH=" + bench, TOOL, "record", "-p", str(ours.popen.pid), "-o", path, "-f"], root=True)
    recorder.wait_line(ATTACHED, 60, stream="err")
    for p in (ours, other):
        p.send("work\n")
    for p in (ours, other):
        p.wait_line("^done 250 125", 60)
    ask(ours, "fork 3", "0 bad")
    recorder.signal(2)
    equal(recorder.wait(60), 0, "exit code (%s)" % recorder.stderr()[-400:])
    other.popen.stdin.close()
    equal(other.wait(30), 0, "exit code of the other process")
    ours.stop()
    own(path)
    doc = report(path)
    device = doc["devices"][0]
    equal([device["allocs"], device["frees"], doc["capture"]["lost"]], [250, 125, 0], "allocs, frees and losses (%s)" % bench)
    equal(doc["capture"]["counters"]["modules.entered"], 500, "calls of modules (%s)" % bench)
    return doc["capture"]["counters"]


def test_all_threads_and_nobody_else():
    counters = recorded("none")
    for bench in ("filter", "atomic", "perf", "old"):
        equal(recorded(bench)["hits.cpu_new"], counters["hits.cpu_new"], "hits (%s)" % bench)


def test_check_names_the_filter():
    for bench, words in (("none", "ok   process filter   only the captured process"), ("filter", "process filter   in the BPF programs")):
        done = subprocess.run(sudo(["env", "MEMTRACE_BENCH=" + bench, TOOL, "check"]), capture_output=True, text=True, check=False)
        check(words in done.stdout or "filter misses threads" in done.stdout, "check (%s) says: %s", bench, done.stdout)


if __name__ == "__main__":
    run(globals())

#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Out of memory while attached: the target lives, every time is recorded, and the flight recorder keeps what led up to it."""
import os
import subprocess

import harness
from harness import check, device, equal, own, python, record, report, run, scratch, spawn

TIMES = 1000
DRYRUN = os.path.join(os.path.dirname(harness.TOOL), "dryrun")
BIG = 90 << 30


def job():
    libraries = " ".join(os.path.join(DRYRUN, name) for name in ("libcuda.so.1", "libnvidia-ml.so.1"))
    return spawn([python(), os.path.join(harness.WORKLOADS, "cuda", "oom_loop.py"), str(TIMES)], stdin=subprocess.PIPE,
                 env={**os.environ, "LD_PRELOAD": libraries})


def at_oom(path):
    doc = report(path, at="oom")
    return doc, [(r["bytes"], r["count"], r["file"], r["line"], r.get("phase"), r["source"]) for r in doc["rows"]]


def test_a_thousand_times():
    whole, window = scratch("whole.mtr"), scratch("window.mtr")
    target = job()
    target.wait_line("^ready", 120)
    recorders = [record(target.popen.pid, whole), record(target.popen.pid, window, "--on-oom")]
    check(not os.path.exists(window), "written before anything happened")
    target.popen.stdin.write(b"go\n")
    target.popen.stdin.close()
    target.wait_line("^caught %d, counted %d$" % (TIMES, TIMES), 120)
    equal(target.wait(60), 0, "the job's exit code")
    for recorder in recorders:
        equal(recorder.wait(60), 0, "exit code of record")
    own(whole)
    own(window)
    doc, rows = at_oom(whole)
    gpu = device(doc, "cuda:0")
    equal((gpu["ooms"], gpu["drift"], doc["capture"]["lost"], gpu["state"]), (TIMES, 0, 0, "exact"), "of all of it")
    equal(sum(r[0] for r in rows), doc["allocated"], "sum of the rows")
    equal(gpu["out_of_memory"][0]["asked"], BIG, "asked for")
    doc, of_window = at_oom(window)
    equal(of_window, rows, "rows at the first time, from the flight recorder")
    # Where a tenth of a second passes without one, as on a busy machine, the next one is in the next file.
    more = [path for path in (scratch("window-2.mtr"), scratch("window-3.mtr")) if os.path.exists(path)]
    gpus = [device(doc, "cuda:0")] + [device(report(path, at="oom"), "cuda:0") for path in more]
    equal((sum(gpu["ooms"] for gpu in gpus), [gpu["drift"] for gpu in gpus]), (TIMES, [0] * len(gpus)), "of the window")


def test_none():
    path = scratch("none.mtr")
    target = spawn([python(), "-c", "import torch, time; print('ready', flush=True)\nwhile True: torch.ones(9); time.sleep(.01)"])
    target.wait_line("^ready", 120)
    recorder = record(target.popen.pid, path, "--on-oom", "-d", "1s")
    equal(recorder.wait(30), 0, "exit code")
    check(not os.path.exists(path), "a file with nothing in it")


if __name__ == "__main__":
    run(globals())

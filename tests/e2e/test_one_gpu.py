#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# run: cpu=30
"""A trainer and an engine on one GPU: report of both recordings has the memory of each at one moment."""
import itertools
import json
import os

import harness
from harness import check, equal, finish, python, record, run, scratch, settle, spawn_job, tool

DRYRUN = os.path.join(harness.OUT, "dryrun", "libcuda.so.1")
GIB, MIB = 1 << 30, 1 << 20
JOB = """
import sys, torch
kept = []
print("ready", flush=True)
for line in sys.stdin:
    number, word, size = line.split()
    if word == "take":
        kept.append(torch.empty(int(size), dtype=torch.uint8, device="cuda"))
    else:
        kept.clear()
    print("done", number, torch.cuda.memory_allocated(), torch.cuda.memory_reserved(), flush=True)
"""
_pair, _numbers = [], itertools.count(1)


def ask(p, *words):
    """What the job's own allocator says afterwards: allocated, reserved."""
    number = next(_numbers)
    p.send("%d %s\n" % (number, " ".join(str(w) for w in words)))
    return [int(n) for n in p.wait_line("^done %d " % number, 120).split()[2:]]


def pair():
    """Both recordings, and what each job said at the trainer's peak. The engine's own peak comes later."""
    if not _pair:
        env = dict(os.environ, LD_PRELOAD=DRYRUN, MEMTRACE_DRYRUN_VRAM="16G", PYTHONUNBUFFERED="1")
        names = [scratch("trainer.mtr"), scratch("engine.mtr")]
        jobs = [spawn_job([python(), "-c", JOB], env=env) for _ in names]
        for p in jobs:
            p.wait_line("^ready", 120)
            ask(p, "take", MIB)
        recorders = [record(p.pid, path) for p, path in zip(jobs, names)]
        trainer, engine = jobs
        engine_then = ask(engine, "take", 2 * GIB)
        trainer_then = ask(trainer, "take", 3 * GIB)
        ask(trainer, "drop", 0)
        check(ask(engine, "take", 512 * MIB)[0] > engine_then[0], "the engine's own peak is no later")
        for r in recorders:
            settle(r)
            finish(r)
        _pair.append((names, [p.pid for p in jobs], [trainer_then, engine_then]))
    return _pair[0]


def test_one_moment():
    names, pids, said = pair()
    code, out, err = tool("report", "--together", "--format", "json", *names)
    equal(code, 0, "exit code (%s)" % err)
    doc = json.loads(out)
    (gpu,) = doc["gpus"]
    order = [r["pid"] for r in doc["recordings"]]
    equal((gpu["uuid"], gpu["total"]), ("GPU-64727920-7275-6e20-6465-766963650000", 16 * GIB), "the GPU: %s" % gpu)
    equal(order[gpu["moment_of"]], pids[0], "whose moment it is")
    equal([(p["pid"], order[p["recording"]], p["device"], p["state"], [p["allocated"], p["reserved"]]) for p in gpu["processes"]],
          [(pid, pid, "cuda:0", "read", figures) for pid, figures in zip(pids, said)], "processes, the largest first")
    check("total_allocated" not in gpu and "allocated" not in gpu, "a sum: %s", gpu)
    peaks = {r["pid"]: r["peak_allocated"] for r in doc["recordings"]}
    check(peaks[pids[1]] > said[1][0], "the engine's peak is at another moment: %s", peaks)


def test_text():
    """Both processes below each other; not with one recording."""
    names, pids, _ = pair()
    code, out, err = tool("report", *names)
    equal(code, 0, "exit code (%s)" % err)
    out = " ".join(out.partition("2 processes on one GPU at ")[2].split())
    for words in ("of trainer: ", "16.00 GiB, GPU-64727920-", "3.00 GiB", "2.00 GiB", "trainer, PID %d" % pids[0], "engine, PID %d" % pids[1],
                  "nothing is added up"):
        check(words in out, "no '%s' in: %s", words, out)
    code, out, _ = tool("report", names[0])
    check(code == 0 and "one GPU" not in out, "one recording: %s", out)


if __name__ == "__main__":
    run(globals())

# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Measures `dump` of a training job."""
import json
import os
import time

import harness
from bench.common import line, rounds as rounds_in, spread

DUMPED = ("llama", "fsdp2")  # with --long


def asked(p, what):
    """The workload's longest step in s since the last "worst" command, and the number of steps."""
    p.out.clear()
    p.send(what + "\n")
    return [float(x) for x in p.wait_line("^did " + what, 60).split()[2:]]


def window(p, wait):
    """While wait() runs: its duration, the longest step, the mean step, all in s."""
    asked(p, "worst")
    begin = time.monotonic()
    result = wait()
    took = time.monotonic() - begin
    longest, steps = asked(p, "none")
    return took, longest, took / max(steps, 1), result


def bench_dump(args, python):
    """Duration of `dump` of single-threaded training jobs, and the jobs' step times during it and alone."""
    out = {}
    for kind in ("gpt", "many", *(DUMPED if args.long else ())):
        p = harness.spawn([python, os.path.join(harness.WORKLOADS, "dump.py"), kind, "cpu", harness.scratch(kind + ".json")],
                          env=dict(os.environ, PYTHONUNBUFFERED="1", OMP_NUM_THREADS="1"))
        p.wait_line("^ready", 120)
        asked(p, "train")
        time.sleep(1)
        rounds = []
        for _ in rounds_in(args, "dump of " + kind):
            beside = window(p, lambda: harness.tool("dump", "-p", str(p.popen.pid), "--format", "json", root=True))
            code, text, err = beside[3]
            harness.check(code == 0, "dump of %s: %d, %s", kind, code, err[-300:])
            alone = window(p, lambda: time.sleep(beside[0]))
            rounds.append((beside, alone, json.loads(text)["reading"]))
        p.stop()
        out[kind] = {"objects": rounds[-1][2]["objects"], "seconds": spread([r[0][0] for r in rounds]),
                     "reading": spread([r[2]["seconds"] for r in rounds]),
                     "step_ms": spread([1e3 * r[1][2] for r in rounds]), "longest_ms": spread([1e3 * r[1][1] for r in rounds]),
                     "step": spread([r[0][2] / r[1][2] for r in rounds]), "longest": spread([r[0][1] / r[1][1] for r in rounds])}
    return out


def show(doc):
    for kind, d in doc.items():
        print("\n`dump` of a job that trains: %s, %d Python objects" % (kind, d["objects"]))
        line("from Enter to the answer, s", d["seconds"], 3)
        line("of that, reading, s", d["reading"], 3)
        line("a step alone, ms", d["step_ms"], 2)
        line("a step beside dump / alone", d["step"], 3)
        line("the longest step alone, ms", d["longest_ms"], 2)
        line("the longest step beside dump / alone", d["longest"], 3)

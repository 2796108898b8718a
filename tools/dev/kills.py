#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
Kills jobs at random moments while `record --on-kill` watches them, and judges each recording: docs/internals/KILLS.md.

    sudo tools/dev/kills.py                       200 by a cgroup's limit, 20 by each signal: about 15 minutes
    sudo tools/dev/kills.py --oom 5 --signals 1   a few
    sudo tools/dev/kills.py --cost                what the tracepoints cost other processes: a minute
"""
import argparse
import concurrent.futures
import os
import statistics
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tests", "e2e"))
import harness
import kills

WAYS = {"oom": "the cgroup's limit", "sent": "SIGKILL at a random moment", "segv": "SIGSEGV", "abort": "SIGABRT", "bus": "SIGBUS",
        "exit3": "exit status 3"}


def many(how, seeds, result):
    """One worker: jobs one after another, with a process of its own that forks them."""
    jobs = kills.Jobs()
    try:
        for seed in seeds:
            try:
                result.append(kills.kill_one(jobs, how, seed))
                os.unlink(result[-1]["path"])
            except Exception as e:
                result.append({"error": "%s %d: %s" % (how, seed, e)})
                print(result[-1]["error"], file=sys.stderr, flush=True)
    finally:
        jobs.stop()


def row(how, results):
    good = [r for r in results if "error" not in r]
    first = [r for r in good if r["place"] is not None and r["place"] < 3]
    seconds = sorted(r["seconds"] for r in good) or [0]
    off = [abs(r["smaps"] - r["memory"]) / r["smaps"] for r in good if r["smaps"]]
    return "| %s | %d | %d | %d | %d | %d | %.2f, %.2f | %d | %s |" % (
        WAYS[how], len(results), len(good), len(first), sum(r["place"] == 0 for r in good), sum(r["lost"] for r in good),
        statistics.median(seconds), seconds[-1], sum(bool(r["smaps"]) for r in good),
        "%.2f %%" % (100 * max(off)) if off else "-")


def cost():
    """What the tracepoints cost a process that is not followed: interleaved, medians, and ratios of neighbours."""
    program = harness.scratch("signals")
    subprocess.run(["cc", "-O2", "-o", program, os.path.join(harness.PROGRAMS, "signals.c")], check=True)
    job = harness.spawn([harness.python(), "-c", "import torch, time; print('ready', flush=True); time.sleep(999)"])
    job.wait_line("^ready", 120)
    found = {False: [], True: []}
    for _ in range(9):
        for on in found:
            recorder = harness.record(job.pid, harness.scratch("cost.mtr"), "--on-kill") if on else None
            done = subprocess.run([program], capture_output=True, text=True, check=True)
            found[on].append([float(x) for x in done.stdout.split()])
            if recorder:
                harness.finish(recorder)
    job.stop()
    print("| | without | with `--on-kill` | ratio: median, least, most |\n|---|---:|---:|---|")
    for i, what in enumerate(("a handled signal, ns", "fork and exit, us")):
        without, with_it = ([x[i] for x in found[on]] for on in (False, True))
        ratios = sorted(b / a for a, b in zip(without, with_it, strict=True))
        print("| %s | %.0f | %.0f | %.2f, %.2f, %.2f |" % (what, statistics.median(without), statistics.median(with_it), statistics.median(ratios), ratios[0], ratios[-1]))


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    p.add_argument("--oom", type=int, default=200)
    p.add_argument("--signals", type=int, default=20)
    p.add_argument("--jobs", type=int, default=2, help="at a time")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--cost", action="store_true", help="the cost of the tracepoints instead")
    a = p.parse_args()
    if a.cost:
        cost()
        return 0
    out = ["| killed by | times | recorded | planted line in rows 1 to 3 | in row 1 | events lost | s from the end to the file: median, most "
           "| smaps read after the signal | kernel's RSS off by at most |", "|---|---:|---:|---:|---:|---:|---|---:|---:|"]
    failed = 0
    for k, how in enumerate(WAYS):
        n = a.oom if how == "oom" else a.signals
        seeds = [a.seed * 1000000 + k * 10000 + i for i in range(n)]
        results = []
        with concurrent.futures.ThreadPoolExecutor(a.jobs) as pool:
            list(pool.map(lambda i, how=how, seeds=seeds, results=results: many(how, seeds[i::a.jobs], results), range(a.jobs)))
        failed += sum("error" in r or r["place"] is None or r["place"] > 2 for r in results)
        out.append(row(how, results))
        print(out[-1], file=sys.stderr, flush=True)
    print("\n".join(out))
    return 1 if failed else 0


if __name__ == "__main__":
    harness.undo_on_signal.append(lambda: None)
    sys.exit(main())

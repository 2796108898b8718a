# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Time in the kernel's programs on a training step, as counted by the kernel: ns per hit of each program. Counting itself takes
some of that time; the row of the empty program shows how much. On the dry run nearly all blocks are CUDA's; the step on the CPU has
the programs of CPU memory."""
import contextlib
import json
import os
import re
import signal
import subprocess
import time

import harness
import truth
from bench import stats
from bench.common import Tail, attach, bpf_stats, cpu_seconds, rounds as rounds_in, spread, tracer_pid, wait_idle
from bench.peers import CPU_MODEL

JOBS = {"dry run": ("cuda", ()), "cpu": ("cpu", CPU_MODEL)}
RARE = 0.5  # hits a step: programs that run less often are left out


def names():
    """{number: name} of all programs loaded in the kernel."""
    paths = os.environ["PATH"] + ":/usr/sbin:/sbin"
    done = subprocess.run(harness.sudo(["env", "PATH=" + paths, "bpftool", "-j", "prog", "show"]), capture_output=True, text=True,
                          check=False)
    harness.check(done.returncode == 0, "bpftool prog show: %s", done.stderr or done.stdout)
    return {p["id"]: p.get("name", "") for p in json.loads(done.stdout)}


def times(pid):
    """{number of the program: (runs, ns)} of the programs that the process holds."""
    done = subprocess.run(harness.sudo(["grep", "-rhE", "^(prog_id|run_time_ns|run_cnt):", "/proc/%d/fdinfo" % pid]),
                          capture_output=True, text=True, check=False)
    found = re.findall(r"prog_id:\s+(\d+)\nrun_time_ns:\s+(\d+)\nrun_cnt:\s+(\d+)", done.stdout)
    harness.check(found, "no programs of process %d: %s", pid, done.stderr)
    return {int(number): (int(runs), int(ns)) for number, ns, runs in found}


def one(state, pid, seconds, tail, path):
    """{program: (ns per hit, hits per step, ns per hit in the first half, in the second)} of one window."""
    p = attach(state, pid, path)
    wait_idle(lambda: cpu_seconds(tracer_pid(p)))
    called = names()
    begin, counts = time.monotonic(), [times(tracer_pid(p))]
    for _ in range(2):
        time.sleep(seconds / 2)
        counts.append(times(tracer_pid(p)))
    end = time.monotonic()
    harness.finish(p)
    # The recorder loads the programs that wait for pages a second after the attach. They run when they replace others.
    late = counts[2].keys() - counts[0].keys()
    harness.check(counts[0].keys() <= counts[2].keys() and not any(counts[2][n][0] for n in late), "the programs changed within a window")
    steps = len(tail.between(begin, end))

    def ns(number, a, b):
        runs = counts[b][number][0] - counts[a][number][0]
        return (counts[b][number][1] - counts[a][number][1]) / runs if runs else None

    return {called[n]: (ns(n, 0, 2), (counts[2][n][0] - counts[0][n][0]) / max(steps, 1), ns(n, 0, 1), ns(n, 1, 2))
            for n in counts[0] if counts[2][n][0] > counts[0][n][0]}


def summary(rounds):
    """{program: figures} of the programs that run in each round."""
    out = {}
    for name in rounds[0]["recorded"]:
        rows = [r["recorded"][name] for r in rounds if name in r["recorded"]]
        if len(rows) < len(rounds) or min(r[1] for r in rows) < RARE:
            continue
        out[name] = {"ns": spread(r[0] for r in rows), "hits_per_step": spread(r[1] for r in rows)}
        empty = [r["empty"][name][0] for r in rounds if name in r["empty"]]
        if empty:
            out[name]["empty_ns"] = spread(empty)
        halves = [r[3] / r[2] for r in rows if r[2] and r[3]]
        if halves:
            out[name]["noise"] = spread(halves)
    return out


def bench(args, python):
    path = harness.scratch("bpf.mtr")
    jobs = {}
    for job, (device, options) in JOBS.items():
        times_path = harness.scratch("bpf-%s.jsonl" % device)
        env = truth.dry_run() if device == "cuda" else dict(os.environ, PYTHONUNBUFFERED="1")
        p = harness.spawn([python, os.path.join(harness.WORKLOADS, "step.py"), "--times", times_path, "--device", device, *options], env=env)
        p.wait_line("^ready", 120)
        p.signal(signal.SIGSTOP)
        jobs[job] = (p, Tail(times_path))
    rounds = {job: [] for job in jobs}
    with contextlib.ExitStack() as stack:
        stack.enter_context(bpf_stats())
        for _ in rounds_in(args, "bpf"):
            for job, (p, tail) in jobs.items():
                p.signal(signal.SIGCONT)
                rounds[job].append({s: one(s, p.popen.pid, args.seconds, tail, path) for s in ("empty", "recorded")})
                p.signal(signal.SIGSTOP)
    for p, _ in jobs.values():
        p.signal(signal.SIGCONT)
        p.stop()
    return {job: summary(found) for job, found in rounds.items()}


def most(doc):
    """The program with the most time."""
    return max(doc, key=lambda name: doc[name]["ns"]["median"] * doc[name]["hits_per_step"]["median"])


def show(doc):
    for job, programs in doc.items():
        print("\nTime in the kernel's programs, a GPT's training step, %s; ns a hit, the kernel's accounting included\n" % job)
        print("| program | hits a step | empty | ns a hit (95 % interval) | us a step |\n|---|---|---|---|---|")
        total = 0
        for name, d in sorted(programs.items(), key=lambda i: -i[1]["ns"]["median"] * i[1]["hits_per_step"]["median"]):
            us = d["ns"]["median"] * d["hits_per_step"]["median"] / 1e3
            total += us
            empty = "%.0f" % d["empty_ns"]["median"] if "empty_ns" in d else ""
            print("| %s | %.1f | %s | %s | %.1f |" % (name, d["hits_per_step"]["median"], empty, stats.text(d["ns"], 0), us))
        print("| all | | | | %.1f |" % total)
        name = most(programs)
        if "noise" in programs[name]:
            print("\nNoise: ns a hit of %s in the second half of a window / in the first: %s" % (name, stats.text(programs[name]["noise"], 3)))

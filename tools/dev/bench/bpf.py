# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Time in the kernel's programs on a training step, as counted by the kernel: ns per hit of each program. Counting itself takes
some of that time; the row of the empty program shows how much."""
import contextlib
import json
import os
import re
import subprocess
import sys
import time

import harness
import truth
from bench.common import Tail, attach, bpf_stats, spread, tracer_pid

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
    """{program: (ns per hit, hits per step)} of one window."""
    p = attach(state, pid, path)
    time.sleep(0.3)
    called = names()
    begin, before = time.monotonic(), times(tracer_pid(p))
    time.sleep(seconds)
    after, end = times(tracer_pid(p)), time.monotonic()
    harness.finish(p)
    harness.check(after.keys() == before.keys(), "the programs changed within a window")
    steps = len(tail.between(begin, end))
    result = {}
    for number, (runs, ns) in after.items():
        runs, ns = runs - before[number][0], ns - before[number][1]
        if runs:
            result[called[number]] = (ns / runs, runs / max(steps, 1))
    return result


def bench(args, python):
    path, times_path = harness.scratch("bpf.mtr"), harness.scratch("bpf.jsonl")
    p = harness.spawn([python, os.path.join(harness.WORKLOADS, "step.py"), "--times", times_path], env=truth.dry_run())
    p.wait_line("^ready", 120)
    rounds = []
    with contextlib.ExitStack() as stack:
        stack.enter_context(bpf_stats())
        for n in range(args.rounds):
            rounds.append({s: one(s, p.popen.pid, args.seconds, Tail(times_path), path) for s in ("empty", "recorded")})
            sys.stderr.write("bpf: round %d of %d\n" % (n + 1, args.rounds))
    p.stop()
    out = {}
    for name in rounds[0]["recorded"]:
        rows = [r for r in rounds if name in r["recorded"]]
        out[name] = {"ns": spread([r["recorded"][name][0] for r in rows]),
                     "hits_per_step": spread([r["recorded"][name][1] for r in rows])}
        empty = [r["empty"][name][0] for r in rows if name in r["empty"]]
        if empty:
            out[name]["empty_ns"] = spread(empty)
    return out


def show(doc):
    print("\nTime in the kernel's programs, a GPT's training step on the dry run; ns a hit, the kernel's accounting included\n")
    print("| program | hits a step | empty | ns a hit | quartiles | us a step |\n|---|---|---|---|---|---|")
    total = 0
    for name, d in sorted(doc.items(), key=lambda i: -i[1]["ns"]["median"] * i[1]["hits_per_step"]["median"]):
        us = d["ns"]["median"] * d["hits_per_step"]["median"] / 1e3
        total += us
        empty = "%.0f" % d["empty_ns"]["median"] if "empty_ns" in d else ""
        print("| %s | %.1f | %s | %.0f | %.0f–%.0f | %.1f |" % (name, d["hits_per_step"]["median"], empty, d["ns"]["median"],
                                                            *d["ns"]["quartiles"], us))
    print("| all | | | | | %.1f |" % total)

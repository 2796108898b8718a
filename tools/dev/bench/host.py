# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Host memory: a training step and requests to a server, recorded without and with --host; a system call of another process."""
import os
import re
import subprocess
import time

import harness
from bench import bpf
from bench.common import Tail, attach, bpf_stats, line, rounds as rounds_in, spread
from bench.steps import rounds_of

# "plain" is recorded without --host as well: against "recorded" it shows the noise, and "host", which is always between the two, is
# compared with their mean: what changes slowly in the machine cancels out.
HOST_STATES = ("untraced", "recorded", "host", "plain")
# A process without PyTorch: record without --host records its host memory as well, so the other states are without a capture.
ALONE_STATES = ("untraced", "host", "again")
COLUMNS = {"wall": lambda r: r[1] - r[0], "cpu": lambda r: r[2]}
CALLS = r"""
import ctypes, time
libc = ctypes.CDLL(None)
def once(n=200000):
    begin = time.process_time_ns()
    for _ in range(n):
        libc.getppid()
    return (time.process_time_ns() - begin) / n
print(min(once() for _ in range(5)))
"""


def decile(values):
    """A tenth of the measurements are faster: those that other guests of the machine slow down most do not count."""
    ordered = sorted(values)
    return ordered[len(ordered) // 10]


def summary(rounds):
    out = {"noise": spread([r["plain"]["cpu"] / r["recorded"]["cpu"] for r in rounds]),
           "ms": spread([1e3 * r["untraced"]["wall"] for r in rounds])}
    for c in COLUMNS:
        out["recorded " + c] = spread([r["recorded"][c] / r["untraced"][c] for r in rounds])
        out["host " + c] = spread([r["host"][c] / r["untraced"][c] for r in rounds])
        out["added " + c] = spread([2 * r["host"][c] / (r["recorded"][c] + r["plain"][c]) for r in rounds])
    return out


def summary_alone(rounds):
    out = {"noise": spread([r["again"]["cpu"] / r["untraced"]["cpu"] for r in rounds]),
           "ms": spread([1e3 * r["untraced"]["wall"] for r in rounds])}
    for c in COLUMNS:
        out["added " + c] = spread([2 * r["host"][c] / (r["untraced"][c] + r["again"][c]) for r in rounds])
    return out


def hits_of(pid, tail, seconds):
    """Runs a step of the programs of --host, and the time of one in ns. sys_exit: one for each system call of the whole machine."""
    with bpf_stats():
        found = bpf.one("host", pid, seconds, tail, harness.scratch("hits.mtr"))
    own = [(hits, ns) for name, (ns, hits, *_) in found.items() if name.startswith("host_")]
    hits = sum(h for h, _ in own)
    return {"hits": hits, "program_ns": sum(h * ns for h, ns in own) / hits if hits else 0}


def of_job(name, command, args, seconds, states=HOST_STATES, of_rounds=summary):
    path = harness.scratch(name + ".jsonl")
    p = harness.spawn([*command, *(["--times"] if name == "training" else []), path])
    p.wait_line("^step|^ready", 120)
    time.sleep(2)
    rounds = rounds_of("host " + name, p.popen.pid, Tail(path), args, COLUMNS, seconds, states, turn=False, middle=decile)
    counted = hits_of(p.popen.pid, Tail(path), seconds)
    p.stop()
    return {**of_rounds(rounds), **counted}


def of_calls(python, args):
    """getppid() of a process that is not traced: with the tracepoint, every call of the machine is slower."""
    target = harness.spawn([python, os.path.join(harness.WORKLOADS, "host_leaks.py"), "mapped", "--wait"])
    target.wait_line("READY", 120)

    def once():
        done = subprocess.run([python, "-c", CALLS], capture_output=True, text=True, check=True)
        return float(re.search(r"[\d.]+", done.stdout)[0])

    found = []
    for _ in rounds_in(args, "host calls"):
        alone = once()
        p = attach("host", target.pid, harness.scratch("calls.mtr"))
        found.append(once() - alone)
        harness.finish(p)
    way = harness.report(harness.scratch("calls.mtr"))["capture"]["host"]
    target.stop()
    return {"way": way, "ns": spread(found)}


def bench(args, python):
    job = os.path.join(harness.WORKLOADS, "train_gpt.py")
    server = [python, os.path.join(harness.WORKLOADS, "host_server.py")]
    return {
        "training": of_job("training", [python, job, "--warmup", "20", "--every", "1000", *harness.TINY], args, 2 * args.seconds),
        "server": of_job("server", server, args, 2 * args.seconds),
        "alone": of_job("alone", [*server, "--without-torch"], args, 2 * args.seconds, ALONE_STATES, summary_alone),
        "calls": of_calls(python, args),
    }


def show_counted(job, calls):
    """What the counted hits take, without noise: every system call of the machine is counted, so it is an upper bound for the job."""
    ns = calls["ns"]["median"] if calls["way"] == "sys_exit" else job["program_ns"]
    us = job["hits"] * ns / 1e3
    print("  %-46s %.1f hits of %.0f ns a step: %.1f us, %.2f %%" % ("added by --host, counted, at most", job["hits"], ns, us,
                                                               us / 10 / job["ms"]["median"]))


def show(doc):
    for name, words in (("training", "A training step, small model"), ("server", "20 requests to a server with threads")):
        s = doc[name]
        print("\n%s" % words)
        line("untraced, ms", s["ms"], 2)
        line("recorded again / recorded, CPU time", s["noise"], 3)
        for c in ("wall", "cpu"):
            line("recorded / untraced, %s time" % c, s["recorded " + c], 3)
            line("recorded with --host / untraced, %s time" % c, s["host " + c], 3)
            line("recorded with --host / recorded, %s time" % c, s["added " + c], 3)
        show_counted(s, doc["calls"])
    s = doc["alone"]
    print("\n20 requests to a server without PyTorch")
    line("untraced, ms", s["ms"], 2)
    line("untraced again / untraced, CPU time", s["noise"], 3)
    for c in ("wall", "cpu"):
        line("recorded with --host / untraced, %s time" % c, s["added " + c], 3)
    show_counted(s, doc["calls"])
    print("\ngetppid() of another process during a capture with --host (by %s)" % doc["calls"]["way"])
    line("added, CPU ns", doc["calls"]["ns"], 0)

# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Host memory: a training step and requests to a server, recorded without and with --host; a system call of another process."""
import os
import re
import subprocess
import time

import harness
from bench.common import Tail, attach, line, rounds as rounds_in, spread
from bench.steps import rounds_of

HOST_STATES = ("untraced", "again", "recorded", "host")
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


def summary(rounds):
    out = {"noise": spread([r["again"]["cpu"] / r["untraced"]["cpu"] for r in rounds]),
           "ms": spread([1e3 * r["untraced"]["wall"] for r in rounds])}
    for c in COLUMNS:
        out["recorded " + c] = spread([r["recorded"][c] / r["untraced"][c] for r in rounds])
        out["host " + c] = spread([r["host"][c] / r["untraced"][c] for r in rounds])
        out["added " + c] = spread([r["host"][c] / r["recorded"][c] for r in rounds])
    return out


def of_job(name, command, args, seconds):
    path = harness.scratch(name + ".jsonl")
    p = harness.spawn([*command, *(["--times"] if name == "training" else []), path])
    p.wait_line("^step|^ready", 120)
    time.sleep(2)
    rounds = rounds_of("host " + name, p.popen.pid, Tail(path), args, COLUMNS, seconds, HOST_STATES)
    p.stop()
    return summary(rounds)


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
    return {
        "training": of_job("training", [python, job, "--warmup", "20", "--every", "1000", *harness.TINY], args, 2 * args.seconds),
        "server": of_job("server", [python, os.path.join(harness.WORKLOADS, "host_server.py")], args, 2 * args.seconds),
        "calls": of_calls(python, args),
    }


def show(doc):
    for name, words in (("training", "A training step, small model"), ("server", "20 requests to a server with threads")):
        s = doc[name]
        print("\n%s" % words)
        line("untraced, ms", s["ms"], 2)
        line("untraced again / untraced, CPU time", s["noise"], 3)
        for c in ("wall", "cpu"):
            line("recorded / untraced, %s time" % c, s["recorded " + c], 3)
            line("recorded with --host / untraced, %s time" % c, s["host " + c], 3)
            line("recorded with --host / recorded, %s time" % c, s["added " + c], 3)
    print("\ngetppid() of another process during a capture with --host (by %s)" % doc["calls"]["way"])
    line("added, CPU ns", doc["calls"]["ns"], 0)

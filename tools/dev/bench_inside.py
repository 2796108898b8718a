#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Compares the cost per event of the kernel's probes and of recording from inside: docs/internals/ESTIMATE.md, "Without privileges". Runs
as root for a few minutes. The two alternate, so that noise of the machine affects both alike: bench_inside.py [TURNS]."""
import os
import re
import subprocess
import sys
import tempfile

REPO = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TOOL = os.path.join(os.path.abspath(os.environ.get("OUTPUT", os.path.join(REPO, ".output"))), "memtrace-bpf")
EVENTS = 2  # per loop turn: a block is allocated and freed

JOB = """
import time, torch
def loop(n):
    t = time.perf_counter()
    for _ in range(n):
        torch.empty(256)
    return (time.perf_counter() - t) / n * 1e6
class Deep(torch.nn.Module):
    def forward(self, n):
        return self.go(n, 12)
    def go(self, n, depth):
        return self.go(n, depth - 1) if depth else loop(n)
m = Deep()
loop(2000)
time.sleep(0.5)
times = sorted(m(40) for _ in range(1500))
print("turn", times[len(times) // 10])
"""

WAYS = (("alone", None, ""), ("the kernel's probes", (), ""), ("from inside", ("--inside",), ""),
        ("the kernel's, a bare probe", (), "empty"), ("from inside, a bare breakpoint", ("--inside",), "empty"))


def turn(python, options, bench):
    with tempfile.TemporaryDirectory() as folder:
        before = [] if options is None else [TOOL, "run", *options, "-q", "-o", os.path.join(folder, "x.mtr"), "--"]
        env = dict(os.environ, **({"MEMTRACE_BENCH": bench} if bench else {}))
        done = subprocess.run([*before, python, "-c", JOB], env=env, capture_output=True, text=True, check=True)
        if options is not None and not os.listdir(folder):
            sys.exit("nothing was recorded: %s" % done.stderr)
    return float(re.search(r"turn ([0-9.]+)", done.stdout).group(1))


def main():
    python = subprocess.run([os.path.join(REPO, "tools", "deps.sh"), "python", "main"], capture_output=True, text=True, check=True).stdout.strip()
    times = {name: [] for name, _, _ in WAYS}
    for _ in range(int(sys.argv[1]) if len(sys.argv) > 1 else 3):
        for name, options, bench in WAYS:
            times[name].append(turn(python, options, bench))
    alone = min(times["alone"])
    for name, _, _ in WAYS[1:]:
        print("| %s | %.1f | %.1f to %.1f |" % (name, (min(times[name]) - alone) / EVENTS, (min(times[name]) - alone) / EVENTS,
                                                (max(times[name]) - alone) / EVENTS))


main()

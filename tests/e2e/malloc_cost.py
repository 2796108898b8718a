#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
What the probes of --malloc-probes add to a call of malloc or free: CPU time of a program in interleaved rounds, median and range.
docs/internals/HOST_LINES.md has the result.

    tests/e2e/malloc_cost.py [ROUNDS]
"""
import statistics
import sys

import chaos
import harness
from harness import TOOL, finish, scratch, spawn

REPLACED = 100000  # blocks in a round: two calls each


def added(bench, rounds):
    """Microseconds that a call takes longer, of each round."""
    p = spawn([chaos.compiled("host/mallocs.c", "mallocs", "-g", "-fno-inline"), "mix"])
    p.wait_line("^ready", 30)

    def once():
        before = len(p.out)
        p.send("%d\n" % REPLACED)
        harness.until(lambda: len(p.out) > before, "a round")
        return float(p.out[-1][1])

    once()
    found = []
    for _ in range(rounds):
        alone = once()
        recorder = spawn(["env", "MEMTRACE_BENCH=" + bench, TOOL, "record", "-p", str(p.pid), "-o", scratch("cost.mtr"), "-f", "--malloc-probes", "--cost",
                          "100%"], root=True)
        recorder.wait_line(harness.ATTACHED, 60, stream="err")
        found.append((once() - alone) / (2 * REPLACED) * 1e6)
        finish(recorder)
    p.stop()
    return found


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 7
    print("| probes | µs for a call |\n|---|---|")
    for bench, name in (("", "uprobe.session"), ("returns", "return probes")):
        us = added(bench, rounds)
        print("| %s | %.2f (%.2f–%.2f) |" % (name, statistics.median(us), min(us), max(us)), flush=True)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
What a scope costs the job, alone and recorded: CPU time of a begin with its end, in interleaved rounds, median and range.
docs/reference/scopes.md has the result.

    tests/e2e/scope_cost.py [ROUNDS]
"""
import os
import statistics
import sys

import harness
from harness import compiled, finish, python, record, scratch, spawn

N = 20000
KINDS = ("nvtx", "record_function", "phase", "usdt")


def once(job, kind):
    before = len(job.out)
    job.send("%s %d\n" % (kind, N))
    harness.until(lambda: len(job.out) > before, "a round")
    return float(job.out[-1][1].split()[1])


def main(rounds):
    job = spawn([python(), os.path.join(harness.WORKLOADS, "range_costs.py"), compiled("usdt_scopes")])
    job.wait_line("^ready", 120)
    took = {(kind, recorded): [] for kind in KINDS for recorded in (False, True)}
    for kind in KINDS:
        once(job, kind)
    for _ in range(rounds):
        for kind in KINDS:
            took[kind, False].append(once(job, kind))
        recorder = record(job.pid, scratch("cost.mtr"), "--scope", "usdt:trainer:step__begin,step__end")
        for kind in KINDS:
            took[kind, True].append(once(job, kind))
        finish(recorder)
    job.stop()
    for kind in KINDS:
        alone, recorded = took[kind, False], took[kind, True]
        added = [r - a for a, r in zip(alone, recorded)]
        print("%-16s alone %6.0f ns (%.0f to %.0f)  recorded adds %6.0f ns (%.0f to %.0f)" % (
            kind, statistics.median(alone), min(alone), max(alone), statistics.median(added), min(added), max(added)))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 7)

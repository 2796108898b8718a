#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
The error of sampled rows of host memory: how often the interval of a row has the bytes that its line allocated. Prints the table of
docs/internals/HOST_LINES.md.

    tests/e2e/host_intervals.py [RUNS]
"""
import sys

import harness
from harness import check, scratch

MIB = 64
KINDS = ("malloc", "thread", "python")


def one(kind, seed, mib=MIB):
    """(line, bytes allocated, row or None) of each line of one recording."""
    path = scratch("share.mtr")
    target = harness.workload("host_share.py", kind, "--mib", str(mib), "--seed", str(seed))
    target.wait_line("READY", 120)
    p = harness.record(target.pid, path, "--host", "-f")
    target.send()
    truth = [tuple(map(int, w.split(":"))) for w in target.wait_line("DONE", 120).split()[1:]]
    harness.finish(p)
    target.send()
    target.wait(60)
    harness.own(path)
    doc = harness.report(path, "--device", "host", "--top", "0", "--at", "end")
    rows = {r["line"]: r for r in doc["rows"] if (r["file"] or "").endswith("host_share.py")}
    check(len(truth) == 4, "truth: %s", truth)
    return [(line, size, rows.get(line)) for line, size in truth]


def interval(row):
    """(low, high) of a row; one without an interval is exact."""
    of = row.get("sampled")
    return (of["low"], of["high"]) if of else (row["bytes"], row["bytes"])


def main():
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    print("| objects in | line's share | recordings with a row | bytes of the row / allocated | interval has the truth | width of the interval / allocated |\n"
          "|---|---|---|---|---|---|")
    for kind in KINDS:
        seen = [one(kind, seed) for seed in range(1, runs + 1)]
        for i in range(4):
            got = [run[i] for run in seen]
            rows = [(size, row) for _, size, row in got if row]
            inside = sum(interval(row)[0] <= size <= interval(row)[1] for size, row in rows)
            mean = sum((row["bytes"] if row else 0) / size for _, size, row in got) / runs
            width = sum((interval(row)[1] - interval(row)[0]) / size for size, row in rows) / max(len(rows), 1)
            share = sum(size for _, size, _ in got) / sum(size for run in seen for _, size, _ in run)
            print("| %s | %.0f %% | %d of %d | %.2f | %d of %d | %.2f |" % (kind, 100 * share, len(rows), runs, mean, inside, len(rows), width), flush=True)


if __name__ == "__main__":
    main()

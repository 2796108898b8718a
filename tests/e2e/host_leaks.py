#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
The twelve planted leaks of tests/workloads/host_leaks.py, recorded with --host (make host-leaks): prints a table of what names each,
for docs/internals/HOST_LINES.md. Exit 1: a leak is named worse than there.

    tests/e2e/host_leaks.py [KIND ...]
"""
import glob
import json
import os
import re
import sys

import harness
from harness import check, scratch, spawn, tool

WORKLOAD = os.path.join(harness.WORKLOADS, "host_leaks.py")
with open(WORKLOAD, encoding="utf-8") as _f:
    LINES = {m[1]: n for n, text in enumerate(_f, 1) for m in [re.search(r"# LEAK: (\w+)$", text)] if m}
# The leaking line lies in code of others, which the workload's line calls.
NAMES = {"tensors": "list of CPU tensors", "bytes": "list of `bytes`", "dict": "dict cache", "pinned": "pinned cache", "extension": "C extension with `malloc`",
         "arrays": "NumPy arrays", "loader": "DataLoader, persistent worker", "shared": "shared memory", "forked": "fork, copy on write", "mapped": "`mmap`",
         "threads": "thread stacks", "fragments": "arena fragmentation"}
BY_PART = ("forked",)  # RSS does not show it: the pages were the child's before it wrote to them
STEPS, MIB = 150, 1


def planted(kind, steps=STEPS):
    """Bytes that the steps leak, as the workload counts them; None: the workload does not know."""
    size = steps * MIB << 20
    return {"dict": None, "threads": steps * ((MIB << 20) - (320 << 10))}.get(kind, size)


def recordings(base):
    return [base, *sorted(p for p in glob.glob(base[:-4] + ".*.mtr"))]


def record(kind, steps=STEPS, pause=0.1):
    """Paths of the recordings: of the job and of its children."""
    path = scratch(kind + ".mtr")
    job = ["--steps", str(steps), "--mib", str(MIB), "--pause", str(pause)]
    if kind == "pinned":  # no GPU is needed, and no part of CUDA is there before attach
        p = spawn([harness.TOOL, "run", "--host", "--dry-run-cuda", "-q", "-f", "-o", path, "--", harness.python(), WORKLOAD, kind, *job], root=True)
        code = p.wait(120)
        check(code == 0, "run ended with %s: %s", code, p.stderr()[-500:])
        return [path]
    target = harness.workload("host_leaks.py", kind, "--wait", *job)
    target.wait_line("READY", 120)
    p = harness.record(target.pid, path, "--host", *(["--children"] if kind in ("loader", "forked") else []))
    target.send()
    target.wait_line("DONE", 120)
    harness.finish(p)
    target.stop()
    return recordings(path)


def rows_of(path, by="line"):
    return harness.report(path, "--device", "host", "--top", "0", by=by)


def marked(doc, kind):
    return [r for r in doc["rows"] if os.path.basename(r["file"] or "") == "host_leaks.py" and r["line"] == LINES.get(kind)]


def leaking(path, kind):
    """The place of the marked line among those that `leaks` names, and its confidence."""
    code, out, err = tool("leaks", "--device", "host", "--format", "json", path)
    check(code == 0, "leaks: %s", err)
    for d in json.loads(out)["devices"]:
        for i, r in enumerate(d["leaks"], 1):
            if os.path.basename(r["file"] or "") == "host_leaks.py" and r["line"] == LINES.get(kind):
                return i, r["confidence"]
    return None, None


def holder(path, kind):
    """The name that holds most of the marked line's memory, and its bytes."""
    _, out, _ = tool("leaks", "--device", "host", "--format", "json", "--top", "0", path)
    doc = json.loads(out)["devices"][0]
    for r in doc["leaks"] + doc["no_leaks"]:
        if os.path.basename(r["file"] or "") == "host_leaks.py" and r["line"] == LINES.get(kind) and r["held_by"]:
            return r["held_by"][0]["name"], r["held_by"][0]["bytes"]
    return None, 0


def sums(doc):
    """Sum of the rows, and the RSS of the same reading."""
    return sum(r["bytes"] for r in doc["rows"]), doc["capture"]["host_rss"]


def judge(kind):
    best = {"bytes": 0, "leaks": None, "confidence": None, "holder": None, "held": 0}
    for path in record(kind):
        harness.own(path)
        if not any(d["device"] == "host" for d in harness.report(path)["devices"]):
            continue
        doc = rows_of(path)
        found = sum(r["bytes"] for r in marked(doc, kind))
        total, rss = sums(doc)
        # A process that ends by itself unmaps some memory after the last reading.
        check(total == rss or (kind == "pinned" and 0.99 * rss < total < rss), "%s: rows add up to %d, RSS is %d", kind, total, rss)
        if found > best["bytes"]:
            best["bytes"] = found
            best["leaks"], best["confidence"] = leaking(path, kind)
            best["holder"], best["held"] = holder(path, kind)
    return best


def main():
    kinds = sys.argv[1:] or list(NAMES)
    bad = 0
    print("| leak | found by | planted, MiB | at the line, MiB | difference | `leaks`: place, confidence | held by, MiB |\n|---|---|---|---|---|---|---|")
    for kind in kinds:
        got, size = judge(kind), planted(kind)
        by = "line" if got["bytes"] and (not size or got["bytes"] > size / 2) else "not"
        bad |= by == "not" and kind not in BY_PART
        print("| %s | %s | %s | %.1f | %s | %s | %s |" % (
            NAMES[kind], by, "%.1f" % (size / 2**20) if size else "?", got["bytes"] / 2**20, "%+.0f %%" % (100 * got["bytes"] / size - 100) if size else "?",
            "%d, %s" % (got["leaks"], got["confidence"]) if got["leaks"] else "-",
            "`%s`, %.1f" % (got["holder"], got["held"] / 2**20) if got["holder"] else "-"), flush=True)
    sys.exit(bad)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
Compares recordings with the counters of PyTorch's own allocator in the same run: every job of tests/e2e/truth.py with each
allocator backend, on each installed PyTorch, traced from the start and attached in the middle. Needs no GPU; needs the same as
`record`. Writes docs/internals/TRUTH.md; exits with 1 if a cell is neither exact nor known to be impossible.

    tools/dev/truth.py [--only PATTERN] [--roles cu12,main,newest] [--output docs/internals/TRUTH.md] [--events 10000000] [--again]

Results are kept in .output/truth.json and not measured again, except with --again, after a new build, or if inexact.
"""
import argparse
import json
import os
import platform
import re
import subprocess
import sys
import textwrap
import time
import traceback

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "tests", "e2e"))
import harness  # noqa: E402
import truth  # noqa: E402

ROLES = ("cu12", "main", "newest")
RUNNING = ("mlp", "gpt", "checkpointing", "two devices", "streams", "caught OOM", "empty_cache", "threads")
STATE = os.path.join(harness.OUT, "truth.json")
HEAD = """# Is it exact?

    make truth

makes this file. Nothing in it is written by hand.

It compares recordings with what PyTorch's own allocator wrote down about the same run, in the same
process: its history of every allocation and free, its counters, its peaks, its segments and blocks
(`torch.cuda.memory._snapshot()`, `memory_stats()`). No GPU is needed. The allocator is the real
one, on the dry run ([DRYRUN.md](DRYRUN.md)).

A separate reader, written from docs/reference/mtr.md alone, reads the recording. The output of
`memtrace-bpf report` is compared as well.

## What is compared

| | with the native allocator, also with expandable segments |
|---|---|
| events | each allocation and free, each segment taken from CUDA and given back, each out of memory: kind, address and order, per device, one by one |
| sizes | number and sum of all allocated sizes, and of all freed sizes, against the allocator's counters; no block smaller than requested |
| totals | after every event our running sum equals the total in the event (drift 0); nothing was lost |
| peaks | peak allocated and peak reserved, to the byte |
| live | blocks alive at the end: addresses and sizes |
| segments | at the end: addresses and sizes; bytes taken from CUDA over the whole time |
| state | attached in the middle: recorded blocks and segments at attach, against the history replayed up to there: addresses, sizes, requested sizes, sums |
| oom | number of out-of-memory events, and the requested size of each |
| requested | with `--requested`: each recorded requested size of a block |
| report | allocated, reserved, both peaks, drift, allocations, frees, bytes allocated, out of memory, before attach, lost |

PyTorch's history has the requested size, a recording the size that was handed out. They are
compared for blocks alive, where PyTorch reports both. PyTorch's counters, which sum up sizes that
were handed out, cover the rest.

With cudaMallocAsync PyTorch keeps no history and knows no segments. There a recording's blocks are
the calls. The number and bytes of live blocks are compared with the pool's own figure and PyTorch's
counters, and so is the peak.

"""


def cells(only, roles):
    """(mode, job, role, backend) of all cells, in the order of the tables."""
    for mode in ("start", "attached", "running"):
        for job in truth.JOBS:
            if mode == "running" and job.name not in RUNNING:
                continue
            for role in roles:
                for backend in truth.BACKENDS:
                    if mode == "running" and backend == "async":
                        continue
                    if re.search(only, "%s/%s/%s/%s" % (mode, job.name, role, backend)):
                        yield mode, job, role, backend


def version(role):
    python = harness.python(role)
    return subprocess.run([python, "-c", "import torch, sys; print(torch.__version__, sys.version.split()[0])"],
                          capture_output=True, text=True, check=True).stdout.split()


def numbers(text):
    return tuple(int(n) for n in re.findall(r"\d+", text)[:2])


def run_cell(mode, job, role, backend, torch):
    if numbers(torch) < job.torch:
        return {"result": "-", "why": "needs torch %d.%d" % job.torch}
    if job.native and backend == "async":
        return {"result": "-", "why": "of the native allocator"}
    begin = time.monotonic()
    try:
        v = truth.verdict(job, role, backend, mode, options=["--requested"] if truth.has_requested() else [])
        result = {"result": "exact" if v.exact() else "differs", "why": v.why(), "events": v.events, "gaps": v.gaps,
                  "aspects": v.aspects}
    except harness.Failure as e:
        result = {"result": "failed", "why": str(e)[:600]}
    except Exception as e:  # a failing cell must not end the others
        result = {"result": "failed", "why": "%s: %s" % (type(e).__name__, e), "trace": traceback.format_exc()}
    finally:
        harness.stop_all()
    result["seconds"] = round(time.monotonic() - begin, 1)
    return result


def built():
    return os.stat(harness.TOOL).st_mtime_ns


def load_state():
    try:
        state = harness.read_json(STATE)
    except (OSError, ValueError):
        return {}
    return {k: v for k, v in state.items() if v.get("built") == built() and v["result"] in ("exact", "-")}


def table(mode, state, roles, versions):
    backends = [b for b in truth.BACKENDS if not (mode == "running" and b == "async")]
    columns = [(role, b) for role in roles for b in backends]
    lines = ["| job | " + " | ".join("%s %s" % (versions[r][0], b) for r, b in columns) + " |",
             "|---" * (len(columns) + 1) + "|"]
    notes = []

    def note(text):
        if text not in notes:
            notes.append(text)
        return notes.index(text) + 1

    for job in truth.JOBS:
        if mode == "running" and job.name not in RUNNING:
            continue
        row = []
        for role, backend in columns:
            c = state.get("%s/%s/%s/%s" % (mode, job.name, role, backend))
            if c is None:
                row.append("not run")
            elif c["result"] == "exact":
                row.append("exact, %s" % format(c["events"], ",") + "".join(" [%d]" % note(gap) for gap in c["gaps"]))
            elif c["result"] == "-" and c["why"].startswith("needs"):
                row.append(c["why"])
            elif c["result"] == "-":
                row.append("-")
            else:
                row.append("%s [%d]" % (c["result"], note(c["why"])))
        lines.append("| %s | " % job.name + " | ".join(row) + " |")
    lines.append("")
    for i, note in enumerate(notes):
        text = re.sub(r"\s+", " ", note).replace("|", "\\|").replace(os.path.dirname(harness.REPO), "")
        lines.append(textwrap.fill("[%d] %s" % (i + 1, text), 100, break_on_hyphens=False, break_long_words=False))
        lines.append("")
    return lines


TITLES = {
    "start": "Traced from the start", "attached": "Attached in the middle",
    "running": "Attached at full speed"}
TEXTS = {
    "start": "`memtrace-bpf run`: from the first block on.",
    "attached": "`record -p PID` between two steps, with models, optimizers and caches in place. Peaks and counters\n"
                "start there.",
    "running": "`record -p PID` at a random moment while the job runs. The state at attach comes from torn\n"
               "readings and the log. PyTorch's history is cut so that as many events remain as were recorded.",
}


def write(path, state, roles, versions, many):
    lines = [HEAD.rstrip("\n"), "", "## Versions", "",
             "| | |", "|---|---|"]
    for role in roles:
        lines.append("| torch %s | Python %s |" % tuple(versions[role]))
    lines += ["| kernel | %s, %s |" % (platform.release(), platform.machine()), ""]
    for mode in ("start", "attached", "running"):
        lines += ["## " + TITLES[mode], "", TEXTS[mode], "Each cell has the number of allocations and frees compared.", ""]
        lines += table(mode, state, roles, versions)
    lines += ["## Ten million events", ""]
    lines += many
    text = "\n".join(lines).rstrip("\n") + "\n"
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)


def run_many(events):
    """The long run with attach; lines of text."""
    try:
        got = truth.many(events)
    except harness.Failure as e:
        return False, ["failed: %s" % e]
    lines = ["| | |", "|---|---|"]
    lines += ["| %s | %s |" % (k, format(v, ",") if isinstance(v, int) else v) for k, v in got["facts"].items()]
    lines += ["", "Exact: nothing was lost, and the running sum equalled the total in the event after every event.\n"
              "Counts, sums, peaks and live blocks are PyTorch's." if not got["why"] else "differs: " + got["why"]]
    return not got["why"], lines


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--only", default="", metavar="PATTERN", help="of mode/job/role/backend")
    p.add_argument("--roles", default=",".join(ROLES))
    p.add_argument("--events", type=int, default=10000000, help="of the long run; 0: not run")
    p.add_argument("--output", default=os.path.join(harness.REPO, "docs", "internals", "TRUTH.md"))
    p.add_argument("--again", action="store_true", help="do not keep what is done already")
    args = p.parse_args()
    roles = args.roles.split(",")
    versions = {role: version(role) for role in roles}
    state = {} if args.again else load_state()
    bad = 0
    for mode, job, role, backend in cells(args.only, roles):
        key = "%s/%s/%s/%s" % (mode, job.name, role, backend)
        if key not in state:
            state[key] = run_cell(mode, job, role, backend, versions[role][0])
            state[key]["built"] = built()
            with open(STATE, "w", encoding="utf-8") as f:
                json.dump(state, f, indent=1)
            print("%-45s %s %s" % (key, state[key]["result"], state[key].get("why", "")), flush=True)
        bad += state[key]["result"] not in ("exact", "-")
    good, many = (True, ["not run"]) if not args.events else run_many(args.events)
    write(args.output, state, roles, versions, many)
    print("%d cells, %d not exact; %s" % (len(state), bad, args.output))
    sys.exit(1 if bad or not good else 0)


if __name__ == "__main__":
    main()

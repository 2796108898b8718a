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
process (`torch.cuda.memory._snapshot()`, `memory_stats()`). No GPU is needed. The allocator is the
real one, on the dry run ([DRYRUN.md](DRYRUN.md)). A separate reader, written from
docs/reference/mtr.md alone, reads the recording. The output of `memtrace-bpf report` is compared as
well.

## What is compared

* Each allocation, free, segment and out of memory: kind, address and order, per device, one by one.
  After every event our running sum equals the total in the event, and nothing was lost.
* The number and sum of all allocated and freed sizes; with `--requested` each requested size.
  PyTorch's history has the requested size, a recording the size that was handed out: they are
  compared for blocks alive, and by PyTorch's counters.
* Peaks to the byte, blocks and segments at the end, bytes taken from CUDA over the whole time.
* Attached in the middle: blocks and segments at attach, against the history replayed up to there.
* The totals, peaks and counts of `report`.

With cudaMallocAsync PyTorch keeps no history and knows no segments. There the number and bytes of
live blocks and the peak are compared with the pool's own figure and PyTorch's counters.

Each cell below has the number of allocations and frees compared, with the native allocator,
expandable segments and, not at full speed, cudaMallocAsync; one number if they are the same. All
are exact unless the cell says otherwise.

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
    """A column a version. Its cell has the figures of all backends, once if they are the same."""
    backends = [b for b in truth.BACKENDS if not (mode == "running" and b == "async")]
    lines = ["| job | " + " | ".join(versions[role][0] for role in roles) + " |", "|---" * (len(roles) + 1) + "|"]
    notes = []

    def note(text):
        if text not in notes:
            notes.append(text)
        return " [%d]" % (notes.index(text) + 1)

    def cell(c, marks, backend):
        if c is None:
            return "not run"
        if c["result"] == "exact":
            marks += [note("with %s: %s" % (backend, gap)) for gap in c["gaps"]]
            return format(c["events"], ",")
        if c["result"] == "-":
            return c["why"] if c["why"].startswith("needs") else "-"
        marks.append(note("%s: %s" % (backend, c["why"])))
        return c["result"]

    rows = []
    for job in truth.JOBS:
        if mode == "running" and job.name not in RUNNING:
            continue
        row = []
        for role in roles:
            marks = []
            cells = [cell(state.get("%s/%s/%s/%s" % (mode, job.name, role, b)), marks, b) for b in backends]
            row.append((cells[0] if len(set(cells)) == 1 else ", ".join(cells), marks))
        rows.append((job.name, row))
    used = [m for _, row in rows for _, marks in row for m in marks]
    usual = [m for m in dict.fromkeys(used) if used.count(m) > len(rows) * len(roles) / 2]
    lines += ["| %s | " % name + " | ".join(text + "".join(m for m in marks if m not in usual) for text, marks in row) + " |" for name, row in rows]
    lines.append("")
    for i, text in enumerate(notes):
        mark = " [%d]" % (i + 1)
        text = re.sub(r"\s+", " ", text).replace("|", "\\|").replace(os.path.dirname(harness.REPO), "")
        text = "Most cells, %s" % text if mark in usual else "%s %s" % (mark.strip(), text)
        lines += [textwrap.fill(text, 100, break_on_hyphens=False, break_long_words=False), ""]
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
    lines = [HEAD.rstrip("\n"), ""]
    lines += ["* torch %s, Python %s" % tuple(versions[role]) for role in roles]
    lines += ["* kernel %s, %s" % (platform.release(), platform.machine()), ""]
    for mode in ("start", "attached", "running"):
        lines += ["## " + TITLES[mode], "", TEXTS[mode], ""]
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

#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
Checks roles of memory: attaches to training jobs and compares the recordings with what the jobs know themselves. Runs every job
of tests/e2e/attribution.py, on the CPU and on the dry run's CUDA, attached between two steps and in the middle of a backward.
Needs the same as `record`. Writes docs/internals/ATTRIBUTION.md; exits with 1 if a cell is below the limit.

    tools/dev/attribution.py [--only PATTERN] [--role main] [--output docs/internals/ATTRIBUTION.md] [--again]

Results are kept in .output/attribution.json and not measured again, except with --again, after a new build, or below the limit.
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

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "tests", "e2e"))
import attribution  # noqa: E402
import harness  # noqa: E402

STATE = os.path.join(harness.OUT, "attribution.json")
MOMENTS = ("between", "backward")
TITLES = {"between": "Attached between two steps", "backward": "Attached in the middle of a backward"}
BAR = 0.99
HEAD = """# Whose memory is it?

    make attribution

makes this file. Nothing in it is written by hand.

It attaches to training jobs in the middle, and compares what the recording says of their memory
with what the jobs know themselves. No GPU is needed. In rows with CUDA the allocator is the real
one, on the dry run ([DRYRUN.md](DRYRUN.md)). A separate reader, written from docs/reference/mtr.md
alone, reads the recording.

**Backward.** The truth is PyTorch's anomaly mode, which writes down the Python stack of each new
autograd node. The job records with forward hooks which module's forward runs then. Hooks of each
node make marks in the stream of allocations. The node's class, the innermost eight frames, and the
module's dotted name are compared. Percent of the bytes that nodes allocated after attach:

| column | |
|---|---|
| line | at the right line of forward; for an accumulated gradient, at the right parameter |
| before attach | nodes made before attach, and their derivatives: the recording has the class, but not the line. In the rest, Python ran in the node, and the innermost frame is the place |
| module | in the right module |
| part | recomputation, after an attach in the middle of it: the name is the one within the called part of the model |

**Blocks at attach.** The truth is `named_parameters()`, `named_buffers()`, the optimizer's state,
all gradients, all other tensors that the garbage collector knows, and those that nodes of the graph
keep. *Named*: right category and name, in percent of the bytes that the job can find. Blocks that
no object visible to Python holds (workspaces of libraries, DDP's buckets) are in the row `before
attach`.

**Wrong** counts allocations at another line, of another class, in another module or of another
parameter, and blocks with a name or category that is not theirs. A cell has the figures on the CPU
and on CUDA, once if they are the same. Inductor on CUDA compiles only for a real device.

"""


def cells(only):
    for at in MOMENTS:
        for device in ("cpu", "cuda"):
            for job in attribution.JOBS:
                if (device, job) == ("cuda", "compiled_inductor"):
                    continue  # Triton compiles only for a real device
                if re.search(only, "%s/%s/%s" % (at, device, job)):
                    yield at, device, job


def run_cell(at, device, job, role):
    begin = time.monotonic()
    try:
        v, live = attribution.attached(job, device, at, role)
        result = {"bytes": v.bytes, "inside": v.inside(), "module": v.module, "line_share": v.line_share(),
                  "module_share": v.module_share(), "wrong": v.wrong[:20], "n_wrong": len(v.wrong) + v.stale, "lineless": v.lineless.most_common(4), "homeless": v.homeless.most_common(4),
                  "live": live.bytes, "live_share": live.share(), "live_wrong": live.wrong[:20], "n_live_wrong": len(live.wrong),
                  "missed": live.missed[:20]}
    except harness.Failure as e:
        result = {"failed": str(e)}
    finally:
        harness.stop_all()
    result["seconds"] = round(time.monotonic() - begin, 1)
    return result


def ratio(a, b):
    return a / b if b else 0


def good(c):
    return "failed" not in c and not c["n_wrong"] and not c["n_live_wrong"] and c["line_share"] >= BAR and \
        c["module_share"] >= BAR and c["live_share"] >= BAR


def listed(pairs):
    return ", ".join("%s %s" % (name, format(size, ",")) for name, size in pairs if size)


def note_of(c):
    """The cell's deviations and their place."""
    parts = []
    if listed(c["lineless"]):
        parts.append("no line: " + listed(c["lineless"]))
    if listed(c["homeless"]):
        parts.append("no module: " + listed(c["homeless"]))
    parts += ["wrong: " + w for w in (c["wrong"][:2] + c["live_wrong"][:2])]
    parts += ["not named: " + m for m in dict.fromkeys(c["missed"][:3])]
    return "; ".join(parts)


def failed_why(c):
    lines = [line for line in re.split(r"\\n|\n", c["failed"]) if re.match(r"[\w.]*(Error|Exception)\b", line.strip())]
    return (lines or [c["failed"][:300]])[-1].strip()


def row_of(c):
    b, n = c["bytes"], c["inside"]
    shares = [ratio(b.get(k, 0), n) for k in ("joined", "attached")] + [c["module"] / n if n else 0, ratio(b.get("part", 0), n), c["live_share"]]
    return ["%.2f" % (100 * share) for share in shares] + ["%d" % (c["n_wrong"] + c["n_live_wrong"])]


def table(state, at):
    lines = ["| job | line, % | before attach, % | module, % | part, % | named, % | wrong |", "|---" + "|---:" * 6 + "|"]
    notes, rows = [], {}

    def mark(text):
        if text not in notes:
            notes.append(text)
        return " [%d]" % (notes.index(text) + 1)

    for key in state:
        where, device, job = key.split("/")
        if where != at:
            continue
        c, on = state[key], "CPU" if device == "cpu" else "CUDA"
        cells, marks = rows.setdefault(job, ([], []))
        if "failed" in c:
            marks.append(mark("%s: the job does not run here: %s" % (on, failed_why(c))))
            continue
        cells.append(row_of(c))
        if note_of(c):
            marks.append(mark(note_of(c)))
    for job, (cells, marks) in rows.items():
        both = [" | ".join(v[0] if len(set(v)) == 1 else ", ".join(v) for v in zip(*cells, strict=True))] if cells else [" | " * 5]
        lines.append("| %s%s | %s |" % (job, "".join(dict.fromkeys(marks)), both[0]))
    lines.append("")
    for i, note in enumerate(notes):
        text = re.sub(r"\s+", " ", note).replace("|", "\\|").replace(os.path.dirname(harness.REPO), "")
        lines += [textwrap.fill("[%d] %s" % (i + 1, text), 100, break_on_hyphens=False, break_long_words=False), ""]
    return lines


def write(path, state, role):
    versions = subprocess.run([harness.python(role), "-c", "import torch, sys; print(torch.__version__, sys.version.split()[0])"],
                              capture_output=True, text=True, check=True).stdout.split()
    ran = [c for c in state.values() if "failed" not in c]
    lines = [HEAD.rstrip("\n"), "", "## Result", "",
             "torch %s, Python %s, kernel %s, %s.\n\n"
             "%d of %d cells reach %d %% in line, module (of nodes and calls made since attach) and name,\n"
             "with nothing wrong." % (*versions, platform.release(), platform.machine(), sum(map(good, ran)), len(ran), 100 * BAR), ""]
    for at in MOMENTS:
        lines += ["## " + TITLES[at], ""] + table(state, at)
    with open(path, "w", encoding="utf-8") as f:
        f.write("\n".join(lines).rstrip("\n") + "\n")


def load_state(built):
    try:
        state = harness.read_json(STATE)
    except (OSError, ValueError):
        return {}
    return {k: v for k, v in state.items() if v.get("built") == built and good(v)}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--only", default="", metavar="PATTERN", help="of moment/device/job")
    p.add_argument("--role", default="main")
    p.add_argument("--output", default=os.path.join(harness.REPO, "docs", "internals", "ATTRIBUTION.md"))
    p.add_argument("--again", action="store_true", help="do not keep what is done already")
    args = p.parse_args()
    built = os.stat(harness.TOOL).st_mtime_ns
    state = {} if args.again else load_state(built)
    for at, device, job in cells(args.only):
        key = "%s/%s/%s" % (at, device, job)
        if key in state:
            continue
        c = state[key] = dict(run_cell(at, device, job, args.role), built=built)
        with open(STATE, "w", encoding="utf-8") as f:
            json.dump(state, f, indent=1)
        print("%-32s %s %s" % (key, "good" if good(c) else "failed" if "failed" in c else "under the bar",
                               failed_why(c) if "failed" in c else note_of(c)[:300]), flush=True)
    order = ["%s/%s/%s" % cell for cell in cells("")]
    state = {k: state[k] for k in order if k in state}
    write(args.output, state, args.role)
    bad = [k for k, c in state.items() if not good(c)]
    print("%d cells, %d not good; %s" % (len(state), len(bad), args.output))
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()

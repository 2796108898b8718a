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
one, on the dry run ([DRYRUN.md](DRYRUN.md)).

A separate reader, written from docs/reference/mtr.md alone, reads the recording.

## What is compared

**Backward.** The truth is PyTorch's anomaly mode, which writes down the Python stack of each new
autograd node. The job records with forward hooks which module's forward runs then. Hooks of each
node make marks in the stream of allocations, so the node that ran is known for each allocation. The
node's class, the innermost eight frames, and the module's dotted name are compared.

| column | |
|---|---|
| bytes | allocated by nodes after attach |
| line | at the right line of forward; for an accumulated gradient, at the right parameter |
| Python | Python ran in the node (a custom Function, recomputation, a compiled graph): the innermost frame is the place of the allocation |
| before attach | nodes made before attach, which were not recorded, and their derivatives: the recording has the class, but not the line |
| no line | nodes made after attach, without a line in the recording |
| module | in the right module |
| part | recomputation, after an attach in the middle of it: it calls a part of a model, and no event names that model. The name is the one within the part |
| wrong | allocations at another line, of another class, in another module or of another parameter; and allocations outside of backward that the recording places in it |

**Blocks at attach.** The truth is `named_parameters()`, `named_buffers()`, the optimizer's state,
all gradients, and all other tensors that the garbage collector knows at the moment of attach. The
tensors that the nodes of the graph keep are added. On CUDA the blocks are the allocator's own. The
CPU has no such tables, so there the blocks are the tensors of the truth.

| column | |
|---|---|
| at attach | bytes of all blocks |
| named | right category and name, among the blocks that the job can find. Without a name in the job: no name, or that of a local variable |
| unheld | bytes in blocks that no object visible to Python holds: workspaces of libraries (cuBLAS has 8 MiB for each thread that uses it), DDP's buckets. They have no name and are in the row `before attach` |
| wrong | blocks with a name or category that is not theirs |

There is no row for Inductor on CUDA, because it compiles only for a real device.

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


def percent(a, b=1):
    return "%.2f %%" % (100 * ratio(a, b))


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
    parts += ["not named: " + m for m in c["missed"][:3]]
    return "; ".join(parts)


def failed_why(c):
    lines = [line for line in re.split(r"\\n|\n", c["failed"]) if re.match(r"[\w.]*(Error|Exception)\b", line.strip())]
    return (lines or [c["failed"][:300]])[-1].strip()


def table(state, at):
    lines = ["| job | on | bytes | line | Python | before attach | no line | module | part | wrong | at attach | named | unheld | wrong |",
             "|---|---" + "|---:" * 12 + "|"]
    notes = []
    for key in state:
        where, device, job = key.split("/")
        if where != at:
            continue
        c, on = state[key], "CPU" if device == "cpu" else "CUDA"
        if "failed" in c:
            notes.append("the job does not run here: " + failed_why(c))
            lines.append("| %s [%d] | %s |%s" % (job, len(notes), on, " |" * 12))
            continue
        note = note_of(c)
        if note:
            notes.append(note)
        b, n, live = c["bytes"], c["inside"], c["live"]
        lines.append("| %s%s | %s | %s | %s | %s | %s | %s | %s | %s | %d | %s | %s | %s | %d |" % (
            job, " [%d]" % len(notes) if note else "", on, format(n, ","), percent(b.get("joined", 0), n), percent(b.get("python", 0), n),
            percent(b.get("attached", 0), n), percent(b.get("class only", 0) + b.get("none", 0), n), percent(c["module"], n),
            percent(b.get("part", 0), n), c["n_wrong"], format(sum(live.values()), ","), percent(c["live_share"]),
            format(live.get("unheld", 0), ","), c["n_live_wrong"]))
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

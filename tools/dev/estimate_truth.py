#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
Checks estimates: runs every job of tests/workloads/estimate/jobs.py in the dry run and compares the peak that memtrace-bpf
reports with PyTorch's own counters in the same process, to the byte, and with estimates based on fake tensors. Writes the tables
of docs/internals/TRUTH_ESTIMATE.md; exits with 1 if a figure differs from PyTorch's.

    tools/dev/estimate_truth.py [--only PATTERN] [--output docs/internals/TRUTH_ESTIMATE.md] [--again]
    [--parts truth,fake,versions,published] [--print]

Results are kept in .output/estimate-truth.json and not measured again, except with --again or after a new build (for the slow
fake tensors, which do not depend on the build: after changes of the scripts). Needs tools/deps.sh estimate.
"""
import argparse
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import textwrap

REPO = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [os.path.join(REPO, "tests", "e2e"), os.path.join(REPO, "tests", "workloads", "estimate")]
import harness  # noqa: E402
import jobs  # noqa: E402
from estimates import FOLDER, Failed, estimated, faked, has_estimate, recorded, untraced  # noqa: E402

STATE = os.path.join(harness.OUT, "estimate-truth.json")
BEGIN, END = "<!-- made by tools/dev/estimate_truth.py -->", "<!-- end -->"
# Published peaks on a GPU with details of the job: dataset optimum-benchmark/rocm on Hugging Face, in bytes; for reserved memory,
# all values in its commits. The GPU is from AMD, where PyTorch had no cuBLAS workspaces then.
PUBLISHED = {
    "HF Trainer, BERT base, 2 x 16": (2195345408, (2497708032,)),
    "HF Trainer, GPT-2 124M, 2 x 16": (2506736640, (2894069760, 2889875456)),
}
NO_WORKSPACES = {"CUBLAS_WORKSPACE_CONFIG": ":0:0", "CUBLASLT_WORKSPACE_SIZE": "0"}
SMS = ("7.5", "8.0", "8.6", "9.0", "10.0", "12.0")


def truth(job):
    result = recorded(job)
    if has_estimate():
        result["estimate"] = estimated(job)
    return result


def helped(job):
    """Runs MemTracker unchanged; if its model cannot be moved to the device, with a fix for that."""
    first = faked(job, "memtracker", True)
    if "Couldn't swap" not in (first["error"] or ""):
        return first
    return faked(job, "memtracker", True, move=True)


def fakes(job):
    return {"memtracker": helped(job)}


# ---- the same job in other environments --------------------------------------------------------------------------

def versions():
    """One job on each PyTorch, with and without a recording, and on each device kind."""
    job = jobs.Job("GPT-2 124M, bf16, checkpoints", "gpt2.py --amp bf16 --checkpoint --steps 2")
    rows = {}
    for role in ("cu12", "main", "newest"):
        first, again, plain = recorded(job, role), recorded(job, role), untraced(job, role)
        rows[role] = {"torch": first["torch"]["torch"], "ours": [counters(r["ours"]) for r in (first, again)],
                      "counters": [counters(t) for t in (first["torch"], again["torch"], plain)]}
    sms = {sm: counters(untraced(job, env={"MEMTRACE_DRYRUN_SM": sm})) for sm in SMS}
    return {"job": job.name, "roles": rows, "sms": sms}


def published():
    named = {j.name: j for j in jobs.JOBS}
    return {name: [counters(untraced(named[name], env=env)) for env in (NO_WORKSPACES, {})] for name in PUBLISHED}


def counters(told):
    return {k: told[k] for k in ("allocated", "reserved")}


# ---- tables ----------------------------------------------------------------------------------------------------

def gib(n):
    return "%.3f" % (n / 2 ** 30)


def percent(got, truth):
    return "%+.2f %%" % (100 * (got - truth) / truth)


def exact(r):
    """The recording matches to the byte, and so does `estimate`, unless it stopped before a larger peak."""
    ours, torch, e = r["ours"], r["torch"], r.get("estimate")
    same = counters(ours) == counters(torch) and ours["drift"] == 0
    early = e is not None and e.get("end") == "repeated" and all(e[k] <= torch[k] for k in ours if k != "drift")
    return same and (e is None or early or counters(e) == counters(torch))


def ours_cell(r):
    ours, torch, e = r["ours"], r["torch"], r.get("estimate")
    if not exact(r):
        return " **%s, %s**" % tuple(gib((ours if counters(ours) != counters(torch) else e)[k]) for k in ("allocated", "reserved"))
    if e is None or counters(e) == counters(torch):
        return ""
    return " `estimate` stopped after step %d: %s" % (e["steps"], ", ".join(percent(e[k], torch[k]) for k in ("allocated", "reserved")))


def note(text, notes):
    if text not in notes:
        notes.append(text)
    return "[%d]" % (notes.index(text) + 1)


def failed(text, notes):
    return "fails " + note(text, notes)


def others(state):
    """A sentence about MemTracker's estimates."""
    runs = [(state.get("truth", job.name), (state.get("fake", job.name) or {}).get("memtracker")) for job in jobs.JOBS]
    runs = [(t["torch"], f) for t, f in runs if f and t and "torch" in t]
    peaks = [(f["peak"] / t["allocated"], f["peak"] / t["reserved"]) for t, f in runs if not f["error"]]
    if not peaks:
        return "MemTracker was not run."
    least, most = [["%+.0f" % (100 * (pick(v) - 1)) for v in zip(*peaks, strict=True)] for pick in (min, max)]
    return ("Peaks of MemTracker are %s to %s %% off the allocated and %s to %s %% off the reserved peak; it fails for %d of %d jobs." %
            (least[0], most[0], least[1], most[1], len(runs) - len(peaks), len(runs)))


def wrapped(text):
    return textwrap.fill(text, 100, break_on_hyphens=False, break_long_words=False)


def table(state):
    lines = ["| job | PyTorch: peak allocated, reserved, GiB | ours, where not to the byte |", "|---" * 3 + "|"]
    notes = []
    for job in jobs.JOBS:
        r = state.get("truth", job.name)
        if r is None:
            lines.append("| %s | not run |" % job.name + " |")
            continue
        if r.get("failed"):
            lines.append("| %s | %s |" % (job.name, failed(r["failed"], notes)) + " |")
            continue
        lines.append("| %s | %s, %s |%s |" % (job.name, gib(r["torch"]["allocated"]), gib(r["torch"]["reserved"]), ours_cell(r)))
    lines += ["", wrapped(others(state)), ""]
    for i, note in enumerate(notes):
        text = re.sub(r"\s+", " ", note).replace("|", "\\|").replace(os.path.dirname(REPO), "")
        lines += [wrapped("[%d] %s" % (i + 1, text)), ""]
    return lines


def version_tables(v):
    lines = ["%s, two steps; PyTorch's counters and ours, bytes:" % v["job"], "",
             "| PyTorch | peak allocated | peak reserved | a second time | without a recording | ours |", "|---" * 6 + "|"]
    for row in v["roles"].values():
        first, again, plain = row["counters"]
        ours = all(o["allocated"] == first["allocated"] and o["reserved"] == first["reserved"] for o in row["ours"])
        lines.append("| %s | %s | %s | %s | %s | %s |" % (
            row["torch"], format(first["allocated"], ","), format(first["reserved"], ","), "same" if again == first else "differs",
            "same" if plain == first else "differs", "the same, both times" if ours else "differs"))
    lines += ["", "The same on PyTorch %s by SM (`MEMTRACE_DRYRUN_SM`), MiB:" % v["roles"]["main"]["torch"], "",
              "| SM | " + " | ".join(v["sms"]) + " |", "|---" * (len(v["sms"]) + 1) + "|"]
    for key in ("allocated", "reserved"):
        lines.append("| peak %s | " % key + " | ".join("%.1f" % (s[key] / 2 ** 20) for s in v["sms"].values()) + " |")
    return lines + [""]


def published_table(results):
    lines = ["Peaks on a GPU that others published (\"Figures of others\"), bytes:", "",
             "| job | | published | dry run, no workspaces of cuBLAS | dry run |", "|---" * 5 + "|"]
    for name, runs in results.items():
        allocated, reserved = PUBLISHED[name]
        for key, theirs in (("allocated", (allocated,)), ("reserved", reserved)):
            ours = [r[key] for r in runs]
            off = min((ours[0] - t for t in theirs), key=abs)
            lines.append("| %s | peak %s | %s | %s: %s | %s: %s |" % (
                name, key, " or ".join(format(t, ",") for t in theirs), format(ours[0], ","), "%+d" % off if off else "the same",
                format(ours[1], ","), percent(ours[1], theirs[0])))
    return lines + [""]


def write(path, lines):
    with open(path, encoding="utf-8") as f:
        text = f.read()
    begin, end = text.find(BEGIN), text.find(END)
    if begin < 0 or end < begin:
        sys.exit("%s: no place for the tables: %s ... %s" % (path, BEGIN, END))
    text = text[:begin] + BEGIN + "\n\n" + "\n".join(lines).rstrip("\n") + "\n\n" + text[end:]
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)


# ---- results kept from earlier runs ------------------------------------------------------------------------------

def of_build(_):
    return str(os.stat(harness.TOOL).st_mtime_ns)


def of_scripts(name):
    script = next(j.script for j in jobs.JOBS if j.name == name)
    h = hashlib.sha256()
    for file in ("common.py", "fake.py", script):
        with open(os.path.join(FOLDER, file), "rb") as f:
            h.update(f.read())
    return h.hexdigest()


class State:
    """Results by part ("truth", "fake", ...) and name, each with the version it was measured for; other versions' results are
    ignored."""

    OF = {"truth": of_build, "versions": of_build, "published": of_build, "fake": of_scripts}

    def __init__(self, keep):
        if not keep and os.path.exists(STATE):
            os.unlink(STATE)
        self.read()

    def read(self):
        try:
            self.all = harness.read_json(STATE)
        except (OSError, ValueError):
            self.all = {}

    def get(self, part, name):
        held = self.all.get(part, {}).get(name)
        return held["result"] if held and held["of"] == self.OF[part](name) else None

    def put(self, part, name, result):
        self.read()  # another process may measure another part
        self.all.setdefault(part, {})[name] = {"of": self.OF[part](name), "result": result}
        with open(STATE + ".new", "w", encoding="utf-8") as f:
            json.dump(self.all, f, indent=1)
        os.rename(STATE + ".new", STATE)

    def missing(self, part, name):
        return self.get(part, name) is None


def available_gib():
    with open("/proc/meminfo", encoding="ascii") as f:
        return int(re.search(r"MemAvailable:\s+(\d+)", f.read()).group(1)) / 2 ** 20


def do_job(state, job, parts):
    """Runs the parts of the job that have no result yet."""
    if available_gib() < job.gib + 4:
        print("%-50s left out: %.1f GiB of memory are available, it may take %d" % (job.name, available_gib(), job.gib), flush=True)
        return
    if "truth" in parts and state.missing("truth", job.name):
        try:
            result = truth(job)
        except (Failed, subprocess.SubprocessError, StopIteration, KeyError) as e:
            result = {"failed": "%s: %s" % (type(e).__name__, e)}
        state.put("truth", job.name, result)
        print("%-50s %s" % (job.name, result.get("failed") or ("to the byte" if exact(result) else "DIFFERS")), flush=True)
    if "fake" in parts and state.missing("fake", job.name):
        state.put("fake", job.name, fakes(job))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--only", default="", metavar="PATTERN", help="of a job's name")
    p.add_argument("--output", default=os.path.join(REPO, "docs", "internals", "TRUTH_ESTIMATE.md"))
    p.add_argument("--again", action="store_true", help="do not keep what is done already")
    p.add_argument("--parts", default="truth,fake,versions,published", help="what to do of what is not done yet")
    p.add_argument("--print", action="store_true", help="print the tables, write no file")
    args = p.parse_args()
    parts = args.parts.split(",")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by a signal"))
    state = State(not args.again)
    for job in jobs.JOBS:
        if re.search(args.only, job.name):
            do_job(state, job, parts)
    if "versions" in parts and state.missing("versions", ""):
        state.put("versions", "", versions())
    if "published" in parts and state.missing("published", ""):
        state.put("published", "", published())
    v, others = state.get("versions", ""), state.get("published", "")
    lines = table(state) + (version_tables(v) if v else []) + (published_table(others) if others else [])
    if args.print:
        print("\n".join(lines))
    else:
        write(args.output, lines)
    results = [(j.name, state.get("truth", j.name)) for j in jobs.JOBS]
    bad = [name for name, r in results if r and (r.get("failed") or not exact(r))]
    if bad:
        sys.exit("not PyTorch's: " + ", ".join(bad))


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# run: cpu=90
"""Two and more recordings compared: the memory exercise, and a program whose lines have moved."""
import csv
import io
import json
import os
import re
import shutil
import subprocess

import harness
from harness import WORKLOADS, Skip, check, equal, nightly, own, python, read_json, run, scratch, spawn, tool
from test_foreign import readers

SMALL = ("--steps", "3", "--layers", "6", "--width", "128", "--context", "256", "--batch", "8")
NAMES = ("baseline", "checkpointing", "amp", "both")
_made = {}


def dry_runs(*jobs):
    """Runs of (script, recording), all at once."""
    args = ("--wait", "--steps", "3", "--batch", "2", "--width", "64", "--context", "64", "--vocab", "300", "--layers", "2", "--heads", "2")
    running = [spawn([harness.TOOL, "run", "-o", output, "-f", "--dry-run-cuda", "--", python(), script, *args], root=True)
               for script, output in jobs]
    for p, (script, output) in zip(running, jobs):
        p.wait_line("^done", 180)
        harness.settle(p)
        p.send()
        equal(p.wait(180), 0, "%s: %s" % (script, p.stderr()[-500:]))
        equal(harness.report(output)["capture"]["attached_at"], "start", "begin of " + output)
    return [output for _, output in jobs]


def exercise():
    """Output of tools/exercise.sh, and its folder."""
    if "exercise" not in _made:
        folder = scratch("exercise")
        done = subprocess.run([os.path.join(harness.REPO, "tools", "exercise.sh"), "-o", folder, *SMALL], capture_output=True, text=True,
                              timeout=900, check=False, env=dict(os.environ, OUTPUT=harness.OUT, PYTHON=python()))
        equal(done.returncode, 0, "tools/exercise.sh: %s" % done.stderr[-800:])
        for name in NAMES:
            own(os.path.join(folder, name + ".mtr"))
        _made["exercise"] = done.stdout, folder
    return _made["exercise"]


def recordings():
    return [os.path.join(exercise()[1], name + ".mtr") for name in NAMES]


def diff(old, new, *options):
    code, out, err = tool("diff", old, new, "--format", "json", *options)
    equal(code, 0, "diff: %s" % err)
    return json.loads(out)


def sums(doc):
    """Rows add up to the byte in all their sums."""
    old, new = doc["old"]["allocated"], doc["new"]["allocated"]
    equal(sum(r["old_bytes"] for r in doc["rows"]), old, "the old side of the rows")
    equal(sum(r["new_bytes"] for r in doc["rows"]), new, "the new side of the rows")
    equal(sum(r["change"] for r in doc["rows"]), new - old, "the changes")
    equal((doc["change"], doc["adds_up"], doc["missing"]), (new - old, True, 0), "what the document says of that")
    for status, told in doc["summary"].items():
        rows = [r for r in doc["rows"] if r["status"] == status]
        equal((told["rows"], told["bytes"]), (len(rows), sum(abs(r["change"]) for r in rows)), "the summary of " + status)
    changes = [abs(r["change"]) for r in doc["rows"]]
    equal(changes, sorted(changes, reverse=True), "the order of the rows")


# ---- compare --------------------------------------------------------------------------------------------------------

def test_exercise():
    """Peaks are PyTorch's own, to the byte, and savings are shown."""
    text, folder = exercise()
    code, out, err = tool("compare", "--format", "json", *recordings())
    equal(code, 0, err)
    captures = json.loads(out)["captures"]
    equal([c["name"] for c in captures], list(NAMES), "names")
    for c in captures:
        truth = read_json(os.path.join(folder, c["name"] + ".json"))
        equal(c["peak_allocated"], truth["max_memory_allocated"], c["name"] + ": peak allocated")
        equal(c["peak_reserved"], truth["max_memory_reserved"], c["name"] + ": peak reserved")
        # On a busy machine, probes may come after PyTorch: then the first step does not count as a whole one.
        began = harness.report(os.path.join(folder, c["name"] + ".mtr"))["capture"]["attached_at"]
        equal((c["steps"], c["steps_timed"], c["lost"], c["drift"], c["before_attach"]), (3 if began == "start" else 2, 2, 0, 0, 0), c["name"] + ": its figures")
        equal((c["dry_run"], c["complete"], c["warnings"]), (True, True, []), c["name"] + ": dry run, complete, warnings")
        check(0 < c["step_time"] < 60, "%s: a step takes %s s", c["name"], c["step_time"])
        after = max(truth["after"].values())
        check(c["peak_allocated"] >= after, "%s: the peak is below %d", c["name"], after)
        equal(c["against_first"]["peak_allocated"], round(c["peak_allocated"] / captures[0]["peak_allocated"], 6), c["name"] + ": times")
    peaks = dict(zip(NAMES, (c["peak_allocated"] for c in captures)))
    check(peaks["both"] < peaks["checkpointing"] < peaks["baseline"] and peaks["amp"] < peaks["baseline"], "peaks: %s", peaks)
    check(peaks["both"] < 0.7 * peaks["baseline"], "checkpointing and AMP save less than 30 %%: %s", peaks)
    for name in NAMES:
        check(re.search(r"^%s +[\d.]+ MiB" % name, text, re.M), "%s is in no row of %r", name, text)
    check("Where does memory peak?  In %s, step " % captures[0]["peak_phase"] in text, "the answers: %r", text[-2000:])


def test_compare_formats():
    code, out, err = tool("compare", "--format", "markdown", "--name", "a|b,c,*d*,e", *recordings())
    equal(code, 0, err)
    rows = [line for line in out.splitlines() if line.startswith("|")]
    equal(len(rows), 6, "lines of the table")
    equal({len(re.findall(r"(?<!\\)\|", r)) for r in rows}, {11}, "cells of each")
    check(rows[2].startswith("| a\\|b |") and rows[4].startswith("| \\*d\\* |"), "escapes: %s", rows)
    code, out, _ = tool("compare", recordings()[0], "again=" + recordings()[0], "--skip", "1", "--format", "json")
    equal(code, 0, "compare with a name")
    first, again = json.loads(out)["captures"]
    equal((first["name"], again["name"], again["steps_timed"]), ("baseline", "again", 1), "names, and steps left by --skip")
    equal(again["against_first"], {"peak_allocated": 1.0, "peak_reserved": 1.0, "step_time": 1.0}, "the same against itself")
    code, out, _ = tool("compare", recordings()[0], recordings()[3], prefix=("env", "COLUMNS=120"))
    check(all(len(line) <= 120 for line in out.splitlines()), "wide lines: %r", out)


# ---- diff -----------------------------------------------------------------------------------------------------------

def test_sums():
    """For all kinds of rows."""
    old, new = recordings()[:2]
    for by in ("line", "stack", "module", "phase", "category", "thread"):
        sums(diff(old, new, "--by", by))
    for at in ("end", "peak,end", "0.001,peak"):
        doc = diff(old, new, "--at", at)
        sums(doc)
    doc = diff(old, new, "--by", "layer")
    check("adds_up" not in doc and len(doc["rows"]) > 10, "layers overlap, and are not added up: %s", doc.get("adds_up"))
    same = diff(old, old)
    equal({r["status"] for r in same["rows"]}, {"unchanged"}, "a recording against itself")
    code, out, _ = tool("diff", old, new, "--format", "csv")
    equal(code, 0, "diff as CSV")
    rows = list(csv.DictReader(io.StringIO(out)))
    doc = diff(old, new)
    equal([(r["status"], int(r["change"]), r["new_line"]) for r in rows],
          [(r["status"], r["change"], str(r["new"]["line"] or "") if r["new"] else "") for r in doc["rows"]], "CSV and JSON")
    code, out, _ = tool("diff", old, new, prefix=("env", "COLUMNS=80"))
    check(code == 0 and "add up" not in out, "changes that do not add up: %r", out[-200:])
    check(all(len(line) <= 80 for line in out.splitlines()[6:]), "lines over 80 columns: %r", out)


def edited(folder):
    """The GPT in another folder with lines inserted and removed: other lines have moved, some of them twice."""
    os.makedirs(folder)
    shutil.copy(os.path.join(WORKLOADS, "oracle.py"), folder)
    with open(os.path.join(WORKLOADS, "gpt.py"), encoding="utf-8") as f:
        text = f.read()
    for old, new in (
            ("class Attention(", "# one\n# two\n\nclass Attention("),
            ("        mixed = F.scaled", "        batch += 0\n        mixed = F.scaled"),
            ("        return self.head(self.norm(x))", "        x = x + 1  # NEW\n        return self.head(self.norm(x))"),
            ("        x = x + self.attention(self.norm1(x))\n        return x + self.mlp(self.norm2(x))",
             "        x = x + self.attention(self.norm1(x))\n        y = self.norm2(x)  # NEW\n\n        return x + self.mlp(y)")):
        equal(text.count(old), 1, "places of %r" % old)
        text = text.replace(old, new)
    with open(os.path.join(folder, "gpt.py"), "w", encoding="utf-8") as f:
        f.write(text)


def lines_of(path):
    with open(path, encoding="utf-8") as f:
        return [""] + [line.split("#")[0].strip() for line in f]


def moved():
    if "moved" not in _made:
        folder = scratch("second-checkout/tests/workloads")
        edited(folder)
        _made["moved"] = folder, dry_runs((os.path.join(WORKLOADS, "gpt.py"), scratch("old.mtr")),
                                          (os.path.join(folder, "gpt.py"), scratch("new.mtr")))
    return _made["moved"]


def test_moved_lines():
    """Rows match if their source lines are equal; the sources are readable."""
    folder, (old, new) = moved()
    doc = diff(old, new)
    sums(doc)
    sources = [lines_of(os.path.join(f, "gpt.py")) for f in (WORKLOADS, folder)]
    both = [r for r in doc["rows"] if r["old"] and r["new"] and (r["old"]["file"] or "").endswith("/gpt.py")]
    check(len(both) > 20 and sum(r["moved"] for r in both) > 20, "%d rows in both, %d moved", len(both), sum(r["moved"] for r in both))
    changed = {"return x + self.mlp(self.norm2(x))", "return x + self.mlp(y)"}  # edited lines, paired all the same
    for r in both:
        texts = [s[r[k]["line"]] for s, k in zip(sources, ("old", "new"))]
        check(texts[0] == texts[1] or set(texts) == changed, "line %s is taken for line %s: %s", r["old"]["line"], r["new"]["line"], texts)
        equal(r["moved"], r["old"]["line"] != r["new"]["line"], "moved")
    # A line has a row for each module, whose name may have come too late in one of the recordings.
    texts = [{s[r[k]["line"]] for r in doc["rows"] if r[k] and r[k]["file"]} for s, k in zip(sources, ("old", "new"))]
    alone = {sources[1][r["new"]["line"]] for r in doc["rows"] if r["status"] == "new" and r["new"]["file"]} - texts[0]
    check("x = x + 1" in alone and alone <= {"x = x + 1", "y = self.norm2(x)"} | changed, "lines that are new: %s", alone)
    gone = {sources[0][r["old"]["line"]] for r in doc["rows"] if r["status"] == "gone" and r["old"]["file"]} - texts[1]
    check(gone <= changed, "lines that are gone: %s", gone)
    check({"old": os.path.join(WORKLOADS, "gpt.py"), "new": os.path.join(folder, "gpt.py")} in doc["renamed_files"], "files: %s",
          doc["renamed_files"])
    code, out, _ = tool("diff", old, new)
    equal(code, 0, "diff as text")
    line = next(r for r in both if r["moved"] and r["change"])["old"]["line"] if any(r["moved"] and r["change"] for r in both) else None
    check(line is None or "moved from :%d" % line in out, "moved from :%s in %r", line, out)


def test_moved_stacks():
    """Stacks match if all their lines do."""
    _, (old, new) = moved()
    doc = diff(old, new, "--by", "stack")
    sums(doc)
    same = [r for r in doc["rows"] if r["old"] and r["new"]]
    check(len(same) > 0.5 * len(doc["rows"]), "%d of %d stacks are in both", len(same), len(doc["rows"]))
    for r in same:
        functions = [[f.split(" (")[0] for f in r[k]["stack"]] for k in ("old", "new")]
        equal(functions[0], functions[1], "functions of the stack")


# ---- flame graph ----------------------------------------------------------------------------------------------------

@nightly("programs")
def test_flamegraph_in_a_browser():
    """Each pair's page equals its report: both sides of every stack, and no console output."""
    folder = readers()
    for i, (old, new) in enumerate((recordings()[:2], moved()[1])):
        page, report = scratch("diff%d.html" % i), scratch("diff%d.json" % i)
        code, _, err = tool("diff", old, new, "--format", "flamegraph", "-o", page)
        equal(code, 0, "diff as a flame graph: %s" % err)
        code, _, err = tool("diff", old, new, "--by", "stack", "--format", "json", "-o", report)
        equal(code, 0, "diff by stack: %s" % err)
        done = subprocess.run(["nice", "-n", "5", "node", os.path.join(folder, "check_flamediff.mjs"), page, report], capture_output=True,
                              text=True, timeout=600, check=False)
        if done.returncode == 77:
            raise Skip(done.stderr.strip())
        check(done.returncode == 0, "check_flamediff.mjs: %s %s", done.stdout[-600:], done.stderr[-1200:])


def test_default_name():
    folder = scratch("default")
    os.mkdir(folder)
    for i in range(2):
        code, out, err = tool("diff", *recordings()[:2], "--format", "flamegraph", cwd=folder)
        equal((code, out), (i, ""), "diff as a flame graph, time %d: it said %s" % (i + 1, err))
        check("memtrace-diff-baseline-checkpointing.html" in err, "the message is %r", err)
    equal(os.listdir(folder), ["memtrace-diff-baseline-checkpointing.html"], "files")


# ---- errors ---------------------------------------------------------------------------------------------------------

def test_errors():
    old, new = recordings()[:2]
    for args, code, words in ((("diff", old), 64, "no second recording"), (("diff", old, new, new), 64, "compare"),
                              (("diff", "-", "-"), 64, "standard input"), (("diff", old, "/nonexistent"), 2, "cannot open"),
                              (("diff", old, new, "--by", "segment"), 64, "segment"), (("diff", old, new, "--at", "x"), 64, "--at"),
                              (("diff", old, new, "--format", "flamegraph", "--by", "module"), 64, "by stack"),
                              (("diff", old, new, "--at", "oom"), 2, "out-of-memory"), (("diff", old, new, "--device", "cuda:7"), 2, "cuda:7"),
                              (("diff", old, new, "-o", old), 1, "cannot create"), (("diff", old, new, "-o", "/dev/full"), 1, "cannot write"),
                              (("compare",), 64, "no recording given"), (("compare", old, "--name", "a,b"), 64, "2 names for 1"),
                              (("compare", old, __file__), 2, "not a memtrace-bpf recording"), (("compare", old, "--format", "csv"), 64, "csv")):
        got, out, err = tool(*args)
        equal((got, out), (code, ""), "%s: exit and output; it said %r" % (args, err))
        check(words in err, "%s: the message is %r", args, err)


if __name__ == "__main__":
    run(globals())

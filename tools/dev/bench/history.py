# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""The history of results: docs/internals/bench/ has a small JSON file for each measured commit, and README.md made of them."""
import json
import os
import re
import subprocess

from bench import figures, machine, stats

REPO = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
FOLDER = os.path.join(REPO, "docs", "internals", "bench")
SCHEMA = 1
IN_TABLE = 8  # newest results, each a column
# Figures that the files and comparisons have, and the table has not: their ratios are in it.
NOT_IN_TABLE = ("added CPU time", "added to a step")


def git(*args):
    return subprocess.run(["git", "-C", REPO, *args], capture_output=True, text=True, check=True).stdout.strip()


def commit():
    """{"commit", "committed", "changed"}: HEAD, its date, and whether the tree differs from it in files that are measured."""
    return {"commit": git("rev-parse", "--short=12", "HEAD"), "committed": git("log", "-1", "--format=%cI"),
            "changed": bool(git("status", "--porcelain", "--", "bpf", "user", "tools", "tests/workloads", "Makefile"))}


def entry(doc):
    """What is kept of a run: .output/bench.json without the values of the rounds."""
    return {"schema": SCHEMA, **doc["commit"], "measured": doc["measured"], "machine": doc["machine"], "torch": doc["torch"],
            "busy": doc["busy"], "figures": figures.figures(doc)}


def load(folder=FOLDER):
    """All results, the oldest first."""
    found = []
    for name in os.listdir(folder) if os.path.isdir(folder) else ():
        if name.endswith(".json"):
            with open(os.path.join(folder, name), encoding="utf-8") as f:
                found.append(json.load(f))
    return sorted(found, key=lambda e: e["measured"])


def add(doc, folder=FOLDER):
    """Keeps a run; an older result of the same commit is replaced by it, apart from figures of parts that did not run again.
    ValueError: the run is not of a commit."""
    one = entry(doc)
    if one["changed"]:
        raise ValueError("the tree has changes that are not committed: commit them and measure again")
    if not one["figures"]:
        raise ValueError("nothing was measured that is kept")
    path = os.path.join(folder, one["commit"] + ".json")
    if os.path.exists(path):
        with open(path, encoding="utf-8") as f:
            old = json.load(f)
        if old["machine"] == one["machine"] and old["torch"] == one["torch"]:
            one["figures"] = {**old["figures"], **one["figures"]}
            one["busy"] = {**{k: v for k, v in old["busy"].items() if k not in doc}, **one["busy"]}
    os.makedirs(folder, exist_ok=True)
    with open(path, "w", encoding="utf-8") as f:
        json.dump(one, f, indent=1, ensure_ascii=False, sort_keys=True)
        f.write("\n")
    return path


def digits(e):
    """A ratio near 1 has more: what matters is its distance from 1."""
    return 0 if abs(e["median"]) >= 100 else 3 if abs(e["median"] - 1) < 0.1 else 2


def cell(e):
    return stats.text(e, digits(e)) if e else ""


def compare(before, after):
    """(lines of text, number of figures that got worse) of two results of like(): all figures are better when smaller. Noise floors are
    left out."""
    lines, worse = [], 0
    for name in sorted(set(before["figures"]) & set(after["figures"])):
        if name.startswith("noise"):
            continue
        a, b = before["figures"][name], after["figures"][name]
        how = stats.moved(a, b)
        if how is None:
            lines.append("not known    %s: an interval has no end" % name)
        elif how:
            worse += how == "up"
            lines.append("%s  %s: %s -> %s" % ("WORSE      " if how == "up" else "better     ", name, cell(a), cell(b)))
    for name in sorted(set(before["figures"]) - set(after["figures"])):
        lines.append("missing      %s" % name)
    for which, e in (("before", before), ("after", after)):
        if e["busy"]:
            lines.append("%s was measured on a busy machine: %s" % (which, "; ".join("%s: %s" % (k, ", ".join(v)) for k, v in e["busy"].items())))
    return lines, worse


def like(entries, one):
    """The results of the same machine and PyTorch."""
    return [e for e in entries if (e["machine"], e["torch"]) == (one["machine"], one["torch"])]


def goals_table(found):
    out = ["| goal | at most | measured (95 % interval) | |", "|---|---|---|---|"]
    for name, limit, e, verdict in figures.judge(found):
        out.append("| %s | %s | %s | %s |" % (name, limit, cell(e), verdict))
    return out


def table(entries):
    """The text of README.md."""
    out = ["# Results of `make bench` by commit", "",
           "`tools/dev/bench_history.py add` keeps the last run here and writes this page. `compare` compares the",
           "newest result with the one before. Do not edit. [OVERHEAD.md](../OVERHEAD.md) explains the figures.",
           "Each cell has a median with its 95 % interval. Smaller is better. The files have more figures."]
    if not entries:
        return "\n".join(out) + "\n"
    newest = entries[-1]
    out += ["", "## Goals", "", "Commit `%s`:" % newest["commit"], "", *goals_table(newest["figures"])]
    shown = [(number, e) for number, group in enumerate(machines(entries), 1) for e in group[-IN_TABLE:]]
    out += ["", "## Machines", ""]
    for number, group in enumerate(machines(entries), 1):
        out.append("%d. %s, torch %s." % (number, machine.words(group[-1]["machine"]), group[-1]["torch"]))
    out += ["", "## Results", "", "| | %s |" % " | ".join(
        "`%s`<br>%s<br>machine %d%s" % (e["commit"], e["measured"][:10], number, "<br>busy" if e["busy"] else "") for number, e in shown)]
    out.append("|---|" + "---|" * len(shown))
    for name in sorted({n for _, e in shown for n in e["figures"] if not n.startswith(NOT_IN_TABLE)}):
        out.append("| %s | %s |" % (name, " | ".join(cell(e["figures"].get(name)) for _, e in shown)))
    for _, e in shown:
        for part, why in e["busy"].items():
            out += ["", "`%s`, %s, was measured on a busy machine: %s." % (e["commit"], part, "; ".join(why))]
    return "\n".join(out) + "\n"


def machines(entries):
    """The results grouped by machine and PyTorch, the group with the newest result last."""
    groups = []
    for e in reversed(entries):
        if not any(e in g for g in groups):
            groups.append(like(entries, e))
    return groups


def write_table(folder=FOLDER):
    text = table(load(folder))
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "README.md"), "w", encoding="utf-8") as f:
        f.write(text)


def valid(one):
    """[fault] of a kept result."""
    faults = [k for k in ("schema", "commit", "committed", "measured", "machine", "torch", "busy", "figures", "changed") if k not in one]
    if not faults and not re.fullmatch(r"[0-9a-f]{12}", one["commit"]):
        faults.append("commit %r" % one["commit"])
    return faults

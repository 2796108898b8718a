#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# run: check
"""
The text of each command on terminals of 80, 120 and 200 columns and in a pipe, as the golden files say.
After a change of a text: `MEMTRACE_UPDATE=1 python3 tests/e2e/test_widths.py` and read the diff.
"""
import difflib
import os
import re
import unicodedata
from concurrent.futures import ThreadPoolExecutor

from harness import OUT, REPO, WORKLOADS, Skip, check, equal, nightly, python, run, spawn_job, tool

GUIDE = os.path.join(REPO, "tests", "data", "guide")
GOLDEN = os.path.join(REPO, "tests", "data", "golden", "widths")
WIDTHS = ("80", "120", "200", "piped")
COMMANDS = {
    "report": ("report", "leak.mtr"),
    "report-end": ("report", "--at", "end", "leak.mtr"),
    "report-stack": ("report", "--by", "stack", "--top", "5", "leak.mtr"),
    "report-tree": ("report", "--tree", "leak.mtr"),
    "report-module": ("report", "--by", "module", "--top", "8", "--bars", "leak.mtr"),
    "report-oom": ("report", "--at", "oom", "oom.mtr"),
    "report-advice": ("report", "--advice", "leak.mtr"),
    "report-ranks": ("report", "job"),
    "leaks": ("leaks", "leak.mtr"),
    "leaks-steps": ("leaks", "--steps", "base.mtr"),
    "leaks-ranks": ("leaks", "job"),
    "diff": ("diff", "base.mtr", "checkpoint.mtr"),
    "compare": ("compare", "base.mtr", "checkpoint.mtr"),
}

DUMPS = {"dump": (), "dump-tensor": ("--by", "tensor", "--top", "18"), "dump-module": ("--by", "module")}


def columns(line):
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in line)


def text_of(command, width, **where):
    size = ("--unset=COLUMNS",) if width == "piped" else ("COLUMNS=" + width,)
    code, out, err = tool(*command, prefix=("env", *size, "LC_ALL=C.UTF-8", "TZ=UTC"), **(where or {"cwd": GUIDE}))
    check(code in (0, 4) and (where or not err), "%s at %s columns: exit status %d, %s", " ".join(command), width, code, err)
    wide = [line for line in out.splitlines() if width != "piped" and columns(line) > int(width)]
    check(not wide, "%s: wider than %s columns: %s", " ".join(command), width, wide)
    return out


def same(name, texts):
    """True if the texts at all widths are those of the golden file. Prints the difference."""
    text = "".join("==== %s\n%s" % (width, out) for width, out in zip(WIDTHS, texts))
    path = os.path.join(GOLDEN, name + ".txt")
    if os.environ.get("MEMTRACE_UPDATE"):
        os.makedirs(GOLDEN, exist_ok=True)
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
    with open(path, encoding="utf-8") as f:
        wanted = f.read()
    for line in difflib.unified_diff(wanted.splitlines(), text.splitlines(), path, "now", lineterm="", n=1):
        print(line)
    return wanted == text


def test_texts():
    wrong = [name for name, command in COMMANDS.items() if not same(name, [text_of(command, width) for width in WIDTHS])]
    equal(wrong, [], "commands whose text differs from %s" % GOLDEN)


def job():
    p = spawn_job([python(), "shown.py"], cwd=WORKLOADS, env=dict(os.environ, PYTHONUNBUFFERED="1"))
    p.wait_line("^ready", 120)
    return p


@nightly("long")
def test_dump():
    p, wrong = job(), []
    for name, options in DUMPS.items():
        texts = []
        for width in WIDTHS:
            out = text_of(("dump", "-p", str(p.pid), *options), width, root=True)
            out = re.sub(r"PID \d+(.*) torch \S+(.*) Python [0-9.]+", r"PID N\1 torch N\2 Python N", out)
            texts.append(re.sub(r"[0-9,]+ Python objects, read in [0-9.]+ m?s", "N Python objects, read in N s", out))
        if not same(name, texts):
            wrong.append(name)
    equal(wrong, [], "views of dump whose text differs from %s" % GOLDEN)


@nightly("long")
def test_estimate():
    """The times of a run are its own. Its GPU is so large that it is not full before the run is stopped, on a busy machine either."""
    if not os.path.exists(os.path.join(OUT, "dryrun", "libcuda.so.1")):
        raise Skip("the dry run's libraries are not built")
    command = ("estimate", "--vram", "16G", "--top", "6", "--no-search", "--", python(), "estimate_job.py", "--leak", "4", "--steps", "1000000")

    def text(width):
        out = text_of(command, width, cwd=WORKLOADS, root=True, seconds=300)
        return re.sub(r"torch [0-9]\S+,", "torch N,", re.sub(r"([0-9]+m [0-9]+s|[0-9.]+ s); stopped", "N s; stopped", out))

    with ThreadPoolExecutor(2) as pool:
        check(same("estimate", list(pool.map(text, WIDTHS))), "the text of estimate differs from %s", GOLDEN)


def test_check():
    """All widths say the same. The text depends on the host, so there is no golden file."""
    p = job()
    texts = [text_of_check(p, width) for width in WIDTHS]
    for width, text in zip(WIDTHS, texts):
        equal(text, texts[-1], "check at %s columns" % width)
    facts = {line[5:21].strip(): line[22:] for line in texts[-1]}
    equal(facts["process"], "python shown.py", "the process")
    check(re.fullmatch(r"\d+ storages, 18 modules and 1 optimizer read in .*", facts["tensors"]), "tensors: %s", facts["tensors"])


def text_of_check(p, width):
    """Lines without their breaks and measured times. A path has no place to break."""
    size = ("--unset=COLUMNS",) if width == "piped" else ("COLUMNS=" + width,)
    code, out, err = tool("check", "-p", str(p.pid), prefix=("env", *size, "LC_ALL=C.UTF-8"), root=True)
    equal(code, 0, "exit of check, which said %s" % err)
    wide = [line for line in out.splitlines() if width != "piped" and columns(line) > int(width) and "/" not in line]
    check(not wide, "check: wider than %s columns: %s", width, wide)
    out = re.sub(r"\n {22}", " ", out)
    out = re.sub(r"\d+\.\d+ (?:us|µs)", "N µs", out)
    return re.sub(r"read in \d+ ms", "read in N ms", out).splitlines()


def test_all_columns_of_a_pipe():
    """A pipe gets the columns of the widest terminal, and no name is cut."""
    for name in ("report", "report-end"):
        wide, piped = (text_of(COMMANDS[name], width) for width in ("200", "piped"))
        titles = [next(line for line in text.splitlines() if "Location" in line).split() for text in (wide, piped)]
        equal(titles[1], titles[0], "columns of " + name)
        check("..." not in piped, "a name is cut in a pipe:\n%s", piped)


if __name__ == "__main__":
    run(globals())

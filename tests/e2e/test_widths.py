#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
The text of each command that reads recordings, on terminals of 80, 120 and 200 columns and in a pipe, as the golden files say.
After a change of a text: `MEMTRACE_UPDATE=1 python3 tests/e2e/test_widths.py` and read the diff.
"""
import os
import unicodedata

from harness import REPO, check, equal, run, tool

GUIDE = os.path.join(REPO, "tests", "data", "guide")
GOLDEN = os.path.join(REPO, "tests", "data", "golden", "widths")
WIDTHS = ("80", "120", "200", "piped")
COMMANDS = {
    "report": ("report", "leak.mtr"),
    "report-end": ("report", "--at", "end", "leak.mtr"),
    "report-stack": ("report", "--by", "stack", "--top", "5", "leak.mtr"),
    "report-tree": ("report", "--tree", "leak.mtr"),
    "report-oom": ("report", "--at", "oom", "oom.mtr"),
    "report-advice": ("report", "--advice", "leak.mtr"),
    "report-ranks": ("report", "job"),
    "leaks": ("leaks", "leak.mtr"),
    "leaks-ranks": ("leaks", "job"),
    "diff": ("diff", "base.mtr", "checkpoint.mtr"),
    "compare": ("compare", "base.mtr", "checkpoint.mtr"),
}

def columns(line):
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in line)


def text_of(command, width):
    size = ("--unset=COLUMNS",) if width == "piped" else ("COLUMNS=" + width,)
    code, out, err = tool(*command, cwd=GUIDE, prefix=("env", *size, "LC_ALL=C.UTF-8", "TZ=UTC"))
    check(code in (0, 4) and not err, "%s at %s columns: exit status %d, %s", " ".join(command), width, code, err)
    return out


def test_texts():
    wrong = []
    for name, command in COMMANDS.items():
        parts = []
        for width in WIDTHS:
            out = text_of(command, width)
            wide = [line for line in out.splitlines() if width != "piped" and columns(line) > int(width)]
            check(not wide, "%s: wider than %s columns: %s", " ".join(command), width, wide)
            parts.append("==== %s\n%s" % (width, out))
        path = os.path.join(GOLDEN, name + ".txt")
        if os.environ.get("MEMTRACE_UPDATE"):
            os.makedirs(GOLDEN, exist_ok=True)
            with open(path, "w", encoding="utf-8") as f:
                f.writelines(parts)
        with open(path, encoding="utf-8") as f:
            if f.read() != "".join(parts):
                wrong.append(name)
    equal(wrong, [], "commands whose text differs from %s" % GOLDEN)


def test_all_columns_of_a_pipe():
    """A pipe gets the columns of the widest terminal, and no name is cut."""
    for name in ("report", "report-end"):
        wide, piped = (text_of(COMMANDS[name], width) for width in ("200", "piped"))
        titles = [next(line for line in text.splitlines() if "Location" in line).split() for text in (wide, piped)]
        equal(titles[1], titles[0], "columns of " + name)
        check("..." not in piped, "a name is cut in a pipe:\n%s", piped)


if __name__ == "__main__":
    run(globals())

#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# run: probes-all
"""Names chosen by a traced program: files written with them are harmless to open."""
import csv
import io
import json
import os
import subprocess

import harness
from harness import check, equal, python, run, scratch, sudo, tool
from mtr_writer import Writer

FORMULA = '=HYPERLINK("http://evil/","click")'


def named(name, *, size=512):
    path = scratch(name)
    w = Writer(path, {"comm": "python"})
    stack = w.stack("@file.py", FORMULA, 7, "-module", "+Class")
    w.block(4, size=size, stack=stack, thread=w.thread(1, "=thread"))
    w.close()
    return path


def tables(*options):
    old, new = named("old.mtr"), named("new.mtr", size=1024)
    out = scratch("events.csv")
    for command in (["report", "--format", "csv", "--at", "end", new], ["diff", "--format", "csv", "--at", "end", old, new], ["export", "csv", "-f", "-o", out, new]):
        code, text, err = tool(command[0], *options, *command[1:])
        equal(code, 0, "%s: %s" % (command[0], err))
        if command[0] == "export":
            with open(out, encoding="utf-8", newline="") as f:
                text = f.read()
        yield command[0], list(csv.reader(io.StringIO(text)))


def test_no_formula_in_a_table():
    for command, rows in tables():
        fields = [field for row in rows[1:] for field in row]
        check("'" + FORMULA in fields and "'@file.py" in fields, "%s has not the names: %s", command, rows)
        wrong = [f for f in fields if f[:1] in ("=", "+", "@") or (f.startswith("-") and not f[1:].replace(".", "").isdigit())]
        equal(wrong, [], "fields of %s that a spreadsheet evaluates" % command)


def test_raw_tables():
    for command, rows in tables("--csv", "raw"):
        fields = [field for row in rows[1:] for field in row]
        check(FORMULA in fields and "@file.py" in fields, "%s has not the names as they are: %s", command, rows)
    equal(tool("report", "--csv", "other", named("new.mtr"))[0], 64, "exit with a form that is none")


def test_a_script_whose_name_is_not_text():
    """The folder's index and its files have equal names, whatever the script's name is."""
    folder = os.path.join(os.fsencode(scratch()), b"scripts")
    os.mkdir(folder)
    script = os.path.join(folder, b"tr\xe9\xc2\x9bin.py")
    with open(script, "w", encoding="ascii") as f:
        f.write("import torch\nx = torch.empty(1000)\n")
    kept = scratch("fold")
    done = subprocess.run(sudo([harness.TOOL, "run", "--children", "-o", kept + "/", "--", python(), script]), capture_output=True, timeout=120, check=False)
    equal(done.returncode, 0, "exit: %s" % done.stderr.decode("utf-8", "replace"))
    there = sorted(n for n in os.listdir(kept) if n.endswith(".mtr"))
    check(there and all(n.isprintable() for n in there), "files in the folder: %r", there)
    index = [n for n in os.listdir(kept) if n.endswith(".json")]
    with open(os.path.join(kept, index[0]), encoding="utf-8") as f:
        listed = json.dumps(json.load(f))
    check(all(json.dumps(n)[1:-1] in listed for n in there), "%r are not in the index: %s", there, listed)
    code, _, err = tool("report", kept + "#1")
    equal(code, 0, "report of the first one: %s" % err)


if __name__ == "__main__":
    run(globals())

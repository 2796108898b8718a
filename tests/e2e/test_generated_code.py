#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# run: reads-code
"""Code in no file: a library's counts as the line that called the library, the program's own as its line."""
import json
import os

import harness
from harness import check, equal, finish, nightly, record, report, run, scratch, tool, workload

WORKLOAD = os.path.join(harness.WORKLOADS, "generated_code.py")


def line_of(path, name):
    with open(path, encoding="utf-8") as f:
        return next(n for n, text in enumerate(f, 1) if text.rstrip().endswith("# LINE " + name))


def lines(doc):
    return {r["bytes"]: (os.path.basename(r["file"] or ""), r["line"], r["function"]) for r in doc["rows"]}


def compare(role):
    folder = scratch("generated-" + role)
    target = workload("generated_code.py", folder, role=role)
    pids = [int(n) for n in target.wait_line("^ready", 120).split()[1:]]
    paths = [scratch("generated-%s-%d.mtr" % (role, i)) for i in range(2)]
    recorders = [record(pid, path) for pid, path in zip(pids, paths)]
    target.send()
    own = json.loads(target.wait_line("{", 60))
    code, out, err = tool("dump", "-p", str(pids[0]), root=True)
    for cell in (7, 8):
        check(code == 0 and "held in holder (cell %d, line 6)" % cell in out, "a local variable in a cell: %s%s", out, err)
    for r in recorders:
        harness.settle(r)
        finish(r)
    mine, theirs = lines(report(paths[0])), lines(report(paths[1]))
    equal(mine.get(own["dataclass"]), ("generated_code.py", line_of(WORKLOAD, "dataclass"), "allocate"), "code of dataclasses")
    equal(mine.get(own["library"]), ("generated_code.py", line_of(WORKLOAD, "library"), "allocate"), "code that a library executes")
    equal(mine.get(own["class"]), ("generated_code.py", line_of(WORKLOAD, "class"), "allocate"), "a library's __init__")
    equal([mine.get(n) for n in own["cells"]], [("<cell 7>", 3, "cell"), ("<cell 99>", 3, "cell")], "cells of a notebook")
    equal(mine.get(own["mine"]), ("<string>", 3, "mine"), "code that the program executes")
    equal(theirs.get(own["serve"]), ("an_engine.py", line_of(os.path.join(folder, "site-packages", "an_engine.py"), "run"), "run"),
          "a process without user code: the innermost line in a file")
    hidden = lines(report(paths[0], "--hide", "<string>"))
    check(hidden[own["mine"]][:2] != ("<string>", 3) and hidden[own["library"]] == mine[own["library"]], "--hide: %s", hidden)
    everything = lines(report(paths[0], "--frames", "all"))
    equal(everything[own["library"]], ("<string>", 3, "execution_fn"), "--frames all")
    target.send()
    equal(target.wait(60), 0, "the target's end")


def test_lines():
    compare("main")


@nightly("versions")
def test_lines_newest():
    compare("newest")


run(globals())

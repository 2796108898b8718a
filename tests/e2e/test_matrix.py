#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# run: check
"""docs/reference/SUPPORT.md is what tools/dev/matrix.py makes of tests/data/matrix/, and that data is well-formed."""
import datetime
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys

from harness import REPO, check, equal, run, scratch

SPEC = importlib.util.spec_from_file_location("matrix", os.path.join(REPO, "tools", "dev", "matrix.py"))
matrix = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(matrix)


def test_page():
    with open(matrix.PAGE, encoding="utf-8") as f:
        equal(f.read(), matrix.page(), "docs/reference/SUPPORT.md (tools/dev/matrix.py writes it)")


def test_cells():
    """Each has a name of its own, a date that has been, and a result that is one line."""
    for table, (name, columns) in matrix.TABLES.items():
        cells = matrix.load(table)
        names = [tuple(c.get(k, "") for k in name) for c in cells]
        equal(len(set(names)), len(names), "names in %s" % table)
        for cell in cells:
            check(re.fullmatch(r"passed|tested|equal|(refused|failed): .+", cell["result"]), "%s: %s", table, cell)
            check(not cell["result"].startswith("failed"), "%s: a failure is in the page: %s", table, cell)
            check(datetime.date(2026, 1, 1) <= datetime.date.fromisoformat(cell["date"]), "%s: %s", table, cell)
            unknown = set(cell) - {k for _, k in columns} - set(name) - {"result", "date"} - {"kernel"}
            check(not unknown, "%s: nobody reads %s", table, unknown)
    check(matrix.load("interpreters") and matrix.load("pytorch"), "no cells")


def test_tests_that_are_named():
    for what, name in matrix.REFUSED:
        check(os.path.exists(os.path.join(REPO, "tests", "e2e", name)), "%s: there is no %s", what, name)


def test_a_change_is_noticed():
    """In a copy: a new cell replaces the old one, and the page is no longer right."""
    top = scratch("copy")
    for path in ("tools/dev/matrix.py", "docs/reference/SUPPORT.md", "tests/data/matrix"):
        to = os.path.join(top, path)
        os.makedirs(os.path.dirname(to), exist_ok=True)
        (shutil.copytree if os.path.isdir(os.path.join(REPO, path)) else shutil.copy)(os.path.join(REPO, path), to)
    command = [sys.executable, os.path.join(top, "tools", "dev", "matrix.py")]
    equal(subprocess.run([*command, "--check"], check=False).returncode, 0, "exit code before")
    path = os.path.join(top, "tests", "data", "matrix", "interpreters.json")
    with open(path, encoding="utf-8") as f:
        cells = json.load(f)
    with open(path, "w", encoding="utf-8") as f:
        json.dump([{**cells[0], "result": "refused: for this test"}, *cells[1:]], f)
    done = subprocess.run([*command, "--check"], capture_output=True, text=True, check=False)
    check(done.returncode == 1 and "tools/dev/matrix.py" in done.stderr, "%d %s", done.returncode, done.stderr)
    cell = {k: v for k, v in cells[0].items() if k != "date"}
    equal(subprocess.run([*command, "add", "interpreters", json.dumps({**cell, "result": "passed"})], check=False).returncode, 0, "add")
    with open(path, encoding="utf-8") as f:
        after = json.load(f)
    equal(len(after), len(cells), "cells after a test was repeated")
    equal({**cells[0], "date": 0, "result": "passed"}, {**after[0], "date": 0}, "the cell")
    equal(subprocess.run([*command, "--check"], check=False).returncode, 0, "exit code after")


if __name__ == "__main__":
    run(globals())

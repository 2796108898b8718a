#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# run: check
"""The checks of make lint: layers, opens, words, format, shell, python, commits. tools/dev/lint.sh prints the errors."""
import os
import re
import subprocess

from harness import OUT, REPO, Skip, check, equal, run, scratch

LINT = os.path.join(REPO, "tools", "dev", "lint.sh")


def lint(name):
    done = subprocess.run([LINT, name], cwd=REPO, env=dict(os.environ, OUTPUT=OUT), capture_output=True, text=True, timeout=300, check=False)
    skipped = re.search(r"^SKIP (.*)", done.stdout, re.M)
    if skipped:
        raise Skip(skipped[1])
    check(done.returncode == 0, "tools/dev/lint.sh %s:\n%s%s", name, done.stdout[-3000:], done.stderr[-1000:])


def test_layers():
    lint("layers")


def test_opens():
    lint("opens")


def test_opens_by_name_are_found():
    source = scratch("opens.c")
    with open(source, "w", encoding="ascii") as f:
        f.write('/* open(comment, O_RDONLY) */\nint a = open("/dev/null", O_RDWR), b = openat(dir, name, O_PATH | O_CLOEXEC);\n'
                'FILE *c = fopen(name, "re");\nint d = openat(dir, name,\n\t\tO_RDONLY);\n')
    done = subprocess.run([os.path.join(REPO, "tools", "dev", "check_opens.py"), source], capture_output=True, text=True, check=False)
    equal((done.returncode, re.findall(r":(\d+): (\w+)\(", done.stdout)), (1, [("3", "fopen"), ("4", "openat")]), "calls found")


def test_words():
    lint("words")


def test_format():
    lint("format")


def test_shell():
    lint("shell")


def test_python():
    lint("python")


def test_commits():
    lint("commits")


if __name__ == "__main__":
    run(globals())

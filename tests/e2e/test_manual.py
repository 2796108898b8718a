#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""The manual page is valid, and it and --help name the same options for each command."""
import os
import re
import shutil
import subprocess

import harness
from harness import REPO, Skip, check, equal, run, tool

PAGE = os.path.join(harness.REPO, "docs", "memtrace-bpf.8")
COMMANDS = ("record", "run", "estimate", "ctl", "report", "diff", "compare", "leaks", "replay", "export", "watch", "serve", "dump", "check")


def options_of_help(command):
    code, out, err = tool("help", command or "live", "--all")
    equal(code, 0, "help %s --all: %s" % (command, err))
    found = set()
    for line in out.splitlines():
        m = re.match(r"  (-\w, )?(--[a-z-]+)", line)
        if m:
            found |= {m[2]} | ({m[1][:2]} if m[1] else set())
    return found


def plain(text):
    return text.replace("\\-", "-").replace("\\(hy", "-")


def sections_of_page():
    """Options tagged in each command's part of the page: `.It Fl` lines, and the shared list."""
    parts, name = {}, None
    with open(PAGE, encoding="utf-8") as f:
        for line in f:
            line = plain(line.rstrip("\n"))
            m = re.match(r"\.S[sh] (.*)", line)
            if m:
                name = m[1].strip('"').lower()
            if re.match(r"\.It Fl", line):
                for flag in re.findall(r"Fl (\S+)", line):
                    parts.setdefault(name, set()).add("-" + flag)
    return parts


def test_lint():
    if not shutil.which("mandoc"):
        raise Skip("mandoc is not here")
    done = subprocess.run(["mandoc", "-Tlint", "-W", "warning", PAGE], capture_output=True, text=True, check=False)
    equal((done.returncode, done.stdout), (0, ""), "mandoc -Tlint")


def test_same_options():
    parts = sections_of_page()
    shared = parts.get("capture options", set())
    messages = parts.get("messages", set())
    check("--log-file" in messages, "no section 'messages' among %s", sorted(map(str, parts)))
    wrong = []
    for command in COMMANDS + ("",):
        title = command or "live view"
        check(title in parts, "no section '%s' among %s", title, sorted(map(str, parts)))
        page = parts.get(title, set()) | messages | (shared if command in ("record", "run", "") else set())
        if command == "run":
            page -= {"-p", "--pid", "--name", "--all", "--container", "--pod", "--follow"}  # starts the process itself
        given = options_of_help(command)
        if page != given:
            wrong.append("%s: only in the manual page: %s; only in --help: %s" % (
                title, sorted(page - given), sorted(given - page)))
    check(not wrong, "; ".join(wrong))


def test_all_formats_named():
    with open(PAGE, encoding="utf-8") as f:
        page = plain(f.read())
    _, out, _ = tool("help", "export")
    # An indented line continues the previous one.
    formats = re.findall(r"^  \S.*", out.split("\n\n")[1].split("What to show:\n")[0], re.M)
    check(len(formats) >= 4, "export --help lists %s", formats)
    for line in formats:
        found = re.match(r"  ([a-z]{3,12}) +\S", line)
        check(found, "not a name of 3 to 12 lower-case letters and a text: %r", line)
        name = found[1]
        check(re.search(r"\b%s\b" % name, page), "format %s is not in the manual page", name)


def test_all_facts_named():
    """docs/reference/mtr.md has a table of the facts that the code sets."""
    with open(os.path.join(REPO, "docs", "reference", "mtr.md"), encoding="utf-8") as f:
        keys = set(re.findall(r"`([a-z_.<>]+)`", " ".join(line.split("|")[1] for line in f if line.startswith("| `"))))
    missing = []
    for folder, _, files in os.walk(os.path.join(REPO, "user")):
        for name in files:
            if not name.endswith(".c"):
                continue
            with open(os.path.join(folder, name), encoding="utf-8") as f:
                text = f.read()
            found = re.findall(r"\b(?:facts__setf?|set_known|set_link_fact)\([^,;]+,\s*\"([a-z_.]+)\"", text)
            found += re.findall(r"\bset_variable\([^,;]+, \"[A-Z_]+\",\s*\"([a-z_.]+)\"", text)
            missing += ["%s (%s)" % (key, name) for key in found if key not in keys and not key.startswith(("counter.", "device."))]
    check({"pid", "torch", "counter.<name>"} <= keys, "the table has %s", sorted(keys))
    check(not missing, "not in the table: %s", ", ".join(sorted(set(missing))))


def test_all_tests_of_the_review_exist():
    """docs/internals/REVIEW.md names a test for each finding."""
    with open(os.path.join(REPO, "docs", "internals", "REVIEW.md"), encoding="utf-8") as f:
        named = set(re.findall(r"\btest_\w+", f.read()))
    there = set()
    for folder, _, files in os.walk(os.path.join(REPO, "tests")):
        for name in files:
            if name.endswith((".c", ".py")):
                there.add(name.rsplit(".", 1)[0])
                with open(os.path.join(folder, name), encoding="utf-8") as f:
                    text = f.read()
                there |= set(re.findall(r"\b(test_\w+)\(", text))
                if name.startswith("chaos"):  # test_chaos makes tests of these scenarios
                    there |= {"test_" + scenario for scenario in re.findall(r"^def (\w+)", text, re.M)}
    equal(sorted(named - there), [], "tests that are named and not there")
    check(len(named) > 100, "only %d tests are named", len(named))


if __name__ == "__main__":
    run(globals())

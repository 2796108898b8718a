#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# run: check
"""The checks of make lint; tools/dev/lint.sh prints the errors. And that no end-to-end test waits for a time to pass, and that the
workflow files run commands of this repository."""
import ast
import glob
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


def test_idiom():
    lint("idiom")


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


def test_workflows():
    lint("workflows")


def test_the_forge_runs_commands_of_this_repository():
    """Each step is a target of make or a script that exists, and the nightly workflow has every target of `make nightly`."""
    env = {k: v for k, v in os.environ.items() if k not in ("NIGHT", "MAKEFLAGS", "MAKELEVEL")}
    said = subprocess.run(["make", "-s", "help"], cwd=REPO, env=env, capture_output=True, text=True, check=True).stdout
    known, commands = {line.split()[0] for line in said.splitlines()}, []
    for path in sorted(glob.glob(os.path.join(REPO, ".github", "workflows", "*.yml"))):
        with open(path, encoding="utf-8") as f:
            text = f.read()
        for command in re.findall(r"^ *(?:- )?run: *(.*)", text, re.M):
            words = command.split()
            right = words[1] in known if words[0] == "make" else os.access(os.path.join(REPO, words[0]), os.X_OK)
            check(right, "%s: `%s` is no target and no script", path, command)
            commands.append(command)
    for command in ("make check", ".ci/run", "make nightly NIGHT=${{ matrix.target }}"):
        check(command in commands, "no workflow runs `%s`: %s", command, commands)
    said = subprocess.run(["make", "-n", "nightly"], cwd=REPO, env=env, capture_output=True, text=True, check=True).stdout
    night = said.rsplit(" night ", 1)[1].split("\n")[0].split()
    equal(set(night) - known, set(), "targets of make nightly that make help does not list")
    with open(os.path.join(REPO, ".github", "workflows", "nightly.yml"), encoding="utf-8") as f:
        equal(re.findall(r"^ {10}- (.*)", f.read(), re.M), night, "targets of nightly.yml")


def test_commits():
    lint("commits")


# ---- no test waits for a time to pass -------------------------------------------------------------------------------

# Sleeps that are no wait for something to have happened, by file and function, with the reason.
SLEEPS = {
    "chaos.py": "at a random moment", "chaos_around.py": "at a random moment",
    "hard.py interrupted": "the recorder is stopped for a time",
    "http_safety.py test_split": "pieces in packets of their own",
    "kills.py kill_one": "at a random moment",
    "test_category.py stop_while_it_collects": "at different moments of a collection",
    "test_category.py test_while_it_collects": "no state shows that the recorder tried and failed",
    "test_cost.py check_wakeups": "a rate",
    "test_dryrun_calls.py test_sleep_tags": "nothing shows that a reading has found nothing more",
    "test_dump.py full_speed": "a rate",
    "test_harm.py test_attach_detach": "at a random moment", "test_harm.py test_kill_9": "at a random moment",
    "test_on_kill.py test_killed_while_attaching": "at different moments of attaching",
    "test_reuse.py test_classes_of_nodes": "nothing shows that the recorder has looked at the class",
    "test_reuse.py test_thread_numbers": "nothing shows that the recorder has looked for ended threads",
    "test_tui.py is_quiet": "a rate",
}


def sleeps(source):
    """(function, line) of each sleep that is in no `while`, where it is a pause between two looks. asyncio.sleep(0) lets others run, and ends."""
    found = []

    def look(node, function, looks):
        for child in ast.iter_child_nodes(node):
            inner = child.name if isinstance(child, ast.FunctionDef) else function
            if isinstance(child, ast.Call) and not looks and re.search(r"(^|\.)sleep$", ast.unparse(child.func)) \
                    and ast.unparse(child) != "asyncio.sleep(0)":
                found.append((inner, child.lineno))
            look(child, inner, isinstance(child, ast.While) or (looks and inner == function))

    look(ast.parse(source), "", False)
    return found


def test_no_sleeps():
    bad, used = [], set()
    for path in sorted(glob.glob(os.path.join(REPO, "tests", "e2e", "*.py"))):
        name = os.path.basename(path)
        with open(path, encoding="utf-8") as f:
            for function, line in sleeps(f.read()):
                allowed = {name, "%s %s" % (name, function)} & set(SLEEPS)
                used |= allowed
                bad += [] if allowed else ["%s:%d in %s()" % (name, line, function)]
    equal(bad, [], "sleeps: wait for a line (wait_line), a state (until) or the recording (settle, until_recorded), or give SLEEPS a reason")
    equal(set(SLEEPS) - used, set(), "exceptions that no sleep needs")


def test_sleeps_are_found():
    source = """
import time
def f():
    time.sleep(1)
    while not g():
        time.sleep(0.1)
        def h():
            sleep(2)
    for _ in range(9):
        time.sleep(3)
"""
    equal(sleeps(source), [("f", 4), ("h", 8), ("f", 10)], "sleeps that are found")


if __name__ == "__main__":
    run(globals())

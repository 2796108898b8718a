#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# run: cpu=90 long
"""The wheel's estimate_change and the GitHub action: the memory of a script before and after a change, as Markdown."""
import json
import os
import re
import shutil
import subprocess
import sys

from harness import REPO, check, equal, python, run, scratch
from wheel import package

ACTION = os.path.join(REPO, "tools", "packaging", "action", "action.yml")
OK, FAILED, UNKNOWN, EXCEEDED, USAGE = 0, 1, 2, 4, 64
# Two tensors of SIZE MiB at the peak; the function's name tries to be Markdown.
TRAIN = """
import torch
SIZE = %d
def make(kept=[]):
    return torch.empty(SIZE << 20, dtype=torch.uint8, device="cuda")
def grow():
    return make(), make()
grow()
"""


def repository():
    """A repository with the commits small, twice, untouched and broken; its script is in a folder."""
    path = scratch("repository")
    if not os.path.exists(path):
        os.makedirs(os.path.join(path, "code"))
        git(path, "init", "-q")
        for name, text in (("small", TRAIN % 20), ("twice", TRAIN % 40), ("untouched", TRAIN % 40 + "# a comment\n"), ("broken", "raise SystemExit(7)\n")):
            with open(os.path.join(path, "code", "train.py"), "w", encoding="utf-8") as f:
                f.write(text)
            git(path, "add", "-A")
            git(path, "-c", "user.name=x", "-c", "user.email=x@example.org", "commit", "-q", "-m", name)
            git(path, "tag", name)
    return path


def git(path, *words):
    subprocess.run(["git", "-C", path, *words], check=True, capture_output=True)


def changed(*options, command=None):
    """(exit status, Markdown, messages)"""
    env = {**os.environ, "PYTHONPATH": package(), "PYTHONDONTWRITEBYTECODE": "1"}
    words = [sys.executable, "-m", "memtrace_bpf.estimate_change", "--vram", "2G", *options, "--", *(command or [python(), "train.py"])]
    done = subprocess.run(words, cwd=os.path.join(repository(), "code"), env=env, capture_output=True, text=True, timeout=300, check=False)
    trees = subprocess.run(["git", "-C", repository(), "worktree", "list"], capture_output=True, text=True, check=True).stdout
    equal(len(trees.splitlines()), 1, "worktrees that are left: " + trees)
    return done.returncode, done.stdout, done.stderr


def cells(text, name):
    (line,) = [x for x in text.splitlines() if x.startswith("| %s |" % name)]
    return [c.strip() for c in line.strip("|").split("|")][1:]


def test_twice_the_peak():
    """A change that doubles the peak: figures, the line, and the exit status by the limit."""
    code, text, err = changed("--base", "small", "--head", "twice", "--max-growth", "50%")
    equal(code, EXCEEDED, "exit: %s %s" % (text, err))
    equal(cells(text, "**cuda:0** peak allocated"), ["40.00 MiB", "80.00 MiB", "**+40.00 MiB (+100.0 %)**"], "peaks")
    equal(cells(text, "Verdict"), ["fits", "fits", ""], "verdicts")
    equal(cells(text, "`train.py:5 (make)`"), ["40.00 MiB", "80.00 MiB", "+40.00 MiB (+100.0 %)"], "the line")
    check(text.startswith("### Memory of `python train.py`: limit exceeded\n") and "cuda:0: the peak grows by 40.00 MiB, the limit is 50 %." in text, "Markdown: %s", text)
    widths = [len(x.strip("|").split("|")) for x in text.splitlines() if x.startswith("|")]
    equal(set(widths), {4}, "cells of the tables")


def test_limits():
    """Within the limits; a limit of the peak; a device that is too small."""
    code, text, _ = changed("--base", "twice", "--head", "untouched", "--max-growth", "0%", "--max-peak", "80M")
    equal((code, cells(text, "**cuda:0** peak allocated")[2]), (OK, "**no change**"), "no change: " + text)
    check(text.startswith("### Memory of `python train.py`\n") and "<details>" not in text, "Markdown: %s", text)
    code, text, _ = changed("--base", "small", "--head", "twice", "--max-growth", "40M", "--max-peak", "79M", "--vram", "580M")
    check(code == EXCEEDED and "the peak of 80.00 MiB exceeds the limit of 79.00 MiB" in text and "grows" not in text, "exit %d: %s", code, text)
    check(cells(text, "Verdict") == ["fits", "**does not fit**", ""] and "The job does not fit." in text, "verdicts: %s", text)


def test_not_known():
    """A side whose script fails is not known, and nothing is concluded; what is wrong otherwise is said."""
    code, text, err = changed("--base", "twice", "--head", "broken", "--max-growth", "10%")
    check(code == UNKNOWN and "The memory of head is not known" in text and ": not known\n" in text, "exit %d: %s %s", code, text, err)
    code, text, err = changed("--base", "nothing")
    check((code, text) == (FAILED, "") and "git rev-parse failed" in err, "a commit that is not there: exit %d, %s", code, err)
    code, _, err = changed("--base=--upload-pack=x")
    check(code == FAILED and "is not the name of a commit" in err, "an option for a commit: exit %d, %s", code, err)
    code, _, err = changed("--base", "small", "--prepare", "exit 3")
    check(code == FAILED and "--prepare failed in base" in err, "prepare: exit %d, %s", code, err)
    code, _, err = changed("--base", "small", "--max-growth", "much")
    check(code == USAGE and "'much' is not a size" in err, "usage: exit %d, %s", code, err)


def action():
    """The action's inputs, and the scripts of its steps with their variables. The file is simple enough for these patterns."""
    with open(ACTION, encoding="utf-8") as f:
        text = f.read()
    inputs = re.findall(r"^  ([a-z-]+):\n    description", text.partition("\noutputs:")[0], re.M)
    steps = []
    for step in re.split(r"^    - ", text.partition("  steps:\n")[2], flags=re.M)[1:]:
        variables = dict(re.findall(r"^        ([A-Z_]+): \$\{\{ inputs\.([a-z-]+) \}\}$", step, re.M))
        script = re.search(r"^      run: (?:\|\n)?(.*)\Z", step, re.M | re.S)[1]
        steps.append((variables, re.sub(r"^ {8}", "", script, flags=re.M)))
    return inputs, steps


def test_action():
    """actionlint accepts a workflow with the action, shellcheck its scripts; its last step runs them as GitHub would."""
    inputs, steps = action()
    equal({name for variables, _ in steps for name in variables.values()} | {"working-directory"}, set(inputs), "inputs that are used")
    for _, script in steps:
        check("${{" not in script, "an input in a script, which could be code: %s", script)
    folder = scratch("action")
    os.makedirs(os.path.join(folder, ".github", "workflows"))
    shutil.copytree(os.path.dirname(ACTION), os.path.join(folder, "action"))
    with open(os.path.join(REPO, "docs", "reference", "change.md"), encoding="utf-8") as f:
        workflow = re.search(r"^```yaml\n(.*?)^```$", f.read(), re.M | re.S)[1]
    workflow = workflow.replace("OWNER/memtrace-bpf/tools/packaging/action@VERSION", "./action")
    with open(os.path.join(folder, ".github", "workflows", "memory.yml"), "w", encoding="utf-8") as f:
        f.write("name: memory\n" + workflow)
    lint = subprocess.run([os.path.join(REPO, "tools", "deps.sh"), "actionlint"], capture_output=True, text=True, check=False)
    if not lint.returncode:
        git(folder, "init", "-q")
        done = subprocess.run([lint.stdout.strip(), "-no-color"], cwd=folder, capture_output=True, text=True, check=False)
        equal((done.returncode, done.stdout), (0, ""), "actionlint: " + done.stderr)
        with open(os.path.join(folder, ".github", "workflows", "memory.yml"), "a", encoding="utf-8") as f:
            f.write("          no-such-input: 1\n")
        done = subprocess.run([lint.stdout.strip(), "-no-color"], cwd=folder, capture_output=True, text=True, check=False)
        check(done.returncode and "no-such-input" in done.stdout, "actionlint does not read the action: %s", done.stdout)
    if shutil.which("shellcheck"):
        for _, script in steps:
            done = subprocess.run(["shellcheck", "-s", "bash", "-"], input=script, capture_output=True, text=True, check=False)
            equal(done.stdout, "", "shellcheck")
    variables, script = steps[-1]
    given = {"command": python() + " train.py", "base": "small", "vram": "2G", "max-growth": "10%"}
    env = {**os.environ, **{variable: given.get(name, "") for variable, name in variables.items()}, "PYTHONPATH": package(),
           "PYTHONDONTWRITEBYTECODE": "1", "RUNNER_TEMP": folder, "GITHUB_STEP_SUMMARY": folder + "/summary", "GITHUB_OUTPUT": folder + "/output"}
    git(repository(), "checkout", "-q", "twice")
    done = subprocess.run(["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script], cwd=os.path.join(repository(), "code"), env=env,
                          capture_output=True, text=True, timeout=300, check=False)
    equal(done.returncode, EXCEEDED, "exit of the step: %s" % done.stderr)
    with open(env["GITHUB_OUTPUT"], encoding="utf-8") as f:
        equal(f.read(), "status=4\nmarkdown=%s/memtrace-change.md\n" % folder, "outputs")
    with open(env["GITHUB_STEP_SUMMARY"], encoding="utf-8") as f:
        check("+40.00 MiB (+100.0 %)" in f.read(), "summary of the job")


def test_hostile_names():
    """Names from the scripts cannot become Markdown."""
    words = [sys.executable, "-c", "from memtrace_bpf.estimate_change import code; import json; print(json.dumps([code(x) for x in json.loads(input())]))"]
    names = ["a`|b](http://x)\n<img>@all", "x" * 500, "\n"]
    done = subprocess.run(words, input=json.dumps(names), env={**os.environ, "PYTHONPATH": package()}, capture_output=True, text=True, check=True)
    equal(json.loads(done.stdout), ["`a'\\|b](http://x) <img>@all`", "`%s...`" % ("x" * 117), ""], "cells")


if __name__ == "__main__":
    run(globals())

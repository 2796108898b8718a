#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# run: check long reads-code
"""README, guide and reference: examples run, links lead somewhere, and the files that help names are installed."""
import os
import re
import subprocess

import examples
from harness import OUT, REPO, check, equal, run, scratch, tool

DOCS = os.path.join(REPO, "docs")
GUIDE_WORDS, README_WORDS, WIDTH = 13700, 900, 100
NAMED = r"\b(?:guide|reference)/[a-z-]+\.md\b"


def read(path):
    with open(path, encoding="utf-8") as f:
        return f.read()


def tracked(*patterns):
    done = subprocess.run(["git", "-C", REPO, "ls-files", "--", *patterns], capture_output=True, text=True, check=False)
    names = done.stdout.split() if done.returncode == 0 else []
    return [n for n in names if os.path.exists(os.path.join(REPO, n))]


def run_examples(live, job=0, service=0, gpu=None):
    wrong, count, cwd = [], 0, examples.folder()
    for path in examples.documents():
        for example in examples.examples(path):
            if example.live != live:
                continue
            for command, shown in example.steps:
                code, output = examples.execute(command, cwd, service if example.service else job, gpu if example.gpu else None)
                count += 1
                what = examples.differences(example, command, shown, output)
                if what or code not in (0, 4) or "memtrace-bpf: unknown option" in output:
                    wrong.append("%s: exit status %d: %s" % (os.path.relpath(path, REPO), code, what or output))
    check(not wrong, "%s", "\n".join(wrong))
    return count


def test_examples_on_recordings():
    check(run_examples(live=False) > 10, "no examples were found")


def test_examples_on_a_job():
    cwd = examples.folder()
    job, service = examples.start_job(cwd, "--keep", "--pause", "0.1"), examples.start_service(cwd)
    gpu = examples.start_gpu(cwd, job.popen.pid)
    check(run_examples(live=True, job=job.popen.pid, service=service.popen.pid, gpu=gpu) > 4, "no examples were found")


def known_options(command, seen={}):
    if command not in seen:
        code, out, err = tool("help", command or "live", "--all")
        equal(code, 0, "help %s: %s" % (command, err))
        out += tool("help", "--all")[1].partition("\nOptions of ")[2]
        seen[command] = set(re.findall(r"(?<![\w-])(--[a-z][a-z-]*|-[a-zA-Z])(?![\w-])", out)) | {"-h", "--help"}
    return seen[command]


def test_options_in_examples():
    """Examples that are not run: their commands and options exist."""
    wrong, count = [], 0
    commands = set(re.findall(r"^  ([a-z]+) ", tool("help")[1], re.M)) | {"help", "version"}
    for path in examples.documents():
        for language, block in re.findall(r"^```(\w*)\n(.*?)^```$", read(path), re.M | re.S):
            for line in [] if language not in ("", "sh") else block.replace("\\\n", " ").splitlines():
                line = line.partition(" # ")[0].partition("#  ")[0]
                for part in re.findall(r"(?:^|sudo |\| |^\s+)memtrace-bpf( [^|>&;]*)", re.sub(r"'[^']*'|\"[^\"]*\"", "X", line)):
                    words = re.split(r" --(?: |$)", part)[0].split()
                    command = words[0] if words and not words[0].startswith("-") else ""
                    count += 1
                    if command not in commands | {""}:
                        wrong.append("no command %s: %s" % (command, line))
                    elif command not in ("help", "version"):
                        given = {w.partition("=")[0] for w in words if re.match(r"--?[a-z]", w)}
                        unknown = given - known_options(command)
                        if unknown:
                            wrong.append("%s: %s" % (sorted(unknown), line))
    check(not wrong, "%s", "\n".join(wrong))
    check(count > 50, "only %d commands were found", count)


def test_links():
    """Links lead to files; those of guide and reference stay within, because that is what is installed."""
    wrong, count = [], 0
    for name in tracked("*.md"):
        text = re.sub(r"^```.*?^```", "", read(os.path.join(REPO, name)), flags=re.M | re.S)
        for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
            if "://" in link:
                continue
            count += 1
            path = os.path.normpath(os.path.join(os.path.dirname(name), link))
            if not os.path.exists(os.path.join(REPO, path)):
                wrong.append("%s: %s is not there" % (name, link))
            elif name.startswith(("docs/guide/", "docs/reference/")) and not path.startswith(("docs/guide/", "docs/reference/")):
                wrong.append("%s: %s is not installed" % (name, link))
    check(not wrong, "%s", "\n".join(wrong))
    check(count > 50 or not tracked("*.md"), "only %d links were found", count)


def test_size_and_lines():
    wrong, words = [], 0
    for path in examples.documents():
        text = read(path)
        prose = re.sub(r"^```.*?^```|<!--.*?-->", "", text, flags=re.M | re.S)
        if path.endswith("README.md") and os.path.dirname(path) == REPO:
            check(len(prose.split()) <= README_WORDS, "README has %d words", len(prose.split()))
        else:
            words += len(prose.split())
    check(words <= GUIDE_WORDS, "the guide has %d words", words)
    for name in ["README.md", *tracked("docs/guide/*.md", "docs/reference/*.md")]:
        prose = re.sub(r"^```.*?^```", "", read(os.path.join(REPO, name)), flags=re.M | re.S)
        wrong += ["%s: %s" % (name, line) for line in prose.splitlines()
                  if len(line) > WIDTH and not line.startswith(("|", "!", "    ", "`")) and not re.search(r"\S{60}", line)]
    check(not wrong, "lines of more than %d characters:\n%s", WIDTH, "\n".join(wrong))


def test_named_documents_exist():
    """Messages, help and the manual name guide/... and reference/..., which are installed, and nothing else below docs/."""
    wrong, count = [], 0
    for name in tracked("user/*.c", "user/*.js", "docs/man/*"):
        text = read(os.path.join(REPO, name))
        if name.endswith((".c", ".js")):
            text = re.sub(r"/\*.*?\*/|^\s*//[^\n]*", "", text, flags=re.M | re.S)
            wrong += ["%s: %s is not installed" % (name, found) for found in re.findall(r'"[^"\n]*(docs/[\w./-]+)', text)
                      if name != "user/base/assets/docs.c"]
        else:
            wrong += ["%s: %s is not installed" % (name, found) for found in re.findall(r"\bdocs/[\w./-]*\w", text)]
        for found in re.findall(NAMED, text):
            count += 1
            if not os.path.exists(os.path.join(DOCS, found)):
                wrong.append("%s: there is no %s" % (name, found))
    check(not wrong, "%s", "\n".join(wrong))
    check(count > 1 or not tracked("user/*.c"), "only %d were found", count)


def test_installed():
    """`help` of the program in what packages are made from names the folder that has guide and reference."""
    made = scratch("install")
    done = subprocess.run(["make", "--no-print-directory", "-C", REPO, "stage", "PACKAGES=" + made, "OUTPUT=" + OUT],
                          capture_output=True, text=True, check=False)
    equal(done.returncode, 0, "make stage: %s" % done.stderr[-500:])
    to = os.path.join(made, "stage")
    out = subprocess.run([os.path.join(to, "usr/bin/memtrace-bpf"), "help"], capture_output=True, text=True, check=False).stdout
    there = os.path.join(to, "usr/share/doc/memtrace-bpf")
    check(there in out, "help does not name %s: %s", there, out)
    for folder in "guide", "reference", "skill/memtrace-bpf":
        for name in os.listdir(os.path.join(DOCS, folder)):
            check(os.path.exists(os.path.join(there, folder, name)), "%s/%s is not installed", folder, name)


if __name__ == "__main__":
    run(globals())

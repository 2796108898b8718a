#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# run: check
"""The manual pages are valid, have the options of the help, and their examples run."""
import concurrent.futures
import glob
import os
import re
import shutil
import subprocess

import harness
import test_cli
from harness import REPO, Skip, check, equal, run, scratch, tool

PAGES = os.path.join(os.path.dirname(harness.TOOL), "man")
COMMANDS = ("record", "run", "ps", "diagnose", "estimate", "ctl", "report", "diff", "compare", "leaks", "replay", "export", "import", "watch", "serve", "fetch", "dump", "check", "mcp")
# What the examples run on: their own recordings, no process, no host-wide choice, and nothing for long.
FILES = ("run.mtr", "old.mtr", "new.mtr", "runs/run.mtr")
CHANGES = ((r"^sudo ", ""), (r"\b4242\b", "%(pid)d"), (r"(?<!serve )--all\b", "--name no-such-job"), (r"--name '?train.py[^']*?'?(?= |$)", "--name no-such-job"),
           (r"(memtrace-bpf serve)", r"\1 --listen 127.0.0.1:0"), (r"(memtrace-bpf ctl)", r"\1 -p %(pid)d"), (r"runs/$", "run.mtr"))
READING = r"memtrace-bpf (report|diff|compare|export|leaks) (?!.*(-p |--fail))"


def page(name):
    with open(os.path.join(PAGES, name), encoding="utf-8") as f:
        return f.read().replace("\\-", "-").replace("\\(aq", "'").replace("\\&", "")


def test_lint():
    if not shutil.which("mandoc"):
        raise Skip("mandoc is not here")
    pages = [os.path.join(PAGES, name) for name in sorted(os.listdir(PAGES))]
    check(len(pages) >= len(COMMANDS) + 4, "the pages are %s", pages)
    done = subprocess.run(["mandoc", "-Tlint", "-W", "warning", *pages], capture_output=True, text=True, check=False)
    equal((done.returncode, done.stdout), (0, ""), "mandoc -Tlint")


def test_same_options():
    """A command's page has the options of its help, and no others."""
    for command in ("live", *COMMANDS):
        tagged = set(re.findall(r"Fl -([a-z-]+)", " ".join(re.findall(r"^\.It Fl .*", page("memtrace-bpf-%s.8" % command).split(".Sh OPTIONS")[1], re.M))))
        equal({"--" + o for o in tagged}, set(test_cli.options(command)), "options of the page of %s" % command)


def test_overview():
    text = page("memtrace-bpf.8")
    for command in ("live", *COMMANDS):
        check(".Xr memtrace-bpf-%s 8" % command in text, "memtrace-bpf(8) does not name %s", command)
    for option in (*test_cli.options(""), "--help", "--version"):
        check(re.search(r"^\.It .*Fl %s\b" % option[1:], text, re.M), "memtrace-bpf(8) does not describe %s", option)


def test_all_formats_named():
    text = page("memtrace-bpf-export.8")
    formats = [line.split("\t")[0] for line in tool("--complete", "export", "")[1].splitlines() if not line.startswith(":")]
    check(len(formats) >= 12, "formats: %s", formats)
    for name in formats:
        check(re.search(r"^\.It Cm (.*[, ])?%s\b" % name, text, re.M), "format %s is not in the manual page", name)


def test_all_figures_named():
    """memtrace-bpf-conditions(7) has all figures that a condition can have."""
    _, _, err = tool("report", "--fail-if", "nothing>1", "x.mtr")
    figures = re.findall(r"[a-z_]{3,}", err.split(":", 3)[-1].split("\n")[0])
    named = set(re.findall(r"[a-z_]{3,}", " ".join(re.findall(r"^\.It Cm .*", page("memtrace-bpf-conditions.7"), re.M))))
    figures = [f for f in figures if f not in ("one", "use", "unknown", "figure", "nothing")]
    check(len(figures) >= 10, "the figures of %r are %s", err, figures)
    equal(sorted(set(figures) - named), [], "figures that the page does not name")


def examples():
    for name in sorted(os.listdir(PAGES)):
        for block in re.findall(r"^\.Bd -literal.*?\n(.*?)^\.Ed", page(name).split(".Sh EXAMPLES")[1] if ".Sh EXAMPLES" in page(name) else "", re.M | re.S):
            for line in block.splitlines():
                yield name, line


def try_example(number, name, given, pid):
    """Runs an example in a folder of its own. Returns what is wrong, or None."""
    folder = scratch("example-%d" % number)
    os.makedirs(os.path.join(folder, "runs"))
    for file in FILES:
        shutil.copy(os.path.join(REPO, "tests", "data", "recording-v3.bin"), os.path.join(folder, file))
    line = given
    for old, new in CHANGES:
        line = re.sub(old, new, line)
    line = line.replace("%(pid)d", str(pid))
    env = {**os.environ, "PATH": "%s:%s:%s" % (scratch("bin"), os.path.dirname(harness.TOOL), os.environ["PATH"])}
    reads = re.search(READING, line)
    done = subprocess.run(["timeout", "-s", "INT", "60" if reads else "0.5", "bash", "-c", line], cwd=folder, env=env, capture_output=True, text=True, check=False)
    allowed = (0,) if reads else (0, 1, 2, 3, 4, 124)
    if done.returncode in allowed and "See `memtrace-bpf help" not in done.stderr:
        return None
    return "%s: %r ran as %r: %d, %s" % (name, given, line, done.returncode, done.stderr)


def test_examples():
    """The examples of the pages, which are those of the help, too. Those that read recordings succeed; for the others there is no
    process, and their command line is right."""
    os.makedirs(scratch("bin"))
    for name in ("python", "torchrun", "notify.sh"):
        with open(os.path.join(scratch("bin"), name), "w", encoding="ascii") as f:
            f.write("#!/bin/sh\nexit 0\n")
        os.chmod(f.name, 0o755)
    ended = subprocess.Popen(["true"])
    ended.wait()
    lines = {line: name for name, line in examples()}
    check(len(lines) > 35, "only %d examples", len(lines))
    for line, name in lines.items():
        check("memtrace-bpf" in line, "%s: an example without the program: %r", name, line)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        wrong = [w for w in pool.map(lambda job: try_example(job[0], job[1][1], job[1][0], ended.pid), enumerate(lines.items())) if w]
    check(not wrong, "%s", "; ".join(wrong))


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


PLACEHOLDER = re.compile(r"NAME|FIELD|SUFFIX|_N\b|vN\b|\*|\.\.\.")
# CPython's, CUDA's and PyTorch's.
FOREIGN = {"pycore_interpframe.h", "cuda_runtime_api.h", "torch/csrc/autograd/function.h", "DPy_GIL_DISABLED"}


def test_howtos_name_what_exists():
    """Each file and identifier in backticks of a how-to is in the repository, and each `f()` "in `FILE`" is in that file."""
    listed = subprocess.run(["git", "-C", REPO, "ls-files"], capture_output=True, text=True, check=True).stdout.splitlines()
    paths, words, found = set(), set(), 0
    for name in listed:
        parts = name.split("/")
        paths |= {"/".join(parts[i:j]) for i in range(len(parts)) for j in range(i + 1, len(parts) + 1)}
        if re.search(r"^Makefile|\.(c|h|py|mk|sh|js|mjs|json|in|txt|md)$", name) and not name.startswith(("tests/data", "docs/internals/howto")):
            with open(os.path.join(REPO, name), encoding="utf-8", errors="replace") as f:
                words.update(re.findall(r"\w+", f.read()))
    for page in glob.glob(os.path.join(REPO, "docs", "internals", "howto", "*.md")):
        with open(page, encoding="utf-8") as f:
            text = f.read()
        code = re.findall(r"(?<!`)`([^`\n]+)`(?!`)", text)
        for function, name in re.findall(r"`(\w+)\(\)`\s+(?:in|of)\s+`([\w./-]+\.(?:c|h|py))`", text):
            holds = [p for p in listed if p == name or p.endswith("/" + name)]
            check(any(function + "(" in open(os.path.join(REPO, p), encoding="utf-8").read() for p in holds),
                  "%s: %s() is not in %s", os.path.basename(page), function, name)
        for name in re.findall(r"[A-Za-z_]\w{3,}(?:/[\w.-]+)*(?:\.\w+)?", " ".join(c for c in code if not PLACEHOLDER.search(c))):
            found += 1
            is_path = "/" in name or re.search(r"\.(c|h|py|md|sh|mk|js)$", name)
            exists = name in FOREIGN or (name in paths if is_path else words.issuperset(re.findall(r"\w+", name)))
            check(exists, "%s names %s, which is not here", os.path.basename(page), name)
    check(found > 300, "only %d names were found", found)


def test_pythons():
    """Documents and messages name the range of CPythons that the table of layouts has, and only that file has it in code."""
    with open(os.path.join(REPO, "user", "inspect", "python.h"), encoding="utf-8") as f:
        versions = re.search(r'#define PYLAYOUT_VERSIONS "(3\.\d+ to 3\.(\d+))"', f.read())
    with open(os.path.join(REPO, "user", "inspect", "python", "pylayout.c"), encoding="utf-8") as f:
        rows = [int(n) for n in re.findall(r"\.minor = (\d+)", f.read())]
    equal("3.%d to 3.%d" % (min(rows), max(rows)), versions[1], "the table of layouts")
    listed = subprocess.run(["git", "-C", REPO, "grep", "-lE", r"3\.8 to 3\.[0-9]+", "--", "docs", "user", "bpf", "*.md", ":!CHANGELOG.md"], capture_output=True,
                            text=True, check=True).stdout.split()
    others = []
    for name in listed:
        with open(os.path.join(REPO, name), encoding="utf-8") as f:
            text = f.read()
        said = re.findall(r"Python\s+(3\.8\s+to\s+3\.\d+)", text) + ["3.8 to " + last for last in re.findall(r"3\.13t to (3\.\d+)t", text)]
        others += [name for s in said if " ".join(s.split()) != versions[1]]
    equal(others, [], "documents and messages with another range")
    equal([n for n in listed if n.endswith((".c", ".h"))], ["user/inspect/python.h"], "code that has the range")


if __name__ == "__main__":
    run(globals())

#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
Host memory of programs without PyTorch, with one planted cause each: the verdict, the line, and the bytes. Run as a program, this
writes the table of docs/internals/HOST_LINES.md to .output/host-causes.md.
"""
import functools
import json
import os
import re
import shutil
import subprocess
import sys

import chaos
import harness
import kills
from harness import Skip, check, equal, finish, nightly, record, report, run, scratch, spawn, tool

MIB = 1 << 20
SOURCES = os.path.join(harness.PROGRAMS, "host")
PYTHON_SOURCE = os.path.join(harness.WORKLOADS, "host_causes.py")


@functools.cache
def lines():
    """By kind: the file and the line that takes the memory."""
    found = {}
    for path in [PYTHON_SOURCE, *(os.path.join(SOURCES, name) for name in os.listdir(SOURCES))]:
        with open(path, encoding="utf-8") as f:
            for number, text in enumerate(f, 1):
                leak = re.search(r"LEAK: (\w+)( \*/)?$", text)
                if leak:
                    found[leak[1]] = os.path.basename(path), number
    return found


def c_program():
    library = chaos.compiled("host/library.c", "libcauses.so", "-g", "-shared", "-fPIC")
    return [chaos.compiled("host/causes.c", "causes", "-g", "-Wl,--no-as-needed", library, "-Wl,-rpath," + os.path.dirname(library))]


def made(compiler, name, *command):
    """A program that another compiler makes, once."""
    if not shutil.which(compiler):
        raise Skip("no " + compiler)
    path = scratch("-".join([name, *(re.sub(r"\W", "", c) for c in command)]))
    if not os.path.exists(path):
        done = subprocess.run([compiler, *command, "-o", path, os.path.join(SOURCES, "causes." + name)], capture_output=True, text=True, check=False)
        check(done.returncode == 0, "%s: %s", compiler, done.stderr)
    return [path]


def preload(library):
    """The environment of a program whose malloc is that of a library of the system."""
    done = subprocess.run(["ldconfig", "-p"], capture_output=True, text=True, check=False)
    path = re.search(r"^\s*%s\S* .*=> (\S+)$" % re.escape(library), done.stdout, re.M)
    if not path:
        raise Skip("no " + library)
    return {"LD_PRELOAD": path[1]}


def python_program():
    return [sys.executable, PYTHON_SOURCE]


def numpy_program():
    return [harness.python(), PYTHON_SOURCE]


def cc_program():
    return [chaos.compiled("host/causes.cc", "causes_cc", "-g")]


# Name: command, kind, MiB, library that replaces malloc, kind of the verdict, and the share of the planted bytes that the line has, if that is
# not about 1. jemalloc adds a page to each block of 16 KiB; mimalloc has half of the memory before the attach.
CAUSES = {
    "Python: list of `bytes`": (python_program, "bytes", 64, None, "in_use"),
    "Python: dict cache": (python_program, "dict", 64, None, "in_use"),
    "Python: NumPy arrays": (numpy_program, "arrays", 64, None, "in_use"),
    "Python: C extension": (python_program, "extension", 64, None, "in_use"),
    "C: arenas of threads": (c_program, "arenas", 16, None, "in_use"),
    "C: realloc": (c_program, "realloc", 64, None, "in_use"),
    "C: shared library": (c_program, "library", 64, None, "in_use"),
    "C: mmap of a file": (c_program, "file", 64, None, "in_use"),
    "C: memfd": (c_program, "memfd", 64, None, "in_use"),
    "C: thread stacks": (c_program, "stacks", 64, None, "in_use"),
    "C: fork, copy on write": (c_program, "fork", 64, None, "in_use"),
    "C: freed after a burst, 16 MiB": (c_program, "burst", 16, None, "kept"),
    "C: freed after a burst, 64 MiB": (c_program, "burst", 64, None, "kept"),
    "C: freed after a burst, 256 MiB": (c_program, "burst", 256, None, "kept"),
    "C++: vector, glibc": (cc_program, "vector", 64, None, "in_use"),
    "C++: vector, jemalloc": (cc_program, "vector", 64, "libjemalloc.so", "in_use", 1.25),
    "C++: vector, mimalloc": (cc_program, "vector", 64, "libmimalloc.so", "in_use", 0.5),
    "C++: vector, tcmalloc": (cc_program, "vector", 64, "libtcmalloc", "in_use"),
    "Rust: vector": (lambda: made("rustc", "rs", "-g", "-O"), "rust", 64, None, "in_use"),
    "Go: slice": (lambda: made("go", "go", "build"), "go", 64, None, "unknown"),
    "Go: slice, stripped": (lambda: made("go", "go", "build", "-trimpath", "-ldflags=-s -w"), "go", 64, None, "unknown"),
}


class Answer:
    """What `record --host` and `dump --device host` say of a program."""

    def __init__(self, name):
        command, self.kind, mib, library, self.expected, *share = CAUSES[name]
        self.share = share[0] if share else 1
        self.planted = mib * MIB
        self.path = scratch(re.sub(r"\W+", "-", name) + ".mtr")
        p = spawn([*command(), self.kind, str(mib)], env=dict(os.environ, **(preload(library) if library else {})))
        p.wait_line("^ready", 30)
        recorder = record(p.pid, self.path, "--host", "-v")
        p.send()
        p.wait_line("^grown", 60)
        self.rss = harness.resident(p.pid)
        code, out, err = tool("dump", "-p", str(p.pid), "--device", "host", "--format", "json", root=True)
        check(code == 0, "dump: %s", err)
        finish(recorder)
        p.stop()
        self.verdict = json.loads(out)["host"]["verdict"]
        self.doc = report(self.path, "--device", "host", "--at", "end", "--top", "0")
        self.rows = self.doc["rows"]
        self.sum = sum(r["bytes"] for r in self.rows)

    def of_line(self):
        """Bytes of the planted line, in all rows that it has."""
        file, line = lines()[self.kind]
        return sum(r["bytes"] for r in self.rows if os.path.basename(r["file"] or "") == file and r["line"] == line)

    def largest(self):
        r = self.rows[0]
        return "%s:%s (%s)" % (os.path.basename(r["file"] or "?"), r["line"], r["function"])

    def row(self, name):
        return "| %s | %s | %s | %+.1f | %+.2f |" % (name, self.verdict["sentence"], self.largest(), 100 * (self.of_line() / self.planted - 1),
                                                   100 * (self.sum / self.rss - 1))


def check_cause(name):
    a = Answer(name)
    check(abs(a.sum - a.rss) < 0.01 * a.rss, "%s: rows add up to %d, RSS is %d", name, a.sum, a.rss)
    check(abs(a.of_line() - a.share * a.planted) < 0.1 * a.planted, "%s: the line has %d of %d bytes: %s", name, a.of_line(), a.planted, a.rows[:4])
    equal(a.verdict["kind"], a.expected, "%s: verdict (%s)" % (name, a.verdict["sentence"]))
    return a


def test_python():
    check_cause("Python: list of `bytes`")


def killed(name):
    """Killed by its cgroup while it grows: reason, limit and line."""
    command, kind, mib, _, _ = CAUSES[name]
    path, cgroup = scratch("killed-%s.mtr" % kind), kills.Cgroup(mib * MIB // 2)
    try:
        p = spawn([*command(), kind, str(mib)])
        p.wait_line("^ready", 30)
        cgroup.write("cgroup.procs", p.pid)
        recorder = record(p.pid, path, "--on-kill", "-v")
        recorder.wait_line("host memory: [0-9]+ mappings", 60, stream="err")
        p.send()
        p.wait(60)
        equal(recorder.wait(60), 0, "exit code of record (%s)" % recorder.stderr())
        harness.own(path)
    finally:
        cgroup.remove()
    doc = report(path, "--device", "host", "--at", "end", "--top", "0")
    equal((doc["end"]["reason"], doc["end"]["cgroup"]["limit"]), ("oom killer", mib * MIB // 2), "the end: %s" % doc["end"])
    file, line = lines()[kind]
    of_line = sum(r["bytes"] for r in doc["rows"] if os.path.basename(r["file"] or "") == file and r["line"] == line)
    check(of_line > mib * MIB // 4, "the line has %d bytes: %s", of_line, doc["rows"][:4])


def test_killed_rust():
    killed("Rust: vector")


def test_killed_go():
    killed("Go: slice")


def test_stripped_go():
    """Lines come from the table that each program of Go has."""
    check_cause("Go: slice, stripped")


def test_freed():
    """Memory that malloc keeps is no leak."""
    check_cause("C: freed after a burst, 64 MiB")


@nightly("programs")
def test_all():
    for name in CAUSES:
        check_cause(name)


def write_table():
    with open(os.path.join(harness.OUT, "host-causes.md"), "w", encoding="utf-8") as f:
        f.write("| program | verdict | largest row | its line's error, % | rows against RSS, % |\n|---|---|---|---|---|\n")
        for name in [n for n in CAUSES if re.search(sys.argv[2] if sys.argv[2:] else "", n)]:
            try:
                text = Answer(name).row(name)
            except (Skip, harness.Failure) as e:
                text = "| %s | %s |" % (name, str(e).replace("|", "/")[:200])
            print(text, file=f, flush=True)
            print(text)


if __name__ == "__main__":
    if sys.argv[1:2] == ["table"]:
        write_table()
    else:
        run(globals())

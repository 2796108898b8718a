#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""The ledger of host memory of processes with mimalloc and musl's malloc: it agrees with their own sizes. Needs Debian's libmimalloc2.0
and musl-tools, and for Python a free-threaded CPython (tools/deps.sh pythons). MIMALLOC=FILE tests another libmimalloc."""
import ctypes.util
import json
import os
import re
import shutil
import subprocess

from harness import PROGRAMS, REPO, Skip, check, equal, run, scratch, spawn, tool

MIB = 1 << 20


def built(compiler="cc", *options):
    """tests/programs/allocator_mix.c as a program."""
    path = scratch("-".join(("allocator_mix", compiler) + options))
    if not os.path.exists(path):
        if not shutil.which(compiler):
            raise Skip("no %s: apt-get install %s" % (compiler, "musl-tools" if compiler == "musl-gcc" else "gcc"))
        done = subprocess.run([compiler, "-std=gnu11", "-O1", "-fno-builtin-malloc", "-Wall", "-Wextra", *options, "-o", path,
                               os.path.join(PROGRAMS, "allocator_mix.c"), "-lpthread"], capture_output=True, text=True, check=False)
        check(done.returncode == 0, "allocator_mix.c: %s", done.stderr)
    return path


def library():
    found = os.environ.get("MIMALLOC") or ctypes.util.find_library("mimalloc")
    if not found:
        raise Skip("no libmimalloc: apt-get install libmimalloc-dev")
    return found


def dump(pid):
    code, out, err = tool("dump", "-p", str(pid), "--device", "host", "--format", "json", root=True)
    check(code == 0, "dump of %d ended with %d: %s", pid, code, err[-800:])
    return json.loads(out)["processes"][0]


class Mix:
    """A waiting allocator_mix. live: bytes that it has by its malloc_usable_size()."""

    def __init__(self, program, *args, preload=""):
        self.what = "%s %s" % (preload or program, " ".join(args))
        self.p = spawn([program, *args], env=dict(os.environ, LD_PRELOAD=preload))
        self.p.wait_line("^ready$", 120)
        self.live = int(re.search(r"^live (\d+) \d+$", self.p.stdout(), re.M).group(1))


def compare(mix, name):
    doc, what, live = dump(mix.p.pid), mix.what, mix.live
    parts, allocators = doc["parts"], doc["allocators"]
    equal([a["name"] for a in allocators], [name], what)
    a = allocators[0]
    check(a["live"] is not None and abs(a["live"] - live) <= live * 0.02, "%s: live %s, its own sizes add up to %d", what, a["live"], live)
    equal(sum(x["bytes"] for x in parts.values() if x["of_rss"]), doc["rss"], "%s: sum of the parts" % what)
    equal(doc["adjusted"], 0, "%s: claims without resident memory" % what)
    check(parts["unknown"]["bytes"] <= doc["rss"] // 100 + MIB // 8, "%s: %d bytes unknown, of %d", what, parts["unknown"]["bytes"], doc["rss"])
    free = a["free_blocks"] + a["purgeable"]
    check(abs(parts["malloc"]["second"] - free) <= free // 20 + MIB // 4, "%s: %d free inside, not %d", what, parts["malloc"]["second"], free)
    check(parts["malloc"]["bytes"] <= (a["live"] + free + a["tables"]) * 1.01 + MIB // 4, "%s: more resident memory than the tables have: %s %s",
          what, parts["malloc"], a)
    check(free > MIB // 2, "%s: the program freed more: %s", what, a)
    mix.p.stop()


def test_mimalloc():
    """Blocks of 12 bytes to 2 MB, of threads that live and of one that ended, freed by their own thread and by another."""
    compare(Mix(built(), "96", preload=library()), "mimalloc")


def test_mimalloc_small_blocks():
    """Small blocks, with a list of blocks that another thread freed in every page."""
    compare(Mix(built(), "64", "200", preload=library()), "mimalloc")


OBJECTS = """
import sys
kept = [bytes(1000) for _ in range(30000)] + [{"a": i} for i in range(100000)] + [float(i) for i in range(300000)]
large = [bytes(200000) for _ in range(100)]
del kept[::3], large[::2]
print("blocks", sys.getallocatedblocks())
print("ready", flush=True)
sys.stdin.readline()
"""


def test_free_threaded_python():
    """A free-threaded CPython: all objects are in its own mimalloc."""
    done = subprocess.run([os.path.join(REPO, "tools", "deps.sh"), "pythons"], capture_output=True, text=True, check=True)
    pythons = [p for p in done.stdout.strip().split(":") if p.endswith("t")]
    if not pythons:
        raise Skip("no free-threaded CPython: tools/deps.sh pythons lists none")
    for path in pythons:
        p = spawn([path, "-c", OBJECTS])
        p.wait_line("^ready$", 120)
        blocks = int(re.search(r"^blocks (\d+)$", p.stdout(), re.M).group(1))
        doc = dump(p.pid)
        parts, python = doc["parts"], doc["python"]
        check(python["blocks"] is not None and abs(python["blocks"] - blocks) <= blocks // 100, "%s: %s blocks, Python says %d", path, python, blocks)
        # Two thirds of the bytes objects, each with a header of up to 64 bytes and rounded up by an eighth, and a half of the large ones.
        least = 20000 * 1024 + 50 * 200000
        check(least <= python["used"] <= parts["python"]["bytes"] + MIB, "%s: %s, %s", path, python, parts["python"])
        equal(sum(x["bytes"] for x in parts.values() if x["of_rss"]), doc["rss"], "%s: sum of the parts" % path)
        check(parts["unknown"]["bytes"] <= doc["rss"] // 100 + MIB // 8, "%s: %d bytes unknown, of %d", path, parts["unknown"]["bytes"], doc["rss"])
        p.stop()


def test_text():
    """The text names the allocator, its version and what is free."""
    mix = Mix(built(), "16", preload=library())
    code, text, err = tool("dump", "-p", str(mix.p.pid), "--device", "host", root=True)
    check(code == 0 and re.search(r"^mimalloc [0-9.-]+ \(libmimalloc\S*\): \S+ .iB live; free inside: ", text, re.M), "the text: %s%s", text, err)


def test_musl():
    """musl, mixed and small blocks; small groups of slots lie in slots of larger groups."""
    for args in (("96",), ("48", "188")):
        compare(Mix(built("musl-gcc"), *args), "musl")


def test_musl_static():
    """A static program: the context of malloc is in the program's own data."""
    compare(Mix(built("musl-gcc", "-static"), "96"), "musl")


if __name__ == "__main__":
    run(globals())

#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""The ledger of host memory of processes with mimalloc: it agrees with mimalloc's own sizes. Needs Debian's libmimalloc2.0 or
libmimalloc3, and for Python a free-threaded CPython."""
import ctypes.util
import json
import os
import re
import shutil
import subprocess

from harness import PROGRAMS, Skip, check, equal, run, scratch, spawn, tool

MIB = 1 << 20


def built():
    """tests/programs/allocator_mix.c as a program."""
    path = scratch("allocator_mix")
    if not os.path.exists(path):
        if not shutil.which("cc"):
            raise Skip("no C compiler")
        done = subprocess.run(["cc", "-std=gnu11", "-O1", "-fno-builtin-malloc", "-Wall", "-Wextra", "-o", path,
                               os.path.join(PROGRAMS, "allocator_mix.c"), "-lpthread"], capture_output=True, text=True, check=False)
        check(done.returncode == 0, "allocator_mix.c: %s", done.stderr)
    return path


def library():
    found = ctypes.util.find_library("mimalloc")
    if not found:
        raise Skip("no libmimalloc: apt-get install libmimalloc2.0")
    return found


def dump(pid):
    code, out, err = tool("dump", "-p", str(pid), "--device", "host", "--format", "json", root=True)
    check(code == 0, "dump of %d ended with %d: %s", pid, code, err[-800:])
    return json.loads(out)["processes"][0]


def start(*args):
    """A waiting allocator_mix, and the bytes and blocks that it has by mimalloc's malloc_usable_size()."""
    p = spawn([built(), *args], env=dict(os.environ, LD_PRELOAD=library()))
    p.wait_line("^ready$", 120)
    live, blocks = re.search(r"^live (\d+) (\d+)$", p.stdout(), re.M).groups()
    return p, int(live), int(blocks)


def compare(*args):
    p, live, _ = start(*args)
    doc = dump(p.pid)
    parts, allocators = doc["parts"], doc["allocators"]
    what = "allocator_mix %s" % " ".join(args)
    equal([a["name"] for a in allocators], ["mimalloc"], what)
    a = allocators[0]
    check(a["live"] is not None and abs(a["live"] - live) <= live * 0.02, "%s: live %s, mimalloc's own sizes add up to %d", what, a["live"], live)
    equal(sum(x["bytes"] for x in parts.values() if x["of_rss"]), doc["rss"], "%s: sum of the parts" % what)
    equal(doc["adjusted"], 0, "%s: claims without resident memory" % what)
    check(parts["unknown"]["bytes"] <= doc["rss"] // 100 + MIB // 8, "%s: %d bytes unknown, of %d", what, parts["unknown"]["bytes"], doc["rss"])
    free = a["free_blocks"] + a["purgeable"]
    check(abs(parts["malloc"]["second"] - free) <= MIB // 4, "%s: %d free inside, not %d", what, parts["malloc"]["second"], free)
    check(parts["malloc"]["bytes"] <= a["live"] + free + a["tables"] + MIB // 4, "%s: more resident memory than the tables have: %s %s", what,
          parts["malloc"], a)
    check(free > live // 20, "%s: the program freed more: %s", what, a)
    p.stop()
    return a


def test_mixed_sizes():
    """Blocks of 16 bytes to 2 MB, of threads that live and of one that ended, freed by their own thread and by another."""
    compare("96")


def test_small_blocks():
    """Small blocks, with a list of blocks that another thread freed in every page."""
    compare("64", "200")


def test_text():
    """The text names the allocator, its version and what is free."""
    p, _, _ = start("16")
    code, text, err = tool("dump", "-p", str(p.pid), "--device", "host", root=True)
    check(code == 0 and re.search(r"^mimalloc [0-9.-]+ \(libmimalloc\S*\): \S+ .iB live; free inside: ", text, re.M), "the text: %s%s", text, err)


if __name__ == "__main__":
    run(globals())

#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""The ledger of host memory of processes with jemalloc: its figures are those of jemalloc's own statistics (mallctl). Needs Debian's
libjemalloc2; MEMTRACE_JEMALLOC names other libraries, with a colon between them."""
import ctypes.util
import json
import os
import re
import shutil
import subprocess

from harness import PROGRAMS, Skip, check, compiled, equal, python, run, scratch, spawn, tool

PAGE = 4096
MIB = 1 << 20


def mix(name="jemalloc_mix", options=()):
    """tests/programs/jemalloc_mix.c as a program."""
    path = scratch(name)
    if not os.path.exists(path):
        if not shutil.which("cc"):
            raise Skip("no C compiler")
        done = subprocess.run(["cc", "-std=gnu11", "-O1", "-fno-builtin-malloc", "-Wall", "-Wextra", "-o", path,
                               os.path.join(PROGRAMS, "jemalloc_mix.c"), *options, "-lpthread"], capture_output=True, text=True, check=False)
        check(done.returncode == 0, "jemalloc_mix.c: %s", done.stderr)
    return path


def libraries():
    found = os.environ.get("MEMTRACE_JEMALLOC", ctypes.util.find_library("jemalloc"))
    if not found:
        raise Skip("no libjemalloc: apt-get install libjemalloc2")
    return found.split(":")


def dump(pid, *options):
    code, out, err = tool("dump", "-p", str(pid), "--device", "host", *options, root=True)
    check(code == 0, "dump of %d ended with %d: %s", pid, code, err[-800:])
    return out


def started(library, command, conf):
    """A process with this library, and its statistics by name. Nothing is purged by time."""
    p = spawn(command, env=dict(os.environ, LD_PRELOAD=library, MALLOC_CONF=conf))
    p.wait_line("^ready$", 120)
    return p, {name: int(n) for name, n in re.findall(r"^(stats\S+) (\d+)$", p.stdout(), re.M)}


def same(got, want, part, what):
    check(abs(got - want) <= want * part, "%s: %d, jemalloc says %d", what, got, want)


def compare(p, stats, what, part=0.0):
    """Compares a process with its statistics: sizes may differ by a part, of what it allocates to print them."""
    doc = json.loads(dump(p.pid, "--format", "json"))["processes"][0]
    a = doc["allocators"][0]
    equal([x["name"] for x in doc["allocators"]], ["jemalloc"], what)
    # jemalloc 5.2 leaves large blocks out of tcache_bytes; blocks in caches count as allocated.
    same(a["live"], stats.get("stats.usable", stats["stats.allocated"] - stats["stats.arenas.4096.tcache_bytes"]), 0.02, "%s: live" % what)
    # All that the program still has is live: a block that is not in a cache never counts as free.
    check(a["live"] >= stats.get("stats.usable", 0), "%s: live %d, of %s", what, a["live"], stats)
    most = (stats["stats.allocated"] - stats["stats.arenas.4096.tcache_bytes"]) * (1 + part)
    check(a["live"] <= most, "%s: live %d, of %s", what, a["live"], stats)
    same(a["live"] + a["free_blocks"], stats["stats.active"], 0.02, "%s: live and free blocks" % what)
    same(a["purgeable"], stats["stats.arenas.4096.pdirty"] * PAGE, part, "%s: purgeable" % what)
    same(a["muzzy"], stats["stats.arenas.4096.pmuzzy"] * PAGE, part, "%s: muzzy" % what)
    same(a["retained"], stats["stats.retained"], part, "%s: retained" % what)
    equal(sum(x["bytes"] for x in doc["parts"].values() if x["of_rss"]), doc["rss"], "%s: sum of the parts" % what)
    free = doc["parts"]["malloc"]["second"]
    check(free <= a["free_blocks"] + a["purgeable"] + a["muzzy"], "%s: free inside %d, of %s", what, free, a)
    return doc


def test_mix():
    """Small and large blocks of several threads, half of them free: dirty pages, muzzy pages, and neither."""
    for library in libraries():
        for conf in ("dirty_decay_ms:-1", "dirty_decay_ms:0,muzzy_decay_ms:-1", "dirty_decay_ms:0,muzzy_decay_ms:0"):
            p, stats = started(library, [mix(), "4", "20000"], conf)
            what = "%s, %s" % (library, conf)
            doc = compare(p, stats, what)
            check(doc["parts"]["unknown"]["bytes"] < MIB // 4, "%s: unknown: %s", what, doc["parts"]["unknown"])
            equal(doc["allocators"][0]["file"], os.path.basename(os.path.realpath(library)), "file")
            equal(doc["malloc"]["replaced_by"], doc["allocators"][0]["file"], "malloc's replacement")
            p.stop()


def test_sampler():
    """jemalloc's own sampler is on: live memory by stack, which adds up to the live blocks but for the sampler's error."""
    p, stats = started(libraries()[0], [mix(), "2", "40000"], "prof:true,lg_prof_sample:16")
    doc = json.loads(dump(p.pid, "--format", "json"))["processes"][0]
    s = doc["samples"]
    equal((s["sampler"], s["period"]), ("jemalloc", 65536), "sampler")
    check(s["samples"] > 100, "%s", s)
    same(s["bytes"], stats["stats.usable"], 0.4, "live by the sampler")
    largest = s["stacks"][0]
    check(largest["bytes"] > s["bytes"] // 2, "all threads run the same function: %s", s)
    names = [f["function"] for f in largest["frames"]]
    equal(names[:2], ["allocate", "run_thread"], "innermost frames")
    check("by jemalloc's own sampler: about" in dump(p.pid) and "allocate (" in dump(p.pid), "%s", dump(p.pid))
    p.stop()
    p, _ = started(libraries()[0], [mix(), "1", "100"], "prof:false")
    equal(json.loads(dump(p.pid, "--format", "json"))["processes"][0]["samples"], None, "without the sampler")


def test_linked():
    """A program with jemalloc linked into it: its tables are in the program's own data."""
    probe = subprocess.run(["cc", "-print-file-name=libjemalloc.a"], capture_output=True, text=True, check=True)
    if not os.path.isabs(probe.stdout):
        raise Skip("no libjemalloc.a: apt-get install libjemalloc-dev")
    program = mix("jemalloc_linked", ("-l:libjemalloc.a", "-lstdc++", "-lm"))
    p, stats = started("", [program, "2", "20000"], "dirty_decay_ms:-1")
    equal(compare(p, stats, "linked")["allocators"][0]["file"], "jemalloc_linked", "file")
    p.stop()


def test_python():
    """A Python whose malloc is jemalloc: arrays and objects of up to 512 bytes (PYTHONMALLOC=malloc), and PyTorch."""
    program = """
import ctypes, sys
import torch
kept = [torch.ones(1 << 20), [bytearray(10_000) for _ in range(2000)], [object() for _ in range(100_000)]]
n = ctypes.c_size_t(8)
value = ctypes.c_size_t(1)
jemalloc = ctypes.CDLL(None)
names = [b"stats.%s" % s for s in (b"allocated", b"active", b"retained", b"arenas.4096.tcache_bytes", b"arenas.4096.pdirty", b"arenas.4096.pmuzzy")]
jemalloc.mallctl(b"epoch", None, None, ctypes.byref(value), n)
for name in names:
    jemalloc.mallctl(name, ctypes.byref(value), ctypes.byref(n), None, ctypes.c_size_t(0))
    print(name.decode(), value.value)
print("ready", flush=True)
sys.stdin.read()
"""
    for library in libraries():
        p, stats = started(library, ["env", "PYTHONMALLOC=malloc", python("main"), "-c", program], "dirty_decay_ms:-1")
        doc = compare(p, stats, "Python with %s" % library, 0.02)
        check(doc["parts"]["tensors"]["bytes"] >= 4 * MIB, "tensors: %s", doc["parts"]["tensors"])
        p.stop()


def test_text():
    p, _ = started(libraries()[0], [mix(), "1", "20000"], "dirty_decay_ms:-1")
    text = " ".join(dump(p.pid).split())
    check(re.search(r"jemalloc 5\.\d \(libjemalloc\S*\): [\d.]+ MiB live; free inside: [\d.]+ MiB in blocks, [\d.]+ [KM]iB in whole pages, "
                    r"which a purge returns; 2 arenas, and [\d.]+ MiB of addresses without memory", text), "text: %s", text)
    p.stop()


def test_unknown_tables():
    """A library with jemalloc's name and none of its tables."""
    p = spawn(["sleep", "60"], env=dict(os.environ, LD_PRELOAD=compiled("empty", "libjemalloc")))
    doc = json.loads(dump(p.pid, "--format", "json"))["processes"][0]
    equal([(a["name"], a["file"], a["live"], a["purgeable"]) for a in doc["allocators"]], [("jemalloc", "libjemalloc.so", None, None)],
          "allocators")
    check("jemalloc (libjemalloc.so) replaces malloc: memtrace-bpf could not read its tables" in " ".join(dump(p.pid).split()), "text")
    p.stop()


if __name__ == "__main__":
    run(globals())

#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""The ledger of host memory: its parts add up to RSS, and each agrees with what the process itself knows."""
import json
import os
import re
from concurrent.futures import ThreadPoolExecutor

from harness import (OUT, WORKLOADS, Failure, Skip, check, equal, interrupt, python, record, report, run, scratch, settle, spawn, tool,
                     training)

SEEDS = range(1, 4)
NOISE = 512 << 10  # what a process allocates for the answer itself: buffers of print and json


class Mix:
    """tests/workloads/host_mix.py, waiting with its memory, and what it knows about it."""

    def __init__(self, seed, *kinds, role="main", env=()):
        self.what = "mix %s %s (%s)" % (seed, " ".join(kinds), role)
        path = scratch("mix-%s-%s-%s.json" % (seed, "-".join(kinds), role))
        self.p = spawn([python(role), os.path.join(WORKLOADS, "host_mix.py"), path, str(seed), *kinds],
                       env=dict(os.environ, PYTHONUNBUFFERED="1", **dict(env)))
        self.p.wait_line("^ready", 120)
        with open(path, encoding="utf-8") as f:
            self.truth = json.load(f)

    def dump(self, *options):
        code, out, err = tool("dump", "-p", str(self.p.pid), "--device", "host", "--format", "json", *options, root=True)
        check(code == 0, "dump of %s ended with %d: %s", self.what, code, err[-800:])
        return json.loads(out)


def smaps_rss(pid):
    with open("/proc/%d/smaps" % pid, encoding="utf-8", errors="replace") as f:
        return sum(int(n) for n in re.findall(r"^Rss: +(\d+) kB", f.read(), re.M)) << 10


def near(got, want, what, part=0.0, room=NOISE):
    check(abs(got - want) <= want * part + room, "%s: %d, the process says %d", what, got, want)


def sums(parts):
    return sum(p["bytes"] for p in parts.values() if p["of_rss"])


def quiet_dump(mix):
    """A dump while RSS stays the same. The ledger makes no page resident, and the search for tensors a few of libraries at most, once.
    Other programs can make the kernel take file pages of the process meanwhile: then once more."""
    seen = []
    for _ in range(5):
        before, doc = smaps_rss(mix.p.pid), mix.dump()
        seen.append((before, doc["processes"][0]["rss"], smaps_rss(mix.p.pid)))
        check(seen[-1][2] <= before + NOISE // 2, "%s: the reading made pages resident: %s", mix.what, seen)
        if len(set(seen[-1])) == 1:
            return doc
    raise Failure("%s: RSS before, in the ledger and after: %s" % (mix.what, seen))


def compare(mix):
    doc = quiet_dump(mix)
    p, t = doc["processes"][0], mix.truth
    parts = p["parts"]
    equal(sums(parts), p["rss"], "%s: sum of the parts" % mix.what)
    check(p["adjusted"] <= NOISE, "%s: claims without resident memory: %d", mix.what, p["adjusted"])
    if "mallinfo" in t:
        m = p["malloc"]
        equal(m["arena_bytes"], t["mallinfo"]["arena"], "%s: malloc's arenas" % mix.what)
        near(m["free"], t["mallinfo"]["fordblks"], "%s: free in arenas" % mix.what)
        equal(m["mapped"], t["mallinfo"]["hblkhd"], "%s: mapped chunks" % mix.what)
        equal(m["mapped_found"], m["mapped"], "%s: mapped chunks that were found" % mix.what)
    equal(p["storages"], t.get("tensors", 0) + t.get("shared_loader", 0), "%s: storages" % mix.what)
    equal(parts["tensors"]["bytes"], t.get("tensors", 0), "%s: tensors" % mix.what)
    near(parts["shared_loader"]["bytes"], t.get("shared_loader", 0), "%s: shared tensors" % mix.what, room=64 << 10)
    near(parts["shared_loader"]["second"], t.get("shared_loader", 0), "%s: tensors in shared memory" % mix.what, room=0)
    near(parts["shared"]["bytes"], t.get("shared", 0), "%s: memfd" % mix.what, room=64 << 10)
    near(parts["unknown"]["bytes"], t.get("mmap", 0), "%s: unknown, which is the program's own mmap" % mix.what)
    check(p["python"]["blocks"] <= t["blocks"], "%s: %d blocks of Python, of %d", mix.what, p["python"]["blocks"], t["blocks"])
    check(p["python"]["used"] <= p["python"]["arena_bytes"], "%s: more used than there is", mix.what)
    return doc


def test_random_mixes():
    """Parts of random programs add up, and agree with mallinfo2(), Python's own figures and the sizes of tensors."""
    with ThreadPoolExecutor(2) as pool:
        for mix in pool.map(Mix, SEEDS):
            compare(mix)
            mix.p.stop()


def test_report():
    """A CPU training job: the parts of report add up to its RSS, nearly all of it is explained, and the text has one table."""
    job, out = training(), scratch("training.mtr")
    recorder = record(job.pid, out)
    settle(recorder)
    interrupt(recorder)
    rss = smaps_rss(job.pid)
    host = report(out)["host"]
    check(host["readings"] >= 2, "readings at attach and at the end: %s", host)
    for name in ("first", "highest", "last"):
        point = host[name]
        equal(sums(point["parts"]), point["rss"], "sum of the parts, %s reading" % name)
        check(point["parts"]["unknown"]["bytes"] < point["rss"] / 100, "unknown memory in the %s reading: %s", name, point)
    near(host["last"]["rss"], rss, "RSS", 0.01)
    check(host["last"]["parts"]["tensors"]["bytes"], "a training job has tensors: %s", host)
    code, text, err = tool("report", "--device", "host", out)
    check(code == 0 and text.count("Host memory at") == 1 and "CPU tensors" in text, "report --device host: %d %s\n%s", code, err, text)
    code, text, err = tool("report", out)
    check(code == 0 and re.search("^host  peak [0-9.]+ MiB RSS", text, re.M), "report: %d %s\n%s", code, err, text)


def test_pinned():
    """Pinned memory of PyTorch's host allocator, in use and cached, under the dry run."""
    preload = " ".join(os.path.join(OUT, "dryrun", n) for n in ("libcuda.so.1", "libnvidia-ml.so.1"))
    mix = Mix(9, "pinned", env={"LD_PRELOAD": preload})
    p = mix.dump()["processes"][0]
    equal(sums(p["parts"]), p["rss"], "sum of the parts")
    near(p["parts"]["pinned"]["bytes"], mix.truth["pinned"], "pinned memory", room=64 << 10)
    near(p["parts"]["pinned"]["second"], mix.truth["cached"], "cached pinned memory", room=64 << 10)
    check(p["parts"]["unknown"]["bytes"] < 2 << 20, "unknown memory: %s", p["parts"])
    use = {name: p["parts"]["pinned_" + name]["bytes"] for name in ("requested", "rounding", "cached", "other")}
    equal(use, {"requested": mix.truth["requested"], "rounding": mix.truth["rounding"], "cached": mix.truth["cached"], "other": 0},
          "blocks of the host allocator by use")
    if mix.truth["allocated"]:
        equal(sum(use.values()), mix.truth["allocated"], "PyTorch's own sum of all blocks")
    code, text, err = tool("dump", "-p", str(mix.p.pid), "--device", "host", root=True)
    check(code == 0 and re.search(r"pinned blocks of PyTorch: \S+ .iB = \S+ .iB requested \+ \S+ .iB rounding \+ \S+ .iB cached", text),
          "the text: %s%s", text, err)


def test_large():
    """A large process, whose resident bytes come from the page map in slices: the same parts."""
    mix = Mix(10, "large", "fragments", "shared", "mapped_file")
    parts = compare(mix)["processes"][0]["parts"]
    check(not parts["files"]["second"] and "pss" not in parts, "figures that only smaps has: %s", parts)
    mix.p.stop()


def test_tree():
    """A process that forked: its children count shared pages once."""
    mix = Mix(7, "bytes_list", "forked", "shared")
    one, tree = mix.dump(), mix.dump("--children")
    equal(len(tree["processes"]), 2, "processes of the tree")
    equal(tree["host"]["total"], "pss", "what a tree's total is")
    equal(sums(tree["host"]["parts"]), tree["host"]["bytes"], "sum of the parts of a tree")
    check(tree["host"]["bytes"] < 1.5 * one["host"]["bytes"], "a fork counts twice: %d after %d", tree["host"]["bytes"],
          one["host"]["bytes"])


def test_text():
    """The table names the parts, and its sizes add up."""
    mix = Mix(8, "random_tensors", "shared", "mapped")
    code, out, err = tool("dump", "-p", str(mix.p.pid), "--device", "host", root=True)
    check(code == 0, "dump ended with %d: %s", code, err)
    for words in ("CPU tensors", "malloc", "free inside", "shared memory of PyTorch", "libraries", "unknown", "PSS"):
        check(words in out, "no '%s' in\n%s", words, out)


MAPS = """
import mmap, os, sys
files = [os.memfd_create("torch_%d" % i) for i in range(3)]
for f in files:
    os.ftruncate(f, 4 << 20)
kept = [mmap.mmap(f, 4 << 20) for f in files + files[:1]]
if os.fork():
    kept.append(mmap.mmap(-1, 8 << 20))
    print("ready", flush=True)
sys.stdin.read()
"""


# argv: bytes of a block, number, one of how many stays, threads that do it (0: the main thread). Then trims for each line of stdin, and
# prints the fall of RSS.
BURST = """
import ctypes, sys, threading
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.malloc.argtypes = [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]
libc.memset.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
size, number, stays, threads = (int(a) for a in sys.argv[1:])
def burst():
    blocks = [libc.malloc(size) for _ in range(number)]
    for i, block in enumerate(blocks):
        libc.memset(block, 1, size)
    for i, block in enumerate(blocks):
        if i % stays:
            libc.free(block)
done, end = threading.Barrier(threads + 1), threading.Event()
def work():
    burst()
    done.wait()
    end.wait()
for _ in range(threads):
    threading.Thread(target=work, daemon=True).start()
if not threads:
    burst()
done.wait()
def rss():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * 4096
rss()
print("ready", flush=True)
for _ in sys.stdin:
    before = rss()
    libc.malloc_trim(0)
    print("fell %d" % (before - rss()), flush=True)
"""
BURSTS = (((600, 100000, 100, 0), "kept"), ((600, 100000, 2, 0), "fragmented"), ((600, 100000, 1, 0), "in_use"),
          ((60000, 1000, 3, 0), "kept"), ((100, 50000, 9, 0), "fragmented"), ((6000, 2000, 5, 8), "kept"), ((100, 30000, 30000, 4), "kept"))


def test_malloc_trim():
    """The verdict on freed memory: in use, kept or fragmented. What malloc_trim() is said to return is what RSS falls by."""
    for shape, kind in BURSTS:
        p = spawn([python("main"), "-c", BURST, *map(str, shape)])
        p.wait_line("^ready", 60)
        code, out, err = tool("dump", "-p", str(p.pid), "--device", "host", "--format", "json", root=True)
        check(code == 0, "dump ended with %d: %s", code, err)
        host = json.loads(out)["host"]
        verdict, said = host["verdict"], host["parts"]["malloc_trim"]["bytes"]
        equal(verdict["kind"], kind, "%s: %s" % (shape, verdict["sentence"]))
        equal(verdict["confidence"], "high", "%s: confidence" % (shape,))
        equal(verdict["in_use"] + verdict["free"], verdict["resident"], "%s: in use and free" % (shape,))
        p.send()
        fell = int(p.wait_line("^fell", 60).split()[1])
        near(said, fell, "%s: what malloc_trim() returns" % (shape,), 0.02, 32 << 10)
        remedy = [r for r in verdict["remedies"] if r["name"] == "malloc_trim"]
        equal([r["returns"] for r in remedy if r["exact"]], [said] if remedy else [], "%s: the remedy's bytes" % (shape,))
        check(remedy or kind != "kept" or shape[3], "%s: no remedy: %s", shape, verdict)
        p.stop()


def test_untouched_shared_memory():
    """Shared memory that processes map and have not touched is in no RSS: its files count once."""
    p = spawn([python("main"), "-c", MAPS])
    p.wait_line("^ready", 60)
    command = ("dump", "-p", str(p.pid), "--device", "host", "--children")
    code, out, err = tool(*command, "--format", "json", root=True)
    check(code == 0, "dump ended with %d: %s", code, err)
    equal(json.loads(out)["host"]["shared_mapped"], {"files": 4, "bytes": 20 << 20}, "shared memory")
    code, out, err = tool(*command, root=True)
    check(code == 0 and "shared memory: 20.00 MiB in 4 files that the processes map" in out, "text: %d %s%s", code, out, err)


def test_no_python():
    """A process without Python has a ledger, too."""
    p = spawn(["sleep", "60"])
    code, out, err = tool("dump", "-p", str(p.pid), "--device", "host", "--format", "json", root=True)
    check(code == 0, "dump ended with %d: %s", code, err)
    host = json.loads(out)["host"]
    parts = host["parts"]
    equal(sums(parts), host["bytes"], "sum of the parts")
    check(not parts["python"]["known"], "sleep has no Python: %s", parts)
    p.stop()


# argv: MiB of bytes, GiB of reserved addresses, MiB of huge pages
PLAIN = """
import ctypes, mmap, sys
own, reserved, huge = (int(a) for a in sys.argv[1:])
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
kept = [bytes([1]) * (own << 20)]
if reserved:
    assert libc.mmap(None, reserved << 30, 0, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000, -1, 0)
if huge:
    kept.append(mmap.mmap(-1, huge << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x40000))
    for at in range(0, huge << 20, 2 << 20):
        kept[-1][at] = 1
print("ready", flush=True)
sys.stdin.read()
"""


def plain(own, reserved=0, huge=0):
    p = spawn([python("main"), "-c", PLAIN, str(own), str(reserved), str(huge)])
    p.wait_line("^ready", 60)
    return p


def plain_dump(p, env=()):
    code, out, err = tool("dump", "-p", str(p.pid), "--device", "host", "--format", "json", root=True, env=dict(os.environ, **dict(env)))
    check(code == 0, "dump ended with %d: %s", code, err[-800:])
    doc = json.loads(out)["processes"][0]
    equal(sums(doc["parts"]), doc["rss"], "sum of the parts")
    near(doc["rss"], smaps_rss(p.pid), "RSS")
    return doc["parts"]


def test_reserved_addresses():
    """32 TiB of reserved addresses change nothing, on kernels with and without PAGEMAP_SCAN. test_resident.c counts the calls."""
    p = plain(1100, reserved=32 << 10)
    for env in ({}, {"MEMTRACE_BENCH": "no-scan"}):
        parts = plain_dump(p, env)
        near(parts["malloc"]["bytes"], 1100 << 20, "malloc, which has the bytes", 0.02)
    p.stop()


def huge_pages(n):
    """Adds huge pages of 2 MiB to the machine's. The number before; None: not possible here."""
    try:
        with open("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "r+", encoding="ascii") as f:
            before = int(f.read())
            f.write(str(n))
            f.flush()
            f.seek(0)
            got = int(f.read())
            if got >= n:
                return before
            f.write(str(before))
    except OSError:
        pass
    return None


def test_huge_pages_are_not_files():
    """Pages of hugetlbfs are neither part of RSS nor mapped files, in a small process and in a large one."""
    before = huge_pages(32)
    if before is None:
        raise Skip("this machine gives no huge pages")
    try:
        for own in (20, 1100):
            p = plain(own, huge=48)
            for env in ({}, {"MEMTRACE_BENCH": "no-scan"}):
                parts = plain_dump(p, env)
                equal(parts["hugetlb"]["bytes"], 48 << 20, "huge pages")
                check(parts["files"]["bytes"] < 16 << 20, "mapped files: %s", parts["files"])
            p.stop()
    finally:
        huge_pages(before)


if __name__ == "__main__":
    run(globals())

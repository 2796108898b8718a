#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Ways into the dry run other than the dynamic linker: CUDA's runtime linked into a program, and functions of a library's handle; private
pools."""
import glob
import json
import os
import re
import shutil
import subprocess
import sys
import time

import harness
import truth
from harness import (PROGRAMS, Skip, check, equal, nightly, python, record, report, run, scratch, settle, spawn, spawn_job, tool,
                     until_recorded)

MIB = 1 << 20
CONTEXT = 512 * MIB
SOURCE = os.path.join(PROGRAMS, "native", "cuda_memory.c")


def line_of(remark):
    with open(SOURCE, encoding="utf-8") as f:
        return next(n for n, text in enumerate(f, 1) if remark in text)


def cuda_file(name):
    """A file of CUDA from the main environment's packages."""
    found = glob.glob(os.path.join(os.path.dirname(os.path.dirname(python())), "lib", "python3*", "site-packages", "nvidia", "*", "lib", name))
    if not found:
        raise Skip("no %s next to PyTorch" % name)
    return found[0]


def program(name, *options):
    """cuda_memory.c with CUDA's runtime linked in."""
    path = scratch(name)
    done = subprocess.run(["cc", "-O2", "-g", *options, "-o", path, SOURCE, cuda_file("libcudart_static.a"), "-ldl", "-lpthread", "-lrt"],
                          capture_output=True, text=True, check=False)
    equal(done.returncode, 0, "cc: %s" % done.stderr)
    return path


POOLS = """
import sys, torch
x = torch.zeros(1 << 20, device="cuda")
pool = torch.cuda.MemPool()
with torch.cuda.use_mem_pool(pool):
    y = torch.zeros(4 << 20, device="cuda")  # the line of MemPool 1
graph, shared = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    z = x * 2  # the line of CUDA graph 1
handle = torch.cuda.graph_pool_handle()
with torch.cuda.graph(shared, pool=handle):
    v = x * 3  # the line of MemPool 2
print("ids", pool.id, graph.pool(), handle, flush=True)
print("done", flush=True)
sys.stdin.readline()
"""


def test_private_pools():
    """Pools of graphs and of MemPool by the line that first took memory for each, at the peak."""
    script = scratch("pools.py")
    with open(script, "w", encoding="utf-8") as f:
        f.write(POOLS)
    path = scratch("pools.mtr")
    job = spawn([harness.TOOL, "run", "--dry-run-cuda", "-o", path, "--", python(), script], root=True)
    job.wait_line("^done", 120)
    equal(re.findall(r"\d+, \d+", job.wait_line("^ids", 5)), ["0, 1", "1, 0", "0, 2"], "PyTorch's ids")
    until_recorded(path, lambda doc: len(reconciled(doc)["pools"]) == 3, "a reading of the allocator's tables")
    job.send()
    equal(job.wait(60), 0, "exit code (%s)" % job.stderr()[-300:])
    lines = {text.split("# the line of ")[1]: n for n, text in enumerate(POOLS.split("\n"), 1) if "# the line of" in text}
    doc = json.loads(tool("report", path, "--format", "json")[1])
    pools = harness.device(doc, "cuda:0")["reconciliation"]["pools"]
    equal({p["pool"]: (p["kind"], p["first_taken_by"]["line"], p["allocated"]) for p in pools},
          {"0,1": ("mempool", lines["MemPool 1"], 16 * MIB), "1,0": ("graph", lines["CUDA graph 1"], 4 * MIB),
           "0,2": ("mempool", lines["MemPool 2"], 4 * MIB)}, "pools")
    code, out, err = tool("report", path, "--by", "segment")
    equal((code, err), (0, ""), "report")
    check(re.search(r"16\.00 MiB +16\.00 MiB +1 +MemPool 1 +\S*pools\.py:%d" % lines["MemPool 1"], out), "no row of the pool: %s", out)


UNUSED = """
import json, os, sys, torch
x = torch.zeros(1 << 20, device="cuda")
graph, pool = torch.cuda.CUDAGraph(), torch.cuda.MemPool()
with torch.cuda.graph(graph):
    z = x * 2
    t = z * 3
    u = torch.cat([t, t, t, t, t, t, t, t])
del t, u
with torch.cuda.use_mem_pool(pool):
    v = torch.zeros(4 << 20, device="cuda")
del v
cached = torch.zeros(8 << 20, device="cuda")
del cached
before = torch.cuda.memory_reserved()
torch.cuda.empty_cache()
print(json.dumps({"reserved": torch.cuda.memory_reserved(), "allocated": torch.cuda.memory_allocated(), "returned": before - torch.cuda.memory_reserved()}), flush=True)
print("done", flush=True)
sys.stdin.readline()
os._exit(0)
"""


def test_unused_private_pools():
    """Memory that private pools keep without blocks: PyTorch's empty_cache() does not return it, and the report says whose it is."""
    script = scratch("unused.py")
    with open(script, "w", encoding="utf-8") as f:
        f.write(UNUSED)
    path = scratch("unused.mtr")
    job = spawn([harness.TOOL, "run", "--dry-run-cuda", "-o", path, "--", python(), script], root=True)
    own = json.loads(job.wait_line("^{", 120))
    until_recorded(path, lambda doc: doc["categories"]["private_pool"] == 4 * MIB and len(reconciled(doc)["pools"]) == 2,
                   "a reading of the allocator's tables after both pools", "--at", "end")
    job.send()
    equal(job.wait(60), 0, "exit code (%s)" % job.stderr()[-300:])
    check(own["returned"] >= 32 * MIB, "empty_cache() returned %d", own["returned"])
    doc = json.loads(tool("report", path, "--at", "end", "--format", "json")[1])
    equal(doc["categories"]["private_pool"], 4 * MIB, "role: %s" % doc["categories"])
    r = harness.device(doc, "cuda:0")["reconciliation"]
    s, pools = r["segments"], {p["kind"]: p for p in r["pools"]}
    equal((r["reserved"], r["allocated"], sorted(pools)), (own["reserved"], own["allocated"], ["graph", "mempool"]), "the allocator's own figures")
    equal((pools["mempool"]["free"], pools["mempool"]["empty"]), (pools["mempool"]["size"], pools["mempool"]["size"]), "an empty pool")
    check(pools["graph"]["free"] >= 32 * MIB, "the pool of a graph whose temporary memory is free: %s", pools["graph"])
    equal(s["private"], sum(p["free"] for p in pools.values()), "free in private pools")
    equal(r["cached"], s["releasable"] + s["stuck"] + s["private"] + s["pending"], "cached memory, in parts")
    equal(s["releasable"], 0, "what empty_cache() could still return: %s" % s)
    for options in ((), ("--by", "segment")):
        code, out, err = tool("report", path, "--at", "end", *options)
        equal((code, err), (0, ""), "report")
        check(options or re.search(r"private pool +4\.00 MiB", out), "no role: %s", out)
        for kind in ("CUDA graphs", "MemPools"):
            check("cached for %s only" % kind in out, "%s is not in the report: %s", kind, out)


SLEEPY = """
import ctypes, sys, torch
MIB = 1 << 20
def say(*what):
    print(*what, flush=True)
    sys.stdin.readline()
x = torch.empty(4 * MIB, dtype=torch.uint8, device="cuda")
allocator = torch.cuda.memory.CUDAPluggableAllocator(sys.argv[1], "sleepy_alloc", "sleepy_free")
pool = torch.cuda.MemPool(allocator.allocator())
with torch.cuda.use_mem_pool(pool):
    weights = torch.empty(60 * MIB, dtype=torch.uint8, device="cuda")
y = torch.empty(20 * MIB, dtype=torch.uint8, device="cuda")
lib = ctypes.CDLL(sys.argv[1])
say("up")
del y
say("asleep", lib.sleepy_sleep())
say("awake", lib.sleepy_wake(0, 64))
"""


def reconciled(doc):
    return harness.device(doc, "cuda:0")["reconciliation"]


def until_tables(path, marks_there):
    """The allocator's tables, which are read each second, have been read, and so many sleeps and wake-ups were found there."""
    until_recorded(path, lambda doc: reconciled(doc)["segments"] and len(doc["capture"].get("marks", ())) == marks_there,
                   "a reading of the allocator's tables, %d marks" % marks_there, "--at", "end")


def test_sleep():
    """Memory that other code unmaps below live tensors, as vLLM's sleep mode does, is called that; figures add up to the driver's."""
    script = scratch("sleepy.py")
    with open(script, "w", encoding="utf-8") as f:
        f.write(SLEEPY)
    path = scratch("sleepy.mtr")
    job = spawn([harness.TOOL, "run", "--dry-run-cuda", "-o", path, "--", python(), script, harness.compiled("sleepy_pool")], root=True)
    for i, word in enumerate(("up", "asleep", "awake")):
        line = job.wait_line("^" + word, 120).strip()
        check(word == "up" or line == word + " 1", "CUDA's answer: %s", line)
        until_tables(path, i)
        job.send()
    equal(job.wait(60), 0, "exit code (%s)" % job.stderr()[-300:])
    first = json.loads(tool("report", path, "--format", "json")[1])  # the peak is before the sleep
    peak = harness.device(first, "cuda:0")["reconciliation"]
    equal(peak["segments"]["unmapped"], None, "unmapped at the peak")
    asleep = json.loads(tool("report", path, "--format", "json", "--at", "mark:memory unmapped*")[1])
    r = harness.device(asleep, "cuda:0")["reconciliation"]
    unmapped = r["segments"]["unmapped"]
    check(unmapped, "nothing is unmapped: %s", r)
    equal((unmapped["bytes"], unmapped["blocks_bytes"], unmapped["blocks"]), (60 * MIB, 60 * MIB, 1), "unmapped")
    for what in (peak, r):
        equal((what["not_seen"], what["others"]["bytes"], what["adds_up"]), (CONTEXT, 0, True), "the rest, and other code: %s" % what)
    awake = harness.device(json.loads(tool("report", path, "--format", "json", "--at", "mark:memory mapped again*")[1]), "cuda:0")
    equal(awake["reconciliation"]["segments"]["unmapped"], None, "unmapped after the wake-up")
    equal([(p["pool"], p["allocated"]) for p in awake["reconciliation"]["pools"]], [("0,1", 60 * MIB)], "pools after the wake-up")
    equal([name for _, name in marks(path)], ["memory unmapped: 60.00 MiB (sleep)", "memory mapped again: 60.00 MiB (wake-up)"], "marks")
    doc = json.loads(tool("report", path, "--format", "json", "--at", "mark:memory unmapped*")[1])
    equal([(m["time"], m["name"]) for m in doc["capture"]["marks"]], marks(path), "marks in the report")
    check(re.search(r"^ *Marks +memory unmapped: 60\.00 MiB \(sleep\) at .*, memory mapped", tool("report", path)[1], re.M), "marks in the text")
    equal((doc["at"], doc["time"]), ("time", marks(path)[0][0]), "moment of the mark")
    at_mark = harness.device(doc, "cuda:0")["reconciliation"]["segments"]["unmapped"]
    equal((at_mark["bytes"], at_mark["blocks"]), (60 * MIB, 1), "unmapped at the mark")
    code, out, err = tool("diff", "--at", "mark:memory unmapped*,mark:memory mapped again: 60.00 MiB (wake-up)", path, path)
    said = re.search(r"At ([\d.]+) s, then at ([\d.]+) s: ", out)
    check(code == 0 and said and all(abs(float(text) - when) < 0.06 for text, (when, _) in zip(said.groups(), marks(path))), "diff of two marks: %d, %s%s", code, out, err)
    code, _, err = tool("report", path, "--at", "mark:lunch")
    check(code == 2 and "no mark 'lunch'; the first marks are 'memory unmapped: 60.00 MiB (sleep)', 'memory mapped" in err, "%d, %s", code, err)


def marks(path):
    """Time and name of each mark in a recording."""
    lines = [json.loads(line) for line in tool("export", "ndjson", path, "-o", "-")[1].splitlines()]
    return [(line["time"], line["name"]) for line in lines if line.get("event") == "mark"]


TAGS = """
import ctypes, sys, torch
def say(*what):
    print(*what, flush=True)
    sys.stdin.readline()
allocator = torch.cuda.memory.CUDAPluggableAllocator(sys.argv[1], "sleepy_alloc", "sleepy_free")
pool = torch.cuda.MemPool(allocator.allocator())
with torch.cuda.use_mem_pool(pool):
    weights = [torch.empty((20 + 2 * i) << 20, dtype=torch.uint8, device="cuda") for i in range(30)]
    cache = [torch.empty(100 << 20, dtype=torch.uint8, device="cuda") for i in range(2)]
def mib(tensors):
    return sum(t.numel() for t in tensors) >> 20
lib = ctypes.CDLL(sys.argv[1])
say("up", 0, 0)
for turn in "first", "second":
    say(turn, lib.sleepy_sleep(), mib(weights + cache))
    say("weights", lib.sleepy_wake(0, 30), mib(weights))
    say("cache", lib.sleepy_wake(30, 64), mib(cache))
del cache
torch.cuda.empty_cache()
say("freed", 0, 0)
"""


@nightly("long")
def test_sleep_tags():
    """One mark a sleep and one a wake-up, also of a server that was up at the attach and wakes in two parts; none for memory that is freed."""
    script = scratch("tags.py")
    with open(script, "w", encoding="utf-8") as f:
        f.write(TAGS)
    path = scratch("tags.mtr")
    job = spawn_job([python(), script, harness.compiled("sleepy_pool")], env=truth.dry_run())
    job.wait_line("^up", 120)
    recorder = record(job.pid, path)
    until_tables(path, 0)
    said = []
    for i, (word, ranges) in enumerate([("first", 32), ("weights", 30), ("cache", 2), ("second", 32), ("weights", 30), ("cache", 2)], 1):
        job.send()
        what, n, mib = job.wait_line("^" + word, 60).split()
        equal((what, int(n)), (word, ranges), "ranges, or CUDA's error")
        said.append(int(mib))
        until_tables(path, i)
    job.send()
    job.wait_line("^freed", 60)
    time.sleep(1.5)
    harness.finish(recorder)
    job.send()
    all_of_it, weights, cache = said[:3]
    one_turn = ["memory unmapped: %s (sleep)" % size(all_of_it), "memory mapped again: %s of %s (wake-up)" % (size(weights), size(all_of_it)),
                "memory mapped again: %s (wake-up)" % size(cache)]
    equal([name for _, name in marks(path)], one_turn * 2, "marks")


def size(mib):
    return "%.2f GiB" % (mib / 1024) if mib >= 1024 else "%.2f MiB" % mib


def test_linked_runtime():
    """Figures by line, to the byte, of a program with CUDA's runtime in it."""
    job = spawn([program("linked")], env=truth.dry_run())
    path = scratch("linked.mtr")
    job.send()  # the runtime opens CUDA's driver at its first call
    job.wait_line("done")
    recorder = record(job.pid, path)
    recorder.wait_line("uses CUDA without PyTorch: recording its calls into CUDA", stream="err")
    job.send()
    job.wait_line("done")
    settle(recorder)
    job.stop()
    equal(recorder.wait(), 0, "exit code of record")
    doc = report(path)
    equal({(r["function"], os.path.basename(r["file"]), r["line"]): r["bytes"] for r in doc["rows"]},
          {("alpha", "cuda_memory.c", line_of("the line of alpha")): 300 * MIB, ("beta", "cuda_memory.c", line_of("the line of beta")): 20 * MIB}, "rows")
    device = harness.device(doc, "cuda:0")
    equal((device["allocated"], device["peak_allocated"]), (320 * MIB, 350 * MIB), "allocated and peak")


def test_stripped():
    """Without a symbol table its functions are unknown: it fails, and prints the reason once."""
    done = subprocess.run([program("stripped", "-s")], input="\n", env=truth.dry_run(), capture_output=True, text=True, timeout=60, check=False)
    equal((done.returncode, done.stdout), (1, ""), "what the program does")
    equal(done.stderr.count("\n"), 1, "lines: %s" % done.stderr)
    check("NVIDIA's own CUDA runtime in %s" % scratch("stripped") in done.stderr and "do not strip" in done.stderr, "the message: %s", done.stderr)


BY_HANDLE = """
import ctypes, json, sys
lib = ctypes.CDLL(sys.argv[1])
at, free, total, left = ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_size_t(), ctypes.c_int()
calls = [lib.cudaMalloc(ctypes.byref(at), ctypes.c_size_t(64 << 20)), lib.cudaMemGetInfo(ctypes.byref(free), ctypes.byref(total))]
calls.append(lib.cudaRuntimeGetVersion(ctypes.byref(left)))
other = ctypes.CDLL(None)
missing = 0
try:
    lib.cudaNothing
except AttributeError as e:
    missing = "cudaNothing" in str(e)
print(json.dumps({"calls": calls, "used": total.value - free.value, "version": left.value // 1000, "missing": missing, "libc": other.getpid() > 0}))
"""


def test_by_handle():
    """vLLM opens the runtime with ctypes: the first one that the process has, such as the copy in torchvision's wheel."""
    library = cuda_file("libcudart.so.1[0-9]")
    version = library.rpartition(".")[2]
    for copy in (None, "libcudart.faf08d9a.so." + version, "libcudart-faf08d9a.so." + version):
        path = shutil.copyfile(library, scratch(copy)) if copy else library
        done = subprocess.run([sys.executable, "-c", BY_HANDLE, path], env=truth.dry_run(), capture_output=True, text=True, timeout=60, check=False)
        equal(done.returncode, 0, "exit code of %s: %s" % (path, done.stderr))
        equal(json.loads(done.stdout), {"calls": [0, 0, 0], "used": CONTEXT + 64 * MIB, "version": int(version), "missing": True, "libc": True}, path)


LIBRARY = """
import ctypes, json, sys
cuda = ctypes.CDLL(sys.argv[1])
V, ref = ctypes.c_void_p, ctypes.byref
context, library, kernel, function, module, most = V(), V(), V(), V(), V(), ctypes.c_int()
linker, image, size = V(), V(), ctypes.c_size_t()
calls = [cuda.cuInit(0), cuda.cuDevicePrimaryCtxRetain(ref(context), 0), cuda.cuCtxSetCurrent(context),
         cuda.cuLinkCreate_v2(0, None, None, ref(linker)), cuda.cuLinkAddData_v2(linker, 1, b"code", 5, b"name", 0, None, None),
         cuda.cuLinkComplete(linker, ref(image), ref(size)),
         cuda.cuLibraryLoadData(ref(library), image, None, None, 0, None, None, 0), cuda.cuLibraryGetKernel(ref(kernel), library, b"add"),
         cuda.cuKernelGetFunction(ref(function), kernel), cuda.cuLibraryGetModule(ref(module), library), cuda.cuKernelGetAttribute(ref(most), 0, kernel, 0),
         cuda.cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, None, None, None), cuda.cuLaunchKernel(kernel, 1, 1, 1, 32, 1, 1, 0, None, None, None),
         cuda.cuLibraryUnload(library), cuda.cuLinkDestroy(linker)]
print(json.dumps({"calls": calls, "threads": most.value, "linked": ctypes.string_at(image, size.value)[:4] == b"\x7fELF", "refused": cuda.cuKernelGetAttribute(ref(most), 0, kernel, 7)}))
"""


def test_libraries_of_kernels():
    """numba and cuda.core link code, load it as libraries and launch their kernels."""
    done = subprocess.run([sys.executable, "-c", LIBRARY, os.path.join(harness.OUT, "dryrun", "libcuda.so.1")], env=truth.dry_run(), capture_output=True,
                          text=True, timeout=60, check=False)
    equal((done.returncode, done.stderr), (0, ""), "exit code and messages")
    equal(json.loads(done.stdout), {"calls": [0] * 15, "threads": 1024, "linked": True, "refused": 101}, "results")


NODES = """
import json, os, stat
def of(path):
    try:
        st = os.stat(path)
    except OSError as e:
        return e.errno
    return [stat.S_ISCHR(st.st_mode), os.major(st.st_rdev), os.minor(st.st_rdev)]
names = ["nvidia0", "nvidia1", "nvidia2", "nvidiactl", "nvidia0x", "nvidia", "null"]
print(json.dumps([[of("/dev/" + n) for n in names], [os.path.exists("/dev/" + n) for n in names], [os.access("/dev/" + n, os.R_OK) for n in names]]))
"""


def test_device_files():
    """JAX looks for NVIDIA's device files before it loads CUDA. They exist for the process alone."""
    there = [True, True, False, True, False, False, True]
    for interpreter in (sys.executable, python()):
        done = subprocess.run([interpreter, "-c", NODES], env=dict(truth.dry_run(), MEMTRACE_DRYRUN_DEVICES="2"), capture_output=True, text=True,
                              timeout=60, check=False)
        equal(done.returncode, 0, "exit code: %s" % done.stderr)
        equal(json.loads(done.stdout), [[[True, 195, 0], [True, 195, 1], 2, [True, 195, 255], 2, 2, [True, 1, 3]], there, there], interpreter)


VERSIONS = """
import ctypes, json, sys
cuda, out = ctypes.CDLL(sys.argv[1]), []
for path, ask, part_of, times in ((sys.argv[2], "cublasGetVersion_v2", "cublasGetProperty", 10000),
                                  (sys.argv[3], "cusparseGetVersion", "cusparseGetProperty", 1000)):
    number, parts = ctypes.c_int(), [ctypes.c_int() for _ in range(3)]
    before = getattr(cuda, ask)(None, ctypes.byref(number))
    library = ctypes.CDLL(path)  # local to this handle
    calls = [getattr(cuda, ask)(None, ctypes.byref(number))] + [getattr(library, part_of)(i, ctypes.byref(p)) for i, p in enumerate(parts)]
    major, minor, patch = (p.value for p in parts)
    out.append([before != 0, calls, number.value == major * times + minor * 100 + patch, major > 10])
number = ctypes.c_uint32()
out.append([cuda.cuptiGetVersion(ctypes.byref(number)), number.value])
print(json.dumps(out))
"""


def test_versions_of_libraries():
    """JAX asks the libraries for their versions before it uses a device."""
    done = subprocess.run([sys.executable, "-c", VERSIONS, os.path.join(harness.OUT, "dryrun", "libcuda.so.1"), cuda_file("libcublas.so.1[0-9]"),
                           cuda_file("libcusparse.so.1[0-9]")], env=truth.dry_run(), capture_output=True, text=True, timeout=60, check=False)
    equal(done.returncode, 0, "exit code: %s" % done.stderr)
    equal(json.loads(done.stdout), [[True, [0] * 4, True, True]] * 2 + [[0, 130200]], "results")


def test_next():
    """dlsym(RTLD_NEXT) sees its caller."""
    path = scratch("next")
    done = subprocess.run(["cc", "-O2", "-o", path, os.path.join(PROGRAMS, "native", "next.c"), "-ldl"], capture_output=True, text=True, check=False)
    equal(done.returncode, 0, "cc: %s" % done.stderr)
    for env in (None, truth.dry_run()):
        done = subprocess.run([path], env=env, capture_output=True, text=True, timeout=60, check=False)
        equal((done.returncode, done.stdout), (0, "1\n"), "with and without the dry run")


if __name__ == "__main__":
    run(globals())

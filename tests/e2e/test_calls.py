#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# run: long probes-all cpu=80
"""Calls into CUDA's runtime and driver: the recording equals the program's own list of allocations and frees, in order. Covers
the real runtime without a GPU, where every call fails; the dry run's libraries, where calls succeed; a fake library for rare
cases; and PyTorch's allocators that pass on CUDA's memory."""
import collections
import glob
import json
import os
import re
from concurrent.futures import ThreadPoolExecutor

import harness
import mtr_reader
import truth
from harness import (Skip, check, compiled, equal, nightly, own, python, record, report, run, scratch, spawn, spawn_job,
                     until_recorded)

DEVICE, ASYNC, MANAGED, HOST, _, PHYSICAL = range(1, 7)  # enum mem_how
OF_CURRENT_DEVICE = (DEVICE, ASYNC, MANAGED)
UNKNOWN = 255
BY_ALLOCATOR = 1  # enum mem_flag
CALLING_LINE = next(n for n, text in enumerate(open(os.path.join(harness.WORKLOADS, "cuda_calls.py"), encoding="utf-8"), 1)
                    if "getattr(lib, function)()" in text)
# Functions that CUDA 12 and 13 runtimes have among the probed ones.
RUNTIME = ("cudaMalloc", "cudaMallocPitch", "cudaMalloc3D", "cudaFree", "cudaMallocAsync", "cudaMallocAsync_ptsz",
           "cudaMallocFromPoolAsync", "cudaMallocFromPoolAsync_ptsz", "cudaFreeAsync", "cudaFreeAsync_ptsz", "cudaMallocManaged",
           "cudaHostAlloc", "cudaMallocHost", "cudaFreeHost", "cudaHostRegister", "cudaHostUnregister", "cudaSetDevice")
NOT_CALLED = ("cudaMemPoolCreate", "cudaDeviceReset")  # exist, but cuda_refused() does not call them
NOT_PROBED = ("cudaDeviceGetDefaultMemPool", "cudaSetDevice")  # the second only at its entry


def environment(dry=True, devices=1, backend="native"):
    env = truth.dry_run(backend, devices=devices)
    if not dry:
        del env["LD_PRELOAD"]
    return env


def wheel(role, *parts):
    """CUDA's runtime library of that role's PyTorch."""
    home = os.path.dirname(os.path.dirname(python(role)))
    found = glob.glob(os.path.join(home, "lib", "python3.*", "site-packages", "nvidia", *parts))
    if not found:
        raise Skip("no %s in the environment %s" % (parts[-1], role))
    return os.path.realpath(found[0])


def real_runtime(role):
    return wheel(role, "cu13", "lib", "libcudart.so.13") if role == "main" else wheel(role, "cuda_runtime", "lib", "libcudart.so.12")


def fake(as_name="cuda_fake"):
    return compiled("cuda_fake", as_name, ("-Wl,-Bsymbolic",))  # binds to its own functions, not to those of PyTorch's libraries


def both(*functions):
    """Concurrently, because both mostly wait for PyTorch's import."""
    with ThreadPoolExecutor(len(functions)) as pool:
        for done in [pool.submit(f) for f in functions]:
            done.result()


class Said:
    """The program's output: events in order, and counts of failed and missing functions."""

    def __init__(self, text):
        self.events, self.failed, self.missing = [], collections.Counter(), set()
        for line in text.splitlines():
            what, *rest = line.split()
            if what in ("take", "give"):
                how, addr, size, device = rest
                self.events.append((what, int(how), int(addr, 16), int(size), int(device)))
            elif what == "failed":
                self.failed[rest[0]] += 1
            elif what == "missing":
                self.missing.add(rest[0])

    def with_no_device(self):
        """The event as recorded when the current device is unknown."""
        return [(*e[:4], UNKNOWN) if e[1] in OF_CURRENT_DEVICE else e for e in self.events]


class Recorded:
    def __init__(self, path):
        own(path)
        self.path = path
        with open(path, "rb") as f:
            self.reader = mtr_reader.Recording(f)
            self.all = list(self.reader.events())
        self.facts = self.reader.facts
        check(self.reader.complete, "the recording is not complete")
        equal(self.facts["lost"], "0", "lost")

    def of(self, *kinds):
        return [e for e in self.all if mtr_reader.KINDS[e["kind"]] in kinds]

    def calls(self):
        return [(mtr_reader.KINDS[e["kind"]], e["how"], e["addr"], e["size"], e["index"]) for e in self.of("take", "give")]

    def counted(self, prefix):
        begin = "counter.%s." % prefix
        return collections.Counter({k[len(begin):]: int(v) for k, v in self.facts.items() if k.startswith(begin)})

    def counter(self, name):
        return int(self.facts.get("counter." + name, 0))

    def innermost(self, event):
        """file, line, function of an event's stack; None: no stack."""
        frames = self.reader.stacks[event["stack"]][1]
        if not frames:
            return None
        file, function, line = self.reader.locations[frames[0][0]]
        return os.path.basename(self.reader.strings[file]), line, self.reader.strings[function]


def calls(name, jobs, early=None, env=None, bypassed=False):
    """Runs cuda_calls.py, traced from before the first call; jobs: (function, runtime, driver); the first `early` ones are loaded before attach. Returns its output and the recording."""
    path = scratch(name + ".mtr")
    p = spawn_job([python(), os.path.join(harness.WORKLOADS, "cuda_calls.py"), compiled("cuda_calls"),
               str(len(jobs) if early is None else early), *(word for job in jobs for word in job)], env=env or environment())
    p.wait_line("^ready", 60)
    recorder = record(p.popen.pid, path, "-v")
    p.send()
    p.wait_line("^loaded", 30)
    for library in {file for job in jobs for file in job[1:]} - {""}:
        recorder.wait_line("CUDA functions probed in %s$" % re.escape(library), 30, stream="err")
    p.send()
    p.wait_line("^done", 30)
    p.send()
    equal(p.wait(30), 0, "exit code of %s (%s)" % (name, p.stderr()))
    equal(recorder.wait(30), 0, "exit code of record (%s)" % recorder.stderr())
    said, recorded = Said(p.stdout()), Recorded(path)
    agree(said, recorded, bypassed)
    return said, recorded, recorder.stderr()


def agree(said, recorded, bypassed=False):
    """Holds for all runs: failed calls are counted by function, all others are recorded."""
    failed = recorded.counted("calls_failed")
    equal(failed, collections.Counter({k: n for k, n in said.failed.items() if k not in NOT_PROBED}), "failed calls")
    equal(sum(recorded.counted("calls").values()) + sum(failed.values()), recorded.counter("hits.cuda_call"), "calls, of all records")
    equal(recorded.facts.get("driver_bypassed"), "1" if bypassed else None, "calls that bypass the probes")
    for what in ("calls_faults", "calls_unreadable", "calls_forgotten", "calls_replaced", "lost.cuda_call"):
        equal(recorded.counter(what), 0, what)


# ---- the real runtime, with no GPU ------------------------------------------------------------------------

def no_gpu(first, *later):
    """The runtimes of wheels in one process, all but the first loaded after attach. All calls fail, and all are counted."""
    jobs = [("cuda_refused", first, ""), ("cuda_calls", first, ""), *(("cuda_refused", runtime, "") for runtime in later)]
    said, recorded, words = calls("no-gpu", jobs, 2, environment(dry=False))
    for runtime in (first, *later):
        check("%d CUDA functions probed in %s\n" % (len(RUNTIME + NOT_CALLED), runtime) in words, "not all functions of %s: %s", runtime, words)
    equal(set(recorded.counted("calls_failed")), set(RUNTIME) - {"cudaSetDevice"}, "functions that were called")
    equal((said.failed["cudaMalloc"], said.failed["cudaFreeAsync_ptsz"]), (1 + 8 + len(later), 1 + len(later)), "failed calls of two functions")
    equal((recorded.of("take", "give", "alloc"), recorded.counted("calls")), ([], {}), "taken")


def test_no_gpu():
    no_gpu(real_runtime("main"))


@nightly("versions")
def test_no_gpu_of_versions():
    no_gpu(real_runtime("main"), real_runtime("cu12"))


@nightly("versions")
def test_mapped_meanwhile():
    """The loader maps the rest of a runtime between two of its probes, so the first mapping ends elsewhere: all are there."""
    runtime = real_runtime("cu12")
    p = spawn_job([python(), os.path.join(harness.WORKLOADS, "cuda_mapped_late.py"), runtime], env=environment(dry=False))
    p.wait_line("^ready", 60)
    recorder = record(p.popen.pid, scratch("mapped-meanwhile.mtr"), "-v")
    p.send()
    p.wait_line("^mapped", 60)
    recorder.wait_line("CUDA functions probed in %s$|calls into %s" % (2 * (re.escape(runtime),)), 30, stream="err")
    p.send()
    equal((p.wait(30), recorder.wait(30)), (0, 0), "exit codes (%s)" % p.stderr())
    check("%d CUDA functions probed in %s\n" % (len(RUNTIME + NOT_CALLED), runtime) in recorder.stderr(), "probes: %s", recorder.stderr())


# ---- calls that succeed -----------------------------------------------------------------------------------

def dry_run(*runtimes):
    """In one process: runtimes of wheels, the dry run's, and one in two files, of which the second is loaded during the
    capture."""
    jobs = [*(("cuda_calls", runtime, "") for runtime in runtimes), ("cuda_calls", "", ""), ("cuda_calls", fake(), fake()),
            ("cuda_calls", fake("cuda_fake_2"), fake("cuda_fake_2"))]
    said, recorded, _ = calls("dry", jobs, len(jobs) - 1)
    check(len(said.events) > 100 and {e[1] for e in said.events} == set(range(1, 9)), "the program did little: %s", said.events)
    equal(recorded.calls(), said.events, "what was taken and given back")
    equal(recorded.facts.get("device.0.total"), str(80 << 30), "memory of the device")
    takes = recorded.of("take")
    for e in takes:
        if e["thread"] == takes[0]["thread"]:
            equal(recorded.innermost(e), ("cuda_calls.py", CALLING_LINE, "<module>"), "line of the call")
        else:
            equal((e["stack"], e["how"], e["size"]), (0, DEVICE, 4096), "of a thread without Python")
    equal(sum(e["thread"] != takes[0]["thread"] for e in takes), 4 * len(jobs), "taken by threads")


def test_dry_run():
    dry_run()


@nightly("versions")
def test_dry_run_of_versions():
    dry_run(real_runtime("cu12"))


def test_fake():
    """Inner calls and tail calls count once. Calls left by longjmp, or ended with their thread, hide no later ones, and the
    process survives. The device is unknown."""
    said, recorded, _ = calls("fake", [("cuda_calls", fake(), fake()), ("cuda_odd", fake(), fake())], 0, environment(dry=False))
    check(any(e[1:4:2] == (ASYNC, 6000) for e in said.events), "no jump: %s", said.events)
    check(any(e[3] == 15 * 1024 for e in said.events), "no cudaMalloc3D: %s", said.events)
    check(said.events[-1][1:4:2] == (MANAGED, 3000), "not to the end: %s", said.events)
    equal(recorded.calls(), said.with_no_device(), "what was taken and given back")
    counted, failed = recorded.counted("calls"), recorded.counted("calls_failed")
    equal((counted["cuMemAlloc_v2"], counted["cuMemFree_v2"]), (1, 1), "calls of the driver that nobody else made")
    # cudaMalloc calls the driver, and so does cudaFree except for NULL; two are tail calls.
    equal(recorded.counter("calls_inner"), counted["cudaMalloc"] + failed["cudaMalloc"] + counted["cudaFree"] - 1 + 2, "inner calls")
    equal(recorded.counter("calls_stale"), 3, "calls that were left")


def two_devices_attached():
    said, recorded, _ = calls("devices", [("cuda_devices", "", "")], env=environment(devices=2))
    equal({e[4] for e in said.events}, {0, 1, UNKNOWN}, "devices in the program's own account")
    equal(recorded.calls(), said.events, "what was taken and given back")


def two_devices_from_the_start():
    """Recorded from the start of a thread, its first device is known."""
    path = scratch("from-start.mtr")
    p = spawn([harness.TOOL, "run", "-o", path, "-f", "--dry-run-cuda", "--devices", "2", "--", python(),
               os.path.join(harness.WORKLOADS, "cuda_calls.py"), compiled("cuda_calls"), "1", "cuda_devices", "", ""], root=True,
              env=environment(dry=False, devices=2))
    for line in ("ready", "loaded", "done"):
        p.wait_line("^%s" % line, 60)
        p.send()
    equal(p.wait(30), 0, "exit code (%s)" % p.stderr())
    said, recorded = Said(p.stdout()), Recorded(path)
    equal(recorded.facts["attached_at"], "start", "attached")
    agree(said, recorded)
    equal(recorded.calls(), [(*e[:4], 0) if e[4] == UNKNOWN else e for e in said.events], "what was taken and given back")


def test_two_devices():
    compiled("cuda_calls")
    both(two_devices_attached, two_devices_from_the_start)


def test_places():
    """Host memory is not device memory, whichever function returns it; another process's memory counts there."""
    said, recorded, _ = calls("places", [("cuda_places", "", ""), ("cuda_by_address", "", "")])
    check({HOST, MANAGED, ASYNC, PHYSICAL} <= {e[1] for e in said.events}, "the program did little: %s", said.events)
    equal(recorded.calls(), said.events, "what was taken and given back")
    equal(recorded.counted("calls")["cuMemAllocAsync_ptsz"], 1, "calls of the form for a default stream per thread")
    equal(recorded.counted("calls")["cuMemImportFromShareableHandle"], 1, "imported")


def test_contexts():
    """Destroying a context frees its memory and nothing else; the current context determines the device."""
    said, recorded, _ = calls("contexts", [("cuda_contexts", "", ""), ("cuda_reset", "", "")], env=environment(devices=2))
    check(len(said.events) > 40, "the program did little: %s", said.events)
    equal(sorted(recorded.calls()), sorted(said.events), "what was taken and given back")
    said, recorded, _ = calls("own-context", [("cuda_own_context", fake(), fake())], env=environment(dry=False))
    equal(sorted(recorded.calls()), sorted(said.events), "with a context of its own")


def test_bypassed():
    """A driver that returns functions other than its exports: the recorder reports that it misses them."""
    jobs = [("cuda_many", compiled("cuda_by_address"), "")]
    _, recorded, _ = calls("not-bypassed", jobs)
    equal((recorded.counted("calls")["cudaMalloc"], recorded.counter("calls_inner")), (12, 36), "calls, and the driver's in them")
    said, recorded, words = calls("bypassed", jobs, bypassed=True, env=dict(environment(), MEMTRACE_DRYRUN_BYPASS="1"))
    equal((recorded.calls(), recorded.counter("calls_inner")), (said.events, 12), "what the runtime itself took")
    check("bypass the probes" in words, "nothing said: %s", words)
    code, out, err = harness.tool("report", recorded.path)
    check(code == 0 and "bypass" in out, "nothing in the report: %s %s", out, err)
    equal(report(recorded.path)["capture"]["driver_bypassed"], True, "in the report's JSON")


def test_two_pytorchs():
    """A C++ library contains its own PyTorch: its allocator's memory is no segment of Python's PyTorch."""
    os.makedirs(scratch("other/torch/lib"), exist_ok=True)
    path, library = scratch("two-pytorchs.mtr"), compiled("other_torch", "other/torch/lib/libc10_cuda")
    p = spawn_job([python(), os.path.join(harness.WORKLOADS, "cuda_calls.py"), library, "0", "cuda_other"], env=environment())
    p.wait_line("^ready", 60)
    recorder = record(p.popen.pid, path)
    for line in ("loaded", "done"):
        p.send()
        p.wait_line("^" + line, 30)
    p.send()
    equal((p.wait(30), recorder.wait(30)), (0, 0), "exit codes (%s, %s)" % (p.stderr(), recorder.stderr()))
    takes = Recorded(path).of("take")
    equal([(e["how"], e["size"], e["flags"] & BY_ALLOCATOR) for e in takes], [(DEVICE, 3 << 20, 0)], "taken: how, size, by PyTorch's allocator")


# ---- the driver's figure ----------------------------------------------------------------------------------

CONTEXT = 300 << 20


def used_at(doc):
    """What the driver says that the job uses without its context, and what was recorded of that."""
    sums = harness.device(doc, "cuda:0")["reconciliation"]
    return sums["used"] - CONTEXT, sums["used_reserved"] + sums["used_others"]


def test_used():
    """A job that takes 13 GiB at once: the driver's figure is recorded at the right event, and is the peak's."""
    path = scratch("grow.mtr")
    p = spawn_job([python(), os.path.join(harness.WORKLOADS, "cuda_grow.py"), "600"],
              env=dict(environment(), MEMTRACE_DRYRUN_CONTEXT=str(CONTEXT)))
    before = json.loads(p.wait_line("^ready", 60)[len("ready"):])
    recorder = record(p.popen.pid, path)
    p.send()
    peak = json.loads(p.wait_line("^peak", 30)[len("peak"):])
    top = peak["reserved"] + peak["others"]
    for at, line in (("peak", "^done"), ("end", None)):
        # Of the last reading: the figure is there once the memory did not change any more.
        until_recorded(path, lambda doc: used_at(doc)[0] == used_at(doc)[1] and (used_at(doc)[1] == top) == (at == "peak"), "the figure at the " + at, "--at", at)
        p.send()
        if line:
            p.wait_line(line, 30)
    equal((p.wait(30), recorder.wait(30)), (0, 0), "exit codes")
    recorded, below, used = Recorded(path), before["reserved"], []
    for e in recorded.of("take", "give", "used"):
        if e["kind"] == mtr_reader.USED:
            used.append((below, e["size"] - CONTEXT - below))
        else:
            below += e["size"] if e["kind"] == mtr_reader.TAKE else -e["size"]
    check(top > 12 << 30 and below < top // 2, "the job did not grow and shrink: %d, %d", top, below)
    check((top, 0) in used and used[-1] == (below, 0), "at the peak (%d) and the end (%d) not told: %s", top, below, used)
    # At most one call is active whose memory is taken and whose record is missing.
    check(all(abs(more) <= 22 << 20 for _, more in used), "told where it does not belong: %s", used)
    doc = report(path, at="peak")
    sums = harness.device(doc, "cuda:0")["reconciliation"]
    equal((sums["used"], sums["used_reserved"], sums["used_others"], sums["not_seen"]),
          (top + CONTEXT, peak["reserved"], peak["others"], CONTEXT), "at the peak: used, reserved, others, context")
    equal((doc["allocated"], sums["adds_up"]), (peak["allocated"], True), "the report's own sums")


# ---- allocators that pass on CUDA's memory ---------------------------------------------------------------

def blocks(name, env, args, attach_at, options=(), until=None):
    """cuda_blocks.py, recorded from its output attach_at on; it keeps its tensors until the recorder prints something."""
    path = scratch(name + ".mtr")
    p = spawn_job([python(), os.path.join(harness.WORKLOADS, "cuda_blocks.py"), *args], env=env)
    recorder = None
    for line in ("imported", "ready", "done"):
        p.wait_line("^%s" % line, 60)
        if line == attach_at:
            recorder = record(p.popen.pid, path, *options)
            if until:  # the reading at attach is over, so that the next one is of tensors whose blocks are known
                recorder.wait_line("roles of blocks were not read|at attach", 60, stream="err")
        if line == "done" and until:
            recorder.wait_line(until, 60, stream="err")
        p.send()
    equal(p.wait(30), 0, "exit code of %s (%s)" % (name, p.stderr()))
    equal(recorder.wait(30), 0, "exit code of record (%s)" % recorder.stderr())
    told = json.loads(next(text for _, text in p.out if text.startswith("{")))
    return told, Recorded(path), path


def same_blocks(told, recorded, how, others=()):
    sizes, addresses = [*told["sizes"], told["beside"][1]], [*told["addresses"], told["beside"][0]]
    allocs, frees = recorded.of("alloc"), recorded.of("free")
    equal([(e["type"], e["index"], e["addr"], e["size"], e["how"], e["totals"]) for e in allocs],
          [(truth.CUDA, 0, a, s, how, 0) for a, s in zip(addresses, sizes)], "blocks")
    equal({recorded.innermost(e) for e in allocs}, {("cuda_blocks.py", told["line"], "allocate")}, "lines")
    # Every second block is freed at once, the others at the end.
    equal([(e["addr"], e["size"], e["how"]) for e in frees[:3]], [(addresses[i], sizes[i], how) for i in (1, 3, 5)], "freed first")
    equal(sorted((e["addr"], e["size"]) for e in frees), sorted(zip(addresses, sizes)), "freed in all")
    equal([(e["addr"], e["size"], e["how"]) for e in recorded.of("take", "give")], [(*b, DEVICE) for b in others], "besides the blocks")
    return sum(sizes)


def same_report(path, told, total, allocator, words):
    doc = report(path, at="peak")
    gpu = harness.device(doc, "cuda:0")
    count = len(told["sizes"]) + 1
    equal(doc["target"]["allocator"], allocator, "allocator")
    equal((doc["allocated"], gpu["peak_allocated"], gpu["total_allocated"], gpu["allocs"], gpu["frees"], gpu["allocated"]),
          (total, total, total, count, count, 0), "sums of the report")
    equal([(r["bytes"], r["count"], os.path.basename(r["file"]), r["line"], r["source"]) for r in doc["rows"]],
          [(total, count, "cuda_blocks.py", told["line"], "frame")], "rows")
    equal((gpu["reserved"], gpu["drift"], gpu["reconciliation"]["adds_up"], gpu["frees_unknown"]), (None, None, True, 0), "of the device")
    code, out, err = harness.tool("report", path)
    check(code == 0 and words in out, "report says nothing of %r: %s %s", words, out, err)


def async_backend():
    told, recorded, path = blocks("async", environment(backend="async"), (), "ready")
    same_report(path, told, same_blocks(told, recorded, ASYNC), "cudaMallocAsync", "cudaMallocAsync calls")


def requested():
    """Requested size and stream of each block, from PyTorch's static probe."""
    told, recorded, _ = blocks("requested", environment(), (), "ready", ("--requested",))
    stream = told["beside"][2]
    expected = [(a, s, 0) for a, s in zip(told["addresses"], told["sizes"])] + [(told["beside"][0], told["beside"][1], stream)]
    check(stream & 1, "no stream of PyTorch's own: %d", stream)
    equal([(e["addr"], e["requested"], e["stream"]) for e in recorded.of("asked")], expected, "asked for")
    equal([(e["addr"], e["size"]) for e in recorded.of("alloc")], [(a, s + -s % 512) for a, s, _ in expected], "handed out")
    equal([e["kind"] for e in recorded.of("alloc", "asked")], [mtr_reader.ALLOC, mtr_reader.ASKED] * len(expected), "order")


def test_blocks():
    both(async_backend, requested)


def pluggable(name, attach_at):
    told, recorded, path = blocks(name, environment(), (compiled("cuda_pluggable"), compiled("cuda_pluggable", "libnccl_takes")), attach_at)
    equal(recorded.facts.get("allocator"), "pluggable", "fact")
    same_report(path, told, same_blocks(told, recorded, DEVICE, [told["library"]]), "pluggable", "pluggable allocator")


def test_requested_of_several():
    """PyTorch's probe counts users per file, so with several processes it is enabled in all that map it: the recorder says so."""
    p = spawn_job([python(), os.path.join(harness.WORKLOADS, "cuda_blocks.py")], env=environment())
    p.wait_line("^imported", 60)
    recorder = record(p.popen.pid, scratch("requested-several.mtr"), "--requested", "--children")
    recorder.wait_line("--requested: PyTorch's probe is on in every process that maps .*libc10_cuda", 60, stream="err")
    p.stop()
    equal(recorder.wait(30), 0, "exit code of record (%s)" % recorder.stderr())


def test_pluggable():
    """Attached after and before the change of the allocator. Memory of a library is no tensor's block."""
    compiled("cuda_pluggable")
    compiled("cuda_pluggable", "libnccl_takes")
    both(lambda: pluggable("chosen", "ready"), lambda: pluggable("changed", "imported"))


APART = """
import sys, torch
torch.cuda.memory.change_current_allocator(torch.cuda.memory.CUDAPluggableAllocator(sys.argv[1], "take", "give"))
module = torch.nn.Linear(64, 64, device="cuda")
data = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
sys.stdin.readline()
"""


def test_not_pooled():
    """A large tensor outside of modules, which most readings leave out, makes no pool of a pluggable allocator."""
    path, script = scratch("not-pooled.mtr"), scratch("not_pooled.py")
    with open(script, "w", encoding="utf-8") as f:
        f.write(APART)
    p = spawn([harness.TOOL, "run", "-f", "-v", "-o", path, "--dry-run-cuda", "--", python(), script, compiled("cuda_pluggable")], root=True)
    p.wait_line(": 3 storages named", 60, stream="err")
    p.wait_line(": 2 storages named", 60, stream="err")
    p.send()
    equal(p.wait(60), 0, "exit code (%s)" % p.stderr())
    facts = Recorded(path).facts
    equal((facts.get("allocator"), facts.get("allocator_block")), ("pluggable", None), "the allocator, and a block that it divides")


def test_pooled():
    """A pluggable allocator that divides one block: the report says that blocks are not tensors."""
    _, recorded, path = blocks("pooled", environment(), (compiled("cuda_pooled"),), "ready", ("-v",), "[1-9][0-9]* storages named")
    equal([(e["size"], e["how"]) for e in recorded.of("alloc")], [(1 << 30, DEVICE)], "blocks")
    equal(recorded.facts.get("allocator_block"), str(1 << 30), "the largest block")
    check(0 < int(recorded.facts["allocator_tensors"]) < 64 << 20, "tensors: %s", recorded.facts["allocator_tensors"])
    code, out, err = harness.tool("report", path)
    check(code == 0 and "hands out parts" in out, "report does not say it: %s %s", out, err)
    equal(report(path)["capture"]["allocator_block"], 1 << 30, "in the report's JSON")


if __name__ == "__main__":
    run(globals())

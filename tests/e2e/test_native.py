#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# run: long probes-all cpu=75
"""CUDA without PyTorch: memory of compiled programs by function, file and line."""
import os
import subprocess
import sys

import harness
import truth
from harness import PROGRAMS, check, equal, nightly, python, record, report, run, scratch, settle, spawn, tool

MIB = 1 << 20
LIBRARY = os.path.join(PROGRAMS, "native", "library.c")
WORKLOAD = os.path.join(harness.WORKLOADS, "cuda_mixed.py")
SOURCE = os.path.join(PROGRAMS, "native", "cuda_memory.c")


def line_of(remark, source=SOURCE):
    with open(source, encoding="utf-8") as f:
        return next(n for n, text in enumerate(f, 1) if remark in text)


def program(name, *options):
    """cuda_memory.c, linked with the dry run's CUDA."""
    path = scratch(name)
    done = subprocess.run(["cc", "-O2", *options, "-o", path, SOURCE, "-L" + os.path.join(harness.OUT, "dryrun"), "-lcuda"],
                          capture_output=True, text=True, check=False)
    check(done.returncode == 0, "cuda_memory.c: %s", done.stderr)
    return path


def started(path):
    return spawn([path], env=truth.dry_run())


def round_of(job):
    job.send()
    job.wait_line("done")


def rows(doc, *keys):
    """Bytes of the device's rows."""
    found = {}
    for r in doc["rows"]:
        key = tuple(os.path.basename(r[k]) if k == "file" else r[k] for k in keys)
        found[key] = found.get(key, 0) + r["bytes"]
    return found


LATER = """
import ctypes, sys
at = ctypes.c_void_p()
def take(mib):
    ctypes.CDLL(None).cudaMalloc(ctypes.byref(at), ctypes.c_size_t(mib << 20))
take(64)
print("has memory", flush=True)
sys.stdin.readline()
take(int(sys.argv[1]))
print("has taken more", flush=True)
sys.stdin.readline()
import torch
kept = torch.empty(30 << 20, dtype=torch.uint8, device="cuda")
print("has PyTorch", flush=True)
sys.stdin.readline()
"""


def torch_later(more, said):
    """A process with CUDA alone takes more MiB while it is recorded, and then imports PyTorch."""
    job = spawn([python(), "-c", LATER, str(more)], env=truth.dry_run())
    job.wait_line("has memory")
    path = scratch("later-%d.mtr" % more)
    recorder = record(job.pid, path)
    recorder.wait_line("uses CUDA without PyTorch: recording its calls into CUDA", 30, stream="err")
    job.send()
    job.wait_line("has taken more")
    job.send()
    job.wait_line("has PyTorch", 120)
    recorder.wait_line("has imported PyTorch" + said, 30, stream="err")
    settle(recorder)
    job.stop()
    equal(recorder.wait(), 0, "exit code of record")
    return report(path), tool("report", path)[1]


def test_torch_later():
    """Tensors are recorded, too, from the first on."""
    doc, _ = torch_later(0, ": recording its tensors, too")
    equal([(r["bytes"], r["line"]) for r in doc["rows"]], [(30 * MIB, 13)], "rows")
    check("torch_came" not in doc["capture"], "capture: %s", doc["capture"])


def test_torch_after_calls():
    """Calls into CUDA were blocks and stay blocks: the capture goes on with them, and says so."""
    doc, text = torch_later(7, ", and this capture goes on without its tensors: it has begun to use memory before")
    equal((doc["capture"]["torch_came"], harness.device(doc, "cuda:0")["total_allocated"]), (True, 37 * MIB), "what the report has")
    check("PyTorch was imported after the attach: its tensors are not recorded" in text, "the report's text: %s", text)


def test_by_line():
    job = started(program("cuda_memory", "-g"))
    path = scratch("cuda_memory.mtr")
    recorder = record(job.pid, path)
    recorder.wait_line("uses CUDA without PyTorch: recording its calls into CUDA", stream="err")
    round_of(job)
    settle(recorder)
    job.stop()
    equal(recorder.wait(), 0, "exit code of record")
    check("no Python lines" not in recorder.stderr(), "a compiled program has no Python lines")

    doc = report(path)
    equal(rows(doc, "function", "file", "line", "source"),
          {("alpha", "cuda_memory.c", line_of("the line of alpha"), "native"): 300 * MIB,
           ("beta", "cuda_memory.c", line_of("the line of beta"), "native"): 20 * MIB}, "rows")
    device = harness.device(doc, "cuda:0")
    equal(device["allocated"], 320 * MIB, "allocated")
    equal(device["peak_allocated"], 350 * MIB, "peak")
    context = 512 * MIB  # the dry run's
    code, text, _ = tool("report", "--at", "end", path)
    equal(code, 0, "report")
    check("%.2f MiB  used by the process" % ((device["allocated"] + context) / MIB) in text, "the driver's figure is the sum: %s", text)
    check("blocks are calls into CUDA" in text, "what the blocks are: %s", text)


def test_without_debug_information():
    job = started(program("cuda_stripped", "-s"))
    path = scratch("cuda_stripped.mtr")
    recorder = record(job.pid, path)
    round_of(job)
    settle(recorder)
    job.stop()
    equal(recorder.wait(), 0, "exit code of record")
    doc = report(path)
    found = rows(doc, "file", "line")
    equal(found, {("cuda_stripped", None): 320 * MIB}, "rows by file")
    equal(len({r["function"] for r in doc["rows"]}), 2, "calling places")
    check(all(r["function"].startswith("+0x") for r in doc["rows"]), "offsets in the file: %s", doc["rows"])


def library(*options):
    path = scratch("libtransport.so")
    done = subprocess.run(["cc", "-O2", "-fPIC", "-shared", *options, "-o", path, LIBRARY], capture_output=True, text=True, check=False)
    check(done.returncode == 0, "library.c: %s", done.stderr)
    return path


def mixed(*arguments, options=(), interpreter=sys.executable):
    """cuda_mixed.py recorded for two rounds. Returns the recording and what the recorder said."""
    job = spawn([interpreter, WORKLOAD, library("-g"), *arguments], env=truth.dry_run())
    job.wait_line("ready")
    path = scratch("mixed.mtr")
    recorder = record(job.pid, path, *options)
    for _ in range(2):
        round_of(job)
    settle(recorder)
    job.stop()
    equal(recorder.wait(), 0, "exit code of record")
    return path, recorder.stderr()


def test_python_without_torch():
    path, said = mixed()
    check("uses CUDA without PyTorch: recording its calls into CUDA" in said, "what is recorded: %s", said)
    line = line_of("the line of communicate", WORKLOAD)
    equal(rows(report(path), "function", "file", "line", "source"), {("communicate", "cuda_mixed.py", line, "frame"): 128 * MIB}, "by line")
    line = line_of("the line of workspace", LIBRARY)
    doc = report(path, "--frames", "native")
    equal(rows(doc, "function", "file", "line"), {("workspace", "library.c", line): 128 * MIB}, "by native function")
    stack = report(path, by="stack")["rows"][0]["stack"]
    names = [frame.split(" ")[0] for frame in stack]
    equal(names[:2] + names[-2:], ["<module>", "communicate", "init_library", "workspace"], "the stack, root first")
    check(not any("_PyEval" in name for name in names), "frames of the interpreter: %s", names)


def test_beside_torch():
    path, _ = mixed("torch", options=("--native",), interpreter=python())
    for frames, expected in (("user", ("communicate", "cuda_mixed.py", line_of("the line of communicate", WORKLOAD))),
                             ("native", ("workspace", "library.c", line_of("the line of workspace", LIBRARY)))):
        doc = report(path, "--frames", frames)
        device = harness.device(doc, "cuda:0")
        equal(device["allocated"], 64 * MIB, "tensors")
        others = device["reconciliation"]["others"]
        equal(others["bytes"], 128 * MIB, "memory of others")
        equal({(r["function"], os.path.basename(r["file"]), r["line"]): r["bytes"] for r in others["rows"]}, {expected: 128 * MIB}, frames)
    counters = report(path)["capture"]["counters"]
    equal((counters["hits.native"], counters["native.stacks"]), (4, 4), "stacks copied: two tensors and two calls, none of the allocator's own calls")
    _, text, _ = tool("report", "--at", "end", "--frames", "native", path)
    check("128.00 MiB  taken by other code: " in text and "(workspace), cudaMalloc" in text, "by native function: %s", text)


def workspaces(role, *options):
    """cuda/workspaces.py recorded from its start. Returns the recording and the bytes of its parameters."""
    path, met = scratch("workspaces.mtr"), scratch("met")
    if os.path.exists(met):
        os.unlink(met)
    code, out, err = tool("run", "--dry-run-cuda", "-q", "-f", "-o", path, *options, "--", python(role),
                          os.path.join(harness.WORKLOADS, "cuda", "workspaces.py"), met, seconds=120)
    equal(code, 0, "run: %s" % err)
    return path, int(out.split()[-1])


def in_compiled_code(path):
    """Bytes of a recording's rows at the peak by role and native function, without the offset in it."""
    found = {}
    for r in report(path, "--frames", "native", at="peak")["rows"]:
        key = r["category"], r["function"].split("+")[0]
        found[key] = found.get(key, 0) + r["bytes"]
    return found


def libraries_of_torch(role):
    """Workspaces and buckets, which PyTorch's allocator took: the function that took them, and their role."""
    path, parameters = workspaces(role, "--native")
    found = in_compiled_code(path)
    buckets = {f: n for (c, f), n in found.items() if c == "ddp_bucket"}
    equal((list(buckets), sum(buckets.values())), (["c10d::Reducer::initialize_buckets"], parameters), "buckets, %s" % role)
    spaces = {f: n for (c, f), n in found.items() if c == "workspace"}
    check("at::native::run_conv_plan" in spaces, "cuDNN's workspace, %s: %s", role, spaces)
    blas = sum(n for f, n in spaces.items() if f.startswith("at::cuda::") and "Lt" not in f)
    equal(blas, 2 * (8 << 20 | 128 << 10), "cuBLAS's workspaces of two threads (:4096:2:16:8), %s: %s" % (role, spaces))

    doc = report(path, at="peak")  # by line: Python's, and memory of backward stays with its line in forward
    device = harness.device(doc, "cuda:0")
    equal(sum(r["bytes"] for r in doc["rows"]), device["peak_allocated"], "rows")
    native = {(r["category"], r["phase"]) for r in doc["rows"] if r["source"] == "native"}
    equal(native, {("workspace", "backward")}, "rows without a Python line, %s" % role)


def test_libraries_of_torch():
    libraries_of_torch("main")
    path, _ = workspaces("main")
    roles = {r["category"] for r in report(path, at="peak")["rows"]}
    check(not roles & {"workspace", "ddp_bucket"}, "without --native nothing tells these roles: %s", roles)


@nightly("versions")
def test_libraries_of_torch_old():
    libraries_of_torch("old")


NCCL = """
import sys, torch
import torch.distributed as dist
kept = torch.ones(1 << 20, device="cuda")
print("ready", flush=True)
sys.stdin.readline()
dist.init_process_group("nccl", init_method="file://" + sys.argv[1], rank=0, world_size=1, device_id=torch.device("cuda:0"))
dist.all_reduce(kept)
free, total = torch.cuda.mem_get_info()
print("others", total - free - torch.cuda.memory_reserved(), flush=True)
sys.stdin.readline()
"""


def test_nccl():
    """The real NCCL, not the dry run's: its memory by the function that took it, to the byte."""
    python_of_torch = python()
    found = subprocess.run([python_of_torch, "-c", "import nvidia.nccl; print(list(nvidia.nccl.__path__)[0])"], capture_output=True, text=True, check=True)
    env = truth.dry_run()
    env["LD_PRELOAD"] = os.path.join(found.stdout.strip(), "lib", "libnccl.so.2") + " " + env["LD_PRELOAD"]
    job = spawn([python_of_torch, "-c", NCCL, scratch("nccl-store")], env=env)
    job.wait_line("ready", 60)
    path = scratch("nccl.mtr")
    recorder = record(job.pid, path, "--native")
    job.send()
    others = int(job.wait_line("^others", 60).split()[1])
    settle(recorder)
    job.stop()
    equal(recorder.wait(), 0, "exit code of record")
    sums = harness.device(report(path, "--frames", "native"), "cuda:0")["reconciliation"]
    by_nccl = sums["others"]["bytes"]
    equal(({(r["function"], os.path.basename(r["file"])) for r in sums["others"]["rows"]}, sums["adds_up"]), ({("ncclCuMemAlloc", "alloc.h")}, True), "who took it")
    check(by_nccl > 10 * MIB, "bytes: %d", by_nccl)
    equal(by_nccl + sums["not_seen"], others, "NCCL's memory and the context, by the driver's figure")


@nightly("long")
def test_torch_comes_late():
    """A dry run maps CUDA in every process, so CUDA without PyTorch means nothing yet."""
    path = scratch("late.mtr")
    job = "import time; time.sleep(2.5); import torch; held = torch.empty(1 << 20, device='cuda', dtype=torch.uint8); time.sleep(0.5)"
    for _ in range(4):  # on a busy machine the import may be faster than attaching
        code, _, err = tool("run", "--dry-run-cuda", "-f", "-o", path, "--", "sh", "-c", "sleep 1.5; exec '%s' -c \"%s\"" % (python(), job), root=True, seconds=120)
        equal(code, 0, "exit code: %s" % err)
        check("without PyTorch: recording" not in err, "what is recorded: %s", err)
        doc = report(path, at="peak")
        if doc["capture"]["attached_at"] == "start":
            break
    equal((doc["capture"]["attached_at"], harness.device(doc, "cuda:0")["peak_allocated"]), ("start", MIB), "from the first tensor on")


def test_refused():
    job = spawn(["sleep", "60"])
    code, _, err = tool("record", "-p", str(job.pid), "--wait-for", "torch", "-o", scratch("refused.mtr"), "-d", "1s", root=True)
    job.stop()
    equal(code, 2, "exit code")
    check("has no Python interpreter, PyTorch or CUDA in it" in err, "why: %s", err)


if __name__ == "__main__":
    run(globals())

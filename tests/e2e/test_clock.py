#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""The dry run's virtual clock (MEMTRACE_DRYRUN_CLOCK): the order of a stream, events, and the host's waits. Times are compared with
what the model says of the same work, and waits only from below."""
import ctypes
import json
import os
import subprocess
import sys
import time

import truth
from harness import OUT, check, equal, python, run, scratch

LIBRARY = os.path.join(OUT, "dryrun", "libcuda.so.1")
NOT_READY = 600
NON_BLOCKING = 1
BUSY = 300  # ms: a stream stays busy for longer than this process may wait for a core
# The model of an A100 (tools/dryrun/clock.c), in bytes and operations a ns.
LEAST_NS, THREAD_BYTES, BUS = 2000, 32, 20.0
MEMORY = 0.7 * 2 * 1593000 * 5120 / 8 / 1e6
PRODUCT = {2: 0.7 * 2048 * 108 * 1410000 / 1e6, 4: 0.7 * 128 * 108 * 1410000 / 1e6}


class Dim(ctypes.Structure):
    _fields_ = [("x", ctypes.c_uint), ("y", ctypes.c_uint), ("z", ctypes.c_uint)]


class Cuda:
    """Calls of the runtime, with the clock of this process's environment."""

    def __init__(self):
        self.lib = ctypes.CDLL(LIBRARY)
        self.call("cudaFree", None)

    def call(self, name, *args, expect=0):
        got = getattr(self.lib, name)(*args)
        equal(got, expect, name)

    def new(self, name, *args):
        out = ctypes.c_void_p()
        self.call(name, ctypes.byref(out), *args)
        return out

    def stream(self, flags=0):
        return self.new("cudaStreamCreateWithFlags", flags)

    def kernel(self, stream, ms):
        """Launches a kernel of so many ms; returns its exact time by the model."""
        threads = round((1e6 * ms - LEAST_NS) * MEMORY / THREAD_BYTES / 1024)
        self.call("cudaLaunchKernel", ctypes.c_void_p(1), Dim(threads, 1, 1), Dim(1024, 1, 1), None, ctypes.c_size_t(0), stream)
        return (LEAST_NS + threads * 1024 * THREAD_BYTES / MEMORY) / 1e6

    def event(self, stream):
        e = self.new("cudaEventCreate")
        self.call("cudaEventRecord", e, stream)
        return e

    def elapsed(self, a, b):
        self.call("cudaEventSynchronize", b)
        ms = ctypes.c_float()
        self.call("cudaEventElapsedTime", ctypes.byref(ms), a, b)
        return ms.value


def near(ms, expected, what):
    check(abs(ms - expected) < 0.01 + expected * 1e-4, "%s: %.4f ms, expected %.4f", what, ms, expected)


def in_order(cuda):
    """Work of a stream runs one after the other; an event is where the stream is then."""
    s = cuda.stream()
    first = cuda.kernel(s, 300)
    a = cuda.event(s)
    second, third = cuda.kernel(s, 30), cuda.kernel(s, 7)
    b = cuda.event(s)
    cuda.call("cudaStreamQuery", s, expect=NOT_READY)
    cuda.call("cudaEventQuery", b, expect=NOT_READY)
    ms = ctypes.c_float()
    cuda.call("cudaEventElapsedTime", ctypes.byref(ms), a, b, expect=NOT_READY)
    near(cuda.elapsed(a, b), second + third, "two kernels after another")
    cuda.call("cudaStreamQuery", s)
    cuda.call("cudaEventQuery", b)
    check(first > 299, "the kernel's time: %f", first)


def waits(cuda):
    """What the host calls to wait returns no earlier than the work is done."""
    s, host, block = cuda.stream(NON_BLOCKING), ctypes.create_string_buffer(1024), cuda.new("cudaMalloc", ctypes.c_size_t(1 << 20))
    pinned = cuda.new("cudaMallocHost", ctypes.c_size_t(1024))
    for what, wait in (("cudaStreamSynchronize", lambda: cuda.call("cudaStreamSynchronize", s)),
                       ("cudaDeviceSynchronize", lambda: cuda.call("cudaDeviceSynchronize")),
                       ("cudaEventSynchronize", lambda: cuda.call("cudaEventSynchronize", cuda.event(s))),
                       ("cudaFree", lambda: cuda.call("cudaFree", cuda.new("cudaMalloc", ctypes.c_size_t(1 << 21)))),
                       ("a copy to pageable memory", lambda: cuda.call("cudaMemcpyAsync", host, block, ctypes.c_size_t(4), 2, s))):
        begin = time.monotonic()
        ms = cuda.kernel(s, 30)
        wait()
        took = 1e3 * (time.monotonic() - begin)
        check(took >= ms, "%s returned after %.3f ms, the kernel takes %.3f", what, took, ms)
    cuda.kernel(s, 2000)  # nothing here waits for it
    cuda.call("cudaMemcpyAsync", pinned, block, ctypes.c_size_t(4), 2, s)
    cuda.call("cudaMemcpyAsync", block, host, ctypes.c_size_t(4), 1, s)
    cuda.call("cudaStreamQuery", s, expect=NOT_READY)


def blocking_copy(cuda):
    """cudaMemcpy waits for the default stream, and for blocking streams before it."""
    s, host, block = cuda.stream(), ctypes.create_string_buffer(8), cuda.new("cudaMalloc", ctypes.c_size_t(1 << 20))
    begin = time.monotonic()
    ms = cuda.kernel(s, 30)
    cuda.call("cudaMemcpy", host, block, ctypes.c_size_t(4), 2)
    check(1e3 * (time.monotonic() - begin) >= ms, "cudaMemcpy did not wait for a blocking stream")


def streams(cuda):
    """Streams run at the same time; the default stream and blocking ones wait for each other; an event orders two."""
    a, b, other = cuda.stream(), cuda.stream(NON_BLOCKING), cuda.stream(NON_BLOCKING)
    cuda.kernel(other, 1)
    start = cuda.event(other)
    long = cuda.kernel(a, 400)
    short = cuda.kernel(b, 5)
    end_b = cuda.event(b)
    cuda.call("cudaStreamWaitEvent", other, cuda.event(a), 0)
    after = cuda.kernel(other, 3)
    end_other = cuda.event(other)
    after_default = cuda.kernel(None, 4)
    end_default = cuda.event(None)
    after_blocking = cuda.kernel(a, 6)
    end_a = cuda.event(a)
    near(cuda.elapsed(end_other, end_default), after_default - after, "the default stream after a blocking one")
    near(cuda.elapsed(end_default, end_a), after_blocking, "a blocking stream after the default one")
    check(cuda.elapsed(start, end_b) < long, "a stream of its own waited: it took %f, its kernel %f", cuda.elapsed(start, end_b), short)


def queue(cuda):
    """A stream takes 1024 pieces of work; one more waits for the first."""
    s = cuda.stream()
    begin = time.monotonic()
    ms = cuda.kernel(s, 300)
    for _ in range(1023):
        cuda.call("cudaLaunchKernel", ctypes.c_void_p(1), Dim(1, 1, 1), Dim(1, 1, 1), None, ctypes.c_size_t(0), s)
    cuda.call("cudaStreamQuery", s, expect=NOT_READY)
    cuda.call("cudaLaunchKernel", ctypes.c_void_p(1), Dim(1, 1, 1), Dim(1, 1, 1), None, ctypes.c_size_t(0), s)
    check(1e3 * (time.monotonic() - begin) >= ms, "launch 1025 did not wait for the first kernel")


def graphs(cuda):
    """A replay takes what the captured work takes; the capture itself takes nothing."""
    s = cuda.stream()
    cuda.call("cudaStreamBeginCapture", s, 0)
    ms = cuda.kernel(s, 20) + cuda.kernel(s, 5)
    graph = ctypes.c_void_p()
    cuda.call("cudaStreamEndCapture", s, ctypes.byref(graph))
    cuda.call("cudaStreamQuery", s)
    exec_ = cuda.new("cudaGraphInstantiate", graph, ctypes.c_ulonglong(0))
    cuda.kernel(s, BUSY)
    a = cuda.event(s)
    cuda.call("cudaGraphLaunch", exec_, s)
    near(cuda.elapsed(a, cuda.event(s)), ms, "a replay")


def copies(cuda):
    s, size = cuda.stream(), 64 << 20
    block, other = (cuda.new("cudaMalloc", ctypes.c_size_t(size)) for _ in range(2))
    pinned = cuda.new("cudaMallocHost", ctypes.c_size_t(size))
    for what, to, source, expected in (("to the host", pinned, block, size / BUS), ("to the device", block, pinned, size / BUS),
                                       ("in the device", other, block, 2 * size / MEMORY)):
        cuda.kernel(s, BUSY)
        a = cuda.event(s)
        cuda.call("cudaMemcpyAsync", to, source, ctypes.c_size_t(size), 4, s)
        near(cuda.elapsed(a, cuda.event(s)), (LEAST_NS + expected) / 1e6, "a copy " + what)
    cuda.kernel(s, BUSY)
    a = cuda.event(s)
    cuda.call("cudaMemsetAsync", block, 0, ctypes.c_size_t(size), s)
    near(cuda.elapsed(a, cuda.event(s)), (LEAST_NS + size / MEMORY) / 1e6, "a fill")


def products(cuda):
    s, handle = cuda.stream(), cuda.new("cublasCreate_v2")
    cuda.call("cublasSetStream_v2", handle, s)
    cuda.kernel(s, BUSY)
    a = cuda.event(s)
    cuda.call("cublasSgemm_v2", handle, 0, 0, 4096, 2048, 1024)
    b = cuda.event(s)
    near(cuda.elapsed(a, b), (LEAST_NS + 2 * 4096 * 2048 * 1024 / PRODUCT[4]) / 1e6, "cublasSgemm")


def destroyed(cuda):
    """Work of a stream that was destroyed is still the device's."""
    s = cuda.stream()
    begin = time.monotonic()
    ms = cuda.kernel(s, 30)
    cuda.call("cudaStreamDestroy", s)
    cuda.call("cudaDeviceSynchronize")
    check(1e3 * (time.monotonic() - begin) >= ms, "the device did not wait for a destroyed stream")


def off(cuda):
    """Without the clock nothing is busy, whatever the size."""
    s = cuda.stream()
    cuda.kernel(s, 1e7)
    cuda.call("cudaStreamQuery", s)
    e = cuda.event(s)
    cuda.kernel(None, 1e7)
    cuda.call("cudaEventQuery", e)
    cuda.call("cudaStreamSynchronize", s)
    cuda.call("cudaDeviceSynchronize")
    check(cuda.elapsed(e, cuda.event(s)) < 1e6, "events are apart by the kernel's time")


PARTS = {f.__name__: f for f in (in_order, waits, blocking_copy, streams, queue, graphs, copies, products, destroyed, off)}


def child(part, clock="1"):
    """Runs a part in a process with the clock; returns what it wrote to stderr."""
    env = dict(os.environ)
    env.pop("MEMTRACE_DRYRUN_CLOCK", None)
    if clock:
        env["MEMTRACE_DRYRUN_CLOCK"] = clock
    done = subprocess.run([sys.executable, os.path.abspath(__file__), "--part", part], env=env, capture_output=True, text=True, timeout=60,
                          check=False)
    equal(done.returncode, 0, "exit of %s; it said %s" % (part, done.stderr[-800:]))
    return done.stderr


def test_a_stream_runs_in_order():
    said = child("in_order")
    equal(said, "memtrace-bpf: dry run: MEMTRACE_DRYRUN_CLOCK=1: durations of GPU work are modelled, not measured\n", "what it says")


def test_the_host_waits():
    child("waits")
    child("blocking_copy")


def test_streams_and_events():
    child("streams")


def test_a_full_queue_waits():
    child("queue")


def test_replays_take_time():
    child("graphs")


def test_copies_and_products_take_time_by_size():
    child("copies")
    child("products")


def test_destroyed_streams_count():
    child("destroyed")


def test_without_it_nothing_takes_time():
    for clock in ("", "0"):
        equal(child("off", clock), "", "what it says with the clock off")


JOB = r"""
import json, time, torch
x = torch.zeros(8192, 8192, device="cuda")
w, bias = torch.zeros(8192, 8192, device="cuda"), torch.zeros(8192, device="cuda")
half = x.bfloat16()
def timed(do):
    a, b = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    for _ in range(4):
        x @ w
    a.record()
    do()
    b.record()
    b.synchronize()
    return a.elapsed_time(b)
out = {"mm": timed(lambda: x @ w), "addmm": timed(lambda: torch.addmm(bias, x, w)), "bf16": timed(lambda: half @ half)}
torch.cuda.synchronize()
begin = time.monotonic()
y = x @ w
out["item"], out["took"] = y[0, 0].item(), 1e3 * (time.monotonic() - begin)
print(json.dumps(out))
"""


def job(factor):
    path = scratch("clock.log")
    done = subprocess.run([python("main"), "-c", JOB], env=dict(truth.dry_run(), MEMTRACE_DRYRUN_CLOCK=factor, MEMTRACE_DRYRUN_LOG=path),
                          capture_output=True, text=True, timeout=120, check=False)
    equal(done.returncode, 0, "exit of the job; it said %s" % done.stderr[-800:])
    with open(path, encoding="utf-8") as f:
        check("assumed clock " + factor in f.read(), "the log does not name the clock")
    return json.loads(done.stdout)


def test_pytorch():
    """Products by cuBLAS and cuBLASLt have their time, and item() waits for it. Twice the factor is twice the time."""
    flops = 2 * 8192**3
    expected = {"mm": (LEAST_NS + flops / PRODUCT[4]) / 1e6, "bf16": (LEAST_NS + flops / PRODUCT[2]) / 1e6}
    for factor in ("1", "0.5"):
        got = job(factor)
        for name in expected:
            near(got[name] / float(factor), expected[name], "%s, factor %s" % (name, factor))
        check(got["addmm"] >= expected["mm"] * float(factor) - 0.01, "addmm took %f", got["addmm"])
        check(got["took"] >= expected["mm"] * float(factor), "item() returned after %f ms", got["took"])


if __name__ == "__main__":
    if sys.argv[1:2] == ["--part"]:
        PARTS[sys.argv[2]](Cuda())
    else:
        run(globals())

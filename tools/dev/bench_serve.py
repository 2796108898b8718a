#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
Measures `serve`: the processor time of a job's step with and without a server that samples it, in turns; the time of GET
/api/health alone, with 64 clients, and during a capture; the server's memory. The job trains a small model on PyTorch's CUDA
allocator without a GPU (docs/internals/DRYRUN.md). Run as root on a quiet machine. Takes two minutes.

    tools/dev/bench_serve.py [ROUNDS]
"""
import os
import statistics
import subprocess
import sys
import time

import bench_watch

sys.path.insert(0, os.path.join(bench_watch.HERE, "..", "tests", "e2e"))
import harness  # noqa: E402
import server  # noqa: E402
from load import Ask, Load, quantile  # noqa: E402

CLIENTS = 64
HEALTH = [Ask("GET", "/api/health", mark="health")]
FAST = ("--requests-per-minute", "0")


def start(pid, *options):
    return server.Server("--target", "job=%d" % pid, *FAST, *options)


def called(pid):
    with open("/proc/%d/comm" % pid, encoding="utf-8") as f:
        return f.read().strip()


def turns(job, rounds):
    """With and without a sampling server, one right after the other, in alternating order."""
    ratios = []
    for i in range(rounds):
        times = {}
        for on in (i % 2 == 0, i % 2 == 1):
            s = start(job.pid) if on else None
            times[on] = bench_watch.measure(job)
            if s:
                s.stop()
        ratios.append(times[True] / times[False])
    return sorted(ratios)


def own_cost(s, job, seconds, streams=0):
    """Processor time of each server process as a share of a core, while the job runs."""
    listeners = [s.events("/api/stream") for _ in range(streams)]
    pids = s.processes()
    spent, begin = {p: bench_watch.cpu_ns(p) for p in pids}, time.monotonic()
    while time.monotonic() - begin < seconds:
        bench_watch.measure(job)
    took = time.monotonic() - begin
    shares = [(bench_watch.cpu_ns(p) - spent[p]) / 1e9 / took for p in pids]
    for listener in listeners:
        listener.close()
    return ["%s %.3f %%" % (called(p), 100 * x) for p, x in zip(pids, shares)]


def answers(s, what, clients, seconds):
    made = Load(s.host, s.port)
    took = made.run(clients, HEALTH, seconds=seconds)
    times = made.times["health"]
    print("GET /api/health, %-36s %2d clients: p50 %6.2f ms, p99 %6.2f ms, %6.0f answers a second" % (
        what, clients, quantile(times, 0.5) * 1000, quantile(times, 0.99) * 1000, made.done / took), flush=True)
    if made.wrong:
        sys.exit("not answered: %s" % made.wrong[:3])


def latencies():
    job = server.Job("--spread", "1000", "--pause", "0.001").ready()
    s = start(job.pid, "--max-events", "100000000")
    try:
        job.tell("pause")
        for clients in (1, CLIENTS):
            answers(s, "idle", clients, 5)
        job.tell("go")
        for clients in (1, CLIENTS):
            answers(s, "a job at work beside", clients, 5)
        begun = s.post("/api/trace/memory", {"model_name": "job", "max_events": 100000000, "duration_s": 120, "wait": False}).expect().json
        s.wait_trace(begun["trace_id"], ("capturing",))
        for clients in (1, CLIENTS):
            answers(s, "that job captured", clients, 5)
        s.post("/api/trace/%s/stop" % begun["trace_id"], {}).expect()
        done = s.wait_trace(begun["trace_id"])
        print("   the capture: %d events in %.1f s, %d lost" % (done["events"], done["seconds"], done["lost"]), flush=True)
    finally:
        s.stop()
        job.process.stop()


def memory():
    job = server.Job("--spread", "1000").ready()
    s = start(job.pid)
    try:
        names = ["%s %d KiB" % (called(p), server.memory(p) // 1024) for p in s.processes()]
        print("memory of its processes, before any trace: %s" % ", ".join(names))
        times = []
        for most in (1000, 100000):
            def capture():
                begin = time.monotonic()
                got = s.post("/api/trace/memory", {"model_name": "job", "max_events": most}).expect().json
                times.append((time.monotonic() - begin) * 1000 - got["tracing_time_ms"])
                return got
            capture()
            before, events = s.memory(), 0
            for _ in range(4):
                events += capture()["total_events"]
            grown = s.memory() - before
            print("a trace of %d events that is kept: %.1f KiB, %.2f bytes an event" % (events // 4, grown / 4096, grown / events), flush=True)
        print("a capture, from the request to the answer: %.0f ms more than it captures (median)" % statistics.median(times), flush=True)
    finally:
        s.stop()
        job.process.stop()


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    latencies()
    memory()
    with subprocess.Popen([harness.python(), "-c", bench_watch.JOB], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                          env=dict(os.environ, LD_PRELOAD=bench_watch.PRELOAD)) as job:
        job.stdout.readline()
        bench_watch.measure(job)
        r = turns(job, rounds)
        print("a step of a job that is sampled x %.4f (quartiles %.4f and %.4f of %d)" % (
            statistics.median(r), r[rounds // 4], r[3 * rounds // 4], rounds), flush=True)
        s = start(job.pid)
        bench_watch.measure(job)
        for streams in (0, 8):
            shares = own_cost(s, job, 10, streams)
            print("its own processor time with %d streams: %s of a core" % (streams, ", ".join(shares)), flush=True)
        s.stop()
        print("a step: %.2f ms" % (1000 * bench_watch.measure(job)))
        job.stdin.close()


if __name__ == "__main__":
    try:
        main()
    finally:
        harness.stop_all()

#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# run: nightly=long
"""
64 concurrent clients of `serve`, some on event streams, during the capture of a job with a high allocation rate: no losses, all
requests are answered, and the server's resources stay constant.

MEMTRACE_LOAD_REQUESTS: number of requests (default 12000; 100000 is a long run). MEMTRACE_SERVE: another build of the program.
"""
import os
import time

import harness
import server
from harness import check, equal, made, run
from load import Ask, Load, quantile

REQUESTS = int(os.environ.get("MEMTRACE_LOAD_REQUESTS", "12000"))
PROGRAM = os.environ.get("MEMTRACE_SERVE", harness.TOOL)
CLIENTS, STREAMS = 64, 8
MIB = 1 << 20
MOST = MIB if PROGRAM == harness.TOOL else 16 * MIB  # sanitizers keep freed memory

_shared = {}


def served():
    server.needs_serve(PROGRAM)
    if "server" not in _shared:
        job = _shared["job"] = server.Job("--spread", "1000", "--pause", "0.001", kept=True).ready()
        _shared["server"] = server.Server("--target", "my_model=%d" % job.pid, "--requests-per-minute", "0", "--max-events", "10000000", made("load.mtr"), tool=PROGRAM,
                                          kept=True)
        _shared["id"] = _shared["server"].get("/api/trace/list").expect().json["active_traces"][0]
    return _shared["server"]


def asks():
    """Requests of a dashboard, a scraper and a client with a typing error."""
    served()
    health = Ask("GET", "/api/health", mark="health")
    busy = (200, 429, 503)  # expensive requests are refused under load
    often = [health, Ask("GET", "/api/trace/list"), health, Ask("GET", "/api/targets"), health, Ask("GET", "/metrics"), health,
             Ask("GET", "/api/trace/nothing", statuses=(404, 429)), health,
             Ask("POST", "/api/trace/memory", {"model_name": "my_model", "max_events": -1}, statuses=(422, 429)), health,
             Ask("GET", "/api/trace/nothing/stream", statuses=(404,)), health, Ask("DELETE", "/api/trace/trace_1", statuses=(404, 429))]
    # Each of these makes a worker read the recording.
    return often * 6 + [Ask("GET", "/"), Ask("GET", "/api/trace/" + _shared["id"], statuses=busy), Ask("GET", "/api/openapi.json")]


def load(requests, streams=STREAMS):
    s = served()
    made = Load(s.host, s.port)
    took = made.run(CLIENTS - streams, asks(), requests, streams=["/api/stream"] * streams)
    equal(made.wrong, [], "what was answered")
    equal(made.done, -(-requests // (CLIENTS - streams)) * (CLIENTS - streams), "requests that were answered")
    check(not streams or made.events > streams, "only %d events on %d streams", made.events, streams)
    return made, took


def test_capture_loses_nothing():
    s = served()
    begun = s.post("/api/trace/memory", {"model_name": "my_model", "max_events": 5000000, "duration_s": 600, "wait": False}).expect().json
    s.wait_trace(begun["trace_id"], ("capturing",))
    made, took = load(REQUESTS // 2)
    s.post("/api/trace/%s/stop" % begun["trace_id"], {}).expect()
    trace = s.wait_trace(begun["trace_id"])
    equal((trace["state"], trace["lost"]), ("done", 0), "the capture: %s" % trace)
    check(trace["events"] > 1000, "only %d events: %s", trace["events"], trace)
    doc = s.get("/api/trace/%s?at=end" % begun["trace_id"]).expect().json
    device = harness.device(doc, "cuda:0")
    equal((device["drift"], doc["capture"]["lost"], sum(r["bytes"] for r in doc["rows"])), (0, 0, device["allocated"]), "drift, lost, sum")
    health = made.times["health"]
    print("     %d requests in %.1f s, %d events beside; /api/health: p50 %.1f ms, p99 %.1f ms" % (
        made.done, took, trace["events"], quantile(health, 0.5) * 1000, quantile(health, 0.99) * 1000), flush=True)
    s.delete("/api/trace/" + begun["trace_id"]).expect()


def descriptors_at_rest(s, expected=None):
    """Number of descriptors after the server has closed its clients' connections: as expected, or the same three times in a row."""
    counts, limit = [], time.monotonic() + 20
    while time.monotonic() < limit:
        counts.append(s.descriptors())
        if abs(counts[-1] - expected) <= 2 if expected is not None else len(counts) >= 3 and len(set(counts[-3:])) == 1:
            break
        time.sleep(0.2)
    return counts[-1]


def test_memory_stays():
    """After as many requests again, memory and descriptors are unchanged."""
    s = served()
    load(REQUESTS // 4)
    s.client.close()
    descriptors = descriptors_at_rest(s)
    before = {pid: server.memory(pid) for pid in s.processes()}
    made, _ = load(REQUESTS - 3 * (REQUESTS // 4) + REQUESTS // 4)
    after = {pid: server.memory(pid) for pid in s.processes()}
    equal(sorted(after), sorted(before), "processes")
    for pid, was in before.items():
        check(after[pid] - was < MOST, "process %s has grown from %d KiB to %d KiB with %d requests", server.name_of(pid), was // 1024,
              after[pid] // 1024, made.done)
    now = descriptors_at_rest(s, descriptors)
    check(abs(now - descriptors) <= 2, "descriptors: %d, then %d", descriptors, now)
    print("     %s" % ", ".join("%d KiB (was %d)" % (after[p] // 1024, before[p] // 1024) for p in sorted(after)), flush=True)


def test_captures_leave_nothing():
    """Captures made and deleted repeatedly leave no file, descriptor or process."""
    s = served()
    s.client.close()
    body = {"model_name": "my_model", "max_events": 500}
    for n in range(4):
        trace_id = s.post("/api/trace/memory", body).expect().json["trace_id"]
        s.post("/api/trace/export", {"trace_id": trace_id, "format": "folded"}).expect()
        s.delete("/api/trace/" + trace_id).expect()
        now = (len(s.processes()), s.descriptors())
        if n == 1:
            first = now
    equal(now, first, "processes and descriptors after captures that were deleted")


def test_nothing_is_left():
    server.needs_serve(PROGRAM)
    served().stop()
    _shared["job"].end()


if __name__ == "__main__":
    run(globals())

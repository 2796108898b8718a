# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""One event, one call into CUDA, one training step on the CPU: untraced, with empty probes, recorded."""
import os
import statistics
import time

import harness
import truth
from bench.common import STATES, STEP_STATES, Tail, attach, cpu_seconds, line, memory, rounds as rounds_in, spread, tracer_pid, wait_idle


def measure(state, pid, tail, seconds, recording):
    """One window of one state: the workload's lines in it, and the tracer's resource use."""
    p = attach(state, pid, recording)
    if p:
        wait_idle(lambda: cpu_seconds(tracer_pid(p)))
    else:
        time.sleep(0.3)
    begin = time.monotonic()
    cpu = cpu_seconds(tracer_pid(p)) if p else 0
    time.sleep(seconds)
    end = time.monotonic()
    tracer = None
    if p:
        tracer = {"cpu": (cpu_seconds(tracer_pid(p)) - cpu) / (end - begin), **memory(tracer_pid(p))}
        harness.finish(p)
        if state == "recorded":
            doc = harness.report(recording)
            capture = doc["capture"]
            tracer.update(events=capture["events"], lost=capture["lost"], events_s=capture["events"] / capture["duration"],
                          bytes_event=os.path.getsize(recording) / capture["events"])
    time.sleep(0.2)
    rows = tail.between(begin, end)
    if len(rows) < 3:
        raise harness.Failure("only %d measurements in %.1f s" % (len(rows), end - begin))
    return rows, tracer


def rounds_of(name, pid, tail, args, columns, seconds, states=STATES, turn=True, middle=statistics.median):
    """[{state: {column: figure of the window}, "tracer": ...}] for each round. turn: each begins with another state. middle: the
    figure of a window's measurements."""
    recording = harness.scratch(name + ".mtr")
    result = []
    for n in rounds_in(args, name):
        one = {}
        first = n % len(states) if turn else 0
        for state in states[first:] + states[:first]:
            rows, tracer = measure(state, pid, tail, seconds, recording)
            one[state] = {c: middle(f(r) for r in rows) for c, f in columns.items()}
            if state == "recorded":
                one["tracer"] = tracer
        result.append(one)
    return result


def tracer_of(rounds):
    t = [r["tracer"] for r in rounds]
    per_10k = [x["cpu"] / x["events_s"] * 1e4 for x in t]
    return {"events_per_second": spread([x["events_s"] for x in t]), "lost": sum(x["lost"] for x in t),
            "cpu_of_one_core": spread([x["cpu"] for x in t]), "cpu_per_10000_events_per_second": spread(per_10k),
            "rss": max(x["VmHWM"] for x in t), "bytes_per_event": spread([x["bytes_event"] for x in t])}


def bench_events(args, python, name="events", options=(), env=None):
    path = harness.scratch(name + ".jsonl")
    p = harness.spawn([python, os.path.join(harness.WORKLOADS, "events.py"), path, *options], env=env)
    p.wait_line("^ready", 120)
    rounds = rounds_of(name, p.popen.pid, Tail(path), args, {"alloc": lambda r: r[1], "free": lambda r: r[2]},
                       args.seconds)
    p.stop()
    out = {"tracer": tracer_of(rounds), "noise": spread([r["again"]["alloc"] / r["untraced"]["alloc"] for r in rounds])}
    for what in ("alloc", "free"):
        out[what] = {"untraced_ns": spread([r["untraced"][what] for r in rounds]),
                     "empty_ns": spread([r["empty"][what] - r["untraced"][what] for r in rounds]),
                     "recorded_ns": spread([r["recorded"][what] - r["untraced"][what] for r in rounds]),
                     "recorded_to_empty": spread([(r["recorded"][what] - r["untraced"][what]) /
                                                  max(r["empty"][what] - r["untraced"][what], 1) for r in rounds])}
    return out


def bench_calls(args, python):
    """Calls of CUDA's runtime with entry and return probes, without a GPU."""
    return bench_events(args, python, "calls", ("--device", "cuda"), truth.dry_run("async"))


def bench_steps(args, python, name, seconds, options):
    path = harness.scratch(name + ".jsonl")
    p = harness.spawn([python, os.path.join(harness.WORKLOADS, "train_gpt.py"), "--times", path, "--warmup", "20",
                       "--every", "1000", *options])
    p.wait_line("^step", 120)
    time.sleep(2)
    rounds = rounds_of(name, p.popen.pid, Tail(path), args, {"wall": lambda r: r[1] - r[0], "cpu": lambda r: r[2]},
                       seconds, STEP_STATES)
    p.stop()
    out = {"tracer": tracer_of(rounds), "step_ms": spread([1e3 * r["untraced"]["wall"] for r in rounds])}
    out["noise"] = spread([r["again"]["cpu"] / r["untraced"]["cpu"] for r in rounds])
    for state in STEP_STATES[1:]:
        out[state] = {c: spread([r[state][c] / r["untraced"][c] for r in rounds]) for c in ("wall", "cpu")}
    out["autograd"] = {c: spread([r["recorded"][c] / r["no autograd"][c] for r in rounds]) for c in ("wall", "cpu")}
    out["events_per_step"] = statistics.median(
        r["tracer"]["events_s"] * r["recorded"]["wall"] for r in rounds)
    return out


def show_tracer(t):
    line("events a second", t["events_per_second"])
    print("  %-46s %d" % ("lost", t["lost"]))
    line("tracer's CPU, % of a core", t["cpu_of_one_core"], 1, 100)
    line("  the same per 10 000 events a second", t["cpu_per_10000_events_per_second"], 2, 100)
    print("  %-46s %.1f MiB" % ("tracer's memory, at most", t["rss"] / 2**20))
    line("bytes an event in the recording", t["bytes_per_event"], 2)


EVENT_WORDS = {"events": "An event", "calls": "A call of cudaMallocAsync or cudaFreeAsync, on the dry run"}


def show_events(part, doc):
    print("\n%s, CPU ns of the target's thread (about ten Python frames, three modules)" % EVENT_WORDS[part])
    for what in ("alloc", "free"):
        e = doc[what]
        line("%s, untraced" % what, e["untraced_ns"])
        line("%s, added by an empty probe" % what, e["empty_ns"])
        line("%s, added by recording it" % what, e["recorded_ns"])
        line("%s, recording against the empty probe" % what, e["recorded_to_empty"], 2)
    show_tracer(doc["tracer"])


def show_steps(name, s):
    print("\nA training step, %s model, %.0f events a step" % (name, s["events_per_step"]))
    line("untraced, ms", s["step_ms"], 2)
    for state in STEP_STATES[1:]:
        line("%s / untraced, wall time" % state, s[state]["wall"], 3)
        line("%s / untraced, CPU time" % state, s[state]["cpu"], 3)
    line("recorded / no autograd, wall time", s["autograd"]["wall"], 3)
    line("recorded / no autograd, CPU time", s["autograd"]["cpu"], 3)
    show_tracer(s["tracer"])

#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
What being traced costs, in one interleaved run: each round measures the same process untraced, with empty
probes, and recorded, training steps also with --no-autograd, one after the other in changing order, so that a noisy
machine is noisy for all. Shown are medians over the rounds of the differences (ns an event) and of the ratios (step
time), with their spread.

    tools/bench.py [--rounds 7] [--seconds 2]

Prints a table; writes .output/bench.json.
"""
import argparse
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "tests", "e2e"))
import harness  # noqa: E402
import truth  # noqa: E402

STATES = ("untraced", "empty", "recorded")
STEP_STATES = ("untraced", "empty", "recorded", "no autograd")
TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid):
    with open("/proc/%d/stat" % pid, encoding="ascii", errors="replace") as f:
        fields = f.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def memory(pid):
    with open("/proc/%d/status" % pid, encoding="ascii", errors="replace") as f:
        text = f.read()
    return {k: int(re.search(r"%s:\s+(\d+) kB" % k, text)[1]) * 1024 for k in ("VmRSS", "VmHWM")}


class Tail:
    """The lines that a workload adds to its file between two moments of its own clock."""

    def __init__(self, path):
        self.path = path

    def between(self, begin, end):
        with open(self.path, encoding="utf-8") as f:
            rows = [json.loads(line) for line in f if line.endswith("\n")]
        return [r for r in rows if begin <= r[0] <= end]


def attach(state, pid, path):
    if state == "untraced":
        return None
    command = [harness.TOOL, "record", "-p", str(pid), "-o", path, "-f"]
    if state == "no autograd":
        command.append("--no-autograd")
    if state == "empty":
        command = ["env", "MEMTRACE_BENCH=empty", *command]
    p = harness.spawn(command, root=True)
    p.wait_line(harness.ATTACHED, 30, stream="err")
    return p


def tracer_pid(p):
    """env execs; sudo does not."""
    return p.pid


def measure(state, pid, tail, seconds, recording):
    """One window of one state: the workload's own lines in it, and what the tracer used meanwhile."""
    p = attach(state, pid, recording)
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


def rounds_of(name, pid, tail, args, columns, seconds, states=STATES):
    """[{state: {column: median of the window}, "tracer": ...}] for each round."""
    recording = harness.scratch(name + ".mtr")
    result = []
    for n in range(args.rounds):
        one = {}
        for state in states[n % len(states):] + states[:n % len(states)]:
            rows, tracer = measure(state, pid, tail, seconds, recording)
            one[state] = {c: statistics.median(f(r) for r in rows) for c, f in columns.items()}
            if state == "recorded":
                one["tracer"] = tracer
        result.append(one)
        sys.stderr.write("\r%s: round %d of %d " % (name, n + 1, args.rounds))
    sys.stderr.write("\r\033[K" if sys.stderr.isatty() else "\n")
    return result


def spread(values):
    q = statistics.quantiles(values, n=4) if len(values) > 1 else [values[0]] * 3
    return {"median": statistics.median(values), "quartiles": [q[0], q[2]], "values": values}


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
    out = {"tracer": tracer_of(rounds)}
    for what in ("alloc", "free"):
        out[what] = {"untraced_ns": spread([r["untraced"][what] for r in rounds]),
                     "empty_ns": spread([r["empty"][what] - r["untraced"][what] for r in rounds]),
                     "recorded_ns": spread([r["recorded"][what] - r["untraced"][what] for r in rounds]),
                     "recorded_to_empty": spread([(r["recorded"][what] - r["untraced"][what]) /
                                                  max(r["empty"][what] - r["untraced"][what], 1) for r in rounds])}
    return out


def bench_calls(args, python):
    """Blocks that are calls of CUDA's runtime, with a probe at the entry and one at the return; without a GPU."""
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
    for state in STEP_STATES[1:]:
        out[state] = {c: spread([r[state][c] / r["untraced"][c] for r in rounds]) for c in ("wall", "cpu")}
    out["autograd"] = {c: spread([r["recorded"][c] / r["no autograd"][c] for r in rounds]) for c in ("wall", "cpu")}
    out["events_per_step"] = statistics.median(
        r["tracer"]["events_s"] * r["recorded"]["wall"] for r in rounds)
    return out


DUMPED = ("gpt", "llama", "fsdp2")


def asked(p, what):
    """The workload's longest step since it was last asked for "worst", in s, and how many steps there were."""
    p.out.clear()
    p.send(what + "\n")
    return [float(x) for x in p.wait_line("^did " + what, 60).split()[2:]]


def window(p, wait):
    """Of the time that wait takes: how long that was, the longest step, a step on average, all in s."""
    asked(p, "worst")
    begin = time.monotonic()
    result = wait()
    took = time.monotonic() - begin
    longest, steps = asked(p, "none")
    return took, longest, took / max(steps, 1), result


def bench_dump(args, python):
    """`dump` of jobs that train on one thread meanwhile: how long it takes, and what their steps take beside it and alone."""
    out = {}
    for kind in (*DUMPED, "many"):
        p = harness.spawn([python, os.path.join(harness.WORKLOADS, "dump.py"), kind, "cpu", harness.scratch(kind + ".json")],
                          env=dict(os.environ, PYTHONUNBUFFERED="1", OMP_NUM_THREADS="1"))
        p.wait_line("^ready", 120)
        asked(p, "train")
        time.sleep(1)
        rounds = []
        for _ in range(args.rounds):
            beside = window(p, lambda: harness.tool("dump", "-p", str(p.popen.pid), "--format", "json", root=True))
            code, text, err = beside[3]
            harness.check(code == 0, "dump of %s: %d, %s", kind, code, err[-300:])
            alone = window(p, lambda: time.sleep(beside[0]))
            rounds.append((beside, alone, json.loads(text)["reading"]))
        p.stop()
        out[kind] = {"objects": rounds[-1][2]["objects"], "seconds": spread([r[0][0] for r in rounds]),
                     "reading": spread([r[2]["seconds"] for r in rounds]),
                     "step_ms": spread([1e3 * r[1][2] for r in rounds]), "longest_ms": spread([1e3 * r[1][1] for r in rounds]),
                     "step": spread([r[0][2] / r[1][2] for r in rounds]), "longest": spread([r[0][1] / r[1][1] for r in rounds])}
    return out


def machine():
    model = ""
    with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as f:
        m = re.search(r"model name\s*: (.*)", f.read())
        model = m[1] if m else platform.machine()
    return {"cpu": model, "cores": os.cpu_count(), "kernel": platform.release(), "load": os.getloadavg()[0]}


def show(doc):
    def line(name, s, digits=0):
        print("  %-44s %10.*f   (quartiles %.*f .. %.*f)" % (name, digits, s["median"], digits, s["quartiles"][0],
                                                             digits, s["quartiles"][1]))

    def percent(s):
        return {k: [100 * x for x in v] if isinstance(v, list) else 100 * v for k, v in s.items()}

    def tracer(t):
        line("events a second", t["events_per_second"])
        print("  %-44s %10d" % ("lost", t["lost"]))
        line("tracer's CPU, % of a core", percent(t["cpu_of_one_core"]), 1)
        line("  the same per 10 000 events a second", percent(t["cpu_per_10000_events_per_second"]), 2)
        print("  %-44s %10.1f MiB" % ("tracer's memory, at most", t["rss"] / 2**20))
        line("bytes an event in the recording", t["bytes_per_event"], 2)

    m = doc["machine"]
    print("%s, %d cores, kernel %s, torch %s; %d rounds of %.1f s a state" % (
        m["cpu"], m["cores"], m["kernel"], doc["torch"], doc["rounds"], doc["seconds"]))
    for part, words in (("events", "An event"), ("calls", "A call of cudaMallocAsync or cudaFreeAsync, on the dry run")):
        print("\n%s, CPU ns of the target's thread (about ten Python frames, three modules)" % words)
        for what in ("alloc", "free"):
            e = doc[part][what]
            line("%s, untraced" % what, e["untraced_ns"])
            line("%s, added by an empty probe" % what, e["empty_ns"])
            line("%s, added by recording it" % what, e["recorded_ns"])
            line("%s, recording against the empty probe" % what, e["recorded_to_empty"], 2)
        tracer(doc[part]["tracer"])
    for name in ("small", "demo"):
        s = doc[name]
        print("\nA training step, %s model, %.0f events a step" % (name, s["events_per_step"]))
        line("untraced, ms", s["step_ms"], 2)
        for state in STEP_STATES[1:]:
            line("%s / untraced, wall time" % state, s[state]["wall"], 3)
            line("%s / untraced, CPU time" % state, s[state]["cpu"], 3)
        line("recorded / no autograd, wall time", s["autograd"]["wall"], 3)
        line("recorded / no autograd, CPU time", s["autograd"]["cpu"], 3)
        tracer(s["tracer"])
    for kind, d in doc["dump"].items():
        print("\n`dump` of a job that trains: %s, %d Python objects" % (kind, d["objects"]))
        line("from Enter to the answer, s", d["seconds"], 3)
        line("of that, reading, s", d["reading"], 3)
        line("a step alone, ms", d["step_ms"], 2)
        line("a step beside dump / alone", d["step"], 3)
        line("the longest step alone, ms", d["longest_ms"], 2)
        line("the longest step beside dump / alone", d["longest"], 3)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rounds", type=int, default=7)
    p.add_argument("--seconds", type=float, default=2.0, help="of each window; of the large model, twice that")
    p.add_argument("--only", choices=("events", "calls", "small", "demo", "dump"), action="append")
    args = p.parse_args()
    try:
        python = harness.python("main")
    except harness.Skip as e:
        sys.exit("bench: %s" % e)
    torch = subprocess.run([python, "-c", "import torch; print(torch.__version__)"], capture_output=True, text=True,
                           check=True).stdout.strip()
    doc = {"machine": machine(), "torch": torch, "rounds": args.rounds, "seconds": args.seconds}
    parts = {"events": lambda: bench_events(args, python),
             "calls": lambda: bench_calls(args, python),
             "small": lambda: bench_steps(args, python, "small", args.seconds, harness.TINY),
             "demo": lambda: bench_steps(args, python, "demo", 2 * args.seconds, ()),
             "dump": lambda: bench_dump(args, python)}
    for name, part in parts.items():
        if not args.only or name in args.only:
            doc[name] = part()
    path = os.path.join(harness.OUT, "bench.json")
    with open(path, "w", encoding="utf-8") as f:
        json.dump(doc, f, indent=1)
    if args.only:
        print(json.dumps({k: doc[k] for k in args.only}, indent=1))
    else:
        show(doc)
    print("\n%s" % path)


if __name__ == "__main__":
    try:
        main()
    except harness.Failure as failure:
        sys.exit("bench: %s" % failure)

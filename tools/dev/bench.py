#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
Measures the cost of tracing in interleaved rounds: each measures the same process untraced, untraced again (the machine's noise),
with empty probes and recorded, in changing order, so that noise of the machine affects all alike. Prints medians over the rounds
with 95 % intervals (bootstrap), and the goals with met or missed.

    tools/dev/bench.py                      all parts, under 15 minutes
    tools/dev/bench.py --only bpf --only peers [--rounds 7] [--seconds 1]

A part has rounds until its share of --minutes is over, and at least 3. A part prints no ratio but the reason when the
machine is too busy, and the exit status is 3. --anyway prints them, with a mark.

Parts: a step under PyTorch's own recorder (peers, peers-cpu), a step of a GPU-bound and a launch-bound job (clock), the latter with
--cost 1% and a leak (cost), time in the kernel's programs (bpf), a training step (small, demo), one event (events), one call into
CUDA (calls), attach and detach (stall), long recordings (report), memory with a million blocks (memory), dump during training
(dump); only with --only or --long: what --host adds (host). docs/internals/OVERHEAD.md describes each.

Prints tables; writes .output/bench.json, which tools/dev/bench_history.py keeps and compares.
"""
import argparse
import datetime
import json
import os
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "tests", "e2e"))
import harness  # noqa: E402
from bench import bpf, clock, dump, figures, history, host, limit, machine, part, peers, scale, stall, steps  # noqa: E402

# Seconds of each part in a run of 14 minutes, in the order in which they run. Not here: only with --only or --long.
SHARES = {"peers": 230, "bpf": 80, "clock": 100, "cost": 210, "small": 60, "events": 30, "calls": 30, "stall": 35, "report": 25, "dump": 25,
          "memory": 55}
LONG = {"peers-cpu": 200, "demo": 120, "host": 150}
TOO_BUSY = 3
RESERVE = 30  # s: a part that may not be over by --minutes does not begin


def optional_python(role):
    try:
        return harness.python(role)
    except harness.Skip:
        return None


def parts(args, python):
    """{name: (function that measures, function that prints)}."""
    return {
        "events": (lambda: steps.bench_events(args, python), lambda d: steps.show_events("events", d)),
        "calls": (lambda: steps.bench_calls(args, python), lambda d: steps.show_events("calls", d)),
        "small": (lambda: steps.bench_steps(args, python, "small", args.seconds, harness.TINY),
                  lambda d: steps.show_steps("small", d)),
        "demo": (lambda: steps.bench_steps(args, python, "demo", 4 * args.seconds, ()), lambda d: steps.show_steps("demo", d)),
        "dump": (lambda: dump.bench_dump(args, python), dump.show),
        "peers": (lambda: peers.bench(args, python, optional_python("bench"), "cuda"), peers.show),
        "peers-cpu": (lambda: peers.bench(args, python, optional_python("bench"), "cpu"), peers.show),
        "stall": (lambda: stall.bench(args, python, optional_python("bench")), stall.show),
        "report": (lambda: scale.bench_report(args), scale.show_report),
        "memory": (lambda: scale.bench_memory(args, python), scale.show_memory),
        "clock": (lambda: clock.bench(args, python), clock.show),
        "cost": (lambda: limit.bench(args, python), limit.show),
        "bpf": (lambda: bpf.bench(args, python), bpf.show),
        "host": (lambda: host.bench(args, python), host.show),
    }


def share_of(args, name):
    """Seconds for the rounds of a part; the rounds of "report of 1000000" are a part of those of report."""
    whole = name.split()[0]
    seconds = {**SHARES, **LONG}[whole] * args.minutes * 60 / sum(SHARES.values())
    return seconds * (3 if args.long else 1) / (1 if whole == name else 2)


def show_goals(doc, anyway):
    found = figures.figures({k: v for k, v in doc.items() if anyway or k not in doc["busy"] or k in part.TIMES})
    print("\n== goals%s\n" % (" (parts on a busy machine: %s)" % ", ".join(doc["busy"]) if doc["busy"] else ""))
    print("\n".join(history.goals_table(found)))
    verdicts = [verdict for _, _, _, verdict in figures.judge(found)]
    print("\n%d of %d goals are missed, %d were not measured" % (
        sum(v.startswith("missed") for v in verdicts), len(verdicts), verdicts.count("not measured")))


def arguments(names):
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--minutes", type=float, default=13.0, help="of a whole run; each part has its share")
    p.add_argument("--rounds", type=int, default=0, help="instead of a share of the time")
    p.add_argument("--seconds", type=float, default=0.8, help="of each window; of the large model, four times that")
    p.add_argument("--long", action="store_true", help="also the parts and tools that take longer than a run of 15 minutes has")
    p.add_argument("--tools", metavar="NAMES", help="of the peers only these, as the table has them, with commas")
    p.add_argument("--events", type=float, help="report also a recording of so many events (1e8: 0.4 GB of disk)")
    p.add_argument("--only", choices=names, action="append")
    p.add_argument("--anyway", action="store_true", help="measure and print, with a mark, on a busy machine too")
    p.add_argument("--wait", type=float, default=20, metavar="SECONDS", help="wait so long for a quiet machine before each part")
    args = p.parse_args()
    args.share = lambda name: share_of(args, name)
    return args


def main():
    args = arguments(list(parts(None, None)))
    try:
        python = harness.python("main")
    except harness.Skip as e:
        sys.exit("bench: %s" % e)
    torch = subprocess.run([python, "-c", "import torch; print(torch.__version__)"], capture_output=True, text=True,
                           check=True).stdout.strip()
    doc = {"machine": machine.describe(), "torch": torch, "commit": history.commit(), "rounds": args.rounds, "seconds": args.seconds,
           "measured": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"), "busy": {}, "during": {}}
    print("%s, torch %s, commit %s%s; windows of %.1f s" % (
        machine.words(doc["machine"]), torch, doc["commit"]["commit"], " with changes" if doc["commit"]["changed"] else "",
        args.seconds), flush=True)
    known = parts(args, python)
    end = time.monotonic() + 60 * args.minutes
    for name in args.only or [*SHARES, *(LONG if args.long else ())]:
        if not args.only and not args.long and not args.rounds and time.monotonic() > end - RESERVE:
            print("\n%s: not measured, the %.0f minutes are over" % (name, args.minutes))
            continue
        part.measure(args, name, *known[name], doc)
        sys.stdout.flush()
    show_goals(doc, args.anyway)
    path = os.path.join(harness.OUT, "bench.json")
    with open(path, "w", encoding="utf-8") as f:
        json.dump(doc, f, indent=1)
    print("\n%s" % path)
    refused = [name for name in doc["busy"] if name not in part.TIMES]
    if refused and not args.anyway:
        sys.stdout.flush()
        sys.stderr.write("bench: the machine was too busy for: %s\n" % ", ".join(refused))
        return TOO_BUSY
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except harness.Failure as failure:
        sys.exit("bench: %s" % failure)

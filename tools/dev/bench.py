#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
Measures the cost of tracing in one interleaved run: each round measures the same process untraced, with empty probes, and
recorded (training steps also with --no-autograd), in changing order, so that noise of the machine affects all alike. Prints
medians over the rounds of the differences (ns/event) and of the ratios (step time), with their spread.

    tools/dev/bench.py [--rounds 7] [--seconds 2] [--only PART]

Parts: one event (events), one call into CUDA (calls), a training step (small, demo), dump during training (dump), a step under
other tools (peers, peers-cpu), attach and detach (stall), long recordings (report), memory with a million blocks (memory), time
in the kernel's programs (bpf). docs/internals/OVERHEAD.md describes each.

Prints tables; writes .output/bench.json.
"""
import argparse
import json
import os
import platform
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "tests", "e2e"))
import harness  # noqa: E402
from bench import bpf, dump, peers, scale, stall, steps  # noqa: E402


def machine():
    model = ""
    with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as f:
        m = re.search(r"model name\s*: (.*)", f.read())
        model = m[1] if m else platform.machine()
    return {"cpu": model, "cores": os.cpu_count(), "kernel": platform.release(), "load": os.getloadavg()[0]}


def optional_python(role):
    try:
        return harness.python(role)
    except harness.Skip:
        return None


def parts(args, python):
    """{name: (function that measures, function that prints)}, in the order of a whole run."""
    return {
        "events": (lambda: steps.bench_events(args, python), lambda d: steps.show_events("events", d)),
        "calls": (lambda: steps.bench_calls(args, python), lambda d: steps.show_events("calls", d)),
        "small": (lambda: steps.bench_steps(args, python, "small", args.seconds, harness.TINY),
                  lambda d: steps.show_steps("small", d)),
        "demo": (lambda: steps.bench_steps(args, python, "demo", 2 * args.seconds, ()), lambda d: steps.show_steps("demo", d)),
        "dump": (lambda: dump.bench_dump(args, python), dump.show),
        "peers": (lambda: peers.bench(args, python, optional_python("bench"), "cuda"), peers.show),
        "peers-cpu": (lambda: peers.bench(args, python, optional_python("bench"), "cpu"), peers.show),
        "stall": (lambda: stall.bench(args, python, optional_python("bench")), stall.show),
        "report": (lambda: scale.bench_report(args), scale.show_report),
        "memory": (lambda: scale.bench_memory(args, python), scale.show_memory),
        "bpf": (lambda: bpf.bench(args, python), bpf.show),
    }


def main():
    names = list(parts(None, None))
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rounds", type=int, default=7)
    p.add_argument("--seconds", type=float, default=2.0, help="of each window; of the large model, twice that")
    p.add_argument("--tools", metavar="NAMES", help="of the peers only these, as the table has them, with commas")
    p.add_argument("--events", type=float, help="report also a recording of so many events (1e8: 0.4 GB of disk)")
    p.add_argument("--only", choices=names, action="append")
    args = p.parse_args()
    try:
        python = harness.python("main")
    except harness.Skip as e:
        sys.exit("bench: %s" % e)
    torch = subprocess.run([python, "-c", "import torch; print(torch.__version__)"], capture_output=True, text=True,
                           check=True).stdout.strip()
    doc = {"machine": machine(), "torch": torch, "rounds": args.rounds, "seconds": args.seconds}
    m = doc["machine"]
    print("%s, %d cores, kernel %s, load %.1f, torch %s; %d rounds of %.1f s a state" % (
        m["cpu"], m["cores"], m["kernel"], m["load"], torch, args.rounds, args.seconds), flush=True)
    for name, (measure, show) in parts(args, python).items():
        if not args.only or name in args.only:
            doc[name] = measure()
            show(doc[name])
            sys.stdout.flush()
    path = os.path.join(harness.OUT, "bench.json")
    with open(path, "w", encoding="utf-8") as f:
        json.dump(doc, f, indent=1)
    print("\n%s" % path)


if __name__ == "__main__":
    try:
        main()
    except harness.Failure as failure:
        sys.exit("bench: %s" % failure)

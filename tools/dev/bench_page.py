#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
Measures the page of export html: time to write it, its size, and in headless Chromium the time to the first picture, the
time until its events are loaded, and the frame rate while brushing. docs/internals/OVERHEAD.md has the figures.

    tools/dev/bench_page.py [--events 1000000] [RECORDING ...]

Without a recording: a generated one (tests/tools/make_events) of --events events.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "tests", "e2e"))
import harness  # noqa: E402
from test_foreign import readers  # noqa: E402


def measure(recording, folder):
    page = os.path.join(folder, "page.html")
    begin = time.monotonic()
    subprocess.run([harness.TOOL, "export", "html", recording, "-f", "-o", page], check=True, capture_output=True)
    seconds = time.monotonic() - begin
    try:
        done = subprocess.run(["node", os.path.join(readers(), "bench_page.mjs"), page], stdout=subprocess.PIPE, text=True, check=False)
    except harness.Skip as why:
        sys.exit("bench_page.py: %s" % why)
    if done.returncode:
        sys.exit("bench_page.py: bench_page.mjs ended with %d" % done.returncode)
    r = json.loads(done.stdout)
    print("%s: %s events, %s moments" % (os.path.basename(recording), format(r["events"], ","), format(r["moments"], ",")))
    print("  written in         %6.1f s, %.1f MiB" % (seconds, r["bytes"] / 2**20))
    print("  first paint        %6d ms (all of the first picture: %d ms)" % (r["first_paint_ms"], r["first_picture_ms"]))
    print("  events there       %6d ms, %d ms of it to read them" % (r["ready_ms"], r["open_ms"]))
    for what, v in r["brush"].items():
        print("  brush, %-20s %5.1f pictures/s (one in twenty takes %.0f ms or more)" % (what, v["pictures_per_second"], v["slow_ms"]))
    print("  zoom %-22s %5.1f pictures/s" % ("", r["zoom"]["pictures_per_second"]))
    r["export_seconds"] = seconds
    return r


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    parser.add_argument("--events", type=int, default=1000000)
    parser.add_argument("recording", nargs="*")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="memtrace-bench-") as folder:
        recordings = args.recording
        if not recordings:
            recordings = [os.path.join(folder, "made-up.mtr")]
            subprocess.run([os.path.join(harness.OUT, "tests", "tools", "make_events"), recordings[0], str(args.events)], check=True)
        results = [measure(r, folder) for r in recordings]
    print("load %.1f on %d cores" % (os.getloadavg()[0], os.cpu_count()))
    with open(os.path.join(harness.OUT, "bench-page.json"), "w", encoding="utf-8") as f:
        json.dump(results, f, indent=1)


main()

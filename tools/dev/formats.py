#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
Reads every format of `export` with other projects' programs and compares the results with report, to the byte.

    tools/dev/formats.py [RECORDING.mtr ...]

Default recordings: a small generated one, a GPT in training under the dry run's CUDA, and one of 10^6 events. Prints a table;
exits with 1 if a reader rejected a file. Missing readers are named.
"""
import os
import subprocess
import sys
import tempfile
import time

REPO = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(REPO, "tests", "e2e"))
OUT = os.path.join(REPO, os.environ.get("OUTPUT", ".output"))
TOOL = os.path.join(OUT, "memtrace-bpf")

import readers  # noqa: E402


def make_recordings(folder):
    small, gpt, many = (os.path.join(folder, n + ".mtr") for n in ("small", "gpt", "many"))
    subprocess.run([os.path.join(OUT, "tests", "tools", "make_recording"), small], check=True)
    python = readers.deps("python", "main")
    done = subprocess.run([TOOL, "run", "--dry-run-cuda", "-o", gpt, "--", python, os.path.join(REPO, "tests", "workloads", "gpt.py")],
                          capture_output=True, text=True, check=False)
    if done.returncode:
        print("no GPT under the dry run's CUDA (it takes root, as record does): %s" % done.stderr.strip().split("\n")[-1])
    subprocess.run([os.path.join(OUT, "tests", "tools", "make_events"), many, "1000000"], check=True)
    return [p for p in (small, gpt, many) if os.path.exists(p)]


def one(name, label, reader, path, want):
    begin = time.monotonic()
    try:
        n = readers.accept(name, reader, path, want)
        verdict = "accepted" + (", %d figures as report has them" % n if n else "")
        bad = 0
    except readers.Missing as why:
        verdict, bad = "not asked: %s" % why, 0
    except (readers.Wrong, subprocess.TimeoutExpired) as why:
        verdict, bad = "NOT ACCEPTED: %s" % why, 1
    print("  %-12s %-18s %6.1f s  %s" % (name, label, time.monotonic() - begin, verdict), flush=True)
    return bad


def check(recording, folder):
    """Number of readers that rejected a file."""
    bad = 0
    want = readers.expected(TOOL, recording)
    print("%s: %s" % (os.path.basename(recording), ", ".join("%s peak %d" % (d, v) for (d, n), v in want.items() if n == "peak")))
    for name, own in readers.OWN.items():
        path = os.path.join(folder, "out" + readers.SUFFIX[name])
        begin = time.monotonic()
        done = subprocess.run([TOOL, "export", name, recording, "-f", "-o", path], capture_output=True, text=True, check=False)
        if done.returncode:
            only_cpu = name == "snapshot" and "nothing of a GPU" in done.stderr
            print("  %-12s %s: %s" % (name, "left out" if only_cpu else "NOT WRITTEN", done.stderr.strip()))
            bad += not only_cpu
            continue
        print("  %-12s %.1f MB in %.1f s" % (name, os.path.getsize(path) / 1e6, time.monotonic() - begin))
        bad += one(name, "its rules", own, path, want)
        for label, reader in readers.THEIRS[name].items():
            bad += one(name, label, reader, path, want)
        os.unlink(path)
    return bad


def main():
    with tempfile.TemporaryDirectory(prefix="formats.") as folder:
        recordings = [os.path.abspath(p) for p in sys.argv[1:]] or make_recordings(folder)
        bad = sum(check(recording, folder) for recording in recordings)
    print("%d not accepted" % bad)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())

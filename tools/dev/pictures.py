#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
Writes docs/guide/page.png and docs/guide/serve.png: the page of a capture and the dashboard, with two training jobs, one of which leaks.
Needs root and Chromium, and takes three minutes.

    tools/dev/pictures.py            writes both
    tools/dev/pictures.py -o FOLDER  writes them into another folder

The jobs are tests/workloads/guide/train.py on a CUDA without a device: memory is PyTorch's own, times are not those of a GPU.
"""
import argparse
import os
import subprocess
import sys
import time

REPO = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(REPO, "tests", "e2e"))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.argv, ARGUMENTS = sys.argv[:1], sys.argv[1:]

import guide  # noqa: E402
import harness  # noqa: E402
import server  # noqa: E402
from test_foreign import readers  # noqa: E402

WATCHED = 90  # seconds of figures in the dashboard's chart
STEPS = 60
SLOW = 300 # seconds that a busy machine may take
GROWTH = "Page.set({ tab: 'growth' }); null"
# The leaking job while it is captured again.
CAPTURING = "Page.set({ chosen: 'p %d' }); \"document.querySelector('#running .progress') && Page.chosenProcess().samples.length > 60\""


def picture(target, path, size, script):
    done = subprocess.run(["node", os.path.join(readers(), "picture.mjs"), target, path, size, script], check=False)
    harness.check(done.returncode == 0, "no picture of %s", target)
    print("%s: %d KiB" % (path, os.path.getsize(path) // 1024))


def capture(s, job, **options):
    return s.post("/api/trace/memory", dict(options, pid=job.pid, wait=False)).expect().json["trace_id"]


def page(folder):
    job = guide.job("--keep", "--pause", "0.02", vram="8G")
    recording, html = harness.scratch("leak.mtr"), harness.scratch("leak.html")
    for command in (["record", "-p", str(job.pid), "--steps", str(STEPS), "-o", recording], ["export", "html", recording, "-o", html]):
        code, _, err = harness.tool(*command, seconds=SLOW)
        harness.check(code == 0, "%s: %s", command[0], err)
    job.stop()
    picture(html, os.path.join(folder, "page.png"), "1280x900", GROWTH)


def dashboard(folder):
    leaks = guide.job("--keep", "--pause", "0.25", vram="24G")
    other = guide.job("--layers", "2", "--pause", "0.1", vram="24G")
    s = server.Server("--target", "gpt=%d" % leaks.pid, "--target", "small=%d" % other.pid)
    time.sleep(WATCHED)
    for job, steps in (other, 2 * STEPS), (leaks, STEPS):
        s.wait_trace(capture(s, job, steps=steps), seconds=SLOW)
    s.wait_trace(capture(s, leaks, duration_s=60), ("capturing",))
    time.sleep(8)
    picture(s.url + "/#/", os.path.join(folder, "serve.png"), "1280x740", CAPTURING % leaks.pid)
    s.stop()


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("-o", default=os.path.join(REPO, "docs", "guide"), metavar="FOLDER")
    args = p.parse_args(ARGUMENTS)
    page(args.o)
    dashboard(args.o)
    harness.stop_all()


if __name__ == "__main__":
    main()

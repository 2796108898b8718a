#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
Writes docs/guide/live.txt: screens of the live view of a training job, with the pressed keys. Needs root.

    tools/dev/record_terminal.py                        the screens, 80 columns and 24 rows
    tools/dev/record_terminal.py --cast live.cast       also all output, for asciinema play
    tools/dev/record_terminal.py --size 160x50 --pictures FOLDER -o /dev/null

The job is tests/workloads/train_gpt.py on a CUDA without a device (run --dry-run-cuda): memory is PyTorch's own, times are not
those of a GPU.
"""
import argparse
import json
import os
import sys
import time

REPO = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(REPO, "tests", "e2e"))
sys.argv, ARGUMENTS = sys.argv[:1], sys.argv[1:]

import harness  # noqa: E402
from terminal import EXPECTED, Terminal  # noqa: E402

JOB = ["train_gpt.py", "--device", "cuda", "--width", "512", "--layers", "6", "--heads", "8", "--batch", "16", "--context", "256"]
# Keys, text that must appear on the screen, and the caption.
STORY = (
    ((), r"^ .*model\.py:\d+", "After some seconds: each line of the program, with what is live of it."),
    (("a",), r"^ .*model\.py:\d+", "a: the same lines, by how often they allocate."),
    (("ENTER",), r"STACK 1 of", "Enter: all of a line."),
    (("ESC", "t", "2"), r"%LIVE .* MODULE$", "Esc, t, 2: by module, what has most now first."),
    (("3",), r"%LIVE .* CATEGORY$", "3: what it is for."),
    (("4",), r"%LIVE .* MODULE, WITH ALL INSIDE", "4: modules under those that they are in."),
    (("5",), r"(?i)segment", "5: the segments that PyTorch's allocator took from CUDA."),
    (("1", "/", "phase:forward module:blocks.0", "ENTER"), r"/phase", "1, then / and a filter."),
    (("?",), r"next view", "?: all keys."),
)


def parse_args():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--size", default="80x24", metavar="COLUMNSxROWS")
    p.add_argument("-o", default=os.path.join(REPO, "docs", "guide", "live.txt"), metavar="FILE")
    p.add_argument("--cast", metavar="FILE", help="asciicast v2")
    p.add_argument("--pictures", metavar="FOLDER", help="each screen as a PNG (with chromium)")
    p.add_argument("--seconds", type=float, default=12, help="to look before the first key is pressed")
    return p.parse_args(ARGUMENTS)


def start_job():
    env = dict(os.environ, PYTHONUNBUFFERED="1", MEMTRACE_DRYRUN_VRAM="8G",
               LD_PRELOAD=" ".join(os.path.join(harness.OUT, "dryrun", n) for n in ("libcuda.so.1", "libnvidia-ml.so.1")))
    # In its own mount namespace, so that no path of this machine is shown.
    there = "mount -t tmpfs none /srv && mount -t tmpfs none /opt && mkdir /srv/job /opt/venv && mount --bind %s /srv/job && mount --bind %s /opt/venv" \
        " && cd /srv/job && exec /opt/venv/bin/python %s" % (harness.WORKLOADS, os.path.dirname(os.path.dirname(harness.python())), " ".join(JOB))
    job = harness.spawn(["unshare", "-m", "sh", "-c", there], env=env)
    job.wait_line("^step 20 ", 120)
    return job


def framed(t):
    edge = "+" + "-" * t.columns + "+\n"
    return edge + "".join("|" + row.ljust(t.columns) + "|\n" for row in t.rows()) + edge


def write_cast(path, t):
    with open(path, "w", encoding="utf-8") as f:
        f.write(json.dumps({"version": 2, "width": t.columns, "height": t.lines, "env": {"TERM": "xterm-256color"}}) + "\n")
        for when, data in t.output:
            f.write(json.dumps([round(when, 3), "o", data.decode("utf-8", "replace")]) + "\n")


def main():
    args = parse_args()
    columns, rows = (int(n) for n in args.size.split("x"))
    job = start_job()
    out = ["$ sudo memtrace-bpf -p %d\n" % job.popen.pid]
    t = Terminal([harness.TOOL, "-p", str(job.popen.pid)], columns, rows, root=True, cwd=REPO)
    t.wait("^allocated", 60)
    time.sleep(args.seconds)
    for i, (keys, pattern, words) in enumerate(STORY):
        for key in keys:
            t.send(key)
            time.sleep(0.5)
        t.wait(pattern)
        time.sleep(2.5)  # until a new view has rates
        out += ["\n", words, "\n\n", framed(t)]
        if args.pictures:
            os.makedirs(args.pictures, exist_ok=True)
            t.screenshot(os.path.join(args.pictures, "%s-%d.png" % (args.size, i + 1)))
    t.send("ESC")
    t.wait_gone("next view")
    t.send("q")
    t.end()
    lines = t.raw().decode("utf-8", "replace").split("\x1b[?1049l")[-1]
    out += ["\n", "q: the terminal as it was, and the summary.\n\n"]
    out += [line.rstrip() + "\n" for line in EXPECTED.sub("", lines).replace("\r", "").splitlines() if line]
    with open(args.o, "w", encoding="utf-8") as f:
        f.write("".join(out))
    if args.cast:
        write_cast(args.cast, t)
    harness.stop_all()


if __name__ == "__main__":
    main()

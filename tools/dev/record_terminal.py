#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
Writes docs/guide/live.svg: a screen recording of the live view of a training job with a leak, as an animated picture that needs no
script. Needs root and pyte.

    tools/dev/record_terminal.py                        100 columns and 28 rows
    tools/dev/record_terminal.py --cast live.cast       also all output, for asciinema play
    tools/dev/record_terminal.py --size 160x50 -o FILE

The job is tests/workloads/guide/train.py on a CUDA without a device: memory is PyTorch's own, times are not those of a GPU.
"""
import argparse
import html
import json
import os
import re
import sys
import threading
import time

REPO = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(REPO, "tests", "e2e"))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.argv, ARGUMENTS = sys.argv[:1], sys.argv[1:]

import guide  # noqa: E402
import harness  # noqa: E402
from terminal import Terminal  # noqa: E402

# Keys, a pattern of the screen after them, seconds to look at it, and the caption.
STORY = (
    ((), r"^ .*train\.py:\d+", 14, "Attached to the running job. Each line of the program, with the memory that it holds now."),
    (("0",), r"^ 1\. Leak", 6, "0: what is wrong, its line, what holds it, and what to do"),
    (("1", "d", "HOME", "ENTER"), r"(?i)stack 1 of", 5, "d, Enter: the line that grows most, with its stacks, sizes and ages"),
    (("ESC", "t", "2"), r"MODULE$", 5, "2: by module"),
    (("3",), r"(?i)(role|category)", 4, "3: by role"),
    (("4",), r"(?i)module", 4, "4: modules inside modules"),
    (("1", "/", "phase:forward", "ENTER"), r"/phase", 5, "/ filters: only memory of the forward phase"),
    (("q",), r"^\$$", 8, "q: detached; the job goes on. The summary names the line that grows."),
)
PICTURE = 0  # the part of the story to show where pictures do not move
INTERVAL = 1.4  # seconds between pictures
CELL, ROW, SIZE, MARGIN = 8.4, 17, 14, 12
COLOURS = {"black": "#30343c", "red": "#f47067", "green": "#57ab5a", "brown": "#daaa3f", "blue": "#6cb6ff", "magenta": "#dcbdfb",
           "cyan": "#56d4dd", "white": "#cdd9e5", "brightblack": "#768390"}
FRONT, BACK = "#cdd9e5", "#1c2128"


class Camera:
    """Pictures of a terminal: rows of (text, colour, background, bold) runs, with the time and a caption."""

    def __init__(self, terminal):
        self.terminal, self.caption, self.frames, self.best = terminal, "", [], 0
        self.start, self.over = time.monotonic(), threading.Event()
        self.thread = threading.Thread(target=self.watch, daemon=True)
        self.thread.start()

    def take(self):
        t = self.terminal
        rows = []
        with t.changed:
            for y in range(t.lines):
                runs = []
                for x in range(t.columns):
                    c = t.screen.buffer[y][x]
                    front, back = colour(c.fg, FRONT), colour(c.bg, BACK)
                    style = (back, front, c.bold) if c.reverse else (front, back, c.bold)
                    if runs and runs[-1][1:] == style:
                        runs[-1] = (runs[-1][0] + c.data, *style)
                    else:
                        runs.append((c.data, *style))
                rows.append(tuple(runs))
        frame = (tuple(rows), self.caption)
        if not self.frames or self.frames[-1][1] != frame:
            self.frames.append((time.monotonic() - self.start, frame))

    def watch(self):
        while not self.over.wait(INTERVAL):
            self.take()

    def stop(self):
        self.take()
        self.over.set()
        self.thread.join()


def colour(name, default):
    if name == "default":
        return default
    return "#" + name if re.fullmatch("[0-9a-f]{6}", name) else COLOURS.get(name, COLOURS.get(name.replace("bright", ""), default))


def number(value):
    return ("%.1f" % value).rstrip("0").rstrip(".")


def row_svg(runs, classes):
    """A row at y 0."""
    out, x = [], 0
    for text, front, back, bold in runs:
        width = len(text)
        if back != BACK:
            out.append('<path fill="%s" d="M%s 0h%sv%dh-%sz"/>' % (back, number(x * CELL), number(width * CELL), ROW, number(width * CELL)))
        for part in re.finditer(r"\S+(?: \S+)*", text):
            words = part[0]
            name = classes.setdefault((front, bold), "c%d" % len(classes))
            out.append('<text x="%s" y="13" textLength="%s" class="%s">%s</text>' % (
                number((x + part.start()) * CELL), number(len(words) * CELL), name, html.escape(words, quote=False)))
        x += width
    return "".join(out)


def to_svg(camera, terminal, seconds):
    width, height = terminal.columns * CELL + 2 * MARGIN, (terminal.lines + 2) * ROW + 2 * MARGIN
    rows, classes, frames, steps = {}, {(FRONT, True): "c0"}, [], []
    for i, (when, (lines, caption)) in enumerate(camera.frames):
        uses = []
        for y, runs in enumerate(lines):
            if any(text.strip() or back != BACK for text, _, back, _ in runs):
                name = rows.setdefault(runs, len(rows))
                uses.append('<use href="#r%d" y="%d"/>' % (name, y * ROW))
        uses.append('<text y="%d" class="k">%s</text>' % ((terminal.lines + 1) * ROW + 10, html.escape(caption, quote=False)))
        frames.append('<g transform="translate(0 %d)">%s</g>' % (i * 1000, "".join(uses)))
        steps.append("%.2f%%{transform:translateY(-%dpx)}" % (100 * when / seconds, i * 1000))
    steps.append("100%%{transform:translateY(-%dpx)}" % ((len(frames) - 1) * 1000))
    styles = "".join(".%s{fill:%s%s}" % (name, front, ";font-weight:bold" if bold else "") for (front, bold), name in classes.items())
    defs = "".join('<g id="r%d">%s</g>' % (n, row_svg(runs, classes)) for runs, n in rows.items())
    styles = "".join(".%s{fill:%s%s}" % (name, front, ";font-weight:bold" if bold else "") for (front, bold), name in classes.items())
    return """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %(w)s %(h)s" width="%(w)s" height="%(h)s">
<title>The live view of memtrace-bpf on a training job with a leak</title>
<style>text{font:%(size)dpx ui-monospace,'DejaVu Sans Mono',Menlo,Consolas,monospace;white-space:pre}
.k{fill:#96d0ff;font-style:italic}%(styles)s
#film{transform:translateY(-%(best)dpx);animation:film %(seconds)ss step-end infinite}
@media(prefers-reduced-motion:reduce){#film{animation:none}}
@keyframes film{%(steps)s}</style>
<defs>%(defs)s</defs>
<rect width="100%%" height="100%%" rx="8" fill="%(back)s" stroke="#545d68"/>
<svg x="%(m)d" y="%(m)d" width="%(iw)s" height="%(ih)s"><g id="film">%(frames)s</g></svg>
</svg>
""" % {"w": number(width), "h": number(height), "size": SIZE, "styles": styles, "best": camera.best * 1000, "seconds": number(seconds),
            "steps": "".join(steps), "defs": defs, "back": BACK, "m": MARGIN, "iw": number(width - 2 * MARGIN),
            "ih": number(height - 2 * MARGIN), "frames": "\n".join(frames)}


def write_cast(path, t):
    with open(path, "w", encoding="utf-8") as f:
        f.write(json.dumps({"version": 2, "width": t.columns, "height": t.lines, "env": {"TERM": "xterm-256color"}}) + "\n")
        for when, data in t.output:
            f.write(json.dumps([round(when, 3), "o", data.decode("utf-8", "replace")]) + "\n")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--size", default="100x28", metavar="COLUMNSxROWS")
    p.add_argument("-o", default=os.path.join(REPO, "docs", "guide", "live.svg"), metavar="FILE")
    p.add_argument("--cast", metavar="FILE", help="asciicast v2")
    args = p.parse_args(ARGUMENTS)
    columns, rows = (int(n) for n in args.size.split("x"))

    job = guide.job("--keep", "--pause", "0.2", vram="8G")
    bin_folder = harness.scratch("bin")
    os.mkdir(bin_folder)
    os.symlink(harness.TOOL, os.path.join(bin_folder, "memtrace-bpf"))
    with open(os.path.join(bin_folder, "sudo"), "w", encoding="utf-8") as f:
        f.write('#!/bin/sh\nexec "$@"\n')
    os.chmod(os.path.join(bin_folder, "sudo"), 0o755)
    t = Terminal(["bash", "--norc"], columns, rows, root=True, cwd=harness.scratch(),
                 env={"PS1": "$ ", "PATH": "%s:%s" % (bin_folder, os.environ["PATH"])})
    t.wait(r"^\$$")
    camera = Camera(t)
    for word in ("sudo ", "memtrace-bpf ", "-p %d --top 4" % job.popen.pid):
        t.send(word)
        time.sleep(0.6)
        camera.take()
    t.send("ENTER")
    for i, (keys, pattern, seconds, caption) in enumerate(STORY):
        for key in keys:
            t.send(key)
            time.sleep(0.4)
            camera.take()
        camera.caption = caption
        t.wait(pattern, 60)
        time.sleep(seconds)
        if i == PICTURE:
            camera.best = len(camera.frames) - 1
    camera.stop()
    t.send("exit", "ENTER")
    t.end()
    picture = to_svg(camera, t, time.monotonic() - camera.start)
    with open(args.o, "w", encoding="utf-8") as f:
        f.write(picture)
    print("%s: %d pictures, %d KiB" % (args.o, len(camera.frames), len(picture.encode()) // 1024))
    if args.cast:
        write_cast(args.cast, t)
    harness.stop_all()


if __name__ == "__main__":
    main()

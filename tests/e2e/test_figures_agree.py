#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""A leaking job, attached late: the live view and all outputs of the recording show equal figures for the same moment, to the byte."""
import collections
import json
import os
import re

from harness import IS_ROOT, TOOL, Skip, check, equal, interrupt, nightly, own, python, report, run, scratch, spawn, tool, workload
from server import PRELOAD
from terminal import Terminal
from test_leaks import same_elsewhere
from test_same_everywhere import compared

WARM, STEPS, KEPT = 20, 30, 16384
DEVICE = ("allocated", "peak_allocated", "peak_phase", "allocated_is", "peak_is", "reserved", "peak_reserved", "fragmentation",
          "avg_fragmentation", "before_attach", "before_attach_known", "live_blocks", "total_allocated", "total_freed", "allocs", "frees", "ooms", "drift")


def sums(rows, key):
    result = collections.Counter()
    for r in rows:
        result[key(r)] += r["bytes"]
    return {k: v for k, v in result.items() if v}


def by_line(r):
    return "before attach" if r.get("before_attach") else (r["file"], r["line"], r["function"] if r["file"] else r["source"])


def by_category(r):
    return "before_attach" if r.get("before_attach") else r["category"]


def by_module(r):
    return "before attach" if r.get("before_attach") else (r["module"], r["module_class"])


def role(category):
    """A category as people read it."""
    return "no role found" if category == "unknown" else category.replace("_", " ")


KEYS = {"line": by_line, "category": by_category, "module": by_module}


class Captured:
    """Captures of one job: the live view by line, category and module, a recording, and a terminal, all from before its next
    steps."""

    def __init__(self, look=None):
        if not IS_ROOT:
            raise Skip("needs root")
        job = workload("late_leak.py")
        job.wait_line("^ready", 120)
        pid, self.path = job.popen.pid, scratch("agree.mtr")
        views = {by: spawn([TOOL, "-p", str(pid), "--format", "json", "--top", "0", "-i", "200ms", "--by", by], root=True) for by in KEYS}
        recorder = spawn([TOOL, "record", "-p", str(pid), "-f", "-o", self.path], root=True)
        terminal = Terminal([TOOL, "-p", str(pid)], columns=120, lines=40) if look else None
        for p in views.values():
            p.wait_line("^{", 60)
        recorder.wait_line("attached to PID", 60, stream="err")
        if look:
            terminal.wait(r"^1 Lines|\d Lines")
            terminal.wait("before attach")
        job.send("%d\n" % STEPS)
        job.wait_line("^done", 60)
        self.live = {}
        for by, p in views.items():
            equal(interrupt(p), 0, "exit code of the live view")
            self.live[by] = json.loads(p.stdout().splitlines()[-1])
        self.screen = look(terminal) if look else None
        equal(interrupt(recorder), 0, "exit code of record")
        self.json = {by: report(self.path, at="end", by=by) for by in KEYS}


def device(doc):
    d, = [d for d in doc["devices"] if d["device"] == "cpu"]
    return {k: d[k] for k in DEVICE}


def test_live_and_report():
    c = Captured()
    doc = c.json["line"]
    equal(doc["capture"]["steps"], STEPS - 1, "steps: the first was under way at attach")
    want = device(doc)
    allocated = want["allocated"]
    check(want["before_attach"] is None and want["reserved"] is None, "what is not known: %s", want)
    for by, live in c.live.items():
        equal((live["steps"], live["lost"]), (doc["capture"]["steps"], 0), "steps and losses")
        equal(device(live), want, "the device, live by %s" % by)
        equal(sums(live["rows"], KEYS[by]), sums(c.json[by]["rows"], KEYS[by]), "rows by %s" % by)
        equal(sum(r["bytes"] for r in live["rows"]), allocated, "rows add up")
    own(c.path)
    compared(c.path, 40)
    # The growth from the end of the first whole step, the second one, to that of the last. Blocks of the last two steps count as input until more is
    # known.
    for by, live in c.live.items():
        grown = {KEYS[by](r): r["growth"] for r in live["rows"] if r["growth"]}
        equal(sum(grown.values()), (STEPS - 2) * KEPT, "growth by %s: %s" % (by, grown))
        check(len(grown) == 1 or (by == "category" and set(grown) == {"unknown", "input"}), "growth by %s: %s", by, grown)
    line, = [r for r in c.live["line"]["rows"] if r["growth"]]
    equal((os.path.basename(line["file"]), line["function"], line["bytes"]), ("late_leak.py", "step", STEPS * KEPT), "the line that leaks")


def shown(value):
    """Bytes as the live view writes them."""
    for unit in ("B", "KiB", "MiB"):
        if value < 1024:
            break
        value /= 1024
    else:
        unit = "GiB"
    return "%.0f %s" % (value, unit) if unit == "B" or value >= 999.95 else "%.1f %s" % (value, unit)


def test_screen():
    def look(terminal):
        terminal.press("3", r"^\s*[\d.]+ KiB .* before attach", 20)
        terminal.wait(r"step %d " % (STEPS - 1))
        terminal.wait(r"^allocated ")  # steps are over
        text = terminal.text()
        terminal.send("q")
        equal(terminal.end(), 0, "exit code of the live view")
        return text

    c = Captured(look)
    table = c.screen.split("  ROLE")[1].split("events ")[0]
    rows = {m[2]: m[1] for m in re.finditer(r"^ *([\d.]+ [KMG]?i?B) .*  (\S.*?) *$", table, re.M) if m[1] != "0 B"}
    want = {role(k): shown(v) for k, v in c.json["line"]["categories"].items() if v}
    equal(rows, want, "categories on the screen:\n%s" % c.screen)
    check("allocated %s" % shown(c.json["line"]["allocated"]) in re.sub(" +", " ", c.screen), "allocated:\n%s", c.screen)


def without_rate(text):
    """A sentence without its rate per minute, which needs the times of the capture's own events."""
    return re.sub(r" \(\S+ \S+/min\)", "", " ".join(text.split()))


def same_growth(modes, verdicts, steps=120):
    """A job of LEAKS.md, attached late: live view, its summary, report, page and their JSON agree on growth and holders. Returns
    the report's growth."""
    if not IS_ROOT:
        raise Skip("needs root")
    job = workload("leak.py", modes, "--late", "20", "--steps", str(20 + steps), "--wait")
    job.wait_line("^ready", 120)
    pid, path = job.popen.pid, scratch("growth-%s.mtr" % modes.replace(",", "-"))
    views = [spawn([TOOL, "-p", str(pid), "-i", "200ms", *options], root=True) for options in (["--format", "json"], ["-q"])]
    recorder = spawn([TOOL, "record", "-p", str(pid), "-f", "-o", path], root=True)
    views[0].wait_line("^{", 60)
    views[1].wait_line("before attach", 60)
    recorder.wait_line("attached to PID", 60, stream="err")
    job.send("\n")
    job.wait_line("^done", 120)
    for p in (*views, recorder):
        equal(interrupt(p), 0, "exit code of %s" % p.command)
    live, = [d["growth"] for d in json.loads(views[0].stdout().splitlines()[-1])["devices"] if d["device"] == "cpu"]
    doc, summary, text = report(path, at="end"), views[1].stdout(), tool("report", "--top", "0", path)[1]
    growth, = [d["growth"] for d in doc["devices"] if d["device"] == "cpu"]
    check(growth["verdict"] in verdicts, "%s: %s", modes, growth)
    same_elsewhere(path, {d["device"]: d["growth"] for d in doc["devices"]})
    timed = ("text", "bytes_per_minute")
    equal({k: v for k, v in live.items() if k not in timed}, {k: v for k, v in growth.items() if k not in timed}, "growth, live and recorded")
    equal(without_rate(live.get("text", "")), without_rate(growth.get("text", "")), "sentences, live and recorded")
    rate = growth.get("bytes_per_minute")
    check(rate is None or abs(live["bytes_per_minute"] - rate) < 0.05 * rate, "per minute: %s live, %s recorded", live.get("bytes_per_minute"), rate)
    for name, out in (("report", text), ("the summary of the live view", summary)):
        said = "Growth " + growth["text"] if growth["verdict"] == "grows" else growth.get("text")
        check(said is None or without_rate(said) in without_rate(out), "%s does not say %r:\n%s", name, said, out)
        equal("Growth" in out, growth["verdict"] == "grows", "%s says that memory grows" % name)
        for h in doc["before_attach_holders"]:
            check("before attach" in out and (h["holder"] in out or h["bytes"] < 16384), "%s does not name %r:\n%s", name, h["holder"], out)
    return growth


def test_growth_of_leaks():
    growth = same_growth("list,attribute", ("grows",))
    equal((os.path.basename(growth["file"]), growth["held_by"], growth["bytes_per_step"], growth["confidence"], growth["lines"]),
          ("leak.py", "global history[*]", 16384, "high", 2), "the growth")


OUT_OF_MEMORY = """
import torch
kept = torch.zeros(3 << 20, device="cuda")
input(print("ready", flush=True) or "")
try:
    torch.empty(1 << 40, dtype=torch.uint8, device="cuda")
except torch.cuda.OutOfMemoryError:
    input(print("done", flush=True) or "")
"""


def words(text):
    return without_rate(re.sub(r"[ \n]+", " ", text)).strip()


def findings_on(screen):
    rows = screen.rows()
    return words(" ".join(rows[screen.row_of("0 Findings") + 1:screen.row_of("q Quit") - 1]))


def leaking(mode):
    if not IS_ROOT:
        raise Skip("needs root")
    return workload("leak.py", mode, "--late", "20", "--steps", "140", "--wait")


def same_findings(job, code, columns, said):
    """A job attached late: view 0 of the live view has the findings of the recording that it saves, in the words of `diagnose`."""
    job.wait_line("^ready", 120)
    t = Terminal([TOOL, "-p", str(job.popen.pid), "-i", "200ms"], columns=columns, lines=50, cwd=scratch())
    t.wait("before attach")
    t.press("0", "Nothing wrong was seen: ")
    job.send("\n")
    job.wait_line("^done", 120)
    t.wait_for(lambda _: said in findings_on(t), said, 40)
    t.press("w", "^saved memtrace-[0-9]+-[0-9T-]+.mtr: ")
    path = os.path.join(scratch(), re.search("saved (memtrace-.*?[.]mtr)", t.text())[1])
    own(path)
    got, out, err = tool("diagnose", path)
    equal(got, code, "diagnose: %s" % err)
    want = words(re.search(r"^( 1[.] |Nothing )(.*\n)+", out, re.M)[0].partition("\n\n")[0])
    t.wait_for(lambda _: findings_on(t) == want, want, 30)
    t.send("q")
    equal(t.end(), 0, "exit code of the live view")


def test_findings():
    same_findings(leaking("list"), 4, 100, "(Work.leak), held by history[*]")


@nightly("long")
def test_findings_of_others():
    same_findings(leaking("none"), 0, 60, "Nothing is wrong: no growth from step to step")
    same_findings(leaking("graph"), 4, 200, "Leak of autograd's graph on cpu: ")
    same_findings(spawn([python(), "-c", OUT_OF_MEMORY], env={**os.environ, "LD_PRELOAD": PRELOAD, "MEMTRACE_DRYRUN_VRAM": "16G"}), 4, 120,
                  "1. Out of memory on cuda:0: at <string>:6 (<module>): 1.00 TiB asked for")


@nightly("long")
def test_growth_of_healthy():
    same_growth("none", ("no_growth",))


@nightly("long")
def test_growth_of_tricky():
    """A cache, a list that is emptied, batches of several lengths, reference cycles; and generation with a key-value cache."""
    same_growth("cache,sawtooth,lengths,cycles", ("no_growth", "unknown"))
    same_growth("kv", ("no_growth", "unknown"))


if __name__ == "__main__":
    run(globals())

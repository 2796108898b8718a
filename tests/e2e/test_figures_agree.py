#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""A leaking job, attached late: live view, report, JSON and OpenMetrics show equal figures for the same moment, to the byte."""
import collections
import json
import os
import re

from harness import IS_ROOT, TOOL, Skip, check, equal, interrupt, nightly, report, run, scratch, spawn, tool, workload
from terminal import Terminal
from test_leaks import same_elsewhere

WARM, STEPS, KEPT = 20, 30, 16384
DEVICE = ("allocated", "peak_allocated", "peak_phase", "allocated_is", "peak_is", "reserved", "peak_reserved", "fragmentation",
          "avg_fragmentation", "before_attach", "before_attach_known", "live_blocks", "total_allocated", "allocs", "frees", "ooms", "drift")
UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
TEXT = r"([\d.]+) ([KMG]?i?B)"


def is_rounded(text, value):
    """True if "3.44 MiB" is the rounded text of this many bytes."""
    number, unit = re.fullmatch(TEXT, text).groups()
    digits = len(number.partition(".")[2])
    return abs(value / UNITS[unit] - float(number)) <= 0.5 * 10 ** -digits + 1e-9


def are_rounded(texts, value):
    """True if the texts, each rounded, add up to this many bytes."""
    parts = [re.fullmatch(TEXT, t).groups() for t in texts]
    half = sum(0.5 * 10 ** -len(n.partition(".")[2]) * UNITS[u] for n, u in parts)
    return abs(value - sum(float(n) * UNITS[u] for n, u in parts)) <= half + 1e-3


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


def openmetrics(path, *options):
    """{family: {labels: value}}"""
    code, out, err = tool("export", "openmetrics", path, "-o", "-", *options)
    equal(code, 0, err)
    result = collections.defaultdict(dict)
    for name, labels, value in re.findall(r"^memtrace_(\w+?)(?:\{(.*)\})? (\S+)$", out, re.M):
        result[name][labels] = float(value)
    return result


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
        self.metrics = openmetrics(self.path, "--at", "end")
        self.text = tool("report", "--at", "end", "--top", "0", "--color", "never", self.path)[1]


def device(doc):
    d, = [d for d in doc["devices"] if d["device"] == "cpu"]
    return {k: d[k] for k in DEVICE}


def same_in_openmetrics(c, doc, want):
    """All figures of recording, device and moment; unknown ones are absent."""
    cpu = {family: c.metrics[family]['device="cpu"'] for family in c.metrics
           if 'device="cpu"' in c.metrics[family] and not family.startswith("growth_")}
    equal(cpu, {"device_allocated_bytes": want["allocated"], "device_peak_allocated_bytes": want["peak_allocated"],
                "device_allocations_total": want["allocs"], "device_frees_total": want["frees"], "device_ooms_total": want["ooms"],
                "device_allocation_bytes_total": want["total_allocated"], "moment_allocated_bytes": want["allocated"]}, "OpenMetrics of the device")
    equal([c.metrics[n][""] for n in ("steps_total", "events_total", "lost_records_total")],
          [doc["capture"][n] for n in ("steps", "events", "lost")], "OpenMetrics of the recording")
    lines, want_lines = collections.Counter(), collections.Counter()
    for labels, value in c.metrics["moment_line_bytes"].items():
        of = dict(re.findall(r'(\w+)="(.*?)"', labels))
        lines["before attach" if of["source"] == "census" else (of["file"], of["line"])] += value
    for r in c.json["line"]["rows"]:
        want_lines["before attach" if r.get("before_attach") else (r["file"], str(r["line"]))] += r["bytes"]
    equal(lines, want_lines, "lines of OpenMetrics")


def same_in_text(c, doc, want):
    """The text report's head, sums and table of lines."""
    one = " ".join(c.text.split())

    def said(pattern, value, what):
        found = re.search(pattern.replace("SIZE", TEXT.replace("(", "(?:").join("()")), one)
        check(found and is_rounded(found[1], value), "%s: %s in the text, not %d:\n%s", what, found and found[1], value, c.text)

    said("peak SIZE allocated", want["peak_allocated"], "peak")
    said("At the end: SIZE", want["allocated"], "allocated")
    kept = want["allocated"] - sum(r["bytes"] for r in c.json["line"]["rows"] if r.get("before_attach"))
    said("SIZE allocated and freed in", want["total_allocated"] - kept, "allocated and freed")
    equal(re.search(r"([\d,]+) events, ([\d,]+) lost", one).groups(), tuple("{:,}".format(doc["capture"][n]) for n in ("events", "lost")), "events")
    check("(step %d," % (next(d["peak_step"] for d in doc["devices"]) + 1) in one, "the step of the peak:\n%s", c.text)
    table = c.text.split(" Location\n")[1].split("\n\n")[0]
    rows = [re.match(r" *(%s) +[<>]?\d+ +([\d,]+) +(.*)" % TEXT.replace("(", "(?:"), line) for line in table.splitlines()]
    found = collections.defaultdict(lambda: ([], 0))
    want_rows = collections.defaultdict(lambda: [0, 0])
    for r in c.json["line"]["rows"]:
        key = "before attach" if r.get("before_attach") else "%s:%d" % (os.path.basename(r["file"]), r["line"])
        want_rows[key][0] += r["bytes"]
        want_rows[key][1] += r["count"]
    for r in rows:
        check(r, "a row of another kind:\n%s", table)
        key = "before attach" if " before attach " in r[3] else re.search(r"([\w.]+:\d+) \(", r[3])[1]
        found[key] = (found[key][0] + [r[1]], found[key][1] + int(r[2].replace(",", "")))
    equal(set(found), set(want_rows), "lines of the text")
    for key, (texts, count) in found.items():
        want_bytes, want_count = want_rows[key]
        check(are_rounded(texts, want_bytes), "%s: %s of %d", key, texts, want_bytes)
        equal(count, want_count, "blocks of %s" % key)
    check("  global history[*]\n" in c.text, "what holds the memory from before attach:\n%s", c.text)


def test_live_report_json_and_openmetrics():
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
    # Categories, in all four outputs.
    categories = {k: v for k, v in doc["categories"].items() if v}
    equal(categories["before_attach"], WARM * KEPT, "what the job kept before attach")
    equal(sums(c.json["category"]["rows"], by_category), categories, "rows by category")
    equal({re.search('category="(.*?)"', k)[1].replace(" ", "_"): v for k, v in c.metrics["moment_category_bytes"].items()}, categories, "OpenMetrics")
    roles = {role(k): v for k, v in categories.items()}
    said = dict(re.findall(r"^  (%s)  +(%s) " % ("|".join(roles), TEXT.replace("(", "(?:")), c.text, re.M))
    equal(set(said), set(roles), "roles of the text:\n%s" % c.text)
    for name, text in said.items():
        check(is_rounded(text, roles[name]), "%s: %s of %d", name, text, roles[name])
    same_in_openmetrics(c, doc, want)
    same_in_text(c, doc, want)
    # The growth from the end of the first step to that of the last. Blocks of the last two steps count as input until more is
    # known.
    for by, live in c.live.items():
        grown = {KEYS[by](r): r["growth"] for r in live["rows"] if r["growth"]}
        equal(sum(grown.values()), (STEPS - 1) * KEPT, "growth by %s: %s" % (by, grown))
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

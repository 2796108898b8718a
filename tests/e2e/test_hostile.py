#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# run: check
"""Hostile names everywhere: a generated recording full of them, and a process with such names for its files, functions, modules,
classes, threads and itself. None of them acts on a terminal, JSON and CSV stay valid, and pages run only their own code."""
import csv
import html.parser
import io
import json
import os
import random
import re
import signal
import subprocess

import harness
from harness import OUT, check, equal, nightly, record, run, scratch, spawn, spawn_job, workload

ACTS = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
MARK = "alert(31337)"
PIECES = [
    b"\x1b[2J", b"\x1b]0;owned\x07", b"\x1b]8;;http://x\x1b\\", b"\x1bP1$r\x1b\\", b"\x9b31m", b"\xc2\x9b2J", b"\xc2\x90q", b"\x1b[201~rm -rf ~\r", b"\x08\x08",
    b"\r", b"\n", b"\x00", b"\x7f", b"\x07", b"\t", b"\x0e", b"\x05", "\u202e".encode(), "\u2066".encode(), "\u2028".encode(), "\u061c".encode(),
    b"\xff\xfe", b"\xc0\x80", b"\xe0\x80\x9b", b"\xed\xa0\x80", b"\xf5\x80\x80\x80", b"\xf0\x9f", b"\xc3", b"</script><script>" + MARK.encode() + b"</script>",
    b"<img src=x onerror=" + MARK.encode() + b">", b"'\"><svg onload=" + MARK.encode() + b">", b"javascript:" + MARK.encode(), b"<!--", b"]]>", b"<![CDATA[", b"&#27;",
    b"\\u001b", b"\\", b'"', b"'", b"${jndi:x}", b"%n%s%x", b"=cmd|'/c calc'!A1", b"@SUM(1)", b"+1", b"-2+3", b",", b";", b" 7", b"{}", b"../../etc/passwd", b"/",
    "\U0001f600".encode(), "\u4f60".encode(), "e\u0301".encode(), b"A" * 300, b"\x1b[31m" * 1000, "\u202e".encode() * 2000,
]


def hostile_names(n):
    """Each piece alone, then combinations, the same in each run."""
    rng = random.Random(20)
    names = list(PIECES)
    while len(names) < n:
        names.append(b"".join(rng.choice(PIECES) if rng.random() < 0.7 else bytes(rng.randrange(256) for _ in range(rng.randrange(1, 9)))
                              for _ in range(rng.randrange(1, 5)))[:20000])
    return names


def harmless(raw, what, ends=(b"\n",)):
    """Valid UTF-8 without control characters, except for line ends."""
    for end in ends:
        raw = raw.replace(end, b"")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as e:
        check(False, "%s: not UTF-8: %r", what, raw[max(0, e.start - 40):e.end + 40])
    found = ACTS.search(text)
    if found:
        i = found.start()
        check(False, "%s: %r reaches the terminal: ...%r...", what, text[i], text[max(0, i - 40):i + 40])
    return text


def output(*args, root=False):
    code, out, err = harness.tool(*args, root=root, text=False, seconds=120)
    harmless(err.encode("utf-8", "replace"), "messages of " + " ".join(args[:4]))
    equal(code, 0, "exit code of %s (%s)" % (" ".join(args[:4]), err[-300:]))
    return out


class Page(html.parser.HTMLParser):
    """Code that a browser would run in a page (scripts, handlers, URLs), and the displayed text."""

    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.tags, self.scripts, self.inside = [], [], None

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, attrs))
        self.inside = tag if tag in ("script", "style") else None
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag):
        self.inside = None

    def handle_data(self, data):
        if self.inside == "script":
            self.scripts[-1] += data


def check_page(raw, plain, what):
    """The page of a hostile recording has the same elements and code as a harmless recording's, with other data."""
    pages = []
    for text in (raw, plain):
        p = Page()
        p.feed(text.decode("utf-8"))
        p.close()
        pages.append(p)
    bad, good = pages
    equal([t for t, _ in bad.tags], [t for t, _ in good.tags], "elements of " + what)
    for tag, attrs in bad.tags:
        for name, value in attrs:
            check(not name.startswith("on") and MARK not in (value or ""), "%s: <%s %s=%r>", what, tag, name, value)
    equal(len(bad.scripts), len(good.scripts), "scripts of " + what)
    for ours, theirs in zip(good.scripts, bad.scripts):
        if not ours.lstrip().startswith("{"):
            equal(theirs, ours, "code of " + what)


def check_recording(path, plain, least):
    """All outputs of report and export."""
    for by in ("line", "stack", "module", "layer", "phase", "category", "thread", "category,module", "line,thread"):
        harmless(output("report", "--by", by, "--top", "0", path), "report --by " + by)
    more = (("--device", "cpu"), ("--by", "segment")) if path.endswith("bad.mtr") else ()
    for options in (("--tree",), ("--at", "end", "--frames", "all"), *more):
        harmless(output("report", "--top", "0", *options, path), "report " + " ".join(options))
    for by in ("line", "stack", "module", "thread"):
        raw = output("report", "--by", by, "--format", "json", path)
        harmless(raw, "report --format json --by " + by)
        doc = json.loads(raw)
        check(len(doc["rows"]) >= least, "only %d rows by %s", len(doc["rows"]), by)
        raw = output("report", "--by", by, "--format", "csv", path)
        harmless(raw, "report --format csv --by " + by, ends=(b"\r\n",))
        rows = list(csv.reader(io.StringIO(raw.decode("utf-8"), newline=""), strict=True))
        equal({len(r) for r in rows}, {20}, "columns of the CSV by " + by)
        check(len(rows) > least, "only %d lines of CSV by %s", len(rows), by)
    for by in ("line", "stack", "module", "category"):
        options = ("leaks", "--by", by, "--min-confidence", "low", "--min-growth", "0", "--top", "0")
        harmless(output(*options, "--steps", path), "leaks --by " + by)
        json.loads(harmless(output(*options, "--format", "json", path), "leaks --format json --by " + by))
    json.loads(harmless(output("export", "speedscope", "-o", "-", path), "speedscope"))
    harmless(output("export", "folded", "-o", "-", path), "folded")
    harmless(output("export", "openmetrics", "-o", "-", path), "openmetrics")
    json.loads(harmless(output("export", "perfetto", "-o", "-", path), "perfetto"))
    raw = output("export", "ndjson", "-o", "-", path)
    harmless(raw, "ndjson")
    for line in raw.splitlines():
        json.loads(line)
    raw = output("export", "csv", "-o", "-", path)
    harmless(raw, "export csv", ends=(b"\r\n",))
    equal({len(r) for r in csv.reader(io.StringIO(raw.decode("utf-8"), newline=""), strict=True)}, {23}, "columns of export csv")
    for name in ("flamegraph", "timeline"):
        raw = output("export", name, "-o", "-", path)
        harmless(raw, name, ends=(b"\n", b"\t"))
        if raw.lstrip().startswith((b"{", b"[")):
            json.loads(raw)
        else:
            check_page(raw, output("export", name, "-o", "-", plain), name)


def made_recording(path, names):
    tool = os.path.join(OUT, "tests", "tools", "hostile_recording")
    subprocess.run([tool, path], input="".join(n.hex() + "\n" for n in names), text=True, check=True, timeout=60)


def test_recordings():
    made_recording(scratch("plain.mtr"), [b"name%d" % i for i in range(2000)])
    made_recording(scratch("bad.mtr"), hostile_names(2000))
    check_recording(scratch("bad.mtr"), scratch("plain.mtr"), 300)


def test_live():
    """The same from a running process: the names are read from its memory."""
    path = scratch("live.mtr")
    with open(scratch("names.json"), "w", encoding="ascii") as f:
        json.dump([n.hex() for n in hostile_names(2000)], f)
    target = workload("hostile.py", scratch("names.json"))
    target.wait_line("^ready", 120)
    for by in ("tensor", "module", "category"):
        harmless(output("dump", "-p", str(target.pid), "--by", by, "--top", "100000", root=True), "dump --by " + by)
    dump = json.loads(harmless(output("dump", "-p", str(target.pid), "--format", "json", root=True), "dump --format json"))
    check(len(dump["rows"]) > 300, "only %d tensors", len(dump["rows"]))
    harmless(output("check", "-p", str(target.pid), root=True), "check")
    harmless(output("check", "-p", str(target.pid), "--explain", root=True), "check --explain")
    recorder = record(target.pid, path)
    target.send()
    target.wait_line("^done", 120)
    live = spawn([harness.TOOL, "-p", str(target.pid), "--interval", "1", "--top", "1000"], root=True)
    live.wait_line("attached", 30, stream="err")
    target.send()
    target.wait_line("^done", 120)
    blocks = live.stdout().count("LIVE %LIVE")
    harness.until(lambda: live.stdout().count("LIVE %LIVE") > blocks + 1, "the live view has all names")
    for p in (recorder, live):
        p.signal(signal.SIGINT)
        equal(p.wait(30), 0, "exit code (%s)" % p.stderr()[-300:])
        harmless(p.stderr().encode(), "messages of " + p.name())
    # The live view clears the screen only on a terminal.
    harmless(live.stdout().encode(), "live view")
    check(target.alive(), "the target ended")
    made_recording(scratch("plain2.mtr"), [b"name%d" % i for i in range(20)])
    check_recording(path, scratch("plain2.mtr"), 1)
    rows = harness.report(path)["rows"]
    check(sum(bool(re.search(r"<script>|\x1b|\\x", r["function"] or "")) for r in rows) > 50, "hardly any hostile function in the recording: %d rows",
          len(rows))


ENDLESS = """
import sys, torch
model = torch.nn.Linear(64, 64)
weight = next(model.parameters())
if sys.argv[1] == "modules":
    many = {"k%d" % i: i for i in range(500000)}
    kept = [torch.nn.Module() for _ in range(3000)]
    for m in kept:
        m.__dict__["_modules"] = many
else:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    numbers = [float(i) for i in range(65536)]
    if sys.argv[1] == "state":
        optimizer.state[weight] = {"x": [[[weight] + numbers] * 65536] * 65536}
    elif sys.argv[1] == "groups":
        optimizer.param_groups += [{"k%d" % i: i for i in range(500000)}] * 60000
    else:
        parameters = [torch.nn.Parameter(torch.zeros(8)) for _ in range(64)]
        optimizer.add_param_group({"params": parameters})
        for p in parameters:
            optimizer.state[p] = {"history": [float(i) for i in range(65000)], "mean": torch.zeros(8)}
print("ready", flush=True)
sys.stdin.readline()
"""


def endless(kind):
    script = scratch("endless.py")
    if not os.path.exists(script):
        with open(script, "w", encoding="utf-8") as f:
            f.write(ENDLESS)
    p = spawn_job([harness.python(), script, kind])
    p.wait_line("^ready", 60)
    return p


def without_an_end(*kinds):
    """Reading more objects than anyone has takes no longer than its limit, so a capture ends."""
    jobs = [endless(kind) for kind in kinds]
    recorders = [record(p.pid, scratch("endless-%d.mtr" % i), "-v", "-d", "100ms") for i, p in enumerate(jobs)]
    for r, p in zip(recorders, jobs):
        equal(r.wait(60), 0, "exit code of record (%s)" % r.stderr())
        check("too many objects to read in the time given" in r.stderr(), "nothing about the limit: %s", r.stderr())
        p.stop()


def test_objects_without_an_end():
    without_an_end("groups")  # ten seconds of CPU, the limits of two readings


@nightly("long")
def test_other_objects_without_an_end():
    without_an_end("modules", "state")


def test_long_histories():
    """Lists of numbers in an optimizer's state, which hold nothing, do not use up the time for its tensors."""
    p = endless("histories")
    doc = json.loads(output("dump", "-p", str(p.pid), "--by", "tensor", "--format", "json", root=True))
    named = [r["name"] for r in doc["rows"] if r["name"].startswith("SGD mean")]
    equal(len(named), 64, "tensors of the state, of %s" % [r["name"] for r in doc["rows"]][:9])
    p.stop()


if __name__ == "__main__":
    run(globals())

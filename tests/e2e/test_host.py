#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Host memory by line (--host): rows add up to RSS, lines get what they mapped, other commands know the device. make host-leaks has all
leaks of tests/workloads/host_leaks.py."""
import json
import os
import signal
import time

import harness
import host_intervals
import host_leaks
from harness import check, equal, nightly, run, scratch, tool

STEPS = 20


def recorded(kind):
    path = scratch(kind + ".mtr")
    if not os.path.exists(path):
        equal(host_leaks.record(kind, STEPS, 0.02)[0], path, "the recording")
    return path


def test_rows_add_up():
    """To the RSS of the last reading, which /proc has too; the line has what it mapped."""
    doc = host_leaks.rows_of(recorded("mapped"))
    total, rss = host_leaks.sums(doc)
    equal(total, rss, "the sum of all rows, and RSS")
    check(doc["capture"]["host"] in ("fexit", "sys_exit"), "how calls were seen: %s", doc["capture"]["host"])
    equal(sum(r["bytes"] for r in host_leaks.marked(doc, "mapped")), STEPS * host_leaks.MIB << 20, "bytes of the line")
    named = [r for r in doc["rows"] if r["function"] == "before attach"]
    check({"[heap]", "[anonymous memory]"} <= {r["file"] for r in named}, "mappings from before attach: %s", [r["file"] for r in named])
    check(all(r["line"] in (0, None) for r in named), "a mapping has a line")


def test_pinned_memory():
    """Each pinned block is at its line, also of those that came shortly before the process ended by itself."""
    path = scratch("pinned.mtr")
    equal(host_leaks.record("pinned", STEPS, 0.05)[0], path, "the recording")
    harness.own(path)
    doc = host_leaks.rows_of(path)
    total, rss = host_leaks.sums(doc)
    check(0.99 * rss < total <= rss, "rows add up to %d, RSS is %d", total, rss)
    of_line = sum(r["bytes"] for r in host_leaks.marked(doc, "pinned"))
    check(of_line >= (STEPS - 1) * host_leaks.MIB << 20, "the line has %d bytes", of_line)


@nightly("long")
def test_small_objects():
    """Objects of some bytes are a sample: the lines that made the heap grow."""
    doc = host_leaks.rows_of(recorded("fragments"))
    of_line = sum(r["bytes"] for r in host_leaks.marked(doc, "fragments"))
    planted = STEPS * host_leaks.MIB << 20
    check(planted * 0.7 < of_line < planted * 1.2, "the line has %d of %d bytes; %s, %s", of_line, planted,
          {k: v for k, v in doc["capture"]["counters"].items() if "host" in k}, [(r["file"], r["line"], r["bytes"]) for r in doc["rows"][:6]])


@nightly("long")
def test_error_of_small_objects():
    """Rows of lines that allocate small objects in turn have an interval around the true size."""
    rows = host_intervals.one("malloc", 1, 48)
    for line, size, row in rows:
        check(row, "line %d with %d bytes has no row", line, size)
        low, high = host_intervals.interval(row)
        check(low < row["bytes"] < high < 4 * row["bytes"], "line %d: %s", line, row)
        # Twice as far as the interval: this test is run many times.
        check(2 * low - high <= size <= 2 * high - low, "line %d has %d bytes, row: %s", line, size, row)
        check("requested" not in row, "requested: %s", row)
    out = " ".join(tool("report", "--device", "host", "--at", "end", scratch("share.mtr"))[1].split())
    check("Lines of small objects are a sample" in out and "host_share.py:%d" % rows[0][0] in out, "report: %s", out[-600:])
    exact = [r for r in host_leaks.rows_of(recorded("mapped"))["rows"] if r["line"] == host_leaks.LINES["mapped"]]
    check(exact and all("sampled" not in r for r in exact), "a mapping of its own: %s", exact)


HOLDERS = """
import collections, contextvars, mmap, sys, threading, time
import numpy, torch

class Cache:
    def __init__(self):
        self.pages = {}

class Own(threading.local):
    def __init__(self):
        self.areas = []

arrays, cache, own, texts = [], Cache(), Own(), collections.deque()
other, kept, told = threading.local(), contextvars.ContextVar("kept", default=[]), contextvars.ContextVar("told")
told.set([])
turn = threading.Semaphore(0)

def beside():
    other.blocks = []
    while True:
        turn.acquire()
        other.blocks.append(bytearray(b"x") * (1 << 20))  # BLOCKS

threading.Thread(target=beside, daemon=True).start()
def step(i):
    arrays.append(numpy.ones((64, 2048)))  # ARRAYS
    cache.pages[i] = bytearray(b"x") * (1 << 20)  # PAGES
    texts.append(str(i % 10) * (1 << 20))  # TEXTS
    own.areas.append(mmap.mmap(-1, 1 << 20))  # AREAS
    for at in range(0, 1 << 20, 4096):
        own.areas[-1][at] = 1
    turn.release()
    kept.get().append(bytearray(b"x") * (1 << 20))  # KEPT
    told.get().append(bytearray(b"x") * (1 << 20))  # TOLD
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
print("READY", flush=True)
sys.stdin.readline()
for i in range(40):
    model(torch.ones(8, 8)).sum().backward()
    optimizer.step()
    step(i)
    time.sleep(0.2)
print("DONE", flush=True)
sys.stdin.readline()
"""


def test_holders():
    """`leaks` names the containers that hold memory which is no tensor, and says how much has no holder."""
    script = scratch("holders.py")
    with open(script, "w", encoding="utf-8") as f:
        f.write(HOLDERS)
    lines = {t.rsplit("# ", 1)[1]: n for n, t in enumerate(HOLDERS.splitlines(), 1) if "  # " in t}
    target, path = harness.spawn([harness.python(), script]), scratch("holders.mtr")
    target.wait_line("READY", 120)
    p = harness.record(target.pid, path, "--host")
    target.send()
    target.wait_line("DONE", 60)
    harness.finish(p)
    target.stop()
    harness.own(path)
    code, out, err = tool("leaks", "--device", "host", "--format", "json", "--top", "0", path)
    check(code == 0, "leaks: %s", err)
    # Few readings fit into so short a time, so the verdicts vary.
    lists = [json.loads(out)["devices"][0][key] for key in ("leaks", "no_leaks")]
    rows = {r["line"]: r for r in sum(lists, []) if os.path.basename(r["file"] or "") == "holders.py"}
    for name, holder in (("ARRAYS", "global arrays[*]"), ("PAGES", "global cache.pages[*]"), ("TEXTS", "global texts[*]"), ("AREAS", "global own.areas[*]"),
                         ("BLOCKS", "global other.blocks[*]"), ("KEPT", "global kept's default[*]"), ("TOLD", "local contextvar told[*]")):
        row = rows.get(lines[name])
        check(row and [h["name"] for h in row["held_by"]] == [holder], "%s: %s of %s", name, row, sorted(rows))
        check(row["held_by"][0]["bytes"] > 30 << 20, "%s: bytes of the holder: %s", name, row)


def test_tensors_stay_on_the_cpu():
    """Blocks of the CPU are as without --host, and reports begin with them."""
    path = recorded("mapped")
    doc = harness.report(path)
    equal(doc["devices"][0]["device"], "cpu", "the first device")
    check(all(r["bytes"] < 1 << 20 for r in doc["rows"]), "rows of the CPU: %s", doc["rows"][:2])
    code, out, _ = tool("report", path)
    check(code == 0 and "host  peak" in out and "resident memory by who mapped it" in out, "report: %s", out[:600])


def test_other_commands():
    path = recorded("mapped")
    code, out, err = tool("export", "csv", "-o", "-", path)
    check(code == 0 and ",host," in out and "type30" not in out, "csv: %s", err or out[:300])
    for fmt in ("folded", "speedscope", "pprof", "html", "perfetto"):
        code, out, err = tool("export", fmt, "--device", "host", "-o", scratch("host." + fmt), "-f", path)
        check(code == 0, "export %s: %s", fmt, err)
    code, out, err = tool("diff", "--device", "host", "--format", "json", path, recorded("fragments"))
    check(code == 0 and json.loads(out), "diff: %s", err)
    code, out, err = tool("leaks", "--device", "host", "--format", "json", path)
    equal([d["device"] for d in json.loads(out)["devices"]], ["host"], "devices of leaks")


def test_live_rows():
    """The live view without a terminal has the rows of the host below those of the main device."""
    target = harness.workload("host_leaks.py", "mapped", "--wait", "--steps", "3", "--mib", "32", "--pause", "0")
    target.wait_line("READY", 120)
    view = [harness.TOOL, "-p", str(target.pid), "--host", "-i", "500ms", "--top", "5"]
    p = harness.spawn([*view, "--format", "json"], root=True)
    p.wait_line('"host_rows"', 30)
    target.send()
    target.wait_line("DONE", 60)
    line, expected = ("host_leaks.py", host_leaks.LINES["mapped"]), 96 << 20
    deadline = time.monotonic() + 30
    while True:
        doc = json.loads(p.stdout().splitlines()[-1])
        rows = {(os.path.basename(r["file"] or ""), r["line"]): r["bytes"] for r in doc.get("host_rows", ())}
        if rows.get(line) == expected or time.monotonic() > deadline:
            break
        time.sleep(0.1)
    equal(rows.get(line), expected, "bytes of the line in %s" % sorted(rows))
    equal(doc["device"], "cpu", "the main device")
    check(doc["more_host_rows"] > 3 and doc["more_host_bytes"] > 0, "rows left out: %s", doc["more_host_rows"])
    p.signal(signal.SIGINT)
    equal(p.wait(60), 0, "exit code of the live view: %s" % p.stderr()[-300:])
    p = harness.spawn([*view, "--format", "text", "-d", "1500ms"], root=True)
    equal(p.wait(60), 0, "exit code of the live view: %s" % p.stderr()[-300:])
    check("resident, by who mapped it" in p.stdout() and "[heap] (before attach)" in p.stdout(), "text: %s", p.stdout()[-800:])
    target.send()
    target.stop()


ANOTHER = """
import os, sys, torch
data = bytearray(os.urandom(1 << 20)) * 200
print("ready", flush=True)
sys.stdin.readline()
os.execv("/bin/sleep", ["sleep", "60"])
"""


@nightly("long")
def test_another_program():
    """The process becomes another program: the end is the recorded one's, and no memory of the new one is in the recording."""
    path, script = scratch("another.mtr"), scratch("another.py")
    with open(script, "w", encoding="utf-8") as f:
        f.write(ANOTHER)
    p = harness.spawn([harness.python(), script])
    p.wait_line("^ready", 60)
    recorder = harness.record(p.popen.pid, path, "--host", "-v")
    recorder.wait_line("host memory: [0-9]+ mappings", 60, stream="err")
    before = harness.resident(p.popen.pid)
    p.send()
    equal(recorder.wait(60), 0, "exit code (%s)" % recorder.stderr())
    p.stop()
    doc = harness.report(path)
    equal(doc["capture"]["stop_reason"], "exec", "why it stopped")
    host = harness.device(doc, "host")
    check(abs(host["allocated"] - before) < 8 << 20, "at the end %d bytes, before the other program %d", host["allocated"], before)
    rows = json.loads(tool("report", path, "--device", "host", "--at", "end", "--format", "json")[1])["rows"]
    check(rows and not any("sleep" in str(r["file"]) for r in rows), "mappings of the other program: %s", rows)


def test_without_the_option():
    """No device, no fact, and no program at the calls."""
    target = harness.workload("host_leaks.py", "arrays", "--wait", "--steps", "2")
    target.wait_line("READY", 120)
    p = harness.record(target.pid, scratch("without.mtr"))
    target.send()
    target.wait_line("DONE")
    harness.finish(p)
    doc = harness.report(scratch("without.mtr"))
    equal([d["device"] for d in doc["devices"]], ["cpu"], "devices")
    check("host" not in doc["capture"] and "hits.host" not in doc["capture"]["counters"], "facts: %s", doc["capture"])


def test_last_reading():
    """A capture of N steps reads the process's memory at its end, too."""
    job, path = harness.workload("leak.py", "list", "--steps", "100000", "--pause", "0.02"), scratch("last.mtr")
    job.wait_line("step 3")
    for steps in (40, 80):
        code, _, err = tool("record", "-p", str(job.pid), "--steps", str(steps), "-q", "-f", "-o", path, root=True, seconds=120)
        equal(code, 0, "record: " + err)
        harness.own(path)
        host = next(line for line in tool("report", path, env={**os.environ, "COLUMNS": "160"})[1].splitlines() if line.startswith("host "))
        check(" end " in host and "last read" not in host, "%d steps: %s", steps, host)
    job.stop()


run(globals())

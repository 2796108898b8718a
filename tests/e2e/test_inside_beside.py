#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# run: probes-all
"""`run --inside` next to captures with the kernel's probes in the same functions: both record every event."""
import sys

import harness
from harness import check, equal, nightly, python, report, run, scratch, spawn

TIMES = 50
# Keeps TIMES tensors for each line of input. Each line has a function of its own.
JOB = """
import sys, torch
keep, n = [], %d
print("ready", flush=True)
for word in sys.stdin:
    scope = {"torch": torch, "keep": keep, "n": n}
    exec("def at_%%s():\\n    for i in range(n): keep.append(torch.empty(1000))\\nat_%%s()" %% (word.strip(), word.strip()), scope)
    print("did", word, end="", flush=True)
""" % TIMES


def job(*before):
    p = spawn([*before, python(), "-u", "-c", JOB])
    p.wait_line("^ready", 100)
    return p


def allocate(p, word):
    p.send(word + "\n")
    p.wait_line("^did " + word, 30)


def inside(name):
    """A job that records itself, its PID and the recording."""
    path = scratch(name + ".mtr")
    p = job(harness.TOOL, "run", "--inside", "-f", "-o", path, "--")
    return p, next(int(line.split("PID ")[1].split()[0]) for line in p.stderr().splitlines() if "recording PID" in line), path


def counts(path):
    """Kept tensors by function, and the number of lost events."""
    doc = report(path, at="peak", by="line")
    return {r["function"]: r["count"] for r in doc["rows"] if (r["function"] or "").startswith("at_")}, doc["capture"]["lost"]


def end(p):
    p.popen.stdin.close()
    equal(p.wait(60), 0, "exit of %s: %s" % (p.name(), p.tail(p.stderr())))


def test_a_capture_of_several_takes_no_hits():
    """It starts after and before the recording from inside, and records another process."""
    other, path = job(), scratch("several.mtr")
    several = spawn([harness.TOOL, "record", "--children", "-p", str(other.pid), "-f", "-o", path], root=True)
    several.wait_line(harness.ATTACHED, 30, stream="err")
    p, _, own = inside("both")
    allocate(p, "probed_first")
    harness.finish(several)
    allocate(p, "alone")
    several = spawn([harness.TOOL, "record", "--children", "-p", str(other.pid), "-f", "-o", path], root=True)
    several.wait_line(harness.ATTACHED, 30, stream="err")
    allocate(p, "probed_later")
    allocate(other, "other")
    harness.settle(several)
    harness.finish(several)
    allocate(p, "alone_again")
    end(p)
    equal(counts(own), (dict.fromkeys(("at_probed_first", "at_alone", "at_probed_later", "at_alone_again"), TIMES), 0), "from inside")
    equal(counts(path), ({"at_other": TIMES}, 0), "by the kernel's probes")
    end(other)


def test_a_capture_of_the_same_process():
    p, pid, own = inside("twice")
    allocate(p, "alone")
    path = scratch("same.mtr")
    recorder = harness.record(pid, path)
    allocate(p, "both")
    harness.settle(recorder)
    harness.finish(recorder)
    allocate(p, "alone_again")
    end(p)
    equal(counts(own), (dict.fromkeys(("at_alone", "at_both", "at_alone_again"), TIMES), 0), "from inside")
    equal(counts(path), ({"at_both": TIMES}, 0), "by the kernel's probes")


def breakpoints(pid):
    """Places in libc10 that differ from the file, and the file's bytes there."""
    with open("/proc/%d/maps" % pid, encoding="utf-8") as maps:
        words = next(line.split() for line in maps if "/libc10.so" in line and " r-xp " in line)
    start, end_of, at = (int(n, 16) for n in (*words[0].split("-"), words[2]))
    with open(words[5], "rb") as file, open("/proc/%d/mem" % pid, "rb", 0) as mem:
        file.seek(at)
        mem.seek(start)
        ours, theirs = file.read(end_of - start), mem.read(end_of - start)
    return {start + i: ours[i:i + 1] for i in range(len(ours)) if ours[i] != theirs[i]}


@nightly("long")
def test_removed_breakpoints_are_set_again():
    """Another tool writes the original code back: the recording says so, and goes on."""
    p, pid, own = inside("removed")
    allocate(p, "before")
    with open("/proc/%d/mem" % pid, "r+b", 0) as mem:
        for at, byte in breakpoints(pid).items():
            mem.seek(at)
            mem.write(byte)
    allocate(p, "meanwhile")
    p.wait_line("another tool removed the breakpoints", 30, stream="err")
    allocate(p, "after")
    end(p)
    found, lost = counts(own)
    equal((found["at_before"], found["at_after"]), (TIMES, TIMES), "events before and after")
    check(lost > 0, "nothing counts as lost")
    check(report(own)["devices"][0]["peak_is"] != "exact", "the peak is called exact")


if __name__ == "__main__":
    if not harness.IS_ROOT:
        print("SKIP test_inside_beside: needs root")
        sys.exit(77)
    sys.exit(run(globals()))

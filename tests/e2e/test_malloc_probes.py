#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""--malloc-probes: live bytes inside malloc by line, the limit on what the probes cost, and their removal."""
import functools
import math
import os
import re
import signal
import sys

import chaos
import harness
from harness import TOOL, check, equal, finish, record, report, run, scratch, spawn, tool

EVERY = 512 << 10
SIGMAS = 4.5  # an estimate is outside once in 100,000 rows
PYTHON_SOURCE = os.path.join(harness.WORKLOADS, "malloc_live.py")
C_SOURCE = os.path.join(harness.PROGRAMS, "host", "mallocs.c")
ALLOWED = "100%"  # the machine may be busy


@functools.cache
def lines():
    """By name: the line that allocates."""
    found = {}
    for path in (PYTHON_SOURCE, C_SOURCE):
        with open(path, encoding="utf-8") as f:
            for number, text in enumerate(f, 1):
                live = re.search(r"LIVE: (\w+)( \*/)?$", text)
                if live:
                    found[live[1]] = number
    return found


def program():
    return chaos.compiled("host/mallocs.c", "mallocs", "-g", "-fno-inline")


def recorded(name, command, bench=""):
    """Records a program until it is done: the live bytes of each line, and the path of the recording."""
    path = scratch(name + ".mtr")
    p = spawn(command)
    p.wait_line("^ready", 30)
    recorder = spawn(["env", "MEMTRACE_BENCH=" + bench, TOOL, "record", "-p", str(p.pid), "-o", path, "-f", "--malloc-probes", "--cost", ALLOWED],
                     root=True)
    recorder.wait_line(harness.ATTACHED, 60, stream="err")
    p.send()
    done = p.wait_line("^done", 120)
    finish(recorder)
    p.stop()
    harness.own(path)
    return {word.split(":")[0]: int(word.split(":")[1]) for word in done.split()[1:]}, path


def check_lines(truth, path, file):
    doc = report(path, "--device", "malloc", "--top", "0", "--at", "end")
    of = doc["capture"]["malloc"]
    equal((of["lost"], of["lost_frees"], of["removed"]), (0, 0, None), "what is missing")
    for name, live in truth.items():
        rows = [r for r in doc["rows"] if (r["file"] or "").endswith(file) and r["line"] == lines()[name]]
        got = sum(r["bytes"] for r in rows)
        check(abs(got - live) <= SIGMAS * math.sqrt(EVERY * live), "%s: %d bytes of %d: %s", name, got, live, rows)
        check(all(r["sampled"]["low"] <= r["bytes"] <= r["sampled"]["high"] for r in rows if r.get("sampled")), "%s: interval: %s", name, rows)
    return doc


def test_lines():
    """Functions, sizes and reused memory; what was freed has no row. The large blocks are exact."""
    truth, path = recorded("lines", [program(), "lines"])
    doc = check_lines(truth, path, "mallocs.c")
    exact = {r["line"]: r["bytes"] for r in doc["rows"] if r["line"] in (lines()["large"], lines()["last"])}
    equal(exact, {lines()["large"]: truth["large"], lines()["last"]: truth["last"]}, "blocks above 512 KiB")
    equal(doc["capture"]["malloc"]["every"], EVERY, "one byte in")
    host = report(path, "--device", "host", "--top", "0", "--at", "end")
    check(sum(r["bytes"] for r in host["rows"]) > sum(truth.values()), "the host's rows have malloc's memory, too")


def test_return_probes():
    """The same on kernels without links that choose their returns, and with perf's probes."""
    for bench in ("returns", "perf", "old"):
        truth, path = recorded(bench, [program(), "threads"], bench=bench)
        check_lines(truth, path, "mallocs.c")
        nowhere = [r for r in report(path, "--device", "host", "--top", "0")["rows"] if (r["function"] or "").startswith("+0x") and not r["file"]]
        check(not nowhere, "the kernel's page of probes has rows: %s", nowhere)


def test_threads():
    truth, path = recorded("threads", [program(), "threads"])
    check_lines(truth, path, "mallocs.c")


def test_fork():
    """A child frees its copies of the blocks; the parent's stay."""
    truth, path = recorded("fork", [program(), "fork"])
    check_lines(truth, path, "mallocs.c")


def test_python():
    truth, path = recorded("python", [sys.executable, PYTHON_SOURCE])
    check_lines(truth, path, "malloc_live.py")


def test_static():
    """A static program, whose malloc only its table of symbols names."""
    static = chaos.compiled("host/mallocs.c", "mallocs_static", "-g", "-static", "-fno-inline")
    truth, path = recorded("static", [static, "threads"])
    check_lines(truth, path, "mallocs.c")


def test_refused():
    """A program that calls malloc all the time: nothing is recorded, and the message says what to type."""
    p = spawn([program(), "fast"])
    p.wait_line("^ready", 30)
    path = scratch("refused.mtr")
    code, _, err = tool("record", "-p", str(p.pid), "-o", path, "--malloc-probes", "-d", "1s", root=True)
    check(code == 3 and re.search(r"calls malloc and free [\d,.]+ times a second: the probes would take about [\d.]+ % of a core, and 5 % are allowed", err)
          and re.search(r"--cost \d+%", err), "exit code %d: %s", code, err)
    check(not os.path.exists(path), "a file was written")
    p.stop()


def check_unprobed(p):
    harness.until(lambda: harness.patched_bytes(p.pid, ("libc.so",)) == 0, "malloc's code is as in its file")


def test_removed():
    """The program calls malloc all the time later: the probes go, the recording goes on and says so."""
    p = spawn([program(), "slow"])
    p.wait_line("^ready", 30)
    path = scratch("removed.mtr")
    # Even with a twentieth of a core, the program spends more than this in the probes.
    recorder = record(p.pid, path, "--malloc-probes", "-v", "--cost", "2%")
    p.send()
    recorder.wait_line("they are removed", 60, stream="err")
    check_unprobed(p)
    finish(recorder)
    p.stop()
    check(report(path, "--device", "host")["capture"]["malloc"]["removed"] > 0, "the time of the removal")


def test_killed_recorder():
    """The kernel removes the probes of a recorder that was killed, and the program goes on."""
    p = spawn([program(), "lines"])
    p.wait_line("^ready", 30)
    recorder = record(p.pid, scratch("killed.mtr"), "--malloc-probes", "--cost", ALLOWED)
    p.send()
    harness.until(lambda: harness.cpu_seconds(p.pid) > 0.05, "the program runs")
    check(harness.patched_bytes(p.pid, ("libc.so",)) > 0, "no probe is in malloc's code")
    recorder.signal(signal.SIGKILL)
    recorder.wait(10)
    p.wait_line("^done", 120)
    check_unprobed(p)
    p.stop()


if __name__ == "__main__":
    run(globals())

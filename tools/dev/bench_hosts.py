#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
Times of attach and detach, and the cost of an event by the target's threads. Needs root and a quiet machine.

    tools/dev/bench_hosts.py attach [-n ROUNDS] [TOOL ...]     of several builds, in turns; default: this one
    tools/dev/bench_hosts.py threads [-n ROUNDS] [NUMBER ...]     storms of that many threads; default: 1 8 64 512
"""
import argparse
import os
import pty
import re
import select
import signal
import statistics
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "tests", "e2e"))
import chaos  # noqa: E402
import code_bytes  # noqa: E402
import harness  # noqa: E402

CALLS = 400000  # rounds of a storm, over all threads
FIGURE = re.compile(rb"\d [KMG]iB")


def spread(values, digits=2):
    return "%.*f (%.*f–%.*f)" % (digits, statistics.median(values), digits, min(values), digits, max(values))


# ---- attach and detach ------------------------------------------------------------------------------------

def first_figure(tool, pid):
    """Seconds until the live view has shown an amount of memory, on a terminal."""
    begin = time.monotonic()
    child, terminal = pty.fork()
    if not child:
        os.execve(tool, [tool, "-p", str(pid)], dict(os.environ, TERM="xterm-256color", LINES="40", COLUMNS="120"))
    shown = b""
    while not FIGURE.search(shown):
        harness.check(time.monotonic() < begin + 30 and select.select([terminal], [], [], 30)[0], "nothing is shown: %s", shown[-300:])
        shown += os.read(terminal, 1 << 16)
    took = time.monotonic() - begin
    os.write(terminal, b"q")
    try:
        while os.read(terminal, 1 << 16):
            pass
    except OSError:
        pass  # the terminal is gone
    os.waitpid(child, 0)
    return took


def changed_places(code):
    """Address and original value of each changed byte."""
    ret = []
    for address, data, _, _ in code.pieces:
        code.mem.seek(address)
        now = code.mem.read(len(data))
        if now != data:
            ret += [(address + i, data[i]) for i in range(len(data)) if now[i] != data[i]]
    return ret


def attach_and_end(tool, pid, code, number):
    """Seconds to attach, CPU time until then, and seconds from the signal until no byte of the target's code is changed."""
    begin = time.monotonic()
    p = subprocess.Popen([tool, "record", "-p", str(pid), "-o", harness.scratch("hosts.mtr"), "-f"], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
    said, attach = chaos.until_attached(p)[0], time.monotonic() - begin
    harness.check(b"attached to" in said, "%s: %s", tool, said)
    cpu = harness.cpu_seconds(p.pid)
    time.sleep(2)  # until all programs are loaded
    places = changed_places(code)
    harness.check(places, "no probe is in the target")
    mem = os.open("/proc/%d/mem" % pid, os.O_RDONLY)
    begin = time.monotonic()
    p.send_signal(number)
    while any(os.pread(mem, 1, at)[0] != byte for at, byte in places):
        time.sleep(0.0005)
    took = time.monotonic() - begin
    p.communicate(timeout=60)
    os.close(mem)
    return attach, cpu, took


def attach(args):
    tools = args.what or [harness.TOOL]
    target = harness.training()
    code = code_bytes.Code(target.popen.pid, harness.CODE)
    values = {tool: {"attach": [], "cpu": [], "figure": [], "end": [], "killed": []} for tool in tools}
    for _ in range(args.n):
        for tool in tools:
            v = values[tool]
            v["figure"].append(first_figure(tool, target.popen.pid))
            for number, key in ((signal.SIGINT, "end"), (signal.SIGKILL, "killed")):
                took, cpu, restored = attach_and_end(tool, target.popen.pid, code, number)
                v["attach"].append(took)
                v["cpu"].append(cpu)
                v[key].append(1e3 * restored)
    print("| | from the command to attached, s | CPU time until then, s | to the first figure, s | Ctrl-C to code restored, ms | kill -9 to code restored, ms |")
    print("|---|---|---|---|---|---|")
    for tool in tools:
        v = values[tool]
        print("| %s | %s | %s | %s | %s | %s |" % (tool, spread(v["attach"]), spread(v["cpu"]), spread(v["figure"]), spread(v["end"], 0), spread(v["killed"], 0)))


# ---- threads ----------------------------------------------------------------------------------------------

def storm_of(threads, traced):
    """One storm: calls, its wall and CPU time, and the recorder's CPU time and lost records."""
    storm = chaos.Storm()
    recorder = harness.record(storm.pid, harness.scratch("threads.mtr")) if traced else None
    before = storm.ask("count")
    cpu, own, begin = harness.cpu_seconds(storm.pid), harness.cpu_seconds(recorder.pid) if traced else 0, time.monotonic()
    after = storm.ask("flood %d %d" % (threads, max(CALLS // threads, 1)), 300)
    wall = time.monotonic() - begin
    ret = {"calls": sum(after[k] - before[k] for k in chaos.COUNTERS), "wall": wall, "cpu": harness.cpu_seconds(storm.pid) - cpu, "lost": 0, "own": 0}
    if traced:
        harness.settle(recorder)
        ret["own"] = harness.cpu_seconds(recorder.pid) - own
        harness.finish(recorder)
        ret["lost"] = harness.report(harness.scratch("threads.mtr"))["capture"]["lost"]
    storm.process.stop()
    return ret


def threads(args):
    print("%d CPUs\n" % os.cpu_count())
    print("| threads | calls of hooks | untraced, ns of CPU time a call | added by recording, ns | events/s | recorder, ns of CPU time an event | lost |")
    print("|---:|---:|---|---|---|---|---:|")
    for n in [int(w) for w in args.what] or (1, 8, 64, 512):
        rounds = [(storm_of(n, False), storm_of(n, True)) for _ in range(args.n)]
        alone = [1e9 * a["cpu"] / a["calls"] for a, _ in rounds]
        added = [1e9 * (t["cpu"] / t["calls"] - a["cpu"] / a["calls"]) for a, t in rounds]
        print("| %d | %d | %s | %s | %s | %s | %d |" % (n, rounds[0][1]["calls"], spread(alone, 0), spread(added, 0), spread([t["calls"] / t["wall"] for _, t in rounds], 0),
                                                        spread([1e9 * t["own"] / t["calls"] for _, t in rounds], 0), sum(t["lost"] for _, t in rounds)), flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("which", choices=("attach", "threads"))
    p.add_argument("-n", type=int, default=5)
    p.add_argument("what", nargs="*")
    args = p.parse_intermixed_args()
    try:
        {"attach": attach, "threads": threads}[args.which](args)
    finally:
        harness.stop_all(False)


main()

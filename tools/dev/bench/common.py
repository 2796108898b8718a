# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Shared by the parts: a process's resource use, a workload's output, the states of a target, the rounds of a part."""
import contextlib
import json
import re
import sys
import time

import harness
from bench import stats
from bench.stats import spread  # noqa: F401  (the parts take it from here)

# "again" is untraced as well: against "untraced" it shows the noise of the machine.
STATES = ("untraced", "again", "empty", "recorded")
STEP_STATES = (*STATES, "no autograd")
LEAST_ROUNDS = 3
LOADED = 1.75  # s after an attach: then all programs are loaded (session.c, LOAD_SLEEPABLE_AFTER)


def rounds(args, name):
    """The numbers of a part's rounds: --rounds, or as many as the part's share of the time allows. Says on stderr how far it is."""
    begin, n, last = time.monotonic(), 0, 0.0
    share = args.share(name)
    while n < args.rounds if args.rounds else n < LEAST_ROUNDS or time.monotonic() - begin + last <= share:
        started = time.monotonic()
        yield n
        last, n = time.monotonic() - started, n + 1
        sys.stderr.write("%s: round %d%s, %.0f s\n" % (name, n, " of %d" % args.rounds if args.rounds else "", time.monotonic() - begin))


def cpu_seconds(pid):
    """User and system time of all threads, also ended ones, in s with ns resolution: clock_getcpuclockid(3)."""
    return time.clock_gettime((~pid << 3) | 2)


def wait_idle(cpu, most=5.0):
    """Returns when a recorder that has just attached is nearly idle for half a second: it has read the roles of live blocks, and loaded
    the programs for pages that are not in memory (after a second), each of which takes all of a core. cpu() is its CPU time in s, most
    the longest wait."""
    begin, idle = time.monotonic(), 0
    while time.monotonic() < begin + LOADED or (idle < 2 and time.monotonic() < begin + most):
        before = cpu()
        time.sleep(0.25)
        idle = idle + 1 if cpu() - before < 0.25 * 0.25 else 0


def memory(pid):
    with open("/proc/%d/status" % pid, encoding="ascii", errors="replace") as f:
        text = f.read()
    return {k: int(re.search(r"%s:\s+(\d+) kB" % k, text)[1]) * 1024 for k in ("VmRSS", "VmHWM")}


class Tail:
    """The lines that a workload adds to its file between two moments of its own clock."""

    def __init__(self, path):
        self.path = path

    def between(self, begin, end):
        with open(self.path, encoding="utf-8") as f:
            rows = [json.loads(line) for line in f if line.endswith("\n")]
        return [r for r in rows if begin <= r[0] <= end]


def attach(state, pid, path, *options):
    if state in ("untraced", "again"):
        return None
    command = [harness.TOOL, "record", "-p", str(pid), "-o", path, "-f", *options]
    if state == "no autograd":
        command.append("--no-autograd")
    if state == "host":
        command.append("--host")
    if state == "empty":
        command = ["env", "MEMTRACE_BENCH=empty", *command]
    p = harness.spawn(command, root=True)
    p.wait_line(harness.ATTACHED, 30, stream="err")
    return p


def tracer_pid(p):
    """The tracer's PID: env executes the program, sudo starts a child."""
    return p.pid


def line(name, s, digits=0, scale=1.0):
    """A row of text: median and 95 % interval of a spread."""
    print("  %-46s %s" % (name, stats.text(s, digits, scale)))


HOLD_STATS = r"""
import ctypes, os, platform, struct, sys
number = {"x86_64": 321, "aarch64": 280}[platform.machine()]
libc = ctypes.CDLL(None, use_errno=True)
fd = libc.syscall(number, 32, struct.pack("I", 0), 4)  # BPF_ENABLE_STATS, BPF_STATS_RUN_TIME
if fd < 0:
    sys.exit(os.strerror(ctypes.get_errno()))
print("on", flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def bpf_stats():
    """Makes the kernel count runs and time of BPF programs while the returned descriptor is open."""
    p = harness.spawn([sys.executable, "-c", HOLD_STATS], root=True)
    try:
        p.wait_line("^on", 10)
        yield
    finally:
        p.stop()

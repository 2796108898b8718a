# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Measures how long a target stands still while a tool attaches, and how long its code stays changed after the command to end. A thread of the target only reads the clock (tests/programs/spin.c). The longest time between two readings, without the
time spent waiting for a core, is the stall; the waiting time is shown separately."""
import shutil
import subprocess
import sys
import time

import harness
from bench import stats, tools
from bench.common import Tail, rounds as rounds_in, spread

# Finds bytes that differ from the files, tells the tool to end, and waits until none differs. Runs as root in one process; ms.
RESTORED = r"""
import os, re, signal, sys, time
pid, tool, names = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3].split(",")
mem = os.open("/proc/%d/mem" % pid, os.O_RDONLY)
sites = []
for line in open("/proc/%d/maps" % pid):
    m = re.match(r"([0-9a-f]+)-([0-9a-f]+) r-xp ([0-9a-f]+) \S+ \d+\s+(/.*)", line)
    if not m or not any(os.path.basename(m[4]).startswith(n) for n in names):
        continue
    start, end, offset = int(m[1], 16), int(m[2], 16), int(m[3], 16)
    with open(m[4], "rb") as f:
        f.seek(offset)
        while start < end:
            want = f.read(min(1 << 16, end - start))
            have = os.pread(mem, len(want), start)
            if have != want:
                sites += [(start + i, want[i:i + 1]) for i in range(len(have)) if have[i] != want[i]]
            start += len(want)
            if not want:
                break
begin = time.monotonic()
os.kill(tool, signal.SIGINT)
while any(os.pread(mem, 1, at) != byte for at, byte in sites) and time.monotonic() < begin + 60:
    time.sleep(0.0005)
print(len(sites), 1e3 * (time.monotonic() - begin))
"""
NAMES = "libc10.so,libpython,libtorch_python.so,libtorch_cpu.so,python3"


def restored(pid, tool):
    """(number of changed bytes, ms until all were restored)."""
    done = subprocess.run(harness.sudo([sys.executable, "-c", RESTORED, str(pid), str(tool), NAMES]), capture_output=True, text=True,
                          check=False)
    harness.check(done.returncode == 0, "cannot look at the target's code: %s", done.stderr[-500:])
    changed, ms = done.stdout.split()
    return int(changed), float(ms)


class Nothing(tools.Tool):
    """The machine's own stalls, in about the duration of an attach."""

    name = "nothing, for 0.3 s"

    def start(self, target):
        time.sleep(0.3)

    def stop(self, target):
        pass


class Gdb(tools.Tool):
    name = "gdb -p, and detach"

    def missing(self):
        return "" if shutil.which("gdb") else "not installed: tools/deps.sh bench"

    def start(self, target):
        # Without symbols, as memray calls it: with PyTorch's symbols the target stood still for half a minute.
        done = subprocess.run(harness.sudo(["gdb", "-nx", "-iex", "set auto-solib-add off", "-p", str(target.pid), "-batch", "-ex",
                                            "detach"]), capture_output=True, text=True, timeout=120, check=False)
        harness.check(done.returncode == 0, "gdb: %s", done.stderr[-500:])

    def stop(self, target):
        pass


def detach(tool, target):
    """ms from the signal or command until the tool's effect on the target ended."""
    if isinstance(tool, (tools.Ours, tools.Bpftrace)):
        changed, ms = restored(target.pid, tool.root_pid())
        harness.check(changed, "%s had changed nothing", tool.name)
        harness.check(tool.process.wait(60) == 0, "%s: %s", tool.name, tool.process.stderr()[-300:])
        return ms
    begin = time.monotonic()
    tool.stop(target)
    return 1e3 * (time.monotonic() - begin) if isinstance(tool, tools.Memray) else None


def one(tool, target, library):
    target.tell("spin on " + library)
    time.sleep(0.2)
    target.tell("spin off")
    before = Tail(target.times).between(0, time.monotonic())[-20:]
    target.tell("spin on " + library)
    begin = time.monotonic()
    tool.start(target)
    time.sleep(0.05)
    end = time.monotonic()
    longest, net = target.tell("spin off")
    steps = [r[1] - r[0] for r in Tail(target.times).between(begin - 0.1, end)]
    alone = sorted(r[1] - r[0] for r in before)[len(before) // 2]
    return {"took": 1e3 * (end - begin - 0.05), "longest": longest / 1e6, "net": net / 1e6,
            "step": 1e3 * (max(steps, default=end - begin) - alone), "detach": detach(tool, target)}


def bench(args, python, memray_python):
    candidates = [Nothing(), tools.Ours("all")]
    if args.long:
        candidates += [tools.Bpftrace("bpftrace count", "@hits = count();"), Gdb(), tools.Memray(memray_python), tools.Heaptrack()]
    left_out = {t.name: t.missing() for t in candidates if t.missing()}
    found = [t for t in candidates if not t.missing()]
    library = harness.compiled("spin")
    rounds = []
    target = tools.Target(memray_python or python, "cuda")
    for _ in rounds_in(args, "stall"):
        rounds.append({})
        for tool in found:
            if tool.fresh:
                with target.paused():
                    own = tools.Target(memray_python or python, "cuda")
                    rounds[-1][tool.name] = one(tool, own, library)
                    own.stop()
            else:
                rounds[-1][tool.name] = one(tool, target, library)
    target.stop()
    out = {}
    for tool in found:
        values = [r[tool.name] for r in rounds]
        out[tool.name] = {k: spread([v[k] for v in values]) for k in values[0] if values[0][k] is not None}
    return {"tools": out, "left_out": left_out}


def show(doc):
    def cell(s):
        return stats.text(s, 1) if s else "–"

    print("\nAttaching to a job that trains (a GPT on the dry run), and letting go of it, ms, median (95 % interval)\n")
    print("| | a thread stands still | the least of the rounds | with waiting for a core | a step takes longer by, at most | "
          "from the command to attached | letting go |\n|---|---|---|---|---|---|---|")
    for name, d in doc["tools"].items():
        print("| %s | %s | %.1f | %s | %s | %s | %s |" % (name, cell(d["net"]), min(d["net"]["values"]), cell(d["longest"]), cell(d["step"]),
                                                          cell(d["took"]), cell(d.get("detach"))))
    for name, why in doc["left_out"].items():
        print("| %s | not run: %s | | | | | |" % (name, why))
    ours = doc["tools"]["all"]
    print("\nAttach, a thread stands still: %.1f ms; letting go: %.0f ms" % (ours["net"]["median"], ours["detach"]["median"]))

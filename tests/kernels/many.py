# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Costs of captures on a host with many CPUs: kernel memory of the recorder's control group, CPU time of an idle recorder, storms
from many threads. usage: many.py TOOL FOLDER STORM LIBRARY; prints "MANY" and JSON."""
import json
import os
import signal
import subprocess
import sys
import time

tool, folder, storm, library = sys.argv[1:]
ROOT = "/sys/fs/cgroup"
recording = os.path.join(folder, "many.mtr")
IDLE = 10  # s
CALLS = 20000  # rounds of a storm, over all threads
# The target's counts, and the recording's counters that must be equal.
COUNTERS = {"report": "hits.report", "oom": "hits.oom", "cpu_new": "hits.cpu_new", "cpu_delete": "hits.cpu_delete", "edge": "hits.autograd_edge",
            "run": "autograd.run"}


def control(path, text):
    with open(os.path.join(ROOT, path), "w", encoding="ascii") as f:
        f.write(text)


def kernel_memory(group):
    """What the kernel keeps for the group's processes, in bytes."""
    with open(os.path.join(ROOT, group, "memory.stat"), encoding="ascii") as f:
        stat = dict(line.split() for line in f)
    return int(stat["kernel"])


def start_target():
    target = subprocess.Popen([storm, library], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    if target.stdout.readline() != "ready\n":
        sys.exit("the target did not start")
    return target


def ask(target, line):
    target.stdin.write(line + "\n")
    target.stdin.flush()
    return json.loads(target.stdout.readline())


def attach(target, name, *options):
    """A recorder in a control group of its own, once it has attached."""
    os.makedirs(os.path.join(ROOT, name), exist_ok=True)
    begin = time.monotonic()
    p = subprocess.Popen([tool, "record", "-p", str(target.pid), "-o", recording, "-f", *options], stderr=subprocess.PIPE, text=True,
                         preexec_fn=lambda: control(name + "/cgroup.procs", "0"))
    said = []
    for line in p.stderr:
        said.append(line)
        if "attached to PID" in line:
            return p, time.monotonic() - begin
    sys.exit("record ended with %d: %s" % (p.wait(), "".join(said)))


def stop(p):
    p.send_signal(signal.SIGINT)
    p.stderr.read()
    if p.wait():
        sys.exit("record ended with %d after Ctrl-C" % p.returncode)


def cpu_time(pid):
    """Of all threads, in s."""
    total = 0
    for tid in os.listdir("/proc/%d/task" % pid):
        with open("/proc/%d/task/%s/schedstat" % (pid, tid), encoding="ascii") as f:
            total += int(f.read().split()[0])
    return total / 1e9


def captured(name, *options):
    """Memory at attach and after the storm, and the CPU time of an idle second."""
    target = start_target()
    p, took = attach(target, name, *options)
    time.sleep(3)
    at_attach, before = kernel_memory(name), cpu_time(p.pid)
    time.sleep(IDLE)
    idle = (cpu_time(p.pid) - before) / IDLE
    ask(target, "flood %d %d" % (len(os.sched_getaffinity(0)), 200))
    time.sleep(1)
    ret = {"attach_s": round(took, 2), "kernel": at_attach, "kernel_after_storm": kernel_memory(name), "idle_share": round(idle, 5)}
    stop(p)
    target.stdin.close()
    target.wait()
    return ret


def report():
    done = subprocess.run([tool, "report", "--format", "json", "--at", "end", recording], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)["capture"]


def storms(numbers):
    """For each number of threads: calls of hooks, hits recorded and lost, and what an event costs."""
    rows = []
    for threads in numbers:
        target = start_target()
        rounds = max(CALLS // threads, 1)
        took = []
        for traced in (False, True):
            p = attach(target, "storm")[0] if traced else None
            before = ask(target, "count")
            begin = time.monotonic()
            after = ask(target, "flood %d %d" % (threads, rounds))
            took.append(time.monotonic() - begin)
            if p:
                stop(p)
        calls = sum(after[k] - before[k] for k in COUNTERS)
        capture = report()
        hits = sum(capture["counters"].get(v, 0) for v in COUNTERS.values())
        rows.append({"threads": threads, "calls": calls, "hits": hits, "lost": capture["lost"], "event_ns": round((took[1] - took[0]) / calls * 1e9)})
        target.stdin.close()
        target.wait()
    return rows


control("cgroup.subtree_control", "+memory")
with open("/sys/devices/system/cpu/possible", encoding="ascii") as f:
    possible = f.read().strip()
result = {"cpus": len(os.sched_getaffinity(0)), "possible": possible, "one": captured("one"), "group": captured("group", "--children"),
          "storms": storms((1, 8, 64, 512))}
print("MANY", json.dumps(result), flush=True)

#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# run: reads-code cpu=60
"""`ps --device`: who holds a GPU's memory. Real processes have a device node open, of a /dev of their own; NVML is the dry run's, with
their PIDs. In each case the parts add up to the device's used bytes."""
import json
import os
import re
import signal
import sys

import harness
from harness import OUT, Skip, check, equal, python, run, scratch, spawn, tool, until

DRYRUN = os.path.join(OUT, "dryrun")
GIB = 1 << 30
VRAM = 80 * GIB
# The nodes are the process's own: this machine's /dev is not changed.
NODES = """mount -t tmpfs none /dev && mkdir /dev/shm && mknod -m 666 /dev/null c 1 3 && mknod -m 666 /dev/zero c 1 5 &&
mknod -m 666 /dev/urandom c 1 9 && mknod -m 666 /dev/random c 1 8 && mknod -m 666 /dev/nvidia0 c 195 0 && mknod -m 666 /dev/nvidia1 c 195 1 && exec "$@" """
HOLD = """
import os, sys, time
kept = os.open("/dev/nvidia0", os.O_PATH)
print("ready", os.getpid(), flush=True)
time.sleep(600)
"""
# A service whose three workers use PyTorch.
SERVICE = """
import os, sys, time, torch
kept = os.open("/dev/nvidia0", os.O_PATH)
for i in range(3):
    if not os.fork():
        held = torch.ones((i + 1) << 20, device="cuda")
        print("worker", i, os.getpid(), flush=True)
        time.sleep(600)
time.sleep(600)
"""


def machine(*lines, name="machine"):
    path = scratch(name)
    with open(path, "w", encoding="ascii") as f:
        f.write("".join(line + "\n" for line in lines))
    os.chmod(path, 0o644)
    return {**os.environ, "LD_LIBRARY_PATH": DRYRUN, "MEMTRACE_DRYRUN_NVML": path}


def needs_nodes():
    if not harness.IS_ROOT:
        raise Skip("needs root, for device nodes")
    if not os.path.exists(os.path.join(DRYRUN, "libnvidia-ml.so.1")):
        raise Skip("the dry run's libraries are not built")


def holder(*prefix, program=HOLD, interpreter=sys.executable, **kw):
    """Starts a program that has /dev/nvidia0 open. Returns it, and its PID."""
    needs_nodes()
    p = spawn(["unshare", "--mount", *prefix, "sh", "-c", NODES, "sh", interpreter, "-c", program], **kw)
    try:
        p.wait_line("^ready", 60)
    except harness.Failure:
        if re.search("unshare|mount|mknod", p.stderr()):
            raise Skip("no mount namespace: %s" % p.stderr().strip()) from None
        raise
    return p


def adds_up(d):
    """The parts of a device are what it has in use, to the byte."""
    parts = sum(h["bytes"] or 0 for h in d["holders"]) + d["hidden"] + (d["reserved_by_driver"] or 0) + d["not_explained"]
    equal(parts, d["used"], "sum of the parts: %s" % d)
    equal(d["used"] + d["free"], d["total"], "used and free")


def devices(env, *options, expect=0):
    code, out, err = tool("ps", "--device", "--format", "json", *options, root=True, env=env)
    equal(code, expect, "ps --device: %s" % err)
    return json.loads(out)["devices"]


def look(env, *options, **kw):
    """The first device; its parts add up."""
    d = devices(env, *options, **kw)[0]
    adds_up(d)
    return d


def row(d, pid):
    found = [h for h in d["holders"] if h["pid"] == pid]
    equal(len(found), 1, "rows of %d: %s" % (pid, d["holders"]))
    return found[0]


def test_workers_of_a_killed_parent():
    """The three workers of a killed service come first, with the reason and PyTorch's figures. What others hold is named, too."""
    needs_nodes()
    other = holder()
    service = spawn(["unshare", "--mount", "sh", "-c", NODES, "sh", python(), "-u", "-c", SERVICE],
                    env={**os.environ, "LD_PRELOAD": os.path.join(DRYRUN, "libcuda.so.1"), "SLURM_JOB_ID": "4711"})
    workers = [int(service.wait_line("^worker %d " % i, 120).split()[2]) for i in range(3)]
    code, out, err = tool("ps", "--format", "json", root=True)
    equal(code, 0, "ps: %s" % err)
    used = {p["pid"]: p["used"] for p in json.loads(out)["processes"]}
    env = machine("process 0 %d 1G" % other.pid, *("process 0 %d %d worked=3970" % (pid, used[pid]) for pid in workers), "reserved 0 450M")
    before = look(env)
    equal([row(before, pid)["left_over"] for pid in workers], [False] * 3, "workers whose parent lives")
    equal({row(before, pid)["parent"] for pid in workers}, {service.pid}, "parent of the workers")
    os.kill(service.pid, signal.SIGKILL)
    until(lambda: not harness.children_of(service.pid), "the end of the service")
    d = look(env)
    equal([h["pid"] for h in d["holders"]][:3], sorted(workers, key=lambda pid: -used[pid]), "the orphans come first")
    for i, pid in enumerate(workers):
        h = row(d, pid)
        equal((h["left_over"], h["reason"], h["end_command"]), (True, "parent gone, idle for 1h 06m", "sudo kill %d" % pid), "verdict")
        equal((h["bytes"], h["allocated"], h["job"], h["kinds"]), (used[pid], 4 * (i + 1) << 20, "slurm 4711", ["compute"]), "figures")
        check(h["open"] and h["reserved"] >= h["allocated"] and 3970 <= h["idle"] < 4000, "row: %s", h)
    equal((d["reserved_by_driver"], d["hidden"], d["not_explained"]), (450 << 20, 0, 0), "the rest")
    equal((row(d, other.pid)["left_over"], row(d, other.pid)["reason"]), (False, None), "a process whose parent lives")
    only = devices(env, "--orphans")[0]
    equal((sorted(h["pid"] for h in only["holders"]), only["filtered"]), (sorted(workers), 1), "--orphans")
    code, out, err = tool("ps", "--device", "0", root=True, env=env)
    lines = out.splitlines()
    equal(code, 0, "text: %s" % err)
    equal(" ".join(out.split()).count("probably left over: parent gone, idle for 1h 06m. To end it: sudo kill "), 3, "reasons in %s" % out)
    check(lines[0].startswith("GPU 0: ") and lines[-1].split()[-2:] == ["in", "use"], "text: %s", out)


if __name__ == "__main__":
    run(globals())

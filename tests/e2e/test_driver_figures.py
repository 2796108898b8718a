#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""The driver's figures of a process not known to be a dry run: the recorder asks NVML, here the dry run's, with a simulated
machine (docs/internals/DRYRUN.md, "Other processes")."""
import glob
import json
import os
import re
import signal
import sys
import time

import harness
from harness import TOOL, Skip, check, equal, finish, python, report, run, scratch, spawn, tool, until, until_recorded

DRYRUN = os.path.join(harness.OUT, "dryrun")
GIB = 1 << 30
VRAM = 80 * GIB  # bytes of a dry-run device
# The nodes are the container's own: this machine's /dev is not changed.
CONTAINER = """mount -t tmpfs none /dev && mkdir /dev/shm && mknod -m 666 /dev/null c 1 3 && mknod -m 666 /dev/zero c 1 5 &&
mknod -m 666 /dev/urandom c 1 9 && mknod -m 666 /dev/random c 1 8 && mknod -m 666 /dev/nvidia1 c 195 1 && exec "$@" """
JOB = """
import sys, torch
kept = []
print("ready", flush=True)
for line in sys.stdin:
    size = int(line)
    try:
        kept.append(torch.empty(size, dtype=torch.uint8, device="cuda"))
        print("took", size, flush=True)
    except torch.OutOfMemoryError:
        print("refused", size, flush=True)
"""


def library():
    """The dry run's library without the name that identifies it."""
    path = scratch("libcuda.so.1")
    if not os.path.exists(path):
        with open(os.path.join(DRYRUN, "libcuda.so.1"), "rb") as f:
            text = f.read()
        check(text.count(b"memtrace_dryrun_usage") > 0, "the dry run has no table")
        with open(path, "wb") as f:  # a name with the same hash, so that the loader finds it: one character + 1, another - 33
            f.write(text.replace(b"memtrace_dryrun_usage", b"memtrace_dryrun_vRage"))
    return path


class Machine:
    """NVML's view: two GPUs; the job's container has the second."""

    def __init__(self, name):
        self.path = scratch(name)
        self.say("process 0 1 1G")

    def say(self, *lines):
        with open(self.path, "w", encoding="utf-8") as f:
            f.write("".join(line + "\n" for line in lines))

    def environment(self):
        return dict(os.environ, LD_LIBRARY_PATH=DRYRUN, MEMTRACE_DRYRUN_NVML=self.path, MEMTRACE_DRYRUN_DEVICES="2")


def job():
    if not harness.IS_ROOT:
        raise Skip("needs root, for device nodes")
    env = dict(os.environ, LD_PRELOAD=library(), MEMTRACE_DRYRUN_VRAM="4G", PYTHONUNBUFFERED="1")
    p = spawn(["unshare", "--mount", "sh", "-c", CONTAINER, "sh", python(), "-c", JOB], env=env)
    try:
        p.wait_line("^ready", 120)
    except harness.Failure:
        if "unshare" in p.stderr() or "mount" in p.stderr() or "mknod" in p.stderr():
            raise Skip("no mount namespace: %s" % p.stderr().strip()) from None
        raise
    return p


def take(p, size, word="took"):
    p.send("%d\n" % size)
    p.wait_line("^%s %d$" % (word, size), 60)


def recorder(p, machine, path):
    r = spawn([TOOL, "record", "-p", str(p.pid), "-o", path, "-f"], env=machine.environment())
    r.wait_line(harness.ATTACHED, 30, stream="err")
    return r


def helper_of(recorder_pid, seconds=20):
    limit = time.monotonic() + seconds
    while time.monotonic() < limit:
        for pid in harness.children_of(recorder_pid):
            with open("/proc/%d/cmdline" % pid, "rb") as f:
                if b"gpus-helper" in f.read():
                    return pid
        time.sleep(0.02)
    raise harness.Failure("the recorder started no helper")


def ended(pid):
    try:
        with open("/proc/%d/stat" % pid, encoding="utf-8", errors="replace") as f:
            return f.read().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def until_used(path, size):
    """The driver's figure of the process has been recorded."""
    until_recorded(path, lambda doc: harness.device(doc, "cuda:0")["reconciliation"]["used"] == size, "the driver's figure", "--at", "end")


def test_out_of_memory_beside_a_neighbour():
    machine, path = Machine("neighbour"), scratch("neighbour.mtr")
    p = job()
    take(p, 1 * GIB)
    machine.say("process 1 %d 2G" % p.pid, "process 1 1 40G", "reserved 1 2G", "process 0 1 70G")
    r = recorder(p, machine, path)
    take(p, 1 << 20)
    helper_of(r.pid)
    until_used(path, 2 * GIB)
    # Another figure, which is surely of a time after the segment above.
    machine.say("process 1 %d 3G" % p.pid, "process 1 1 40G", "reserved 1 2G", "process 0 1 70G")
    until_used(path, 3 * GIB)
    take(p, 8 * GIB, "refused")
    until_recorded(path, lambda doc: harness.device(doc, "cuda:0")["out_of_memory"][0]["driver_total"], "the figures at the error", "--at", "oom")
    finish(r)
    doc = report(path, at="oom")
    d = harness.device(doc, "cuda:0")
    (oom,) = d["out_of_memory"]
    equal(oom["driver_total"], VRAM - 2 * GIB, "what programs can use of the device")
    equal(oom["driver_used"], 3 * GIB, "what the process has")
    equal((oom["driver_free"], oom["driver_free_counts_others"]), (VRAM - 45 * GIB, True), "what the driver had left")
    code, out, _ = tool("report", "--at", "oom", path)
    check(code == 0 and "the driver had 35.00 GiB left of 78.00 GiB" in " ".join(out.split()), "the report says: %s", out)
    code, out, _ = tool("diagnose", "--format", "json", path)
    others = [f for f in json.loads(out)["findings"] if f["code"] == "other_processes"]
    equal((code, [f["bytes"] for f in others]), (4, [40 * GIB]), "the neighbour in the findings: %s" % out)
    check(not [x for x in doc["devices"] if x["device"] == "cuda:1"], "a device that the process does not have: %s", doc["devices"])


def until_answered(helper):
    """Waits until the helper has asked the driver several times, once a second: then the recorder has the first figures."""
    reads = set()

    def look():
        with open("/proc/%d/io" % helper, encoding="ascii") as f:
            reads.add(re.search(r"rchar: (\d+)", f.read())[1])
        return len(reads) > 4

    until(look, "reads of the driver", 60)


def beside(name):
    """A job beside a process that has most of the device. Returns the job, the recorder's machine, and that process."""
    machine, other = Machine(name), spawn([sys.executable, "-c", "import time; time.sleep(600)", "neighbour of " + name])
    p = job()
    take(p, 1 * GIB)
    machine.say("process 1 %d 2G" % p.pid, "process 1 %d 40G" % other.pid, "process 1 4194303 1G", "reserved 1 2G", "process 0 1 70G")
    return p, machine, other


def names(found, other, name):
    """The other processes are that one, and one that is gone."""
    equal(found["count"], 2, "number of other processes: %s" % found)
    first, gone = found["largest"]
    equal((first["pid"], first["bytes"], first["uid"], first["user"]), (other.pid, 40 * GIB, 0, "root"), "the neighbour: %s" % first)
    check(first["command"].endswith("time.sleep(600) neighbour of " + name), "its command: %s", first)
    equal((gone["pid"], gone["bytes"], gone["user"], gone["command"]), (4194303, GIB, None, None), "a process that is gone")


def test_out_of_memory_names_the_neighbour():
    """--on-oom, and a plain recording. The process stays until the driver has answered."""
    p, machine, other = beside("named")
    folder, path = scratch("named.d"), scratch("named.mtr")
    plain = recorder(p, machine, path)
    r = spawn([TOOL, "record", "-p", str(p.pid), "--on-oom", "-o", folder, "-f"], env=machine.environment())
    r.wait_line(harness.ATTACHED, 30, stream="err")
    take(p, 1 << 20)
    until_used(path, 2 * GIB)
    until_answered(helper_of(r.pid))
    take(p, 8 * GIB, "refused")
    until_recorded(path, lambda doc: harness.device(doc, "cuda:0")["out_of_memory"][0]["other_processes"], "the other processes", "--at", "oom")
    harness.until(lambda: glob.glob(os.path.join(folder, "*.mtr")) or os.path.isfile(folder), "the recording of --on-oom")
    p.popen.stdin.close()
    equal(p.wait(60), 0, "the job")
    r.wait(60)
    plain.wait(60)
    (window,) = glob.glob(os.path.join(folder, "*.mtr")) or [folder]
    for recording in (path, window):
        (oom,) = harness.device(report(recording, at="oom"), "cuda:0")["out_of_memory"]
        names(oom["other_processes"], other, "named")
        check(oom["time"] <= oom["other_processes"]["read"] < oom["time"] + 60, "asked at %s: %s", oom["time"], oom["other_processes"])
        code, out, _ = tool("report", "--at", "oom", recording)
        said = "neighbour of named (PID %d, user root) 40.00 GiB" % other.pid
        check(code == 0 and "other processes on this device: " in " ".join(out.split()) and said in " ".join(out.split()), "the report says: %s", out)
        code, out, _ = tool("diagnose", "--format", "json", recording)
        check("the largest is" in out and said in out, "diagnose says: %s", out)
        page = scratch("named.html")
        code, _, err = tool("export", "html", recording, "-o", page, "-f")
        equal(code, 0, "export: %s" % err)
        with open(page, encoding="utf-8") as f:
            check("; the largest is " in f.read(), "the page does not name the neighbour")


def test_kill_names_the_neighbour():
    """--on-kill: the other processes at the end, from the driver's last answer."""
    p, machine, other = beside("killed")
    path = scratch("killed.mtr")
    r = spawn([TOOL, "record", "-p", str(p.pid), "--on-kill", "-o", path, "-f"], env=machine.environment())
    r.wait_line(harness.ATTACHED, 30, stream="err")
    take(p, 1 << 20)
    until_answered(helper_of(r.pid))
    os.kill(p.pid, signal.SIGKILL)
    r.wait(60)
    names(harness.device(report(path), "cuda:0")["other_processes_at_end"], other, "killed")
    code, out, _ = tool("report", path)
    check(code == 0 and "neighbour of killed (PID %d, user root) 40.00 GiB" % other.pid in " ".join(out.split()), "the report says: %s", out)


def test_a_driver_that_hangs():
    """The recorder continues, and ends at once on Ctrl-C."""
    machine, path = Machine("hang"), scratch("hang.mtr")
    p = job()
    take(p, 1 << 20)
    machine.say("process 1 %d 3G" % p.pid)
    r = recorder(p, machine, path)
    helper = helper_of(r.pid)
    until_used(path, 3 * GIB)
    machine.say("hang")
    for i in range(200):
        take(p, (2 << 20) + 512 * i)
    take(p, 8 * GIB, "refused")
    begin = time.monotonic()
    finish(r, 20)
    check(time.monotonic() - begin < 10, "Ctrl-C took %.1f s", time.monotonic() - begin)
    until(lambda: ended(helper), "the end of the helper", 30)
    doc = report(path)
    equal(doc["capture"]["lost"], 0, "events lost")
    # The driver's last answer from before has to do: no process but this one.
    equal(harness.device(doc, "cuda:0")["out_of_memory"][0]["other_processes"]["count"], 0, "other processes")
    check(sum(row["count"] for row in report(path, by="line")["rows"]) >= 200, "too few: %s", doc["rows"])
    take(p, 512)  # the job still runs


if __name__ == "__main__":
    run(globals())

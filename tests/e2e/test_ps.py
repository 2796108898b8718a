#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# run: reads-code cpu=20
"""`ps`: processes with PyTorch or CUDA and no others, with what can be read of each."""
import json
import os
import shutil
import sys

import harness
import test_errors
from harness import OUT, Skip, check, equal, python, run, scratch, spawn, tool

DRYRUN = os.path.join(OUT, "dryrun")
USAGE = 64
CPU = """
import time, torch
kept = torch.ones(1 << 20)
print("ready", flush=True)
time.sleep(600)
"""
GROWS = """
import time, torch
kept = [torch.ones(1 << 20, device="cuda")]
print("ready", flush=True)
while True:
    kept.append(torch.ones(1 << 18, device="cuda"))
    time.sleep(0.05)
"""


def listed(**kw):
    """The processes, of a list that leaves nobody out: on a busy machine there may be no time for all."""
    def look():
        code, out, err = tool("ps", "--format", "json", root=True, **kw)
        equal(code, 0, "ps: %s" % err)
        document = json.loads(out)
        return not document["left_out"] and document

    return {p["pid"]: p for p in harness.until(look, "a list that leaves nobody out")["processes"]}


def test_cpu_job():
    job = spawn([python(), "-u", "-c", CPU, "--lr", "0.1"], env={**os.environ, "RANK": "3", "WORLD_SIZE": "4"})
    job.wait_line("ready")
    found = listed()[job.pid]
    equal((found["rank"], found["uid"], found["permitted"]), (3, 0, True), "rank, user and rights")
    equal((found["allocated"], found["growth"]), (None, None), "figures of CUDA")
    check(found["why"], "no reason for what is not known: %s", found)
    check(found["rss"] > 64 << 20 and found["rss_growth"] is not None, "host memory: %s", found)
    job.stop()


def test_without_torch():
    other = spawn([sys.executable, "-u", "-c", "import time; print('ready'); time.sleep(600)"])
    other.wait_line("ready")
    check(other.pid not in listed(), "a process without PyTorch is listed")
    other.stop()


def test_dry_run():
    """Allocated memory grows. Text has the script's name, fits the terminal, and is sorted."""
    if not os.path.exists(os.path.join(DRYRUN, "libcuda.so.1")):
        raise Skip("the dry run's libraries are not built")
    script = scratch("grows.py")
    with open(script, "w", encoding="ascii") as f:
        f.write(GROWS)
    rate = "0.%d" % os.getpid()  # another run of the tests has a job like this, too
    job = spawn([harness.TOOL, "run", "--dry-run-cuda", "--no-trace", "--", python(), "-u", script, "--lr", rate])
    job.wait_line("ready")
    found = next(p for p in listed().values() if p["command"] == "grows.py --lr " + rate)
    check(found["reserved"] >= found["allocated"] >= 5 << 20, "the allocator: %s", found)
    check(found["used"] > found["reserved"], "driver-reported use: %s", found)
    check(found["growth"] > 0, "growth: %s", found)
    equal(found["why"], None, "reason")
    for columns in (40, 60, 80, 120, 200):
        _, out, _ = tool("ps", root=True, env={**os.environ, "COLUMNS": str(columns)})
        lines = out.splitlines()
        equal([line for line in lines if len(line) > columns and "not permitted; run" not in line], [], "lines wider than %d columns" % columns)
        row = next((line for line in lines if line.split()[0] == str(found["pid"])), "")
        check("grows.py" in row or columns == 40, "%d columns: %s", columns, out)
    titles = lines[0].split()
    equal(titles[:3] + titles[-1:], ["PID", "User", "Device", "Command"], "titles")
    code, out, err = tool("ps", "--watch", "--count", "3", "--interval", "100ms", "--format", "json", root=True)
    equal(code, 0, "ps --watch: %s" % err)
    seen = [next(p for p in json.loads(line)["processes"] if p["pid"] == found["pid"])["allocated"] for line in out.splitlines()]
    check(len(seen) == 3 and seen[0] <= seen[1] <= seen[2], "three looks: %s", seen)
    job.stop()


def test_program_with_cuda_only():
    """The driver's figures of a program without PyTorch: NVML's, here the dry run's, added up over GPUs."""
    if not os.path.exists(os.path.join(DRYRUN, "libnvidia-ml.so.1")):
        raise Skip("the dry run's libraries are not built")
    env = {**os.environ, "LD_LIBRARY_PATH": DRYRUN, "PYTHONHOME": sys.base_prefix}
    own = os.path.join(harness.scratch("own"), "memtrace-bpf")
    os.makedirs(os.path.dirname(own), exist_ok=True)
    shutil.copy(os.path.realpath(sys.executable), own)
    job, recorder = (spawn([program, "-u", "-c", "import ctypes, time; ctypes.CDLL('libcuda.so.1'); print('ready'); time.sleep(600)"], env=env)
                     for program in (sys.executable, own))
    job.wait_line("ready")
    recorder.wait_line("ready")
    machine = scratch("machine")
    with open(machine, "w", encoding="ascii") as f:
        f.write("process 0 %d 3G\nprocess 1 %d 1G\nprocess 1 1 5G\n" % (job.pid, job.pid))
    env.update(MEMTRACE_DRYRUN_NVML=machine, MEMTRACE_DRYRUN_DEVICES="2")
    processes = listed(env=env)
    check(recorder.pid not in processes, "memtrace-bpf, which maps the CUDA of a dry run, is listed")
    found = processes[job.pid]
    equal((found["used"], found["reserved"], found["allocated"]), (4 << 30, None, None), "used, reserved, allocated")
    _, out, _ = tool("ps", root=True, env=env)
    row = next(line for line in out.splitlines() if line.split()[0] == str(job.pid))
    check(" 4.00 GiB" in row, "the driver's figure in %s", row)
    job.stop()
    recorder.stop()


def test_not_permitted():
    job = spawn([python(), "-u", "-c", CPU])
    job.wait_line("ready")
    code, out, err = test_errors.as_nobody("ps", "--format", "json")
    equal(code, 0, "exit code of ps as the user nobody: %s" % err)
    found = next(p for p in json.loads(out)["processes"] if p["pid"] == job.pid)
    equal((found["permitted"], found["user"], found["why"]), (False, "root", "not permitted"), "the job of root")
    check(found["rss"], "anybody may read RSS: %s", found)
    _, out, _ = test_errors.as_nobody("ps")
    row = next(line for line in out.splitlines() if line.split()[0] == str(job.pid))
    check("(not permitted)" in row and "run it with sudo" in out, "text: %s", out)
    job.stop()


def test_choices():
    """Completion offers the PIDs of jobs, and a message about a missing PID names them."""
    script = scratch("choice.py")
    with open(script, "w", encoding="ascii") as f:
        f.write(CPU)
    job = spawn([python(), "-u", script, "--lr", "0.1"])
    job.wait_line("ready")
    harness.until(lambda: "%d\tchoice.py --lr 0.1" % job.pid in tool("--complete", "diagnose", "-p", str(job.pid), root=True)[1].splitlines(), "completion")
    for args in (("-p",), ("diagnose",), ("record", "--pid"), ("dump",)):
        code, out, err = tool(*args, root=True)
        equal((code, out), (USAGE, ""), "exit and output of %s" % " ".join(args))
        named = err.splitlines()[1]
        check(named.startswith("Processes with PyTorch: ") and ("%d choice.py" % job.pid in named or " more, see `memtrace-bpf ps`" in named), "%s: %s", args, err)
    job.stop()


def test_usage():
    for args in (("4242",), ("--interval", "1ms"), ("--count", "3")):
        code, out, err = tool("ps", *args)
        equal((code, out), (USAGE, ""), "ps %s" % " ".join(args))
        check("ps" in err, "error: %s", err)


if __name__ == "__main__":
    run(globals())

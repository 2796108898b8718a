#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# run: long probes-all
"""Out of memory while attached: the target survives, every failure is recorded, and the flight recorder keeps the events before
it."""
import glob
import os
import re
import shlex

import harness
from harness import check, device, equal, own, python, record, report, run, scratch, spawn, spawn_job, tool

TIMES = 1000
DRYRUN = os.path.join(os.path.dirname(harness.TOOL), "dryrun")
BIG = 90 << 30


LOOP = [python(), os.path.join(harness.WORKLOADS, "cuda", "oom_loop.py")]


def on_dry_run(**env):
    libraries = " ".join(os.path.join(DRYRUN, name) for name in ("libcuda.so.1", "libnvidia-ml.so.1"))
    return {**os.environ, "LD_PRELOAD": libraries, **env}


def job(times=TIMES, *words, **env):
    start = spawn if env else spawn_job  # jobs with other variables would each need a Python to be forked from
    return start([*LOOP, str(times), *words], env=on_dry_run(**env))


def fails(target, times, recorders=()):
    """Lets it run out of memory, and sees it end."""
    target.send("go\n")
    target.wait_line("^caught %d, counted %d$" % (times, times), 120)
    for recorder in recorders:
        harness.settle(recorder)
    target.popen.stdin.close()
    equal(target.wait(60), 0, "the job's exit code")


def at_oom(path):
    doc = report(path, at="oom")
    return doc, [(r["bytes"], r["count"], r["file"], r["line"], r.get("phase"), r["source"]) for r in doc["rows"]]


def test_a_thousand_times():
    whole, window = scratch("whole.mtr"), scratch("window.mtr")
    target = job()
    target.wait_line("^ready", 120)
    recorders = [record(target.popen.pid, whole), record(target.popen.pid, window, "--on-oom", "--oom-files", str(TIMES))]
    check(not os.path.exists(window), "written before anything happened")
    fails(target, TIMES, recorders)
    for recorder in recorders:
        equal(recorder.wait(60), 0, "exit code of record")
    own(whole)
    own(window)
    doc, rows = at_oom(whole)
    gpu = device(doc, "cuda:0")
    equal((gpu["ooms"], gpu["drift"], doc["capture"]["lost"], gpu["state"]), (TIMES, 0, 0, "exact"), "of all of it")
    equal(sum(r[0] for r in rows), doc["allocated"], "sum of the rows")
    equal(gpu["out_of_memory"][0]["asked"], BIG, "asked for")
    doc, of_window = at_oom(window)
    equal(of_window, rows, "rows at the first time, from the flight recorder")
    # After a second without a failure, as on a busy machine, the next one is in the next file.
    more = glob.glob(scratch("window-*.mtr"))
    gpus = [device(doc, "cuda:0")] + [device(report(path, at="oom"), "cuda:0") for path in more]
    equal((sum(gpu["ooms"] for gpu in gpus), [gpu["drift"] for gpu in gpus]), (TIMES, [0] * len(gpus)), "of the window")


RETRIES = """import sys, torch
class Net(torch.nn.Module):
    def forward(self, n):
        kept = [torch.empty(n << 20, dtype=torch.uint8, device="cuda") for _ in range(8)]
        return torch.empty(90 << 30, dtype=torch.uint8, device="cuda")

net, failed = Net(), []
torch.empty(1, device="cuda")
print("ready", flush=True)
sys.stdin.readline()
for n in 4, 2, 1:
    try:
        net(n)
    except torch.OutOfMemoryError as e:
        failed.append(e)
print("caught", flush=True)
sys.stdin.read()
"""


def test_kept_exceptions():
    """A program that tries again with less, and keeps the exceptions: they hold what the failed calls made, and the report says so."""
    path = scratch("kept.mtr")
    target = spawn_job([python(), "-c", RETRIES], env=on_dry_run())
    target.wait_line("^ready", 120)
    recorder = record(target.popen.pid, path)
    target.send("go\n")
    target.wait_line("^caught", 60)
    own(path)
    words = "48.00 MiB of it are of calls that failed, the last at .* exception (here global failed[*])"
    pattern = ".*".join(map(re.escape, words.split(".*")))
    harness.until(lambda: re.search(pattern, " ".join(harness.tool("report", path)[1].split())), "the exceptions in the report", 60)
    target.popen.stdin.close()
    equal(recorder.wait(60), 0, "exit code of record")
    equal([oom["kept"] >> 20 for oom in device(report(path), "cuda:0")["out_of_memory"]], [0, 32, 48], "kept of the calls before")


def test_none():
    path = scratch("none.mtr")
    target = spawn_job([python(), "-c", "import torch, time; print('ready', flush=True)\nwhile True: torch.ones(9); time.sleep(.01)"], env=on_dry_run())
    target.wait_line("^ready", 120)
    recorder = record(target.popen.pid, path, "--on-oom", "-d", "1s")
    equal(recorder.wait(30), 0, "exit code")
    check(not os.path.exists(path), "a file with nothing in it")


def whole(path, pid):
    """It shows what one process held when it ran out of memory."""
    doc = report(path, at="oom")
    gpu = device(doc, "cuda:0")
    equal((doc["target"]["pid"], gpu["drift"], gpu["out_of_memory"][0]["asked"]), (pid, 0, BIG), "of " + path)
    equal(sum(r["bytes"] for r in doc["rows"]), doc["allocated"], "sum of the rows of " + path)
    return gpu["ooms"]


def test_of_several():
    """Each process has files of its own: in a folder by rank or name, otherwise with its PID. Who has enough memory has none."""
    folder, path = scratch("several"), scratch("several.mtr")
    pattern = "oom_loop.py [0-9]* of-several"
    jobs = [job(1, "of-several", RANK="3", WORLD_SIZE="4"), job(1, "of-several"), job(0, "of-several")]
    for target in jobs:
        target.wait_line("^ready", 120)
    first, second, _ = [target.popen.pid for target in jobs]
    recorders = [spawn([harness.TOOL, "record", "--name", pattern, "--on-oom", "-o", output], root=True) for output in (folder + "/", path)]
    for recorder in recorders:
        recorder.wait_line("3 processes are traced", 60, stream="err")
    for target, times in zip(jobs, (1, 1, 0)):
        fails(target, times)
    for recorder in recorders:
        equal(recorder.wait(60), 0, "exit code of record: %s" % recorder.stderr()[-500:])
    own(folder)
    names = {"rank-3.mtr": first, "oom_loop-%d.mtr" % second: second}
    index = harness.read_json(os.path.join(folder, "index.json"))["recordings"]
    equal(sorted((e["file"], e["pid"], e["ended"]) for e in index), sorted((n, pid, "out of memory") for n, pid in names.items()), "index")
    equal(sorted(os.listdir(folder)), sorted(["index.json", *names]), "files")
    for name, pid in names.items():
        equal(whole(os.path.join(folder, name), pid), 1, "out of memories of " + name)
    for pid in (first, second):
        one = scratch("several.%d.mtr" % pid)
        own(one)
        equal(whole(one, pid), 1, "out of memories of " + one)
    equal(len(glob.glob(scratch("several*.mtr"))), 2, "files without a folder")


def test_of_children():
    """`run --children`: two processes that the command starts run out of memory."""
    folder = scratch("children")
    loop = " ".join(map(shlex.quote, LOOP))
    script = "echo | %s 1 & echo | RANK=1 WORLD_SIZE=2 %s 1 & wait" % (loop, loop)
    code, out, err = tool("run", "--dry-run-cuda", "--children", "--on-oom", "-o", folder + "/", "--", "sh", "-c", script, root=True, seconds=180)
    equal((code, out.count("caught 1, counted 1")), (0, 2), err[-500:])
    own(folder)
    index = harness.read_json(os.path.join(folder, "index.json"))["recordings"]
    equal([e["name"] for e in index if e.get("rank") == 1], ["rank-1"], "names: %s" % index)
    equal(len(index), 2, "recordings")
    for entry in index:
        equal(whole(os.path.join(folder, entry["file"]), entry["pid"]), 1, entry["file"])


def test_none_of_several():
    """No folder is left behind; ctl reaches the capture, and cannot begin a window."""
    folder = scratch("nothing")
    target = job(0, "none-of-several")
    target.wait_line("^ready", 120)
    recorder = spawn([harness.TOOL, "record", "-p", str(target.popen.pid), "--children", "--on-oom", "-o", folder + "/"], root=True)
    recorder.wait_line("nothing is written until PID %d runs out of memory; .*into %s" % (target.popen.pid, folder), 60, stream="err")
    for words, expected, what in ((("status",), 0, '"out of memory"'), (("mark", "here"), 0, '"here"'), (("start",), 1, "no windows to start or stop")):
        code, out, err = tool("ctl", "--format", "json", "-p", str(target.popen.pid), *words, root=True)
        check(code == expected and what in out + err, "ctl %s: %d, %s %s", words[0], code, out, err)
    fails(target, 0)
    equal(recorder.wait(60), 0, "exit code of record")
    check("nothing was written" in recorder.stderr() and not os.path.exists(folder), "left behind: %s", recorder.stderr())


if __name__ == "__main__":
    run(globals())

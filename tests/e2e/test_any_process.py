#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# run: probes-all
"""Host memory of processes without PyTorch: Python and C, attached late and from the start, and killed by their cgroup."""
import json
import os
import re
import signal
import sys
import urllib.request

import chaos
import harness
import kills
from harness import check, equal, finish, record, report, run, scratch, spawn, tool

MIB = 1 << 20
TIMES = 48
GROWS = os.path.join(harness.WORKLOADS, "grows.py")
SERVICE = os.path.join(harness.WORKLOADS, "leaky_service.py")
C_SOURCE = os.path.join(harness.PROGRAMS, "grow.c")


def line_of(path):
    with open(path, encoding="utf-8") as f:
        return next(n for n, text in enumerate(f, 1) if re.search(r"GROWS( \*/)?$", text))


def commands():
    """By name: the command of a program that grows, the file and line where it does, and the function."""
    return {"python": ([sys.executable, GROWS], GROWS, "grow"),
            "c": ([chaos.compiled("grow.c", "grow", "-g", "-fno-omit-frame-pointer")], C_SOURCE, "grow")}


def grow(p, times=TIMES):
    for number in range(times):
        p.send()
        p.wait_line("^grown %d$" % number, 30)


def check_rows(path, file, function, least, at="end"):
    """The rows add up to RSS, and the line has nearly all that the program took."""
    doc = report(path, "--device", "host", "--at", at, "--top", "0")
    host = harness.device(doc, "host")
    equal(sum(r["bytes"] for r in doc["rows"]), host["peak_allocated" if at == "peak" else "allocated"], "the sum of all rows")
    rows = [r for r in doc["rows"] if os.path.basename(r["file"] or "") == os.path.basename(file) and r["line"] == line_of(file)]
    of_line = sum(r["bytes"] for r in rows)
    check(least * MIB <= of_line <= (TIMES + 2) * MIB, "the line has %d of %d bytes: %s", of_line, TIMES * MIB, doc["rows"][:5])
    check(all(function in r["function"] for r in rows), "function: %s", rows)
    return doc


def attached(name, *options):
    """Records a process that runs already, and returns the path."""
    command, file, function = commands()[name]
    path = scratch("%s-%d.mtr" % (name, len(options)))
    p = spawn(command)
    p.wait_line("^ready", 30)
    recorder = record(p.pid, path, "-v", *options)
    recorder.wait_line("host memory: [0-9]+ mappings", 60, stream="err")
    check("has neither PyTorch nor CUDA: recording its host memory" in recorder.stderr(), "what it says: %s", recorder.stderr())
    grow(p)
    finish(recorder)
    p.stop()
    check_rows(path, file, function, TIMES * 0.9)
    return path


def test_python():
    """Without --host, too. `leaks` names the container that holds the memory: of a growth that many readings saw."""
    attached("python")
    command, _, _ = commands()["python"]
    path, p = scratch("held.mtr"), spawn(command)
    p.wait_line("^ready", 30)
    recorder = record(p.pid, path, "-v")
    for least in range(1, 10):
        harness.until(lambda: recorder.stderr().count(" mappings, ") >= least, "reading %d" % least)
        p.send()
    finish(recorder)
    p.stop()
    code, out, err = tool("leaks", "--format", "json", "--top", "0", path)
    check(code == 0, "leaks: %s", err)
    (host,) = json.loads(out)["devices"]
    rows = [r for r in host["leaks"] + host["no_leaks"] if os.path.basename(r["file"] or "") == "grows.py"]
    equal([h["name"] for r in rows for h in r["held_by"]], ["global CACHE[*][*]"], "the holder")
    attached("python", "--host")


def test_compiled():
    attached("c", "--host")


def test_from_the_start():
    for name, (command, file, function) in commands().items():
        path = scratch("start-%s.mtr" % name)
        recorder = spawn([harness.TOOL, "run", "--host", "-v", "-f", "-o", path, "--", *command], root=True)
        recorder.wait_line("^ready", 30)
        recorder.wait_line("recording PID", 30, stream="err")
        grow(recorder)
        recorder.wait_line("host memory: [0-9]+ mappings, [5-9][0-9]{7} bytes resident", 60, stream="err")
        recorder.popen.stdin.close()
        equal(recorder.wait(60), 0, "exit code of %s (%s)" % (name, recorder.stderr()))
        harness.own(path)
        check_rows(path, file, function, TIMES * 0.9, "peak")


def test_killed_by_a_cgroup():
    """The end has its reason, the cgroup and its limit, and the recording the line."""
    for name, (command, file, function) in commands().items():
        path, cgroup = scratch("killed-%s.mtr" % name), kills.Cgroup(32 * MIB)
        try:
            p = spawn(command)
            p.wait_line("^ready", 30)
            cgroup.write("cgroup.procs", p.pid)
            recorder = record(p.pid, path, "--host", "--on-kill", "-v")
            recorder.wait_line("host memory: [0-9]+ mappings", 60, stream="err")
            readings = recorder.stderr().count(" mappings, ")
            grow(p, 4)
            # Then the line is known, however soon the end comes.
            harness.until(lambda: recorder.stderr().count(" mappings, ") > readings, "a reading after the first growth")
            for _ in range(TIMES):
                p.send()
            p.popen.stdin.close()
            p.wait(60)
            equal(recorder.wait(60), 0, "exit code of record (%s)" % recorder.stderr())
            harness.own(path)
        finally:
            cgroup.remove()
        doc = check_rows(path, file, function, 20)
        equal((doc["end"]["reason"], doc["end"]["cgroup"]["limit"]), ("oom killer", 32 * MIB), "the end of %s: %s" % (name, doc["end"]))


def killed_service(interpreter, how):
    """A service that keeps memory for each request, until its cgroup's limit: reason, limit and line."""
    limit = 96 * MIB
    path, cgroup = scratch("service-%s.mtr" % how), kills.Cgroup(limit)
    try:
        p = spawn([interpreter, SERVICE, how])
        port = int(p.wait_line("^port", 30).split()[1])
        requests(port, 1)
        cgroup.write("cgroup.procs", p.pid)
        recorder = record(p.pid, path, "--on-kill", "-v")
        recorder.wait_line("host memory: [0-9]+ mappings", 60, stream="err")
        answered = requests(port, 2 * limit // MIB)
        p.wait(60)
        equal(recorder.wait(60), 0, "exit code of record (%s)" % recorder.stderr())
        harness.own(path)
    finally:
        cgroup.remove()
    doc = report(path, "--device", "host", "--at", "end", "--top", "0")
    equal((doc["end"]["reason"], doc["end"]["cgroup"]["limit"]), ("oom killer", limit), "the end: %s" % doc["end"])
    of_line = sum(r["bytes"] for r in doc["rows"] if os.path.basename(r["file"] or "") == "leaky_service.py" and r["line"] == line_of(SERVICE))
    check(abs(of_line - answered * MIB) < 0.1 * answered * MIB, "the line has %d bytes after %d requests: %s", of_line, answered, doc["rows"][:4])
    code, out, _ = tool("report", path)
    check(code == 0 and "OOM killer" in out and "remember" in out, "report: %s", out)


def requests(port, n):
    """Sends requests until the service ends, at most n. Returns how many were answered."""
    for i in range(n):
        try:
            with urllib.request.urlopen("http://127.0.0.1:%d/" % port, timeout=20) as answer:
                answer.read()
        except OSError:
            return i
    return n


def test_killed_service():
    killed_service(sys.executable, "asyncio")


@harness.nightly("programs")
def test_killed_uvicorn():
    killed_service(harness.installed("python", "tables", step="nightly"), "uvicorn")


def test_killed_at_once():
    """The report names the process, how it ended, and why no line is known."""
    path = scratch("at-once.mtr")

    def ends_unread():
        code, _, err = tool("run", "--host", "--on-kill", "-f", "-o", path, "--", "sh", "-c", "kill -9 $$", root=True)
        equal(code, 137, "exit code (%s)" % err)
        return "ended before its memory was read: nothing to record" in err

    # On a busy machine a shell may live long enough to be read.
    harness.until(ends_unread, "a process that ends before it is read")
    harness.own(path)
    code, out, err = tool("report", path)
    check(code == 0 and out.startswith("killed by SIGKILL at "), "report: %s %s", out, err)
    check(re.search(r"^(sh -c kill -9 \$\$|unknown process) · PID [1-9]", out, re.M), "the process: %s", out)
    check("The process ended before memtrace-bpf had read its memory, so no line is known." in out, "the reason: %s", out)


def test_leaks_of_a_running_program():
    """`leaks -p` judges host memory at once, without waiting for PyTorch."""
    p = spawn(commands()["c"][0])
    p.wait_line("^ready", 30)
    looks = spawn([harness.TOOL, "leaks", "-v", "-p", str(p.pid), "-d", "60s"], root=True)
    looks.wait_line("host memory: [0-9]+ mappings", 60, stream="err")
    grow(p)
    p.popen.stdin.close()
    equal(looks.wait(60), 0, "exit code of leaks (%s)" % looks.stderr())
    check(re.search("^host · ", looks.stdout(), re.M), "leaks: %s", looks.stdout())
    p.stop()


def test_waits_if_asked():
    """--wait-for torch waits, and says so; a program without Python will never have it."""
    p = spawn(commands()["python"][0])
    p.wait_line("^ready", 30)
    code, _, err = tool("record", "-p", str(p.pid), "--host", "--wait-for", "torch", "-d", "1s", "-o", scratch("never.mtr"), root=True)
    p.stop()
    equal(code, 2, "exit code")
    check("waiting for `import torch`" in err and "has not imported torch within the duration" in err, "what it says: %s", err)
    p = spawn(commands()["c"][0])
    p.wait_line("^ready", 30)
    code, _, err = tool("record", "-p", str(p.pid), "--wait-for", "torch", "-d", "1s", "-o", scratch("never.mtr"), root=True)
    p.stop()
    equal(code, 2, "exit code")
    check("has no Python interpreter, PyTorch or CUDA in it" in err and "--host" in err, "what it says: %s", err)


def test_killed_while_it_waits():
    """How the process ended is told although nothing was recorded."""
    for options in ((), ("--on-kill",)):
        p = spawn(commands()["python"][0])
        p.wait_line("^ready", 30)
        recorder = record(p.pid, scratch("waits-%d.mtr" % len(options)), "--wait-for", "torch", *options, wait=False)
        recorder.wait_line("waiting for `import torch`", 30, stream="err")
        p.signal(signal.SIGKILL)
        equal(recorder.wait(30), 2, "exit code")
        check(re.search("PID %d: killed by SIGKILL at .*, sent by " % p.pid, recorder.stderr()), "what it says: %s", recorder.stderr())


def test_picked():
    """--name takes any program; --all stays with those that use PyTorch."""
    for name, output in (("python", "grows"), ("c", "grow")):
        picked(name, output)


def picked(name, output):
    command, file, function = commands()[name]
    p = spawn([*command, "picked-%d" % os.getpid()])
    p.wait_line("^ready", 30)
    folder = scratch("picked-" + name) + "/"
    both = spawn([harness.TOOL, "record", "--name", "picked-%d$" % os.getpid(), "--host", "-v", "-f", "-o", folder], root=True)
    both.wait_line("host memory: [0-9]+ mappings", 60, stream="err")
    all_of_torch = spawn([harness.TOOL, "record", "--all", "--host", "-f", "-o", scratch("all") + "/"], root=True)
    all_of_torch.wait_line("waiting for|PID [0-9]+", 60, stream="err")  # other tests may have a process with PyTorch
    grow(p)
    finish(both)
    harness.interrupt(all_of_torch, 180)  # it captures all processes with PyTorch, of other tests too
    check("PID %d" % p.pid not in all_of_torch.stderr(), "--all took it: %s", all_of_torch.stderr())
    p.stop()
    check_rows(os.path.join(folder, "%s-%d.mtr" % (output, p.pid)), file, function, TIMES * 0.9)


def test_several_pids():
    """A program without Python next to one with it."""
    pids = {}
    for name, (command, file, function) in commands().items():
        pids[name] = spawn(command)
        pids[name].wait_line("^ready", 30)
    folder = scratch("several") + "/"
    options = [text for p in pids.values() for text in ("-p", str(p.pid))]
    recorder = spawn([harness.TOOL, "record", *options, "--host", "-v", "-f", "-o", folder], root=True)
    harness.until(lambda: len(re.findall("host memory: [0-9]+ mappings", recorder.stderr())) >= 2, "a reading of each", 60)
    for p in pids.values():
        grow(p)
    finish(recorder)
    check("not traced" not in recorder.stderr(), "what it says: %s", recorder.stderr())
    for name, (command, file, function) in commands().items():
        pids[name].stop()
        path = next(os.path.join(folder, f) for f in os.listdir(folder) if f.endswith("-%d.mtr" % pids[name].pid))
        check_rows(path, file, function, TIMES * 0.9)


if __name__ == "__main__":
    run(globals())

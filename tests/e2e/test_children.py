#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# run: long probes-all cpu=100
"""--children: every process that the target starts has its own recording, from its first instruction on, with exactly its
allocations. Without --children, they are unharmed and reported."""
import glob
import json
import os
import re
import signal
import subprocess

import harness
import mtr_reader
from harness import check, equal, finish, nightly, own, python, read_json, record, report, run, scratch, spawn, spawn_job, tool, workload

FIRST = 200003  # bytes of the workload's smallest tensor


class Content:
    def __init__(self, path):
        own(path)
        with open(path, "rb") as f:
            r = mtr_reader.Recording(f)
            self.events = list(r.events())
        self.r, self.path, self.facts = r, path, r.facts
        check(r.complete, "%s is not whole", path)

    def made(self):
        """The workload's own tensors, in order."""
        return [e["size"] for e in self.events if e["kind"] == mtr_reader.ALLOC and e["size"] >= FIRST and not (e["size"] - FIRST) % 1009]

    def lines(self):
        """Function names of their innermost frames; "" if unknown."""
        names = []
        for e in self.events:
            if e["kind"] != mtr_reader.ALLOC or e["size"] < FIRST or (e["size"] - FIRST) % 1009:
                continue
            stack = self.r.stacks[e["stack"]][1]
            location = stack[0][0] if stack else 0
            names.append(self.r.strings[self.r.locations[location][1]] if location else "")
        return names


def folder(name):
    path = scratch(name)
    os.mkdir(path)
    return path


def start(name, *what):
    where = folder(name)
    target = workload("family.py", where, *what)
    target.wait_line("^ready", 120)
    return target, where


def codes_of(target, seconds=120):
    """All of its children exited without an error."""
    text = target.wait_line("^done", seconds)
    for what, codes in json.loads(text[5:]).items():
        check(not any(codes if isinstance(codes, list) else [codes]), "%s: children failed: %s", what, codes)


def told(where):
    """The tensors that each process reports, by PID."""
    return {t["pid"]: t for t in (read_json(f) for f in glob.glob(os.path.join(where, "*.json")))}


def compare(path, truth, first_pid=None):
    """Each process's recording has exactly its tensors. By PID. first_pid: of the first process; None: it made none."""
    found = {}
    for file in glob.glob(path[:-4] + "*.mtr"):
        c = Content(file)
        pid = int(c.facts["pid"])
        if not first_pid and file == path:
            continue
        expected = path if pid == first_pid else "%s.%d.mtr" % (path[:-4], pid)
        equal(file, expected, "name of the recording of PID %d" % pid)
        found[pid] = c
    for pid, t in truth.items():
        check(pid in found, "PID %d (%s) has no recording; there are %s", pid, t["what"], sorted(found))
        equal(found[pid].made(), t["made"], "what PID %d (%s) made" % (pid, t["what"]))
        if pid != first_pid:
            equal(int(found[pid].facts["parent"]), t["parent"], "parent of PID %d (%s)" % (pid, t["what"]))
    return found


def followed(name, *what, seconds=120):
    """Records a workload with --children: recordings by PID, and the processes' own data."""
    target, where = start(name, *what)
    path = scratch(name + ".mtr")
    recorder = record(target.popen.pid, path, "--children")
    target.send()
    codes_of(target, seconds)
    target.send()
    equal(target.wait(30), 0, "the target's exit code (%s)" % target.stderr()[-300:])
    equal(recorder.wait(60), 0, "the tool's exit code (%s)" % recorder.stderr()[-500:])
    truth = told(where)
    found = compare(path, truth, target.popen.pid)
    return found, truth, recorder.stderr()


def of(truth, what):
    return [pid for pid, t in truth.items() if t["what"] == what]


def test_fork():
    """A child that begins with a tensor and has a child of its own; forks among threads; started programs."""
    found, truth, err = followed("fork", "fork", "threads", "quiet", "many")
    (child,), (grandchild,) = of(truth, "fork"), of(truth, "grandchild")
    equal(found[child].facts["attached_at"], "fork", "attached_at")
    # Code that a child runs at its very end may be freed before it is read; long-running code is not.
    for pid in (child, grandchild):
        check(set(found[pid].lines()) <= {"make", "forked", ""}, "functions of PID %d: %s", pid, set(found[pid].lines()))
        check("make" in found[pid].lines() or "forked" in found[pid].lines(), "PID %d has no names", pid)
    check(re.search(r"following PID %d, forked by PID %d" % (grandchild, child), err), "not said: %s", err[-500:])
    equal(len(of(truth, "many")), 110, "children in a row")
    equal(set(found), set(truth), "processes with a recording: those without events have none")
    doc = report(found[grandchild].path)
    equal((doc["target"]["pid"], doc["target"]["parent"]), (grandchild, child), "target of the report")
    equal(doc["capture"]["lost"], 0, "events lost")


def test_loader_and_exec():
    """Forked and spawned workers, and a child that executes another program."""
    found, truth, err = followed("loader", "loader", "exec", "spawn", seconds=240)
    equal(len(of(truth, "worker")), 4, "workers")
    (leaf,) = of(truth, "leaf")
    equal(found[leaf].facts["attached_at"], "start", "attached_at of a program that was started")
    equal(set(found[leaf].lines()), {"make"}, "functions of the program that was started")
    check("forked by" in err and "started by" in err, "not said: %s", err[-800:])


def test_was_there_before():
    """Children started before attach are followed, too, and the capture lasts until the last one ends."""
    target, where = start("before", "fork")
    launcher = spawn(["sh", "-c", 'exec 3<&0; "$@" <&3 & wait', "sh", python(), os.path.join(harness.WORKLOADS, "family.py"), where, "fork"])
    launcher.wait_line("^ready", 120)
    path = scratch("before.mtr")
    recorder = record(launcher.popen.pid, path, "--children", wait=False)
    recorder.wait_line("following PID", 30, stream="err")
    for p in (target, launcher):
        p.send()
        codes_of(p)
        p.send()
        equal(p.wait(30), 0, "exit code")
    equal(recorder.wait(60), 0, "the tool's exit code (%s)" % recorder.stderr()[-500:])
    family = [t["pid"] for t in told(where).values() if t["parent"] == launcher.popen.pid]
    equal(len(family), 1, "the launcher's children")
    everybody = told(where)
    strangers = {target.popen.pid}
    while len(strangers) < len([t for t in everybody.values() if t["parent"] in strangers or t["pid"] in strangers]):
        strangers |= {t["pid"] for t in everybody.values() if t["parent"] in strangers}
    truth = {pid: t for pid, t in everybody.items() if pid not in strangers}
    equal(sorted(t["what"] for t in truth.values()), ["first", "fork", "grandchild"], "the family")
    found = compare(path, truth)
    equal(found[family[0]].facts["attached_at"], "live", "attached_at")
    equal(set(found), set(truth), "processes with a recording")


def test_torchrun():
    where = folder("ranks")
    path = scratch("ranks.mtr")
    command = [python(), "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", os.path.join(harness.WORKLOADS, "family.py"),
               where, "leaf"]
    p = spawn([harness.TOOL, "run", "--children", "-o", path, "--", *command], root=True)
    equal(p.wait(240), 0, "exit code of the command (%s)" % p.stderr()[-1000:])
    truth = told(where)
    equal([t["what"] for t in truth.values()], ["rank"] * 2, "processes")
    found = compare(path, truth)
    for pid in truth:
        # A busy machine may see a rank after its first Python code, but not after its first tensor: compare().
        check(found[pid].facts["attached_at"] in ("start", "live"), "attached_at of a rank: %s", found[pid].facts["attached_at"])
        equal(set(found[pid].lines()), {"make"}, "functions")
    docs = [report("%s.%d.mtr" % (path[:-4], pid)) for pid in truth]
    targets = [d["target"] for d in docs]
    equal([d["capture"]["hostname"] for d in docs], [os.uname().nodename] * 2, "hosts in the reports")
    equal(sorted((t["rank"], t["local_rank"], t["world_size"]) for t in targets), [(0, 0, 2), (1, 1, 2)], "ranks in the reports")
    code, out, err = tool("report", path, *("%s.%d.mtr" % (path[:-4], pid) for pid in truth))
    equal((code, err), (0, ""), "report of all")
    check(out.startswith("2 recordings of one job, ranks 0-1 of 2: ") and "\nTogether: " in out, "not one report: %s", out[:500])


def test_service():
    """A router without PyTorch, an engine that it spawns, workers of a fork server: one report with the tree of processes. A tensor in
    shared memory is said to count twice."""
    target = workload("service.py", start=spawn)
    target.wait_line("^ready", 120)
    path = scratch("service") + "/"
    recorder = spawn([harness.TOOL, "record", "-p", str(target.popen.pid), "--children", "-o", path], root=True)
    recorder.wait_line("has no PyTorch so far", 60, stream="err")
    target.send()
    truth = json.loads(target.wait_line("^up", 120)[3:])
    target.send()
    target.wait_line("^over 0", 60)
    equal((target.wait(30), recorder.wait(60)), (0, 0), "exit codes (%s)" % recorder.stderr()[-500:])
    code, out, err = tool("report", path)
    equal((code, err), (0, ""), "report")
    check(out.startswith("3 recordings of one process tree, root PID %d: python " % target.popen.pid), "not one tree: %s", out[:300])
    check("\n8.00 MiB of it is shared memory that another process made" in out, "shared memory is not named: %s", out)
    doc = json.loads(tool("report", path, "--together", "--format", "json")[1])
    processes = doc["processes"]
    by_name = {p["name"]: p for p in processes}
    equal(list(by_name), ["service.py", "EngineCore", "fork server", "Worker_TP0", "Worker_TP1"], "processes")
    equal([p["parent"] for p in processes], [None, 0, 1, 2, 2], "parents")
    router = by_name["service.py"]
    equal((router["pid"], router["recording"], router["allocated"]), (target.popen.pid, None, None), "the router")
    for name, (pid, size) in truth.items():
        p = by_name[name]
        equal(p["pid"], pid, "PID of %s" % name)
        equal(doc["recordings"][p["recording"]]["pid"], pid, "recording of %s" % name)
        equal(doc["recordings"][p["recording"]]["recording"], "%s-%d" % (name, pid), "name of the recording")
        least = size + (8 << 20 if name == "EngineCore" else 0)  # the shared copy, and the one that it was made of
        equal(p["allocated"], least, "bytes of %s" % name)
    equal(router["allocated_with_children"], doc["allocated"], "bytes of all")
    equal([doc["recordings"][by_name[n]["recording"]]["shared"] for n in truth], [0, 8 << 20, 0], "shared memory of others")


SHORT = """
import os, sys, time, torch
print('ready', flush=True)
sys.stdin.readline()
torch.set_num_threads(1)
pid = os.fork()
if not pid:
    model = torch.nn.Linear(1000, 2000, bias=False)
    cache = torch.zeros(3000000)
    sys.stdin.readline()
    os._exit(0)
print('forked', pid, flush=True)
print('over', os.waitpid(pid, 0)[1], flush=True)
"""


def test_weights_of_a_short_worker():
    """A forked worker makes its model and ends before the reading after ten seconds, which other processes have: its weights have their
    role and name."""
    target = spawn_job([python(), "-c", SHORT], env=dict(os.environ, PYTHONUTF8="1", PYTHONUNBUFFERED="1"))  # that of workload()
    target.wait_line("^ready", 120)
    path = scratch("short.mtr")
    recorder = record(target.popen.pid, path, "--children")
    target.send()
    child = "%s.%s.mtr" % (path[:-4], target.wait_line("^forked", 60).split()[1])
    harness.until_recorded(child, lambda doc: doc["categories"]["parameter"] == 8000000, "the role of the weights")
    target.send()
    target.wait_line("^over 0", 60)
    equal(recorder.wait(60), 0, "the tool's exit code (%s)" % recorder.stderr()[-500:])
    equal(report(child)["categories"]["parameter"], 8000000, "bytes of weights")
    with open(child, "rb") as f:
        read = min(e["time"] for e in mtr_reader.Recording(f).events() if e["kind"] == mtr_reader.TENSOR)
    check(read < 10e9, "the first reading was after %.1f s", read / 1e9)


def test_exec_of_the_command():
    """The program that the command executes is recorded, too, in a file of its own."""
    path = scratch("again.mtr")
    code = ("import os, sys, torch; size = int(sys.argv[2]); torch.empty(size, dtype=torch.uint8); print(os.getpid()) or size == %d or "
            "os.execv(sys.executable, [sys.executable, '-c', sys.argv[1], sys.argv[1], '%d'])" % (FIRST + 1009, FIRST + 1009))
    status, out, err = tool("run", "--children", "-o", path, "--", python(), "-c", code, code, str(FIRST), root=True, seconds=120)
    equal(status, 0, "exit code (%s)" % err[-500:])
    contents = [Content(path), Content("%s.%s.mtr" % (path[:-4], out.split()[0]))]
    equal([c.made() for c in contents], [[FIRST], [FIRST + 1009]], "what each program made")
    equal([c.facts["stop_reason"] for c in contents], ["exec", "target exited"], "how they ended")


def test_exit_status_and_refusals():
    for command, expected in ((("sh", "-c", "true; exit 5"), 5), (("true",), 0)):
        equal(tool("run", "--children", "-o", scratch("none.mtr"), "--", *command, root=True)[0], expected, "exit code of %s" % (command,))
    check(not glob.glob(scratch("none*.mtr")), "recordings of nothing: %s", glob.glob(scratch("none*.mtr")))
    for options in ((), ("--on-oom",), ("--rolling", "1M")):
        code, _, err = tool("run", "--children", *options, "-o", "-", "--", "true", root=True)
        check(code == 64 and "a file for each process; -o - is for one process" in err, "%s: %d, %r", options, code, err)


def test_live():
    target, _ = start("live", "fork")
    p = spawn([harness.TOOL, "-p", str(target.popen.pid), "--children", "-i", "500ms"], root=True)
    p.wait_line(harness.ATTACHED, 30, stream="err")
    target.send()
    codes_of(target)
    p.signal(signal.SIGINT)
    equal(p.wait(30), 0, "exit code (%s)" % p.stderr()[-500:])
    check(len(re.findall(r"[\d,]+ events, [\d,]+ lost", p.stdout(), re.M)) >= 3, "not a summary of each process: %s", p.tail(p.stdout()))
    equal(target.alive(), True, "the target lives")


@nightly("long")
def test_without():
    """Children are neither traced nor harmed, and are reported."""
    target, where = start("without", "many")
    path = scratch("without.mtr")
    recorder = record(target.popen.pid, path)
    target.send()
    codes_of(target)
    finish(recorder)
    truth = told(where)
    equal(len(of(truth, "many")), 100, "children")
    content = Content(path)
    equal(content.made(), truth[target.popen.pid]["made"], "what the first process made")
    equal(len(glob.glob(path[:-4] + "*.mtr")), 1, "recordings")
    # A child that lives long enough to be reported.
    other = spawn(["sh", "-c", '"$@" <&0 & wait', "sh", python(), "-c",
                   "import os, sys, time, torch\npid = os.fork()\ntime.sleep(0.5)\nos.write(1, b'ready %d\\n' % pid)\ntime.sleep(60)"])
    other.wait_line("^ready [1-9]", 120)
    pid = harness.children_of(other.popen.pid)[0]
    recorder = record(pid, path)
    recorder.wait_line("--children follows", 30, stream="err")
    finish(recorder)
    for p in harness.children_of(pid) + [pid]:
        os.kill(p, signal.SIGKILL)
    equal(report(path)["capture"]["children"], 1, "children in the report")


@nightly("long")
def test_numbers_used_again():
    """The 128 numbers of processes are used again. A child has all its stacks, also if an earlier child with its number had the same."""
    library = scratch("libc10.so")
    kernels = os.path.join(harness.REPO, "tests", "kernels")
    subprocess.run(["gcc", "-O2", "-shared", "-fPIC", "-o", library, os.path.join(kernels, "c10.c")], check=True)
    target = spawn([python(), os.path.join(kernels, "target.py"), library])
    target.wait_line("^ready", 60)
    path = scratch("numbers.mtr")
    recorder = record(target.popen.pid, path, "--children")
    target.send("fork 300\n")
    target.wait_line("^done 0 bad", 120)
    finish(recorder)
    children = glob.glob(path[:-4] + ".*.mtr")
    equal(len(children), 300, "recordings of children")
    for child in children:
        content = Content(child)
        stacks = [e["stack"] for e in content.events if e["kind"] == mtr_reader.ALLOC]
        equal((len(stacks), stacks.count(0)), (50, 0), "allocations, and those without a stack, in %s" % child)
        equal(content.facts["counter.stacks_unknown"], "0", "stacks that were not sent, in %s" % child)


if __name__ == "__main__":
    run(globals())

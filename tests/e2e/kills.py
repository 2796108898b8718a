# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
Jobs that are killed while `record --on-kill` watches them, and what the recordings say: for test_on_kill.py (a few) and
tools/dev/kills.py (hundreds).
"""
import contextlib
import datetime
import json
import os
import random
import signal
import time

import harness
from harness import Skip, check, equal, scratch, spawn, tool

MIB = 1 << 20
JOB = os.path.join(harness.WORKLOADS, "leak_server.py")
V1 = "/sys/fs/cgroup/memory"
NAMES = {"segv": "SIGSEGV", "abort": "SIGABRT", "kill": "SIGKILL", "bus": "SIGBUS", "sent": "SIGKILL"}


def planted_line():
    with open(JOB, encoding="utf-8") as f:
        return next(n for n, text in enumerate(f, 1) if "# the planted line" in text)


class Cgroup:
    """A memory cgroup with a limit, of v1 or v2."""

    def __init__(self, limit):
        if not harness.IS_ROOT:
            raise Skip("needs root for a cgroup")
        self.v1 = os.path.isdir(V1)
        top = V1 if self.v1 else "/sys/fs/cgroup"
        if not self.v1:
            with open(top + "/cgroup.subtree_control", encoding="ascii") as f:
                if "memory" not in f.read().split():
                    raise Skip("no memory cgroup")
        self.limit = limit
        self.path = "%s/memtrace-test-%d-%d" % (top, os.getpid(), random.getrandbits(40))
        try:
            os.mkdir(self.path)
        except OSError as e:
            raise Skip("no memory cgroup: %s" % e) from None
        self.write("memory.limit_in_bytes" if self.v1 else "memory.max", limit)
        # Without swap, so that the limit is reached at once.
        for name, value in (("memory.memsw.limit_in_bytes", limit), ("memory.swap.max", 0)):
            if os.path.exists(os.path.join(self.path, name)):
                self.write(name, value)

    def write(self, name, value):
        with open(os.path.join(self.path, name), "w", encoding="ascii") as f:
            f.write(str(value))

    def remove(self):
        def gone():
            with contextlib.suppress(OSError):
                os.rmdir(self.path)
            return not os.path.exists(self.path)

        harness.until(gone, "the end of the last process in " + self.path)


class Jobs:
    """The process that forks the jobs."""

    def __init__(self):
        self.server = spawn([harness.python(), JOB], kept=True)
        self.server.wait_line("^ready", 120)
        self.answers = 1

    def ask(self, **spec):
        self.server.send(json.dumps(spec) + "\n")
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            lines = self.server.stdout().splitlines()
            if len(lines) > self.answers:
                self.answers += 1
                return int(lines[self.answers - 1])
            time.sleep(0.002)
        raise harness.Failure("no answer from the jobs: %s" % self.server.stderr()[-500:])

    def start(self, **spec):
        return self.ask(**spec)

    def wait(self, pid):
        return self.ask(wait=pid)

    def stop(self):
        self.server.stop()


def seconds_until_file(path, doc):
    """From the end of the process to the complete file."""
    start = datetime.datetime.fromisoformat(doc["capture"]["start"].replace("Z", "+00:00")).timestamp()
    return os.stat(path).st_mtime - (start + doc["end"]["time"])


def kill_one(jobs, how, seed, attached=True, options=()):
    """Ends one job in this way: "oom" by its cgroup's limit, "sent" by a SIGKILL from here at a random moment, otherwise as in
    leak_server.py. Checks the recording and returns what it says."""
    rng = random.Random(seed)
    path, go = scratch("kill-%d.mtr" % seed), scratch("go-%d" % seed)
    chunk = rng.choice((MIB // 4, MIB, 4 * MIB))
    cgroup = Cgroup(rng.randrange(64, 160) * MIB + 2 * chunk) if how == "oom" else None
    recorder = None
    try:
        pid = jobs.start(cgroup=cgroup.path if cgroup else None, go=go, end="wait" if how in ("oom", "sent") else how, seed=seed,
                         chunk=chunk, pause=rng.choice((0, 0.001, 0.004)),
                         rounds=1 << 40 if how in ("oom", "sent") else rng.randrange(20, 60))
        recorder = harness.record(pid, path, "--on-kill", *options, wait=attached)
        before = harness.resident(pid)
        with open(go, "w", encoding="ascii"):
            pass
        if how == "sent":
            harness.until(lambda: harness.resident(pid) - before >= 4 * chunk, "growth")
            time.sleep(rng.uniform(0, 0.5))
            os.kill(pid, signal.SIGKILL)
        status = jobs.wait(pid)
        code = recorder.wait(60)
        equal(code, 0, "exit code of record (%s)" % recorder.stderr()[-500:])
    finally:
        if recorder:
            recorder.stop()
        if cgroup:
            cgroup.remove()
        if os.path.exists(go):
            os.unlink(go)
    return judge(path, how, status, cgroup, recorder)


def judge(path, how, status, cgroup, recorder):
    check(os.path.exists(path), "no recording of %s: %s", how, recorder.stderr()[-500:])
    code, out, err = tool("report", "--format", "json", path)
    check(code == 0, "report: %d, %s", code, err)
    doc = json.loads(out)
    end = doc["end"]
    equal(doc["at"], "peak" if how.startswith("exit") else "end", "the moment that is shown")
    if how == "oom":
        equal(end["reason"], "oom killer", "reason")
        equal(os.WTERMSIG(status), 9, "signal of the job")
        if "constraint" in end["oom"]:
            equal(end["oom"]["constraint"], "cgroup", "constraint")
            equal(end["oom"]["cgroup_limit"], cgroup.limit, "limit")
    elif how.startswith("exit"):
        equal((end["reason"], end["status"]), ("exit", int(how[4:])), "reason and status")
        equal(os.WEXITSTATUS(status), int(how[4:]), "status of the job")
    else:
        equal((end["reason"], end["signal"]["name"]), ("signal", NAMES[how]), "reason and signal")
        sender = {"segv": "kernel", "abort": "self", "kill": "self", "bus": "self", "sent": str(os.getpid())}[how]
        equal(end["signal"]["from"], sender, "sender")
    line = planted_line()
    place = next((i for i, r in enumerate(doc["rows"]) if (r["file"] or "").endswith("leak_server.py") and r["line"] == line), None)
    return {"place": place, "planted": doc["rows"][place]["bytes"] if place is not None else 0, "allocated": doc["allocated"],
            "lost": doc["capture"]["lost"], "seconds": seconds_until_file(path, doc), "doc": doc,
            "memory": end.get("memory", {}).get("rss", 0), "smaps": end.get("smaps", {}).get("rss", 0),
            "others": len(end.get("processes", ())), "cgroup": end.get("cgroup", {}).get("usage", 0), "path": path}

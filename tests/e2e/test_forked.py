#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Jobs that the tests fork from a Python with PyTorch: they are like those that are started. See forked.py."""
import json
import os
import signal

import forked
from harness import equal, python, run, scratch, spawn, spawn_job

JOB = r"""
import json, os, sys, traceback
def show():
    with open("/proc/self/cmdline") as f:
        command_line = f.read()
    with open("/proc/self/comm") as f:
        comm = f.read()
    print(json.dumps([sys.argv, getattr(sys, "orig_argv", None), command_line, comm, sys.path, __name__, globals().get("__file__"), os.getcwd(),
                      [list(f)[:3] for f in traceback.extract_stack()], sorted(os.environ.items()), sorted(os.listdir("/proc/self/fd"))]), flush=True)
    sys.exit(int(sys.stdin.readline() or 7))
show()
"""


def told(start, command, **options):
    p = start([python(), *command], **options)
    line = p.wait_line(r"^\[", 120)
    p.send("3\n")
    return json.loads(line), p.wait()


def test_like_one_that_is_started():
    script = scratch("job.py")
    with open(script, "w", encoding="utf-8") as f:
        f.write(JOB)
    env = dict(os.environ, SOMETHING="ä")
    for command in ([script, "one", "zwei ü", ""], ["-W", "ignore", "-c", JOB, "three"]):
        fresh = told(spawn, command, env=env, cwd=scratch())
        for _ in range(2):
            equal(told(spawn_job, command, env=env, cwd=scratch()), fresh, "what the job sees")


def test_ends():
    """A signal's number, and standard input that is closed."""
    p = spawn_job([python(), "-c", JOB])
    p.wait_line(r"^\[", 120)
    p.signal(signal.SIGTERM)
    equal(p.wait(), -signal.SIGTERM, "exit code")
    p = spawn_job([python(), "-c", JOB])
    p.wait_line(r"^\[", 120)
    p.popen.stdin.close()
    equal(p.wait(), 7, "exit code")


class Stub(forked.Server):
    def __init__(self, _options, _env):  # pylint: disable=super-init-not-called
        self.jobs, self.starting, self.stopped = [], 0, False

    def stop(self):
        self.stopped = True


def test_a_server_that_starts_a_job_stays():
    """Tests start jobs in several threads: a server whose first job is being started is not idle."""
    real = forked.Server, forked._servers
    forked.Server, forked._servers = Stub, {}
    try:
        servers = [forked.server_for(["python", "x.py"], {"N": str(n)}) for n in range(6)]
        equal([s.stopped for s in servers], [False] * 6, "servers that start jobs are stopped")
        for s in servers:
            forked.started(s, None)
        forked.server_for(["python", "x.py"], {"N": "6"})
        equal([s.stopped for s in servers], [True] * 3 + [False] * 3, "idle servers are stopped, but for the last three")
    finally:
        forked.Server, forked._servers = real


if __name__ == "__main__":
    run(globals())

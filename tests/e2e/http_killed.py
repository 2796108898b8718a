#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# run: long reads-code
"""`serve` when one of its processes is killed, each in turn: the web process, a recorder, a worker, the first process. Nothing is
left, the traced job continues with restored code, and the other processes continue if possible. Commands inherit no descriptor
of the server."""
import os
import re
import socket
import subprocess
import threading
import time

import harness
import server
from harness import check, equal, run, scratch

FDS = """
import os, sys, torch
fds = {}
for n in os.listdir("/proc/self/fd"):
    try:
        fds[n] = os.readlink("/proc/self/fd/" + n)
    except OSError:
        pass
print("FDS", sorted(fds.items()), "ENV", sorted(k for k in os.environ if "FILES" in k), file=sys.stderr)
x = [torch.ones(1000) for _ in range(50)]
"""
_shared = {}


def job():
    if "job" not in _shared:
        _shared["job"] = server.Job("--pause", "0.01", kept=True).ready()
    return _shared["job"]


def serve(*args):
    return server.Server("--target", "my_model=%d" % job().pid, "--requests-per-minute", "0", *args)


def capture(s):
    begun = s.post("/api/trace/memory", {"model_name": "my_model", "duration_s": 300, "wait": False}).expect().json
    s.wait_trace(begun["trace_id"], ("capturing",))
    return begun["trace_id"]


def kill(pid):
    subprocess.run(harness.sudo(["kill", "-9", str(pid)]), check=True)


def wait_for(condition, what, seconds=15):
    limit = time.monotonic() + seconds
    while not condition():
        check(time.monotonic() < limit, "%s: not within %d s", what, seconds)
        time.sleep(0.05)


def find(s, pattern):
    """The server's process whose command line or name matches."""
    for pid in s.processes():
        try:
            with open("/proc/%d/comm" % pid, encoding="ascii", errors="replace") as f:
                comm = f.read().strip()
        except OSError:
            continue
        if pid != s.process.pid and (re.search(pattern, server.name_of(pid)) or comm == pattern):
            return pid
    return None


def unharmed():
    wait_for(lambda: harness.patched_bytes(job().pid) == 0, "the job's code is as it was")
    job().tell("figures")


def gone(pids):
    wait_for(lambda: not any(server.alive(p) for p in pids), "all of its processes are gone: %s" % [server.name_of(p) for p in pids if server.alive(p)])


def test_web_killed():
    s = serve()
    trace = capture(s)
    check(harness.patched_bytes(job().pid) > 0, "nothing is probed")
    pids = s.processes()
    kill(find(s, "memtrace-web"))
    equal(s.process.wait(20), 1, "exit code: %s" % s.process.tail(s.process.stderr()))
    check("signal 9" in s.process.stderr(), "nothing is said: %s", s.process.stderr())
    gone(pids)
    unharmed()
    # Data captured before the kill exists and is readable.
    path = os.path.join(s.folder, trace + ".mtr")
    doc = harness.report(path)
    check(doc["capture"]["events"] > 0 and doc["capture"]["lost"] == 0, "the recording: %s", doc["capture"])


def test_recorder_killed():
    s = serve()
    trace = capture(s)
    kill(find(s, r"\brecord -p %d\b" % job().pid))
    ended = s.wait_trace(trace)
    check("signal 9" in ended.get("error", ""), "nothing is said: %s", ended)
    unharmed()
    other = capture(s)
    s.post("/api/trace/%s/stop" % other, {}).expect()
    equal(s.wait_trace(other)["state"], "done", "the next one")
    worker_killed(s, other)
    s.stop()
    unharmed()


def worker_killed(s, trace):
    """Kills a worker, which lives only for a moment; tries again if it was faster."""
    for form in ("html", "perfetto", "snapshot", "pprof", "ndjson", "csv", "timeline", "tensorboard"):
        got = []
        asker = threading.Thread(target=lambda f=form, g=got: g.append(server.Client(s.host, s.port).post("/api/trace/export", {"trace_id": trace, "format": f})))
        asker.start()
        pid = None
        while asker.is_alive() and not pid:
            pid = find(s, r"\bexport -o - ")
        if pid:
            subprocess.run(harness.sudo(["kill", "-9", str(pid)]), capture_output=True, check=False)
        asker.join(30)
        if got[0].status != 200:
            equal((got[0].status, "detail" in got[0].json), (503, True), "a worker that was killed: %s" % got[0].body)
            break
    else:
        raise harness.Failure("eight workers were too fast to be killed")
    equal([n for n in os.listdir(s.folder) if "part" in n], [], "halves of files")
    s.post("/api/trace/export", {"trace_id": trace, "format": form}).expect()


def test_first_killed():
    path = scratch("killed.sock")
    s = serve("--listen", "unix:" + path)
    capture(s)
    pids = s.processes()
    kill(s.process.pid)
    s.process.wait(10)
    gone(pids)
    unharmed()
    with socket.socket() as c:
        check(c.connect_ex((s.host, s.port)) != 0, "something still listens")
    # Folder and Unix socket can be used again, and the folder's recordings are listed.
    again = server.Server("--listen", "unix:" + path, folder=s.folder)
    check(again.get("/api/trace/list").expect().json["count"] <= 1, "the folder")
    again.stop()
    check(not os.path.exists(path), "the Unix socket is left")


def test_command_has_nothing_of_ours():
    script = scratch("fds.py")
    with open(script, "w", encoding="utf-8") as f:
        f.write(FDS)
    s = server.Server("--command", "job=%s %s" % (harness.python(), script))
    made = s.post("/api/trace/memory", {"model_name": "job"}).expect().json
    log = s.wait_trace(made["trace_id"])["log"]
    s.stop()
    found = re.search(r"FDS (\[.*\]) ENV (\[.*\])", log)
    check(found, "the command has not said what it has: %s", log)
    equal(found[2], "[]", "of the environment")
    fds = dict(eval(found[1]))  # pylint: disable=eval-used
    equal(sorted(n for n, what in fds.items() if int(n) > 2 and not what.startswith("/proc/")), [], "descriptors of ours: %s" % fds)


def test_end():
    job().end()


if __name__ == "__main__":
    run(globals())

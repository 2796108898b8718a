#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# run: long
"""serve's privileged process: its limits, its folder, failing captures, and all ways in which it ends."""
import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

import harness
import server
from harness import TOOL, Skip, check, equal, made, nightly, run, scratch, spawn, until

_shared = {}


def job():
    """One process with PyTorch for all tests."""
    if "job" not in _shared:
        server.needs_serve()
        _shared["job"] = server.Job("--shape", "4,3,32,32", "--spread", "50", kept=True)
    return _shared["job"].ready()


def needs_root():
    if not harness.IS_ROOT:
        raise Skip("only root looks into the server's folder, and kills its processes")


def recordings(folder):
    """Recordings that are not empty: a killed server may leave others."""
    return sorted(name for name in os.listdir(folder) if name.endswith(".mtr") and os.path.getsize(os.path.join(folder, name)))


def wait_gone(pids, seconds=10):
    limit = time.monotonic() + seconds
    while any(server.alive(p) for p in pids) and time.monotonic() < limit:
        time.sleep(0.05)
    equal(["%d %s" % (p, server.name_of(p)) for p in pids if server.alive(p)], [], "processes that are left")


def start(s, **body):
    return s.post("/api/trace/memory", dict(body, wait=False)).expect().json["trace_id"]


def test_captures_that_fail():
    """Each failure has its own message and status, and leaves no file."""
    needs_root()
    sleeper = spawn([sys.executable, "-c", "import time; time.sleep(600)"])
    other = spawn(["sleep", "600"])
    s = server.Server("--target", "other=%d" % other.pid, "--target", "sleeper=%d" % sleeper.pid, "--target", "nobody=no-such-command-line-[0-9]",
                      "--command", "bad=exit 7", "--command", "missing=/no/such/program", "--command", "list=sleep 0; sleep 600",
                      "--max-traces", "3")
    got = s.post("/api/trace/memory", {"model_name": "other", "duration_s": 1}).expect(404).json
    check("no Python interpreter, PyTorch or CUDA" in got["detail"], "no Python: %s", got)
    got = s.post("/api/trace/memory", {"model_name": "nobody"}).expect(404).json
    check("target 'nobody' has no process" in got["detail"], "nobody is there: %s", got)
    got = s.post("/api/trace/memory", {"model_name": "bad"}).expect(503).json
    check("status 7" in got["detail"], "a command that fails: %s", got)
    got = s.post("/api/trace/memory", {"model_name": "missing"}).expect(503).json
    check("/no/such/program" in got["detail"], "a command that is not there: %s", got)
    # PyTorch never appears: the capture is stopped and says so. Earlier failures make room for it.
    waits = start(s, model_name="sleeper", duration_s=5)
    lists = start(s, model_name="list")
    s.post("/api/trace/%s/stop" % waits, {}).expect()
    s.post("/api/trace/%s/stop" % lists, {}).expect()
    for trace_id in (waits, lists):
        trace = s.wait_trace(trace_id)
        equal((trace["state"], trace["events"]), ("failed", 0), "what was stopped before anything came: %s" % trace)
    equal(recordings(s.folder), [], "recordings")
    s.stop()
    for process in (sleeper, other):
        process.signal(signal.SIGKILL)
        process.wait(10)


def test_commands_get_few_variables():
    """The server's environment may have secrets; commands get only named variables."""
    needs_root()
    told = scratch("environment")
    s = server.Server("--command", "tells=env > %s; exit 7" % told, "--command-env", "NAMED", env=dict(os.environ, AWS_SECRET_ACCESS_KEY="abc", NAMED="1"))
    s.post("/api/trace/memory", {"model_name": "tells", "batch_size": 4}).expect(503)
    with open(told, encoding="utf-8") as f:
        names = {line.partition("=")[0] for line in f}
    check({"PATH", "NAMED", "MEMTRACE_BATCH_SIZE", "MEMTRACE_MODEL_NAME"} <= names, "what a command gets: %s", names)
    check("AWS_SECRET_ACCESS_KEY" not in names, "a command gets what is the server's: %s", names)


def test_limits():
    """Limits on concurrent captures, traces and bytes: refused with a message; existing ones continue."""
    needs_root()
    s = server.Server("--target", "job=%d" % job().pid, "--max-captures", "2", "--max-traces", "3", "--max-disk", "40M", "--max-duration", "30s",
                      "--max-events", "2000000")
    for body, field in (({"max_events": 2000001}, "max_events"), ({"duration_s": 31}, "duration_s")):
        equal(s.post("/api/trace/memory", dict(body, model_name="job")).expect(422).json["field"], field, "what is to blame")
    first, second = (start(s, model_name="job", duration_s=25) for _ in range(2))
    check("--max-captures" in s.post("/api/trace/memory", {"model_name": "job"}).expect(429).json["detail"], "which limit")
    for trace_id in (first, second):
        s.wait_trace(trace_id, ("capturing",))
        s.post("/api/trace/%s/stop" % trace_id, {}).expect()
        equal(s.wait_trace(trace_id)["state"], "done", "one that was stopped")
    s.post("/api/trace/memory", {"model_name": "job", "steps": 1}).expect()
    check("--max-traces" in s.post("/api/trace/memory", {"model_name": "job"}).expect(429).json["detail"], "which limit")
    s.delete("/api/trace/" + first).expect()
    # The folder is full: nothing in it is lost, and deleting makes room.
    with open(os.path.join(s.folder, "other"), "wb") as f:
        f.truncate(40 << 20)
    check("--max-disk" in s.post("/api/trace/memory", {"model_name": "job"}).expect(429).json["detail"], "which limit")
    check("--max-disk" in s.post("/api/trace/export", {"trace_id": second, "format": "csv"}).expect(429).json["detail"], "which limit")
    equal(s.get("/api/trace/" + second).expect().json["capture"]["complete"], True, "what is there")
    os.unlink(os.path.join(s.folder, "other"))
    s.post("/api/trace/export", {"trace_id": second, "format": "csv"}).expect()
    s.stop()


def test_full_disk():
    """On a full file system the capture fails or ends early with a message; the server continues."""
    needs_root()
    folder = tempfile.mkdtemp(dir=scratch("."))
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=96k,mode=0700", "none", folder], capture_output=True, text=True, check=False)
    if done.returncode:
        raise Skip("no file system can be mounted here: " + done.stderr.strip())
    try:
        s = server.Server("--target", "job=%d" % job().pid, folder=folder)
        other = os.path.join(folder, "other")
        with open(other, "wb") as f:  # a recording of few steps is larger than what is left
            room = os.statvfs(folder)
            f.write(bytes(room.f_bavail * room.f_frsize - (16 << 10)))
        trace = s.wait_trace(start(s, model_name="job", duration_s=20))
        check("No space left" in trace.get("error", "") or "disk is full" in trace.get("error", ""), "what it says: %s", trace)
        check(trace["state"] == "failed" or trace["bytes"] > 0, "what is left: %s", trace)
        s.get("/api/health").expect()
        s.delete("/api/trace/" + trace["trace_id"]).expect()
        os.unlink(other)
        equal(s.post("/api/trace/memory", {"model_name": "job", "steps": 1}).expect().json["complete"], True, "the next one")
        s.stop()
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def until_it_waits(s):
    """The command `waits` runs."""
    harness.until(lambda: any("sleep 600" in server.name_of(p) for p in s.processes()), "the command runs")


def test_ended_while_it_captures():
    """Ended by a signal: the recording is complete and listed at the next start. By kill -9: no process stays, and written data
    is readable."""
    needs_root()
    folder = scratch("ended-%d" % os.getpid())
    target = ("--target", "job=%d" % job().pid, "--command", "waits=exec sleep 600")
    s = server.Server(*target, folder=folder)
    first = start(s, model_name="job", duration_s=60, batch_size=4)
    s.wait_trace(first, ("capturing",))
    start(s, model_name="waits")
    until_it_waits(s)
    s.stop()
    equal(recordings(folder), [first + ".mtr"], "recordings")
    equal(harness.report(os.path.join(folder, first + ".mtr"))["capture"]["complete"], True, "whole")
    s = server.Server(*target, folder=folder)
    trace = s.wait_trace(first)
    equal((trace["state"], trace["summary"]["complete"], trace["model_name"], trace["batch_size"], trace["duration_s"]), ("done", True, "job", 4, 60),
          "found again: %s" % trace)
    second = start(s, model_name="job", duration_s=60)
    s.wait_trace(second, ("capturing",))
    start(s, model_name="waits")
    until_it_waits(s)
    pids = s.processes()
    check(len(pids) >= 4, "serve consists of %s", [server.name_of(p) for p in pids])
    s.process.signal(signal.SIGKILL)
    s.process.wait(10)
    s.client.close()
    wait_gone(pids)
    equal(recordings(folder)[:2], [first + ".mtr", second + ".mtr"], "recordings")
    check(harness.report(os.path.join(folder, second + ".mtr"))["capture"]["events"] > 0, "what was written is not there")
    s = server.Server(*target, folder=folder)
    equal([(t["trace_id"], t["model_name"]) for t in s.get("/api/trace/list").expect().json["traces"]][:2], [(first, "job"), (second, "job")], "the list")
    s.delete_all()
    equal(os.listdir(folder), [], "what is left in the folder")
    s.stop()


def sockets(port, state):
    """This machine's connections to the port in a state of /proc/net/tcp."""
    with open("/proc/net/tcp", encoding="ascii") as f:
        fields = [line.split() for line in f.readlines()[1:]]
    return len([f for f in fields if f[3] == state and int(f[1].split(":")[1], 16) == port])


def test_profiles_end_with_their_client():
    """A scraper disconnects: its capture ends and makes room. A requested trace stays, and its connection is free."""
    needs_root()
    s = server.Server("--target", "job=%d" % job().pid, "--max-captures", "2")
    traces = lambda: s.get("/api/trace/list").expect().json["traces"]
    scrapers = [socket.create_connection((s.host, s.port)) for _ in range(2)]
    for c in scrapers:
        c.sendall(b"GET /debug/pprof/heap?seconds=300&target=job HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    limit = time.monotonic() + 20
    while [t["state"] for t in traces()] != ["capturing"] * 2 and time.monotonic() < limit:
        time.sleep(0.1)
    equal([t["state"] for t in traces()], ["capturing"] * 2, "captures of two scrapers")
    check("--max-captures" in s.post("/api/trace/memory", {"model_name": "job"}).expect(429).json["detail"], "which limit")
    for c in scrapers:
        c.close()
    limit = time.monotonic() + 3
    while traces() and time.monotonic() < limit:
        time.sleep(0.1)
    equal(traces(), [], "captures whose scrapers have gone")
    # Deleted captures count until both recorders have ended.
    limit = time.monotonic() + 30
    while s.post("/api/trace/memory", {"model_name": "job", "steps": 1}).status == 429 and time.monotonic() < limit:
        time.sleep(0.2)
    s.delete_all()
    c = socket.create_connection((s.host, s.port))
    body = b'{"model_name": "job", "duration_s": 8}'
    c.sendall(b"POST /api/trace/memory HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
    limit = time.monotonic() + 20
    while [t["state"] for t in traces()] != ["capturing"] and time.monotonic() < limit:
        time.sleep(0.1)
    c.close()
    limit = time.monotonic() + 5
    while sockets(s.port, "08") and time.monotonic() < limit:
        time.sleep(0.1)
    equal(sockets(s.port, "08"), 0, "connections that wait to be closed")
    equal(s.wait_trace(traces()[0]["trace_id"])["state"], "done", "a trace whose client has gone")
    s.stop()


def stopped_worker(s, trace):
    """A request whose worker does not end, on its own connection."""
    servers = set(s.processes())
    for n in range(200):
        c = socket.create_connection((s.host, s.port))
        c.sendall(b"GET /api/trace/%s?top=%d HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" % (trace.encode(), n + 1000))
        limit = time.monotonic() + 5
        workers = set()
        while not workers and time.monotonic() < limit:
            workers = set(harness.children_of(s.process.pid)) - servers
        for pid in workers:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGSTOP)
                # Most have not read much yet; ended ones are zombies.
                until(lambda pid=pid: harness.state_of(pid) in "TZX", "a stop", 5)
                if harness.state_of(pid) == "T":
                    return c
        c.close()
        # The next request must not stop this one's worker, which the server ends.
        until(lambda: set(harness.children_of(s.process.pid)) <= servers, "end of a worker", 10)
    raise harness.Failure("no worker could be stopped")


def test_requests_that_were_given_up_make_room():
    """Clients that request work and disconnect leave no work in the queue or with the worker."""
    needs_root()
    s = server.Server("--max-workers", "1", "--requests-per-minute", "0", made("given-up.mtr"))
    trace = s.get("/api/trace/list").expect().json["active_traces"][0]
    s.wait_trace(trace)
    first = stopped_worker(s, trace)
    # More in total than may wait; per client at most as many as may run at once.
    for k in range(4):
        held = [socket.create_connection((s.host, s.port)) for _ in range(12)]
        for n, c in enumerate(held):
            c.sendall(b"GET /api/trace/%s?top=%d HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" % (trace.encode(), k * 12 + n + 1))
        for c in held:
            c.close()
        until(lambda: not sockets(s.port, "08"), "end of connections whose clients have gone", 10)
    answer = []
    asker = threading.Thread(target=lambda: answer.append(s.connect().get("/api/trace/%s?top=777" % trace).status))
    asker.start()
    asker.join(1)
    equal(answer, [], "one who waits for the worker")
    first.close()
    asker.join(30)
    equal(answer, [200], "the one who waited")
    s.stop()


def test_its_processes_die():
    """The scanner is started again; without the web process the server ends, and captures are saved."""
    needs_root()
    word = "http-broker-%d" % os.getpid()
    other = server.Job("--shape", "4,3,32,32", "--spread", "50", word).ready()
    s = server.Server("--target", "job=%d" % job().pid, "--target", "other=" + word)
    s.post("/api/trace/memory", {"model_name": "job", "steps": 1}).expect()
    equal({p["pid"] for p in s.get("/api/targets").expect().json["processes"]}, {job().pid, other.pid}, "processes")
    by_name = {}
    for pid in s.processes():
        with open("/proc/%d/comm" % pid, encoding="utf-8") as f:
            by_name[f.read().strip()] = pid
    # Processes that end without a scanner are removed when it is back.
    os.kill(by_name["memtrace-look"], signal.SIGKILL)
    other.process.signal(signal.SIGKILL)
    other.process.wait(10)
    limit = time.monotonic() + 20
    pids = {other.pid}
    while time.monotonic() < limit and other.pid in pids:
        pids = {p["pid"] for p in s.get("/api/targets").expect().json["processes"]}
        time.sleep(0.2)
    equal(pids, {job().pid}, "processes")
    equal(s.post("/api/trace/memory", {"model_name": "job", "steps": 1}).expect().json["complete"], True, "after the one that looks has died")
    running = start(s, model_name="job", duration_s=60)
    s.wait_trace(running, ("capturing",))
    pids = s.processes()
    os.kill(by_name["memtrace-web"], signal.SIGKILL)
    equal(s.process.wait(20), 1, "exit code")
    s.client.close()
    wait_gone(pids)
    equal(harness.report(os.path.join(s.folder, running + ".mtr"))["capture"]["complete"], True, "what captured")


def library_like_pytorch(symbol):
    """A readable library called libc10.so, with that symbol."""
    folder = tempfile.mkdtemp(dir=scratch("."))
    source = os.path.join(folder, "c10.c")
    with open(source, "w", encoding="ascii") as f:
        f.write("void %s(void) {}\n" % symbol)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", os.path.join(folder, "libc10.so"), source], check=True)
    for path in (folder, scratch(".")):
        os.chmod(path, 0o755)
    return os.path.join(folder, "libc10.so")


def looks_like_pytorch(symbol, word):
    """A process of user nobody that maps such a library, with the word in its command line."""
    env = dict(os.environ, LD_PRELOAD=library_like_pytorch(symbol))
    return spawn(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "sh", "-c", "sleep 600; :", word], env=env)


@nightly("long")
def test_who_counts_as_a_target():
    """A file name alone does not make a process count as PyTorch, and a target of one user excludes other users' processes."""
    needs_root()
    word = "http-broker-who-%d" % os.getpid()
    real = server.Job("--shape", "4,3,32,32", "--spread", "50", word).ready()
    named, fake = looks_like_pytorch("other", word), looks_like_pytorch("_ZN3c1015GetCPUAllocatorEv", word)
    s = server.Server("--target", "any=" + word, "--target", "mine=" + word, "--target-user", "mine=root", "--all")
    limit = time.monotonic() + 30
    pids = {}
    while not {fake.pid, real.pid} <= pids.get("", set()) and time.monotonic() < limit:
        pids = {t["name"]: set(t["pids"]) for t in s.get("/api/targets").expect().json["targets"]}
        time.sleep(0.2)
    equal((pids["any"], pids["mine"]), ({real.pid, fake.pid, named.pid}, {real.pid}), "processes of targets")
    equal(pids[""] & pids["any"], {real.pid, fake.pid}, "those with PyTorch in them")
    s.post("/api/trace/memory", {"model_name": "any", "steps": 1}).expect(409)
    s.post("/api/trace/memory", {"model_name": "mine", "steps": 1}).expect()
    s.stop()
    for process in (named, fake):
        process.signal(signal.SIGKILL)
        process.wait(10)
    real.end()


CROWD = """
import subprocess, sys
crowd = [subprocess.Popen(["sleep", "600"]) for _ in range(300)]
print("ready", flush=True)
sys.stdin.read()
for p in crowd:
    p.kill()
    p.wait()
"""


def test_a_crowd_hides_nobody():
    """More processes of one user that look like PyTorch than the table holds: a later job is listed and can be captured, and
    omitted ones are counted."""
    needs_root()
    env = dict(os.environ, LD_PRELOAD=library_like_pytorch("_ZN3c1015GetCPUAllocatorEv"))
    crowd = subprocess.Popen(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", sys.executable, "-c", CROWD], env=env, text=True,
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        equal(crowd.stdout.readline(), "ready\n", "the crowd")
        s = server.Server("--all")
        processes = lambda: {p["pid"] for p in s.get("/api/targets").expect().json["processes"]}
        until(lambda: len(processes()) == 256, "as many processes as are known", 180)
        late = server.Job("--shape", "4,3,32,32", "--spread", "50", "http-broker-late").ready()
        until(lambda: late.pid in processes(), "the job that has started later")
        check(len(processes()) <= 256, "more processes than are known")
        s.post("/api/trace/memory", {"pid": late.pid, "steps": 1}).expect()
        left_out = re.search(r'^memtrace_serve_left_out\{what="processes"\} (\d+)$', s.get("/metrics").expect().body.decode(), re.M)
        check(left_out and int(left_out[1]) >= 300 + 1 - 256, "processes that are left out: %s", left_out)
        late.end()
        s.stop()
    finally:
        crowd.communicate(timeout=60)


def test_folders_and_arguments():
    """Folders without write access, and invalid arguments."""
    others = scratch("others-%d" % os.getpid())
    os.mkdir(others)
    os.chmod(others, 0o777)
    link = scratch("link-%d" % os.getpid())
    os.symlink(others, link)
    token = scratch("token-%d" % os.getpid())
    with open(token, "w", encoding="ascii") as f:
        f.write("0123456789abcdef0123\n")
    os.chmod(token, 0o600)
    ended = subprocess.Popen(["true"])
    ended.wait()
    for code, words, args in (
            (1, "others can write", ("-o", others)), (1, "symbolic link", ("-o", link)), (64, "--token-file", ("--listen", "0.0.0.0:0")),
            (64, "NAME=PID", ("--target", "job")), (64, "regular expression", ("--target", "job=(")), (64, "given twice", ("--target", "a=1", "--target", "a=b")),
            (64, "NAME=USER", ("--target", "a=b", "--target-user", "c=root")), (64, "no such user", ("--target", "a=b", "--target-user", "a=no-such-user")),
            (64, "NAME=USER", ("--target", "a=1", "--target-user", "a=root")),
            (64, "--tls-key", ("--tls-cert", token)), (64, "listen", ("--listen", "nonsense:x")), (64, "--command", ("--vram", "8G")),
            (2, "no process", ("--target", "job=%d" % ended.pid)), (2, "No such file", (scratch("none.mtr"),)), (64, "--max-events", ("--max-events", "0")),
            *((64, "unencrypted", ("--push-otlp", url, "--push-token-file", token)) for url in (
                "http://collector:4318", "http://localhost@collector/", "http://127.0.0.1.example/", "http://[::2]:80", "http://localhost:80:x/",
                "http://localhost\\@collector/")),
            (2, "no process", ("--push-otlp", "http://127.1.2.3:4318/x", "--push-token-file", token, "--target", "job=%d" % ended.pid)),
            (2, "no process", ("--push-otlp", "http://[::1]:4318", "--push-token-file", token, "--target", "job=%d" % ended.pid)),
            (2, "no process", ("--push-otlp", "http://collector", "--push-token-file", token, "--push-insecure", "--target", "job=%d" % ended.pid)),
            (64, "http://", ("--push-otlp", "ftp://x")), (64, "--push-otlp", ("--push-every", "5s"))):
        done = subprocess.run([TOOL, "serve", "--listen", "127.0.0.1:0", *args], capture_output=True, text=True, timeout=20, check=False)
        equal((done.returncode, done.stdout), (code, ""), "%s: %s" % (args, done.stderr))
        check(words in done.stderr, "%s: %r is not in %s", args, words, done.stderr)


def test_own_folder_goes():
    """Without -o the folder exists as long as the server; a killed server's folder is removed by the next."""
    server.needs_serve()
    inside = tempfile.mkdtemp(dir=scratch("."))
    recording = made("given.mtr")
    # Readiness notification as for systemd.
    told = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    told.bind(os.path.join(inside, "..", "notify-%d" % os.getpid()))
    told.settimeout(20)
    env = dict(os.environ, TMPDIR=inside, NOTIFY_SOCKET=told.getsockname())
    first = spawn([TOOL, "serve", "--listen", "127.0.0.1:0", recording], env=env)
    first.wait_line(server.LISTENING, 30, stream="err")
    equal(told.recv(100), b"READY=1", "what systemd is told")
    equal(len(os.listdir(inside)), 1, "folders: %s" % os.listdir(inside))
    equal(os.stat(os.path.join(inside, os.listdir(inside)[0])).st_mode & 0o777, 0o700, "its mode")
    pids = [first.pid, *server.descendants(first.pid)]
    first.signal(signal.SIGKILL)
    first.wait(10)
    wait_gone(pids)
    equal(len(os.listdir(inside)), 1, "what a killed one leaves")
    second = spawn([TOOL, "serve", "--listen", "127.0.0.1:0", recording], env=env)
    second.wait_line(server.LISTENING, 30, stream="err")
    equal(len(os.listdir(inside)), 1, "folders beside that of a killed one")
    second.signal(signal.SIGTERM)
    equal(second.wait(15), 0, "exit code")
    equal(os.listdir(inside), [], "what is left")
    equal((told.recv(100), told.recv(100)), (b"READY=1", b"STOPPING=1"), "what systemd is told of the second")
    told.close()


def at_once(calls):
    """The answers of concurrent calls, each on its own connection."""
    answers = [None] * len(calls)
    together = threading.Barrier(len(calls))

    def one(i, call):
        together.wait()
        answers[i] = call()
    threads = [threading.Thread(target=one, args=(i, call)) for i, call in enumerate(calls)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return answers


def test_exports_at_once():
    """Exports of one trace: each client gets its own file, and equal ones are made once."""
    s = server.Server(made("at-once.mtr"), root=False, prefix=())
    trace = s.get("/api/trace/list").expect().json["active_traces"][0]
    s.wait_trace(trace)
    end = s.get("/api/trace/" + trace).expect().json["capture"]["duration"]
    bodies = [{"trace_id": trace, "format": "folded", "at": "%g" % (end * k / 10)} for k in range(1, 7)] + [{"trace_id": trace, "format": "html"}] * 6
    exported = [a.expect().json for a in at_once([lambda b=b: s.connect().post("/api/trace/export", b) for b in bodies])]
    equal(len({m["file"] for m in exported[:6]}), 6, "files of six moments: %s" % [m["file"] for m in exported])
    equal(len({m["file"] for m in exported[6:]}), 1, "files of one page: %s" % [m["file"] for m in exported])
    for m in exported:
        equal(len(s.get(m["download_url"]).expect().body), m["file_size_bytes"], m["file"])
    equal(len([n for n in os.listdir(s.folder) if n.startswith("trace_")]), 7, "files: %s" % os.listdir(s.folder))
    # One more export than are kept: the least recently used is removed and made again on request.
    s.post("/api/trace/export", bodies[6]).expect()
    for k in range(26):
        s.post("/api/trace/export", {"trace_id": trace, "format": "folded", "at": "%g" % (end * (k + 1) / 30), "device": "cuda:0"}).expect()
    equal(len([n for n in os.listdir(s.folder) if n.startswith("trace_")]), 32, "files: %s" % os.listdir(s.folder))
    gone = [i for i in range(6) if s.get(exported[i]["download_url"]).status == 404]
    equal(len(gone), 1, "files that made room: %s" % gone)
    again = s.post("/api/trace/export", bodies[gone[0]]).expect().json
    equal(again["file_size_bytes"], exported[gone[0]]["file_size_bytes"], "made again")
    s.get(again["download_url"]).expect()
    s.stop()


def test_exports_larger_than_their_share():
    """Too large exports are refused with a message, whether the worker is still writing or has ended; no file is left, and the
    server continues."""
    s = server.Server("--max-disk", "4M", made("share.mtr"), root=False)
    trace = s.get("/api/trace/list").expect().json["active_traces"][0]
    s.wait_trace(trace)
    with open(os.path.join(s.folder, "other"), "wb") as f:
        f.truncate((4 << 20) - 20000)
    for kind in ("csv", "html", "csv"):
        answer = s.post("/api/trace/export", {"trace_id": trace, "format": kind})
        check("--max-disk" in answer.expect(503).json["detail"], "%s: which limit: %s", kind, answer.body)
        equal(os.listdir(s.folder), ["other"], "what is left of " + kind)
    os.unlink(os.path.join(s.folder, "other"))
    s.post("/api/trace/export", {"trace_id": trace, "format": "csv"}).expect()
    s.stop()


def test_names_of_given_files():
    """A given file with the name of a kept one, and one whose name looks like an option: both are served as themselves."""
    folder = scratch("names-%d" % os.getpid())
    others = scratch("others-names-%d" % os.getpid())
    os.mkdir(folder, 0o700)
    os.mkdir(others)
    kept = made(os.path.join(folder, "trace_123.mtr"))
    given = made(os.path.join(others, "trace_123.mtr"), "tiny")
    made(os.path.join(others, "-x.mtr"), "tiny")
    s = server.Server("--", given, os.path.join(others, "-x.mtr"), folder=folder, root=harness.IS_ROOT)
    for trace in s.get("/api/trace/list").expect().json["active_traces"]:
        equal(s.wait_trace(trace)["state"], "done", trace)
    traces = (("trace_123", kept), ("trace_trace_123_2", given), ("trace__x", os.path.join(others, "-x.mtr")))
    for trace, path in traces:
        with open(path, "rb") as f:
            check(s.get("/api/trace/%s/recording" % trace).expect().body == f.read(), "%s is not %s", trace, path)
        for part in ("capture", "devices", "rows"):
            equal(s.get("/api/trace/" + trace).expect().json[part], harness.report(path, at="peak")[part], trace)
        s.post("/api/trace/export", {"trace_id": trace, "format": "csv"}).expect()
    both = s.get("/api/trace/compare?traces=" + ",".join(trace for trace, _ in traces[:2])).expect().json["captures"]
    equal([c["events"] for c in both], [harness.report(path)["capture"]["events"] for _, path in traces[:2]], "events, side by side")
    check(both[0]["events"] != both[1]["events"], "the two files are the same")
    s.stop()


def test_nothing_is_left():
    if "job" in _shared:
        _shared["job"].end()


if __name__ == "__main__":
    run(globals())

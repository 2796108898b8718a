# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
`memtrace-bpf serve` for tests, a small client, and jobs to trace. Standard library only.

A Server or a Job is for one test unless kept=True. It listens on a free port; stop() ends it by a signal and fails if a process
or listening socket of it is left.
"""
import contextlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import threading
import time
import urllib.parse

import harness
from harness import TOOL, Failure, Skip, check, equal, python, scratch, spawn, spawn_job

SERVED = os.path.join(harness.WORKLOADS, "served.py")
PRELOAD = " ".join(os.path.join(harness.OUT, "dryrun", name) for name in ("libcuda.so.1", "libnvidia-ml.so.1"))
LISTENING = r"listening on (?:http|https|unix):"
MODEL_NAMES = ("my_model", "my_transformer", "resnet50")


class Answer:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    @property
    def json(self):
        return json.loads(self.body.decode("utf-8"))

    @property
    def type(self):
        return self.headers.get("Content-Type", "")

    def expect(self, status=200):
        check(self.status == status, "status %d, expected %d: %s", self.status, status, self.body[:600])
        return self


class Client:
    """A persistent connection, opened again if it was closed; for one thread."""

    def __init__(self, host, port, timeout=60, token=None):
        self.connection = http.client.HTTPConnection(host, port, timeout=timeout)
        self.token = token

    def ask(self, method, path, body=None, headers=None):
        headers = dict(headers or {})
        if body is not None and not isinstance(body, (bytes, str)):
            body = json.dumps(body)
            headers.setdefault("Content-Type", "application/json")
        if self.token:
            headers.setdefault("Authorization", "Bearer " + self.token)
        kept = self.connection.sock is not None
        try:
            return self._once(method, path, body, headers)
        except (http.client.RemoteDisconnected, ConnectionError):
            self.connection.close()
            if not kept:
                raise
        return self._once(method, path, body, headers)

    def _once(self, method, path, body, headers):
        try:
            self.connection.request(method, path, body, headers)
        except BrokenPipeError:
            if not body:
                raise
            # The server closed it without waiting; an answer may have been sent before.
        r = self.connection.getresponse()
        return Answer(r.status, r.headers, r.read())

    def get(self, path, **headers):
        return self.ask("GET", path, headers={k.replace("_", "-"): v for k, v in headers.items()})

    def post(self, path, body):
        return self.ask("POST", path, body)

    def delete(self, path):
        return self.ask("DELETE", path)

    def close(self):
        self.connection.close()


class Events:
    """Server-sent events: each is (event, data as JSON). Comments are counted."""

    def __init__(self, server, path, timeout=30):
        self.connection = http.client.HTTPConnection(server.host, server.port, timeout=timeout)
        self.connection.request("GET", path, headers={"Accept": "text/event-stream"})
        self.response = self.connection.getresponse()
        self.comments = 0

    def __iter__(self):
        name, data = "message", []
        for raw in self.response:
            line = raw.decode("utf-8").rstrip("\r\n")
            if line.startswith(":"):
                self.comments += 1
            elif line.startswith("event:"):
                name = line[6:].strip()
            elif line.startswith("data:"):
                data.append(line[5:].lstrip())
            elif not line and data:
                yield name, json.loads("\n".join(data))
                name, data = "message", []

    def close(self):
        with contextlib.suppress(OSError):
            if self.connection.sock:
                self.connection.sock.shutdown(socket.SHUT_RDWR)
        self.response.close()
        self.connection.close()


def descendants(pid):
    found = []
    for child in harness.children_of(pid):
        found += [child, *descendants(child)]
    return found


def memory(pid):
    """Anonymous memory of a process in bytes; 0: it has ended."""
    try:
        with open("/proc/%d/status" % pid, encoding="utf-8", errors="replace") as f:
            return sum(int(line.split()[1]) for line in f if line.startswith("RssAnon:")) * 1024
    except OSError:
        return 0


def name_of(pid):
    try:
        with open("/proc/%d/cmdline" % pid, "rb") as f:
            return f.read().replace(b"\0", b" ").decode("utf-8", "replace").strip() or "?"
    except OSError:
        return "?"


def alive(pid):
    """True if the process exists and has not ended; a zombie has ended."""
    try:
        with open("/proc/%d/stat" % pid, encoding="ascii", errors="replace") as f:
            return f.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


_built = {}


def needs_serve(program=TOOL):
    """Skips if the build lacks `serve`."""
    if program not in _built:
        done = subprocess.run([program, "--help"], capture_output=True, text=True, timeout=60, check=False)
        _built[program] = re.search(r"^ *serve\b", done.stdout + done.stderr, re.M) is not None
    if not _built[program]:
        raise Skip("this program was built without serve")


class Server:
    def __init__(self, *args, root=True, folder=None, listen="127.0.0.1:0", env=None, tool=TOOL, prefix=(), kept=False):
        needs_serve(tool)
        self.folder = folder or scratch("served-%d-%d" % (os.getpid(), time.monotonic_ns()))
        if root and harness.IS_ROOT and "--command" in args:
            args = ("--command-user", "root", *args)  # the test's user has torch in its own folder
        command = [*prefix, tool, "serve", "--listen", listen, "-o", self.folder, *args]
        self.process = spawn(command, root=root, env=env, kept=kept)
        line = self.process.wait_line(LISTENING, 30, stream="err")
        self.url = line[line.index("listening on ") + 13:].split()[0].rstrip("/")
        where = urllib.parse.urlsplit(self.url)
        self.host, self.port = where.hostname, where.port
        self.client = self.connect()
        self.seen = set()

    def connect(self, timeout=60):
        return Client(self.host, self.port, timeout)

    def ask(self, *args, **kwargs):
        return self.client.ask(*args, **kwargs)

    def get(self, path, **headers):
        return self.client.get(path, **headers)

    def post(self, path, body):
        return self.client.post(path, body)

    def delete(self, path):
        return self.client.delete(path)

    def events(self, path):
        return Events(self, path)

    # ---- processes of the server ----

    def processes(self):
        """PIDs of its first process and all descendants."""
        first = self.process.pid
        found = [first, *descendants(first)]
        self.seen.update(found)
        return found

    def memory(self):
        return sum(memory(pid) for pid in self.processes())

    def descriptors(self):
        """Number of descriptors of its permanent processes, without those of captures."""
        count = 0
        for pid in self.processes():
            with contextlib.suppress(OSError):
                count += len(os.listdir("/proc/%d/fd" % pid))
        return count

    # ---- traces ----

    def wait_trace(self, trace_id, states=("done", "failed"), seconds=60):
        """The trace's object, once it has one of the states."""
        limit = time.monotonic() + seconds
        trace = None
        while time.monotonic() < limit:
            traces = self.get("/api/trace/list").expect().json["traces"]
            trace = next((t for t in traces if t["trace_id"] == trace_id), None)
            if trace and trace["state"] in states:
                return trace
            time.sleep(0.1)
        raise Failure("trace %s is in none of %s after %d s: %s; %s" % (
            trace_id, states, seconds, trace, self.process.tail(self.process.stderr())))

    def delete_all(self):
        for trace_id in self.get("/api/trace/list").expect().json["active_traces"]:
            self.delete("/api/trace/" + trace_id).expect()

    def stop(self, seconds=60):
        """Stops it by a signal, like a service; nothing may be left."""
        pids = set(self.processes()) | self.seen
        self.client.close()
        self.process.signal(signal.SIGTERM)
        code = self.process.wait(seconds)
        equal(code, 0, "exit code of serve: %s" % self.process.tail(self.process.stderr()))
        limit = time.monotonic() + 30
        while any(alive(p) for p in pids) and time.monotonic() < limit:
            time.sleep(0.05)
        left = ["%d %s" % (p, name_of(p)) for p in sorted(pids) if alive(p)]
        equal(left, [], "processes that serve has left")
        with socket.socket() as s:
            s.settimeout(2)
            check(s.connect_ex((self.host, self.port)) != 0, "something still listens on %s", self.url)
        check("ERROR: AddressSanitizer" not in self.process.stderr() and "ERROR: LeakSanitizer" not in self.process.stderr(),
              "a sanitizer has spoken: %s", self.process.stderr()[-3000:])


class Job:
    """A live job of served.py in the dry run; reports its figures between two steps."""

    def __init__(self, *args, role="main", kept=False, env=None):
        env = dict(os.environ, **(env or {}), PYTHONUTF8="1", PYTHONUNBUFFERED="1", LD_PRELOAD=PRELOAD, MEMTRACE_DRYRUN_VRAM="16G")
        self.process = spawn_job([python(role), SERVED, "--train", *args], env=env, kept=kept)
        self.asked = threading.Lock()
        self.modules = None

    @property
    def pid(self):
        return self.process.pid

    def ready(self):
        if self.modules is None:
            self.modules = json.loads(self.process.wait_line("^ready ", 120)[6:])
        return self

    def tell(self, command):
        with self.asked:
            before = len(self.process.out)
            self.process.send(command + "\n")
            limit = time.monotonic() + 30
            while time.monotonic() < limit:
                for _, line in self.process.out[before:]:
                    if line.startswith("did %s " % command):
                        return json.loads(line[5 + len(command):])
                time.sleep(0.01)
        raise Failure("%s: the job has not answered: %s" % (command, self.process.tail(self.process.stderr())))

    def end(self):
        self.process.send("end\n")
        equal(self.process.wait(120), 0, "exit code of the job: %s" % self.process.tail(self.process.stderr()))


def command(*args):
    """A job for --command that ends, with the interpreter that has torch."""
    return " ".join((python(), SERVED, *args))

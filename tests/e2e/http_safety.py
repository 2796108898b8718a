#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# run: long cpu=60
"""`serve` and hostile or broken clients: rights of its processes; malformed, ambiguous, long or slow requests; paths, names and
origins; tokens, rates, TLS, the Unix socket. Other clients are served in all cases."""
import contextlib
import json
import os
import re
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time

import harness
import server
from harness import Skip, check, equal, made, run, scratch

TOKEN = "correct-horse-battery-staple"
ROOT = harness.IS_ROOT or shutil.which("sudo") is not None  # without root, run only tests that need no rights
HOST = b"Host: 127.0.0.1\r\n"
_shared = {}


def recording():
    if "recording" not in _shared:
        _shared["recording"] = made("safety.mtr")
    return _shared["recording"]


def open_server():
    """A server without a token, on an address and a Unix socket."""
    if "open" not in _shared:
        _shared["socket"] = scratch("serve.sock")
        _shared["open"] = server.Server("--listen", "unix:" + _shared["socket"], "--requests-per-minute", "0", recording(), root=ROOT, kept=True)
    return _shared["open"]


def has_https():
    """Whether this build of serve has HTTPS; the static one has not."""
    return "without HTTPS" not in harness.tool("version")[1]


def strict_server():
    """A server with a token, TLS and a rate limit."""
    if not has_https():
        raise harness.Skip("this build of serve has no HTTPS")
    if "strict" not in _shared:
        token, cert, key = scratch("token"), scratch("cert.pem"), scratch("key.pem")
        with open(os.open(token, os.O_CREAT | os.O_WRONLY, 0o600), "w", encoding="ascii") as f:
            f.write(TOKEN + "\n")
        made = subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj",
                               "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", key, "-out", cert],
                              capture_output=True, text=True, check=False)
        check(made.returncode == 0, "openssl: %s", made.stderr)
        _shared["cert"] = cert
        _shared["strict"] = server.Server("--token-file", token, "--tls-cert", cert, "--tls-key", key, "--requests-per-minute", "240",
                                          "--allow-host", "gpu.example", recording(), root=ROOT, kept=True)
    return _shared["strict"]


# ---- raw bytes ----

class Raw:
    """A raw connection; source: its local address."""

    def __init__(self, s, source=None, timeout=15):
        self.socket = socket.socket()
        self.socket.settimeout(timeout)
        if source:
            self.socket.bind((source, 0))
        self.socket.connect((s.host, s.port))

    def send(self, data):
        self.socket.sendall(data)
        return self

    def read(self, patience=None):
        """Reads until the peer closes, or, with `patience`, until it is silent for so many seconds; without it the peer must
        close."""
        out = b""
        if patience:
            self.socket.settimeout(patience)
        with contextlib.suppress(ConnectionResetError, BrokenPipeError, ssl.SSLError, *([TimeoutError] if patience else [])):
            while True:
                more = self.socket.recv(65536)
                if not more:
                    break
                out += more
        return out

    def closed(self):
        """True if the peer closes within the time."""
        try:
            while self.socket.recv(65536):
                pass
        except (ConnectionResetError, BrokenPipeError):
            return True
        except socket.timeout:
            return False
        return True

    def close(self):
        self.socket.close()


def another_peer():
    """An address of this machine outside of loopback, which counts as another peer than all of 127.0.0.0/8."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, contextlib.suppress(OSError):
        probe.connect(("198.51.100.1", 9))
        if not probe.getsockname()[0].startswith("127."):
            return probe.getsockname()[0]
    raise Skip("this machine has no address beyond loopback")


def say(data, s=None, more=True):
    """The answer to these bytes; more=False: they have no end, and the connection may stay open."""
    c = Raw(s or open_server())
    with contextlib.suppress(OSError):
        c.send(data)
    out = c.read(None if more else 0.4)
    c.close()
    return out


def statuses(answer):
    """Statuses of the answers in sequence, parsed by their lengths."""
    found = []
    while answer:
        head, _, rest = answer.partition(b"\r\n\r\n")
        status = re.match(rb"HTTP/1\.[01] (\d{3}) ", head)
        if not status and found in ([400], [413]):
            break  # the library's own error answer, which repeats headers
        check(status, "not an answer: %r", answer[:200])
        found.append(int(status[1]))
        length = re.search(rb"^Content-Length: (\d+)\r?$", head, re.M | re.I)
        answer = rest[int(length[1]):] if length else b"" if found[-1] != 100 else rest
    return found


def alive(s=None):
    """Another client is served, long before an idle connection would end (60 s) and leave its place."""
    s = s or open_server()
    c = s.connect(timeout=30)
    c.ask("GET", "/api/health").expect()
    c.close()


def request(path="/api/health", headers=b"", method="GET", body=b"", host=HOST):
    return method.encode() + b" " + (path if isinstance(path, bytes) else path.encode()) + b" HTTP/1.1\r\n" + host + headers + b"Connection: close\r\n\r\n" + body


# ---- rights of the processes ----

def status_of(pid):
    with open("/proc/%d/status" % pid, encoding="utf-8") as f:
        return dict(line.rstrip("\n").split(":\t", 1) for line in f if ":\t" in line)


def sanitized():
    """True for a build with AddressSanitizer, which needs rights that are dropped otherwise."""
    with open(harness.TOOL, "rb") as f:
        return b"__asan_init" in f.read()


def test_rights():
    s = open_server()
    alive()
    first = s.process.pid
    children = [p for p in s.processes() if p != first]
    check(children, "serve has no process besides the first")
    for pid in children:
        st = status_of(pid)
        for name in ("CapInh", "CapPrm", "CapEff", "CapAmb") + (("CapBnd",) if harness.IS_ROOT else ()):
            equal(int(st[name], 16), 0, "%s of %s" % (name, server.name_of(pid)))
        equal(st["NoNewPrivs"], "1", "no_new_privs of %s" % server.name_of(pid))
        if not sanitized():
            equal(st["Seccomp"], "2", "seccomp of %s" % server.name_of(pid))
        check("0" not in st["Uid"].split() and "0" not in st["Gid"].split(), "%s is root: %s %s", server.name_of(pid), st["Uid"], st["Gid"])
        if harness.IS_ROOT:
            equal(st["Groups"].strip(), "", "groups of %s" % server.name_of(pid))
    # Descriptors of the web process: no file, no folder, and nothing of BPF.
    if not harness.IS_ROOT:
        return
    web = web_of(s)
    for fd in os.listdir("/proc/%d/fd" % web):
        where = os.readlink("/proc/%d/fd/%s" % (web, fd))
        check(re.match(r"socket:|anon_inode:\[(eventpoll|signalfd|eventfd)\]|pipe:|/dev/null|/dev/pts/|/memfd:", where) or int(fd) < 3,
              "descriptor %s of the HTTP process is %s", fd, where)


THIEF = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
server = int(sys.argv[1])
seen, taken = {}, []
print("ready", flush=True)
os.set_blocking(0, False)
while True:
    try:
        if os.read(0, 1) == b"":
            break
    except BlockingIOError:
        pass
    try:
        with open("/proc/%d/task/%d/children" % (server, server)) as f:
            pids = [int(p) for p in f.read().split()]
    except OSError:
        break
    for pid in pids:
        fd = libc.syscall(434, pid, 0)
        if fd < 0:
            continue
        seen[pid] = True
        for n in range(0, 40):
            got = libc.syscall(438, fd, n, 0)
            if got >= 0:
                taken.append("%d of %d: %s" % (n, pid, os.readlink("/proc/self/fd/%d" % got)))
                os.close(got)
        os.close(fd)
print("seen %d" % len(seen))
print("\\n".join(taken[:20]))
"""


def test_descriptors_are_not_taken():
    """A process of the same user that steals descriptors as fast as it can gets none of those of recordings."""
    if not harness.IS_ROOT or not shutil.which("setpriv"):
        raise Skip("only root can make a process of the server's user")
    if sanitized():
        raise Skip("processes with AddressSanitizer are looked at from outside")
    s = server.Server("--user", "nobody", "--requests-per-minute", "0", "--max-workers", "4", recording())
    trace = s.get("/api/trace/list").expect().json["active_traces"][0]
    s.wait_trace(trace)
    uids = {status_of(pid)["Uid"].split()[0] for pid in s.processes() if pid != s.process.pid}
    equal(uids, {"65534"}, "users of its processes")
    thief = subprocess.Popen(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", sys.executable, "-c", THIEF, str(s.process.pid)],
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    equal(thief.stdout.readline(), "ready\n", "the thief")
    for n in range(200):
        s.get("/api/trace/%s?top=%d" % (trace, n + 1)).expect()
    said, _ = thief.communicate(timeout=60)
    seen, _, taken = said.partition("\n")
    check(int(seen.split()[1]) > 20, "the thief has seen too few workers: %s", said)
    equal(taken.strip(), "", "descriptors that were taken")
    s.stop()


def files_held(pid):
    """A process's descriptors that can write to a file: (number, path)."""
    held = []
    with contextlib.suppress(OSError):
        for fd in os.listdir("/proc/%d/fd" % pid):
            with contextlib.suppress(OSError), open("/proc/%d/fdinfo/%s" % (pid, fd), encoding="ascii") as f:
                where = os.readlink("/proc/%d/fd/%s" % (pid, fd))
                flags = int(re.search(r"^flags:\s+(\d+)$", f.read(), re.M)[1], 8)
                held.append((int(fd), where, flags & os.O_ACCMODE != os.O_RDONLY))
    return held


def test_workers_hold_no_file_that_is_served():
    """A worker writes into a pipe: a stolen descriptor of it cannot change a file that is sent later."""
    if not harness.IS_ROOT:
        raise Skip("only root looks into a worker")
    s = server.Server("--requests-per-minute", "0", "--max-workers", "2", recording())
    trace = s.get("/api/trace/list").expect().json["active_traces"][0]
    s.wait_trace(trace)
    servers = set(s.processes())
    writes, wrong, stop = set(), [], threading.Event()

    def look():
        while not stop.is_set():
            for pid in set(server.harness.children_of(s.process.pid)) - servers:
                with contextlib.suppress(OSError):
                    # Before it executes the worker's program, it is a copy of the server.
                    if not os.readlink("/proc/%d/exe" % pid).startswith("/memfd:") and not sanitized():
                        continue
                    for fd, where, can_write in files_held(pid):
                        if can_write and where.startswith("pipe:"):
                            writes.add((pid, fd))
                        elif can_write and not where.startswith("/dev/null"):
                            wrong.append("%d of %d: %s" % (fd, pid, where))
    looker = threading.Thread(target=look)
    looker.start()
    end = s.get("/api/trace/" + trace).expect().json["capture"]["duration"]
    try:
        for n in range(20):
            s.post("/api/trace/export", {"trace_id": trace, "format": "html", "at": "%g" % (end * (n + 1) / 30)}).expect()
    finally:
        stop.set()
        looker.join()
    check(sum(fd == 1 for _, fd in writes) > 3, "too few workers were seen: %s", writes)
    equal(wrong, [], "what workers can write to")
    s.stop()


def test_programs_that_are_not_run_from_memory():
    """If the system forbids programs in memory, workers run anyway, and a message says once what they lack."""
    prefix = ("unshare", "-fp", "--kill-child", "--mount-proc", "sh", "-c", 'echo 2 >/proc/sys/vm/memfd_noexec && exec "$@"', "sh")
    if not harness.IS_ROOT or subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode:
        raise Skip("needs root, and a kernel that has vm.memfd_noexec for each PID namespace")
    if sanitized():
        raise Skip("workers with AddressSanitizer run the program's own file")
    s = server.Server("--user", "nobody", recording(), prefix=prefix)
    trace = s.get("/api/trace/list").expect().json["active_traces"][0]
    for n in range(3):
        s.get("/api/trace/%s?top=%d" % (trace, n + 1)).expect()
    equal(s.process.stderr().count("cannot copy the program into memory to run workers"), 1, "how often it is said")
    serve = server.harness.children_of(s.process.pid)
    os.kill(serve[0], signal.SIGTERM)
    equal(s.process.wait(20), 0, "exit")


def test_users_of_their_own():
    """Without --user no other service has the user ID of the server's processes: it belongs to no user, and each process has its
    own."""
    if not harness.IS_ROOT:
        raise Skip("only root can become somebody else")
    s = server.Server("--requests-per-minute", "0", "--max-workers", "2", recording())
    trace = s.get("/api/trace/list").expect().json["active_traces"][0]
    s.wait_trace(trace)
    users, shared = {}, []
    stop = threading.Event()

    def look():
        while not stop.is_set():
            now = {}
            for pid in server.harness.children_of(s.process.pid):
                with contextlib.suppress(OSError, KeyError):
                    st = status_of(pid)
                    users.setdefault(pid, set()).add((st["Uid"], st["Gid"]))
                    now[pid] = st["Uid"].split()[0]
            alive = {pid: uid for pid, uid in now.items() if uid != "0" and pid in server.harness.children_of(s.process.pid)}
            if len(set(alive.values())) != len(alive):
                shared.append(alive)
    looker = threading.Thread(target=look)
    looker.start()
    for _ in range(20):
        s.get("/api/trace/" + trace).expect()
    stop.set()
    looker.join()
    last = {pid: {uid.split()[0] for uid, _ in found} - {"0"} for pid, found in users.items()}
    found = [int(uid) for uids in last.values() for uid in uids]
    check(len(found) > 5, "too few were seen: %s", users)
    check(all(len(uids) <= 1 for uids in last.values()), "a process with two users: %s", last)
    # An ID may come again after its process has ended.
    check(not shared, "processes that ran at the same time and had one user: %s", shared)
    check(len(set(found)) > len(found) / 2, "users are not of one process each: %s", last)
    check(all(0x6d740000 <= uid < 0x6d750000 for uid in found), "users: %s", found)
    s.stop()


def web_of(s):
    """The process with the listening socket, other than the first."""
    inodes = set()
    with open("/proc/net/tcp", encoding="ascii") as f:
        for line in f.readlines()[1:]:
            field = line.split()
            if field[3] == "0A" and int(field[1].split(":")[1], 16) == s.port:
                inodes.add("socket:[%s]" % field[9])
    for pid in s.processes():
        if pid == s.process.pid:
            continue
        out = subprocess.run(harness.sudo(["ls", "-l", "/proc/%d/fd" % pid]), capture_output=True, text=True, check=False).stdout
        if any(i in out for i in inodes):
            return pid
    raise harness.Failure("no process of serve's own listens")


# ---- malformed ----

def test_malformed():
    closed, refused = [], (400, 403, 404, 405, 411, 413, 414, 415, 417, 422, 431, 501, 505)
    cases = [
        b"\r\n\r\n", b"\n", b"\0", b"\0" * 5000, b"GET\r\n\r\n", b"GET /\r\n\r\n", b"GET / HTTP/9.9\r\n" + HOST + b"\r\n", b"GET / http/1.1\r\n" + HOST + b"\r\n",
        b" GET / HTTP/1.1\r\n" + HOST + b"\r\n", b"G\0T / HTTP/1.1\r\n" + HOST + b"\r\n",
        b"\xff\xfe\xfd / HTTP/1.1\r\n\r\n",
        b"GET /api/health HTTP/1.1\r\nHost 127.0.0.1\r\n\r\n", b"GET /api/health HTTP/1.1\r\n: x\r\n\r\n", b"GET /api/health HTTP/1.1\r\n\r\n",
        b"GET /api/health HTTP/1.1\r\nHost: a b\r\n\r\n", b"GET /api/health HTTP/1.1\r\n" + HOST + b"Host: evil.example\r\n\r\n",
        b"GET /api/health HTTP/1.1\r\n" + HOST + b"X: a\0b\r\nOrigin: x\0y\r\n\r\n",
        b"POST /api/trace/export HTTP/1.1\r\n" + HOST + b"Content-Length: -1\r\n\r\n",
        b"POST /api/trace/export HTTP/1.1\r\n" + HOST + b"Content-Length: +2\r\n\r\n{}",
        b"POST /api/trace/export HTTP/1.1\r\n" + HOST + b"Content-Length: 2 \x0b\r\n\r\n{}",
        b"POST /api/trace/export HTTP/1.1\r\n" + HOST + b"Content-Length: 99999999999999999999999999\r\n\r\n{}",
        b"POST /api/trace/export HTTP/1.1\r\n" + HOST + b"Content-Length: 18446744073709551616\r\n\r\n{}",
        b"POST /api/trace/export HTTP/1.1\r\n" + HOST + b"Content-Length: 0x2\r\n\r\n{}",
        b"POST /api/trace/export HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n",
        b"POST /api/trace/export HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n-1\r\n{}\r\n0\r\n\r\n",
        b"POST /api/trace/export HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n{}\r\n0\r\n\r\n",
        b"POST /api/trace/export HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n2;" + b"x" * 70000 + b"\r\n{}\r\n0\r\n\r\n",
        b"POST /api/trace/export HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: gzip\r\n\r\n{}",
        b"POST /api/trace/export HTTP/1.1\r\n" + HOST + b"Content-Length: 100\r\n\r\n{}",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + os.urandom(500), os.urandom(4000),
    ]
    for data in cases:
        got = statuses(say(data, more=False))
        check(all(n in refused for n in got), "%r was answered with %s", data[:100], got)
        closed.append(not got)
    check(not all(closed), "nothing was answered at all")
    # A NUL ends the path for the library, so the shorter path is answered.
    for path, want in ((b"/nothing\0/api/health", 404), (b"/api/trace/nothing\0.json", 404)):
        equal(statuses(say(request(path))), [want], repr(path))
    alive()


def test_ambiguous():
    """Parsers must agree on a request's end: the hidden second request is never answered."""
    hidden = b"GET /api/health HTTP/1.1\r\n" + HOST + b"\r\n"
    body = b"0\r\n\r\n" + hidden
    post = b"POST /api/trace/export HTTP/1.1\r\n" + HOST
    for headers in (b"Content-Length: %d\r\nTransfer-Encoding: chunked\r\n" % len(body), b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n",
                    b"Content-Length: 5\r\nContent-Length: %d\r\n" % len(body), b"Content-Length: 5, %d\r\n" % len(body), b"Content-Length : 5\r\n",
                    b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n", b"Transfer-Encoding: xchunked\r\nContent-Length: 5\r\n",
                    b"Transfer-Encoding : chunked\r\n", b"Transfer-Encoding: chunked, identity\r\n", b"Transfer-Encoding:\x0bchunked\r\nContent-Length: 5\r\n",
                    b"X: y\r\n Content-Length: 5\r\n", b"Content-Length: 0\r\nContent-Length : 5\r\n", b"Content-Length\0: 5\r\n", b"Transfer-Encoding: identity\r\nContent-Length: 5\r\n"):
        for rest in (body, hidden):
            got = statuses(say(post + headers + b"\r\n" + rest, more=False))
            check(200 not in got, "%r: a hidden request was answered: %s", headers, got)
    alive()


def test_absolute_form():
    """The absolute form used with proxies: its host must equal the header's."""
    at = b"http://127.0.0.1:%d" % open_server().port
    host = b"Host: 127.0.0.1:%d\r\n" % open_server().port
    for path, want in ((at + b"/api/health", 200), (at, 200), (at.replace(b"http", b"HTTP") + b"/api/trace/list", 200), (at + b"/nothing", 404),
                       (b"http://evil.example/api/health", 400), (at + b"@evil.example/api/health", 400), (b"http:///api/health", 400),
                       (at + b".evil.example/api/health", 400)):
        equal(statuses(say(request(path, host=host))), [want], repr(path))
    equal(statuses(say(request(b"http://127.0.0.1/api/health", host=b""))), [400], "without Host")


def test_split():
    """Single bytes, and many requests at once: each is answered, in order."""
    c = Raw(open_server())
    for i, byte in enumerate(request("/api/trace/list")):
        c.send(bytes([byte]))
        if i % 20 == 0:
            time.sleep(0.01)
    equal(statuses(c.read()), [200], "a request in single bytes")
    many = b"".join(b"GET %s HTTP/1.1\r\n%s\r\n" % (p, HOST) for p in (b"/api/health", b"/nothing", b"/api/trace/list") * 20)
    equal(statuses(say(many + request())), [200, 404, 200] * 20 + [200], "requests on end")
    body = b'{"trace_id": "nothing", "format": "speedscope"}'
    chunks = b"".join(b"1\r\n%c\r\n" % b for b in body) + b"0\r\n\r\n"
    equal(statuses(say(request("/api/trace/export", b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n", "POST", chunks))), [404],
          "a body in chunks of a byte")
    # The client disconnects at any point.
    for _ in range(20):
        c = Raw(open_server())
        c.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        c.send(b"POST /api/trace/export HTTP/1.1\r\n" + HOST + b"Content-Length: 100\r\n\r\n{")
        c.close()
    alive()


def test_oversized():
    for data, want in ((b"GET /" + b"a" * 1000000 + b" HTTP/1.1\r\n" + HOST + b"\r\n", (414, 431, 400)),
                       (b"GET / HTTP/1.1\r\n" + HOST + b"X: " + b"a" * 1000000 + b"\r\n\r\n", (431, 400, 413)),
                       (b"GET / HTTP/1.1\r\n" + HOST + b"X: y\r\n" * 100000 + b"\r\n", (431, 400, 413)),
                       (b"GET / HTTP/1.1\r\n" + b"a" * 1000000, (431, 400, 413)),
                       (b"GET /?" + b"a=b&" * 100000 + b" HTTP/1.1\r\n" + HOST + b"\r\n", (414, 431, 400)),
                       (request("/api/trace/export", b"Content-Length: 10000000\r\n", "POST", b" " * 10000000), (413,)),
                       (request("/api/trace/export", b"Transfer-Encoding: chunked\r\n", "POST", b"10000\r\n" + b" " * 65536 + b"\r\n" +
                                (b"10000\r\n" + b" " * 65536 + b"\r\n") * 40), (413,)),
                       (request("/api/trace/export", b"Content-Length: 99999999999\r\n", "POST"), (413,))):
        got = statuses(say(data))
        check(not got or (len(got) == 1 and got[0] in want), "%r... was answered with %s", data[:60], got)
    # A client that waits for the answer sends one request.
    c = Raw(open_server())
    c.send(b"POST /api/trace/export HTTP/1.1\r\n" + HOST + b"Content-Type: application/json\r\nContent-Length: 100000\r\nExpect: 100-continue\r\n\r\n")
    equal(c.socket.recv(65536).split(b"\r\n", 1)[0].split()[1], b"413", "100 KB announced")
    c.close()
    deep = b"[" * 60000
    equal(statuses(say(request("/api/trace/export", b"Content-Length: %d\r\n" % len(deep), "POST", deep))), [422], "60,000 arrays")
    alive()


def test_paths():
    s = open_server()
    trace = s.get("/api/trace/list").expect().json["active_traces"][0]
    ups = ["../", "..%2f", "%2e%2e/", "%2e%2e%2f", "..%5c", "..\\", "%252e%252e%252f", "..;/", "%c0%ae%c0%ae/", ".%00./", "./.././"]
    paths = ["/api/trace/download/" + up * 8 + "etc/passwd" for up in ups] + ["/" + up * 8 + "etc/passwd" for up in ups]
    paths += ["/api/trace/download/" + name for name in ("/etc/passwd", "%2fetc%2fpasswd", ".", "..", "", "%00", trace + ".mtr%00.json", ".hidden", "a" * 300, "*",
                                                          "~root", "file:///etc/passwd", "../" + trace + ".mtr")]
    paths += ["/api/trace/" + up + name for up in ups for name in ("list", trace)]
    paths += ["//api/health", "/api//health", "/api/health/", "/API/HEALTH", "/api/./health", "/api/trace/../health", "/.", "/..", "/%2e"]
    for path in paths:
        answer = say(request(path))
        check(200 not in statuses(answer) and b"root:x:" not in answer, "%s: %s", path, answer[:300])
    for path in ("http://127.0.0.1/etc/passwd", "file:///etc/passwd", "*", "127.0.0.1:22", "etc/passwd"):
        check(200 not in statuses(say(request(path))), "%s was answered", path)
    check(statuses(say(request("/api/trace/%s" % trace))) == [200], "the trace itself")


def test_echo():
    """Content of a request never becomes a header or markup."""
    for path in ("/api/trace/x%0d%0aSet-Cookie:%20a=b", "/api/trace/%0d%0a%0d%0a<script>", "/x%0aSet-Cookie:a", "/<script>alert(1)</script>",
                 "/api/trace/list?<script>=1", "/api/trace/list?a%0d%0aSet-Cookie:%20x=1", "/api/trace/download/%22%0d%0aX:y"):
        answer = say(request(path))
        head, _, body = answer.partition(b"\r\n\r\n")
        check(statuses(answer)[0] in (400, 404, 422), "%s: %s", path, answer[:200])
        check(b"set-cookie" not in head.lower() and b"\nX:" not in head, "%s: became a header: %r", path, head)
        check(b"Content-Type: application/json" in head and b"nosniff" in head, "%s: %r", path, head)
        check(b"\\u001b" not in body and b"\x1b" not in body, "%s: %r", path, body)
        json.loads(body)


def test_methods():
    s = open_server()
    got = s.ask("HEAD", "/api/health").expect()
    equal((got.body, got.type.split(";")[0]), (b"", "application/json"), "HEAD")
    for method in ("PUT", "PATCH", "TRACE", "PROPFIND", "LONGERTHANANYMETHODTHATTHEREIS"):
        answer = say(request("/api/health", b"X-Secret: abc\r\n", method))
        check(not statuses(answer) or statuses(answer)[0] in (400, 405, 501), "%s: %s", method, answer[:200])
        check(b"X-Secret" not in answer, "%s echoes headers", method)
    check(statuses(say(request("127.0.0.1:80", b"", "CONNECT")))[0] in (400, 404, 405, 501), "CONNECT")
    answer = say(request("/api/health", b"Origin: http://evil.example\r\nAccess-Control-Request-Method: POST\r\n", "OPTIONS"))
    check(b"access-control-allow" not in answer.lower() and statuses(answer) == [403], "a preflight of another site: %s", answer[:300])


# ---- origins ----

def test_names():
    for host, want in ((b"127.0.0.1", 200), (b"localhost:1", 200), (b"[::1]:8000", 200), (b"evil.example", 403), (b"evil.example:8000", 403),
                       (b"127.0.0.1.evil.example", 403), (b"0.0.0.0", 403), (b"gpu.example", 403), (b"", 400), (b"a b", 400)):
        equal(statuses(say(request(host=b"Host: " + host + b"\r\n"))), [want], "Host: %r" % host)
    body = b'{"trace_id": "nothing", "format": "speedscope"}'
    for headers, want in ((b"", 404), (b"Origin: http://127.0.0.1\r\n", 404), (b"Origin: https://127.0.0.1\r\n", 404), (b"Origin: http://127.0.0.1:81\r\n", 403),
                          (b"Origin: null\r\n", 403), (b"Origin: http://evil.example\r\n", 403), (b"Sec-Fetch-Site: cross-site\r\n", 403),
                          (b"Sec-Fetch-Site: same-site\r\n", 403), (b"Sec-Fetch-Site: same-origin\r\n", 404)):
        # Forms and images of other sites, sent without a preflight.
        for kind in (b"application/json", b"text/plain"):
            got = statuses(say(request("/api/trace/export", headers + b"Content-Type: %s\r\nContent-Length: %d\r\n" % (kind, len(body)), "POST", body)))
            check(got == [want] or (want == 404 and kind == b"text/plain" and got == [415]), "%r as %s: %s", headers, kind, got)


def test_unix_socket():
    open_server()
    path = _shared["socket"]
    mode = os.stat(path).st_mode & 0o777
    check(mode in (0o600, 0o660), "the socket may be used by all: %o", mode)
    with socket.socket(socket.AF_UNIX) as s:
        s.settimeout(10)
        s.connect(path)
        s.sendall(request("/api/health", host=b"Host: whatever\r\n"))
        out = b""
        while True:
            more = s.recv(65536)
            if not more:
                break
            out += more
    equal(statuses(out), [200], "over the Unix socket")


# ---- slow and many clients ----

def test_slow():
    """Slow requests of all kinds, many at once: they are cut off, and other clients do not wait."""
    s = open_server()
    begun = time.monotonic()
    slow = []
    starts = (b"GET /api/health HTTP/1.1\r\nX: ", b"POST /api/trace/export HTTP/1.1\r\n" + HOST + b"Content-Length: 60000\r\n\r\n", b"",
              b"POST /api/trace/export HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n1000\r\n", b"GET /api/hea")
    for i in range(60):
        slow.append(Raw(s, timeout=1).send(starts[i % len(starts)]))
    # A slow TLS handshake.
    slow += [Raw(strict_server(), timeout=1).send(b"\x16\x03\x01\x40\x00\x01\x00\x3f\xfc\x03\x03") for _ in range(5)]
    left = list(slow)
    while left and time.monotonic() - begun < 20:
        alive()
        for c in list(left):
            try:
                c.send(b"a")
                c.socket.setblocking(False)
                if not c.socket.recv(65536):
                    left.remove(c)
            except BlockingIOError:
                pass
            except (BrokenPipeError, ConnectionResetError):
                left.remove(c)
            finally:
                with contextlib.suppress(OSError):
                    c.socket.settimeout(1)
        time.sleep(0.5)
    for c in slow:
        c.close()
    equal(len(left), 0, "connections that went on for 20 s without a whole request")


def test_many_connections():
    """One peer may have half of the connections, and loopback counts as one peer; a new client replaces the connection idle for
    longest."""
    s = open_server()
    held = []
    with contextlib.suppress(OSError):
        for i in range(600):
            held.append(Raw(s, source="127.0.0.%d" % (2 + i % 2), timeout=0.2))
    for c in held:
        c.socket.setblocking(False)

    def is_open(c):
        try:
            return c.socket.recv(1) != b""
        except BlockingIOError:
            return True
        except OSError:
            return False

    harness.until(lambda: sum(map(is_open, held)) <= 260, "no more than 260 connections of one peer are open")
    for source in ("127.0.0.1", "127.0.0.4"):
        c = Raw(s, source, timeout=5).send(request())
        equal(statuses(c.read()), [200], "somebody else, from " + source)
        c.close()
    alive()
    for c in held:
        c.close()


def test_connections_with_a_token_stay():
    """Connections with a token are not closed to make room."""
    token = scratch("stay-token")
    with open(os.open(token, os.O_CREAT | os.O_WRONLY, 0o600), "w", encoding="ascii") as f:
        f.write(TOKEN + "\n")
    s = server.Server("--token-file", token, recording(), root=ROOT)
    mine = Raw(s).send(b"GET /api/trace/list HTTP/1.1\r\n" + HOST + bearer(TOKEN) + b"\r\n")
    equal(statuses(mine.read(0.5)), [200], "with the token")
    held = [Raw(s, timeout=5) for _ in range(600)]
    mine.send(b"GET /api/trace/list HTTP/1.1\r\n" + HOST + bearer(TOKEN) + b"Connection: close\r\n\r\n")
    mine.socket.settimeout(5)
    equal(statuses(mine.read()), [200], "the connection that has shown the token")
    # Wrong tokens from this machine lock out its clients for at most a second.
    ask_plain = lambda text, source: statuses(Raw(s, source).send(request("/api/trace/list", bearer(text))).read())
    got = [ask_plain("guess-number-%020d" % i, "127.0.0.5")[0] for i in range(14)]
    equal(got, [401] * 10 + [429] * 4, "guesses")
    equal(ask_plain(TOKEN, "127.0.0.6"), [200], "the right one")
    for c in held:
        c.close()
    s.stop()


def test_slow_readers():
    """Clients that request large answers and read nothing use no memory each; a client that reads gets all."""
    s = open_server()
    page = s.get("/api/docs").expect().body.decode()
    assets = {a: s.get(a).expect().body for a in set(re.findall(r"/assets/[\w.-]+", page))}
    longest = max(assets, key=lambda a: len(assets[a]))
    before = server.memory(web_of(s))
    if not before:
        raise Skip("its memory cannot be read")
    held = [Raw(s, source="127.0.0.7").send(b"GET " + longest.encode() + b" HTTP/1.1\r\n" + HOST + b"\r\n") for _ in range(200)]
    alive()
    grown = server.memory(web_of(s)) - before
    check(grown < 32 << 20, "200 readers of %d bytes take %d", len(assets[longest]), grown)
    check(say(request(longest)).endswith(assets[longest]), "somebody else's is not whole")
    for c in held:
        c.close()


def test_streams():
    """One peer may have half of the streams; another peer gets one."""
    s, other = open_server(), another_peer()
    held = [Raw(s, source=other, timeout=5).send(b"GET /api/stream HTTP/1.1\r\n" + HOST + b"\r\n") for _ in range(66)]
    got = [c.socket.recv(12) for c in held]
    equal((got.count(b"HTTP/1.1 200"), got.count(b"HTTP/1.1 429")), (64, 2), "streams of one peer")
    events = s.events("/api/stream")
    equal(next(iter(events))[0], "hello", "another one's stream")
    events.close()
    for c in held:
        c.close()


# ---- token, cookie, rate, TLS ----

def secure(source=None):
    s = strict_server()
    context = ssl.create_default_context(cafile=_shared["cert"])
    raw = Raw(s, source)
    raw.socket = context.wrap_socket(raw.socket, server_hostname="localhost")
    return raw


def ask(path, headers=b"", method="GET", body=b"", source=None, host=HOST):
    c = secure(source)
    c.send(request(path, headers + (b"Content-Length: %d\r\n" % len(body) if body else b""), method, body, host))
    out = c.read()
    c.close()
    return out


def bearer(token):
    return b"Authorization: Bearer " + token.encode() + b"\r\n"


def test_tls():
    strict_server()
    check(b"HTTP/1.1 200" in ask("/api/health"), "TLS")
    equal(statuses(say(request(), strict_server())), [], "HTTP without TLS")
    check(b"200" in ask("/api/health", host=b"Host: gpu.example\r\n").split(b"\r\n")[0], "--allow-host")
    # An obsolete TLS version, which this client supports.
    done = subprocess.run(["openssl", "s_client", "-connect", "127.0.0.1:%d" % strict_server().port, "-tls1_1", "-cipher", "ALL:@SECLEVEL=0"],
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=20, check=False)
    check("no peer certificate" in done.stdout, "TLS 1.1: %s", done.stderr[-300:] + done.stdout[-600:])
    equal(secure().socket.version(), "TLSv1.3", "TLS")


def test_token():
    strict_server()
    you = "127.0.0.20"
    equal(statuses(ask("/api/trace/list", source=you)), [401], "no token")
    answer = ask("/api/health", source=you)
    check(b"Memtrace-Api-Version: 1\r\n" in answer and b'"api_version":1' in answer, "version without a token: %r", answer)
    check(b"WWW-Authenticate: Bearer" in ask("/api/trace/list", source=you), "no word of how")
    equal(statuses(ask("/api/trace/list", bearer(TOKEN), source=you)), [200], "the token")
    for wrong in (TOKEN[:-1], TOKEN + "x", TOKEN.upper(), "x" * 600):
        equal(statuses(ask("/api/trace/list", bearer(wrong), source=you)), [401], wrong[:40])
    equal(statuses(ask("/nothing", source=you)), [401], "what there is, is not told either")
    for path in ("/api/trace/list?token=" + TOKEN, "/metrics", "/debug/pprof/memory?seconds=1", "/api/stream"):
        check(statuses(ask(path, source=you)) != [200], "%s without the token", path)
    # Guessing: after ten wrong tokens the peer is ignored, and others are not affected.
    thief = another_peer()
    got = [statuses(ask("/api/trace/list", bearer("guess-number-%020d" % i), source=thief))[0] for i in range(14)]
    equal(got, [401] * 10 + [429] * 4, "guesses")
    equal(statuses(ask("/api/trace/list", bearer(TOKEN), source=thief)), [429], "the right one after them")
    equal(statuses(ask("/api/trace/list", bearer(TOKEN), source=you)), [200], "somebody else")


def log_in(token, source, headers=b""):
    return ask("/api/session", b"Content-Type: application/json\r\n" + headers, "POST", json.dumps({"token": token}).encode(), source)


def test_cookie():
    strict_server()
    you = "127.0.0.22"
    equal(statuses(log_in("not the token at all", you)), [401], "a wrong token")
    check(b"set-cookie" not in log_in("not the token at all", you).lower(), "a cookie for a wrong token")
    equal(statuses(log_in(TOKEN, you, b"Origin: https://evil.example\r\n")), [403], "another site's page logs in")
    answer = log_in(TOKEN, you)
    check(statuses(answer)[0] in (200, 204), "login: %s", answer[:200])
    line = re.search(rb"^Set-Cookie: (.*)\r$", answer, re.M | re.I)[1].decode()
    for word in ("HttpOnly", "SameSite=Strict", "Secure", "Path=/"):
        check(word in line, "the cookie has no %s: %s", word, line)
    check(TOKEN not in line, "the cookie is the token")
    cookie = b"Cookie: " + line.split(";")[0].encode() + b"\r\n"
    equal(statuses(ask("/api/trace/list", cookie, source=you)), [200], "with the cookie")
    equal(statuses(ask("/api/trace/list", cookie + b"Origin: https://evil.example\r\n", source=you)), [403], "another site's page with the cookie")
    equal(statuses(ask("/api/trace/list", cookie.replace(b"=", b"=0"), source=you)), [401], "another cookie")


def test_rate():
    s = server.Server("--requests-per-minute", "240", recording(), root=ROOT)
    c = Raw(s, "127.0.0.23").send((b"GET /api/health HTTP/1.1\r\n" + HOST + b"\r\n") * 74 + request())
    got = statuses(c.read())
    check(got[:60] == [200] * 60 and 429 in got[60:], "75 at once, where 240 a minute may come: %s", got)
    limited = Raw(s, "127.0.0.24").send(request()).read()
    check(re.search(rb"^Retry-After: [1-9]", limited, re.M), "no Retry-After: %s", limited[:200])
    equal(statuses(Raw(s, another_peer()).send(request()).read()), [200], "somebody else")
    s.stop()


# ---- files put into the folder ----

def test_planted():
    """Links, FIFOs, folders, invalid files and facts: they are not listed as recordings, and nothing else is read."""
    folder = scratch("planted")
    os.mkdir(folder, 0o700)
    path = lambda name: os.path.join(folder, name)
    os.symlink("/etc/passwd", path("trace_1.mtr"))
    os.mkfifo(path("trace_2.mtr"))
    os.mkdir(path("trace_3.mtr"))
    shutil.copy(recording(), path("trace_4.mtr"))
    os.link(recording(), path("trace_10.mtr"))  # a hard link
    facts = {"trace_4": '{"model_name": "\\u001b[2J<script>", "pid": 1e99, "events": -1, "begun": "x", "input_shape": [-1, "a", 1e300], "given": true}',
             "trace_5": "[" * 60000, "trace_6": '{"error": "%s"}' % ("x" * 60000)}
    for name, text in facts.items():
        with open(path(name + ".json"), "w", encoding="ascii") as f:
            f.write(text)
    for name, data in (("trace_5.mtr", b"nonsense" * 1000), ("trace_6.mtr", b""), ("trace_7.mtr", os.urandom(100000)), (".trace_8.mtr", b"x"),
                       ("trace_9\n.mtr", b"x"), ("other.mtr", b"x")):
        with open(path(name), "wb") as f:
            f.write(data)
    os.symlink("/etc/passwd", path("trace_7.json"))
    s = server.Server(folder=folder, root=ROOT)
    for trace in s.get("/api/trace/list").expect().json["active_traces"]:
        s.wait_trace(trace)
        answer = s.get("/api/trace/%s/recording" % trace)
        check(b"root:x:" not in answer.body, "%s: %s", trace, answer.body[:200])
    traces = {t["trace_id"]: t for t in s.get("/api/trace/list").expect().json["traces"]}
    equal((traces["trace_4"]["state"], traces["trace_4"]["model_name"]), ("done", "\\x1b[2J<script>"), "the one that is a recording")
    check(all(t["state"] == "failed" for n, t in traces.items() if n != "trace_4"), "what is none: %s", traces)
    check(not {"trace_1", "trace_2", "trace_3", "trace_8", "trace_10", "other"} & set(traces), "what is no file: %s", sorted(traces))
    s.stop()
    check(os.path.exists("/etc/passwd") and os.path.lexists(path("trace_1.mtr")), "what is not the server's has gone")


# ---- refused at the start ----

def refused(*args, code, words):
    got, _, err = harness.tool("serve", "-o", scratch("never"), *args, seconds=20)  # 64: invalid arguments
    equal(got, code, "serve %s: %s" % (" ".join(args), err))
    check(re.search(words, err), "serve %s says %r", " ".join(args), err)


def test_refused():
    server.needs_serve()
    loose, short = scratch("loose"), scratch("short")
    for path, text, mode in ((loose, TOKEN, 0o644), (short, "short", 0o600)):
        with open(os.open(path, os.O_CREAT | os.O_WRONLY, mode), "w", encoding="ascii") as f:
            f.write(text)
        os.chmod(path, mode)
    refused("--listen", "0.0.0.0:0", recording(), code=64, words="--token-file")
    refused("--listen", "[::]:0", recording(), code=64, words="--token-file")
    refused("--listen", "example.com:80", recording(), code=64, words="address")
    refused("--listen", "127.0.0.1:0", "--token-file", loose, recording(), code=1, words="others can read")
    refused("--listen", "127.0.0.1:0", "--token-file", short, recording(), code=64, words="16")
    code, words = (64, "short") if has_https() else (1, "no HTTPS")
    refused("--listen", "127.0.0.1:0", "--tls-cert", short, "--tls-key", short, recording(), code=code, words=words)


def test_end():
    """After all that, both servers end properly and leave nothing."""
    if not _shared:
        raise Skip("nothing was started")
    open_server().stop()
    check(not os.path.exists(_shared["socket"]), "the Unix socket is still there")
    if "strict" in _shared:
        _shared["strict"].stop()


if __name__ == "__main__":
    run(globals())

# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
A job of many ranks on many simulated hosts, for tests of `fetch` and of reports of many: each host is a network namespace with its
own `serve` (TLS and a token), and its own wrong clock. Without the right to make namespaces, hosts are addresses of loopback.
The ranks are processes of tests/workloads/fleet.py, which need no PyTorch.
"""
import atexit
import contextlib
import glob
import http.server
import json
import os
import select
import shutil
import socket
import subprocess
import sys
import threading
import time

import chaos
import harness
import server
from harness import Failure, check, scratch, spawn

JOB = os.path.join(harness.WORKLOADS, "fleet.py")
TOKEN = "correct-horse-battery-staple"
PORT = 8000


def ip(*words):
    return subprocess.run(["ip", *words], capture_output=True, text=True, check=False).returncode == 0


def has_namespaces():
    name = "mt-try-%d" % os.getpid()
    made = harness.IS_ROOT and shutil.which("ip") and ip("netns", "add", name)
    if made:
        ip("netns", "del", name)
    return bool(made)


class Host:
    """Number n of this run, from 0 on. skew: ns that its clock is ahead."""

    def __init__(self, n, skew=0, namespace=True):
        self.name, self.skew, self.ranks, self.server = "node%d" % n, skew, [], None
        self.namespace = "mt-%d-%d" % (os.getpid(), n) if namespace else None
        self.folder = scratch("served-%d" % n)
        if self.namespace:
            near, far = "mt%dn%d" % (os.getpid() % 100000, n), "eth0"
            net = "10.%d.%d" % (128 + os.getpid() % 100, n)
            self.address = net + ".2"
            harness.undo_on_signal.append(self.remove)
            atexit.register(self.remove)
            check(ip("netns", "add", self.namespace), "no network namespace")
            check(ip("link", "add", near, "type", "veth", "peer", "name", far, "netns", self.namespace) and
                  ip("addr", "add", net + ".1/24", "dev", near) and ip("link", "set", near, "up") and
                  ip("-n", self.namespace, "addr", "add", self.address + "/24", "dev", far) and
                  ip("-n", self.namespace, "link", "set", far, "up") and ip("-n", self.namespace, "link", "set", "lo", "up"), "no veth")
        else:
            self.address = "127.0.%d.1" % (n + 1)

    def remove(self):
        if self.namespace:
            ip("netns", "del", self.namespace)
        self.namespace = None

    def prefix(self):
        return ["nsenter", "--net=/run/netns/" + self.namespace] if self.namespace else []

    def start_rank(self, rank, world, extra=0):
        env = dict(os.environ, RANK=str(rank), WORLD_SIZE=str(world), LOCAL_RANK=str(len(self.ranks)), **({"FLEET_EXTRA": str(extra)} if extra else {}))
        # Debian's Python and PyTorch's own are walked alike; this one needs no package.
        p = spawn([sys.executable, JOB, chaos.hooks()], env=env, kept=True)
        p.wait_line("^ready", 30)
        self.ranks.append((rank, p))

    def serve(self, files, port=PORT):
        """files: of the token and, if the build has HTTPS, of certificate and key."""
        env = dict(os.environ, CLOCK_SKEW_NS=str(self.skew))
        if self.skew:
            env["LD_PRELOAD"] = chaos.compiled("clock_skew.c", "clock_skew.so", "-shared", "-fPIC")
        tls = ["--tls-cert", files[1], "--tls-key", files[2]] if len(files) > 1 else []
        targets = [word for rank, p in self.ranks for word in ("--target", "rank-%d=%d" % (rank, p.pid))]
        self.server = Served(*targets, "--token-file", files[0], *tls, "--max-captures", "64", "--cost", "off", "--requests-per-minute", "0", folder=self.folder,
                             listen="%s:%d" % (self.address, port), env=env, prefix=self.prefix(), kept=True)

    def wait_window(self, seconds):
        """Returns `seconds` after the begin of the window that is captured on this host."""
        limit = time.monotonic() + 300
        while time.monotonic() < limit:
            for path in glob.glob(os.path.join(self.folder, "trace_*.json")):
                with contextlib.suppress(OSError, ValueError), open(path, encoding="utf-8") as f:
                    start = json.load(f).get("start_at", 0) - self.skew / 1e9
                    if start + seconds > time.time() - 1:
                        time.sleep(max(0, start + seconds - time.time()))
                        return
            time.sleep(0.05)
        raise Failure("no window on " + self.name)

    def url(self):
        return self.server.url


class Served(server.Server):
    """Its stop() asks nothing over the network, which may be another one."""

    def stop(self, seconds=20):
        self.process.signal(harness.signal.SIGTERM)
        code = self.process.wait(seconds)
        check(code == 0, "exit code of serve: %s: %s", code, self.process.tail(self.process.stderr()))


def make_files(addresses):
    """Paths of a token, and of a certificate for these addresses with its key if this build has HTTPS."""
    token = scratch("fleet-token")
    with open(os.open(token, os.O_CREAT | os.O_WRONLY, 0o600), "w", encoding="ascii") as f:
        f.write(TOKEN + "\n")
    if "without HTTPS" in harness.tool("version")[1] or not shutil.which("openssl"):
        return [token]
    return [token, *make_certificate("fleet", addresses)]


def make_certificate(name, addresses):
    cert, key = scratch(name + "-cert.pem"), scratch(name + "-key.pem")
    made = subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj",
                           "/CN=fleet", "-addext", "subjectAltName=" + ",".join("IP:" + a for a in addresses), "-keyout", key, "-out", cert],
                          capture_output=True, text=True, check=False)
    check(made.returncode == 0, "openssl: %s", made.stderr)
    return cert, key


class Late:
    """Passes connections on to a server, each byte of the answer late by `seconds`."""

    def __init__(self, address, port, seconds):
        self.to, self.seconds = (address, port), seconds
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                near, _ = self.socket.accept()
            except OSError:
                return
            threading.Thread(target=self.carry, args=(near,), daemon=True).start()

    def carry(self, near):
        try:
            with near, socket.create_connection(self.to, 10) as far:
                while True:
                    for ready in select.select([near, far], [], [])[0]:
                        data = ready.recv(65536)
                        if not data:
                            return
                        if ready is far:
                            time.sleep(self.seconds)
                        (near if ready is far else far).sendall(data)
        except OSError:
            pass

    def close(self):
        self.socket.close()


def head(handler, status, length):
    """The beginning of an answer of a Hostile."""
    handler.send_response(status)
    handler.send_header("Content-Length", str(length))
    handler.end_headers()


def clock(handler):
    """A Hostile's GET /api/clock."""
    body = json.dumps({"time_ns": time.time_ns()}).encode()
    head(handler, 200, len(body))
    handler.wfile.write(body)


class Hostile:
    """A server that answers as a test says: answers maps "METHOD /path" to (status, body) or to a function of the handler."""

    def __init__(self, answers):
        outer = self
        self.asked = []

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self):
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                outer.asked.append("%s %s" % (self.command, self.path))
                found = answers.get(outer.asked[-1], answers.get("*", (404, {"detail": "no"})))
                if callable(found):
                    found(self)
                    return
                status, body = found
                body = body if isinstance(body, bytes) else json.dumps(body).encode()
                head(self, status, len(body))
                self.wfile.write(body)

            do_GET = do_POST = do_DELETE = answer

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.server.handle_error = lambda *_: None  # clients that close are part of the tests
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()


class Fleet:
    """hosts simulated hosts with `each` ranks, rank `odd` with `extra` bytes more. more: addresses of the certificate."""

    def __init__(self, hosts, each, odd=-1, extra=48 << 20, skews=(), more=()):
        namespaces = has_namespaces()
        self.hosts = [Host(n, skews[n] if n < len(skews) else 0, namespaces) for n in range(hosts)]
        self.world = hosts * each
        self.files = make_files([h.address for h in self.hosts] + ["127.0.0.1", *more])
        for i in range(self.world):
            self.hosts[i // each].start_rank(i, self.world, extra if i == odd else 0)
        for h in self.hosts:
            h.serve(self.files)

    def fetch(self, folder, urls, *options, seconds=300):
        """urls: (URL, name) of each host. Returns exit status, standard output, messages."""
        path = scratch("hosts-%d" % time.monotonic_ns())
        with open(path, "w", encoding="utf-8") as f:
            f.writelines("%s %s\n" % pair for pair in urls)
        env = {k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy")}
        trust = ["--ca", self.files[1]] if len(self.files) > 1 else ["--insecure"]
        return harness.tool("fetch", "--hosts", path, "--token-file", self.files[0], *trust, "-o", folder, *options, env=env, seconds=seconds)

    def end(self):
        for h in self.hosts:
            h.server.stop()
            for _, p in h.ranks:
                p.popen.stdin.close()
        for h in self.hosts:
            for rank, p in h.ranks:
                harness.equal(p.wait(30), 0, "exit code of rank %d" % rank)
            h.remove()

# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
Jobs forked from a Python that has imported PyTorch already: start/forks.py. The import takes two seconds of CPU time, a fork a few
milliseconds. Each set of interpreter, options and environment has one such Python, which ends with the file of tests.
"""
import array
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.join(HERE, "start"))
from forks import PLACEHOLDER  # noqa: E402 (its folder is in the path now)

SECONDS = 300  # for an answer; the first one comes after the import
MOST = 3  # servers without jobs that wait for more
_servers = {}  # in the order of their last use
_lock = threading.Lock()  # of _servers: tests start jobs in several threads


class Server:
    def __init__(self, options, env):
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self.process = subprocess.Popen([*options, PLACEHOLDER], env=dict(env, MEMTRACE_FORKS=str(theirs.fileno())),
                                            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, pass_fds=[theirs.fileno()])
        self.channel, self.lock, self.jobs, self.starting = ours, threading.Lock(), [], 0
        ours.settimeout(SECONDS)

    def is_idle(self):
        return not self.starting and all(job.poll() is not None for job in self.jobs)

    def stop(self):
        self.channel.close()
        self.process.wait()
        self.process.stdout.close()

    def ask(self, request, fds=()):
        with self.lock:
            self.channel.sendmsg([json.dumps(request).encode()], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else [])
            answer = self.channel.recv(1 << 12)
        if not answer:
            raise RuntimeError("%s ended" % " ".join(self.process.args[:-1]))
        return json.loads(answer)


def options_of(command):
    """The interpreter and its options: what is before the script, or before the code of -c."""
    i = 1
    while command[i].startswith("-") and command[i] != "-c":
        i += 2 if command[i] in ("-W", "-X") else 1
    return tuple(command[:i + (command[i] == "-c")])


def server_for(command, env):
    """A server that does not end before its `starting` is counted down."""
    options = options_of(command)
    key = options, tuple(sorted(env.items()))
    with _lock:
        server = _servers[key] = _servers.pop(key, None) or Server(options, env)
        server.starting += 1
        idle = [k for k, other in _servers.items() if other.is_idle()]
        for k in idle[:-MOST]:
            _servers.pop(k).stop()
    return server


def started(server, job):
    with _lock:
        server.starting -= 1
        if job:
            server.jobs.append(job)


class Popen:
    """What harness.Process uses of subprocess.Popen."""

    def __init__(self, command, stdin, stdout, stderr, env, cwd):
        self.server, self.args, self.returncode = server_for(command, dict(os.environ if env is None else env)), command, None
        theirs, ours = [], []
        for i, end in enumerate((stdin, stdout, stderr)):
            if end == subprocess.PIPE:
                pair = os.pipe()
                theirs.append(pair[i > 0])
                ours.append(os.fdopen(pair[i == 0], "rb" if i else "wb"))
            else:
                theirs.append(os.open(os.devnull, os.O_RDWR) if end == subprocess.DEVNULL else os.dup(end if isinstance(end, int) else end.fileno()))
                ours.append(None)
        self.stdin, self.stdout, self.stderr = ours
        self.polling = threading.Lock()  # server_for() polls the jobs of other threads, and a status can be had once
        job = None
        try:
            self.pid = self.server.ask({"command": command, "cwd": cwd or os.getcwd()}, theirs)
            self.pidfd = os.pidfd_open(self.pid)
            job = self
        finally:
            started(self.server, job)
            for fd in theirs:
                os.close(fd)

    def poll(self):
        with self.polling:
            if self.returncode is None:
                status = self.server.ask({"wait": self.pid})
                self.returncode = None if status is None else os.waitstatus_to_exitcode(status)
            return self.returncode

    def wait(self, timeout=None):
        if self.returncode is None and not select.select([self.pidfd], [], [], timeout)[0]:
            raise subprocess.TimeoutExpired(self.args, timeout)
        return self.poll()

    def send_signal(self, number):
        if self.poll() is None:
            signal.pidfd_send_signal(self.pidfd, number)

    def kill(self):
        self.send_signal(signal.SIGKILL)

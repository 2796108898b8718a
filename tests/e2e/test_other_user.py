#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Commands that memtrace-bpf starts as another user than its own get nothing from it that is not theirs: no way to type into its
terminal, none of its open files. Their set-user-ID programs go on working."""
import fcntl
import json
import os
import pty
import re
import shutil
import subprocess
import sys
import termios

import harness
from harness import AS_NOBODY, IS_ROOT, REPO, Skip, check, equal, run, scratch

NOBODY = 65534
PYTHON = "/usr/bin/python3"  # one that others can run

# Types a line into the controlling terminal, as a shell would read it, and says what came of it.
TYPIST = """#!%s
import fcntl, os, termios
fd = os.open("/dev/tty", os.O_RDWR)
try:
    for c in b"rm -rf everything\\n":
        fcntl.ioctl(fd, termios.TIOCSTI, bytes([c]))
    os.write(fd, b"uid %%d typed\\n" %% os.getuid())
except OSError as e:
    os.write(fd, b"uid %%d refused: %%d\\n" %% (os.getuid(), e.errno))
""" % PYTHON

# Stands for root's shell: runs a command on its terminal, then reads what is there to be read.
SHELL = """
import os, subprocess, sys
subprocess.call(sys.argv[1:])
os.set_blocking(0, False)
try:
    print("to read: %r" % os.read(0, 1000))
except BlockingIOError:
    print("to read: nothing")
"""


def place(name, *sources):
    """A folder that all can read, with these programs."""
    if not IS_ROOT or not shutil.which("setpriv"):
        raise Skip("needs root, to run a command as somebody else")
    path = scratch(name)
    os.mkdir(path)
    os.chmod(path, 0o755)
    above = path
    while above != "/":
        above = os.path.dirname(above)
        if not os.stat(above).st_mode & 1:
            raise Skip("%s is not for others" % above)
    for source in sources:
        os.chmod(shutil.copy(source, path), 0o755)
    typist = os.path.join(path, "python3")
    with open(typist, "w", encoding="ascii") as f:
        f.write(TYPIST)
    os.chmod(typist, 0o755)
    return path, typist


def on_a_terminal(*command, env=None):
    """What the terminal of root's shell shows when the shell has run the command."""
    ours, theirs = pty.openpty()

    def leads():
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    p = subprocess.Popen([sys.executable, "-c", SHELL, *command], stdin=theirs, stdout=theirs, stderr=theirs, preexec_fn=leads, env=env)
    os.close(theirs)
    text = b""
    while True:
        try:
            data = os.read(ours, 65536)
        except OSError:
            break
        if not data:
            break
        text += data
    os.close(ours)
    equal(p.wait(60), 0, "exit code of the shell")
    return text.decode("utf-8", "replace").replace("\r", "")


def types_nothing(text, what):
    check("uid %d refused: 1\n" % NOBODY in text, "%s: the command did not try as the user nobody: %s", what, text)
    check("to read: nothing" in text, "%s: root's shell has input: %s", what, text)


def test_root_s_terminal_gets_no_input():
    """No command of another user's types into the terminal that memtrace-bpf was started on."""
    folder, typist = place("types")
    with open("/proc/sys/dev/tty/legacy_tiocsti", encoding="ascii") as f:
        off = f.read().strip() == "0"
    text = on_a_terminal(typist)
    check("to read: b'rm" in text, "root itself cannot type, so this test shows nothing: %s", text)
    text = on_a_terminal(*AS_NOBODY, typist)
    check(off or "to read: b'rm" in text, "the user nobody cannot type without memtrace-bpf, so this test shows nothing: %s", text)
    behind_sudo = dict(os.environ, SUDO_UID=str(NOBODY), SUDO_GID=str(NOBODY))
    for options in (("--no-trace",), ("--inside", "-o", os.path.join(folder, "run.mtr"))):
        types_nothing(on_a_terminal(harness.TOOL, "run", "--user", "nobody", *options, "--", typist), "run --user %s" % (options,))
    types_nothing(on_a_terminal(harness.TOOL, "run", "--no-trace", "--", typist, env=behind_sudo), "run behind sudo")
    recording = os.path.join(REPO, "tests", "data", "guide", "base.mtr")
    types_nothing(on_a_terminal(harness.TOOL, "replay", "--python", typist, recording, env=behind_sudo), "the interpreter that replay asks")
    types_nothing(on_a_terminal(harness.TOOL, "estimate", "--user", "nobody", "--", typist), "estimate")


def test_a_token_s_user_cannot_type():
    folder, typist = place("token", os.path.join(harness.OUT, "memtrace-bpf-token"))
    text = on_a_terminal(os.path.join(folder, "memtrace-bpf-token"), "nobody", typist)
    for reason in ("in a chroot", "refuses the option"):
        if reason in text:
            raise Skip(text.strip())
    types_nothing(text, "memtrace-bpf-token")


def test_terminal_still_works():
    """The command may do everything else with the terminal: its size, its modes, its process group."""
    _, typist = place("works")
    with open(typist, "w", encoding="ascii") as f:
        f.write("#!%s\nimport os, termios\nfd = os.open('/dev/tty', os.O_RDWR)\ntermios.tcsetattr(fd, termios.TCSANOW, termios.tcgetattr(fd))\n"
                "os.write(fd, b'%%d %%s\\n' %% (os.tcgetpgrp(fd) == os.getpgrp(), str(os.get_terminal_size(fd)).encode()))\n" % PYTHON)
    text = on_a_terminal(harness.TOOL, "run", "--no-trace", "--user", "nobody", "--", typist)
    check(re.search(r"^1 os.terminal_size", text, re.M), "%s", text)


def test_set_user_id_programs_go_on_working():
    folder, _ = place("setuid", "/usr/bin/id")
    program = os.path.join(folder, "id")
    os.chmod(program, 0o4755)
    if os.statvfs(folder).f_flag & os.ST_NOSUID:
        raise Skip("no set-user-ID programs on this file system")
    text = on_a_terminal(harness.TOOL, "run", "--no-trace", "--user", "nobody", "--", program)
    check("uid=%d" % NOBODY in text and "euid=0" in text, "%s", text)


def test_another_user_gets_none_of_our_files():
    """A descriptor that memtrace-bpf inherited, for whatever file, does not reach another user's command."""
    folder, _ = place("files")
    secret = os.path.join(folder, "secret")
    with open(secret, "w", encoding="ascii", opener=lambda name, flags: os.open(name, flags, 0o600)) as f:
        f.write("root's")
    listing = "import json, os; print(json.dumps({n: os.readlink('/proc/self/fd/' + n) for n in os.listdir('/proc/self/fd') if os.path.lexists('/proc/self/fd/' + n)}))"

    def got(*options):
        fd = os.open(secret, os.O_RDONLY)
        done = subprocess.run([harness.TOOL, "run", *options, "--", PYTHON, "-c", listing], pass_fds=(fd, os.dup2(fd, 251)), stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=60, check=False)
        os.close(fd)
        os.close(251)
        equal(done.returncode, 0, "exit code (%s)" % done.stderr)
        return json.loads(done.stdout.splitlines()[0])

    check(secret in got("--no-trace").values(), "a command of our own lacks what it inherits")
    equal(sorted(got("--no-trace", "--user", "nobody")), ["0", "1", "2"], "descriptors of another user's command")
    files = got("--user", "nobody", "--inside", "-o", os.path.join(folder, "run.mtr"))
    check(len(files) == 4 and secret not in files.values(), "more than the memory that --inside shares: %s", files)


if __name__ == "__main__":
    run(globals())

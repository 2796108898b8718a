#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Minimal privileges: the capabilities that a capture needs, messages about missing ones, privileges dropped after attach, and
attacks of other users on written files. The target is a small library with PyTorch's hooks (tests/kernels/c10.c) under plain
Python, in a folder that only root can read."""
import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys

import harness
from harness import IS_ROOT, REPO, Skip, check, equal, run, scratch, spawn

NOT_PERMITTED = 3
NOBODY = 65534
BITS = {"bpf": 39, "perfmon": 38, "sys_ptrace": 19, "dac_read_search": 2, "checkpoint_restore": 40}
FOUR = ("bpf", "perfmon", "sys_ptrace", "dac_read_search")
READING = 1 << BITS["sys_ptrace"] | 1 << BITS["dac_read_search"] | 1 << BITS["checkpoint_restore"]
KEPT = READING | 1 << BITS["bpf"] | 1 << BITS["perfmon"]

TARGET = """
import ctypes, sys, time
lib = ctypes.CDLL(sys.argv[1])
new = lib._ZN3c1025ProfiledCPUMemoryReporter3NewEPvm
new.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]

def allocate(i):
    new(None, 0x100000 + i % 1000 * 64, 64)

print("ready", flush=True)
i = 0
while True:
    i += 1
    allocate(i)
    time.sleep(0.002)
"""


def place(name):
    """A folder that all can write to, with a copy of the tool that all can run."""
    if not IS_ROOT:
        raise Skip("needs root, to become others")
    if not shutil.which("setpriv"):
        raise Skip("setpriv is not here")
    path = scratch(name)
    os.mkdir(path)
    os.chmod(path, 0o1777)
    shutil.copy(harness.TOOL, os.path.join(path, "memtrace-bpf"))
    os.chmod(os.path.join(path, "memtrace-bpf"), 0o755)
    return path


def target(folder):
    """The process, whose Python and library other users cannot read, and the library."""
    secret = os.path.join(folder, "secret")
    os.mkdir(secret, 0o700)
    library = os.path.join(secret, "libc10.so")
    subprocess.run(["gcc", "-O2", "-shared", "-fPIC", "-o", library, os.path.join(REPO, "tests", "kernels", "c10.c")], check=True)
    python = shutil.copy(os.path.realpath(sys.executable), secret)
    p = spawn([python, "-c", TARGET, library])
    p.wait_line("^ready")
    return p, library


def nobody(*caps):
    """Prefix to run a command as nobody with exactly these capabilities."""
    if not caps:
        return ["setpriv", "--reuid=%d" % NOBODY, "--regid=%d" % NOBODY, "--clear-groups", "--bounding-set=-all"]
    some = ",".join(["-all"] + ["+cap_%d" % BITS[c] for c in caps])
    return ["setpriv", "--reuid=%d" % NOBODY, "--regid=%d" % NOBODY, "--clear-groups", "--inh-caps=" + some, "--ambient-caps=" + some,
            "--bounding-set=" + some]


def as_nobody(caps, folder, *args, seconds=30):
    done = subprocess.run([*nobody(*caps), os.path.join(folder, "memtrace-bpf"), *args], cwd=folder, capture_output=True, text=True,
                          timeout=seconds, check=False)
    return done.returncode, done.stdout, done.stderr


def status_of(pid):
    with open("/proc/%d/status" % pid, encoding="ascii") as f:
        return dict(re.findall(r"^(\w+):\s*(\w+)", f.read(), re.M))


# ---- capabilities ---------------------------------------------------------------------------------------------

def test_four_are_enough():
    folder = place("four")
    p, _ = target(folder)
    recorder = spawn([*nobody(*FOUR), os.path.join(folder, "memtrace-bpf"), "record", "-p", str(p.pid), "-o", "four.mtr"], cwd=folder)
    recorder.wait_line("attached to PID", 30, stream="err")
    status = status_of(recorder.pid)
    for name in ("CapEff", "CapPrm"):
        equal(int(status[name], 16), KEPT & ~(1 << BITS["checkpoint_restore"]), name)
    equal((int(status["CapInh"], 16), int(status["CapAmb"], 16)), (0, 0), "CapInh, CapAmb")
    equal(os.stat("/proc/%d/environ" % recorder.pid).st_uid, 0, "owner of its files in /proc, where it is not dumpable")
    path = os.path.join(folder, "four.mtr")
    harness.until_recorded(path, lambda doc: harness.device(doc)["allocs"] > 50, "allocations")
    recorder.signal(signal.SIGINT)
    equal(recorder.wait(30), 0, "exit code (%s)" % recorder.stderr())
    equal((os.stat(path).st_uid, os.stat(path).st_mode & 0o7777), (NOBODY, 0o600), "owner and mode of the recording")
    doc = harness.report(path)
    equal([r["function"] for r in doc["rows"]], ["allocate"], "functions (%s)" % doc["rows"])
    check(harness.device(doc)["allocs"] > 100 and not doc["capture"]["lost"], "%s", doc["devices"])
    code, _, err = as_nobody(FOUR, folder, "check", "-p", str(p.pid))
    equal(code, 0, "exit code of check (%s)" % err)


def test_the_missing_one_is_named():
    folder = place("missing")
    p, _ = target(folder)
    for missing in FOUR:
        caps = [c for c in FOUR if c != missing]
        code, _, err = as_nobody(caps, folder, "record", "-p", str(p.pid), "-o", "none.mtr")
        equal(code, NOT_PERMITTED, "exit code without %s (%s)" % (missing, err))
        named = re.findall(r"CAP_(\w+)", err)
        equal(named, [missing.upper()], "capabilities named: %r" % err)
        code, out, _ = as_nobody(caps, folder, "check")
        equal(code, NOT_PERMITTED, "exit code of check without %s" % missing)
        equal(re.findall(r"^NO .*CAP_(\w+) missing;", out, re.M), [missing.upper()], "by check: %r" % out)
        check(not os.path.exists(os.path.join(folder, "none.mtr")), "an output was left behind")
    for missing in ("sys_ptrace", "dac_read_search"):
        code, _, err = as_nobody([c for c in FOUR if c != missing], folder, "dump", "-p", str(p.pid))
        equal((code, re.findall(r"CAP_(\w+)", err)), (NOT_PERMITTED, [missing.upper()]), "dump: %r" % err)
    check(p.alive(), "the target ended")


def test_replaced_library():
    folder = place("replaced")
    p, library = target(folder)
    shutil.copy(library, library + ".new")
    os.rename(library + ".new", library)
    code, _, err = as_nobody(FOUR, folder, "record", "-p", str(p.pid), "-o", "none.mtr")
    equal((code, re.findall(r"CAP_(\w+)", err)), (NOT_PERMITTED, ["CHECKPOINT_RESTORE"]), "%r" % err)
    code, _, err = as_nobody([*FOUR, "checkpoint_restore"], folder, "record", "-p", str(p.pid), "-o", "some.mtr", "--duration", "1s")
    equal(code, 0, "exit code with it (%s)" % err)
    doc = harness.report(os.path.join(folder, "some.mtr"))
    check(harness.device(doc)["allocs"] > 50, "nothing seen of a library that was replaced: %s", doc["devices"])


def test_root_gives_up():
    gives_up(False)
    gives_up(True)


def gives_up(two):
    """Records one process, or two of them, where more may join later with new files."""
    folder = place("root-two" if two else "root")
    p, _ = target(folder)
    options = ("-p", str(target(place("root-other"))[0].pid)) if two else ()
    recorder = harness.record(p.pid, os.path.join(folder, "root.mtr"), *options)
    recorder.wait_line("attached to PID", 30, stream="err")
    status = status_of(recorder.pid)
    allowed = KEPT
    if "uprobe.multi" in harness.tool("check", root=True)[1] and "not in this kernel" in harness.tool("check", root=True)[1]:
        allowed |= 1 << 21  # CAP_SYS_ADMIN, for perf uprobes
    if two:
        allowed |= 1 << 0 | 1 << 1 | 1 << 3  # CHOWN, DAC_OVERRIDE, FOWNER
    for name in ("CapEff", "CapPrm", "CapBnd"):
        extra = int(status[name], 16) & ~allowed
        check(not extra, "%s has %x, which a running capture does not need", name, extra)
    equal((int(status["CapInh"], 16), int(status["CapAmb"], 16), status["NoNewPrivs"]), (0, 0, "1"), "CapInh, CapAmb, NoNewPrivs")
    path = os.path.join(folder, "root.%d.mtr" % p.pid if two else "root.mtr")
    harness.until_recorded(path, lambda doc: harness.device(doc)["allocs"] > 50, "allocations")
    harness.finish(recorder)


# ---- files ----------------------------------------------------------------------------------------------------

def attacks(folder, victim):
    """Names in the folder that must not lead elsewhere, made by nobody unless stated otherwise."""
    secret = os.path.join(os.path.dirname(victim), "new")

    def fifo(path):
        os.mkfifo(path, 0o666)

    def hard(path):
        os.link(victim, path)

    def unix(path):
        s = socket.socket(socket.AF_UNIX)
        s.bind(path)
        s.close()

    def plain(path):
        with open(path, "w", encoding="ascii") as f:
            f.write("planted")
        os.chmod(path, 0o666)

    def chain(path):
        os.symlink(victim, path + ".2")
        os.symlink(path + ".2", path)

    return {
        "link": lambda p: os.symlink(victim, p),
        "dangling": lambda p: os.symlink(secret, p),
        "relative": lambda p: os.symlink(os.path.relpath(victim, folder), p),
        "chain": chain,
        "loop": lambda p: os.symlink(p, p),
        "to-folder": lambda p: os.symlink(os.path.dirname(victim), p),
        "to-proc": lambda p: os.symlink("/proc/self/fd/2", p),
        "hard": hard,
        "fifo": fifo,
        "socket": unix,
        "folder": os.mkdir,
        "plain": plain,
    }


def read(path):
    with open(path, "rb") as f:
        return f.read()


def looked_after(folder, victim, name, force, command, env):
    path = os.path.join(folder, name)
    before = os.lstat(path)
    done = subprocess.run([*command, *(["-f"] if force else [])], capture_output=True, text=True, env=env, timeout=30, check=False)
    what = "%s, %s%s: %r" % (command[1], name, ", forced" if force else "", done.stderr[-200:])
    equal(read(victim), b"precious", "the victim after " + what)
    equal((os.stat(victim).st_uid, os.stat(victim).st_mode & 0o777), (0, 0o600), "the victim's owner after " + what)
    equal(os.listdir(os.path.dirname(victim)), [os.path.basename(victim)], "files beside the victim after " + what)
    if done.returncode == 0:
        check(force and name in ("hard", "plain"), "written to: %s", what)
        now = os.lstat(path)
        check((now.st_ino, now.st_mode & 0o177777, now.st_uid) == (now.st_ino, 0o100600, int(env.get("SUDO_UID", 0))) and now.st_ino != before.st_ino,
              "what is there now: mode %o, of %d: %s", now.st_mode, now.st_uid, what)
    else:
        equal(os.lstat(path).st_ino, before.st_ino, "what was there is gone: " + what)
    equal([f for f in os.listdir(folder) if f.startswith(".")], [], "left over: " + what)


def test_planted_names():
    """Another user has prepared a folder, with and without the sticky bit: 12 ways, with and without -f, each command."""
    recording = os.path.join(REPO, "tests", "data", "recording-v2.bin")
    if not IS_ROOT:
        raise Skip("needs root, to become others")
    own = scratch("own")
    os.mkdir(own, 0o700)
    victim = os.path.join(own, "victim")
    with open(victim, "wb", 0) as f:
        f.write(b"precious")
    os.chmod(victim, 0o600)
    p, _ = target(place("planted"))
    tries = 0
    for mode in (0o1777, 0o777):
        for env in (dict(os.environ), dict(os.environ, SUDO_UID=str(NOBODY), SUDO_GID=str(NOBODY))):
            folder = scratch("planted-%o-%d" % (mode, "SUDO_UID" in env))
            os.mkdir(folder)
            os.chmod(folder, mode)
            for name, make in attacks(folder, victim).items():
                for force in (False, True):
                    path = os.path.join(folder, name)
                    make(path)
                    if name not in ("hard",):
                        os.chown(path, 12345, 12345, follow_symlinks=False)
                    looked_after(folder, victim, name, force, [harness.TOOL, "export", "folded", recording, "-o", path], env)
                    looked_after(folder, victim, name, force, [harness.TOOL, "record", "-p", str(p.pid), "--duration", "0.1", "-o", path],
                                 env)
                    tries += 2
                    for left in (path, path + ".2"):
                        with contextlib.suppress(FileNotFoundError):
                            os.rmdir(left) if os.path.isdir(left) and not os.path.islink(left) else os.unlink(left)
    check(tries >= 80, "only %d tries", tries)


def test_names_that_change():
    """Another user alternates a link, a file and nothing at the path as fast as possible during writing."""
    recording = os.path.join(REPO, "tests", "data", "recording-v2.bin")
    if not IS_ROOT:
        raise Skip("needs root, to become others")
    own, folder = scratch("own2"), scratch("race")
    os.mkdir(own, 0o700)
    victim = os.path.join(own, "victim")
    with open(victim, "wb", 0) as f:
        f.write(b"precious")
    os.mkdir(folder)
    os.chmod(folder, 0o777)
    path = os.path.join(folder, "out")
    racer = spawn([sys.executable, "-c", """
import os, sys
os.setgid(65534); os.setuid(65534)
path, victim = sys.argv[1:]
print("ready", flush=True)
while True:
    for make in (lambda: os.symlink(victim, path), lambda: open(path, "w").close(), lambda: os.mkfifo(path)):
        try:
            make()
        except OSError:
            pass
        try:
            os.unlink(path)
        except OSError:
            pass
""", path, victim])
    racer.wait_line("^ready")
    codes = []
    for i in range(60):
        done = subprocess.run([harness.TOOL, "export", "folded", recording, "-o", path, *(["-f"] if i % 2 else [])], capture_output=True, text=True,
                              timeout=30, check=False)
        codes.append(done.returncode)
        equal(read(victim), b"precious", "the victim")
    check(0 in codes, "it never could be written: %s", codes)
    racer.stop()
    for name in os.listdir(folder):
        check(name == "out", "left over: %s", name)
    equal(os.listdir(own), ["victim"], "beside the victim")


run(globals())

#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# run: nightly=hosts
"""Programs from unusual places: images that squashfuse mounts, as Apptainer does without setuid, and programs of another C
library (musl, as in Alpine)."""
import glob
import os
import re
import shutil
import signal
import stat
import subprocess

import harness
from harness import IS_ROOT, PROGRAMS, REPO, Skip, check, equal, run, scratch, spawn, tool

PYTHON = "/usr/bin/python3"
UNUSABLE = 2
JOB = """
import ctypes, os, signal, sys, time
lib = ctypes.CDLL(os.path.join(os.path.dirname(os.path.abspath(__file__)), "libc10.so"))
new = lib._ZN3c1025ProfiledCPUMemoryReporter3NewEPvm
new.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]

def allocate(i):
    new(None, 0x100000 + i % 1000 * 64, 64)

def say(what):
    os.write(1, ("%s %d\\n" % (what, os.getpid())).encode())

def child(*_):
    if os.fork() == 0:
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # ends with its parent
        signal.signal(signal.SIGUSR1, count)
        say("child")

def count(*_):
    global more
    more = 50

def stranger(*_):
    if os.fork() == 0:
        if os.fork():
            os._exit(0)
        say("stranger")

def brief(*_):
    pid = os.fork() or os._exit(0)
    os.waitpid(pid, 0)
    os.write(1, b"brief %d\\n" % pid)

signal.signal(signal.SIGHUP, brief)
signal.signal(signal.SIGUSR1, child)
signal.signal(signal.SIGUSR2, stranger)
print("ready %d" % ctypes.cast(new, ctypes.c_void_p).value, flush=True)
i = more = 0
while True:
    i += 1
    allocate(i)
    time.sleep(0.002)
    if more == 1:
        say("more")
    more = max(more - 1, 0)
"""
# As nobody, in namespaces of its own: mounts the image and runs the interpreter in it.
MOUNT = """
squashfuse "$1" "$2" || exit 1
PYTHONHOME="$2" exec "$2/bin/python3" "$2/job.py"
"""


def build(compiler, output, *options):
    if not shutil.which(compiler):
        raise Skip("%s is not here" % compiler)
    done = subprocess.run([compiler, "-O2", "-o", output, *options], capture_output=True, text=True, check=False)
    check(done.returncode == 0, "%s: %s", compiler, done.stderr)
    return output


def recorded(pid, *options):
    """A recording of a second, as the JSON report has it."""
    path = scratch("files.mtr")
    code, out, err = tool("record", "-p", str(pid), "-d", "1s", "-f", "-o", path, *options, root=True)
    equal(code, 0, "exit code (%s%s)" % (out, err))
    doc = harness.report(path)
    check(harness.device(doc)["allocs"] > 50 and not doc["capture"]["lost"], "%s", doc["devices"])
    return doc, err


# ---- a FUSE mount -----------------------------------------------------------------------------------------------

def image():
    """An image with an interpreter, its library and a job; the C library is the host's."""
    python = os.path.realpath(PYTHON)
    version = os.path.basename(python)
    top, path = scratch("image"), scratch("image.squashfs")
    if os.path.exists(path):
        return path
    os.makedirs(os.path.join(top, "bin"))
    shutil.copy(python, os.path.join(top, "bin", "python3"))
    shutil.copytree(os.path.join("/usr/lib", version), os.path.join(top, "lib", version), symlinks=False, ignore_dangling_symlinks=True,
                    ignore=shutil.ignore_patterns("test", "config-*", "__pycache__", "dist-packages", "site-packages"))
    build("gcc", os.path.join(top, "libc10.so"), "-shared", "-fPIC", os.path.join(REPO, "tests", "kernels", "c10.c"))
    with open(os.path.join(top, "job.py"), "w", encoding="ascii") as f:
        f.write(JOB)
    subprocess.run(["mksquashfs", top, path, "-quiet", "-no-progress", "-comp", "gzip"], capture_output=True, check=True)
    return path


def in_image():
    """The job of the image. The user nobody has mounted that, and the kernel keeps others from the mount, also root."""
    if not IS_ROOT:
        raise Skip("needs root, to become others")
    for command in ("squashfuse", "mksquashfs"):
        if not shutil.which(command):
            raise Skip("%s is not here" % command)
    if not os.path.exists("/dev/fuse"):
        raise Skip("no /dev/fuse")
    path, mount, device = image(), scratch("mount"), scratch("fuse")
    os.makedirs(mount, exist_ok=True)
    os.chown(mount, 65534, 65534)
    if not os.path.exists(device):  # the system's may be for root only
        os.mknod(device, stat.S_IFCHR | 0o666, os.stat("/dev/fuse").st_rdev)
        os.chmod(device, 0o666)
    p = spawn(["unshare", "-m", "sh", "-c", 'mount --bind "$0" /dev/fuse && exec "$@"', device, "setpriv", "--reuid=65534", "--regid=65534",
               "--clear-groups", "unshare", "-Urm", "sh", "-c", MOUNT, "sh", path, mount], cwd="/")
    p.function = int(p.wait_line("^ready", 60).split()[1])
    check(not os.access("/proc/%d/root%s/bin/python3" % (p.pid, mount), os.F_OK), "root may read the mount: the test shows nothing")
    return p


def told(p, number, word):
    """Sends a signal, and returns the PID that the job says then."""
    p.signal(number)
    return int(p.wait_line("^" + word, 30).split()[1])


def code(pid, address):
    with open("/proc/%d/mem" % pid, "rb", buffering=0) as mem:
        mem.seek(address)
        return mem.read(16)


def test_fuse_image():
    """Nothing in the image can be opened, not even by root: lines and totals all the same, as one process and as one of several."""
    p = in_image()
    for options in ((), ("--children",)):
        doc, err = recorded(p.pid, *options)
        equal([r["function"] for r in doc["rows"]], ["allocate"], "functions (%s)" % err)
        check(doc["rows"][0]["file"].endswith("/mount/job.py") and doc["rows"][0]["line"] == 8, "%s", doc["rows"])
    code, out, err = tool("check", "-p", str(p.pid), root=True)
    check(code == 0 and "can be attached" in out, "check: %d %s%s", code, out, err)


def test_fuse_image_children():
    """The probes are in the recorded process alone: not in another one with the same file, and not in a child at first, whose recording
    does not say that it is whole."""
    p, folder = in_image(), scratch("image-children")
    other = told(p, signal.SIGUSR2, "stranger")
    try:
        right = code(other, p.function)
        recorder = spawn([harness.TOOL, "record", "-p", str(p.pid), "--children", "-o", folder + "/"], root=True)
        recorder.wait_line("attached to PID %d" % p.pid, 60, stream="err")
        child = told(p, signal.SIGUSR1, "child")
        line = recorder.wait_line("following PID %d" % child, 60, stream="err")
        check("PyTorch may have allocated before" in line, "%s", line)
        for pid in (p.pid, child):
            check(code(pid, p.function) != right, "no probe in PID %d", pid)
        equal(code(other, p.function), right, "code of a process that is not recorded")
        os.kill(child, signal.SIGUSR1)
        p.wait_line("^more %d" % child, 30)
        # on a busy machine it may live long enough to be found
        recorder.wait_line("following PID %d|1 forked processes ended before" % told(p, signal.SIGHUP, "brief"), 30, stream="err")
        recorder.signal(2)
        equal(recorder.wait(60), 0, "exit code (%s)" % recorder.stderr())
    finally:
        os.kill(other, signal.SIGKILL)
    docs = {int(re.search(r"-(\d+)\.mtr$", f)[1]): harness.report(f) for f in glob.glob(folder + "/*.mtr")}
    for pid in (p.pid, child):
        equal((docs[pid]["capture"]["attached_at"], docs[pid]["capture"]["lost"]), ("live", 0), "attached, lost")
        check(harness.device(docs[pid])["allocs"] >= 49, "%s", docs[pid]["devices"])


def test_fuse_image_by_another_user():
    """With the four capabilities, but without the one for links of /proc/PID/map_files, the library cannot be reached."""
    p = in_image()
    caps = ",".join(["-all", "+cap_39", "+cap_38", "+cap_19", "+cap_2"])
    place = scratch("by-nobody")
    os.mkdir(place)
    os.chmod(place, 0o777)
    mine = shutil.copy(harness.TOOL, place)
    os.chmod(mine, 0o755)
    done = subprocess.run(["setpriv", "--reuid=65533", "--regid=65533", "--clear-groups", "--inh-caps=" + caps, "--ambient-caps=" + caps,
                           "--bounding-set=" + caps, mine, "record", "-p", str(p.pid), "-d", "1s", "-o", os.path.join(place, "x.mtr")],
                          cwd=place, capture_output=True, text=True, timeout=60, check=False)
    equal(done.returncode, 3, "exit code (%s)" % done.stderr)
    check("CAP_CHECKPOINT_RESTORE" in done.stderr, "%s", done.stderr)


# ---- musl -------------------------------------------------------------------------------------------------------

def test_musl():
    """A program of musl's: every event. Its dynamic linker and its thread-local data are other ones."""
    if not IS_ROOT:
        raise Skip("needs root")
    folder = scratch("musl")
    os.makedirs(folder, exist_ok=True)
    library = build("musl-gcc", os.path.join(folder, "libc10.so"), "-shared", "-fPIC", os.path.join(REPO, "tests", "kernels", "c10.c"))
    program = build("musl-gcc", os.path.join(folder, "program"), os.path.join(PROGRAMS, "musl.c"))
    p = spawn([program, library])
    p.wait_line("^ready")
    with open("/proc/%d/maps" % p.pid, encoding="utf-8") as f:
        maps = f.read()
    check("-linux-musl/" in maps and "/libc.so.6" not in maps, "not of musl: %s", maps)
    doc, err = recorded(p.pid)
    check("no Python lines: no Python in the process" in err, "%s", err)
    equal(harness.device(doc)["allocs"] * 64, sum(r["bytes"] for r in doc["rows"]), "bytes of all allocations")


if __name__ == "__main__":
    run(globals())

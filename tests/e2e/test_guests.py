#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# run: nightly=hosts
"""Programs under a kernel that cannot be traced from here: gVisor, virtual machines, and hosts that lack BTF or BPF. check and
record say in one line what it is and what to do."""
import os
import re
import shutil
import signal
import subprocess

import harness
from harness import IS_ROOT, Skip, check, compiled, equal, run, scratch, spawn, tool

UNUSABLE, NOT_PERMITTED = 2, 3
PYTHON = "/usr/bin/python3"
RUNSC = ["runsc", "--platform=ptrace", "--network=none", "--ignore-cgroups", "do"]
LOOP = """
import ctypes, sys, time
lib = ctypes.CDLL(sys.argv[1])
new = lib._ZN3c1025ProfiledCPUMemoryReporter3NewEPvm
new.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
print("ready", flush=True)
while True:
    new(None, 0x100000, 64)
    time.sleep(0.01)
"""


def line(out, what):
    found = re.search(r"^(ok|-|NO) +%s +(.*)" % re.escape(what), out, re.M)
    check(found, "no line %s: %s", what, out)
    return found[1], found[2]


def refused(pid, *words):
    """check and record of the process end the same way, with the same sentence."""
    for args in (("check", "-p", str(pid)), ("record", "-p", str(pid), "-d", "1s", "-o", scratch("none.mtr"))):
        code, out, err = tool(*args, root=True)
        equal(code, UNUSABLE, "exit code of %s (%s%s)" % (args[0], out, err))
        said = [t for t in err.split("\n") if t and "no GPU" not in t]
        check(len(said) == 1 and all(w in said[0] for w in words), "%s says %s", args[0], said)
        check(not os.path.exists(scratch("none.mtr")), "an output was left behind")


# ---- gVisor ---------------------------------------------------------------------------------------------------

def gvisor():
    if not IS_ROOT:
        raise Skip("needs root, to run gVisor")
    if not shutil.which("runsc"):
        raise Skip("runsc is not here")
    done = subprocess.run([*RUNSC, "true"], capture_output=True, text=True, timeout=120, check=False)
    if done.returncode:
        raise Skip("gVisor does not run here: %s" % done.stderr.strip()[-300:])


def sandbox_of(pid):
    """The processes of a sandbox, by its parents: gofer, sentry, stubs and address spaces."""
    found, more = [], [pid]
    while more:
        more = [int(c) for p in more for c in harness.children_of(p)]
        found += more
    return found


def test_in_gvisor():
    """The real one: check says that it is gVisor, in one line, and nothing about BPF."""
    gvisor()
    # a file in the middle: gVisor writes with the offsets of its own
    done = subprocess.run([*RUNSC, "sh", "-c", "%s check > /tmp/out; echo code $?; cat /tmp/out" % harness.TOOL], capture_output=True, text=True, timeout=120, check=False)
    check("code 3" in done.stdout, "exit code (%s%s)", done.stdout, done.stderr)
    mark, text = line(done.stdout, "gVisor")
    equal(mark, "NO", "mark")
    check("no BPF" in text and "runc" in text, "%s", text)
    check(re.search(r"^This host cannot trace: gVisor: ", done.stdout, re.M), "verdict: %s", done.stdout)
    equal(re.findall(r"^NO +(\w+)", done.stdout, re.M), ["gVisor"], "lines that say NO")


def test_into_gvisor():
    """From the host: the kernel, the file server and each address space of a sandbox are refused by name."""
    gvisor()
    library = compiled("../kernels/c10", "libc10")
    p = spawn([*RUNSC, PYTHON, "-c", LOOP, library])
    p.wait_line("^ready", 60)
    names, spaces = set(), 0
    for pid in sandbox_of(p.pid):
        with open("/proc/%d/cmdline" % pid, "rb") as f:
            names.add(f.read().split(b"\0")[0].decode())
        with open("/proc/%d/maps" % pid, encoding="utf-8", errors="replace") as f:
            spaces += "libc10.so" in f.read()
        refused(pid, "PID %d" % pid, "gVisor (runsc)", "Run the job in a container of another runtime")
    check({"runsc-sandbox", "runsc-gofer"} <= names, "processes of the sandbox: %s", names)
    check(spaces > 0, "no process maps the library: the test shows nothing")
    p.signal(signal.SIGTERM)


# ---- virtual machines -----------------------------------------------------------------------------------------

def with_name(*words):
    """A process that waits, under this command line."""
    code = "echo ready; read x"
    return spawn(["bash", "-c", 'exec -a "$0" bash -c "$@"', words[0], code, *words[1:]])


def test_virtual_machines():
    for words, said in ((("/usr/bin/qemu-system-x86_64", "-name", "sandbox-b66fcd", "-qmp", "unix:/run/vc/vm/b66fcd/qmp.sock"), "Kata Containers"),
                        (("/opt/kata/bin/firecracker", "--api-sock", "/run/kata/1/fc.sock"), "Kata Containers"),
                        (("/usr/bin/cloud-hypervisor", "--kernel", "/boot/vmlinux"), "is a virtual machine"),
                        (("runsc-sandbox", "--root=/run/x", "boot"), "gVisor (runsc)")):
        p = with_name(*words)
        p.wait_line("^ready")
        refused(p.pid, "PID %d" % p.pid, said)
        p.stop()


# ---- hosts that lack something --------------------------------------------------------------------------------

def test_like_gvisor():
    """Where there is no runsc: what newer releases of it show."""
    library = compiled("other_kernel")
    env = dict(os.environ, LD_PRELOAD=library, TEST_RELEASE="5.15.0-gvisor", TEST_VERSION="#1 SMP Sun Jan 10 15:06:54 PST 2016")
    done = subprocess.run([harness.TOOL, "check"], env=env, capture_output=True, text=True, timeout=60, check=False)
    equal(done.returncode, NOT_PERMITTED, "exit code (%s)" % done.stderr)
    equal(re.findall(r"^NO +(\w+)", done.stdout, re.M), ["gVisor"], "lines that say NO")
    check(done.stdout.startswith("This host cannot trace: gVisor: "), "%s", done.stdout)


def without(path, *command):
    """The command where the folder is empty."""
    return subprocess.run(["unshare", "-m", "sh", "-c", 'mount -t tmpfs none "$0" && exec "$@"', path, *command], capture_output=True, text=True,
                          timeout=60, check=False)


def test_without_btf():
    if not IS_ROOT:
        raise Skip("needs root, to hide a file")
    done = without("/sys/kernel/btf", harness.TOOL, "check")
    if "mount" in done.stderr:
        raise Skip("cannot mount here: %s" % done.stderr.strip())
    equal(done.returncode, NOT_PERMITTED, "exit code (%s)" % done.stderr)
    mark, text = line(done.stdout, "kernel BTF")
    equal(mark, "NO", "mark")
    check("CONFIG_DEBUG_INFO_BTF" in text and "/sys/kernel/btf/vmlinux" in text, "%s", text)
    equal(re.findall(r"^NO +(.*?)  ", done.stdout, re.M), ["kernel BTF"], "lines that say NO (%s)" % done.stdout)
    check(done.stdout.startswith("This host cannot trace: kernel BTF: "), "%s", done.stdout)
    p = spawn([PYTHON, "-c", "import time; print('ready', flush=True); time.sleep(100)"])
    p.wait_line("^ready")
    done = without("/sys/kernel/btf", harness.TOOL, "record", "-p", str(p.pid), "-d", "1s", "-o", scratch("btf.mtr"))
    check(done.returncode == NOT_PERMITTED and "CONFIG_DEBUG_INFO_BTF" in done.stderr, "record: %d %s", done.returncode, done.stderr)


def test_without_uprobes():
    """A kernel built without uprobes, as some of virtual machines are: no event source, and no uprobe.multi."""
    if not IS_ROOT:
        raise Skip("needs root, to hide a file")
    library = compiled("other_kernel")
    done = without("/sys/bus/event_source/devices", "env", "LD_PRELOAD=" + library, "TEST_NO_LINKS=1", harness.TOOL, "check")
    equal(done.returncode, NOT_PERMITTED, "exit code (%s)" % done.stderr)
    mark, text = line(done.stdout, "uprobes")
    equal(mark, "NO", "mark")
    check("CONFIG_UPROBE_EVENTS" in text, "%s", text)


if __name__ == "__main__":
    run(globals())

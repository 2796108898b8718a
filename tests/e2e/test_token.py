#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""BPF tokens: memtrace-bpf-token gives a user without rights a user namespace in which memtrace-bpf can load its programs, and
nothing else. With libbpf before 1.4 (Debian 12) memtrace-bpf says that it cannot."""
import os
import re
import shutil
import signal
import subprocess

import harness
import server
from harness import IS_ROOT, OUT, REPO, Skip, check, equal, run, scratch, spawn

NOBODY = 65534
TOKEN = os.path.join(OUT, "memtrace-bpf-token")
PYTHON = "/usr/bin/python3"  # one that others can run
NOT_PERMITTED = 3

TARGET = """
import ctypes, os, sys, time
lib = ctypes.CDLL(sys.argv[1])
new = lib._ZN3c1025ProfiledCPUMemoryReporter3NewEPvm
new.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]

def allocate(i):
    new(None, 0x100000 + i % 1000 * 64, 64)

print("ready %d %d" % (os.getpid(), os.getuid()), flush=True)
i = 0
while i < int(sys.argv[2]):
    i += 1
    allocate(i)
    time.sleep(0.002)
"""

# As the user, in the namespace: a process, and three recordings of it.
JOB = """
import re, subprocess, sys
tool, library, target = sys.argv[1:]
p = subprocess.Popen([sys.executable, "-c", target, library, "1000000"], stdout=subprocess.PIPE, text=True)
pid = p.stdout.readline().split()[1]
for args in (["check", "-p", pid], ["record", "-p", pid, "-d", "1s", "-o", "one.mtr"], ["record", "-p", pid, "--children", "-d", "1s", "-o", "all.mtr"],
             ["run", "-o", "run.mtr", "--", sys.executable, "-c", target, library, "300"]):
    done = subprocess.run([tool, *args], capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=60)
    print("----", args[0], done.returncode, done.stdout, done.stderr, flush=True)
p.kill()
"""


def place(name):
    """A folder of nobody's with the tool and the library that stands for PyTorch."""
    if not IS_ROOT:
        raise Skip("needs root, to delegate BPF")
    path = scratch(name)
    os.mkdir(path)
    for file in (harness.TOOL, TOKEN):
        shutil.copy(file, path)
        os.chmod(os.path.join(path, os.path.basename(file)), 0o755)
    library = os.path.join(path, "libc10.so")
    subprocess.run(["gcc", "-O2", "-shared", "-fPIC", "-o", library, os.path.join(REPO, "tests", "kernels", "c10.c")], check=True)
    os.chmod(library, 0o755)
    os.chown(path, NOBODY, NOBODY)
    above = path
    while above != "/":  # nobody has to get there
        above = os.path.dirname(above)
        if not os.stat(above).st_mode & 1:
            raise Skip("%s is not for others" % above)
    return path


def with_token(folder, *command, user="nobody", seconds=60):
    done = subprocess.run([os.path.join(folder, "memtrace-bpf-token"), user, *command], cwd=folder, capture_output=True, text=True, timeout=seconds,
                          stdin=subprocess.DEVNULL, check=False)
    if "the kernel allows none in a chroot" in done.stderr:
        raise Skip("in a chroot, where the kernel makes no user namespaces")
    if "refuses the option delegate_cmds" in done.stderr:
        raise Skip("this kernel has no BPF tokens (6.9 and newer have them): %s" % done.stderr.strip())
    return done


def test_what_it_gives():
    """The user, four capabilities that cannot become more, no more IDs than the user's, and a file system that delegates."""
    folder = place("gives")
    done = with_token(folder, "cat", "/proc/self/status", "/proc/self/uid_map", "/proc/self/mounts")
    equal(done.returncode, 0, "exit code (%s)" % done.stderr)
    status = dict(re.findall(r"^(\w+):\s*(.*)", done.stdout, re.M))
    four = 1 << 39 | 1 << 38 | 1 << 19 | 1 << 2  # BPF, PERFMON, SYS_PTRACE, DAC_READ_SEARCH
    equal([int(status["Cap" + s], 16) for s in ("Inh", "Prm", "Eff", "Bnd", "Amb")], [four] * 5, "capabilities")
    equal(status["Uid"].split(), [str(NOBODY)] * 4, "user")
    check(re.search(r"^ *65534 +65534 +1$", done.stdout, re.M), "uid_map: %s", done.stdout)
    check(" 0 " not in re.search(r"^ *65534 .*", done.stdout, re.M)[0], "root is mapped: %s", done.stdout)
    mount = re.search(r"^\S+ /sys/fs/bpf bpf (\S*delegate\S*) ", done.stdout, re.M)
    check(mount, "no file system that delegates: %s", done.stdout[-2000:])
    delegates = dict(re.findall(r"delegate_(\w+)=([^,]*)", mount[1]))
    check(sorted(delegates) == ["attachs", "cmds", "maps", "progs"] and "any" not in delegates.values(), "%s", delegates)
    with open("/proc/self/mounts", encoding="utf-8") as f:
        check("delegate_" not in f.read(), "the mount is here, too")


def test_what_it_gives_not():
    """No access to root's files, no other user, no more rights by a namespace within the namespace."""
    folder = place("not")
    secret = os.path.join(folder, "secret")
    with open(secret, "w", encoding="ascii", opener=lambda name, flags: os.open(name, flags, 0o600)) as f:
        f.write("root's")
    for command, what in ((("cat", secret), "Permission denied"), (("chown", "0", "."), "perm|argument"),
                          (("setpriv", "--reuid=0", "true"), "setresuid|perm|argument")):
        done = with_token(folder, *command)
        check(done.returncode and re.search(what, done.stderr, re.I), "%s: %d %s", command, done.returncode, done.stderr)
    for user, what in (("root", "root needs no token"), ("no-such-user", "no user no-such-user")):
        done = with_token(folder, "true", user=user)
        check(done.returncode == 125 and what in done.stderr, "%s: %d %s", user, done.returncode, done.stderr)
    done = subprocess.run(["setpriv", "--reuid=65534", "--clear-groups", os.path.join(folder, "memtrace-bpf-token"), "nobody", "true"],
                          capture_output=True, text=True, check=False)
    check(done.returncode == 125 and "only root can delegate" in done.stderr, "%d %s", done.returncode, done.stderr)
    equal(with_token(folder, "sh", "-c", "exit 7").returncode, 7, "exit code of the command")
    equal(with_token(folder, "no-such-command").returncode, 125, "exit code without a command")


def test_it_delegates_what_the_guide_says():
    """The kernel's own words for the delegated kinds are those of the guide: no kind more, such as the raw tracepoints of --on-kill."""
    done = with_token(place("kinds"), "cat", "/proc/self/mounts")
    mount = re.search(r"^\S+ /sys/fs/bpf bpf (\S*delegate\S*) ", done.stdout, re.M)
    check(mount, "no file system that delegates: %s", done.stdout[-2000:])
    with open(os.path.join(REPO, "docs", "guide", "containers.md"), encoding="utf-8") as f:
        guide = dict(re.findall(r"^\| `(delegate_\w+)` \| `(\S+)` \|", f.read(), re.M))
    equal(dict(re.findall(r"(delegate_\w+)=([^,]*)", mount[1])), guide, "what is delegated, compared with the guide")
    check("raw_tracepoint" not in guide["delegate_progs"].split(":"), "raw tracepoints are delegated")


def test_nothing_of_root_s_comes_along():
    """Root's variables and open files may lead to secrets: the command gets a short list and its three standard files."""
    folder = place("along")
    with open(os.path.join(folder, "memtrace-bpf"), "rb") as f:
        done = subprocess.run([os.path.join(folder, "memtrace-bpf-token"), "nobody", "sh", "-c", "env; for fd in /proc/self/fd/*; do echo fd ${fd##*/}; done"],
                              env=dict(os.environ, AWS_SECRET_ACCESS_KEY="x", CUDA_VISIBLE_DEVICES="3"), pass_fds=(f.fileno(), os.dup2(f.fileno(), 200)),
                              cwd=folder, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL, check=False)
        os.close(200)
    for reason in ("in a chroot", "refuses the option"):
        if reason in done.stderr:
            raise Skip(done.stderr.strip())
    names = re.findall(r"^(\w+)=", done.stdout, re.M)
    check("AWS_SECRET_ACCESS_KEY" not in names and "CUDA_VISIBLE_DEVICES" in names and "PATH" in names, "variables: %s", names)
    check("USER=nobody" in done.stdout.splitlines(), "%s", done.stdout)
    files = set(re.findall(r"^fd (\d+)", done.stdout, re.M)) - {"3"}  # 3: of the shell's own
    equal(files, {"0", "1", "2"}, "descriptors of the command")


def test_ends_with_its_parent():
    folder = place("ends")
    p = spawn([os.path.join(folder, "memtrace-bpf-token"), "nobody", "sh", "-c", "echo $$; exec sleep 1000"], cwd=folder)
    pid = int(p.wait_line(r"^\d+$"))
    p.signal(signal.SIGKILL)
    p.wait(10)
    harness.until(lambda: not server.alive(pid), "the end of the command whose parent has ended")


def test_namespace_without_a_token():
    """check and record say the same, and what to do."""
    folder = place("without")
    done = subprocess.run(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "unshare", "-Ur", os.path.join(folder, "memtrace-bpf"), "check"],
                          cwd=folder, capture_output=True, text=True, check=False)
    if "unshare" in done.stderr:
        raise Skip("users cannot make user namespaces here: %s" % done.stderr.strip())
    equal(done.returncode, NOT_PERMITTED, "exit code (%s)" % done.stderr)
    line = re.search(r"^NO +BPF token +(.*)", done.stdout, re.M)
    check(line, "no such line: %s", done.stdout)
    check("memtrace-bpf-token USER" in line[1] or re.search(r"libbpf \d+\.\d+ has no BPF tokens", line[1]), "%s", line[1])
    check(done.stdout.startswith("This host cannot trace: BPF token: "), "verdict: %s", done.stdout[:200])
    p = spawn(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "unshare", "-Ur", PYTHON, "-c", JOB, os.path.join(folder, "memtrace-bpf"),
               os.path.join(folder, "libc10.so"), TARGET], cwd=folder)
    equal(p.wait(60), 0, "exit code (%s)" % p.stderr())
    for what in ("record 3", "run 3"):
        part = p.stdout().split("---- " + what)
        check(len(part) > 1 and line[1] in part[1], "%s: %s", what, p.stdout())


def test_processes_outside():
    """A process of the same user outside of the namespace cannot be traced from within."""
    folder = place("outside")
    p = spawn(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", PYTHON, "-c", TARGET, os.path.join(folder, "libc10.so"), "1000000"], cwd=folder)
    p.wait_line("^ready")
    done = with_token(folder, os.path.join(folder, "memtrace-bpf"), "record", "-p", str(p.pid), "-o", "none.mtr")
    equal(done.returncode, NOT_PERMITTED, "exit code (%s)" % done.stderr)
    check("outside of this user namespace" in done.stderr, "%s", done.stderr)


def test_records_own_processes():
    """A user without rights records: one process, several, and a command. The same events as ever."""
    folder = place("records")
    if not os.path.exists(PYTHON):
        raise Skip("there is no %s" % PYTHON)
    done = with_token(folder, os.path.join(folder, "memtrace-bpf"), "check")
    if "has no BPF tokens" in done.stdout:
        equal(done.returncode, NOT_PERMITTED, "exit code of check")
        raise Skip("NOT TESTED: recording with a BPF token: %s" % re.search(r"libbpf \S+ has no BPF tokens", done.stdout)[0])
    equal(done.returncode, 0, "exit code of check (%s)" % done.stdout)
    check(re.search(r"^ok +BPF token ", done.stdout, re.M), "%s", done.stdout)
    p = spawn([os.path.join(folder, "memtrace-bpf-token"), "nobody", PYTHON, "-c", JOB, os.path.join(folder, "memtrace-bpf"), os.path.join(folder, "libc10.so"), TARGET],
              cwd=folder)
    equal(p.wait(120), 0, "exit code (%s)" % p.stderr())
    equal(re.findall(r"^---- (\w+ \d+)", p.stdout(), re.M), ["check 0", "record 0", "record 0", "run 0"], "exit codes (%s)" % p.stdout())
    check("libbpf:" not in p.stdout() + p.stderr(), "libbpf speaks: %s %s", p.stdout(), p.stderr())
    for name in ("one.mtr", "all.mtr", "run.mtr"):
        doc = harness.report(os.path.join(folder, name))
        equal([r["function"] for r in doc["rows"]], ["allocate"], "functions in %s" % name)
        check(harness.device(doc)["allocs"] > 50 and not doc["capture"]["lost"], "%s: %s", name, doc["devices"])
        equal(os.stat(os.path.join(folder, name)).st_uid, NOBODY, "owner of %s" % name)


if __name__ == "__main__":
    run(globals())

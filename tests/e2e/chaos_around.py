# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""More scenarios for chaos.py: other tools that act on the target, unusual places of the target, unusual programs. Each ends with
right counts or a named refusal."""
import contextlib
import ctypes
import json
import os
import random
import re
import shutil
import signal
import struct
import subprocess
import sys
import time

import chaos
import code_bytes
import harness
import truth
from chaos import Row, Storm, Watched, compare, compiled, hooks, wait_restored
from harness import IS_ROOT, TOOL, Failure, Skip, check, equal, finish, record, report, scratch, spawn, spawn_job, sudo, tool

PROGRAMS = chaos.PROGRAMS
PROBED_LATER = 0.3  # s


# ---- return probes ----------------------------------------------------------------------------------------

def links_of(pid):
    """{(file, offset): kinds} of a tracer's probes, from the kernel."""
    done = subprocess.run(sudo(["sh", "-c", "cat /proc/%d/task/*/fdinfo/*" % pid]), capture_output=True, text=True, check=False)
    found = {}
    for text in done.stdout.split("pos:")[1:]:
        kind = re.search(r"^link_type:\t(u(?:ret)?probe_multi)$", text, re.M)
        path = re.search(r"^path:\t(.*)$", text, re.M)
        if kind and not path:
            raise Skip("this kernel does not tell where probes are")
        if kind:
            for offset in re.findall(r"^\d+\s+(0x[0-9a-f]+)\s+0x0$", text, re.M):
                found.setdefault((path[1], int(offset, 16)), set()).add(kind[1])
    return found


def explained(pid):
    """{(file, offset): (symbol, has a return probe)}, from `check --explain`."""
    code, out, err = tool("check", "-p", str(pid), "--explain", root=True)
    check(code == 0, "check: %d %s", code, err)
    found = {}
    for line in out.splitlines():
        m = re.match(r"ok\s+.*? (/\S+)\+(0x[0-9a-f]+): (.*), (\S+)\+(\d+)$", line)
        if m:
            found[m[1], int(m[2], 16)] = (m[4], m[3].endswith(" entry and return"))
    return found


def agree_on_probes(row, target_pid, what):
    """All probes in the kernel are explained, and return probes are only on plain C functions of CUDA."""
    told = explained(target_pid)
    recorder = record(target_pid, scratch("probes.mtr"))
    time.sleep(PROBED_LATER)
    links = links_of(recorder.pid)
    finish(recorder)
    check(links, "the kernel tells of no probe")
    for at, kinds in links.items():
        row.count += len(kinds)
        symbol, returns = told.get(at, ("?", False))
        if symbol == "?":
            row.inexact.append("%s: %s: nothing speaks of this probe: %s" % (what, at, kinds))
        if ("uretprobe_multi" in kinds) != returns or (returns and not re.match(r"cu(da)?[A-Z]\w+$", symbol)):
            row.wrong.append("%s: %s has %s" % (what, symbol, kinds))
    return sum("uretprobe_multi" in kinds for kinds in links.values())


def return_probes(_n=1):
    row = Row("return probes are on C functions of CUDA's alone")
    storm = Storm()
    storm.ask("hold " + chaos.cuda_library())
    n = agree_on_probes(row, storm.pid, "made for it")
    check(n > 5, "only %d return probes", n)
    storm.end(row)
    return row


def torch_return_probes(_n=1):
    row = Row("the same in PyTorch, dry-run CUDA")
    target, _ = throwing("cuda", 1)
    check(agree_on_probes(row, target.popen.pid, "PyTorch") > 5, "no return probes")
    target.stop()
    return row


def bystanders(n):
    """On a kernel where return probes end processes with a seccomp filter (or one treated so): of two processes recorded
    together, the one with a filter gets no probes on CUDA's functions, and neither does an unrecorded one."""
    row = Row("seccomp in a bystander, and in one of several that are recorded")
    for forced in ("MEMTRACE_FILTERED_RETURNS=1", "NOTHING="):
        recorded, filtered, bystander = storms = [Storm() for _ in range(3)]
        for storm in storms:
            storm.ask("hold " + chaos.cuda_library())
            storm.ask("filter" if storm != recorded else "cuda 1")
        codes = [code_bytes.Code(storm.pid, ["libcudart.so"]) for storm in storms]
        path = scratch("bystanders.mtr")
        recorder = spawn(["env", forced, TOOL, "record", "--children", "-p", str(recorded.pid), "-p", str(filtered.pid), "-o", path, "-f"], root=True)
        for storm in (recorded, filtered):
            recorder.wait_line("attached to PID %d" % storm.pid, 30, stream="err")
        patched = [code.differing() > 0 for code in codes]
        for storm in storms:
            storm.ask("cuda %d" % n)
            row.target_lives(storm.process, "return probes")
        row.count += 3 * n
        finish(recorder)
        if "NOTHING" not in forced:
            if patched != [True, False, False]:
                row.wrong.append("probes in recorded, filtered, bystander: %s" % patched)
            if not re.search("PID %d: calls into CUDA are not recorded" % filtered.pid, recorder.stderr()):
                row.wrong.append("nothing is said of the filtered one: %s" % recorder.stderr()[-300:])
        doc = report("%s.%d.mtr" % (path[:-4], recorded.pid))
        counted = sum(v for k, v in doc["capture"]["counters"].items() if k.startswith("calls.cuda"))
        row.counted += counted
        if counted != 2 * n:
            row.inexact.append("%d calls counted of %d" % (counted, 2 * n))
        for storm, code in zip(storms, codes):
            wait_restored(code, "the recorder's end")
            storm.end(row)
    return row


def many_files(n):
    """Compilers load a library per kernel: after thousands of them, CUDA's own library is still examined."""
    row = Row("thousands of libraries before CUDA's", n)
    storm = Storm()
    kernel = compiled("empty.c", "kernel.so", "-shared", "-nostdlib")
    with open(kernel, "rb") as f:
        code = f.read()
    with Watched(row, storm, drift=False, name="files"):
        for i in range(n):
            path = scratch("kernel-%d.so" % i)
            with open(path, "wb") as f:
                f.write(code)
            storm.begin("hold " + path)
        storm.seen += n - 1
        storm.answer(300)
        storm.ask("hold " + chaos.cuda_library())
        time.sleep(3 * PROBED_LATER)
        storm.ask("cuda 50")
    storm.end(row)
    for i in range(n):
        os.unlink(scratch("kernel-%d.so" % i))
    return row


def throwing(device, rounds):
    env = truth.dry_run() if device == "cuda" else dict(os.environ, PYTHONUTF8="1", PYTHONUNBUFFERED="1")
    script = os.path.join(harness.WORKLOADS, "throws.py")
    target = spawn_job([harness.python(), script, "--device", device, "--rounds", str(rounds)], env=env)
    target.wait_line("^ready", 120)
    return target, lambda: json.loads(target.wait_line("^{", 300))


def torch_exceptions(n):
    """Exceptions out of backward, in C++ and in Python, and out of memory; on the dry run's device the engine's thread runs the
    nodes."""
    row = Row("exceptions in PyTorch: out of backward, out of memory")
    for device in ("cpu", "cuda"):
        results = []
        for traced in (True, False):
            target, result = throwing(device, n // 6 + 1)
            recorder = record(target.popen.pid, scratch("throws.mtr")) if traced else None
            target.send()
            results.append(result())
            if recorder:
                finish(recorder)
                doc = report(scratch("throws.mtr"))
                row.inexact += ["%s: %s" % (device, left) for left in chaos.unaccounted(doc).items()]
                row.counted += sum(v for k, v in doc["capture"]["counters"].items() if k.startswith("hits."))
            row.target_lives(target, "exceptions")
            target.send()
            equal(target.wait(120), 0, "the target's exit code (%s)" % target.stderr()[-300:])
        row.count += results[0]["caught"]
        if results[0] != results[1]:
            row.wrong.append("%s: traced %s, untraced %s" % (device, *results))
        if results[0]["caught"] != 3 * (n // 6 + 1):
            row.wrong.append("%s: %d exceptions were caught" % (device, results[0]["caught"]))
    return row


# ---- other tools on the same process ------------------------------------------------------------------------

def stopped(n):
    """The target is stopped before attach, during attach, and during a capture."""
    row = Row("SIGSTOP and SIGCONT, before and while attaching", n)
    rnd = random.Random(5)
    storm = Storm()
    path = scratch("stopped.mtr")
    for i in range(n):
        before = storm.ask("count")
        if i % 2:
            os.kill(storm.pid, signal.SIGSTOP)
        recorder = record(storm.pid, path, wait=False)
        for _ in range(3 if i % 2 == 0 else 0):
            time.sleep(rnd.uniform(0, 0.05))
            os.kill(storm.pid, signal.SIGSTOP)
            time.sleep(rnd.uniform(0, 0.05))
            os.kill(storm.pid, signal.SIGCONT)
        recorder.wait_line(harness.ATTACHED, 30, stream="err")
        os.kill(storm.pid, signal.SIGCONT)
        storm.begin("flood 2 2000")
        for _ in range(3):
            time.sleep(rnd.uniform(0, 0.01))
            os.kill(storm.pid, signal.SIGSTOP)
            time.sleep(rnd.uniform(0, 0.01))
            os.kill(storm.pid, signal.SIGCONT)
        after = storm.answer()
        finish(recorder)
        compare(row, report(path), before, after, "cycle %d" % i)
    storm.end(row)
    return row


def debugged(n, name, command, interrupt=False):
    """A debugger attaches and detaches, before and during the capture, without effect on it. It ends by itself or by SIGINT,
    which gdb would pass on to the target."""
    row = Row(name, n)
    if not shutil.which(command[0]):
        raise Skip("no %s" % command[0])
    storm = Storm()
    code = storm.code()
    path = scratch("debugged.mtr")
    for i in range(n):
        other = [word.replace("PID", str(storm.pid)) for word in command]
        early = spawn(other) if i % 2 else None
        time.sleep(0.3 if early else 0)
        before = storm.ask("count")
        recorder = record(storm.pid, path)
        late = early or spawn(other)
        storm.ask("flood 2 3000")
        if interrupt and late.alive():
            late.signal(signal.SIGINT)
        late.wait(60)
        after = storm.ask("flood 2 1000")
        finish(recorder)
        compare(row, report(path), before, after, "cycle %d" % i)
        wait_restored(code, "%s and us" % command[0])
    storm.end(row)
    return row


def gdb(n):
    return debugged(n, "gdb on the same process, with a breakpoint in the library",
                    ["gdb", "-q", "-nx", "-batch", "-ex", "break hooks_sum", "-ex", "info threads", "-ex", "detach", "-p", "PID"])


def strace(n):
    return debugged(n, "strace -f on the same process", ["strace", "-f", "-q", "-o", "/dev/null", "-p", "PID"],
                    interrupt=True)


def tracers(n):
    """Five tracers at a time, one of which is killed: the others count as if alone."""
    row = Row("five tracers at once, one of them killed", n)
    rnd = random.Random(6)
    storm = Storm()
    code = storm.code()
    for i in range(n):
        paths = [scratch("tracer-%d.mtr" % k) for k in range(5)]
        before = storm.ask("count")
        all_of_us = [record(storm.pid, p) for p in paths]
        storm.begin("flood 2 5000")
        time.sleep(rnd.uniform(0, 0.05))
        victim = rnd.randrange(5)
        all_of_us[victim].signal(signal.SIGKILL)
        after = storm.answer()
        for k, p in enumerate(all_of_us):
            if k != victim:
                finish(p)
                compare(row, report(paths[k]), before, after, "cycle %d, tracer %d" % (i, k))
        all_of_us[victim].wait(10)
        wait_restored(code, "all tracers")
    storm.end(row)
    return row


SYS_PERF_EVENT_OPEN = 298  # x86-64
ATTR_SIZE = 112            # struct perf_event_attr


def perf_uprobe(pid, path, offset):
    """A uprobe of another tool, as made by perf: the first 8 bytes read are the number of hits."""
    try:
        with open("/sys/bus/event_source/devices/uprobe/type", encoding="ascii") as f:
            kind = int(f.read())
    except OSError:
        raise Skip("perf has no uprobes here") from None
    file = ctypes.create_string_buffer(path.encode())
    attr = ctypes.create_string_buffer(ATTR_SIZE)
    struct.pack_into("<II", attr, 0, kind, ATTR_SIZE)
    struct.pack_into("<QQ", attr, 56, ctypes.addressof(file), offset)  # config1, config2
    fd = ctypes.CDLL(None, use_errno=True).syscall(SYS_PERF_EVENT_OPEN, attr, pid, -1, -1, 0)
    if fd < 0:
        raise Skip("perf_event_open: %s" % os.strerror(ctypes.get_errno()))
    return fd


def other_uprobe(n):
    """Another tool's probe on the same instruction is set and removed, and counts the same hits."""
    row = Row("perf's uprobe on the same instruction", n)
    storm = Storm()
    (path, offset), = [at for at, words in explained(storm.pid).items() if words[0].endswith("3NewEPvm")]
    for i in range(n):
        with Watched(row, storm, name="uprobe"):
            before = storm.ask("count")
            fd = perf_uprobe(storm.pid, path, offset)
            after = storm.ask("throw 200")  # on the probe's thread
            hits, = struct.unpack("<Q", os.read(fd, 8))
            os.close(fd)
            storm.ask("flood 2 2000")
            if hits != after["cpu_new"] - before["cpu_new"]:
                row.inexact.append("cycle %d: it counted %d of %d calls" % (i, hits, after["cpu_new"] - before["cpu_new"]))
        wait_restored(storm.code(), "cycle %d" % i)
    storm.end(row)
    return row


# ---- unusual places and programs --------------------------------------------------------------------------

def replaced(n):
    """The mapped library's file is replaced or deleted, before and during a recording."""
    row = Row("libraries replaced on disk, or deleted, while mapped", n)
    for i in range(n):
        folder = scratch("replaced-%d" % i)
        os.makedirs(folder)
        library = os.path.join(folder, chaos.HOOKS)
        shutil.copy(hooks(), library)
        storm = Storm(library)

        def change():
            if i % 2:
                os.unlink(library)
            else:
                shutil.copy(hooks(), library + ".new")
                os.rename(library + ".new", library)

        if i % 4 < 2:
            change()
        with Watched(row, storm, name="replaced"):
            storm.ask("flood 2 1000")
            if i % 4 >= 2:
                change()
            storm.ask("flood 2 1000")
        storm.end(row)
        shutil.rmtree(folder)
    return row


class Contained(Storm):
    """A storm as PID 1 of a PID namespace, with its library in a private file system."""

    def __init__(self):
        program = compiled("storm.cc", "storm")
        inside = "mount -t tmpfs none /mnt && cp '%s' /mnt/ && exec '%s' /mnt/%s" % (hooks(), program, chaos.HOOKS)
        self.process = spawn(["unshare", "-pfm", "--mount-proc", "--kill-child", "sh", "-c", inside])
        self.process.wait_line("^ready", 30)
        self.pid, = harness.children_of(self.process.popen.pid)
        self.seen, self.code_of = 0, None


def contained(n):
    row = Row("PID and mount namespaces, traced from outside", n)
    if not IS_ROOT or subprocess.run(["unshare", "-pfm", "--mount-proc", "true"], capture_output=True, check=False).returncode:
        raise Skip("no namespaces to be had")
    for _ in range(n):
        storm = Contained()
        with Watched(row, storm, name="contained"):
            storm.ask("flood 2 1000")
            storm.ask("fork 3")
        storm.end(row)
    return row


class OnFuse(Storm):
    """A storm of user nobody with its library on a FUSE mount that only nobody can access, not even root."""

    def __init__(self):
        program = scratch("fuse-storm/storm")
        if not os.path.exists(program):
            os.makedirs(os.path.dirname(program))
            shutil.copy(compiled("storm.cc", "storm"), program)
        at = scratch("fuse-mount")
        os.makedirs(at, exist_ok=True)
        for folder in (harness.scratch(), os.path.dirname(program), at):
            os.chmod(folder, 0o755)
        server = os.path.join(PROGRAMS, "fuse_mount.py")
        self.process = spawn([sys.executable, server, hooks(), at, program, os.path.join(at, chaos.HOOKS)])
        self.process.wait_line("^ready", 30)
        self.pid, _server = harness.children_of(self.process.popen.pid)
        self.seen, self.code_of = 0, None


def on_fuse(n):
    """As Apptainer mounts images without setuid: root cannot open the library, and the process is recorded all the same."""
    row = Row("the library on a FUSE mount that is closed to root", n)
    if not IS_ROOT or not os.path.exists("/dev/fuse"):
        raise Skip("needs root and /dev/fuse")
    for _ in range(n):
        storm = OnFuse()
        with contextlib.suppress(PermissionError):
            os.close(os.open("/proc/%d/root%s" % (storm.pid, os.path.join(scratch("fuse-mount"), chaos.HOOKS)), os.O_RDONLY))
            raise Failure("root may open the library: the mount is not closed to it")
        with Watched(row, storm, name="fuse"):
            storm.ask("flood 2 1000")
            storm.ask("fork 3")
        storm.end(row)
    return row


def probes_by_table(pid):
    """For each thread of a process, the descriptors of probes in its table. It may close a file meanwhile, which is no probe."""
    ret = {}
    for tid in os.listdir("/proc/%d/task" % pid):
        folder = "/proc/%d/task/%s/" % (pid, tid)
        found = []
        for fd in os.listdir(folder + "fd"):
            with contextlib.suppress(FileNotFoundError):
                with open(folder + "fdinfo/" + fd, encoding="utf-8", errors="replace") as f:
                    info = f.read()
                if re.search(r"^link_type:\t(u(?:ret)?probe_multi|perf)", info, re.M) or "perf_event" in os.readlink(folder + "fd/" + fd):
                    found.append(fd)
        ret[int(tid)] = found
    return ret


def tables(n):
    """The kernel closes the probes of a killed tracer at the same time: each is in the table of a thread of its own, which has no
    capabilities. With more probes than threads, the rest is in the tracer's."""
    row = Row("a table of descriptors for each probe", n)
    storm = Storm()
    storm.code()
    for _ in range(n):
        recorder = record(storm.pid, scratch("tables.mtr"))
        found = probes_by_table(recorder.pid)
        with contextlib.suppress(KeyError):
            row.wrong += ["probes in the tracer's own table: %s" % fds for fds in (found.pop(recorder.pid),) if fds]
        counts = sorted(len(fds) for fds in found.values() if fds)
        if len(counts) < 6 or counts[-1] > 1:
            row.wrong.append("probes by thread: %s" % found)
        for tid, fds in found.items():
            with open("/proc/%d/task/%d/status" % (recorder.pid, tid), encoding="utf-8") as f:
                caps = re.findall(r"^Cap(?:Prm|Eff|Inh):\t(\w+)", f.read(), re.M)
            if fds and any(int(c, 16) for c in caps):
                row.wrong.append("capabilities of a thread with a probe: %s" % caps)
        finish(recorder)
        wait_restored(storm.code(), "the tracer's end")
    storm.end(row)
    return row


REUSE = r"""
import os, random, signal, subprocess, sys, time
tool, storm, library, path, n, seed = sys.argv[1:7]
sys.path.insert(0, sys.argv[7])
import code_bytes
rnd, result = random.Random(int(seed)), {"reused": 0, "attached": 0, "patched": 0, "wrong": 0, "left": 0}
def start():
    p = subprocess.Popen([storm, library], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert p.stdout.readline() == b"ready\n"
    return p
def next_is(pid):
    with open("/proc/sys/kernel/ns_last_pid", "w") as f:
        f.write(str(pid - 1))
def has_opened(tracer, pid):
    for fd in os.listdir("/proc/%d/fdinfo" % tracer.pid):
        try:
            with open("/proc/%d/fdinfo/%s" % (tracer.pid, fd)) as f:
                if "\nPid:\t%d\n" % pid in f.read():
                    return True
        except OSError:
            pass  # closed meanwhile
    return False
for i in range(int(n)):
    first = start()
    if os.path.exists(path):
        os.unlink(path)
    tracer = subprocess.Popen([tool, "record", "-p", str(first.pid), "-o", path], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE)
    until = time.monotonic() + 10
    while time.monotonic() < until and tracer.poll() is None and not has_opened(tracer, first.pid):
        time.sleep(0.001)
    time.sleep(rnd.uniform(0, 0.12))
    first.kill()
    first.wait()
    next_is(first.pid)
    second = start()
    result["reused"] += second.pid == first.pid
    second.stdin.write(b"flood 1 0\n")
    second.stdin.flush()
    code = code_bytes.Code(second.pid, ["libc10.so"])
    until = time.monotonic() + 0.3
    patched = 0
    while time.monotonic() < until and tracer.poll() is None:
        patched = max(patched, code.differing())
        time.sleep(0.001)
    result["patched"] += patched > 0
    if tracer.poll() is None:
        tracer.terminate()
    said = tracer.communicate()[1].decode()
    result["attached"] += "attached to" in said
    result["left"] += code.differing() > 0
    if os.path.exists(path):
        done = subprocess.run([tool, "report", "--format", "json", path], capture_output=True)
        import json
        if done.returncode == 0 and sum(d["allocs"] for d in json.loads(done.stdout)["devices"]):
            result["wrong"] += 1
    second.stdin.write(b"count\n")
    second.stdin.close()
    if second.wait():
        result["wrong"] += 1
print(__import__("json").dumps(result))
"""


def reused_pids(n):
    """The target ends while the tool attaches, and another process gets its PID at once: that one is not recorded."""
    row = Row("PID reuse between look and attach")
    if not IS_ROOT or not os.path.exists("/proc/sys/kernel/ns_last_pid"):
        raise Skip("PIDs cannot be chosen here")
    done = subprocess.run(["setarch", "-R", "unshare", "-pfm", "--mount-proc", "--kill-child", sys.executable, "-c", REUSE, TOOL,
                           compiled("storm.cc", "storm"), hooks(), scratch("reused.mtr"), str(n), "7", harness.HERE],
                          capture_output=True, text=True, timeout=60 + 2 * n, check=False)
    check(done.returncode == 0, "%s", done.stderr[-600:])
    got = json.loads(done.stdout)
    row.count = got["reused"]
    check(row.count * 2 > n, "only %d of %d PIDs were used again", row.count, n)
    if got["wrong"] or got["left"]:
        row.wrong.append("another process was traced: %s" % got)
    row.notes.append("%d had attached" % got["attached"])
    return row


def execs(n):
    """The target executes itself repeatedly during attach, and finally stays."""
    row = Row("execs of the target itself while attaching", n)
    storm = Storm()
    path = scratch("execs.mtr")
    recorder = record(storm.pid, path, wait=False)
    storm.process.out.clear()
    storm.seen = 0
    storm.begin("exec %d" % n)
    storm.process.wait_line("^ready", 120)
    code = recorder.wait(30) if not attached_now(recorder) else None
    if code is None:
        finish(recorder)
    elif code not in (0, 2, 3):
        row.inexact.append("the tracer ended with %d: %s" % (code, recorder.stderr()[-300:]))
    wait_restored(storm.code(), "the tracer's end")
    with Watched(row, storm, name="execs"):
        storm.ask("flood 2 1000")
    storm.end(row)
    return row


def attached_now(recorder):
    time.sleep(1)
    return recorder.alive()


# ---- tracers without memory -------------------------------------------------------------------------------

def little_memory(n):
    """With less and less address space, the tracer reports that it has no memory, or works; it never crashes."""
    row = Row("a tracer that runs out of memory (RLIMIT_AS)", n)
    storm = Storm()
    original = storm.code()
    storm.begin("flood 1 0")
    path = scratch("little.mtr")
    refused = 0
    for i in range(n):
        kib = 20000 + 80000 * i // max(n - 1, 1)
        code, _, err = tool("record", "-p", str(storm.pid), "-o", path, "-f", "-d", "200ms", root=True,
                            prefix=["prlimit", "--as=%d" % (kib << 10)])
        refused += code != 0
        if code < 0:
            row.inexact.append("with %d KiB the tracer was ended by signal %d" % (kib, -code))
        elif code and not err.strip():
            row.inexact.append("with %d KiB it says nothing" % kib)
        row.target_lives(storm.process, "a tracer with %d KiB" % kib)
    wait_restored(original, "the last tracer's end")
    storm.rest()
    row.notes.append("%d refused" % refused)
    storm.end(row)
    return row


@contextlib.contextmanager
def memory_group(limit):
    """A control group with this memory limit in bytes."""
    for base, name in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")):
        group = os.path.join(base, "memtrace-chaos-%d" % os.getpid())
        try:
            os.mkdir(group)
        except OSError:
            continue
        try:
            if os.path.exists(os.path.join(group, name)):
                with open(os.path.join(group, name), "w", encoding="ascii") as f:
                    f.write(str(limit))
                yield group
                return
        finally:
            os.rmdir(group)
    raise Skip("no memory cgroup to be had")


def in_group(group, command, first_to_go=0):
    """The command in a control group; first_to_go: adjustment of its OOM score."""
    inside = "echo $$ >%s/cgroup.procs && echo %d >/proc/self/oom_score_adj && exec \"$@\"" % (group, first_to_go)
    return subprocess.Popen(["sh", "-c", inside, "sh", *command], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                            stderr=subprocess.PIPE)


def oom_killed(n):
    """The kernel's OOM killer ends the tracer in a control group of its own: during its start, or during a capture when other
    processes take memory."""
    row = Row("a tracer that the OOM killer ends", 0)
    if not IS_ROOT:
        raise Skip("needs root, to make a control group")
    storm = Storm()
    code = storm.code()
    storm.begin("flood 1 0")
    for i in range(n):
        with memory_group(64 << 20 if i % 2 else (4 << 20) + (12 << 20) * i // n) as group:
            tracer = in_group(group, [TOOL, "record", "-p", str(storm.pid), "-o", scratch("oom.mtr"), "-f", "-d", "3s"], 1000)
            if i % 2:
                chaos.until_attached(tracer)
                in_group(group, [sys.executable, "-S", "-c", "bytearray(b'x') * (60 << 20)"]).communicate(timeout=60)
            tracer.communicate(timeout=60)
        row.count += tracer.returncode == -signal.SIGKILL
        if tracer.returncode < 0 and tracer.returncode != -signal.SIGKILL:
            row.inexact.append("the tracer ended by signal %d" % -tracer.returncode)
        row.target_lives(storm.process, "OOM")
        wait_restored(code, "OOM")
    storm.rest()
    row.notes.append("of %d tracers" % n)
    storm.end(row)
    return row


# ---- 5-byte nops that the kernel turns into calls ---------------------------------------------------------

def nop5_avoided(n):
    """Functions that begin with a 5-byte nop are probed after the nop, which stays a nop."""
    row = Row("functions that begin with a 5-byte nop: probed behind it", n)
    library = hooks("nop5", "-DNOP5")
    storm = Storm(library)
    text = tool("check", "-p", str(storm.pid), "--explain", root=True)[1]
    check(re.search(r"^ok +cpu delete .*: jmp .*\+5$", text, re.M) and re.search(r"^ok +cpu new .*: je .*\+8$", text, re.M),
          "sites: %s", text)
    with Watched(row, storm, name="nop5"):
        storm.ask("beside 1")
        storm.ask("flood 1 2000")
        storm.ask("fork %d" % n)
        storm.ask("calm")
    storm.end(row)
    return row


def nop5_refused(_n=1):
    """A function whose only site is the nop is not probed, with a reason."""
    row = Row("a function of which only the nop would do: refused", 1)
    library = hooks("nop5-loop", "-DNOP5", "-DNOP5_LOOP")
    storm = Storm(library)
    code, out, err = tool("record", "-p", str(storm.pid), "-o", scratch("refused.mtr"), root=True)
    if code in (0, None) or "nop" not in err:
        row.wrong.append("record: %s, %s" % (code, err[-300:]))
    words = [line for line in tool("check", "-p", str(storm.pid), root=True)[1].splitlines() if line.startswith("NO")]
    if not words or "nop" not in words[0]:
        row.wrong.append("check: %s" % words)
    if storm.code().differing():
        row.wrong.append("its code is not what it was")
    storm.ask("fork 3")
    storm.end(row)
    return row


def nop5_harm(_n=1):
    """The hazard itself: a forced probe on such nops, in a process made for it."""
    row = Row("the same, forced in a process made for it", 1)
    if not IS_ROOT:
        raise Skip("needs root, to attach by perf events")
    done = subprocess.run([compiled("nop5.c", "forced-nop5")], capture_output=True, text=True, timeout=60, check=False)
    if done.returncode == 77:
        raise Skip(done.stderr.strip())
    got = dict(re.findall(r"^(kernel errno|forked signal|wrong) (\d+)", done.stdout, re.M))
    check(len(got) == 3, "it ended early: %s %s", done.stdout, done.stderr)
    if int(got["kernel errno"]) != 6:  # ENXIO
        raise Skip("this kernel does not have the hazard (errno %s)" % got["kernel errno"])
    if got["forked signal"] != str(int(signal.SIGSEGV)) or int(got["wrong"]) < 500:
        row.wrong.append("the hazard is not what it is said to be: %s" % done.stdout)
    row.notes.append("the forked child died of signal %s, %s of 1,000 results were wrong" % (got["forked signal"], got["wrong"]))
    return row

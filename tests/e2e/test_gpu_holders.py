#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# run: reads-code cpu=60
"""`ps --device`, and the same rows in `check`: who holds a GPU's memory. Real processes have a device node open, of a /dev of their own; NVML is the dry run's, with
their PIDs. In each case the parts add up to the device's used bytes."""
import contextlib
import json
import os
import re
import signal
import subprocess
import sys

import examples
import harness
import test_json_schema
from harness import OUT, TOOL, Skip, check, equal, python, run, scratch, spawn, tool, until

DRYRUN = os.path.join(OUT, "dryrun")
GIB = 1 << 30
VRAM = 80 * GIB
# The nodes are the process's own: this machine's /dev is not changed.
NODES = """mount -t tmpfs none /dev && mkdir /dev/shm && mknod -m 666 /dev/null c 1 3 && mknod -m 666 /dev/zero c 1 5 &&
mknod -m 666 /dev/urandom c 1 9 && mknod -m 666 /dev/random c 1 8 && mknod -m 666 /dev/nvidia0 c 195 0 && mknod -m 666 /dev/nvidia1 c 195 1 && exec "$@" """
HOLD = """
import os, sys, time
kept = os.open("/dev/nvidia0", os.O_PATH)
print("ready", os.getpid(), flush=True)
time.sleep(600)
"""
# A service whose three workers use PyTorch.
SERVICE = """
import os, sys, time, torch
kept = os.open("/dev/nvidia0", os.O_PATH)
for i in range(3):
    if not os.fork():
        held = torch.ones((i + 1) << 20, device="cuda")
        os.write(1, b"worker %d %d\\n" % (i, os.getpid()))
        time.sleep(600)
time.sleep(600)
"""


def machine(*lines, name="machine"):
    path = scratch(name)
    with open(path, "w", encoding="ascii") as f:
        f.write("".join(line + "\n" for line in lines))
    os.chmod(path, 0o644)
    return {**os.environ, "LD_LIBRARY_PATH": DRYRUN, "MEMTRACE_DRYRUN_NVML": path}


def needs_nodes():
    if not harness.IS_ROOT:
        raise Skip("needs root, for device nodes")
    if not os.path.exists(os.path.join(DRYRUN, "libnvidia-ml.so.1")):
        raise Skip("the dry run's libraries are not built")


def holder(*prefix, program=HOLD, interpreter=sys.executable, **kw):
    """Starts a program that has /dev/nvidia0 open. Returns it, and its PID."""
    needs_nodes()
    p = spawn(["unshare", "--mount", *prefix, "sh", "-c", NODES, "sh", interpreter, "-c", program], **kw)
    try:
        p.wait_line("^ready", 60)
    except harness.Failure:
        if re.search("unshare|mount|mknod", p.stderr()):
            raise Skip("no mount namespace: %s" % p.stderr().strip()) from None
        raise
    # The process still runs for a moment after its line.
    (pid,) = harness.children_of(p.pid) if "--fork" in prefix else [p.pid]
    until_state(pid, "S")
    return p


def until_state(pid, letter):
    until(lambda: harness.state_of(pid) == letter, "the state %s of PID %d" % (letter, pid))


def adds_up(d):
    """The parts of a device are what it has in use, to the byte."""
    parts = sum(h["bytes"] or 0 for h in d["holders"]) + d["hidden"] + (d["reserved_by_driver"] or 0) + d["not_explained"]
    equal(parts, d["used"], "sum of the parts: %s" % d)
    equal(d["used"] + d["free"], d["total"], "used and free")


def devices(env, *options, expect=0):
    code, out, err = tool("ps", "--device", "--format", "json", *options, root=True, env=env)
    equal(code, expect, "ps --device: %s" % err)
    return json.loads(out)["devices"]


def look(env, *options, **kw):
    """The first device; its parts add up."""
    d = devices(env, *options, **kw)[0]
    adds_up(d)
    return d


def row(d, pid):
    found = [h for h in d["holders"] if h["pid"] == pid]
    equal(len(found), 1, "rows of %d: %s" % (pid, d["holders"]))
    return found[0]


def test_workers_of_a_killed_parent():
    """The three workers of a killed service come first, with the reason and PyTorch's figures. What others hold is named, too."""
    needs_nodes()
    other = holder()
    service = spawn(["unshare", "--mount", "sh", "-c", NODES, "sh", python(), "-u", "-c", SERVICE], session=True,
                    env={**os.environ, "LD_PRELOAD": os.path.join(DRYRUN, "libcuda.so.1"), "SLURM_JOB_ID": "4711"})
    workers = [int(service.wait_line("^worker %d " % i, 120).split()[2]) for i in range(3)]
    try:
        # On a busy machine there may be no time for all processes in one look.
        used = until(lambda: (x := examples.uses()) and all(x.get(pid) for pid in workers) and x, "what the workers use")
        env = machine("process 0 %d 1G" % other.pid, *("process 0 %d %d worked=3970" % (pid, used[pid]) for pid in workers), "reserved 0 450M")
        before = look(env)
        equal([row(before, pid)["left_over"] for pid in workers], [False] * 3, "workers whose parent lives")
        equal({row(before, pid)["parent"] for pid in workers}, {service.pid}, "parent of the workers")
        os.kill(service.pid, signal.SIGKILL)
        until(lambda: not harness.children_of(service.pid), "the end of the service")
        d = until(lambda: (x := look(env)) and all(row(x, pid)["allocated"] for pid in workers) and x, "PyTorch's figures")
        equal([h["pid"] for h in d["holders"] if h["pid"] in workers or not h["left_over"]][:3], sorted(workers, key=lambda pid: -used[pid]), "the orphans come first")
        for i, pid in enumerate(workers):
            h = row(d, pid)
            equal((h["left_over"], h["reason"], h["end_command"]), (True, "parent gone, idle for 1h 06m", "sudo kill %d" % pid), "verdict")
            equal((h["bytes"], h["allocated"], h["job"], h["kinds"]), (used[pid], 4 * (i + 1) << 20, "slurm 4711", ["compute"]), "figures")
            check(h["open"] and h["reserved"] >= h["allocated"] and 3970 <= h["idle"] < 4000, "row: %s", h)
        equal((d["reserved_by_driver"], d["hidden"], d["not_explained"]), (450 << 20, 0, 0), "the rest")
        equal((row(d, other.pid)["left_over"], row(d, other.pid)["reason"]), (False, None), "a process whose parent lives")
        only = devices(env, "--orphans")[0]
        check(set(workers) <= {h["pid"] for h in only["holders"]} and all(h["left_over"] for h in only["holders"]) and only["filtered"] >= 1, "--orphans: %s", only)
        code, out, err = tool("ps", "--device", "0", root=True, env=env)
        # A container's root may not search the first process.
        lines = [x for x in out.splitlines() if "could not be searched" not in x]
        equal(code, 0, "text: %s" % err)
        equal(" ".join(out.split()).count("probably left over: parent gone, idle for 1h 06m. To end it: sudo kill "), 3, "reasons in %s" % out)
        check(lines[0].startswith("GPU 0: ") and lines[-1].split()[-2:] == ["in", "use"], "text: %s", out)
    finally:
        for pid in workers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def test_states():
    """Stopped, ended and not collected, gone, its main thread gone, or without a figure: each with its reason."""
    stopped, plain, open_only = holder(), holder(), holder()
    os.kill(stopped.pid, signal.SIGSTOP)
    until_state(stopped.pid, "T")
    # A child that has ended and that nobody collects; one whose main thread has ended while another runs.
    parent = holder(program=HOLD.replace("print(", """
import ctypes, threading
child = os.fork()
if not child:
    os._exit(0)
if not (other := os.fork()):
    threading.Thread(target=time.sleep, args=(600,)).start()
    ctypes.CDLL(None).syscall({"x86_64": 60, "aarch64": 93}[os.uname().machine], 0)
print("child", child, other, flush=True)
print(""", 1))
    text = parent.stdout()
    zombie, headless = (int(x) for x in re.search(r"child (\d+) (\d+)", text).groups())
    for pid in (zombie, headless):
        until_state(pid, "Z")
    dead = dead_pid()
    env = machine(*("process 0 %d %d" % (pid, i << 20) for i, pid in enumerate((stopped.pid, plain.pid, zombie, dead, headless), 1)), "process 0 %d -" % parent.pid, "more 0 12345", "reserved 0 1M")
    d = look(env)
    equal([h["pid"] for h in d["holders"] if h["kinds"]][:3], [dead, headless, zombie], "the first")
    equal({pid: (row(d, pid)["state"], row(d, pid)["left_over"], row(d, pid)["reason"], row(d, pid)["end_command"]) for pid in (dead, zombie, headless, stopped.pid, plain.pid)},
          {dead: ("gone", True, "the driver lists it, but no process has this PID", None),
           zombie: ("zombie", True, "it has ended, and its parent %d has not collected it" % parent.pid, "sudo kill -CHLD %d" % parent.pid),
           headless: ("zombie", True, "its main thread has ended, and others have not", "sudo kill -KILL %d" % headless),
           stopped.pid: ("stopped", False, "it is stopped", None), plain.pid: ("sleeping", False, None, None)}, "verdicts")
    equal((row(d, parent.pid)["bytes"], row(d, parent.pid)["why"]), (None, "the driver does not tell the figure of this process"), "a figure that NVML does not have")
    equal((row(d, open_only.pid)["bytes"], row(d, open_only.pid)["kinds"], row(d, open_only.pid)["why"]), (None, [], "it has the device open, and the driver lists no memory of it"), "only open")
    equal((d["not_explained"], d["listed"], d["hidden"]), (12345, 15 << 20, 0), "the rest")


def dead_pid():
    """A PID that no process has."""
    p = spawn([sys.executable, "-c", ""])
    p.popen.wait(30)
    return p.popen.pid


def test_no_thread_has_run():
    """Without the driver's word, a process whose threads sleep is idle for at least that time."""
    p = holder()
    env = machine("process 0 %d 1M" % p.pid)
    d = until(lambda: (x := look(env)) and (row(x, p.pid)["idle"] or 0) > 1 and x, "a process that has slept for a second")
    h = row(d, p.pid)
    equal(h["idle_by"], "threads", "source")
    check(h["idle"] <= h["age"] + 0.1, "idle for longer than it lives: %s", h)
    busy = spawn([sys.executable, "-c", "while True: pass"])
    env = machine("process 0 %d 1M" % p.pid, "process 0 %d 1M" % busy.pid)
    # It may wait for a CPU, too.
    until(lambda: (row(look(env), busy.pid)["idle"] or 0) < 0.9, "a busy process that is not idle")
    d = until(lambda: (x := devices(env, "--idle", "1s")[0]) and busy.pid not in [h["pid"] for h in x["holders"]] and x, "--idle without the busy process")
    check(row(d, p.pid)["reason"].startswith("no thread has run for ") and d["filtered"] >= 1, "--idle: %s", d)
    busy.stop()


def test_namespaces_and_jobs():
    """A PID in the process's own namespace; Ray's job; a name and arguments that are hostile."""
    p = holder("--pid", "--fork", env={**os.environ, "RAY_JOB_ID": "0100\x1b[31m"})
    equal(p.stdout().split()[1], "1", "PID inside")
    (inside,) = harness.children_of(p.pid)
    hostile = holder(program="import ctypes; ctypes.CDLL(None).prctl(15, b') Z 1 1 1 (\\n\\033[2J', 0, 0, 0)\n" + HOLD)
    d = look(machine("process 0 %d 3M" % inside, "process 0 %d 5M" % hostile.pid))
    h = row(d, inside)
    equal((h["inner_pid"], h["state"], h["parent"], h["left_over"], h["job"]), (1, "sleeping", p.pid, False, r"ray 0100\x1b[31m"), "in a namespace")
    h = row(d, hostile.pid)
    equal((h["state"], h["parent_gone"], h["inner_pid"]), ("sleeping", False, hostile.pid), "a hostile name")
    code, out, _ = tool("ps", "--device", root=True, env=machine("process 0 %d 3M" % inside, "process 0 %d 5M" % hostile.pid))
    check(code == 0 and "\x1b" not in out and "(PID 1 in its namespace)" in out, "text: %r", out)


# A process with a child that has the GPU open, too.
PARENT = HOLD.replace("time.sleep(600)", """
child = os.fork()
if not child:
    sys.stdin.readline()
    os._exit(0)
print("child", child, flush=True)
time.sleep(600)""")


@contextlib.contextmanager
def grouped(pid, name, *folders):
    """The process is in a control group of this name, below those folders. Yields its path. At the end, ends the process and removes the
    group."""
    top = scratch("cgroup-" + name)
    os.mkdir(top)
    if subprocess.run(["mount", "-t", "cgroup2", "none", top], capture_output=True, check=False).returncode:
        raise Skip("no second version of control groups")
    groups = [os.path.join(top, *folders[:i]) for i in range(1, len(folders) + 1)] + [os.path.join(top, *folders, name)]
    try:
        for group in groups:
            os.makedirs(group, exist_ok=True)
        with open(os.path.join(groups[-1], "cgroup.procs"), "w", encoding="ascii") as f:
            f.write(str(pid))
        yield groups[-1]
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        try:
            until(lambda: not os.path.exists(groups[-1]) or not remove(groups[-1]), "the end of the group", 20)
            for group in reversed(groups[:-1]):  # another run of the tests may still have its own in it
                remove(group)
        finally:  # before this folder is removed: it has the machine's groups
            subprocess.run(["umount", "-l", top], check=False)


def test_removed_cgroup():
    """A process that has ended in a control group that was removed after it: docker rm -f, for the kernel."""
    parent = holder(program=PARENT, session=True)
    child = int(parent.wait_line("^child", 20).split()[1])
    identity = "%064x" % (os.getpid() << 200)
    with grouped(child, "docker-%s.scope" % identity):
        env = machine("process 0 %d 7M" % child)
        h = row(look(env), child)
        equal((h["container"], h["left_over"], h["end_all_command"]), (identity[:12], False, None), "in its container")
        os.kill(child, signal.SIGKILL)
        until_state(child, "Z")
    h = row(look(env), child)
    equal((h["container"], h["container_gone"], h["left_over"], h["end_all_command"]), (identity[:12], True, True, None), "its container is gone")
    check(h["reason"].endswith(", its container no longer exists"), "reason: %s", h["reason"])


def test_end_of_all():
    """A worker that is left over in a container or a Slurm job: the command for all of it is printed beside the one for the worker."""
    identity = "%064x" % (os.getpid() << 201)
    for folders, name, command, title in ((("docker",), identity, "sudo docker rm -f " + identity[:12], "container"),
                                          (("slurm", "uid_0", "job_%d" % os.getpid()), "step_0", "scancel %d" % os.getpid(), "job")):
        if title == "container" and os.path.exists("/var/lib/docker/containers"):
            continue
        parent = holder(program=PARENT, session=True)
        child = int(parent.wait_line("^child", 20).split()[1])
        with grouped(child, name, *folders):
            os.kill(parent.pid, signal.SIGKILL)
            parent.popen.wait(30)
            env = {**machine("process 0 %d 7M" % child), "COLUMNS": "400"}
            h = until(lambda: (x := row(look(env), child))["left_over"] and x, "an orphan")
            equal((h["end_command"], h["end_all_command"]), ("sudo kill %d" % child, command), title)
            _, out, _ = tool("ps", "--device", root=True, env=env)
            check(". To end it: sudo kill %d. To end its whole %s: %s\n" % (child, title, command) in " ".join(out.split(" ")), "text: %s", out)


def remove(group):
    try:
        os.rmdir(group)
    except OSError as e:
        return e
    return None


def test_two_users():
    """nobody may not search root's processes, but what the driver lists is named. The sums hold."""
    mine = holder()
    theirs = spawn(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", sys.executable, "-c", HOLD.replace('kept =', '#')])
    theirs.wait_line("^ready", 30)
    for path in (harness.OUT, DRYRUN, os.path.dirname(scratch("x"))):
        if not os.stat(path).st_mode & 1:
            raise Skip("another user cannot enter %s" % path)
    env = machine("process 0 %d 2G" % mine.pid, "process 0 %d 1G" % theirs.pid)
    d = look(env)
    equal((row(d, theirs.pid)["user"], row(d, mine.pid)["user"], row(d, mine.pid)["open"]), ("nobody", "root", True), "as root")
    done = subprocess.run(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", TOOL, "ps", "--device", "--json"], env=env,
                          capture_output=True, text=True, check=False, timeout=60)
    equal(done.returncode, 0, "as nobody: %s" % done.stderr)
    document = json.loads(done.stdout)
    d = document["devices"][0]
    adds_up(d)
    h = row(d, mine.pid)
    equal((h["user"], h["state"], h["bytes"], h["open"], h["parent"]), ("root", "sleeping", 2 * GIB, False, row(look(env), mine.pid)["parent"]), "root's process as nobody sees it")
    check(h["command"] and document["not_searched"] > 0, "named by what all may see: %s", document)


def test_slices():
    """Multi-instance mode: processes are listed by slice. What a slice does not tell is not explained."""
    first, second = holder(), holder()
    env = machine("mig 0 1", "slice 0 3 20G", "slice 0 5 40G", "process 0 %d 4G slice=3" % first.pid, "process 0 %d 6G slice=5" % second.pid, "process 0 %d 1G slice=5" % dead_pid(), "more 0 3M", "reserved 0 512M")
    d = look(env)
    equal([(s["slice"], s["total"], s["used"]) for s in d["slices"]], [(3, 20 * GIB, 4 * GIB), (5, 40 * GIB, 7 * GIB)], "slices")
    check(all(s["uuid"].startswith("MIG-") for s in d["slices"]), "UUIDs: %s", d["slices"])
    equal((row(d, first.pid)["slice"], row(d, second.pid)["slice"], row(d, second.pid)["bytes"]), (3, 5, 6 * GIB), "rows")
    equal((d["mig"], d["not_explained"], d["holders"][0]["state"]), (True, 3 << 20, "gone"), "the device")
    code, out, _ = tool("ps", "--device", "0", root=True, env=env)
    check(code == 0 and "slice 3: 4.00 GiB of 20.0" in out and "[slice 5] " in out, "text: %s", out)


def test_lists_that_overlap():
    """A process that computes and draws counts once; MPS has its own list."""
    both, mps = holder(), holder()
    d = look(machine("process 0 %d 4G both" % both.pid, "process 0 %d 2G mps" % mps.pid, "process 0 %d 1G" % mps.pid))
    equal((row(d, both.pid)["kinds"], row(d, both.pid)["bytes"]), (["compute", "graphics"], 4 * GIB), "in two lists")
    equal(row(d, mps.pid)["kinds"], ["compute", "mps"], "MPS")


def test_figures_that_are_missing():
    """Each missing figure has a reason, and the table is printed."""
    p = holder()
    line = "process 0 %d 4G" % p.pid
    d = look(machine(line, "reserved 0 1G", "no_v2"))
    equal((d["reserved_by_driver"], d["not_explained"], d["why"]), (None, GIB, None), "a driver without the reserve")
    d = look(machine(line, "no_processes"))
    equal((row(d, p.pid)["bytes"], d["not_explained"]), (None, 4 * GIB), "a driver that lists no processes")
    check("does not list" in d["why"] and "does not list" in row(d, p.pid)["why"], "why: %s", d)
    d = devices(machine(line, "no_memory"))[0]
    equal((d["used"], d["not_explained"], row(d, p.pid)["bytes"]), (None, None, 4 * GIB), "unified memory")
    check("uses the host's" in d["why"], "why: %s", d)
    out = tool("ps", "--device", root=True, env={**machine(line, "no_processes"), "COLUMNS": "60"})[1]
    check("figures are missing: " in out and all(len(x) <= 60 for x in out.split("figures are missing: ")[1].splitlines()), "text: %s", out)
    d = look(machine("process 0 %d 90G" % p.pid))
    equal((d["not_explained"], d["used"]), (-10 * GIB, 80 * GIB), "more than the device has")
    code, out, err = tool("ps", "--device", "--json", "--fail-if", "free<1G", root=True, env=machine(line, "no_memory"))
    check(code == 1 and "cannot be judged on GPU 0" in err and json.loads(out), "--fail-if without a figure: %d %s", code, err)


def test_virtual_gpu():
    """The profile of a virtual GPU limits its memory, and the driver may list no processes."""
    p = holder()
    line = "process 0 %d 4G" % p.pid
    env = machine(line, "vgpu 0 10G", "reserved 0 1G")
    d = look(env)
    equal((d["vgpu"], d["total"], d["used"], d["free"], row(d, p.pid)["bytes"]), (True, 10 * GIB, 5 * GIB, 5 * GIB, 4 * GIB), "a part of a GPU")
    _, out, _ = tool("ps", "--device", root=True, env=env)
    check("5.00 GiB of 10.00 GiB in use, 5.00 GiB free\n  virtual GPU: its profile limits the memory to 10.00 GiB\n" in out, "text: %s", out)
    d = look(machine(line, "vgpu 0 10G", "no_processes"))
    equal((d["why"], d["not_explained"]), ("the driver does not list the processes of a virtual GPU", 4 * GIB), "no list")
    d = look(machine(line, "vgpu 0 100G"))
    equal((d["vgpu"], d["total"]), (True, VRAM), "a profile of the whole GPU")
    equal(look(machine(line))["vgpu"], False, "a whole GPU")


def test_two_devices():
    first = holder()
    env = machine("process 0 %d 4G" % first.pid, "process 1 %d 2G" % first.pid, "process 1 1 3G")
    env["MEMTRACE_DRYRUN_DEVICES"] = "2"
    both = devices(env)
    for d in both:
        adds_up(d)
    equal([d["used"] for d in both], [4 * GIB, 5 * GIB], "used")
    equal([d["device"] for d in devices(env, "1")], [1], "--device 1")
    equal([d["device"] for d in devices(env, both[1]["uuid"])], [1], "--device UUID")
    code, out, err = tool("ps", "--device=7", root=True, env=env)
    check(code == 2 and not out and "no GPU '7': this machine has 2" in err, "--device=7: %d %s %s", code, out, err)
    code, out, err = tool("ps", "--device", "--fail-if", "free<76G", "--fail-if", "used>90%", root=True, env=env)
    check(code == 4 and "holds on GPU 1: free 75.00 GiB < 76.00 GiB" in err and "GPU 0" not in err and "used" not in err, "--fail-if: %d %s", code, err)


def test_driver_that_hangs():
    """The table has what /proc shows, and the helper process is given up."""
    p = holder()
    code, out, err = tool("ps", "--device", "--json", root=True, env=machine("process 0 %d 4G" % p.pid, "hang"))
    equal(code, 0, "ps: %s" % err)
    d = json.loads(out)["devices"][0]
    equal((row(d, p.pid)["bytes"], d["used"], d["not_explained"]), (None, None, None), "figures")
    check("was not ready within 10 s" in d["why"] and "was not ready within 10 s" in row(d, p.pid)["why"], "why: %s", d)
    env = machine("process 0 %d 4G" % p.pid)
    watch = spawn([TOOL, "ps", "--device", "--json", "--watch", "--interval", "1s", "--count", "10"], env=env)
    adds_up(json.loads(watch.wait_line("^{", 30))["devices"][0])
    machine("process 0 %d 4G" % p.pid, "hang")
    d = json.loads(watch.wait_line("has not answered for 5 s", 60))["devices"][0]
    check("has not answered for 5 s" in d["why"] and row(d, p.pid)["bytes"] is None, "why: %s", d)
    equal(watch.popen.wait(60), 0, "end: %s" % watch.stderr())


def test_without_nvml():
    p = holder()
    code, out, err = tool("ps", "--device", "--json", root=True)
    equal(code, 0, "ps: %s" % err)
    d = json.loads(out)["devices"][0]
    check(row(d, p.pid)["open"] and "libnvidia-ml" in d["why"], "device: %s", d)


def test_own_namespace():
    """In a container, the driver's PIDs are others': nothing is joined with a wrong process, and the sums hold."""
    p = holder()
    env = machine("process 0 %d 4G" % p.pid, "process 0 1 2G", "reserved 0 1G")
    done = subprocess.run(["unshare", "--pid", "--fork", "--mount-proc", TOOL, "ps", "--device", "--json"], env=env, capture_output=True, text=True, check=False, timeout=60)
    if re.search("unshare", done.stderr):
        raise Skip("no PID namespace: %s" % done.stderr)
    equal(done.returncode, 0, "ps: %s" % done.stderr)
    d = json.loads(done.stdout)["devices"][0]
    adds_up(d)
    equal((d["hidden"], d["hidden_processes"], d["holders"]), (6 * GIB, 2, []), "nothing that the host has")
    check("--pid=host" in d["why"], "why: %s", d["why"])


def checked(env, prefix=()):
    """The lines of `check` about GPUs, each in one line."""
    done = subprocess.run([*prefix, TOOL, "check"], env={**env, "COLUMNS": "1000"}, capture_output=True, text=True, check=False, timeout=60)
    if prefix and re.search("unshare", done.stderr):
        raise Skip("no PID namespace: %s" % done.stderr)
    found = re.findall(r"^(ok|-|NO) +(GPU[s0-9 ]*?|GPU driver)  +(\S.*)$", done.stdout, re.M)
    return {what: (mark, text) for mark, what, text in found}


def test_check():
    """`check` has a line for each GPU: what is free, and who holds most of the rest."""
    mine, other = holder(), holder()
    env = machine("process 0 %d 4G" % mine.pid, "process 0 %d 3G" % dead_pid(), "process 0 1 2G", "process 0 %d 7G" % other.pid, "more 0 3M", "reserved 0 450M", "process 1 1 1G")
    env["MEMTRACE_DRYRUN_DEVICES"] = "2"
    lines = checked(env)
    mark, text = lines["GPU 0"]
    check(mark == "ok" and text.startswith("63.56 GiB of 80.00 GiB free; held: 7.00 GiB by PID %d (root: python" % other.pid), "GPU 0: %s", text)
    for part in ("), 4.00 GiB by PID %d (root: " % mine.pid, "3.00 GiB by PID ", "(no such process), 2.00 GiB by 1 more process, 450.00 MiB as the driver's reserve, 3.00 MiB not explained; "):
        check(part in text, "%s in %s", part, text)
    # Those of another run of the tests that have the device open count, too.
    check(re.search("; (1 of them is|[0-9]+ of them are) probably left over", text), "left over: %s", text)
    check("79.00 GiB of 80.00 GiB free; held: 1.00 GiB by PID 1 (" in lines["GPU 1"][1] and lines["GPUs"][1].startswith("2: "), "all: %s", lines)
    lines = checked(machine("mig 0 1", "slice 0 3 20G", "process 0 %d 4G slice=3" % mine.pid))
    check("76.00 GiB of 80.00 GiB free; held: 4.00 GiB by PID %d (" % mine.pid in lines["GPU 0"][1], "slices: %s", lines)
    lines = checked(machine("process 0 %d 4G" % mine.pid), ("unshare", "--pid", "--fork", "--mount-proc"))
    check("76.00 GiB of 80.00 GiB free; held: 4.00 GiB by processes that this host does not show; " in lines["GPU 0"][1] and "--pid=host" in lines["GPU 0"][1], "hidden: %s", lines)
    lines = checked(machine("process 0 %d 4G" % mine.pid, "no_memory"))
    check(lines["GPU 0"][0] == "-" and "its free memory is not known: " in lines["GPU 0"][1] and "uses the host's" in lines["GPU 0"][1], "unified memory: %s", lines)


def test_check_without_nvml():
    """No NVML, and one that hangs: `check` says so, and ends."""
    needs_nodes()
    lines = checked(dict(os.environ))
    check("GPU 0" not in lines and lines["GPU driver"][0] == "-", "without NVML: %s", lines)
    lines = checked(machine("hang"))
    check("GPU 0" not in lines and "was not ready within 3 s" in lines["GPUs"][1], "hangs: %s", lines)


def test_schema():
    env = machine("mig 0 1", "slice 0 3 20G", "process 0 1 4G slice=3", "process 0 %d 1G slice=3" % dead_pid(), "more 0 3M")
    code, out, err = tool("ps", "--device", "--json", root=True, env=env)
    equal(code, 0, "ps: %s" % err)
    test_json_schema.validate([["ps --device", "ps", json.loads(out)]])
    code, out, err = tool("ps", "--device", "--json", "--watch", "--count", "3", "--interval", "100ms", root=True, env=env)
    equal((code, [len(json.loads(line)["devices"]) for line in out.splitlines()]), (0, [1, 1, 1]), "--watch: %s" % err)


def test_usage():
    for args in (("--orphans",), ("--idle", "10m"), ("--fail-if", "free<1G"), ("--device", "--idle", "soon"), ("--device", "--fail-if", "fre<1G"), ("--device", "--fail-if", "growth>1G/10m"), ("--device", "0", "1")):
        code, out, err = tool("ps", *args)
        equal((code, out), (64, ""), "ps %s: %s" % (" ".join(args), err))


if __name__ == "__main__":
    run(globals())

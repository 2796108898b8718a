#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# run: long cpu=80
"""`run`: the command behaves as if run directly, whatever happens to the recording; and the recording has everything that its
PyTorch does from the first instruction on."""
import fcntl
import functools
import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import termios
import time

import chaos
import harness
import mtr_reader
import truth
from harness import IS_ROOT, Skip, check, device, equal, nightly, own, python, report, run, scratch, spawn, spawn_job, sudo, tool

OK, FAILED, UNUSABLE, NOT_PERMITTED, USAGE = 0, 1, 2, 3, 64
CAP_CHOWN, CAP_KILL = 0, 5
FIRST = os.path.join(harness.WORKLOADS, "first.py")


# A program with PyTorch's allocator and nothing else of it: it starts without the two seconds of `import torch`. So it is fast, and
# allocates only when it is told that the recording has begun.
ALLOCATES = """
import ctypes, os, random, signal, sys, time
new = ctypes.CDLL(%r)._ZN3c1025ProfiledCPUMemoryReporter3NewEPvm
new.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
def allocate(n):
    for i in range(n):
        new(None, 16 * (i + 1), random.randrange(64, 100000, 2))  # the stand-in throws at odd ones
sys.stdin.readline()
"""
RECORDS = "recording PID"
ALLOCATED = 100


def allocates(code, interpreter=sys.executable):
    """The command of such a program."""
    return [interpreter, "-S", "-c", ALLOCATES % chaos.hooks() + code]


def check_allocated(recording):
    """It is whole, and has the program's 100 blocks. Returns what the report says of the capture."""
    own(recording)
    doc = report(recording)
    equal((doc["capture"]["complete"], doc["capture"]["lost"], device(doc)["allocs"]), (True, 0, ALLOCATED), "the recording")
    return doc["capture"]


def started(*args, prefix=(), **kwargs):
    """A started `run` with the arguments."""
    return spawn([*prefix, harness.TOOL, "run", *args], root=True, **kwargs)


def made(recording, known):
    """Every tensor of the workload is recorded once, with its line; the recording begins at the start."""
    own(recording)
    with open(recording, "rb") as f:
        r = mtr_reader.Recording(f)
        events = list(r.events())
    check(r.complete, "the recording is not whole")
    equal(r.facts["attached_at"], "start", "attached_at")
    got = []
    for e in events:
        if e["kind"] != mtr_reader.ALLOC:
            continue
        location = r.stacks[e["stack"]][1][0][0] if r.stacks[e["stack"]][1] else 0
        file, _, line = r.locations[location]
        if location and r.strings[file].endswith("first.py"):
            got.append([e["size"], line])
    rounded = [[(n + 511) // 512 * 512 if "allocs" in known and n != 100003 else n, line] for n, line in known["made"]]
    equal(got, rounded, "sizes and lines of the first tensors")
    return r, events


def started_allocating(code, *options, interpreter=sys.executable, **kwargs):
    """A started `run` of a program that allocates."""
    p = started(*options, "--", *allocates(code, interpreter), **kwargs)
    p.wait_line(RECORDS, 60, stream="err")
    p.send()
    return p


def folder(name):
    path = scratch(name)
    os.mkdir(path)
    return path


# ---- the command's behaviour -------------------------------------------------------------------------------------

def test_exit_status():
    for options in ((), ("--no-trace",)):
        for command, expected in ((("true",), 0), (("sh", "-c", "exit 5"), 5), (("sh", "-c", "exit 127"), 127)):
            equal(tool("run", *options, "--", *command, root=True)[0], expected, "exit code of %s" % (command,))
        code, out, err = tool("run", *options, "--", "sh", "-c", "kill -SEGV $$", root=True)
        equal((code, out), (128 + signal.SIGSEGV, ""), "killed by itself")
        check("signal 11" in err, "not said: %r", err)
        code, _, err = tool("run", *options, "--", "no-such-command-here", root=True)
        check(code == 127 and "no-such-command-here" in err and "No such file" in err, "no such command: %d, %r", code, err)
        code, _, err = tool("run", *options, "--", "/etc/passwd", root=True)
        check(code == 126 and "/etc/passwd" in err and "denied" in err, "no program: %d, %r", code, err)


def test_failed_dry_run():
    """A dry run computes no values, so a command may fail only there. An out-of-memory error needs no such explanation."""
    libraries()
    for options, said in (((), False), (("--dry-run-cuda",), True)):
        code, _, err = tool("run", "--no-trace", *options, "--", "sh", "-c", "exit 3", root=True)
        equal((code, "memtrace-bpf estimate -- COMMAND" in err), (3, said), "said after a failure: %s" % err)
    job = "import torch\ntry: torch.empty(1 << 40, device='cuda')\nexcept torch.OutOfMemoryError: raise SystemExit(4)"
    code, _, err = tool("run", "--dry-run-cuda", "-o", scratch("oom.mtr"), "--", python(), "-c", job, root=True, seconds=120)
    equal((code, "estimate" in err), (4, False), "out of memory: %s" % err)


def test_usage():
    for args, word in (((), "command"), (("--vram", "1G", "true"), "dry"), (("--dry-run-cuda", "--vram", "1K", "true"), "1K"),
                       (("--dry-run-cuda", "--vram", "400M", "true"), "CUDA context alone"),
                       (("--dry-run-cuda", "--devices", "0", "true"), "devices"), (("--dry-run-cuda", "--devices", "65", "true"), "64"),
                       (("-p", "1", "true"), "p"), (("--no-trace", "-o", "x", "true"), "no-trace")):
        code, out, err = tool("run", *args)
        check(code == USAGE and out == "" and word in err, "run %s: %d, %r", args, code, err)
    code, _, err = tool("run", "--user", "no-such-user-here", "true", root=True)
    check(code == USAGE and "no-such-user-here" in err, "no such user: %d, %r", code, err)


def test_options_of_the_command_are_its_own():
    code, out, _ = tool("run", "--no-trace", "sh", "-c", 'echo "$0 $*"', "-o", "--", "--no-trace", "-p", "1")
    equal((code, out), (0, "-o -- --no-trace -p 1\n"), "arguments")
    code, out, _ = tool("run", "--no-trace", "--", "echo", "-f", "--help")
    equal((code, out), (0, "-f --help\n"), "arguments after --")


def test_pass_through():
    data = os.urandom(300000)
    for options in ((), ("--no-trace",)):
        done = subprocess.run(sudo([harness.TOOL, "run", "-q", *options, "--", "cat"]), input=data, capture_output=True, timeout=30,
                              check=False)
        equal((done.returncode, done.stdout == data, done.stderr), (0, True, b""), "cat")
    p = started("--no-trace", "--", "sh", "-c", "cd /; pwd; exec 5>&-; ls -l /proc/self/fd | wc -l; grep -E 'Sig(Blk|Ign)' /proc/self/status")
    equal(p.wait(30), 0, "exit code")
    direct = spawn(sudo(["sh", "-c", "cd /; pwd; exec 5>&-; ls -l /proc/self/fd | wc -l; grep -E 'Sig(Blk|Ign)' /proc/self/status"]))
    direct.wait(30)
    equal(p.stdout(), direct.stdout(), "folder, open files and signals of a command, compared with one run directly")


def in_terminal(*args):
    """The tool as the foreground job of its own terminal: (process, terminal)."""
    ours, theirs = pty.openpty()

    def leads():
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    p = subprocess.Popen(sudo([harness.TOOL, "run", *args]), stdin=theirs, stdout=theirs, stderr=theirs, preexec_fn=leads)
    os.close(theirs)
    return p, ours


def read_until(fd, pattern, seconds=60):
    """Output of a terminal up to a match; pattern None: to its end."""
    text, limit = "", time.monotonic() + seconds
    os.set_blocking(fd, False)
    while time.monotonic() < limit:
        try:
            data = os.read(fd, 65536)
        except BlockingIOError:
            time.sleep(0.02)
            continue
        except OSError:
            data = b""
        text += data.decode("utf-8", "replace")
        if pattern and re.search(pattern, text):
            return text
        if not data:
            break
    check(not pattern, "no %r on the terminal within %d s: %r", pattern, seconds, text[-1000:])
    return text


def ended(p, seconds=30):
    try:
        return p.wait(seconds)
    except subprocess.TimeoutExpired:
        p.kill()
        p.wait()
        raise harness.Failure("the tool did not end") from None


def test_terminal():
    p, terminal = in_terminal("--", "sh", "-c", "test -t 0 && test -t 1 && test -t 2 && read line && echo got-$line")
    os.write(terminal, b"hello\n")
    text = read_until(terminal, "got-hello")
    equal(ended(p), 0, "exit code (%r)" % text)
    os.close(terminal)
    # Ctrl-C goes to the command, which may handle it.
    command = "import signal, sys, time; signal.signal(signal.SIGINT, lambda *_: sys.exit(3)); print('re' 'ady', flush=True); time.sleep(60)"
    for options in ((), ("--no-trace",)):
        p, terminal = in_terminal(*options, "--", sys.executable, "-c", command)
        read_until(terminal, "ready")
        os.write(terminal, b"\x03")
        equal(ended(p), 3, "exit code after Ctrl-C")
        os.close(terminal)


def test_interrupted_while_recorded():
    path = scratch("ctrl-c.mtr")
    p, terminal = in_terminal("-o", path, "--", *allocates(
        "signal.signal(signal.SIGINT, lambda *_: os._exit(8)); allocate(100); print('re' 'ady', flush=True); time.sleep(120)"))
    read_until(terminal, RECORDS)
    os.write(terminal, b"\n")
    read_until(terminal, "ready")
    os.write(terminal, b"\x03")
    read_until(terminal, None, 30)
    equal(ended(p), 8, "exit code after Ctrl-C")
    os.close(terminal)
    check_allocated(path)


def test_signals():
    path = scratch("term.mtr")
    p = started("-o", path, "--", python(), FIRST, "hang")
    known = json.loads(p.wait_line(r"^\{", 120))
    p.wait_line("^ready", 30)
    p.signal(signal.SIGINT)  # for the tool only: a terminal would signal the command, too
    harness.settle(p)
    check(p.alive(), "SIGINT ended it")
    with open("/proc/%d/status" % p.pid, encoding="ascii") as f:
        held = int(re.search(r"CapEff:\s*(\w+)", f.read())[1], 16)
    check(held & 1 << CAP_KILL and not held & 1 << CAP_CHOWN, "capabilities while recording: %x", held)
    p.signal(signal.SIGTERM)
    equal(p.wait(30), 9, "exit code when SIGTERM is handed on")
    made(path, known)
    for number in (signal.SIGHUP, signal.SIGUSR1, signal.SIGTERM):
        p = started("--no-trace", "--", "sh", "-c", "trap 'exit 4' HUP USR1 TERM; echo ready; while :; do sleep 0.05; done")
        p.wait_line("^ready", 30)
        p.signal(number)
        equal(p.wait(30), 4, "exit code after %s" % number)


def test_tool_killed():
    """The command continues without the tool."""
    path, mark, go = scratch("killed.mtr"), scratch("killed.mark"), scratch("killed.go")
    p = started_allocating("""
allocate(100)
print(os.getpid(), flush=True)
while not os.path.exists(%r):
    time.sleep(0.01)
open(%r, "w").close()
""" % (go, mark), "-o", path)
    pid = int(p.wait_line(r"^\d+$", 60))
    harness.until(lambda: os.path.getsize(path) > 100, "the first flush: until then, the file is its magic only")
    p.signal(signal.SIGKILL)
    p.wait(10)
    with open(go, "w", encoding="ascii"):
        harness.until(lambda: os.path.exists(mark), "what the command (PID %d) does without the tool" % pid)
    own(path)
    code, out, err = tool("report", "--format", "json", path)
    check(code == OK and '"complete":false' in out.replace(" ", ""), "what was recorded until then: %d %s", code, err)


# ---- completeness -----------------------------------------------------------------------------------------------

def from_start(role):
    path = scratch("start-%s.mtr" % role)
    code, out, err = tool("run", "-o", path, "--", python(role), FIRST, root=True, seconds=120)
    equal(code, 0, "exit code (%s)" % err[-500:])
    _, events = made(path, json.loads(out))
    check("from PyTorch's first allocation on" in err, "not said: %r", err)
    check(not any(e["kind"] == mtr_reader.LOST for e in events), "events were lost")


def test_from_start():
    from_start("main")


def test_from_start_debian():
    from_start("debian")


@nightly("versions")
def test_from_start_newest():
    from_start("newest")


@nightly("versions")
def test_from_start_old():
    from_start("old")


def cuda_from_start(role):
    libraries()
    path = scratch("cuda-%s.mtr" % role)
    code, out, err = tool("run", "--dry-run-cuda", "-o", path, "--", python(role), FIRST, "cuda", root=True, seconds=120)
    equal(code, 0, "exit code (%s)" % err[-500:])
    known = json.loads(out)
    _, events = made(path, known)
    blocks = [e for e in events if e["kind"] == mtr_reader.ALLOC and e.get("allocated")]
    equal(blocks[0]["allocated"], blocks[0]["size"], "the allocator's total at the first event: anything before was missed")
    d = device(report(path), "cuda:0")
    equal((d["allocs"], d["total_allocated"], d["drift"], d["before_attach"]), (known["allocs"], known["bytes"], 0, 0),
          "allocations, bytes, drift and bytes before attaching")


def test_cuda_from_start():
    cuda_from_start("main")


@nightly("versions")
def test_cuda_from_start_cu12():
    cuda_from_start("cu12")


def slow_import(role):
    """CUDA's libraries are there seconds before PyTorch's: that is no program with CUDA alone."""
    path = scratch("slow-%s.mtr" % role)
    code, out, err = tool("run", "-f", "-o", path, "--", python(role), os.path.join(harness.WORKLOADS, "slow_import.py"), "3", root=True, seconds=120)
    equal((code, out), (0, "waited\n"), "run (%s)" % err)
    own(path)
    rows = [[r["bytes"], r["count"]] for r in report(path, at="peak")["rows"] if os.path.basename(r["file"] or "") == "slow_import.py"]
    equal(rows, [[20 * 4000, 20]], "the rows of its lines (%s)" % err)


def test_slow_import():
    slow_import("main")


@nightly("versions")
def test_slow_import_newest():
    slow_import("newest")


def test_waiting_record_is_as_early():
    """record -p on Python that imports torch later. Nothing holds the process: on a busy machine it may be faster,
    and then the next attempt counts."""
    code = "import sys; sys.argv = sys.argv[1:]; sys.stdin.readline(); exec(compile(open(sys.argv[0]).read(), sys.argv[0], 'exec'))"
    for attempt in range(12):
        target = spawn([python(), "-c", code, FIRST])
        path = scratch("waiting-%d.mtr" % attempt)
        recorder = harness.record(target.popen.pid, path, "--wait-for", "torch", wait=False)
        recorder.wait_line("waiting for `import torch`", 30, stream="err")
        target.send()
        known = json.loads(target.wait_line(r"^\{", 120))
        equal((target.wait(60), recorder.wait(30)), (0, 0), "exit codes")
        if harness.report(path)["capture"]["attached_at"] == "start":
            break
    made(path, known)


# ---- commands of all kinds ------------------------------------------------------------------------------------

def test_no_torch():
    cwd = folder("no-torch")
    code, out, err = tool("run", "--", sys.executable, "-c", "import json; print(json.dumps(1)); raise SystemExit(6)", root=True, cwd=cwd)
    equal((code, out), (6, "1\n"), "exit code and output")
    check("without importing PyTorch" in err, "not said: %r", err)
    equal(os.listdir(cwd), [], "files left behind")


@nightly("long")
def test_advice_that_can_be_followed():
    """--children is recommended only where it is allowed: not with --inside."""
    for options, recommended in (((), True), (("--inside",), False)):
        code, _, err = tool("run", *options, "--", "true", root=True)
        check(code == 0 and "without importing PyTorch" in err, "not said: %r", err)
        equal("--children" in err, recommended, "--children of %s in %r" % (options, err))
        p = spawn([harness.TOOL, "run", *options, "--", "sh", "-c", '"$0" -c "import torch; input()"; true', python()], root=True)
        line = p.wait_line("PyTorch is in PID", 120, stream="err")
        equal("--children" in line, recommended, "--children of %s in %r" % (options, line))
        p.send()
        equal(p.wait(), 0, "exit code of %s" % (options,))


@nightly("long")
def test_scripts():
    """A program that executes Python after another program: the PID is the same."""
    cwd = folder("scripts")
    script = os.path.join(cwd, "job")
    with open(FIRST, encoding="utf-8") as f:
        body = f.read()
    with open(script, "w", encoding="utf-8") as f:
        f.write("#!%s\n" % python() + body)
    os.chmod(script, 0o755)
    code, out, err = tool("run", "-o", scratch("shebang.mtr"), "--", script, root=True, seconds=120)
    equal(code, 0, "exit code (%s)" % err[-500:])
    own(scratch("shebang.mtr"))
    with open(scratch("shebang.mtr"), "rb") as f:
        r = mtr_reader.Recording(f)
        sizes = [e["size"] for e in r.events() if e["kind"] == mtr_reader.ALLOC]
    for n, _ in json.loads(out)["made"]:
        equal(sizes.count(n), 1, "blocks of %d bytes" % n)
    equal(json.loads(r.facts["cmdline"])[1], script, "command line")
    path = scratch("exec.mtr")
    code, out, err = tool("run", "-o", path, "--", "sh", "-c", 'sleep 0.2; exec env A=b "$0" "$@"', python(), FIRST, root=True, seconds=120)
    equal(code, 0, "exit code (%s)" % err[-500:])
    made(path, json.loads(out))


def test_pytorch_in_a_child():
    cwd = folder("child")
    p = started("--", "sh", "-c", '"$@"; exit 4', "sh", *allocates("print(os.getpid())"), cwd=cwd)
    named = int(re.search(r"-p (\d+)\b", p.wait_line(r"PyTorch is in PID (\d+)\b.*-p \1\b", 60, stream="err"))[1])
    p.send()
    equal((p.wait(60), p.stdout()), (4, "%d\n" % named), "exit code, and the child")
    equal(os.listdir(cwd), [], "files left behind")


def test_exec_after_torch():
    path = scratch("becomes.mtr")
    p = started_allocating("allocate(100); os.execv('/bin/sh', ['sh', '-c', 'sleep 1; exit 3'])", "-o", path)
    equal(p.wait(60), 3, "exit code (%s)" % p.stderr()[-500:])
    equal(check_allocated(path)["stop_reason"], "exec", "stop_reason")


# ---- the recording ----------------------------------------------------------------------------------------------

def test_default_name():
    cwd = folder("default")
    p = started_allocating("allocate(100); print(os.getpid())", cwd=cwd)
    equal(p.wait(120), 0, "exit code (%s)" % p.tail(p.stderr()))
    files = os.listdir(cwd)
    check(len(files) == 1 and re.fullmatch(r"memtrace-%d-\d{8}T\d{6}\.mtr" % int(p.stdout()), files[0]), "files: %s", files)
    check_allocated(os.path.join(cwd, files[0]))


def test_to_standard_output():
    """The command's own output then goes to standard error."""
    with open(scratch("stdout.mtr"), "wb") as f:
        p = started_allocating("allocate(100); print('its own words')", "-o", "-", stdout=f)
        equal((p.wait(60), "its own words\n" in p.stderr()), (0, True), "exit code, and its output in %s" % p.stderr())
    check_allocated(scratch("stdout.mtr"))


def test_stops_before_the_command():
    """A limit of the recording does not affect the command."""
    path = scratch("bound.mtr")
    p = started_allocating("for i in range(30): allocate(1); time.sleep(0.02)\nprint('end'); raise SystemExit(7)", "-o", path, "--max-events", "5")
    equal((p.wait(60), p.stdout()), (7, "end\n"), "exit code and output")
    doc = report(path)
    check(doc["capture"]["complete"] and doc["capture"]["stop_reason"] == "max-events", "%s", doc["capture"])


HOLDS = """
import random, sys, torch
held = [torch.empty(random.randrange(1, 1 << 14), dtype=torch.uint8, device="cuda") for _ in range(30000)]
print("ready", torch.cuda.memory_allocated(), flush=True)
while not sys.stdin.closed:
    torch.empty(1 << 20, dtype=torch.uint8, device="cuda")
"""


@nightly("long")
def test_bound_below_the_live_blocks():
    """A bound of events leaves the reading at attach whole. A bound of size may cut it, and then the figures say so."""
    job = spawn_job([python(), "-c", HOLDS], env=truth.dry_run())
    held = int(job.wait_line("^ready", 60).split()[1])
    few, small = scratch("few.mtr"), scratch("small.mtr")
    for path, bound in ((few, ("--max-events", "100")), (small, ("--max-size", "64K"))):
        equal(harness.record(job.pid, path, *bound).wait(60), 0, "exit code")
    job.stop()
    device = harness.device(report(few), "cuda:0")
    check(held <= device["peak_allocated"] <= held + (2 << 20), "peak %d, held %d", device["peak_allocated"], held)
    equal((device["peak_is"], device["allocated_is"]), ("exact", "exact"), "figures")
    equal(tool("report", few, "--fail-if", "peak>20M")[0], 4, "a condition on the peak")
    device = harness.device(report(small), "cuda:0")
    check(device["peak_allocated"] < held, "all %d blocks fitted the file", device["live_blocks"])
    equal((device["peak_is"], device["reserved"]), ("not_exact", None), "figures of the reading that was cut")
    out = " ".join(tool("report", small)[1].split())
    check("cuda:0 is not exact" in out and "the recording ended before its reading at attach was complete" in out, "report: %s", out)
    check("cudaMallocAsync" not in out, "report: %s", out)


def test_disk_full():
    """A recording on a full disk ends with a message; the command is not affected."""
    mount = folder("tiny")
    done = subprocess.run(sudo(["mount", "-t", "tmpfs", "-o", "size=128k,mode=777", "tmpfs", mount]), capture_output=True,
                          text=True, check=False)
    if done.returncode:
        raise Skip("cannot mount a tmpfs: " + done.stderr.strip())
    undo = functools.partial(subprocess.run, sudo(["umount", mount]), check=False)
    harness.undo_on_signal.append(undo)
    try:
        path = os.path.join(mount, "full.mtr")
        p = started_allocating("allocate(200000); print('whole', flush=True); sys.exit(7)", "-o", path)
        equal((p.wait(60), p.stdout()), (7, "whole\n"), "exit code and output of the command (%r)" % p.stderr()[-500:])
        err = p.stderr()
        said = [line for line in err.splitlines() if path in line and "no space left" in line.lower()]
        check(said, "the message does not name %s and the reason: %r", path, err)
        check("the command continues" in err, "does not say that the command continues: %r", err)
        own(path)
        code, out, err = tool("report", "--format", "json", path)
        doc = json.loads(out)
        check(code == OK and not doc["capture"]["complete"] and doc["capture"]["events"], "report of it: %d, %r", code, err[-400:])
    finally:
        undo()
        harness.undo_on_signal.remove(undo)


def test_nothing_runs_for_nothing():
    """Commands that cannot be recorded: the message comes before the command runs."""
    mark, there = scratch("mark"), scratch("there.mtr")
    with open(there, "w", encoding="ascii") as f:
        f.write("precious")
    code, _, err = tool("run", "-o", there, "--", "touch", mark, root=True)
    check(code == FAILED and "-f" in err, "an output that exists: %d, %r", code, err)
    code, _, err = tool("run", "-o", "/nonexistent/x.mtr", "--", "touch", mark, root=True)
    check(code == FAILED and "/nonexistent" in err, "a folder that does not exist: %d, %r", code, err)
    check(not os.path.exists(mark), "the command was run")
    with open(there, encoding="ascii") as f:
        equal(f.read(), "precious", "the file that was there")


# ---- users ------------------------------------------------------------------------------------------------------

def as_nobody(cwd):
    """A copy of the tool and the dry run that all can run; and the prefix to be nobody."""
    if not shutil.which("setpriv"):
        raise Skip("setpriv is not here")
    os.chmod(cwd, 0o777)
    shutil.copy(harness.TOOL, cwd)
    shutil.copytree(os.path.join(harness.OUT, "dryrun"), os.path.join(cwd, "dryrun"))
    return sudo(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]), os.path.join(cwd, "memtrace-bpf")


def test_not_permitted():
    libraries()
    cwd = folder("nobody")
    prefix, binary = as_nobody(cwd)
    done = subprocess.run([*prefix, binary, "run", "--", "touch", "mark"], cwd=cwd, capture_output=True, text=True, timeout=30, check=False)
    check(done.returncode == NOT_PERMITTED and "sudo" in done.stderr and "was not started" in done.stderr, "%d, %r", done.returncode,
          done.stderr)
    check(not os.path.exists(os.path.join(cwd, "mark")), "the command was run")
    done = subprocess.run([*prefix, binary, "run", "--no-trace", "--dry-run-cuda", "--", "sh", "-c", 'id -u; echo "$LD_PRELOAD"'], cwd=cwd,
                          capture_output=True, text=True, timeout=30, check=False)
    equal((done.returncode, done.stderr), (0, ""), "--no-trace as nobody")
    equal(done.stdout.splitlines()[0], "65534", "user")
    equal(sorted(os.listdir(cwd)), ["dryrun", "memtrace-bpf"], "files left behind")


def test_another_user_gets_few_variables():
    """The caller's environment may have secrets; another user's command gets only named variables."""
    if not IS_ROOT:
        raise Skip("needs root, to run a command as somebody else")
    env = dict(os.environ, AWS_SECRET_ACCESS_KEY="abc", AWS_REGION="here", OTHER="x", LC_TIME="C", CUDA_VISIBLE_DEVICES="3", TZ="UTC")

    def got(*options):
        p = spawn([harness.TOOL, "run", "--no-trace", *options, "--", "env"], env=env)
        equal(p.wait(30), 0, "exit code (%s)" % p.stderr())
        found = dict(line.partition("=")[::2] for line in p.stdout().splitlines())
        check(all(n in found for n in ("PATH", "TZ", "LC_TIME", "CUDA_VISIBLE_DEVICES", "HOME")), "what any program needs: %s", found)
        return [n for n in ("AWS_SECRET_ACCESS_KEY", "AWS_REGION", "OTHER") if n in found], p.stderr()

    names, err = got("--user", "nobody")
    equal(names, [], "variables that another user's command gets")
    check("--command-env" in err, "it does not say so: %s", err)
    equal(got("--user", "nobody", "--command-env", "OTHER,AWS_R*")[0], ["AWS_REGION", "OTHER"], "those that are named")
    equal(got("--command-env", "OTHER")[0], ["OTHER"], "those that are named, of a command of our own")
    for options in ((), ("--user", "root"), ("--user", "nobody", "--command-env", "*")):
        equal(len(got(*options)[0]), 3, "all of them, with %s" % (options,))


def test_user_behind_sudo():
    if not IS_ROOT:
        raise Skip("needs root, to be behind sudo as somebody else")
    env = dict(os.environ, SUDO_UID="65534", SUDO_GID="65534")
    say = ["sh", "-c", 'id -u; id -g; echo "$HOME $USER"; echo "${TRITON_CACHE_DIR-none}"; mkdir -p "${TRITON_CACHE_DIR-/tmp}"; cat']
    for options in ((), ("--no-trace",), ("--dry-run-cuda",)):
        if options == ("--dry-run-cuda",):
            libraries()
        p = spawn([harness.TOOL, "run", *options, "--", *say], env=env, stdin=subprocess.DEVNULL)
        equal(p.wait(30), 0, "exit code (%s)" % p.stderr())
        uid, gid, who, cache = p.stdout().splitlines()
        equal((uid, gid, who.split()[1]), ("65534", "65534", "nobody"), "run as")
        check(options == ("--dry-run-cuda",) or cache == "none", "a cache folder: %s", cache)
        check(cache == "none" or not os.path.exists(os.path.dirname(cache)), "%s was left behind", cache)
    p = spawn([harness.TOOL, "run", "--user", "root", "--", *say], env=env, stdin=subprocess.DEVNULL)
    equal((p.wait(30), p.stdout().splitlines()[0]), (0, "0"), "--user root")
    # Recorded as another user, with an interpreter that this user can read.
    cwd = folder("sudo")
    os.chmod(cwd, 0o777)
    p = started_allocating("signal.signal(signal.SIGTERM, lambda *_: os._exit(9)); allocate(100); print('ready', flush=True); time.sleep(120)",
                           interpreter="/usr/bin/python3", env=env, cwd=cwd)
    p.wait_line("^ready", 60)
    p.signal(signal.SIGTERM)
    equal(p.wait(30), 9, "exit code of another user's command")
    equal([os.stat(os.path.join(cwd, f)).st_uid for f in os.listdir(cwd)], [65534], "who owns the recording")


# ---- the dry run ------------------------------------------------------------------------------------------------

def libraries():
    if not os.path.exists(os.path.join(harness.OUT, "dryrun", "libcuda.so.1")):
        raise Skip("the dry run's libraries are not built")


def test_dry_run():
    libraries()
    env = dict(os.environ, CUDA_VISIBLE_DEVICES="5", LD_PRELOAD="libm.so.6")
    p = spawn([harness.TOOL, "run", "--no-trace", "--dry-run-cuda", "--vram", "24G", "--devices", "3", "--", python(), FIRST, "cuda"], env=env)
    equal(p.wait(120), 0, "exit code (%s)" % p.tail(p.stderr()))
    known = json.loads(p.stdout())
    equal(known["devices"], [24 << 30] * 3, "devices")
    preload = known["env"]["LD_PRELOAD"].split(":")
    equal([os.path.basename(x) for x in preload], ["libcuda.so.1", "libnvidia-ml.so.1", "libm.so.6"], "LD_PRELOAD")
    check("CUDA_VISIBLE_DEVICES" not in known["env"] and "CUDA_VISIBLE_DEVICES" in p.stderr(), "CUDA_VISIBLE_DEVICES: %s", known["env"])
    equal(known["env"]["TRITON_LIBCUDA_PATH"], os.path.dirname(preload[0]), "TRITON_LIBCUDA_PATH")
    for name in ("TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "VLLM_CACHE_ROOT", "CUPY_CACHE_DIR"):
        cache = os.path.dirname(known["env"][name])
        check("memtrace-dryrun-" in cache and not os.path.exists(cache), "%s is %s, and there", name, cache)
    equal(known["env"]["VLLM_USE_V2_MODEL_RUNNER"], "0", "the runner of vLLM whose requests end")
    p = spawn([harness.TOOL, "run", "--no-trace", "--dry-run-cuda", "--", "printenv", "VLLM_USE_V2_MODEL_RUNNER"],
              env=dict(env, VLLM_USE_V2_MODEL_RUNNER="1"))
    equal((p.wait(60), p.stdout()), (0, "1\n"), "the user's choice")


def test_max_time():
    """The command ends after --max-time, with and without a recording; one that ignores SIGTERM, with SIGKILL."""
    for options in (("--no-trace",), ()):
        code, _, err = tool("run", *options, "--max-time", "1s", "--", "sleep", "60", root=not options)
        equal(code, 128 + 15, "exit code (%s)" % err)
        check("--max-time: stopping PID" in err and err.count("--max-time") == 1, "the messages: %s", err)
    code, _, err = tool("run", "--no-trace", "--max-time", "2s", "--", "sh", "-c", "trap '' TERM; while :; do sleep 1; done")
    equal((code, err.count("--max-time")), (128 + 9, 2), "a command that ignores SIGTERM: %s" % err)
    code, _, err = tool("run", "--no-trace", "--max-time", "30s", "--", "sh", "-c", "exit 7")
    equal((code, err), (7, ""), "a command that is over sooner")
    for value in ("0", "soon"):
        equal(tool("run", "--no-trace", "--max-time", value, "--", "true")[0], 64, "exit code of a time of %s" % value)


def test_dry_run_not_taken():
    """A static program has no dynamic linker to load a library."""
    libraries()
    if not shutil.which("cc"):
        raise Skip("no C compiler")
    source, program = scratch("static.c"), scratch("static")
    with open(source, "w", encoding="ascii") as f:
        f.write("#include <unistd.h>\nint main(void) { sleep(3); return 5; }\n")
    if subprocess.run(["cc", "-static", "-o", program, source], capture_output=True, check=False).returncode:
        raise Skip("cc cannot link statically")
    for options in ((), ("--no-trace",)):
        code, _, err = tool("run", *options, "--dry-run-cuda", "--", program, root=True)
        equal(code, 5, "exit code")
        check("has not taken the libraries" in err, "not said: %r", err)


def test_dry_run_absent():
    cwd = folder("bare")
    shutil.copy(harness.TOOL, cwd)
    done = subprocess.run([os.path.join(cwd, "memtrace-bpf"), "run", "--no-trace", "--dry-run-cuda", "--", "touch", "mark"], cwd=cwd,
                          capture_output=True, text=True, timeout=30, check=False)
    check(done.returncode == NOT_PERMITTED and "libcuda.so.1" in done.stderr and not os.path.exists(os.path.join(cwd, "mark")), "%d, %r",
          done.returncode, done.stderr)
    code, out, _ = tool("check", root=True)
    check(re.search(r"^(ok|-) +dry run ", out, re.M), "check says nothing of it: %r", out)


LIBRARY = """import torch
def allocate_cache(n):
    return [torch.zeros(1 << 20) for _ in range(n)]
class LLM:
    def __init__(self):
        self.weights = torch.zeros(1 << 21)
        self.cache = allocate_cache(10)
"""
USER = """import sys; sys.path.insert(0, %r)
import serving
llm = serving.LLM()
"""


@nightly("long")
def test_library_lines():
    """Below a line of the user's code with nearly all memory: the library's lines that share it."""
    packages = os.path.join(scratch("served"), "site-packages")
    os.makedirs(os.path.join(packages, "serving"), exist_ok=True)
    for name, text in ((os.path.join(packages, "serving", "__init__.py"), LIBRARY), (scratch("serves.py"), USER % packages)):
        with open(name, "w", encoding="utf-8") as f:
            f.write(text)
    path = scratch("serves.mtr")
    code, _, err = tool("run", "-f", "-o", path, "--", python(), scratch("serves.py"), root=True, seconds=120)
    equal(code, 0, "run: %s" % err[-300:])
    own(path)
    lines = tool("report", path)[1].splitlines()
    at = next((i for i, line in enumerate(lines) if "serves.py:3 (<module>)" in line), None)
    check(at is not None, "no row of the user's line in %s", lines)
    equal([line.split()[:2] + [line.rpartition("/")[2]] for line in lines[at + 1:at + 3]],
          [["40.00", "MiB", "__init__.py:3 (allocate_cache)"], ["8.00", "MiB", "__init__.py:6 (LLM.__init__)"]], "lines of the library")
    lines = tool("report", path, "--frames", "all")[1].splitlines()
    equal([" in " in line for line in lines if "__init__.py:3" in line], [False], "rows by all frames")


if __name__ == "__main__":
    run(globals())

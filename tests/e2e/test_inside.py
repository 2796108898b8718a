#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# run: reads-code cpu=75
"""`run --inside`: a user without privileges records a command from inside; the recording equals the kernel's, to the byte."""
import collections
import json
import os
import platform
import shutil
import signal
import subprocess
import sys

import harness
import test_gpu_check as gpu_check
from harness import (IS_ROOT, OUT, REPO, TOOL, Skip, check, device, equal, nightly, python, report, run, scratch, spawn, sudo, tool,
                     until, until_recorded)

JOB = os.path.join(harness.WORKLOADS, "inside.py")
NOT_PERMITTED, USAGE = 3, 64
NOBODY = 65534

# In a namespace of its own, so that others can access paths below a folder that only root may enter, such as root's home.
OPEN_HOME = """
set -e
mount --bind "$1" "$2/home"
mount -t tmpfs -o mode=755 none "$1"
n=$3; at=$1; from=$2/home
shift 3
while [ "$n" -gt 0 ]; do mkdir "$at/$1"; mount --bind "$from/$1" "$at/$1"; shift; n=$((n - 1)); done
exec setpriv --reuid=65534 --regid=65534 --clear-groups --no-new-privs --bounding-set=-all --inh-caps=-all "$@"
"""


def ancestors(path):
    while path != "/":
        path = os.path.dirname(path)
        yield path


def nobody():
    """Prefix of a command run without privileges, and a folder of that user's."""
    folder = scratch("nobody")
    if not os.path.isdir(folder):
        os.mkdir(folder)
        os.mkdir(os.path.join(folder, "home"))
    if not IS_ROOT:
        return (), folder
    if not shutil.which("setpriv") or not shutil.which("unshare"):
        raise Skip("setpriv or unshare is not here")
    os.chown(folder, NOBODY, NOBODY)
    paths = {p for q in (python(), REPO, OUT, JOB) for p in (os.path.abspath(q), os.path.realpath(q))}
    closed = {a for p in paths for a in ancestors(p) if not os.stat(a).st_mode & 1}
    home = min(closed, default=os.path.expanduser("~"))
    inner = sorted({p[len(home) + 1:].split("/")[0] for p in paths if p.startswith(home + "/")})
    return ("unshare", "-m", "sh", "-c", OPEN_HOME, "sh", home, folder, str(len(inner)), *inner, "env", "HOME=" + folder), folder


def record(name, *args, options=(), seconds=120):
    """A job's recording made by nobody; its output and exit code."""
    prefix, folder = nobody()
    path = os.path.join(folder, name + ".mtr")
    code, out, err = tool("run", "--inside", "-o", path, *options, "--", *args, prefix=prefix, seconds=seconds)
    return path, code, out, err


def figures(doc, by):
    """Figures of a report that are equal in each run. A group of lines shows any of its lines."""
    devices = [{k: d[k] for k in ("device", "allocated", "reserved", "peak_allocated", "peak_reserved", "total_allocated", "allocs", "frees",
                                  "segments", "ooms", "drift", "before_attach") if k in d} for d in doc["devices"]]
    of_row = ("bytes", "count", "median", "file", "line", "function", "module", "module_class", "phase", "category", "stack")
    rows = sorted(tuple(str(r.get(k)) for k in (*of_row, *(("source",) if by in ("line", "stack") else ()))) for r in doc["rows"])
    layers = {n: {k: v for k, v in l.items() if isinstance(v, int)} for n, l in doc.get("layers", {}).items()}
    phases = {n: {k: p[k] for k in ("peak_allocated", "allocated_delta", "count") if k in p} for n, p in doc.get("phases", {}).items()}
    # Not the number of events: each census adds some.
    return {"devices": devices, "rows": rows, "layers": layers, "phases": phases,
            "lost": doc["capture"]["lost"], "attached_at": doc["capture"]["attached_at"], "stacks": doc["capture"]["stacks"],
            "steps": doc["capture"].get("steps"), "complete": doc["capture"]["complete"]}


def test_same_as_the_kernels():
    """A training job in the dry run with a thread, a forked child, a started program and a SIGTRAP handler."""
    by_kernel, said = scratch("kernel.mtr"), ""
    prefix, folder = nobody()
    path, go = os.path.join(folder, "train.mtr"), os.path.join(folder, "go")
    for output, start, options in ((by_kernel, (), ()), (path, prefix, ("--inside",))):
        p = spawn([*start, TOOL, "run", *options, "--dry-run-cuda", "-o", output, "--", python(), JOB, "train", go], root=True)
        # A census of the second step: it found the state of all parameters, not of the first ones only.
        until_recorded(output, lambda doc: {bool(r["module"]) for r in doc["rows"] if r["category"] == "optimizer_state"} == {True},
                       "the modules of all optimizer state", "--at", "end", "--top", "0", seconds=120)
        with open(go, "wb"):
            equal(p.wait(120), 0, "exit of the run %s, which said %r" % (options, p.stderr()[-800:]))
        os.unlink(go)
        equal(p.stdout(), said or p.stdout(), "output of the two runs")
        said = p.stdout()
    check('"traps": 1' in said and '"child": 5' in said and '"program": "42\\n"' in said and '"handler": true' in said, "the job says %r", said)
    for by in ("line", "stack", "module", "phase", "category"):
        for at in ("peak", "end"):
            a, b = (figures(report(p, at=at, by=by), by) for p in (by_kernel, path))
            for what in a:
                equal(b[what], a[what], "%s at %s by %s, from inside and by the kernel" % (what, at, by))
    equal((a["attached_at"], a["lost"], a["complete"]), ("start", 0, True), "of both")
    check(sum(d["allocs"] for d in a["devices"]) > 400 and a["steps"] == 4, "few allocations: %s, %s steps", a["devices"], a["steps"])


@nightly("long")
def test_estimate():
    """`estimate` gives user nobody the same result as root, for whom the kernel records."""
    prefix, _ = nobody()
    docs = []
    for options in ({"prefix": prefix}, {"root": True}):
        code, out, err = tool("estimate", "--format", "json", "--device", "l40s", "--", python(), os.path.join(harness.WORKLOADS, "estimate_job.py"),
                              seconds=120, **options)
        equal(code, 0, "exit of estimate, which said %r" % err[-800:])
        doc = json.loads(out)
        lines = collections.Counter()
        for row in doc["report"]["rows"]:
            lines[(row["file"], row["line"])] += row["bytes"]
        # Without categories: a census reads the script's objects, and the script may have ended before.
        devices = [{k: v for k, v in d.items() if k != "parts"} for d in doc["devices"]]
        docs.append({"devices": devices, "verdict": doc["verdict"], "phases": doc["phases"], "lost": doc["report"]["capture"]["lost"], "lines": lines})
    equal(docs[0]["devices"][0]["device"], "cuda:0", "device")
    equal(docs[0], docs[1], "what nobody is told")


KINDS_OF_CHILD = os.path.join(harness.WORKLOADS, "kinds_of_child.py")


def test_a_child_ends_no_recording():
    """Children that share the process's memory (vfork) or not, whose program starts or not: 20 events after each."""
    prefix, folder = nobody()
    library = shutil.copy(harness.compiled("shares_memory"), folder)
    path, code, _, err = record("children", "env", "PYTHONDONTWRITEBYTECODE=1", python(), KINDS_OF_CHILD, library)
    equal(code, 0, "exit, with %r" % err[-800:])
    doc = report(path, at="peak", by="stack")
    for kind in ("program_exists", "missing_in_a_shell", "missing_after_a_function", "missing", "missing_folder", "not_executable",
                 "missing_spawned", "forked", "vforked", "cloned"):
        of_kind = [r for r in doc["rows"] if kind in [frame.split(" (")[0] for frame in r["stack"]]]
        equal((sum(r["count"] for r in of_kind), sum(r["bytes"] for r in of_kind)), (20, 20 << 20), "events after %r" % kind)
    # The cloned child's reports are about this process's memory. They are not recorded, so they count as lost.
    capture = doc["capture"]
    equal((capture["lost"], capture["counters"]["lost.report"]), (5, 5), "events of the cloned child")


def test_a_missing_program_changes_no_estimate():
    """A program that does not exist: `estimate` gives PyTorch's own peak all the same, and says that nothing was lost."""
    prefix, _ = nobody()
    code, out, err = tool("estimate", "--tracer", "inside", "--vram", "24G", "--format", "json", "--no-search", "--", python(), KINDS_OF_CHILD,
                          prefix=prefix, seconds=120)
    equal(code, 0, "exit of estimate, which said %r" % err[-800:])
    doc = json.loads(out)
    peak = int(next(line for line in err.splitlines() if line.startswith("peak")).split()[1])
    equal((peak, doc["devices"][0]["peak_allocated"]), (8 * 20 << 20, peak), "peak, by PyTorch and by estimate")
    equal((doc["report"]["capture"]["lost"], doc["lower_bound"], doc["verdict"]), (0, False, "fits"), "lost, lower bound, verdict")


def test_full_ring():
    """Threads faster than the recorder wait for it: nothing is lost; at a sudden end the ring's content is read."""
    path, code, out, err = record("busy", "env", "sh", "-c", 'exec "$@"', "sh", python(), JOB, "busy", "4", "10000", options=("--ring-size", "64K"))
    equal(code, 3, "exit, with %r" % err[-800:])
    doc = report(path)
    equal((doc["capture"]["lost"], doc["capture"]["attached_at"], doc["capture"]["complete"]), (0, "start", True), "lost, attached at, whole")
    rows = [r for r in doc["rows"] if r["function"].startswith("busy.")]
    equal(sum(r["bytes"] for r in rows), int(out), "bytes that are kept, by what the job says")
    equal((sum(r["count"] for r in rows), device(doc)["allocs"] >= 40000), (40, True), "how many blocks, of 40000")


def test_filtered():
    """A process that must not call process_vm_readv(): memory is read in another way."""
    path, code, out, err = record("filtered", python(), JOB, "filtered")
    equal(code, 3, "exit, with %r" % err[-800:])
    rows = [r for r in report(path)["rows"] if r["function"].startswith("busy.")]
    equal(sum(r["bytes"] for r in rows), int(out), "bytes that are kept, by what the job says")


def test_recorder_killed():
    """The job is not affected, although it fills a ring that nothing reads."""
    prefix, folder = nobody()
    path = os.path.join(folder, "killed.mtr")
    p = spawn([*prefix, harness.TOOL, "run", "--inside", "--ring-size", "64K", "-o", path, "--", python(), JOB, "endless"])
    p.wait_line("ready", 100)
    p.wait_line("recording PID", 10, stream="err")
    job = int(next(line for line in p.stderr().splitlines() if "recording PID" in line).split("PID ")[1].split()[0])
    subprocess.run(sudo(["kill", "-KILL", str(p.popen.pid)]), check=True)
    p.popen.wait()
    with open("/proc/%d/stat" % job, encoding="utf-8") as f:
        before = int(f.read().rsplit(")", 1)[1].split()[11])
    try:
        p.popen.stdin.write(b"\n")
        p.popen.stdin.flush()
        p.wait_line("done True", 30)
    finally:
        if os.path.exists("/proc/%d" % job) and "done" not in p.stdout():
            os.kill(job, signal.SIGKILL)
    check(before >= 0, "the job was there")


def test_exec():
    """The process executes another program: its recording ends there, and that program runs."""
    # The recorder reads the names of code from the running program.
    script = "import os, time, torch\nx = torch.empty(1000)\ntime.sleep(2)\nos.execv('/bin/sh', ['sh', '-c', 'echo other; exit 4'])"
    path, code, out, err = record("exec", python(), "-c", script)
    equal((code, out), (4, "other\n"), "exit and output of the other program, with %r" % err[-800:])
    rows = [r for r in report(path)["rows"] if r["line"] == 2]
    equal([(r["bytes"], r["count"]) for r in rows], [(4000, 1)], "what the first one made")


@nightly("long")
def test_told():
    """Commands that cannot be recorded run all the same, with a message."""
    prefix, folder = nobody()
    for args in (("--children",), ("--no-trace",)):
        code, _, err = tool("run", "--inside", *args, "--", "true")
        check(code == USAGE and args[0] in err, "%s: %d, %r", args, code, err)
    path, code, out, err = record("none", "sh", "-c", "echo $$; kill -TRAP $$")
    equal(code, 128 + signal.SIGTRAP, "exit of one that ends itself, with %r" % err)
    # Without the variable the library is in no process.
    path, code, out, err = record("lost", "env", "-u", "LD_PRELOAD", python(), "-c", "import torch; torch.empty(10); print('ran')")
    equal((code, out), (0, "ran\n"), "exit and output of one without the library")
    check("did not load the recording library" in err, "not said: %r", err)
    done = subprocess.run([sys.executable, "-c", "print(1)"], env=dict(os.environ, LD_PRELOAD=os.path.join(OUT, "inside", "libmemtrace-inside.so"),
                          MEMTRACE_INSIDE="1:2:3"), capture_output=True, text=True, check=False)
    equal((done.returncode, done.stdout, done.stderr), (0, "1\n", ""), "the library where nobody records")


# Executes a set-user-ID program and meanwhile claims in the shared memory that it is a program to record, with these addresses to
# write to, as long as the file has two words and an address.
HOSTILE = r"""
import mmap, os, struct, sys, time
fd, folder = int(os.environ["MEMTRACE_INSIDE"].split(":")[0]), sys.argv[1]
shared = mmap.mmap(fd, 4096)
if os.fork():
    os.execv(folder + "/sleep", ["sleep", "60"])
while not os.path.exists(folder + "/where"):
    time.sleep(0.01)
slots, linker, returns = (int(n) for n in open(folder + "/where").read().split())
for n in range(300):
    struct.pack_into("<4Q", shared, 32, slots, slots, linker, returns)
    struct.pack_into("<I", shared, 28, 1)
    struct.pack_into("<I", shared, 24, struct.unpack_from("<I", shared, 24)[0] + 1)
    time.sleep(0.01)
os.rename(folder + "/where", folder + "/done")
"""


def sleeps(pid):
    """True if the process is in the expected system call (clock_nanosleep or nanosleep)."""
    with open("/proc/%d/syscall" % pid, encoding="ascii") as f:
        return f.read().split()[0] in ("230", "35")


def code_of(pid):
    """(start, bytes) of all library code in the process."""
    found = []
    with open("/proc/%d/maps" % pid, encoding="utf-8") as maps, open("/proc/%d/mem" % pid, "rb", 0) as mem:
        for line in maps:
            words = line.split()
            if words[1].startswith("r-x") and len(words) > 5 and words[5].startswith("/"):
                start, end = (int(n, 16) for n in words[0].split("-"))
                mem.seek(start)
                found.append((words[5], start, mem.read(end - start)))
    return found


def test_a_set_user_id_program_is_not_written_to():
    """Root records another user's command, which tries to make root write into a program run as root."""
    if not IS_ROOT or platform.machine() != "x86_64":
        raise Skip("needs root, on x86-64")
    if os.statvfs(scratch()).f_flag & os.ST_NOSUID:
        raise Skip("set-user-ID programs do nothing here")
    folder = scratch("hostile")
    os.mkdir(folder)
    os.chmod(folder, 0o777)
    shutil.copy("/bin/sleep", os.path.join(folder, "sleep"))
    os.chmod(os.path.join(folder, "sleep"), 0o4755)
    p = spawn([harness.TOOL, "run", "--inside", "--user", "nobody", "-f", "-o", os.path.join(folder, "hostile.mtr"), "--", "/usr/bin/python3", "-c", HOSTILE, folder],
              root=True)
    pid = until(lambda: next((c for c in harness.children_of(p.pid) if os.readlink("/proc/%d/exe" % c).endswith("/sleep")), None),
                "the program in its place", 30)
    try:
        # By now the recorder has handled the new program and set its breakpoint in the dynamic linker.
        until(lambda: sleeps(pid), "the sleep of the program in its place", 30)
        before = code_of(pid)
        libc = next(start for path, start, _ in before if "/libc.so" in path or "/libc-" in path)
        with open(os.path.join(folder, "here"), "w", encoding="ascii") as f:
            f.write("%d %d %d" % (libc + 4096, libc + 8192, libc))
        os.rename(os.path.join(folder, "here"), os.path.join(folder, "where"))
        until(lambda: os.path.exists(os.path.join(folder, "done")), "the end of what the other process does", 30)
        after = code_of(pid)
        for (path, start, was), (_, _, now) in zip(before, after, strict=True):
            at = [start + i for i in range(len(was)) if was[i] != now[i]]
            equal(at[:8], [], "places in %s that were written to" % path)
        with open("/proc/%d/status" % pid, encoding="utf-8") as f:
            check("NoNewPrivs:\t1" in f.read(), "an exec can give it rights")
    finally:
        os.kill(pid, signal.SIGKILL)
        p.wait(30)


@nightly("long")
def test_gpu_check():
    """tools/gpu_check.sh without BPF. Tested in this file, whose header keeps captures of several processes away: their probes would
    be where `run --inside` sets breakpoints, which is refused."""
    rows, out = gpu_check.rows_of("CDF", "--inside")
    equal(gpu_check.verdicts(rows), {"C1": "pass", "D1": "pass", "D2": "pass", "D3": "pass", "D4": gpu_check.GPU, "D5": "pass",
                                     "F1": "needs BPF and root", "F2": "needs BPF and root"}, "verdicts")
    check("`run --inside`" in out, "how it records: %s", out)


if __name__ == "__main__":
    sys.exit(run(globals()))

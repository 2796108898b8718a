#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""The one static file in a root file system that has nothing else, and in each Debian suite: it records a process of this host."""
import json
import os
import shutil
import subprocess
import time

import packages
from packages import SUITES, Skip, check, equal, harness, run, scratch
from terminal import Terminal

TORCH = "2.1.2"  # for the CPython 3.9 of Debian 11, the oldest C library that Debian's archive has
LIMIT = 8 << 20  # bytes

_job = []


def job():
    """A process outside of the systems, for all tests."""
    if not _job:
        _job.append(harness.training())
        _job[0].kept = True
    return _job[0]


def beside(root, *command):
    """A command line: the command with another root folder, which has this host's processes and devices, as a privileged container has."""
    script = """root=$1; shift; mkdir -p "$root/proc" "$root/sys" "$root/dev"
        mount -t proc proc "$root/proc" && mount --rbind /sys "$root/sys" && mount --rbind /dev "$root/dev" && exec chroot "$root" "$@\""""
    return ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, "beside", root, "/memtrace-bpf", *command]


def said_by(root, *command):
    return packages.execute(*beside(root, *command))


def shows_live_view(root):
    """A screen, also where the system has no description of the terminal."""
    t = Terminal(beside(root, "-p", str(job().pid)))
    t.wait(r"\.py:\d+ ")
    check(t.colours(), "no colours: the view has no screen:\n%s", t.text())
    t.send("q")
    equal(t.end(), 0, "exit code of the live view")


def serves(root):
    """`serve` answers on a Unix socket in the system."""
    p = harness.spawn(beside(root, "serve", "--listen", "unix:/serve.sock", "-o", "/recordings", "/run.mtr"))
    p.wait_line("listening on unix:", 30, "err")
    health = json.loads(packages.execute("curl", "-s", "--unix-socket", os.path.join(root, "serve.sock"), "http://localhost/api/health"))
    equal(health["status"], "ok", "health: %s" % health)
    p.stop()


def works(root):
    shutil.copy(packages.program(), os.path.join(root, "memtrace-bpf"))
    packages.version_of(said_by(root, "version"))
    check(said_by(root, "check", "-p", str(job().pid)).startswith("This host can trace. PID"), "check")
    begin = time.monotonic()
    said_by(root, "record", "-p", str(job().pid), "-d", "1s", "-o", "/run.mtr")
    said = said_by(root, "report", "/run.mtr")
    print("     record for 1 s and report: %.1f s" % (time.monotonic() - begin), flush=True)
    check("peak" in said and ".py:" in said, "%s", said)
    # Read outside, the recording gives the same report.
    doc = json.loads(said_by(root, "report", "--format", "json", "/run.mtr"))
    equal(doc["rows"], json.loads(packages.execute(packages.program(), "report", "--format", "json", os.path.join(root, "run.mtr")))["rows"], "rows")
    said_by(root, "export", "html", "/run.mtr", "-o", "/run.html")
    check(os.path.getsize(os.path.join(root, "run.html")) > 100000, "the page is too small")
    shows_live_view(root)
    serves(root)


def needs_root():
    if not harness.IS_ROOT:
        raise Skip("needs root")


def test_no_shared_library():
    said = packages.execute("ldd", packages.program(), expect=1)
    check("not a dynamic executable" in said, "ldd: %s", said)
    size = os.path.getsize(packages.program())
    check(size < LIMIT, "%d bytes", size)
    times = []
    for _ in range(9):
        begin = time.monotonic()
        packages.execute(packages.program(), "version")
        times.append(time.monotonic() - begin)
    print("     %.2f MiB; starts and ends in %.1f ms (median of 9)" % (size / (1 << 20), sorted(times)[4] * 1e3), flush=True)


def test_empty():
    """A root file system with the one file."""
    needs_root()
    root = scratch("empty")
    os.makedirs(root)
    works(root)


def works_in(suite):
    needs_root()
    with packages.system(suite) as root:
        works(root)


for _suite in SUITES:
    globals()["test_" + _suite] = lambda suite=_suite: works_in(suite)


def test_oldest_c_library():
    """The wheel in Debian 11, beside PyTorch: a recording, and what programs load of ours: the dry run, the recorder inside, the replayer."""
    needs_root()
    with packages.system("bullseye") as root:
        wheel = packages.package("*.whl")
        shutil.copy(wheel, os.path.join(root, "tmp"))
        shutil.copytree(harness.WORKLOADS, os.path.join(root, "workloads"))
        try:
            packages.inside(root, "sh", "-c", "apt-get update -q && apt-get install -y -q --no-install-recommends python3-venv", seconds=600)
            packages.inside(root, "python3", "-m", "venv", "/env")
            packages.inside(root, "/env/bin/pip", "install", "-q", "--no-cache-dir", "torch==" + TORCH, "numpy<2", seconds=900)
        except (packages.Failure, subprocess.TimeoutExpired) as e:
            raise Skip("no PyTorch in Debian 11: %s" % e) from e
        begin = time.monotonic()
        packages.inside(root, "/env/bin/pip", "install", "-q", "/tmp/" + os.path.basename(wheel))
        tool, train = "/env/bin/memtrace-bpf", ("/env/bin/python", "/workloads/train_gpt.py", "--steps", "3")
        packages.version_of(packages.inside(root, tool, "--version"))
        packages.inside(root, tool, "run", "-o", "/run.mtr", "--", *train)
        check("model.py:" in packages.inside(root, tool, "report", "/run.mtr"), "no line")
        print("     pip install, run of %s and report: %.1f s" % (TORCH, time.monotonic() - begin), flush=True)
        said = packages.inside(root, tool, "estimate", "--vram", "2G", "-o", "/dry.mtr", "--", *train, "--device", "cuda")
        check("fits" in said, "%s", said)
        packages.inside(root, tool, "replay", "/dry.mtr")
        packages.inside(root, tool, "run", "--inside", "-o", "/inside.mtr", "--", *train)
        check("model.py:" in packages.inside(root, tool, "report", "/inside.mtr"), "no line of the recorder inside")
        print("     " + packages.inside(root, "ldd", "--version").splitlines()[0], flush=True)


run(globals())

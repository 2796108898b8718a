# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Runs a job of tests/workloads/estimate in the dry run: recorded, by `estimate`, or on fake tensors. The counters of PyTorch's
allocator in the process are the truth for comparisons."""
import json
import os
import subprocess
import time

import harness

FOLDER = os.path.join(harness.WORKLOADS, "estimate")
LIMIT = 1200  # seconds per run


class Failed(Exception):
    pass


def execute(command, env=None):
    """Runs a command: its last line as JSON, seconds, and the largest memory of its processes in bytes."""
    begin = time.monotonic()
    with open(harness.scratch("estimates.log"), "w+b") as log:
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                                 env=dict(os.environ, **(env or {})))
        try:
            usage = wait(child, begin)
        finally:
            if child.returncode is None:
                end(child)
        log.seek(0)
        text = log.read().decode("utf-8", "replace")
    lines = [line for line in text.splitlines() if line.startswith("{")]
    if child.returncode or not lines:
        raise Failed("exit %d: %s" % (child.returncode, " | ".join(text.splitlines()[-3:])[-400:]))
    return json.loads(lines[-1]), time.monotonic() - begin, usage.ru_maxrss * 1024


def end(child):
    """Ends `run` by a signal that it passes on to the job; SIGKILL would leave the job running."""
    child.terminate()
    try:
        child.wait(20)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def wait(child, begin):
    """The same as child.wait(), plus resource use, which Popen discards."""
    while time.monotonic() - begin < LIMIT:
        pid, status, usage = os.wait4(child.pid, os.WNOHANG)
        if pid:
            child.returncode = os.waitstatus_to_exitcode(status)
            return usage
        time.sleep(0.05)
    raise Failed("not done after %d s" % LIMIT)


def python(job, role=None):
    return harness.python(role or ("estimate" if job.needs else "main"))


def command(job, role=None):
    return [python(job, role), os.path.join(FOLDER, job.script), *job.arguments]


def dry_run(*options):
    return [harness.TOOL, "run", "--dry-run-cuda", *options]


def recorded(job, role=None, env=None):
    """Recorded in the dry run: PyTorch's counters, and the report of the same run."""
    path = harness.scratch("estimates.mtr")
    told, seconds, rss = execute(harness.sudo(dry_run("-f", "-o", path, "--", *command(job, role))), env)
    text = subprocess.run([harness.TOOL, "report", "--format", "json", "--top", "1", path], capture_output=True, text=True, check=True).stdout
    os.unlink(path)
    device = next(d for d in json.loads(text)["devices"] if d["device"] == "cuda:0")
    return {"torch": told, "ours": {"allocated": device["peak_allocated"], "reserved": device["peak_reserved"], "drift": device["drift"]},
            "seconds": round(seconds, 1), "rss": rss}


def untraced(job, role=None, env=None):
    return execute(dry_run("--no-trace", "--", *command(job, role)), env)[0]


def has_estimate():
    return subprocess.run([harness.TOOL, "estimate", "--help"], capture_output=True).returncode == 0


def estimated(job, *options, role=None):
    """Output of `estimate`, which stops when steps repeat."""
    line = [harness.TOOL, "estimate", "--format", "json", "--vram", "80G", *options, "--", *command(job, role)]
    begin = time.monotonic()
    done = subprocess.run(harness.sudo(line), capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=LIMIT)
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        raise Failed("estimate, exit %d: %s" % (done.returncode, done.stderr[-300:])) from None
    device = next(d for d in answer["devices"] if d["device"] == "cuda:0")
    return {"allocated": device["peak_allocated"], "reserved": device["peak_reserved"], "seconds": round(time.monotonic() - begin, 1),
            "end": answer["run"]["end"], "steps": answer["run"]["steps"]}


def faked(job, tracker, below, role=None, move=False):
    """With fake tensors; below: on the dry run's device instead of none; move: see fake.py. The peak in bytes, or the reason for
    none."""
    line = [python(job, role), os.path.join(FOLDER, "fake.py"), "--tracker", tracker, *(["--move"] if move else []),
            os.path.join(FOLDER, job.script), *job.arguments]
    try:
        told, seconds, _ = execute((dry_run("--no-trace", "--") if below else []) + line)
    except Failed as e:
        return {"error": str(e)}
    return {"peak": told.get("peak", {}).get("cuda:0"), "error": told.get("error"), "seconds": round(seconds, 1)}

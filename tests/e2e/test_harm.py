#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# run: long reads-code cpu=90
"""A target is never changed: whatever happens to the tool, the job's results stay the same."""
import os
import random
import signal
import time

import harness
from harness import IS_ROOT, check, equal, finish, own, patched_bytes, read_json, record, run, scratch, tool, until, workload

CYCLES = 6
FILE_HEADER = 16  # bytes


def train(name, *args):
    target = workload("train_gpt.py", *harness.TINY, "--result", scratch(name), *args)
    target.wait_line("^step", 120)
    return target


def result(target, name):
    equal(target.wait(120), 0, "the job's exit code (%s)" % target.stderr()[-300:])
    return read_json(scratch(name))


def compare_with_untraced(got):
    check(got["steps"] > 100, "only %d steps", got["steps"])
    expected = result(train("untraced.json", "--steps", str(got["steps"])), "untraced.json")
    equal(got, expected, "digest of parameters and losses, traced and untraced")


def wait_clean(pid, what):
    limit = time.monotonic() + 3
    while True:
        left = patched_bytes(pid)
        if not left:
            return
        check(time.monotonic() < limit, "%d bytes of the target's code still differ 3 s after %s", left, what)
        time.sleep(0.1)


def test_probes_are_seen_in_the_code():
    """A precondition of the next tests: while attached, patched_bytes() is not 0."""
    target = train("seen.json", "--seconds", "60", "--pause", "0.02")
    pid = target.popen.pid
    wait_clean(pid, "its start")
    recorder = record(pid, scratch("seen.mtr"))
    recorder.wait_line("attached", 60, stream="err")
    check(patched_bytes(pid) > 0, "no byte of the target's code differs while attached")
    finish(recorder)
    wait_clean(pid, "Ctrl-C")


def test_kill_9():
    rnd = random.Random(1)
    target = train("killed.json", "--pause", "0.03")
    opened = 0
    for i in range(CYCLES):
        path = scratch("killed-%d.mtr" % i)
        recorder = record(target.popen.pid, path)
        if i % 2:
            until(lambda path=path: os.path.getsize(path) > FILE_HEADER, "the recording has a block")
        time.sleep(rnd.uniform(0, 1.6))
        recorder.signal(signal.SIGKILL)
        equal(recorder.wait(10), -signal.SIGKILL if IS_ROOT else 128 + signal.SIGKILL, "exit code of the killed tool")
        check(target.alive(), "the target ended after kill %d: %s", i, target.stderr()[-500:])
        own(path)
        if os.path.getsize(path) == FILE_HEADER:
            check(not i % 2, "recording %d lost what was in it", i)
            continue  # killed before its first write
        code, out, err = tool("report", "--format", "json", path)
        check(code == 0, "report of recording %d of a killed tool: %d, %r", i, code, err[-400:])
        check('"complete":false' in out.replace(" ", ""), "recording %d looks complete", i)
        opened += 1
    wait_clean(target.popen.pid, "kill -9")
    target.signal(signal.SIGTERM)
    compare_with_untraced(result(target, "killed.json"))
    check(opened >= CYCLES // 2, "%d recordings opened of %d", opened, CYCLES)


def test_attach_detach():
    rnd = random.Random(2)
    target = train("detached.json", "--pause", "0.03")
    for i in range(CYCLES):
        path = scratch("detached-%d.mtr" % i)
        recorder = record(target.popen.pid, path)
        time.sleep(rnd.uniform(0, 0.6))
        finish(recorder)
        check(target.alive(), "the target ended after detach %d: %s", i, target.stderr()[-500:])
        own(path)
        code, out, err = tool("report", "--format", "json", path)
        check(code == 0 and err == "", "report of recording %d: %d, %r", i, code, err[-400:])
        check('"complete":true' in out.replace(" ", ""), "recording %d is not complete", i)
    wait_clean(target.popen.pid, "detaching")
    target.signal(signal.SIGTERM)
    compare_with_untraced(result(target, "detached.json"))


def test_target_ends():
    """Traced until its end: the target has its own exit code, the tool exits with 0, the recording is complete."""
    target = train("ended.json", "--steps", "600")
    recorder = record(target.popen.pid, scratch("ended.mtr"))
    got = result(target, "ended.json")
    equal(recorder.wait(15), 0, "exit code of the tool (%s)" % recorder.stderr()[-300:])
    own(scratch("ended.mtr"))
    code, out, err = tool("report", "--format", "json", scratch("ended.mtr"))
    check(code == 0 and '"complete":true' in out.replace(" ", ""), "report: %d, %r", code, err)
    compare_with_untraced(got)


def test_target_is_killed():
    target = train("sigkill.json")
    recorder = record(target.popen.pid, scratch("sigkill.mtr"))
    harness.until_recorded(scratch("sigkill.mtr"), lambda doc: doc["capture"]["events"] > 0, "events")
    target.signal(signal.SIGKILL)
    equal(recorder.wait(15), 0, "exit code of the tool (%s)" % recorder.stderr()[-300:])
    own(scratch("sigkill.mtr"))
    equal(tool("report", scratch("sigkill.mtr"))[0], 0, "report")


def test_target_becomes_another_program():
    """After an exec the attached program is gone: the capture ends and says why."""
    target = workload("execs.py")
    target.wait_line("^ready", 120)
    recorder = record(target.popen.pid, scratch("exec.mtr"))
    target.send()
    equal(recorder.wait(10), 0, "exit code of the tool (%s)" % recorder.stderr()[-300:])
    check("another program" in recorder.stderr(), "does not say why it stopped: %r", recorder.stderr()[-300:])
    check(target.alive(), "the program that took the target's place ended")
    own(scratch("exec.mtr"))
    code, out, err = tool("report", "--format", "json", scratch("exec.mtr"))
    check(code == 0 and '"stop_reason":"exec"' in out.replace(" ", ""), "report: %d, %r", code, err)


if __name__ == "__main__":
    run(globals())

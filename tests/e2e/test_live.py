#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# run: long reads-code
"""memtrace-bpf -p PID, not on a terminal: a block of text per interval, the summary at the end. And check -p."""
import json
import os
import re
import subprocess
import signal
import time

import harness
from harness import TINY, check, equal, interrupt, patched_bytes, run, spawn, tool, training, workload


def live(t, *options, **kwargs):
    p = spawn([harness.TOOL, "-p", str(t.popen.pid), *options], root=True, **kwargs)
    p.wait_line("attached", 20, stream="err")
    return p


def test_blocks_and_summary():
    t = training()
    p = live(t, "-i", "500ms")
    begin = time.monotonic()

    def blocks():
        return re.findall(r"(?m)^.*  (?:allocated|live) .*peak .*$", p.stdout())
    while len(blocks()) < 5 and time.monotonic() < begin + 30:
        time.sleep(0.05)
    n, took, before = len(blocks()), time.monotonic() - begin, p.stdout()
    # The first block may have been on its way when the clock began.
    check(5 <= n <= took / 0.5 + 2, "%d blocks in %.1f s at one per 500 ms:\n%s", n, took, before[:1500])
    check(re.search(r"model\.py:\d+ \((\w+\.)?forward\)", before), "no user line in:\n%s", before[:2000])
    equal(interrupt(p), 0, "exit code after Ctrl-C")
    summary = p.stdout()[len(before):]
    check(" lost" in summary and " Location" in summary and "model.py" in summary, "no summary after Ctrl-C:\n%s", summary[:1500])
    check(t.alive(), "the target ended")
    equal(patched_bytes(t.popen.pid), 0, "bytes of the target's code that still differ")


def test_json_lines():
    t = training()
    p = live(t, "-i", "300ms", "-n", "4", "--format", "json", "--top", "0", "--by", "function")
    equal(p.wait(20), 0, "exit code")
    lines = [json.loads(line) for line in p.stdout().splitlines()]
    equal(["end" in doc for doc in lines], [False] * 4 + [True], "which lines are the last one")
    equal(lines[-1]["end"], "count", "why it ended")
    for doc in lines:
        (cpu,) = [d for d in doc["devices"] if d["device"] == doc["device"]]
        equal(sum(r["bytes"] for r in doc["rows"]), cpu["allocated"], "bytes of all rows")
        equal((doc["pid"], doc["by"], doc["more_rows"]), (t.popen.pid, "function", 0), "pid, by, more_rows")
    last = lines[-1]
    check(any(r["function"] == "CausalSelfAttention.forward" or (r["function"] or "").endswith("forward") for r in last["rows"]),
          "no function of the model in %s", last["rows"])
    check(all(a["steps"] <= b["steps"] and a["time"] < b["time"] for a, b in zip(lines, lines[1:])), "time goes on")
    # Growth counts from the end of a step, which may be late on a busy machine.
    p = live(t, "-i", "300ms", "--format", "json", "--top", "0", "--by", "function")
    later = json.loads(p.wait_line(r'"growth": ?-?\d.*"allocs_per_second": ?[1-9]', 60))
    equal(interrupt(p), 0, "exit code after Ctrl-C")
    check(any((r["allocs_per_second"] or 0) > 0 for r in later["rows"]), "nothing is compared with earlier lines in %s", later["rows"])
    # The same as text, sorted and filtered; omitted rows are one row.
    p = live(t, "-i", "300ms", "-n", "2", "--sort", "allocs", "--filter", "line:model.py")
    equal(p.wait(20), 0, "exit code")
    blocks = p.stdout().split("LIVE %LIVE")[1:]
    check(len(blocks) >= 2 and "(what the filter leaves out)" in p.stdout(), "blocks:\n%s", p.stdout()[:1500])


def where(pid):
    """The kernel function that a process waits in, if known."""
    said = []
    for what in ("wchan", "syscall", "stack"):
        try:
            with open("/proc/%d/%s" % (pid, what), encoding="ascii") as f:
                said.append("%s: %s" % (what, f.read(400).strip()))
        except OSError as e:
            said.append("%s: %s" % (what, e.strerror))
    return "; ".join(said)


def test_target_end():
    t = workload("train_gpt.py", "--seconds", "90", *TINY)
    t.wait_line("^step 20 ", 120)
    p = live(t)
    t.signal(signal.SIGTERM)
    begin = time.monotonic()
    while p.alive() and time.monotonic() < begin + 60:
        time.sleep(0.1)
    check(not p.alive(), "not ended 60 s after the target, which is %s; %s", "still there" if t.alive() else "gone", where(p.popen.pid))
    equal(p.wait(20), 0, "exit code at the target's end")
    if time.monotonic() > begin + 10:
        print("     it took %.0f s to end" % (time.monotonic() - begin), flush=True)
    check(" Location" in p.stdout(), "no summary:\n%s", p.stdout()[-1500:])


def test_reader_goes_away():
    t = training()
    pipe = harness.pipe()
    p = live(t, "-i", "200ms", stdout=pipe.write)
    pipe.started()
    pipe.hang_up()
    equal(p.wait(15), 0, "exit code after a broken pipe (%r)" % p.stderr()[-300:])
    check(t.alive(), "the target ended")


def test_output_full():
    t = training()
    with open("/dev/full", "wb") as full:
        p = live(t, "-i", "200ms", stdout=full)
        equal(p.wait(15), 1, "exit code when standard output is full")
    check("standard output: cannot write: the disk is full" in p.stderr(), "does not say why: %r", p.stderr()[-300:])
    check(t.alive(), "the target ended")


def test_check_process():
    t = training()
    code, out, err = tool("check", "-p", str(t.popen.pid), root=True)
    equal((code, err), (0, ""), "check -p")
    for word in ("Python", "PyTorch", "capabilities", "BPF"):
        check(word in out, "no %r in:\n%s", word, out)
    check(not re.search(r"(?m)^NO ", out), "says NO, and exits with 0:\n%s", out)
    equal(out.split("\n\n")[0], "This host can trace. PID %d can be attached." % t.popen.pid, "the verdict")
    for word in ("kernel", "lockdown", "ptrace_scope", "gVisor", "GPU driver", "probes"):
        check(re.search(r"(?m)^(ok|-) +%s " % word, out), "no line %r in:\n%s", word, out)
    internals = ("thread state", "cpu new", "autograd node")
    check(not any(word in out for word in internals), "internals without -v:\n%s", out)
    check(all(word in tool("check", "-v", "-p", str(t.popen.pid), root=True)[1] for word in internals), "no internals with -v")
    check(re.search(r"(?m)^ok   hit, emulated +\d+\.\d\d ", out), "the cost of a hit:\n%s", out)
    code, out, err = tool("check", "--json", "-p", str(t.popen.pid), root=True)
    equal((code, err), (0, ""), "check --json")
    doc = json.loads(out)
    equal((doc["host"]["usable"], doc["process"]["usable"], doc["process"]["pid"]), (True, True, t.popen.pid), "the verdict as JSON")
    hits = {h["place"]: h for h in doc["hits"]}
    check(hits["stepped"]["ns"] > hits["emulated"]["ns"] > 0 < hits["return"]["ns"], "hits: %s", hits)
    other = spawn(["sleep", "60"])
    code, out, err = tool("check", "-p", str(other.pid), root=True)
    check(code == 0 and out.startswith("This host can trace. PID %d can be attached: it has no PyTorch, but host memory." % other.pid),
          "another program: %d %s %s", code, out, err)
    equal(patched_bytes(t.popen.pid), 0, "bytes of the target's code that differ: check attaches nothing")


def test_check_gpus():
    """The driver's file in a mount namespace of its own, and NVML of the dry run."""
    line = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.54.15  Release Build"
    script = "mount -t tmpfs tmpfs /proc/driver && mkdir /proc/driver/nvidia && echo '%s' >/proc/driver/nvidia/version && exec %s check" % (line, harness.TOOL)
    done = subprocess.run(harness.sudo(["env", "LD_LIBRARY_PATH=" + os.path.join(harness.OUT, "dryrun"), "unshare", "-m", "sh", "-c", script]),
                          capture_output=True, text=True, timeout=60, check=False)
    if "mount" in done.stderr or "unshare" in done.stderr:
        raise harness.Skip("no mount namespace here: " + done.stderr.strip())
    check(re.search(r"(?m)^ok   GPU driver       NVIDIA 550\.54\.15$", done.stdout), "the driver: %s%s", done.stdout, done.stderr)
    check(re.search(r"(?m)^ok   GPUs             1: .*, 80\.00 GiB$", done.stdout), "the GPUs: %s", done.stdout)


if __name__ == "__main__":
    run(globals())

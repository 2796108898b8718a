#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# run: probes-all
"""`--on-kill`: a process that is killed or fails leaves a recording that says why, what it held, and which line held it."""
import contextlib
import json
import os
import signal
import subprocess
import time

import harness
import kills
from harness import check, equal, nightly, record, report, run, scratch, spawn, tool

_jobs = []


def jobs():
    if not _jobs:
        _jobs.append(kills.Jobs())
    return _jobs[0]


def judge(result, what):
    check(result["place"] is not None and result["place"] < 3, "%s: the planted line is in row %s", what, result["place"])
    equal(result["lost"], 0, "lost events")
    check(result["memory"] > result["planted"], "%s: RSS of %d bytes with %d at the line", what, result["memory"], result["planted"])


def test_oom_killer():
    result = kills.kill_one(jobs(), "oom", 1)
    judge(result, "oom")
    end = result["doc"]["end"]
    check("killed by the kernel's OOM killer at" in end["text"], "%s", end["text"])
    check(end["oom"]["score_adj"] == 0 and end["oom"]["uid"] == 0, "%s", end["oom"])
    code, out, err = tool("report", result["path"])
    check(code == 0 and out.startswith(end["text"][:40]), "report begins with %r, %s", out[:200], err)


def test_signals():
    for n, how in enumerate(("sent", "segv", "abort"), 10):
        judge(kills.kill_one(jobs(), how, n), how)


def test_exit():
    """A status other than 0 is written, status 0 is not."""
    result = kills.kill_one(jobs(), "exit3", 20)
    check("exited with status 3 at" in result["doc"]["end"]["text"], "%s", result["doc"]["end"])
    path, go = scratch("good.mtr"), scratch("go-good")
    pid = jobs().start(go=go, end="exit0", chunk=kills.MIB, rounds=5)
    recorder = record(pid, path, "--on-kill", "--on-oom")
    with open(go, "w", encoding="ascii"):
        pass
    equal((jobs().wait(pid), recorder.wait(60)), (0, 0), "status of the job, exit code of record")
    check(not os.path.exists(path), "a file of a job that ended well")
    check("nothing ran out of memory, was killed or failed" in recorder.stderr(), "%s", recorder.stderr())


def test_host_memory_of_a_short_life():
    """Rows add up to the kernel's RSS at the kill, though the last reading was before, and `leaks` names the line."""
    path, go = scratch("short.mtr"), scratch("go-short")
    pid = jobs().start(go=go, end="wait", chunk=2 * kills.MIB, pause=0.01)
    recorder = record(pid, path, "--on-kill", "--host")
    before = harness.resident(pid)
    with open(go, "w", encoding="ascii"):
        pass
    harness.until(lambda: harness.resident(pid) - before >= 128 * kills.MIB, "growth")  # at 200 MiB a second
    os.kill(pid, signal.SIGKILL)
    jobs().wait(pid)
    equal(recorder.wait(60), 0, "exit code of record")
    doc = report(path, "--device", "host", "--at", "end", "--top", "0")
    rss, rows = doc["end"]["memory"]["rss"], sum(r["bytes"] for r in doc["rows"])
    check(abs(rows - rss) < 0.02 * rss, "rows add up to %d, RSS at the kill was %d", rows, rss)
    check(doc["capture"]["host_worked_out"] < rss / 2, "worked out: %s of %d", doc["capture"]["host_worked_out"], rss)
    code, out, err = tool("leaks", "--device", "host", "--format", "json", path)
    check(code == 0, "leaks: %s", err)
    host = json.loads(out)["devices"][0]
    # On a busy machine the recorder looks less often in the second that the job lives: then the line is there, and not sure.
    few = host["observed"] < 32
    found = [r for r in host["leaks"] + (host["no_leaks"] if few else [])
             if (r["file"] or "").endswith("leak_server.py") and r["line"] == kills.planted_line()]
    check(found and found[0]["bytes_per_step"] > kills.MIB / 2, "leaks of %d values: %s", host["observed"], host["leaks"] or host["no_leaks"])
    # Uneven looks give medium confidence; test_leaks asks for high.
    check(few or found[0]["confidence"] in ("medium", "high"), "confidence: %s", found[0])


def test_plain_recording():
    """An ordinary recording says how the process ended, too, and shows its peak."""
    path, go = scratch("plain.mtr"), scratch("go-plain")
    pid = jobs().start(go=go, end="wait", chunk=kills.MIB)
    recorder = record(pid, path)
    before = harness.resident(pid)
    with open(go, "w", encoding="ascii"):
        pass
    harness.until(lambda: harness.resident(pid) - before > 8 * kills.MIB, "growth")
    os.kill(pid, signal.SIGTERM)
    jobs().wait(pid)
    equal(recorder.wait(60), 0, "exit code of record")
    code, out, _ = tool("report", path)
    check(code == 0 and out.startswith("killed by SIGTERM at "), "%s", out[:300])
    check("sent by python3 (PID %d)" % os.getpid() in out.replace("\n  ", " ") or "(PID %d)" % os.getpid() in out, "%s", out[:300])
    equal(report(path)["end"]["signal"]["number"], 15, "signal")


SURVIVOR = """
import signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
import torch
kept = [torch.ones(1 << 20)]
print("ready", flush=True)
signal.sigwait({signal.SIGUSR1})
print("survived", flush=True)
for line in sys.stdin:
    kept.append(bytearray(b"x") * (400 << 20))
    print("grown", flush=True)
"""


def test_a_survived_signal_is_not_the_end():
    """The figures at the end are of the end, also if the process took an earlier signal with sigwait()."""
    path = scratch("survivor.mtr")
    p = spawn([harness.python(), "-u", "-c", SURVIVOR])
    p.wait_line("^ready", 100)
    recorder = record(p.pid, path, "--on-kill")
    os.kill(p.pid, signal.SIGUSR1)
    p.wait_line("^survived", 30)
    harness.settle(recorder)  # the recorder has read the scene of this signal
    before = harness.resident(p.pid)
    p.send()
    p.wait_line("^grown", 60)
    os.kill(p.pid, signal.SIGKILL)
    p.popen.wait(30)
    equal(recorder.wait(60), 0, "exit code of record")
    doc = report(path)
    end = doc["end"]
    settled = next(m["time"] for m in doc["capture"]["marks"] if m["name"] == "settled")
    check(end["memory"]["rss"] - before > 380 << 20, "RSS was %d before, %d at the end", before, end["memory"]["rss"])
    check(end["processes_time"] > settled, "processes are of %s, the mark of %s", end["processes_time"], settled)
    for what in [end["cgroup"]] if "cgroup" in end else []:
        check(what["time"] > settled, "the cgroup is of %s, the mark of %s", what["time"], settled)
    for what in [q for q in end["processes"] if q["pid"] == p.pid] + ([end["smaps"]] if "smaps" in end else []):
        check(what["rss"] - before > 380 << 20, "%s, but RSS was %d", what, end["memory"]["rss"])


def test_process_tree():
    """Of several processes, each that is killed has a file."""
    folder, goes = scratch("tree"), [scratch("go-tree-%d" % i) for i in range(3)]
    pids = [jobs().start(go=go, end=end, chunk=kills.MIB, rounds=20) for go, end in zip(goes, ("segv", "exit0", "kill"), strict=True)]
    recorder = spawn([harness.TOOL, "record", *(w for p in pids for w in ("-p", str(p))), "--on-kill", "-o", folder + "/"], root=True)
    recorder.wait_line("3 processes are traced", 30, stream="err")
    for go in goes:
        with open(go, "w", encoding="ascii"):
            pass
    for pid in pids:
        jobs().wait(pid)
    equal(recorder.wait(60), 0, "exit code of record")
    files = sorted(f for f in os.listdir(folder) if f.endswith(".mtr"))
    equal(files, sorted("leak_server-%d.mtr" % pid for pid in (pids[0], pids[2])), "files")
    ends = [report(os.path.join(folder, f))["end"]["signal"]["name"] for f in files]
    equal(sorted(ends), ["SIGKILL", "SIGSEGV"], "ends")


def test_watch():
    """`watch --on-kill` reports the killed one of two jobs, next to a capture by a rule, and counts both against --max-captures."""
    folder, told, goes = scratch("watch"), scratch("told"), [scratch("go-watch-%d" % i) for i in range(2)]
    killed, good = (jobs().start(go=go, end=end, chunk=kills.MIB, pause=0.01, rounds=rounds)
                    for go, end, rounds in ((goes[0], "wait", 1 << 40), (goes[1], "exit0", 20)))
    w = spawn([harness.TOOL, "watch", "--format", "json", "--every", "200ms", *(a for p in (killed, good) for a in ("-p", str(p))),
               "--rule", "rss>1M", "--capture", "500ms", "--cooldown", "1h", "--max-captures", "1", "--on-kill", "--cost", "100%", "-o", folder,
               "--exec", "echo $MEMTRACE_EVENT $MEMTRACE_PID $MEMTRACE_FILE >>" + told], root=True)
    for go in goes:
        with open(go, "w", encoding="ascii"):
            pass
    captured = json.loads(w.wait_line('"event":"captured"', 60))
    equal(captured["rule"], "rss>1M", "rule of the capture")
    equal(jobs().wait(good), 0, "status of the job that ends well")
    os.kill(killed, signal.SIGKILL)
    jobs().wait(killed)
    equal(w.wait(60), 0, "exit code of watch: %s" % w.stderr()[-500:])
    events = [e for e in map(json.loads, w.stdout().splitlines()) if e["event"] in ("killed", "failed")]
    equal([(e["event"], e["pid"], e["rule"], e["lost"]) for e in events], [("killed", killed, "--on-kill", 0)], "killed processes")
    check(events[0]["text"].startswith("killed by SIGKILL at "), "the reason: %s", events[0])
    check("leak_server.py:%d " % kills.planted_line() in events[0]["blame"], "the line: %s", events[0])
    harness.own(folder)
    equal(sorted(os.listdir(folder)), ["index.json", "watch-killed-leak_server-%d.mtr" % killed], "files")
    equal(report(events[0]["file"])["end"]["signal"]["name"], "SIGKILL", "signal")
    harness.own(told)
    with open(told, encoding="utf-8") as f:
        check("killed %d %s\n" % (killed, events[0]["file"]) in f.read(), "--exec was not run")


def recorder_of(w):
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        for child in harness.children_of(w.pid):
            with contextlib.suppress(OSError), open("/proc/%d/cmdline" % child, "rb") as f:
                if f.read().split(b"\0")[1:2] == [b"record"]:
                    return child
        time.sleep(0.01)
    raise harness.Failure("watch has started no recorder: %s" % w.stderr()[-500:])


def test_watch_without_recorder():
    """A recorder that ends is reported, and `watch` goes on."""
    pid = jobs().start(go=None, end="wait", chunk=1024, pause=0.05, rounds=1 << 40)
    w = spawn([harness.TOOL, "watch", "--format", "json", "--every", "200ms", "-p", str(pid), "--rule", "rss>1T", "--on-kill",
               "-o", scratch("no-recorder")], root=True)
    w.wait_line('"event":"watching"', 30)
    recorder = recorder_of(w)
    subprocess.run(harness.sudo(["kill", "-KILL", str(recorder)]), check=True)
    text = json.loads(w.wait_line('"event":"failed"', 30))["text"]
    check("the recorder ended with signal 9" in text, "%s", text)
    equal(harness.interrupt(w), 0, "exit code of watch: %s" % w.stderr()[-500:])
    os.kill(pid, signal.SIGKILL)
    jobs().wait(pid)


class SmallDisk:
    """A file system of 8 MiB."""

    def __enter__(self):
        self.path = scratch("disk")
        os.makedirs(self.path, exist_ok=True)
        if not harness.IS_ROOT or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "none", self.path], capture_output=True, check=False).returncode:
            raise harness.Skip("a file system cannot be mounted here")
        harness.undo_on_signal.append(self.unmount)
        return self

    def unmount(self):
        subprocess.run(["umount", "-l", self.path], capture_output=True, check=False)

    def __exit__(self, *_):
        self.unmount()
        harness.undo_on_signal.remove(self.unmount)

    def fill(self):
        with contextlib.suppress(OSError), open(os.path.join(self.path, "full"), "wb", buffering=0) as f:
            while True:
                f.write(b"x" * 4096)


def test_full_disk():
    """Room for the last file is set aside before: the disk may be full when the process is killed."""
    with SmallDisk() as disk:
        pid = jobs().start(go=scratch("go-disk"), end="wait", chunk=kills.MIB)
        path = os.path.join(disk.path, "last.mtr")
        recorder = record(pid, path, "--on-kill", "--max-size", "4M")
        before = harness.resident(pid)
        with open(scratch("go-disk"), "w", encoding="ascii"):
            pass
        harness.until(lambda: harness.resident(pid) - before > 8 * kills.MIB, "growth")
        disk.fill()
        os.kill(pid, signal.SIGKILL)
        jobs().wait(pid)
        equal(recorder.wait(60), 0, "exit code of record (%s)" % recorder.stderr()[-300:])
        equal(report(path)["end"]["signal"]["name"], "SIGKILL", "signal")
        # Without that room, the capture does not begin.
        pid = jobs().start(go=None, end="wait", chunk=kills.MIB, pause=0.05)
        code, _, err = tool("record", "-p", str(pid), "--on-kill", "--max-size", "4M", "-o", os.path.join(disk.path, "other.mtr"), root=True)
        check(code == 1 and "set aside for the last file" in err, "a full disk at the start: %d, %s", code, err)
        os.kill(pid, signal.SIGKILL)
        jobs().wait(pid)


def test_killed_recorder():
    """A recorder that is killed leaves no file, and the process goes on. So does one whose own cgroup is full."""
    folder = scratch("gone")
    os.makedirs(folder)
    pid = jobs().start(go=None, end="exit5", chunk=1024, rounds=400, pause=0.002)
    recorder = record(pid, os.path.join(folder, "last.mtr"), "--on-kill")
    recorder.signal(signal.SIGKILL)
    recorder.wait(30)
    equal(os.listdir(folder), [], "what the recorder left")
    equal(os.WEXITSTATUS(jobs().wait(pid)), 5, "status of the job")


@nightly("long")  # Some recordings lack the end; one cause is mended, another is not known yet.
def test_killed_while_attaching():
    """Either there is a recording, or the message says that the process ended."""
    for i in range(16):
        path = scratch("early-%d.mtr" % i)
        pid = jobs().start(go=None, end="wait", chunk=kills.MIB, pause=0.002)
        recorder = record(pid, path, "--on-kill", wait=False)
        time.sleep(i * 0.015)
        os.kill(pid, signal.SIGKILL)
        jobs().wait(pid)
        code = recorder.wait(30)
        said = recorder.stderr()
        if os.path.exists(path):
            end = report(path).get("end")
            check(code == 0 and end and end.get("signal", {}).get("name") == "SIGKILL", "attach %d: exit code %d, end %s: %s", i, code, end, said)
        else:
            check(code == 2 and ("ended" in said or "no process with PID" in said), "attach %d: exit code %d: %s", i, code, said)


def test_recorders_cgroup_is_full():
    cgroup = kills.Cgroup(24 * kills.MIB)
    try:
        pid = jobs().start(go=None, end="exit5", chunk=1024, rounds=400, pause=0.002)
        inside = "echo $$ > %s/cgroup.procs; exec %s record -p %d --on-kill -f -o %s" % (
            cgroup.path, harness.TOOL, pid, scratch("full.mtr"))
        recorder = spawn(["sh", "-c", inside], root=True)
        equal(os.WEXITSTATUS(jobs().wait(pid)), 5, "status of the job")
        recorder.stop()
    finally:
        cgroup.remove()


def test_refused():
    code, _, err = tool("watch", "-p", "1", "--on-kill", root=True)
    check(code == 64 and "-o FOLDER" in err, "watch without a folder: %d, %s", code, err)
    for words, says in ((("--rolling", "1M"), "--on-kill"), (("--skip", "3"), "--on-kill")):
        code, _, err = tool("record", "-p", "1", "--on-kill", *words, root=True)
        check(code == 64 and says in err, "%s: %d, %s", words, code, err)


if __name__ == "__main__":
    run(globals())

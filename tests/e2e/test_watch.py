#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# run: long probes-all
"""Conditions on recordings (`report --fail-if`) and on running processes (`watch`): results and blamed lines."""
import datetime
import json
import os
import re
import signal
import subprocess
import sys

import harness
import test_hostile
from harness import check, equal, nightly, python, run, scratch, spawn, spawn_job, tool, training

LEAK = os.path.join(harness.WORKLOADS, "leak.py")
with open(LEAK, encoding="utf-8") as _f:
    LINES = {m[1]: number for number, text in enumerate(_f, 1) for m in [re.search(r"# LEAK (\w+)$", text)] if m}
STEP = 16384  # bytes that `list` leaks per step

_recording = None


def recording():
    """Thirty leaking steps in the dry run."""
    global _recording
    if not _recording:
        path = scratch("fail.mtr")
        p = spawn([harness.TOOL, "run", "--dry-run-cuda", "-q", "-f", "-o", path, "--", python(), LEAK, "list", "--steps", "30", "--device",
                   "cuda"], root=True)
        equal(p.wait(90), 0, "exit code of run: %s" % p.stderr()[-500:])
        harness.own(path)
        _recording = path
    return _recording


def fail_if(*conditions, options=(), files=None):
    args = [a for c in conditions for a in ("--fail-if", c)]
    return tool("report", *args, *options, *(files or [recording()]))


def test_fail_if_to_the_byte():
    """A leak's growth equals the limit exactly and does not exceed it by a byte; the line is named."""
    grown = 10 * STEP
    code, out, err = fail_if("growth>=%d/10steps" % grown)
    equal(code, 4, "exit code: %s" % err)
    check(" Location" in out, "the report is not there: %s", out[:300])
    check("leak.py:%d" % LINES["list"] in err, "the line of the leak is not named: %s", err)
    code, _, err = fail_if("growth>%d/10steps" % grown, "ooms>0", "lost>0")
    equal((code, err), (0, ""), "exit code and words where nothing holds")
    doc = harness.report(recording())
    peak = harness.device(doc, "cuda:0")["peak_allocated"]
    equal(fail_if("peak>%d" % peak)[0], 0, "exit code at the peak")
    code, _, err = fail_if("peak>%d" % (peak - 1), options=("--at", "end"))
    equal(code, 4, "exit code a byte below the peak: %s" % err)
    check("largest at the peak" in err and "leak.py:" in err, "who is to blame for the peak, from a report of the end: %s", err)


def test_fail_if_blames_within_the_window():
    """Blamed lines grew within the condition's window: together as much as the figure, unlike in the whole recording."""
    code, out, err = fail_if("growth>=%d/10steps" % (10 * STEP), options=("--format", "json"))
    equal(code, 4, "exit code: %s" % err)
    failed, = json.loads(out)["failed"]
    leak = [r for r in failed["blame"] if r["file"].endswith("leak.py") and r["line"] == LINES["list"]]
    equal((failed["value"], [r["bytes"] for r in leak]), (10 * STEP, [10 * STEP]), "growth, and that of the line")


def test_fail_if_in_json():
    code, out, err = fail_if("leaks>0", "peak<1T and growth>1M/10steps", options=("--format", "json"))
    equal(code, 4, "exit code: %s" % err)
    leaks, growth = json.loads(out)["failed"]
    equal((leaks["condition"], leaks["holds"], leaks["value"], leaks["limit"], leaks["device"]), ("leaks>0", True, 1, 0, "cuda:0"), "leaks")
    blame = leaks["blame"][0]
    equal((os.path.basename(blame["file"]), blame["line"]), ("leak.py", LINES["list"]), "who is to blame")
    equal((growth["holds"], growth["value"], growth["limit"], growth["blame"]), (False, 10 * STEP, 1 << 20, []), "what does not hold")


def test_fail_if_cannot_be_judged():
    """Unknown figures are an error with a reason, not false; invalid conditions are refused with the position."""
    for condition, words in (("growth>1/1000steps", "of 1,000 steps so far"), ("rss>1", "watch"), ("free<1G", "watch"), ("alocated>1", "unknown figure 'alocated'")):
        code, _, err = fail_if(condition)
        equal(code, 1 if "growth" in condition else 64, "exit code of %s: %s" % (condition, err))
        check(words in err, "%s: no '%s' in: %s", condition, words, err)
    code, out, err = fail_if("growth>1/1000steps or peak>0", options=("--format", "json"))
    equal(code, 4, "exit code where the rest settles it: %s" % err)
    code, out, err = fail_if("fragmentation>1%", options=("--device", "cpu", "--format", "json"))
    equal((code, json.loads(out)["failed"][0]["holds"]), (1, None), "of the CPU: %s" % err)


def test_fail_if_of_hostile_names():
    """Hostile line names are harmless on a terminal, and JSON stays valid."""
    path = scratch("hostile.mtr")
    test_hostile.made_recording(path, test_hostile.hostile_names(400))
    conditions = [a for c in ("peak>0", "growth>0/2steps", "leaks>0", "ooms>0", "lost>0", "fragmentation>0%", "unused>0") for a in ("--fail-if", c)]
    for options in ((), ("--format", "json")):
        code, out, err = tool("report", *conditions, *options, path, text=False)
        equal(code, 4, "exit code: %s" % err)
        test_hostile.harmless(out, "a report with %s" % (options,))
        test_hostile.harmless(err.encode("utf-8", "replace"), "what --fail-if says")
        if options:
            check(len(json.loads(out)["failed"]) >= 7, "conditions in JSON")


# ---- watch ----

PRELOAD = " ".join(os.path.join(harness.OUT, "dryrun", name) for name in ("libcuda.so.1", "libnvidia-ml.so.1"))
OOM = """
import sys, torch
torch.zeros(1 << 20, device="cuda")
kept = torch.zeros(3 << 20, dtype=torch.uint8, device="cuda")
print("ready", flush=True)
for line in sys.stdin:
    try:
        torch.empty(1 << 40, dtype=torch.uint8, device="cuda")
    except torch.cuda.OutOfMemoryError:
        print("oom", flush=True)
"""


def job(*args):
    """A job in the dry run."""
    env = dict(os.environ, PYTHONUTF8="1", PYTHONUNBUFFERED="1", LD_PRELOAD=PRELOAD, MEMTRACE_DRYRUN_VRAM="16G")
    return spawn_job([python(), *args], env=env)


def watching(*args, prefix=()):
    return spawn([*prefix, harness.TOOL, "watch", "--format", "json", "--every", "200ms", *args], root=True)


def events(w, kind):
    return [e for e in map(json.loads, w.stdout().splitlines()) if e["event"] == kind]


def wait_event(w, kind, seconds=60):
    return json.loads(w.wait_line('"event":"%s"' % kind, seconds))


def test_leak_is_captured():
    """Only the leaking one of two jobs is captured, with its line; then both end, and so does watching."""
    bad = job(LEAK, "list", "--device", "cuda", "--steps", "100000", "--pause", "0.01")
    good = job(LEAK, "none", "--device", "cuda", "--steps", "100000", "--pause", "0.01")
    for p in (bad, good):
        p.wait_line("^step 20$", 120)
    folder, told, metrics = scratch("captures"), scratch("told"), scratch("metrics.prom")
    w = watching("-p", str(bad.pid), "-p", str(good.pid), "--rule", "growth>%d/20steps" % (10 * STEP), "--rule", "rss>1T", "-o", folder,
                 "--capture", "2s", "--metrics", metrics, "--exec", "echo $MEMTRACE_EVENT $MEMTRACE_PID $MEMTRACE_BLAME: $MEMTRACE_FINDINGS >>" + told)
    fired = wait_event(w, "fired", 60)
    equal((fired["pid"], fired["device"], fired["figure"]), (bad.pid, "cuda:0", "growth"), "who fired")
    check(fired["value"] > fired["limit"] == 10 * STEP, "what fired: %s", fired)
    captured = wait_event(w, "captured", 40)
    check(re.match(r"leak.py:%d .* a step, held by .*history" % LINES["list"], captured["blame"]), "who is to blame: %s", captured)
    equal(captured["findings"], ["leak"], "codes of the findings")
    for path in (folder, captured["file"], captured["snapshot"]):
        harness.own(path)
    doc = harness.report(captured["file"])
    check(doc["capture"]["steps"] > 5 and harness.device(doc, "cuda:0")["drift"] == 0, "the recording: %s", doc["capture"])
    live = harness.read_json(captured["snapshot"])
    check(live["devices"], "what was live: %s", str(live)[:300])
    index = harness.read_json(os.path.join(folder, "index.json"))
    check("growth" in json.dumps(index), "why it was captured is not in the index: %s", index)
    for p in (bad, good):
        p.stop()
    equal(w.wait(30), 0, "exit code when all have ended: %s" % w.stderr()[-500:])
    equal({e["pid"] for e in events(w, "fired")}, {bad.pid}, "who fired")
    equal(len(events(w, "ended")), 2, "ends told of")
    harness.own(told)
    with open(told, encoding="utf-8") as f:
        check(re.search(r"^captured %d leak.py:%d .*: leak$" % (bad.pid, LINES["list"]), f.read(), re.M), "--exec was not run with the capture")
    with open(metrics, encoding="utf-8") as f:
        text = f.read()
    check(text.endswith("# EOF\n") and 'memtrace_watch_captures_total{result="made"} 1' in text, "metrics: %s", text[-600:])


def test_failed_diagnosis():
    """When `diagnose` fails, the findings are not known: that is not an empty list."""
    p = spawn([harness.compiled_program("bursts")])
    p.wait_line("ready")
    w = watching("-p", str(p.pid), "--rule", "rss>1", "-o", scratch("undiagnosed"), "--capture", "1s",
                 prefix=("env", "LD_PRELOAD=" + harness.compiled("no_diagnosis")))
    captured = wait_event(w, "captured", 120)
    p.stop()
    w.wait(30)
    check("findings" not in captured, "findings of a failed diagnosis: %s", captured)
    check("%s: diagnose failed; the findings are not known" % captured["file"] in w.stderr(), "messages: %s", w.stderr()[-500:])


def test_out_of_memory():
    """Each out-of-memory event fires; the newest capture is kept."""
    p = job("-c", OOM)
    p.wait_line("ready", 120)
    folder = scratch("ooms")
    w = watching("-p", str(p.pid), "--rule", "ooms>0", "-o", folder, "--capture", "500ms", "--cooldown", "0s", "--max-captures", "1")
    check("allocator" in wait_event(w, "watching")["text"], "what is read: %s", w.stdout())
    done = subprocess.run(harness.sudo(["ls", "-l", "/proc/%d/fd" % w.pid]), capture_output=True, text=True, check=True)
    check("libcuda" not in done.stdout, "a file is open that was read at the start: %s", done.stdout)
    for n in (1, 2):
        p.send()
        p.wait_line("oom", 30)
        harness.until(lambda count=n: len(events(w, "captured")) == count, "capture %d" % n)
    equal([e["value"] for e in events(w, "fired")], [1, 1], "what fired")
    equal(harness.interrupt(w), 0, "exit code after a signal: %s" % w.stderr()[-500:])
    harness.own(folder)
    kept = [name for name in os.listdir(folder) if name.endswith(".mtr")]
    equal(kept, [os.path.basename(events(w, "captured")[1]["file"])], "recordings that are kept")
    p.stop()


def test_free_memory_of_a_device():
    """A rule on what the driver has left, in bytes and as a share of the device."""
    p = job("-c", OOM)
    p.wait_line("ready", 120)
    w = watching("-p", str(p.pid), "--rule", "free<16G", "--rule", "free<1%")
    fired = wait_event(w, "fired")
    check((15 << 30) < fired["value"] < (16 << 30) and fired["rule"] == "free<16G", "what fired: %s", fired)
    equal(harness.interrupt(w), 0, "exit code after a signal: %s" % w.stderr()[-500:])
    equal([e["rule"] for e in events(w, "fired")], ["free<16G"], "rules that fired")
    p.stop()


@nightly("long")
def test_who_comes_later():
    """By name: waits for processes to start; without a GPU, resident memory is used; after the end of one, the next follows."""
    mark = "watched-%d" % os.getpid()
    w = watching("--name", mark, "--rule", "rss>1M", "--rule", "growth>1G/10m")
    wait_event(w, "waiting", 20)
    for n in (1, 2):
        p = spawn([python(), "-c", "import torch; print('ready', flush=True); input()", mark])
        p.wait_line("ready", 120)
        harness.until(lambda count=n: len(events(w, "fired")) == count, "event %d" % n)
        fired = events(w, "fired")
        equal((len(fired), fired[-1]["pid"], fired[-1]["figure"], fired[-1].get("device")), (n, p.pid, "rss", None), "what fired")
        p.send()
        equal(p.wait(20), 0, "the job's exit code")
    equal(harness.interrupt(w), 0, "exit code after a signal: %s" % w.stderr()[-500:])
    equal([e["pid"] for e in events(w, "watching")], [e["pid"] for e in events(w, "fired")], "who was watched")


def test_bad_places():
    """Unwritable folders, missing targets and invalid rules are errors before watching starts."""
    p = spawn([sys.executable, os.path.join(harness.WORKLOADS, "plain.py")])
    p.wait_line("^ready")
    plain, link = scratch("plain"), scratch("link")
    with open(plain, "w", encoding="utf-8") as f:
        f.write("x")
    os.symlink(scratch("nowhere"), link)
    pid = ("-p", str(p.pid))
    for args, code, words in ((("-o", plain), 1, "plain"), (("-o", link), 1, "link"), (("-o", "/proc/nothing/here"), 1, "/proc"),
                              (("--rule", "peak<"), 64, "peak<"), (("--rule", "lost>0"), 64, "--fail-if"), (("--capture", "x"), 64, "'x'"),
                              ((), 0, "")):
        got, out, err = tool("watch", *pid, "-d", "100ms", *args, root=True)
        equal(got, code, "exit code with %s: %s%s" % (args, out, err))
        check(words in err, "%s: no '%s' in: %s", args, words, err)
    p.stop()
    got, _, err = tool("watch", *pid, root=True)
    equal(got, 2, "exit code where there is no such process: %s" % err)
    check("PID %d does not run" % p.popen.pid in err, "who is not there: %s", err)


def test_any_program():
    """A program without Python and PyTorch has resident memory; rules of a device are named at the start."""
    shell = spawn(["sh", "-c", "echo ready; read nothing"])
    shell.wait_line("^ready")
    w = watching("-p", str(shell.pid), "--rule", "host_live>0", "--rule", "ooms>0")
    text = wait_event(w, "watching", 20)["text"]
    check(text.endswith("; 1 of 2 rules need it: ooms>0"), "what is said: %s", text)
    fired = wait_event(w, "fired")
    check(fired["figure"] == "host_live" and fired["value"] > 4096, "what fired: %s", fired)
    shell.stop()
    equal(w.wait(30), 0, "exit code after the end of the program: %s" % w.stderr())


def test_rules_that_cannot_be_judged():
    """A job without CUDA has no device figures: rules that need them are named at the start."""
    w = watching("-p", str(training().pid), "--rule", "growth>1G/10m", "--rule", "rss_growth>1T/10m", "--rule", "reserved>1G and rss>1")
    text = wait_event(w, "watching", 20)["text"]
    w.signal(signal.SIGINT)
    equal(w.wait(30), 0, "exit code: %s" % w.stderr())
    check(text.endswith("; 2 of 3 rules need it: growth>1G/10m, reserved>1G and rss>1"), "what is said: %s", text)


HOST = """
import sys, torch
kept = [torch.ones(1 << 20)]
print("ready", flush=True)
for line in sys.stdin:
    kept.append(torch.ones(16 << 20))
    print("more", flush=True)
"""


def test_host_memory():
    """Rules on parts of host memory: a reading in another process decides, and the control group's use is read at each check."""
    p = spawn_job([python(), "-c", HOST], env=dict(os.environ, PYTHONUTF8="1", PYTHONUNBUFFERED="1"))  # that of training()
    p.wait_line("ready", 120)
    metrics = scratch("host.prom")
    _, out, _ = tool("dump", "-p", str(p.pid), "--device", "host", "--format", "json", root=True)
    group = "cgroup" in json.loads(out)["host"]["parts"]  # false at the root of cgroup v2
    w = watching("-p", str(p.pid), "--rule", "host_tensors>=4M", "--rule", "host_cgroup>1M", "--rule", "host_tensors>=64M",
                 "--metrics", metrics)
    check("resident memory and its parts" in wait_event(w, "watching")["text"], "what is read: %s", w.stdout())
    if group:
        equal(wait_event(w, "fired", 20)["figure"], "host_cgroup", "what fires at once")
    fired = json.loads(w.wait_line('"fired".*"host_tensors>=4M"', 60))
    check(fired["figure"] == "host_tensors" and 4 << 20 <= fired["value"] < 64 << 20, "what fired: %s", fired)
    p.send()
    p.wait_line("more", 30)
    # A reading that takes 5 s of a busy machine is followed by 100 s without one.
    fired = json.loads(w.wait_line('"fired".*"host_tensors>=64M"', 300))
    check(fired["value"] >= 68 << 20, "what fired: %s", fired)
    equal(harness.interrupt(w), 0, "exit code after a signal: %s" % w.stderr()[-500:])
    equal(len(events(w, "fired")), 2 + group, "what fired: %s" % w.stdout())
    with open(metrics, encoding="utf-8") as f:
        text = f.read()
    found = re.search(r'^memtrace_watch_host_bytes\{pid="%d".*,part="tensors"\} (\d+)$' % p.pid, text, re.M)
    check(found and int(found[1]) >= 68 << 20, "metrics: %s", text)
    p.stop()


def metric(path, name):
    """A figure of the metrics; 0: it is not there yet."""
    try:
        with open(path, encoding="utf-8") as f:
            found = re.search(r"^memtrace_watch_%s\{.*\} (\d+)$" % name, f.read(), re.M)
    except FileNotFoundError:
        found = None
    return int(found[1]) if found else 0


def grow(program, path, w, words, figure, step, rule):
    """Lets the program grow by `step` MiB for each reading of its memory, until the rule fires. Returns the event."""
    for i in range(1, 100):
        least = metric(path, figure) + (step << 19)
        program.send("%s %d\n" % (words, step * (i if words == "burst" else 1)))
        harness.until(lambda least=least: metric(path, figure) > least, "a reading with the growth", 120)
        if any(e["rule"] == rule for e in events(w, "fired")):
            break
    fired, = [e for e in events(w, "fired") if e["rule"] == rule]
    return fired


def test_what_grows():
    """Live objects grow, then memory that malloc keeps: the rule of each fires, with what it is, and not the other's."""
    live, kept = "host_live_growth>8M/1s", "malloc_free_growth>8M/1s"
    for words, figure, rule, grows, text in (
            ("keep", "host_live_bytes", live, "live", r"; host memory grows [\d.]+ [MG]iB/min: live objects \(in use [\d.]+ MiB of "),
            ("burst", "host_free_bytes", kept, "free", r"; host memory grows [\d.]+ [MG]iB/min: free memory inside malloc \(kept by malloc: ")):
        program, path = spawn([harness.compiled_program("bursts")]), scratch("grows.prom")
        program.wait_line("ready")
        w = watching("-p", str(program.pid), "--rule", live, "--rule", kept, "--metrics", path)
        wait_event(w, "watching")
        harness.until(lambda path=path: metric(path, "host_live_bytes"), "a first reading", 120)
        fired = grow(program, path, w, words, figure, 8, rule)
        check(re.search(text, fired["text"]), "what is said: %s", fired)
        equal(fired["host_growth"]["grows"], grows, "what grows: %s" % fired)
        equal(fired["host_growth"]["live"] + fired["host_growth"]["free"], fired["host_growth"]["rss"], "what adds up: %s" % fired)
        equal([e["rule"] for e in events(w, "fired")], [rule], "the rules that fired")
        equal(harness.interrupt(w), 0, "exit code after a signal: %s" % w.stderr())
        program.stop()
        os.unlink(path)


def test_near_the_limit():
    """A figure that crosses its limit again and again does not fire each time: it is normal when it has stayed below for 10 s."""
    code = "import sys\nprint('ready', flush=True)\nfor n in map(int, sys.stdin):\n    kept = None\n    kept = b'x' * (n << 20)\n"
    program, path = spawn([sys.executable, "-c", code]), scratch("near.prom")
    program.wait_line("ready")
    w = watching("-p", str(program.pid), "--rule", "rss>200M", "--metrics", path)
    wait_event(w, "watching")
    for _ in range(3):
        program.send("300\n")
        harness.until(lambda: metric(path, "resident_bytes") > 300 << 20, "a reading above the limit", 60)
        program.send("0\n")
        harness.until(lambda: metric(path, "resident_bytes") < 100 << 20, "a reading below the limit", 60)
    harness.until(lambda: len(events(w, "normal")) == len(events(w, "fired")) > 0, "the rule is normal", 60)
    fired, normal = ([datetime.datetime.fromisoformat(e["time"].replace("Z", "+00:00")) for e in events(w, kind)] for kind in ("fired", "normal"))
    for begin, end in zip(fired, normal):
        check((end - begin).total_seconds() > 9.9, "fired at %s, normal at %s", begin, end)
    program.send("300\n")
    harness.until(lambda: len(events(w, "fired")) == len(fired) + 1, "the rule fires again", 60)
    equal(harness.interrupt(w), 0, "exit code after a signal: %s" % w.stderr())
    program.stop()


def test_kept_by_malloc():
    """A burst that a Python program without PyTorch frees again: a rule on RSS says that malloc keeps it."""
    code = "import sys\nprint('ready', flush=True)\nfor n in map(int, sys.stdin):\n    kept = [bytes(1000) for _ in range(n << 10)]\n" \
           "    kept = kept[-1:]\n    print('done', flush=True)\n"
    program, path = spawn([sys.executable, "-c", code]), scratch("kept.prom")
    program.wait_line("ready")
    w = watching("-p", str(program.pid), "--rule", "malloc_free>50%", "--rule", "rss>100M", "--metrics", path)
    harness.until(lambda: metric(path, "host_live_bytes"), "a first reading", 120)
    program.send("200\n")
    program.wait_line("done")
    fired = json.loads(w.wait_line('"fired".*"malloc_free>50%"', 120))
    check(0.5 < fired["share"] if "share" in fired else fired["value"] > 150 << 20, "what fired: %s", fired)
    growth = fired["host_growth"]
    check(growth["malloc_free"] > 150 << 20 and growth["live"] < 40 << 20, "what is in use: %s", fired)
    check("kept by malloc" in fired["text"], "what is said: %s", fired)
    equal(harness.interrupt(w), 0, "exit code after a signal: %s" % w.stderr())
    program.stop()


def test_host_is_captured():
    """A rule on host memory captures the ledger and a recording of host memory, also of a C program."""
    program, folder = spawn([harness.compiled_program("bursts")]), scratch("host-captures")
    program.wait_line("ready")
    w = watching("-p", str(program.pid), "--rule", "host_live>32M", "-o", folder, "--capture", "1s")
    program.send("keep 64\n")
    snapshot = wait_event(w, "snapshot", 120)
    captured = wait_event(w, "captured", 120)
    equal(harness.interrupt(w), 0, "exit code after a signal: %s" % w.stderr())
    for path in (folder, snapshot["snapshot"]):
        harness.own(path)
    parts = harness.read_json(snapshot["snapshot"])["host"]["parts"]
    check(parts["malloc"]["bytes"] > 64 << 20, "the ledger: %s", parts)
    doc = harness.report(captured["file"])
    equal([d["device"] for d in doc["devices"]], ["host"], "devices of the recording")
    check("[heap]" in captured["blame"] and ":0" not in captured["blame"], "what has the memory: %s", captured)
    program.stop()


@nightly("long")
def test_other_malloc():
    """Memory in use is not known if the tables of the process's malloc are not: no rule fires, and the reason is said once."""
    library = harness.compiled("empty", as_name="libjemalloc")
    program = spawn([harness.compiled_program("bursts")], env={**os.environ, "LD_PRELOAD": library})
    program.wait_line("ready")
    w = watching("-p", str(program.pid), "--rule", "host_live>0", "--rule", "malloc_free>=0", "--rule", "rss>1T")
    for rule in ("host_live>0", "malloc_free>=0"):
        unknown = json.loads(w.wait_line('"unknown".*"%s"' % rule, 120))
        check("libjemalloc.so" in unknown["text"], "the reason: %s", unknown)
    equal(harness.interrupt(w), 0, "exit code after a signal: %s" % w.stderr())
    equal((len(events(w, "unknown")), events(w, "fired")), (2, []), "what was said: %s" % w.stdout())
    program.stop()


def test_fail_if_host_memory():
    """The reading at the report's moment is judged to the byte."""
    parts = harness.report(recording())["host"]["moment"]["parts"]
    malloc = parts["malloc"]["bytes"]
    check(malloc > 0, "the recording has a reading: %s", parts)
    equal(fail_if("host_malloc>%d" % malloc, "host_shared>0")[0], 0, "exit code where nothing holds")
    code, _, err = fail_if("host_malloc>=%d" % malloc)
    equal(code, 4, "exit code: %s" % err)
    check("host malloc " in err, "the messages: %s", err)
    code, _, err = fail_if("host_malloc>50%")
    check(code not in (0, 4) and "total memory" in err, "a percentage: %d %s", code, err)


if __name__ == "__main__":
    run(globals())

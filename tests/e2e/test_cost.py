#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""--cost: a capture that adds too much drops detail and says so; every byte is still counted."""
import json
import os
import re
import subprocess
import time

import chaos
import harness
import server
import truth
from harness import check, device, equal, finish, nightly, own, python, record, report, run, scratch, spawn, spawn_job, tool, until_recorded, workload

LEVELS = 10
NOT_SAMPLED, OTHER_STEPS = (("not sampled", blocks) for blocks in ("small blocks", "other steps"))


def job(leak=16384, context=32, **env):
    """A small GPT in training on the dry run: launch-bound, so that any tracing takes more than 1 % of its time."""
    small = ["--layers", "2", "--width", "64", "--vocab", "1000", "--batch", "1", "--context", str(context)]
    target = spawn_job([python(), os.path.join(harness.WORKLOADS, "limited.py"), "--leak", str(leak), *small], env=dict(truth.dry_run(), **env))
    target.wait_line("^ready", 120)
    return target


def growth(doc):
    return device(doc, "cuda:0")["growth"]


def check_leak(doc):
    found = growth(doc)
    equal((found["verdict"], os.path.basename(found["file"]), found["function"]), ("grows", "limited.py", "keep"), "the leak: %s" % found)
    check(abs(found["bytes_per_step"] - 16384) < 200, "its rate: %s", found)
    check("metrics.losses" in (found["held_by"] or ""), "its holder: %s", found)


def check_totals(doc):
    """Every byte is counted, as the allocator's own totals show."""
    gpu = device(doc, "cuda:0")
    equal((doc["capture"]["lost"], gpu["drift"]), (0, 0), "events lost, and difference to the allocator's totals")
    equal(sum(r["bytes"] for r in doc["rows"]), gpu["allocated"], "bytes of all rows")


def is_sampled(doc):
    """Windows without detail came after the measurement, and the leak is named."""
    steps = doc["capture"]["detail"]["steps"]
    return steps and steps["all"] > 4 * steps["whole"] and growth(doc)["verdict"] == "grows"


def test_whole_steps():
    """Lines are recorded in some whole steps: the leak has its line, its holder and its rate, and every byte is counted."""
    target, path = job(), scratch("cost.mtr")
    recorder = record(target.popen.pid, path, "--cost", "1%")
    until_recorded(path, is_sampled, "whole steps with lines, and others without", seconds=120)
    finish(recorder)
    target.stop()
    own(path)
    doc = report(path, "--at", "end")
    detail = doc["capture"]["detail"]
    equal((detail["limit"], detail["changes"]), (0.01, []), "the limit, and parts that are left out for good")
    check(detail["share"] > 0.01, "tracing took %s of the job's time", detail["share"])
    check(0 <= detail["step"]["low"] <= detail["step"]["longer"] <= detail["step"]["high"], "a step: %s", detail["step"])
    check("lines are recorded in some whole steps only" in recorder.stderr(), "no message: %s", recorder.stderr())
    check_leak(doc)
    check_totals(doc)
    rest = [r for r in doc["rows"] if (r["file"], r["function"]) == OTHER_STEPS]
    check(rest and sum(r["bytes"] for r in rest) > 0, "no row for blocks of other steps")
    said = "Lines are known in"
    check(detail["text"].startswith("a step took") and said in detail["text"] and "Every byte is counted" in detail["text"], "JSON: %s", detail)
    page = scratch("cost.html")
    for format_ in ("html", "flamegraph"):
        tool("export", format_, path, "-o", page)
        with open(page, encoding="utf-8") as f:
            check(detail["text"] in f.read(), "%s does not say it", format_)
    _, out, _ = tool("compare", path, path)
    check("reduced detail: a step took" in " ".join(out.split()), "compare does not say it: %s", out)
    for command in ("report", "leaks"):
        _, out, _ = tool(command, path)
        check("Detail  a step took" in out and said in " ".join(out.split()), "%s does not say it: %s", command, out)


def test_gpu_bound():
    """The GPU needs ten times as long for a step as the host: no detail is dropped for good, and the leak is named. With real-time
    priority for the job, a busy machine makes no step longer."""
    target, path = job(context=256, MEMTRACE_DRYRUN_CLOCK="700"), scratch("gpu.mtr")
    subprocess.run(harness.sudo(["chrt", "-a", "-r", "-p", "1", str(target.popen.pid)]), check=True)
    recorder = record(target.popen.pid, path, "--cost", "1%")
    recorder.wait_line("^memtrace-bpf: with all detail a step takes .*: all detail is recorded$", 120, stream="err")
    until_recorded(path, lambda doc: doc["capture"]["steps"] > 60 and growth(doc)["held_by"], "the leak and its holder")
    finish(recorder)
    target.stop()
    own(path)
    doc = report(path)
    check_leak(doc)
    check_totals(doc)
    detail = doc["capture"]["detail"]
    check(detail["share"] > 0.01 >= detail["step"]["longer"], "the time of tracing, and of a step: %s", detail)
    equal(detail["changes"], [], "parts that are left out for good")


@nightly("long")
def test_watch_and_serve():
    """They limit captures to 1 % by themselves, or by a request; a leak in a launch-bound job has its line, holder and rate all the same."""
    target, folder = job(), scratch("watched")
    watch = spawn([harness.TOOL, "watch", "--format", "json", "--every", "200ms", "-p", str(target.popen.pid), "--rule", "growth>1M/100steps",
                   "-o", folder, "--capture", "60s", "--max-captures", "1"], root=True)
    captured = json.loads(watch.wait_line('"event":"captured"', 150))
    watch.stop()
    check(re.match(r"limited.py:\d+ \(keep\) \+16.0 KiB a step, held by (global )?metrics.losses", captured["blame"]), "blame: %s", captured)
    check("Lines are known in" in captured["detail"], "the detail: %s", captured)
    own(folder)
    doc = report(captured["file"])
    check_leak(doc)
    check_totals(doc)
    s = server.Server("--target", "job=%d" % target.popen.pid, "--cost", "1%")
    trace = s.post("/api/trace/memory", {"pid": target.popen.pid, "duration_s": 60, "wait": False}).expect().json["trace_id"]
    summary = s.wait_trace(trace, seconds=120)["summary"]
    check("metrics.losses" in (summary["growth"]["held_by"] or "") and abs(summary["growth"]["bytes_per_step"] - 16384) < 200, "growth: %s", summary)
    check("Lines are known in" in summary["detail"] and summary["drift"] == 0, "detail, and difference to the totals: %s", summary)
    s.stop()
    target.stop()


@nightly("long")
def test_whole_steps_of_healthy_job():
    """Without a leak none is named."""
    target, path = job(leak=0), scratch("healthy.mtr")
    recorder = record(target.popen.pid, path, "--cost", "1%")
    until_recorded(path, lambda doc: (doc["capture"]["detail"]["steps"] or {"whole": 0})["whole"] > 300, "whole steps", seconds=480)
    finish(recorder)
    target.stop()
    own(path)
    check(growth(report(path))["verdict"] != "grows", "a leak: %s", growth(report(path)))


def wakeups(pid):
    """How often the threads of a process went to sleep so far."""
    total = 0
    for tid in os.listdir("/proc/%d/task" % pid):
        with open("/proc/%d/task/%s/status" % (pid, tid), encoding="utf-8") as f:
            total += int(re.search(r"^voluntary_ctxt_switches:\t(\d+)", f.read(), re.M)[1])
    return total


def check_wakeups(recorder):
    """The recorder rests once the first seconds are over."""
    time.sleep(4)
    before, begin = wakeups(recorder.pid), time.monotonic()
    time.sleep(2)
    rate = (wakeups(recorder.pid) - before) / (time.monotonic() - begin)
    check(rate < 60, "%.0f wake-ups a second", rate)


@nightly("long")
def test_few_events():
    """Next to a job of some thousand events a second, too."""
    target, path = workload("leak.py", "none", "--steps", "1000000", "--pause", "0.01"), scratch("few.mtr")
    target.wait_line("^step 20$", 120)
    recorder = record(target.pid, path)
    check_wakeups(recorder)
    finish(recorder)
    capture = report(path)["capture"]
    check(capture["events"] / capture["duration"] > 1000, "only %d events", capture["events"])
    equal(capture["lost"], 0, "lost events")
    target.stop()


def test_quiet():
    """Next to a process that makes no events the recorder wakes up rarely, and records the next events all the same."""
    storm, path = chaos.Storm(), scratch("quiet.mtr")
    recorder = record(storm.pid, path)
    check_wakeups(recorder)
    before, after = storm.ask("count"), storm.ask("flood 2 2000")
    finish(recorder)
    counters = report(path)["capture"]["counters"]
    for hook, counter in chaos.COUNTERS.items():
        equal(counters.get(counter, 0), after[hook] - before[hook], counter)
    storm.process.stop()


def test_priority():
    """The thread that drains takes the highest priority of ordinary threads, and no other thread does."""
    storm = chaos.Storm()
    recorder = record(storm.pid, scratch("priority.mtr"))
    harness.settle(recorder)
    nice = {}
    for tid in os.listdir("/proc/%d/task" % recorder.pid):
        with open("/proc/%d/task/%s/stat" % (recorder.pid, tid), encoding="utf-8", errors="replace") as f:
            nice[int(tid)] = int(f.read().rpartition(")")[2].split()[16])
    finish(recorder)
    equal((nice.pop(recorder.pid), set(nice.values())), (-20, {os.nice(0)}), "nice values of the thread that drains, and of the others")
    storm.process.stop()


def policy(pid):
    return os.sched_getscheduler(pid) & ~os.SCHED_RESET_ON_FORK


def test_priority_until_pytorch_comes():
    """Whoever waits for PyTorch in a command of ours has real-time priority, so that other sessions' load does not hide the start."""
    p = spawn([harness.TOOL, "run", "--dry-run-cuda", "-o", scratch("waits.mtr"), "--", python(), "-u", "-c",
               "print('here')\ninput()\nimport torch\nprint('there')\ninput()"], root=True)
    p.wait_line("^here", 60)
    harness.until(lambda: policy(p.pid) == os.SCHED_RR, "real-time priority before PyTorch is there")
    p.send("\n")
    p.wait_line("^there", 120)
    equal(policy(p.pid), os.SCHED_OTHER, "while it records")
    p.send("\n")
    equal(p.wait(60), 0, p.stderr())
    check("from PyTorch's first allocation on" in p.stderr(), "attached late: %s", p.stderr())


def check_levels(path, recorder):
    """Without steps, parts of the detail are dropped one after another."""
    own(path)
    changes = report(path)["capture"]["detail"]["changes"]
    check(2 <= len(changes) <= LEVELS, "changes of detail: %s", changes)
    for was, now in zip(changes, changes[1:]):
        check(was["sampled_below"] <= now["sampled_below"], "detail came back: %s", changes)
    last = changes[-1]
    equal(last["backward_nodes"], False, "backward nodes at the end")
    check(last["sampled_below"] >= 65536, "stacks of small blocks are still read: %s", changes)
    check(all(c["share_before"] > 0.01 for c in changes), "dropped without need: %s", changes)
    messages = [text for _, text in recorder.err if "no longer recorded" in text]
    equal(len(messages), len(changes), "messages about detail")


def test_sampled_rows():
    """Rows of lines whose blocks are a sample have an interval around the true size."""
    target, path = workload("held.py"), scratch("held.mtr")
    target.wait_line("^ready", 120)
    recorder = record(target.popen.pid, path, "--cost", "1%")
    until_recorded(path, lambda doc: doc["capture"]["detail"]["changes"][-1]["sampled_below"] >= 65536, "a sample of the stacks", seconds=120)
    target.send()
    words = target.wait_line("^holds", 60).split()
    finish(recorder)
    check_levels(path, recorder)
    target.send()
    target.wait(60)
    doc = report(path, "--at", "end", "--top", "0")
    rest = sum(r["bytes"] for r in doc["rows"] if (r["file"], r["function"]) == NOT_SAMPLED)
    truth_of = {int(words[1]): int(words[2]), int(words[3]): int(words[4])}
    equal(device(doc)["allocated"] >= sum(truth_of.values()), True, "bytes in all")
    for line, size in truth_of.items():
        rows = [r for r in doc["rows"] if r["line"] == line and r["file"].endswith("held.py")]
        check(len(rows) <= 1, "rows of line %d: %s", line, rows)
        if not rows:
            continue  # by the limit on what a line without a block in the sample holds
        of = rows[0]["sampled"]
        check(rows[0]["bytes"] <= of["low"] <= of["estimate"] <= of["high"], "not in order: %s", rows[0])
        # Twice as far as the interval: this test is run many times.
        far = of["high"] - of["low"]
        check(of["low"] - far <= size <= of["high"] + far, "line %d holds %d bytes, estimated %s", line, size, of)
        check(of["high"] <= rows[0]["bytes"] + rest, "more than there is: %s of %d", of, rest)
    check(rest > 0.4 * sum(truth_of.values()), "%d bytes not sampled", rest)
    equal(sum(r["bytes"] for r in doc["rows"]), device(doc)["allocated"], "bytes of all rows")
    check("whose stacks were not sampled" in " ".join(tool("report", "--at", "end", path)[1].split()), "the text does not say it")


@nightly("long")
def test_enough_allowed():
    """Nothing is dropped while the limit is kept, and then the reports do not mention it."""
    target, path = workload("layers.py", "--slow"), scratch("cheap.mtr")
    target.wait_line("ready", 120)
    equal(record(target.pid, path, "--cost", "50%", "-d", "3s").wait(60), 0, "the recorder's end")
    target.send()
    target.wait(60)
    own(path)
    detail = report(path)["capture"]["detail"]
    check(0 < detail["share"] < 0.5, "share: %s", detail)
    equal(detail["changes"], [], "changes of detail")
    check("Detail" not in tool("report", path)[1], "the report mentions a limit that was kept")


@nightly("long")
def test_no_limit():
    target, path = workload("layers.py", "--slow"), scratch("free.mtr")
    target.wait_line("ready", 120)
    equal(record(target.pid, path, "--cost", "off", "-d", "1s").wait(60), 0, "the recorder's end")
    target.send()
    target.wait(60)
    own(path)
    check("detail" not in report(path)["capture"], "a limit without --cost")


def test_usage():
    for value in ("0", "-1%", "101%", "1x", "", "nan"):
        code, _, err = tool("record", "-p", "1", "--cost", value)
        equal(code, 64, "--cost %r: %s" % (value, err))
        check("try 1%, or off" in err, "the message: %s", err)
    code, _, err = tool("run", "--inside", "--cost", "1%", "--", "true")
    equal((code, "--inside cannot be combined with --cost" in err), (64, True), err)


run(globals())

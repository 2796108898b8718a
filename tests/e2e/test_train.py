#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# run: long
"""A training job: the recording equals the job's own data, and every option of record does what it says."""
import collections
import datetime
import json
import os
import re
import signal
import subprocess
import time

import harness
import mtr_reader
from harness import (IS_ROOT, WORKLOADS, Failure, check, device, equal, record, report, run, scratch,
                     spawn, tool, workload)

MODEL = os.path.join(WORKLOADS, "model.py")
MAX_BYTES_PER_EVENT = 12
CLOCK_SLACK = 0.05  # s: the capture's start is in wall-clock ms


class Training:
    """The demo job recorded for ten seconds, once for all tests that only read the result."""

    def __init__(self):
        self.recording = scratch("train.mtr")
        truth, times = scratch("truth.jsonl"), scratch("times.jsonl")
        target = workload("train_gpt.py", "--truth", truth, "--times", times, "--every", "5")
        target.wait_line("^step 10 ", 120)
        self.recorder = record(target.popen.pid, self.recording, "-d", "10s")
        equal(self.recorder.wait(30), 0, "exit code of record")
        ended = time.monotonic()

        def noted():
            with open(times, encoding="utf-8") as f:
                return json.loads(f.read().split("\n")[-2])[0] > ended + 0.6

        harness.until(noted, "a step after the job has noted the tensors that it held for half a second")
        target.signal(signal.SIGTERM)
        equal(target.wait(60), 0, "the job's exit code")
        with open(truth, encoding="utf-8") as f:
            self.truth = [json.loads(line) for line in f]
        with open(times, encoding="utf-8") as f:
            self.times = [json.loads(line) for line in f]
        self.doc = report(self.recording)
        self.start = self.monotonic(self.doc["capture"]["start"])
        self.duration = self.doc["capture"]["duration"]
        timeline = scratch("train.timeline.json")
        code, _, err = tool("export", "timeline", self.recording, "-o", timeline, seconds=120)
        check(code == 0, "export timeline: %d, %s", code, err)
        with open(timeline, encoding="utf-8") as f:
            self.timeline = json.load(f)
        self.events = self.timeline["events"]

    @staticmethod
    def monotonic(rfc3339):
        wall = datetime.datetime.fromisoformat(rfc3339.replace("Z", "+00:00")).timestamp()
        return wall - time.clock_gettime(time.CLOCK_REALTIME) + time.clock_gettime(time.CLOCK_MONOTONIC)


_training = None


def training():
    global _training
    if _training is None:
        try:
            _training = Training()
        except Failure as e:
            _training = e
    if isinstance(_training, Failure):
        raise _training
    return _training


def test_nothing_lost():
    t = training()
    equal(t.doc["capture"]["lost"], 0, "lost")
    equal(t.doc["capture"]["complete"], True, "complete")
    check(9.9 < t.duration < 20, "duration %.2f s of 10", t.duration)
    check(t.doc["capture"]["events"] > 5000, "only %d events", t.doc["capture"]["events"])


def test_agrees_with_what_the_job_knows():
    """Each sampled tensor: a block at its address, alive throughout, with its size, line, function and module."""
    t = training()
    blocks, open_blocks = collections.defaultdict(list), {}
    for e in t.events:
        if e["event_type"] == "alloc":
            open_blocks[e["address"]] = e
        elif e["event_type"] == "free" and e["address"] in open_blocks:
            blocks[e["address"]].append((open_blocks.pop(e["address"]), e["timestamp"]))
    for address, e in open_blocks.items():
        blocks[address].append((e, float("inf")))
    compared, wrong = 0, []
    for known in t.truth:
        seen, dropped = known["seen"] - t.start, known["dropped"] - t.start
        if seen < 0.3 or dropped > t.duration - 0.3:
            continue
        compared += 1
        held = dropped - seen
        found = [a for a, end in blocks["0x%x" % known["address"]]
                 if a["timestamp"] < seen + CLOCK_SLACK and end > dropped - CLOCK_SLACK and end - a["timestamp"] >= held]
        if len(found) != 1:
            wrong.append("%d blocks for %s" % (len(found), known))
            continue
        got = [found[0].get(k) for k in ("size_bytes", "file", "line", "function", "layer_name")]
        expected = [known[k] for k in ("bytes", "file", "line", "function", "module")]
        if got != expected:
            wrong.append("%s, expected %s" % (got, expected))
    check(compared >= 3, "only %d of %d known tensors fall into the recording", compared, len(t.truth))
    check(not wrong, "%d of %d tensors differ:\n    %s", len(wrong), compared, "\n    ".join(wrong[:10]))


def test_forward_has_line_and_module():
    t = training()
    total = known = 0
    without = collections.Counter()
    for e in t.events:
        if e["event_type"] == "alloc" and e.get("phase") == "forward":
            total += e["size_bytes"]
            if (e.get("file") or "").startswith(WORKLOADS) and e["layer_name"]:
                known += e["size_bytes"]
            else:
                without[(e.get("file"), e.get("line"), e["layer_name"])] += e["size_bytes"]
    check(total > 64 << 20, "only %d bytes in forward", total)
    check(known >= 0.99 * total, "%.2f %% of forward's bytes have a user line and a module; without: %s",
          100 * known / total, without.most_common(5))


def test_modules_and_lines_are_those_of_the_source():
    """Named lines are lines of forward in model.py that can allocate; modules have PyTorch's names."""
    t = training()
    names = {e["layer_name"] for e in t.events if e["event_type"] == "alloc" and e["layer_name"]}
    for i in range(4):
        for part in ("attn", "attn.qkv", "attn.proj", "norm1", "norm2", "mlp.up", "mlp.act", "mlp.down"):
            check("blocks.%d.%s" % (i, part) in names, "no blocks.%d.%s among %s", i, part, sorted(names)[:40])
    strange = [n for n in names if n != "GPT" and not re.fullmatch(
        r"tokens|positions|norm|head|blocks\.\d(\.(norm1|norm2|attn(\.(qkv|proj))?|mlp(\.(up|act|down))?))?", n)]
    check(not strange, "modules that the model does not have: %s", strange)
    with open(MODEL, encoding="utf-8") as f:
        source = f.read().splitlines()
    for file, line in {(e["file"], e["line"]) for e in t.events if e.get("file") == MODEL}:
        check(re.search(r"[@*(]", source[line - 1]), "%s:%d allocates nothing: %r", file, line, source[line - 1])


def test_phases():
    t = training()
    by_phase = collections.Counter(e["phase"] for e in t.events if e["event_type"] == "alloc")
    for phase in ("forward", "backward", "optimizer"):
        check(by_phase[phase] > 500, "%d allocations in phase %s: %s", by_phase[phase], phase, by_phase)
    for e in t.events:
        if e["event_type"] == "alloc" and e.get("function") == "make_batch":
            check(e["phase"] not in ("forward", "backward", "optimizer"), "make_batch is in phase %s", e["phase"])


def test_steps():
    t = training()
    inside = [b for b, e, _ in t.times if b >= t.start and e <= t.start + t.duration]
    got = t.doc["capture"]["steps"]
    check(abs(got - len(inside)) <= 2, "%s steps, the job did %d", got, len(inside))


def split(doc, key="bytes"):
    """Bytes of the rows: recorded allocations, and memory from before attach."""
    before = sum(r[key] for r in doc["rows"] if r.get("before_attach"))
    return sum(r[key] for r in doc["rows"]) - before, before


def test_report_adds_up():
    """Rows are the live bytes at each moment; the peak is that of the events plus memory from before attach."""
    t = training()
    live, total, peak, peak_time = {}, 0, 0, 0
    freed, most = 0, 0  # of memory from before attach: in the middle of a step some of it is freed later
    moments = [round(t.duration * i / 7, 6) for i in range(1, 7)]  # in the format of --at
    live_at = {}
    for e in t.events:
        for m in moments:
            if m not in live_at and e["timestamp"] > m:
                live_at[m] = total
        if e["event_type"] == "alloc":
            live[e["address"]] = e["size_bytes"]
            total += e["size_bytes"]
            if total - freed > most:
                most, peak, peak_time = total - freed, total, e["timestamp"]
        elif e["event_type"] == "free" and e["address"] in live:
            total -= live.pop(e["address"])
        elif e["event_type"] == "free":
            freed += e["size_bytes"]
    at_peak = report(t.recording, at="peak")
    seen, before = split(at_peak)
    equal(seen, peak, "rows at the peak")
    equal(device(at_peak)["peak_allocated"], peak + before, "peak")
    check(abs(device(at_peak)["peak_time"] - peak_time) < 0.002, "peak at %s, events say %s", device(at_peak)["peak_time"], peak_time)
    equal(split(t.doc)[0], total, "rows at the end")
    equal(sum(split(t.doc)), t.doc["allocated"], "all rows at the end")
    equal(split(t.doc, "count")[0], len(live), "blocks at the end")
    for m in moments:
        doc = report(t.recording, at="%.6f" % m)
        equal(split(doc)[0], live_at[m], "rows at %.6f s" % m)
        equal(sum(split(doc)), doc["allocated"], "all rows at %.6f s" % m)
    for by in ("stack", "module", "phase", "thread", "category,module"):
        doc = report(t.recording, at="peak", by=by)
        equal(sum(r["bytes"] for r in doc["rows"]), peak + before, "rows by %s" % by)


def test_text_report():
    t = training()
    code, out, err = tool("report", t.recording)
    equal((code, err), (0, ""), "report")
    for pattern in (r"train_gpt\.py", r"torch \d", r"Python \d", r"\b0 lost", r"peak [\d.]+ MiB", r"iB allocated and freed in",
                    r"Size +% +Blocks +Role", r"model\.py:\d+ \((\w+\.)?forward\)"):
        check(re.search(pattern, out), "no %r in:\n%s", pattern, out[:1500])


def test_bytes_per_event():
    t = training()
    each = os.path.getsize(t.recording) / t.doc["capture"]["events"]
    check(each <= MAX_BYTES_PER_EVENT, "%.2f bytes an event, at most %d", each, MAX_BYTES_PER_EVENT)
    print("     %.2f bytes an event, %.0f events/s" % (each, t.doc["capture"]["events"] / t.duration))


def test_exports():
    t = training()
    for name, words in (("flamegraph", ("<html", "model.py")), ("folded", ("model.py",)), ("speedscope", ("model.py", "speedscope"))):
        path = scratch("train." + name)
        code, _, err = tool("export", name, t.recording, "-o", path)
        equal(code, 0, "export %s: %s" % (name, err))
        with open(path, encoding="utf-8") as f:
            text = f.read()
        for word in words:
            check(word in text, "%s has no %r", name, word)
        equal(tool("export", name, t.recording, "-o", path)[0], 1, "exit code of export %s onto a file that is there" % name)
    peak = device(report(t.recording, at="peak"))["peak_allocated"]
    code, out, _ = tool("export", "folded", "--at", "peak", t.recording, "-o", "-")
    equal(sum(int(line.rsplit(" ", 1)[1]) for line in out.splitlines()), peak, "sum of the folded stacks")
    with open(scratch("train.speedscope"), encoding="utf-8") as f:
        doc = json.load(f)
    profiles = [p for p in doc["profiles"] if "peak" in p["name"]]
    check(profiles and sum(profiles[0]["weights"]) == peak, "the speedscope profile of the peak is not %d bytes: %s", peak,
          [(p["name"], sum(p["weights"])) for p in doc["profiles"]])


def under_way():
    """A running training job, and a path for its recording."""
    return harness.training().popen.pid, scratch("bound.mtr")


def test_bound_of_steps():
    pid, path = under_way()
    equal(record(pid, path, "--steps", "5").wait(60), 0, "--steps 5, of a job that goes on for two minutes")
    # The step active at attach, then five whole ones, exact to the event: all outputs count whole steps.
    equal(report(path)["capture"]["steps"], 5, "whole steps that --steps 5 recorded")
    equal(tool("export", "openmetrics", path, "-o", "-")[1].split("memtrace_steps_total ")[1].split()[0], "5", "in OpenMetrics")
    equal(json.loads(tool("export", "timeline", path, "-o", "-")[1])["summary"]["steps"], 5, "in a timeline")
    equal(json.loads(tool("leaks", "--format", "json", path)[1])["devices"][0]["steps"], 5, "of leaks")
    with open(path, "rb") as f:
        equal(sum(e["kind"] == mtr_reader.STEP for e in mtr_reader.Recording(f).events()), 6, "ends of steps in the recording")


def test_bounds():
    pid, path = under_way()
    recorder = record(pid, path, "--max-events", "5000")
    equal(recorder.wait(30), 0, "--max-events")
    check("max-events" in recorder.stderr(), "does not say that the bound was reached: %r", recorder.stderr())
    with open(path, "rb") as f:
        kinds = [e["kind"] in mtr_reader.READINGS for e in mtr_reader.Recording(f).events()]
    equal((kinds.count(False), len(kinds)), (5000, report(path)["capture"]["events"]), "events that happened, and all")

    recorder = record(pid, path, "--max-size", "100K")
    equal(recorder.wait(60), 0, "--max-size")
    # The block that would not fit is left out: how large it is depends on the time that passed.
    check(32 << 10 <= os.path.getsize(path) <= 100 << 10, "the file has %d bytes of 100K", os.path.getsize(path))
    report(path)

    equal(record(pid, path, "-d", "1500ms").wait(30), 0, "-d 1500ms")
    capture = report(path)["capture"]
    # A busy machine may notice late that the time is over.
    check(capture["stop_reason"] == "duration" and 1.4 < capture["duration"] < 10, "-d 1500ms recorded %s", capture)


def test_pipe():
    target = harness.training()
    with subprocess.Popen([harness.TOOL, "report", "--format", "json", "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as reader:
        recorder = spawn([harness.TOOL, "record", "-p", str(target.popen.pid), "-o", "-", "-d", "2s"], root=True, stdout=reader.stdin)
        reader.stdin.close()
        equal(recorder.wait(30), 0, "record -o -")
        doc = json.loads(reader.stdout.read())
        equal(reader.wait(30), 0, "report -")
    check(doc["capture"]["events"] > 1000 and doc["capture"]["complete"], "through a pipe: %s", doc["capture"])
    # A reader that closes the pipe ends the capture, but not the target.
    pipe = harness.pipe()
    recorder = spawn([harness.TOOL, "record", "-p", str(target.popen.pid), "-o", "-", "-d", "20s"], root=True, stdout=pipe.write)
    pipe.started()
    recorder.wait_line("attached", 20, stream="err")
    pipe.hang_up()
    check(recorder.wait(15) in (0, 1), "exit code after a broken pipe: %s", recorder.popen.returncode)
    check(target.alive(), "the target ended")


def test_default_file_belongs_to_the_caller():
    folder = scratch("default")
    os.mkdir(folder)
    target = harness.training()
    env = dict(os.environ, SUDO_UID="65534", SUDO_GID="65534") if IS_ROOT else None
    recorder = spawn([harness.TOOL, "record", "-p", str(target.popen.pid), "-d", "500ms"], root=True, cwd=folder, env=env)
    equal(recorder.wait(20), 0, "record")
    files = os.listdir(folder)
    check(len(files) == 1 and re.fullmatch(r"memtrace-%d-\d{8}T\d{6}\.mtr" % target.popen.pid, files[0]), "made %s", files)
    st = os.stat(os.path.join(folder, files[0]))
    equal(st.st_uid, 65534 if IS_ROOT else os.getuid(), "owner")
    equal(st.st_mode & 0o077, 0, "permissions for others")

    # Root can write to the user's folder only through privileges, few of which are kept after attach.
    if IS_ROOT:
        os.chown(folder, 65534, 65534)
    path = os.path.join(folder, "again.mtr")
    for _ in range(2):  # the second recording replaces the first
        recorder = spawn([harness.TOOL, "record", "-p", str(target.popen.pid), "-d", "500ms", "-o", path, "-f"], root=True, env=env)
        equal(recorder.wait(20), 0, "record -f in a folder of somebody else's: %s" % recorder.stderr())
        equal(os.stat(path).st_uid, 65534 if IS_ROOT else os.getuid(), "owner")
    equal(sorted(os.listdir(folder)), sorted([files[0], "again.mtr"]), "files in the folder")


def test_inference_steps():
    target = workload("inference.py", "--seconds", "60")
    target.wait_line("ready", 120)
    path = scratch("inference.mtr")
    recorder = record(target.popen.pid, path)
    harness.until_recorded(path, lambda doc: doc["capture"]["steps"] > 50, "steps of an inference loop")
    harness.finish(recorder)
    doc = report(path, at="peak")
    check(doc["capture"]["lost"] == 0, "lost")


if __name__ == "__main__":
    run(globals())

#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# run: check
"""The page of export html has the whole history: its data at any moment equals report --at, to the byte."""
import collections
import json
import os
import random
import re
import shutil
import subprocess

import harness
from harness import TOOL, Skip, check, equal, made, nightly, own, python, record, run, scratch, spawn, tool

DATA = os.path.join(harness.REPO, "user", "export", "page", "data.js")
GROUPS = ("line", "category", "module")


class Page:
    """A page, and the node process that answers for it."""

    def __init__(self, recording, *options):
        self.recording = recording
        self.path = os.path.splitext(recording)[0] + ".html"
        if not shutil.which("node"):
            raise Skip("node is not here")
        code, _, err = tool("export", "html", recording, "-o", self.path, "-f", *options)
        equal(code, 0, "export html: " + err)
        self.head = self.ask({"ask": "head"})[0]

    def ask(self, *questions):
        done = subprocess.run(["node", os.path.join(harness.HERE, "..", "foreign", "page_data.mjs"), DATA, self.path],
                              input=json.dumps(questions), capture_output=True, text=True, timeout=120, check=False)
        check(done.returncode == 0, "page_data.mjs: %s", done.stderr[-1500:])
        return json.loads(done.stdout)


def report(recording, when, by, device):
    code, out, err = tool("report", recording, "--at", when, "--by", by, "--device", device, "--format", "json")
    equal(code, 0, "report --at %s: %s" % (when, err))
    return json.loads(out)


def key_of(by, r):
    if by == "category":
        return (r["category"],)
    if by == "module":
        return r["module"], r["module_class"], r["module_root"]
    if r.get("before_attach"):
        return "before", r["module"], r["module_class"], r["category"], r.get("name")
    return r["file"], r["line"] or 0 if r["file"] else None, r["function"], r["module"], r["module_class"], r["phase"], r["category"], r["source"]


def rows_of(doc, by):
    """{key: (bytes, count)}; unknown ones separate."""
    rows, anonymous = collections.Counter(), 0
    counts = collections.Counter()
    for r in doc["rows"]:
        key, unknown = key_of(by, r), r.get("anonymous", 0)
        anonymous += unknown
        if r["bytes"] - unknown or r["count"]:
            rows[key] += r["bytes"] - unknown
            counts[key] += r["count"]
    return {k: (rows[k], counts[k]) for k in rows}, anonymous


def compare(page, moments, whens, groups=GROUPS):
    """moments: the page's, one for each of `whens`, which are for report."""
    wrong = checked = 0
    for i, dev in enumerate(page.head["devices"]):
        live = page.ask(*({"ask": "live", "device": i, "moment": m[i], "by": groups} for m in moments))
        for k, (got, when) in enumerate(zip(live, whens)):
            # By line each time, because it has the most detail, and one other grouping.
            for by in {groups[0], groups[-1 - k % 2]} if len(groups) > 2 else groups:
                doc = report(page.recording, when, by, dev["name"])
                rows, anonymous = rows_of(doc, by)
                mine = {tuple(k): (v["bytes"], v["count"]) for k, v in got["by"][by]}
                same = mine == rows and got["unknown"] == anonymous and got["allocated"] == doc["allocated"] and \
                    (doc["reserved"] is None or got["reserved"] == doc["reserved"])
                checked += 1
                wrong += not same
                if not same and wrong < 3:
                    print("     %s at %s by %s: unknown %d, %d; allocated %d, %d; reserved %d, %s; rows %s" % (
                        dev["name"], when, by, got["unknown"], anonymous, got["allocated"], doc["allocated"], got["reserved"],
                        doc["reserved"], sorted(set(mine.items()) ^ set(rows.items()), key=str)[:6]), flush=True)
    print("     %d of %d tables are those of report" % (checked - wrong, checked), flush=True)
    equal(wrong, 0, "tables that differ")
    check(checked > 0, "nothing was compared")


def times(page, n):
    """Random moments at events and between them, before the first and after the last."""
    rng = random.Random(4711)
    whens = ["0.000000000", "%.9f" % (page.head["duration"] + 1)]
    for i in range(len(page.head["devices"])):
        all_ = page.ask({"ask": "times", "device": i})[0]
        whens += ["%.9f" % t for t in rng.sample(all_, min(n // 2, len(all_)))]
    # In a page with chosen moments only these are exact.
    if page.head["moments"] == "every":
        whens += ["%.9f" % (rng.random() * page.head["duration"]) for _ in range(n // 2)]
    whens += ["%.9f" % end for _, end in page.head["steps"][:4]]
    return whens


def accept(recording, n=8):
    page = Page(recording)
    whens = times(page, n)
    devices = range(len(page.head["devices"]))
    at = page.ask(*({"ask": "at", "device": i, "time": float(w)} for w in whens for i in devices))
    moments = [at[k:k + len(devices)] for k in range(0, len(at), len(devices))]
    for when, name in (("peak", "peak_moment"), ("end", "moments")):
        whens.append(when)
        moments.append([d[name] - (when == "end") for d in page.head["devices"]])
    compare(page, moments, whens)
    windows(page)
    return page


def windows(page):
    rng = random.Random(42)
    for i, dev in enumerate(page.head["devices"]):
        questions = []
        for _ in range(20):
            a, b = sorted((rng.randint(-1, dev["moments"] - 1), rng.randint(-1, dev["moments"] - 1)))
            questions += [{"ask": "window", "device": i, "from": a, "to": b}, {"ask": "blocks", "device": i, "moment": b}]
        questions.append({"ask": "window", "device": i, "from": -1, "to": dev["moments"] - 1})
        answers = page.ask(*questions)
        equal(sum(a["wrong"] for a in answers), 0, "rows whose window is not the difference")
        equal((answers[-1]["allocated"], answers[-1]["allocs"]), (dev["total_allocated"], dev["allocs"]), "all that was allocated")


def segments(page, device, moments):
    """Segments with their blocks equal those of report --by segment; at moments and at the peak."""
    dev = page.head["devices"][device]
    all_ = page.ask({"ask": "times", "device": device})[0]
    asked = [(m, "%.9f" % all_[m]) for m in moments] + [(dev["peak_moment"], "peak")]
    # Several events may have one time: report includes the last of them.
    last = page.ask(*({"ask": "at", "device": device, "time": float(w) if w != "peak" else 0.0} for _, w in asked))
    asked = [(m if w == "peak" else at, w) for (m, w), at in zip(asked, last)]
    answers = page.ask(*({"ask": "segments", "device": device, "moment": m} for m, _ in asked))
    seen = 0
    for (_, when), got in zip(asked, answers):
        rows = [r for r in report(page.recording, when, "segment", dev["name"])["rows"] if r["address"] and not r["foreign"]]
        want = {int(r["address"], 16): (r["size"], r["bytes"], r["count"], r["expandable"]) for r in rows}
        equal({s["address"]: (s["size"], s["bytes"], s["blocks"], s["expandable"]) for s in got}, want, "segments at %s" % when)
        seen += len(want)
    check(seen > 0, "no segment was seen")


def test_attached_out_of_memory():
    """Two devices, blocks from before attach, out of memory."""
    page = accept(made("page-oom.mtr", "oom"), 10)
    equal(page.head["moments"], "every", "moments")
    oom = page.head["ooms"][0]
    page = Page(page.recording, "--at", "oom", "--device", oom["device"])
    equal([d["name"] for d in page.head["devices"]], [oom["device"]], "devices with --device")
    compare(page, [[page.head["devices"][0]["at_moment"]]], ["oom"])
    equal(page.head["at_name"], "oom", "at_name")


def test_modules_of_the_moment():
    """A line's modules are those that hold memory at the moment, not all of the recording."""
    page, several = Page(made("page-modules.mtr")), 0
    for i, dev in enumerate(page.head["devices"]):
        all_ = page.ask({"ask": "times", "device": i})[0]
        for when in ["%.9f" % all_[k] for k in range(0, len(all_), max(1, len(all_) // 5))]:
            moment = page.ask({"ask": "at", "device": i, "time": float(when)})[0]
            want = collections.defaultdict(set)
            for r in report(page.recording, when, "line", dev["name"])["rows"]:
                if r["file"] and r["bytes"]:
                    want[(r["file"], r["line"], r["function"], r["phase"], r["category"])].add(r["module"] or "")
            got = {tuple(g["line"]): set(g["modules"]) for g in page.ask({"ask": "modules", "device": i, "moment": moment})[0]}
            equal(got, dict(want), "modules of each line at %s on %s" % (when, dev["name"]))
            several += any(len(v) > 1 for v in want.values())
    check(several, "no line has several modules")


def test_asked_moment():
    page = Page(made("page-at.mtr"), "--at", "0.1")
    for i, dev in enumerate(page.head["devices"]):
        equal(dev["at_moment"], page.ask({"ask": "at", "device": i, "time": 0.1})[0], "moment of %s" % dev["name"])
    peak = report(page.recording, "peak", "line", page.head["devices"][page.head["main"]]["name"])
    page = Page(page.recording)
    equal([(r["bytes"], r["file"], r["line"], r["category"]) for r in page.head["rows"]],
          [(r["bytes"], r["file"], r["line"], r["category"]) for r in peak["rows"][:30]], "rows for the first picture")
    layers = {(a["root"], a["name"]): a for a in page.ask({"ask": "layers"})[0]}
    equal({k: v["peak_allocated"] for k, v in layers.items()},
          {(v["root_class"], v["layer_name"]): v["peak_allocated"] for v in peak["layers"].values()}, "layers")


def test_series():
    """Buckets keep all extremes, and bands add up to the most bytes that were allocated in a bucket."""
    page = Page(made("page-series.mtr"))
    for i, dev in enumerate(page.head["devices"]):
        n, end = 37, page.head["duration"]
        series, *bands = page.ask({"ask": "series", "device": i, "from": 0, "to": end, "n": n},
                                  *({"ask": "stacked", "device": i, "from": 0, "to": end, "n": n, "key": k} for k in ("category", "phase", "module1")))
        equal(max(series["allocated_max"]), dev["peak_allocated"], "the largest of %s" % dev["name"])
        at = page.ask(*({"ask": "at", "device": i, "time": end * (k + 1) / n} for k in range(n)))
        live = page.ask(*({"ask": "live", "device": i, "moment": m, "by": []} for m in at))
        for band in bands:
            equal([sum(b[k] for b in band["bytes"]) for k in range(n)], series["allocated_max"], "sums of bands")
        for k, x in enumerate(live):
            check(series["allocated_min"][k] <= x["allocated"] <= series["allocated_max"][k], "bucket %d does not hold its end", k)
        first = dev["series"]
        equal((max(first["allocated_max"]), len(first["t"])), (dev["peak_allocated"], len(first["reserved_max"])), "the first picture")


def test_many_events():
    """Too many events for a moment each: chosen ones are exact, and events between them are counted."""
    page = Page(made("page-long.mtr", "1600000", by="make_events"))
    equal(page.head["moments"], "chosen", "moments")
    dev = page.head["devices"][0]
    size = os.path.getsize(page.path)
    check(size < 20 << 20 and 500 < dev["moments"] <= 8192, "%d bytes, %d moments", size, dev["moments"])
    all_ = page.ask({"ask": "times", "device": 0})[0]
    moments = [len(all_) // 3]
    compare(page, [[m] for m in moments] + [[dev["peak_moment"]]], ["%.9f" % all_[m] for m in moments] + ["peak"], ("line",))
    windows(page)


@nightly("long")
def test_live_without_a_gpu():
    """A job on two devices, attached during training."""
    job = os.path.join(harness.WORKLOADS, "categories.py")
    target = spawn([TOOL, "run", "--no-trace", "--dry-run-cuda", "--", python(), job, "cuda", "5", scratch("page-live.json"), "wait"])
    recording, pid = scratch("page-live.mtr"), target.wait_line("^ready", 120).split()[1]
    recorder = record(pid, recording, "-v")
    recorder.wait_line("storages named .* at attach", 60, stream="err")
    target.send()
    equal(target.wait(120), 0, "the job's exit code")
    equal(recorder.wait(60), 0, "exit code of record")
    own(recording)
    page = accept(recording, 5)
    equal(sorted(d["name"] for d in page.head["devices"]), ["cpu", "cuda:0"], "devices")
    segments(page, [d["name"] for d in page.head["devices"]].index("cuda:0"), (0, 20, 200))
    holders(page)


def holders(page):
    """What holds the memory from before attach, at the peak of each device. Parts of equal size may be in another order."""
    def words(holder):
        return tuple(sorted(re.split(r"[ ,.]+", holder or "")))

    for i, dev in enumerate(page.head["devices"]):
        rows = page.ask({"ask": "live", "device": i, "moment": dev["peak_moment"], "by": ["holder"]})[0]["by"]["holder"]
        mine = {(words(k[0]), k[1]): (v["bytes"], v["count"]) for k, v in rows if k[1]}
        told = {(words(h["holder"]), h["category"]): (h["bytes"], h["count"])
                for h in report(page.recording, "peak", "line", dev["name"])["before_attach_holders"] if h["count"]}
        equal(mine, told, "holders on " + dev["name"])
        check(len(mine) > 1, "%s: %s", dev["name"], mine)


def test_window():
    """The page of a window begins with it, and so does the picture that it has before its events are loaded."""
    path = scratch("window.mtr")
    code, _, err = tool("run", "--dry-run-cuda", "-f", "-o", path, "--skip", "5", "--steps", "5", "--", python(), "estimate_job.py", root=True, seconds=120, cwd=harness.WORKLOADS)
    equal(code, 0, "run: " + err)
    own(path)
    page = Page(path)
    head, (gpu,) = page.head, [d for d in page.head["devices"] if d["name"] == "cuda:0"]
    start, length, times_of = head["capture"]["window_start"], head["duration"] - head["capture"]["window_start"], gpu["series"]["t"]
    check(0 < length < start / 2, "from %s on, %s long", start, length)
    check(start - length < times_of[0] <= start and times_of[-1] <= head["duration"], "the picture: from %s to %s; the window begins at %s", times_of[0], times_of[-1], start)
    check(len(times_of) > 10, "points: %d", len(times_of))
    equal(max(gpu["series"]["allocated_max"]), gpu["peak_allocated"], "the picture's peak")


if __name__ == "__main__":
    run(globals())

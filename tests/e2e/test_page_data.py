#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""The page of export html has the whole history: what it says of any moment is what report --at says of it, to the byte."""
import collections
import json
import os
import random
import shutil
import subprocess

import harness
from harness import Skip, check, equal, run, scratch, tool

DATA = os.path.join(harness.REPO, "user", "export", "page", "data.js")
GROUPS = ("line", "category", "module")


class Page:
    """A page, and whom to ask about it."""

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
    """{key: (bytes, count)}; what nothing is known of apart."""
    rows, anonymous = collections.Counter(), 0
    counts = collections.Counter()
    for r in doc["rows"]:
        key, unknown = key_of(by, r), r.get("anonymous", 0)
        anonymous += unknown
        if r["bytes"] - unknown or r["count"]:
            rows[key] += r["bytes"] - unknown
            counts[key] += r["count"]
    return {k: (rows[k], counts[k]) for k in rows}, anonymous


def compare(page, moments, whens):
    """moments: of the page, one for each of whens, which is for report."""
    wrong = checked = 0
    for i, dev in enumerate(page.head["devices"]):
        live = page.ask(*({"ask": "live", "device": i, "moment": m[i], "by": GROUPS} for m in moments))
        for got, when in zip(live, whens):
            for by in GROUPS:
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
    """Moments at random, those of events and between them, before the first and after the last."""
    rng = random.Random(4711)
    whens = ["0.000000000", "%.9f" % (page.head["duration"] + 1)]
    for i in range(len(page.head["devices"])):
        all_ = page.ask({"ask": "times", "device": i})[0]
        whens += ["%.9f" % t for t in rng.sample(all_, min(n // 2, len(all_)))]
    # Of a page with chosen moments these alone are exact.
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

#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# run: check long
"""
One recording, every output: whatever two of them state is equal. Texts are equal as far as they are rounded.

An output is a function that adds figures to a dict. A figure's key is (device, name, ...); device is "" for the recording.
Names: peak, end, total, freed, allocs, frees, ooms, peak_reserved, end_reserved, before_attach, peak_step (from 1 on), growth
(bytes per step), verdict, steps, events, lost; and at a moment, "peak" or "end": line, module, role, stack.
The live view needs a running process: test_figures_agree.py compares it with the report.
"""
import collections
import csv
import glob
import gzip
import json
import os
import pickle
import re
import shutil
import subprocess

import harness
import parquet
import readers
import server
from harness import REPO, check, equal, made, nightly, run, scratch, tool
from mtr_writer import Writer

GUIDE = os.path.join(REPO, "tests", "data", "guide")
KEPT = os.path.join(REPO, "tests", "data", "recordings")
MOMENTS = ("peak", "end")
BY = {"line": "line", "module": "module", "role": "category"}
UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
SIZE = r"[\d.,]+ (?:[KMGT]i)?B"
FOUND = 4  # exit status: something grows, or is wrong
GROWTH_CODES = ("leak", "graph_kept", "cache_grows", "others_grow", "peaks_grow")
VERDICTS = {"grows": "grows", "no_growth": "none", "unknown": "unknown"}


class Rounded:
    """Bytes as a text has them, or the sum of such."""

    def __init__(self, text=None, value=0.0, half=0.0):
        self.texts, self.value, self.half = [text] if text else [], value, half
        if text:
            number, unit = text.replace(",", "").split(" ")
            self.value = float(number) * UNITS[unit]
            self.half = 0.5 * 10 ** -len(number.partition(".")[2]) * UNITS[unit]

    def __add__(self, other):
        both = Rounded(value=self.value + other.value, half=self.half + other.half)
        both.texts = self.texts + other.texts
        return both

    def __radd__(self, zero):
        return self

    def __eq__(self, other):
        return isinstance(other, Rounded) and self.texts == other.texts

    __hash__ = None

    def __repr__(self):
        return " + ".join(self.texts)

    def is_(self, value):
        return value is not None and abs(self.value - value) <= self.half + 1e-6 * abs(self.value) + 1e-9


def rounded(texts):
    return sum((Rounded(t) for t in texts), Rounded())


class Figures:
    def __init__(self):
        self.of = collections.defaultdict(dict)

    def put(self, output, key, value):
        if value is None:
            return
        check(output not in self.of[key] or self.of[key][output] == value, "%s has two values of %s: %s, %s", output, key, self.of[key].get(output), value)
        self.of[key][output] = value

    def differences(self):
        for key, told in sorted(self.of.items(), key=repr):
            exact = {o: v for o, v in told.items() if not isinstance(v, Rounded)}
            if not exact:
                values = list(told.values())
                if any(not (abs(a.value - b.value) <= a.half + b.half + 1e-9) for a in values for b in values):
                    yield key, told
                continue
            first = next(iter(exact.values()))
            if any(v != first for v in exact.values()) or any(isinstance(v, Rounded) and not v.is_(first) for v in told.values()):
                yield key, told

    def compared(self):
        return {key: told for key, told in self.of.items() if len(told) > 1}


def line_of(r):
    """A line of a row; memory without one is one line, memory from before attach is another."""
    if r.get("before_attach") in (True, "true") or r.get("source") == "census":
        return "before attach"
    return "%s:%s" % (os.path.basename(r["file"]), r["line"]) if r.get("file") else "without a line"


def sums(rows, key, value=lambda r: int(r["bytes"])):
    out = collections.Counter()
    for r in rows:
        out[key(r)] += value(r)
    return {k: v for k, v in out.items() if v}


def role_of(r):
    return "before_attach" if r.get("before_attach") and r["category"] == "unknown" else r["category"]


def module_of(r):
    return r["module"] or r["module_class"] or ("before attach" if r.get("before_attach") else "")


KEY = {"line": line_of, "module": module_of, "role": role_of}


def document(*args):
    code, out, err = tool(*args)
    equal(code, 0, "%s: %s" % (args, err))
    return json.loads(out)


# ---- outputs ----------------------------------------------------------------------------------------------------------

def of_report(f, output, docs):
    """docs: {(moment, by): document of report --format json}, of all devices."""
    for (moment, device, by), doc in docs.items():
        c = doc["capture"]
        for name in ("steps", "events", "lost"):
            f.put(output, ("", name), c[name])
        for d in doc["devices"]:
            of_device(f, output, d)
        for group, n in sums(doc["rows"], KEY[by]).items():
            f.put(output, (device, moment, by, group), n)
        f.put(output, (device, moment), doc["allocated"])
        f.put(output, (device, moment), sum(r["bytes"] for r in doc["rows"]))
        f.put(output, (device, moment + "_reserved"), doc["reserved"] if moment == "end" else None)
        for group, n in doc["categories"].items():
            f.put(output, (device, moment, "role", group), n or None)


def of_device(f, output, d):
    device = d["device"]
    for name, key in (("peak", "peak_allocated"), ("end", "allocated"), ("total", "total_allocated"), ("freed", "total_freed"), ("allocs", "allocs"),
                      ("frees", "frees"), ("ooms", "ooms"), ("peak_reserved", "peak_reserved"), ("end_reserved", "reserved"), ("before_attach", "before_attach")):
        f.put(output, (device, name), d.get(key))
    f.put(output, (device, "peak_step"), d["peak_step"] + 1 if d["peak_step"] is not None else None)
    f.put(output, (device, "peak_step"), d.get("peak_step_number"))
    of_growth(f, output, device, d["growth"])


def of_growth(f, output, device, growth):
    if growth:
        f.put(output, (device, "verdict"), VERDICTS[growth["verdict"]])
        f.put(output, (device, "growth"), growth.get("bytes_per_step"))
        f.put(output, (device, "growth text"), growth.get("text"))


def json_(f, c):
    of_report(f, "json", {(m, d, by): document("report", "--format", "json", "--at", m, "--by", BY[by], "--device", d, c.path)
                          for m in MOMENTS for d in c.devices for by in BY})


def of_diagnosis(f, output, doc):
    f.put(output, ("", "findings"), [(x["code"], x["fault"], x["title"], x["text"], x["share_text"], x["remedy"]) for x in doc["findings"]])
    f.put(output, ("", "verdict on growth"), doc["growth"])
    f.put(output, ("", "no fault"), doc["no_fault"])


def diagnose(f, c):
    code, out, err = tool("diagnose", "--format", "json", c.path)
    check(code in (0, 4), "diagnose: %s", err)
    doc, main = json.loads(out), document("report", "--format", "json", c.path)["device"]
    of_diagnosis(f, "diagnose", doc)
    for name in ("steps", "events", "lost"):
        f.put("diagnose", ("", name), doc[name])
    f.put("diagnose", (main, "growth text"), doc["growth"])
    for found in doc["findings"]:
        if found["code"] in GROWTH_CODES:
            f.put("diagnose finding", (found["device"], "growth text"), found["text"].split("; ")[0] if "models" in found["text"] else found["text"])
    # As text, where each finding has one line, and its remedy another one.
    code, out, err = tool("diagnose", c.path, env={**os.environ, "COLUMNS": "4000"})
    check(code in (0, 4), "diagnose: %s", err)
    f.put("diagnose text", ("", "findings without codes"), re.findall(r"^(?:[ \d]\d[.]|  -) [^:]*?(?: on \S+)?: (.*?)(?: \([^()]* % of [^()]*\))?$", out, re.M))
    f.put("diagnose", ("", "findings without codes"), [x[3] for x in f.of["", "findings"]["diagnose"]])


def api(f, c):
    """The server that the dashboard asks."""
    s = server.Server(c.path, root=False)
    served, = s.get("/api/trace/list").expect().json["active_traces"]
    path = "/api/trace/" + served
    of_report(f, "api", {(m, d, by): s.get("%s?at=%s&by=%s&device=%s" % (path, m, BY[by], d)).expect().json
                         for m in MOMENTS for d in c.devices for by in BY})
    of_leaks(f, "api leaks", s.get(path + "/leaks").expect().json)
    of_diagnosis(f, "api", s.get(path + "/diagnose").expect().json)
    s.stop()


def mcp(f, c):
    calls = [("report", {"recording": "run.mtr", "at": m, "by": BY[by], "device": d, "format": "json", "top": 500}) for m in MOMENTS for d in c.devices for by in BY]
    calls += [("leaks", {"recording": "run.mtr", "format": "json"}), ("diagnose", {"recording": "run.mtr"})]
    lines = "".join(json.dumps({"jsonrpc": "2.0", "id": i, "method": "tools/call", "params": {"name": name, "arguments": arguments}}) + "\n"
                    for i, (name, arguments) in enumerate(calls))
    done = subprocess.run([harness.TOOL, "mcp", "--folder", os.path.dirname(c.path), "--max-answer", "8M"], input=lines, capture_output=True, text=True,
                          check=False, timeout=60)
    equal(done.returncode, 0, "mcp: %s" % done.stderr)
    answers = {a["id"]: a for a in map(json.loads, done.stdout.splitlines())}
    docs = [json.loads(answers[i]["result"]["content"][0]["text"]) for i in range(len(calls))]
    of_report(f, "mcp", {(a["at"], a["device"], next(k for k, v in BY.items() if v == a["by"])): doc for (_, a), doc in zip(calls[:-2], docs)})
    of_leaks(f, "mcp leaks", docs[-2])
    of_diagnosis(f, "mcp diagnose", docs[-1])


def of_leaks(f, output, doc):
    f.put(output, ("", "lost"), doc["lost"])
    f.put(output, ("", "events"), doc["events"])
    for d in doc["devices"]:
        of_growth(f, output, d["device"], d["growth"])
        for leak in d["leaks"]:
            if "live" in leak and d["clock"] in ("steps", "calls"):
                end = f.of.get((d["device"], "end", "line", line_of(leak)), {"none": 0})
                check(leak["bytes"] in (leak["live"][-1], next(iter(end.values()))), "%s: %s: %d bytes stay, %d after the last step, at the end %s", output,
                      line_of(leak), leak["bytes"], leak["live"][-1], end)


def leaks(f, c):
    doc = document("leaks", "--steps", "--format", "json", c.path)
    of_leaks(f, "leaks", doc)
    code, out, err = tool("leaks", c.path)
    check(code in (0, FOUND), "leaks: %s", err)
    for d in doc["devices"]:
        section = re.search(r"^%s · .*\n((?:.+\n)*)" % d["device"], out, re.M)
        check(section, "no section of %s:\n%s", d["device"], out)
        check(d["growth"]["text"] in " ".join(section[1].split()), "leaks says something else than %r:\n%s", d["growth"]["text"], section[1])


def of_compare(f, output, doc):
    one, = doc["captures"]
    for name in ("steps", "events", "lost"):
        f.put(output, ("", name), one[name])
    for name, key in (("peak", "peak_allocated"), ("total", "total_allocated"), ("ooms", "ooms"), ("peak_reserved", "peak_reserved"), ("before_attach", "before_attach")):
        f.put(output, (one["device"], name), one[key])
    f.put(output, (one["device"], "peak_step"), one["peak_step"] + 1 if one["peak_step"] is not None else None)
    f.put(output, (one["device"], "peak_step"), one["peak_step_number"])


def compare(f, c):
    for d in c.devices:
        of_compare(f, "compare", document("compare", "--format", "json", "--device", d, c.path))


def diff(f, c):
    """A recording and itself: both sides."""
    for d in c.devices:
        for m in MOMENTS:
            doc = document("diff", "--format", "json", "--at", m, "--device", d, c.path, c.path)
            for side in ("old", "new"):
                f.put("diff " + side, (d, m), doc[side]["allocated"])


def table(f, c):
    """report --format csv"""
    for m in MOMENTS:
        for d in c.devices:
            for by, name in BY.items():
                code, out, err = tool("report", "--format", "csv", "--at", m, "--by", name, "--device", d, c.path)
                equal(code, 0, "report --format csv: " + err)
                rows = list(csv.DictReader(out.splitlines()))
                if by == "line":
                    for group, n in sums(rows, line_of).items():
                        f.put("report csv", (d, m, by, group), n)
                f.put("report csv", (d, m), sum(int(r["bytes"]) for r in rows))


def text(f, c):
    for m in MOMENTS:
        for device in c.devices:
            for by in ("line", "module"):
                code, out, err = tool("report", "--at", m, "--by", by, "--top", "0", "--color", "never", "--device", device, "--columns", "size,blocks," + ("phase,location" if by == "line" else "module"), c.path)
                equal(code, 0, "report: " + err)
                head_of_text(f, device, m, out)
                table_of_text(f, (device, m, by), out)


def said(f, key, pattern, out, value=Rounded):
    found = re.search(pattern, " ".join(out.split()))
    if found:
        f.put("text", key, value(found[1]))


def number(digits):
    return int(digits.replace(",", ""))


def head_of_text(f, device, moment, out):
    said(f, ("", "lost"), r"events, ([\d,]+) lost", out, number)
    said(f, ("", "steps"), r", ([\d,]+) (?:steps?|calls?) of ", out, number)
    head = re.search(r"^%s  peak .*\n(?: .*\n|Growth.*\n)*" % device, out, re.M)
    check(head, "no head of %s:\n%s", device, out)
    said(f, (device, "peak"), "peak (%s) allocated" % SIZE, head[0])
    said(f, (device, "peak_step"), r"^\S+ peak [^·]*\(step ([\d,]+)", head[0], number)
    said(f, (device, "end"), "· end (%s)" % SIZE, head[0])
    said(f, (device, "peak_reserved"), "(%s) reserved" % SIZE, head[0])
    said(f, (device, "before_attach"), "before attach (%s)" % SIZE, head[0])
    said(f, (device, "freed"), "(%s) allocated and freed in" % SIZE, head[0])
    rate = re.search(r"Growth +\+(%s)/(?:step|call)" % SIZE, head[0])
    f.put("text", (device, "growth"), Rounded(rate[1]) if rate else None)
    said(f, (device, "growth text"), r"(?:Growth |· (?=no growth|growth not known))(.*?) *(?:$|·|host|out of memory|Marks)", head[0], str)
    roles = re.search(r"^By role.*\n(?:  .*\n)+", out, re.M)
    for name, size in re.findall(r"^  (\S.*?)  +(%s) " % SIZE, roles[0] if roles else "", re.M):
        f.put("text", (device, moment, "role", {"no role found": "unknown", "KV cache": "kv_cache"}.get(name, name.replace(" ", "_"))), Rounded(size))


def table_of_text(f, key, out):
    rows = re.search(r"^ *Size +Blocks .*\n((?:.*\S.*\n)*)", out, re.M)
    check(rows or "nothing" in out or "no memory" in out, "no table:\n%s", out)
    found = collections.defaultdict(list)
    for row in rows[1].splitlines() if rows else ():
        m = re.match(r" *(%s) +([<>]?[\d,]+|-)  +(\S.*)" % SIZE, row)
        if not m and re.match(r" {9,}", row):
            continue  # a part of the row before
        check(m, "a row of another kind: %r", row)
        if key[2] == "line":
            phase, _, place = m[3].partition("  ")
            line = re.match(r"(?:\S*/)?([^/\s]+:\d+)(?: \(|$|  )", place.strip())
            name = "before attach" if phase == "before attach" else line[1] if line else "without a line"
        else:
            name = re.split("  +", m[3])[0]
            name = {"(no module)": ""}.get(name, re.sub(r" \(\w+\)$", "", name) if "*" not in name else name)
        found[name].append(m[1])
    for name, texts in found.items():
        if key[2] == "line" or "*" not in name and "(" not in name:
            f.put("text", (*key, name), rounded(texts))


def page(f, c):
    """export html: the data, as the page's own script reads it."""
    if not shutil.which("node"):
        print("     the page was not read: node is not here", flush=True)
        return
    path = c.export("html")

    def ask(*questions):
        done = subprocess.run(["node", os.path.join(readers.FOREIGN, "page_data.mjs"), os.path.join(REPO, "user", "export", "page", "data.js"), path],
                              input=json.dumps(questions), capture_output=True, text=True, timeout=120, check=False)
        check(done.returncode == 0, "page_data.mjs: %s", done.stderr[-1500:])
        return json.loads(done.stdout)

    head = ask({"ask": "head"})[0]
    for name in ("steps", "events", "lost"):
        f.put("page", ("", name), head["capture"][name])
    answers = iter(ask(*(question for i, d in enumerate(head["devices"]) for question in (
        *({"ask": "live", "device": i, "moment": m, "by": ("line", "module", "category")} for m in (d["peak_moment"], d["moments"] - 1)),
        {"ask": "window", "device": i, "from": -1, "to": d["moments"] - 1}))))
    for d in head["devices"]:
        of_device(f, "page", d)
        for moment in MOMENTS:
            live = next(answers)
            f.put("page", (d["name"], moment), live["allocated"])
            equal(live["bytes"] + live["unknown"], live["allocated"], "rows of the page")
            groups = collections.Counter()
            for (place, line, *_), n in live["by"]["line"]:
                groups["before attach" if place == "before" else "%s:%s" % (os.path.basename(place), line) if place else "without a line"] += n["bytes"]
            groups["before attach"] += live["unknown"]
            for group, n in groups.items():
                f.put("page", (d["name"], moment, "line", group), n or None)
        window = next(answers)
        if "window_start" not in head["capture"]:  # there, the first moment has what the window found
            f.put("page", (d["name"], "total"), window["allocated"])
            f.put("page", (d["name"], "allocs"), window["allocs"])
    of_diagnosis(f, "page", head["diagnosis"])
    for d in head["leaks"]["devices"]:
        of_growth(f, "page", d["device"], d["growth"])


def openmetrics(f, c):
    with open(c.export("openmetrics"), encoding="utf-8") as file:
        out = file.read()
    metrics = [(n, dict(re.findall(r'(\w+)="(.*?)"', labels)), float(v)) for n, labels, v in re.findall(r"^memtrace_(\w+?)(?:\{(.*)\})? (\S+)$", out, re.M)]
    names = {"device_before_attach_bytes": "before_attach", "device_ooms_total": "ooms", "moment_allocated_bytes": "peak"}
    lines = collections.Counter()
    for name, labels, v in metrics:
        device = labels.get("device", "")
        if name in ("events_total", "lost_records_total", "steps_total"):
            f.put("openmetrics", ("", name.split("_")[0]), int(v))
        elif name in names:
            f.put("openmetrics", (device, names[name]), int(v))
        elif name == "growth_bytes_per_step" and v:
            f.put("openmetrics", (device, "growth"), v)
        elif name == "moment_category_bytes":
            f.put("openmetrics", (device, "peak", "role", labels["category"].replace(" ", "_")), int(v))
        elif name == "moment_line_bytes":
            lines[device, labels["top"] == "rest" or line_of(labels)] += int(v)
    for (device, group), n in lines.items():
        if (device, True) not in lines:
            f.put("openmetrics", (device, "peak", "line", group), n)


def lake(f, c):
    """export parquet"""
    folder = os.path.join(os.path.dirname(c.path), "lake")
    code, _, err = tool("export", "parquet", c.path, "-f", "-o", folder)
    equal(code, 0, "export parquet: " + err)
    tables = {name: [r for path in glob.glob(os.path.join(folder, name, "*", "*", "*.parquet")) for r in parquet.read(path)]
              for name in ("devices", "rows", "steps", "events", "blocks")}
    for d in tables["devices"]:
        of_device(f, "parquet", {**d, "growth": None})
        for name in ("steps", "events", "lost"):
            f.put("parquet", ("", name), d[name])
        f.put("parquet", (d["device"], "verdict"), d["growth"])
        f.put("parquet", (d["device"], "growth text"), d["growth_text"])
        f.put("parquet", (d["device"], "growth"), d["growth_bytes_per_step"])
        for m in MOMENTS:
            rows = [r for r in tables["rows"] if (r["device"], r["moment"]) == (d["device"], m)]
            f.put("parquet", (d["device"], m), sum(r["bytes"] for r in rows))
            for by, key in KEY.items():
                for group, n in sums(rows, lambda r, k=key: k({k: v if v is not None else "" for k, v in r.items()})).items():
                    f.put("parquet", (d["device"], m, by, group), n)
    for key, v in readers.of_events([(e["event"], e["device"], e["size"], e["allocated"], e["reserved"]) for e in tables["events"]]).items():
        f.put("parquet events", key, v)
    f.put("parquet events", ("", "events"), sum(e["event"] not in ("mark", "scope") for e in tables["events"]))
    for d in c.devices:
        blocks = [b for b in tables["blocks"] if b["device"] == d and b["allocated_ns"] is not None]
        f.put("parquet blocks", (d, "freed"), sum(b["size"] for b in blocks if b["freed_ns"] is not None))


def others(f, c):
    """The formats that readers.py reads: whole figures, and those at the peak by stack."""
    for name, reader in readers.OWN.items():
        if not c.export(name):
            continue
        try:
            for (device, what), v in reader(c.export(name)).items():
                f.put(name, (device, what), v if not isinstance(v, (tuple, list)) else Single(v))
        except readers.Missing as why:
            print("     %s: %s" % (name, why), flush=True)


class Single(Rounded):
    """MiB as a float of 32 bits, as TensorBoard has them."""

    def __init__(self, v):
        super().__init__()
        self.told = v

    def __eq__(self, other):
        return isinstance(other, Single) and self.told == other.told

    __hash__ = None

    def __repr__(self):
        return "%r" % (self.told,)

    def is_(self, value):
        return readers.same(self.told, value)


def timeline(f, c):
    with open(c.export("timeline"), encoding="utf-8") as file:
        summary = json.load(file)["summary"]
    for name in ("steps", "events", "lost"):
        f.put("timeline", ("", name), summary[name])
    for d in summary["devices"]:
        for name, key in (("ooms", "ooms"), ("peak_reserved", "peak_reserved"), ("end_reserved", "end_reserved"), ("before_attach", "before_attach")):
            f.put("timeline", (d["device"], name), d[key])
        f.put("timeline", (d["device"], "peak_step"), d["peak_step"] + 1 if d["peak_step"] is not None else None)


def events(f, c):
    """Rows of csv and ndjson: their lines at the end, from what was allocated and not freed. Blocks from before attach have none."""
    with open(c.export("csv"), encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    f.put("csv", ("", "events"), sum(r["event"] not in ("mark", "scope") for r in rows))
    live, freed = {}, collections.Counter()
    for r in rows:
        if r["event"] in ("alloc", "block"):
            live[r["device"], r["address"]] = r
        elif r["event"] == "free":
            old = live.pop((r["device"], r["address"]), None)
            freed[r["device"]] += int(r["size"]) if old and old["event"] == "alloc" else 0
    for device in c.devices:
        f.put("csv", (device, "freed"), freed[device])
        here = [r for (d, _), r in live.items() if d == device]
        for group, n in sums(here, line_of, lambda r: int(r["size"])).items():
            if group not in ("without a line", "before attach"):
                f.put("csv", (device, "end", "line", group), n)


def stacks(f, c):
    """Bytes of each stack at the peak, by the functions' names, outermost first."""
    for d in c.devices:
        doc = document("report", "--format", "json", "--by", "stack", "--device", d, c.path)
        put_stacks(f, "json by stack", d, sums([r for r in doc["rows"] if r["stack"]], lambda r: tuple(re.sub(r" \(.*", "", frame) for frame in r["stack"])))
    with open(c.export("speedscope"), encoding="utf-8") as file:
        doc = json.load(file)
    for p in doc["profiles"]:
        device, view = p["name"].split(" ", 1)
        if view == "peak":
            of = collections.Counter()
            for sample, weight in zip(p["samples"], p["weights"]):
                of[tuple(doc["shared"]["frames"][i]["name"] for i in sample)] += weight
            put_stacks(f, "speedscope", device, of)
    of = collections.defaultdict(collections.Counter)
    with open(c.export("folded"), encoding="utf-8") as file:
        for line in file:
            device, *frames = line.rpartition(" ")[0].split(";")
            of[device][tuple(re.sub(r" \(.*", "", frame) for frame in frames)] += int(line.rpartition(" ")[2])
    for device, stacks_ in of.items():
        put_stacks(f, "folded", device, stacks_)
    for device, stacks_ in pprof_stacks(c.export("pprof")).items():
        put_stacks(f, "pprof", device, stacks_)


def put_stacks(f, output, device, of):
    before = 0
    for stack, n in of.items():
        if stack[0].startswith("[before attach"):
            before += n
        elif not stack[0].startswith("["):
            f.put(output, (device, "peak", "stack", stack), n or None)
    f.put(output, (device, "peak", "line", "before attach"), before or None)


def pprof_stacks(path):
    with gzip.open(path) as file:
        profile = list(readers.fields(file.read()))
    strings = [v.decode("utf-8") for k, v in profile if k == 6]
    functions = {m[1]: strings[m[2]] for m in (dict(readers.fields(v)) for k, v in profile if k == 5)}
    locations = {m[1]: functions[dict(readers.fields(m[4]))[1]] for m in (dict(readers.fields(v)) for k, v in profile if k == 4)}
    of = collections.defaultdict(collections.Counter)
    for parts in (list(readers.fields(v)) for k, v in profile if k == 2):
        labels = {strings[m[1]]: strings[m.get(2, 0)] for m in (dict(readers.fields(v)) for k, v in parts if k == 3)}
        of[labels["device"]][tuple(locations[v] for k, v in parts if k == 1)[::-1]] += [v for k, v in parts if k == 2][3]
    return of


def notes(f, c):
    """What the formats for viewers say of the recording."""
    with open(c.export("perfetto"), encoding="utf-8") as file:
        other = json.load(file)["otherData"]
    with open(c.export("flamegraph"), encoding="utf-8") as file:
        data = json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', file.read(), re.S)[1])
    for name in ("events", "lost"):
        f.put("perfetto", ("", name), other[name])
        f.put("flamegraph", ("", name), data[name])
    if c.export("snapshot"):
        with open(c.export("snapshot"), "rb") as file:
            f.put("snapshot", ("", "lost"), pickle.load(file)["memtrace_bpf"]["events_lost"])


OUTPUTS = (json_, text, table, diagnose, page, api, mcp, leaks, compare, diff, openmetrics, lake, others, timeline, events, stacks, notes)


class Case:
    """A recording with its own folder and its own server, which mcp and the API show alone."""

    def __init__(self, path):
        folder = scratch("same-%d" % len(os.listdir(scratch())))
        os.mkdir(folder)
        self.path = os.path.join(folder, "run.mtr")
        shutil.copy(path, self.path)
        self.devices = [d["device"] for d in document("report", "--format", "json", self.path)["devices"]]
        self.made = {}

    def export(self, name):
        """The file of a format; None: it has none of this recording."""
        if name not in self.made:
            self.made[name] = "%s.%s" % (self.path, name)
            code, _, err = tool("export", name, self.path, "-f", "-o", self.made[name])
            if name == "snapshot" and not any(d.startswith("cuda") for d in self.devices):
                equal(code, 2, "a snapshot of the CPU: " + err)
                self.made[name] = None
            else:
                equal(code, 0, "export %s: %s" % (name, err))
        return self.made[name]


def compared(path, at_least):
    """All outputs of a recording; returns the figures, by key and output."""
    c, f = Case(path), Figures()
    for output in OUTPUTS:
        output(f, c)
    wrong = ["%s: %s" % (key, told) for key, told in f.differences()]
    check(not wrong, "%s: %d figures differ:\n%s", os.path.basename(path), len(wrong), "\n".join(wrong[:20]))
    both = f.compared()
    print("     %s: %d figures in two or more outputs" % (os.path.basename(path), len(both)), flush=True)
    check(len(both) >= at_least, "only %d figures were compared", len(both))
    return both


def test_made():
    compared(made(scratch("made-tiny.mtr"), "tiny"), 75)
    compared(made(scratch("made-oom.mtr"), "oom"), 160)
    both = compared(made(scratch("made-leak.mtr"), "leak"), 80)
    check(both["cuda:0", "growth"]["text"].is_(4 << 20), "growth per step: %s", both["cuda:0", "growth"])


def test_window():
    """Blocks from before the window."""
    harness.not_in_check()
    compared(os.path.join(GUIDE, "base.mtr"), 170)


@nightly("long")
def test_out_of_memory():
    """Out of memory, a leak with its holder, 75,000 events: test_made has the first two."""
    both = compared(os.path.join(GUIDE, "oom.mtr"), 270)
    check(both["cuda:0", "ooms"]["json"], "out of memory: %s", both["cuda:0", "ooms"])


def kept():
    """Recordings of every version of the format, attached late, from the oldest on."""
    return sorted(glob.glob(os.path.join(KEPT, "*-attached.mtr")))


def test_oldest_and_newest_version():
    harness.not_in_check()
    for path in (kept()[0], kept()[-1]):
        compared(path, 25)


@nightly("long")
def test_versions_between():
    """test_upgrade compares what `report` says of them with what it said when they were new."""
    for path in kept()[1:-1]:
        compared(path, 25)


def test_lost_events():
    path = scratch("lost.mtr")
    w = Writer(path, {"comm": "python", "pid": "7", "lost": "3", "start": "2026-02-28T23:59:59Z"})
    w.block(300, size=1536, stack=w.stack("/srv/a.py", "f", 7))
    w.close()
    both = compared(path, 15)
    equal(both["", "lost"]["text"], 3, "lost events in the text")


if __name__ == "__main__":
    run(globals())

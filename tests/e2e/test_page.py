#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# run: nightly=pages long
"""The page of export html in a browser, used as a person would; its figures equal those of report at the same moments, to the
byte. UPDATE=1 writes the reference pictures, tests/data/page."""
import collections
import json
import os
import pickle
import subprocess
import sys

import harness
from harness import OUT, Skip, check, equal, made, run, scratch, tool
from mtr_writer import Writer
from test_foreign import readers
from test_hostile import hostile_names, made_recording

REFERENCES = os.path.join(harness.REPO, "tests", "data", "page")
PICTURES = os.path.join(OUT, "test-logs", "page")


def export(recording, *options):
    page = os.path.splitext(recording)[0] + ".html"
    code, _, err = tool("export", "html", recording, "-o", page, "-f", *options)
    equal(code, 0, "export html: " + err)
    return page


def node(script, *args, browser="chromium"):
    done = subprocess.run(["node", os.path.join(readers(), script), *args], capture_output=True, text=True, timeout=240, check=False,
                          env={**os.environ, "BROWSER": browser})
    if done.returncode == 77:
        raise Skip(done.stderr.strip() or done.stdout.strip())
    check(done.returncode == 0, "%s: exit code %d: %s %s", script, done.returncode, done.stdout[-600:], done.stderr[-1600:])


def browse(page, *args, browser="chromium"):
    """The page's figures, moment by moment."""
    answers = page + ".json"
    node("check_page.mjs", page, answers, *args, browser=browser)
    return harness.read_json(answers)


def report(recording, when, device, by, *options):
    code, out, err = tool("report", recording, "--at", when, "--by", by, "--device", device, "--format", "json", *options)
    equal(code, 0, "report --at %s: %s" % (when, err))
    return json.loads(out)


def told(doc, by):
    """Bytes of a report's rows, by the fields of the page's rows."""
    sums = collections.Counter()
    for r in doc["rows"]:
        anonymous = r.get("anonymous", 0)
        if by == "category":
            keys = [(r["category"],)] * 2
        elif by == "module":
            keys = [(r["module"],), ("",)]
        else:
            keys = [(r["file"] or "", str(r["line"] or ""), r["category"]), ("", "", "unknown")]
        sums[keys[0]] += r["bytes"] - anonymous
        sums[keys[1]] += anonymous
    return +sums


def shown(rows, by):
    sums = collections.Counter()
    for r in rows:
        if by == "category":
            key = (r["category"],)
        elif by == "module":
            key = (r["module"],)
        else:
            key = (r["file"], r["line"], r["category"])
        sums[key] += int(r["bytes"])
    return sums


def nonzero(sums):
    return {k: v for k, v in sums.items() if v}


def same_as_reports(recording, answers):
    compared = filtered = 0
    for a in answers:
        if "filter" in a:
            rows = report(recording, a["time"], a["device"], "line", "--filter=" + a["filter"])["rows"]
            equal(a["bytes"], sum(r["bytes"] for r in rows), "with the filter " + a["filter"])
            filtered += a["bytes"] > 0
            continue
        if a["from"] is not None and a["measure"] not in ("live", "grew"):
            continue
        for by, rows in a["by"].items():
            doc = report(recording, "peak" if a["what"] in ("the peak", "another device") else a["time"], a["device"], by)
            expected = told(doc, by)
            if a["measure"] == "grew" and a["from"] is not None:
                expected.subtract(told(report(recording, a["from"], a["device"], by), by))
            else:
                equal(sum(int(r["bytes"]) for r in rows), doc["allocated"], "%s: the sum" % a["what"])
            equal(nonzero(shown(rows, by)), nonzero(expected), "%s, %s at %s by %s" % (a["what"], a["device"], a["time"], by))
            compared += 1
    check(filtered >= 5, "%d filters let something through", filtered)
    check(compared >= 20, "%d tables were compared", compared)
    print("     %d tables are those of report" % compared, flush=True)


def test_page_in_a_browser():
    recording = made("page-oom.mtr", "oom")
    if os.environ.get("UPDATE"):
        os.makedirs(REFERENCES, exist_ok=True)
    same_as_reports(recording, browse(export(recording), REFERENCES, PICTURES))


def test_page_in_firefox():
    """The same without the pictures, which are Chromium's. Skipped without Firefox: tools/deps.sh browsers."""
    recording = made("page-oom.mtr", "oom")
    same_as_reports(recording, browse(export(recording), browser="firefox"))


def growth_of(recording):
    """What leaks says of cuda:0, and how many values its curves have: without a line that grows there is that of the device."""
    _, out, _ = tool("leaks", recording, "--format", "json")
    d = next(d for d in json.loads(out)["devices"] if d["device"] == "cuda:0")
    return d["growth"], [r["values"] for r in d["leaks"] or [d["allocated"]]]


def findings_of(recording):
    """The strip at the top of pages: the first three findings of diagnose in its words, or that nothing is wrong."""
    _, out, _ = tool("diagnose", recording, "--format", "json")
    doc, lines = json.loads(out), []
    for i, f in enumerate(doc["findings"][:3]):
        if not f["fault"] and (not i or doc["findings"][i - 1]["fault"]):
            lines.append("Could be saved at the peak:")
        lines.append("%s: %s%s%s" % (f["title"], f["text"], " (%s)" % f["share_text"] if f["share_text"] else "", " do: " + f["remedy"] if f["remedy"] else ""))
    rest = len(doc["findings"]) - 3
    return [doc["no_fault"]] * (not doc["faults"]) + lines + ["+ %d more finding%s" % (rest, "s" * (rest > 1))] * (rest > 0)


def test_looks():
    """Exported pages at two sizes, light and dark, with the findings of diagnose and the growth of leaks. One whose memory ran
    out opens at that moment. BROWSERS=all: in Firefox, too."""
    leak, healthy, oom = made("page-leak.mtr", "leak"), made("page-healthy.mtr", "healthy"), made("page-oom.mtr", "oom")
    peak = scratch("page-oom-peak.html")
    code, _, err = tool("export", "html", oom, "--at", "peak", "-f", "-o", peak)
    equal(code, 0, "export html --at peak: " + err)
    flame, diff = scratch("page-flame.html"), scratch("page-diff.html")
    for args in (["export", "flamegraph", leak, "-f", "-o", flame], ["diff", healthy, leak, "--format", "flamegraph", "-o", diff]):
        code, _, err = tool(*args)
        equal(code, 0, " ".join(args) + ": " + err)
    folder = os.path.join(OUT, "test-logs", "looks")
    node("looks.mjs", folder, "leak=" + export(leak), "healthy=" + export(healthy), "oom=" + export(oom), "peak=" + peak, "flame=" + flame, "diff=" + diff)
    said = harness.read_json(os.path.join(folder, "looks.json"))
    for name, recording in (("leak", leak), ("healthy", healthy)):
        growth, curves = growth_of(recording)
        equal(growth["verdict"], "grows" if name == "leak" else "no_growth", name)
        for where, words in said[name].items():
            check(growth["text"].lower() in words["growth"].lower(), "%s, %s: %s", name, where, words["growth"])
            equal(words["curves"], curves, "%s, %s: values of curves" % (name, where))
    for name, recording, moment in (("leak", leak, "Peak at"), ("healthy", healthy, "Peak at"), ("oom", oom, "Out of memory at"), ("peak", oom, "Peak at")):
        for where, words in said[name].items():
            equal(words["findings"], findings_of(recording), "%s, %s: the strip" % (name, where))
            check(words["choice"].startswith(moment), "%s, %s: opens at %s", name, where, words["choice"])
    for name, texts in (("flame", ("train_step", "at the peak on cuda:0")), ("diff", ("page-healthy", "page-leak"))):
        for where, words in said[name].items():
            for text in texts:
                check(text in words["text"], "%s, %s: no %s", name, where, text)


def test_verdict():
    """A page of host memory has the verdict of report, and no column or view that says nothing there."""
    recording, folder = scratch("page-host.mtr"), os.path.join(OUT, "test-logs", "looks-host")
    p = harness.spawn([sys.executable, "-c", "print('ready', flush=True); input()"])
    p.wait_line("^ready", 30)
    code, _, err = tool("record", "-p", str(p.pid), "--host", "-d", "2s", "-f", "-o", recording, root=True)
    equal(code, 0, "record: " + err)
    harness.own(recording)
    p.stop()
    node("looks.mjs", folder, "host=" + export(recording))
    verdict = report(recording, "peak", "host", "line")["host"]["verdict"]["sentence"]
    for where, words in harness.read_json(os.path.join(folder, "looks.json"))["host"].items():
        equal(words["verdict"], verdict, where)
        equal((words["columns"], words["tabs"]), (["Size", "%", "Blocks", "Location"], ["flame", "growth", "lives"]), where)


def test_snapshot():
    """The page of a memory snapshot whose history began late says what is from before the history, and nothing of an attach."""
    whole, late, said = scratch("whole.pickle"), scratch("late.pickle"), scratch("said.json")
    code, _, err = tool("export", "snapshot", os.path.join(harness.REPO, "tests", "data", "guide", "base.mtr"), "-o", whole)
    equal(code, 0, "export: " + err)
    with open(whole, "rb") as f:
        doc = pickle.load(f)
    doc["device_traces"] = [trace[len(trace) // 2:] for trace in doc["device_traces"]]
    with open(late, "wb") as f:
        pickle.dump(doc, f)
    node("read_page.mjs", export(late), said)
    for where, text in harness.read_json(said).items():
        check("attach" not in text and "Python object" not in text, "%s: %s", where, text)
    check(any("before the history" in text for text in harness.read_json(said).values()), "%s", harness.read_json(said))


def test_other_pages():
    """Names with markup; many events, with a selection of moments."""
    hostile, many = scratch("page-hostile.mtr"), scratch("page-many.mtr")
    made_recording(hostile, [b"</script><img src=x onerror=alert(1)>", b"<!--<script>", b"' onload=alert(1) x='", *hostile_names(1500)])
    made(many, "1600000", by="make_events")
    node("visit_page.mjs", export(hostile), export(many))


def test_without_network():
    """Without uPlot the build says what to do; with a copy it needs no network."""
    folder, kept = scratch("bin"), scratch("kept")
    os.mkdir(folder)
    with open(os.path.join(folder, "npm"), "w", encoding="ascii") as f:
        f.write("#!/bin/sh\nexit 1\n")
    os.chmod(f.name, 0o755)
    env = dict(os.environ, PATH=folder + ":" + os.environ["PATH"])
    deps = [os.path.join(harness.REPO, "tools", "deps.sh"), "page"]
    done = subprocess.run(deps, env=dict(env, MEMTRACE_VENVS=kept), capture_output=True, text=True, check=False)
    check(done.returncode != 0 and "with a network run tools/deps.sh page" in done.stderr, "exit %d: %s", done.returncode, done.stderr)
    equal(os.listdir(kept), [], "what is left of it")
    done = subprocess.run(deps, env=env, capture_output=True, text=True, check=False)
    equal(done.returncode, 0, "with what is kept: " + done.stderr)
    check(os.path.exists(os.path.join(done.stdout.strip(), "node_modules", "uplot", "LICENSE")), "no licence in %s", done.stdout)


def test_marks():
    """Marks are drawn and named; a click near one shows what report --at mark:NAME has."""
    recording, said, wanted = made("page-marks.mtr", "marks"), scratch("said.json"), scratch("wanted.json")
    marks = report(recording, "end", "cuda:0", "line")["capture"]["marks"]
    equal(len(marks), 3, "marks of the recording")
    with open(wanted, "w", encoding="utf-8") as f:
        json.dump(marks, f)
    node("check_marks.mjs", export(recording), said, wanted)
    for name, figures in harness.read_json(said).items():
        equal(figures["allocated"], report(recording, "mark:" + name.replace("[", "?"), "cuda:0", "line")["allocated"], name)


# ---- the page of many ranks ----

def test_ranks():
    """`report --format html`: the document of `--outliers` in a page, for some ranks and for thousands."""
    pictures = os.path.join(OUT, "test-logs", "ranks-page")
    os.makedirs(pictures, exist_ok=True)
    for n, odd in ((64, 21), (4096, 1365)):
        folder, page = scratch("ranks-%d" % n), scratch("ranks-%d.html" % n)
        made(folder, str(n), by="make_fleet")
        code, html, err = harness.tool("report", "--format", "html", folder)
        equal((code, err), (0, ""), "exit code")
        code, document, _ = harness.tool("report", "--together", "--outliers", "--format", "json", folder)
        data = html.split('id="head">', 1)[1].split("</script>", 1)[0]
        equal([{**o, "row": None} for o in json.loads(data)["outliers"]], [{**o, "row": None} for o in json.loads(document)["outliers"]], "outliers in the page")
        with open(page, "w", encoding="utf-8") as f:
            f.write(html)
        node("check_ranks.mjs", page, pictures, "ranks-%d" % n, str(odd), str(n))


def test_one_gpu():
    """The same page of processes on one GPU: a bar for each, and why one is not known."""
    pictures, page = os.path.join(OUT, "test-logs", "ranks-page"), scratch("one-gpu.html")
    os.makedirs(pictures, exist_ok=True)
    paths = []
    for pid, name, blocks, size, zero in ((1, "trainer", 64, 1 << 30, 0), (2, "engine", 96, 1 << 29, 0), (3, "late", 96, 1 << 29, 10**9)):
        paths.append(scratch(name + ".mtr"))
        w = Writer(paths[-1], {"pid": str(pid), "clock_zero_ns": str(1700000000 * 10**9 + zero), "device.0.uuid": "GPU-1", "device.0.total": str(139 << 30)})
        w.block(blocks, size=size)
        w.close()
    code, html, err = harness.tool("report", "--format", "html", *paths)
    equal((code, err), (0, ""), "exit code")
    with open(page, "w", encoding="utf-8") as f:
        f.write(html)
    node("check_one_gpu.mjs", page, pictures)


def test_out_of_memory_in_a_step():
    """A job with deep stacks runs out of memory in a step that does not end: the page works there, too."""
    entries, n = [], 0

    def alloc(line, mib, where):
        nonlocal n
        n += 1
        deep = [{"filename": "/job/deep.py", "name": "level%d" % i, "line": line + i} for i in range(48)]
        entries.append({"action": "alloc", "addr": n << 32, "size": mib << 20, "stream": 0, "time_us": 1000 + 1000 * len(entries), "frames": where + deep})
        return entries[-1]

    def free(*blocks):
        for b in blocks:
            for action in "free_requested", "free_completed":
                entries.append({**b, "action": action, "time_us": 1000 + 1000 * len(entries)})

    update = [{"filename": "/site-packages/torch/optim/adam.py", "name": "step", "line": 9}]
    alloc(900, 30, [])
    for step in range(4):
        kept = [alloc(100 + 50 * i, 3 + i + step, []) for i in range(6)]
        free(alloc(500, 2, update))
        free(*kept)
    for i in range(6):
        alloc(100 + 50 * i, 20 + i, [])
    entries.append({"action": "oom", "device_free": 0, "size": 1 << 30, "stream": 0, "time_us": 1000 + 1000 * len(entries), "frames": entries[-1]["frames"]})
    snapshot, page = scratch("deep.pickle"), scratch("deep.html")
    with open(snapshot, "wb") as f:
        pickle.dump({"segments": [], "device_traces": [entries]}, f)
    equal(tool("export", "html", "--at", "oom", "-f", "-o", page, snapshot)[0], 0, "export html")
    browse(page)


if __name__ == "__main__":
    run(globals())

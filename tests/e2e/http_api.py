#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# run: long cpu=100
"""Answers of `serve` about live jobs in the dry run, compared with PyTorch's own figures in them, and with report and export of
the same recordings."""
import io
import json
import os
import shutil
import subprocess
import threading
import time
import urllib.parse

import harness
import guide
import mtr_reader
import server
from harness import Skip, check, equal, made, nightly, run, scratch, tool

MIB = 1 << 20
API_VERSION = 1  # HTTP_API_VERSION in user/serve/web/route.h
GUIDE_FIELDS = ("model_name", "total_events", "total_layers", "peak_allocated_mb", "peak_reserved_mb", "avg_fragmentation", "tracing_time_ms",
                "layer_stats")
LAYER_FIELDS = ("layer_name", "peak_allocated", "peak_reserved", "total_allocations", "total_deallocations", "avg_fragmentation",
                "duration_ms")
# Parts that differ from run to run: the time of writing.
PROGRAM = os.environ.get("MEMTRACE_SERVE", harness.TOOL)
STAMPED = ("html",)

_shared = {}


def jobs():
    """Two live jobs with one model each: my_model, found by PID, and my_transformer, by a word in its command line."""
    server.needs_serve()
    if "jobs" not in _shared:
        word = "http-api-%d" % os.getpid()
        _shared["word"] = word
        _shared["jobs"] = (server.Job("--shape", "8,3,64,64", "--spread", "300", kept=True),
                           server.Job("--shape", "4,128,512", "--spread", "300", word, kept=True))
        for job in _shared["jobs"]:
            job.ready()
    return _shared["jobs"]


def told():
    """File where a command writes PyTorch's figures; writable for all users."""
    folder = scratch("told")
    if not os.path.exists(folder):
        os.mkdir(folder)
        os.chmod(folder, 0o777)
    return os.path.join(folder, "told.json")


def served():
    if "server" not in _shared:
        first, _ = jobs()
        _shared["server"] = server.Server(
            "--target", "my_model=%d" % first.pid, "--target", "my_transformer=" + _shared["word"],
            "--command", "resnet50=" + server.command("--told", told()), "--max-events", "100000", tool=PROGRAM, kept=True)
    return _shared["server"]


def trace(body, s=None):
    return (s or served()).post("/api/trace/memory", body).expect().json


def recording(trace_id):
    """A local copy of a recording with its name, which appears in reports."""
    path = scratch(trace_id + ".mtr")
    with open(path, "wb") as f:
        f.write(served().get("/api/trace/%s/recording" % trace_id).expect().body)
    return path


def together(*calls):
    """Runs functions concurrently; their results in order."""
    results = [None] * len(calls)

    def one(i, call):
        try:
            results[i] = call()
        except Exception as e:
            results[i] = e

    threads = [threading.Thread(target=one, args=(i, c)) for i, c in enumerate(calls)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(120)
    for r in results:
        if isinstance(r, Exception):
            raise r
    return results


def from_new_client(body, s=None):
    client = (s or served()).connect(120)
    try:
        return client.post("/api/trace/memory", body).expect().json
    finally:
        client.close()


def adds_up(doc, name="cuda:0"):
    """A report's rows add up to the allocated bytes, and nothing was missed or left out."""
    device = harness.device(doc, name)
    equal(doc["device"], name, "whose rows")
    equal((device["drift"], doc["capture"]["lost"], doc["capture"]["complete"]), (0, 0, True), "drift, lost and complete")
    check("detail" not in doc["capture"], "the capture has a limit: %s", doc["capture"].get("detail"))
    equal(sum(row["bytes"] for row in doc["rows"]), device["peak_allocated"] if doc["at"] == "peak" else device["allocated"], "the rows' sum")
    return device


def test_health_and_targets():
    first, second = jobs()
    health = served().get("/api/health").expect().json
    equal((health["status"], health["can_trace"], health["api_version"]), ("ok", True, API_VERSION), "health: %s" % health)
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        targets = {t["name"]: t for t in served().get("/api/targets").expect().json["targets"]}
        if targets["my_transformer"]["pids"]:
            break
        time.sleep(0.2)
    equal({n: (t["kind"], t["pids"]) for n, t in targets.items()},
          {"my_model": ("pid", [first.pid]), "my_transformer": ("pattern", [second.pid]), "resnet50": ("command", [])}, "targets")


def test_api_version():
    """Each answer states the API's version, also errors."""
    s = served()
    for path, status in (("/api/health", 200), ("/api/trace/list", 200), ("/api/nothing", 404), ("/metrics", 200), ("/", 200)):
        equal(s.get(path).expect(status).headers.get("Memtrace-Api-Version"), str(API_VERSION), "version of the answer to %s" % path)
    info = s.get("/api/openapi.json").expect().json["info"]
    equal((info["x-api-version"], info["version"]), (API_VERSION, s.get("/api/health").expect().json["version"]), "versions in the schema")


def test_trace_is_what_torch_says():
    job, s = jobs()[0], served()
    job.tell("reset")
    begin = time.monotonic()
    got = trace({"model_name": "my_model", "input_shape": [8, 3, 64, 64], "batch_size": 8, "steps": 5, "max_events": 100000,
                 "enable_fragmentation": True})
    took, figures = time.monotonic() - begin, job.tell("figures")
    equal([f for f in GUIDE_FIELDS if f not in got], [], "the guide's fields that are not there")
    equal((got["peak_allocated_mb"] * MIB, got["peak_reserved_mb"] * MIB), (figures["peak_allocated"], figures["peak_reserved"]), "peaks")
    equal((got["model_name"], got["total_layers"]), ("my_model", len(got["layer_stats"])), "name, layers")
    check(0 < got["avg_fragmentation"] < 1 and 0 < got["tracing_time_ms"] < took * 1000, "figures: %s", got)
    equal(set(job.modules) - set(got["layer_stats"]), set(), "modules that are in no layer")
    for name, layer in got["layer_stats"].items():
        equal([f for f in LAYER_FIELDS if f not in layer], [], "fields of layer %r" % name)
        equal(layer["layer_name"], name, "name of layer")
    doc = s.get("/api/trace/%s" % got["trace_id"]).expect().json
    device = adds_up(doc)
    equal((device["peak_allocated"], device["peak_reserved"]), (figures["peak_allocated"], figures["peak_reserved"]), "peaks of the report")
    equal(got["total_events"], doc["capture"]["events"], "events")
    equal({n: {f: layer[f] for f in LAYER_FIELDS} for n, layer in got["layer_stats"].items()},
          {n: {f: layer[f] for f in LAYER_FIELDS} for n, layer in doc["layers"].items()}, "layers against the report's")
    path = recording(got["trace_id"])
    equal(harness.report(path, at="peak"), doc, "report of the recording that came")
    for query, options in (("by=module&at=end", {"by": "module", "at": "end"}), ("by=stack&top=3", {"by": "stack", "at": "peak"})):
        theirs = s.get("/api/trace/%s?%s" % (got["trace_id"], query)).expect().json
        ours = harness.report(path, *(("--top", "3") if "top" in query else ()), **options)
        equal(theirs["rows"], ours["rows"], "rows with " + query)


def test_command_has_its_environment():
    body = {"model_name": "resnet50", "input_shape": [4, 3, 96, 96], "batch_size": 4}
    got = trace(body)
    with open(told(), encoding="utf-8") as f:
        truth = json.load(f)
    environment = truth["environment"]
    equal((environment["MEMTRACE_BATCH_SIZE"], environment["MEMTRACE_MODEL_NAME"]), ("4", "resnet50"), "environment")
    equal([int(n) for n in environment["MEMTRACE_INPUT_SHAPE"].replace("[", "").replace("]", "").split(",")], [4, 3, 96, 96], "shape")
    equal((got["peak_allocated_mb"] * MIB, got["peak_reserved_mb"] * MIB), (truth["peak_allocated"], truth["peak_reserved"]), "peaks")
    # Only forward, from the first instruction on: allocations per module equal the allocator's counts.
    equal({n: layer["total_allocations"] for n, layer in got["layer_stats"].items()}, {n: a for n, (_, a) in truth["modules"].items()},
          "allocations within the modules")
    doc = served().get("/api/trace/" + got["trace_id"]).expect().json
    equal({n: layer["calls"] for n, layer in doc["layers"].items()}, {n: c for n, (c, _) in truth["modules"].items()}, "calls of the modules")
    equal(adds_up(doc)["before_attach"], 0, "what was there before it began")


def test_several_at_once():
    """Captures one process twice, and another by name and by PID; each has the same steps, and its own sums. The jobs rest until all
    captures are attached: the first step that ends is not a whole one."""
    both, s = jobs(), served()
    body = {"steps": 10, "max_events": 100000}
    for job in both:
        job.tell("pause")
        job.tell("reset")

    def begin():
        client = s.connect()
        harness.until(lambda: client.get("/api/health").expect().json["capturing"] == 4, "four captures")
        for trace in client.get("/api/trace/list").expect().json["active_traces"]:
            s.wait_trace(trace, ("capturing", "done", "failed"))
        client.close()
        for job in both:
            job.tell("go 11")

    *results, _ = together(*[lambda more=more: from_new_client(dict(body, **more)) for more in (
        {"model_name": "my_model"}, {"pid": both[0].pid}, {"model_name": "my_transformer"}, {"pid": both[1].pid})], begin)
    equal(len({r["trace_id"] for r in results}), 4, "names of traces")
    for got, job in zip(results, (both[0], both[0], both[1], both[1])):
        equal(got["peak_allocated_mb"] * MIB, job.tell("figures")["peak_allocated"], "peak of " + got["trace_id"])
        adds_up(s.get("/api/trace/" + got["trace_id"]).expect().json)
    for job in both:
        job.tell("go")
    equal(results[0]["layer_stats"].keys(), results[1]["layer_stats"].keys(), "layers of the same process")
    check(results[0]["layer_stats"].keys() != results[2]["layer_stats"].keys(), "two models have the same layers")


def test_max_events():
    for most in (500, 5000):
        got = trace({"model_name": "my_model", "max_events": most, "duration_s": 20})
        recording = mtr_reader.Recording(io.BytesIO(served().get("/api/trace/%s/recording" % got["trace_id"]).expect().body))
        kinds = [e["kind"] in mtr_reader.READINGS for e in recording.events()]
        equal(len(kinds), got["total_events"], "events of the recording")
        check(most * 0.8 < kinds.count(False) <= most, "%d events of %d", kinds.count(False), most)
        adds_up(served().get("/api/trace/" + got["trace_id"]).expect().json)


def test_started_watched_stopped():
    """Without waiting: an object at once, events during the capture, and the end on request."""
    s = served()
    begun = s.post("/api/trace/memory", {"model_name": "my_model", "duration_s": 30, "wait": False}).expect().json
    check(begun["state"] in ("starting", "capturing"), "state: %s", begun)
    events = s.events("/api/trace/%s/stream" % begun["trace_id"])
    equal((events.response.status, events.response.headers["Content-Type"].split(";")[0]), (200, "text/event-stream"), "the stream")
    states, counts, stopped = [], [], False
    for name, data in events:
        if name != "trace":
            continue
        data = data.get("trace", data)
        equal(data["trace_id"], begun["trace_id"], "whose event")
        if not states or states[-1] != data["state"]:
            states.append(data["state"])
        counts.append(data.get("events", 0))
        if data["state"] == "capturing" and counts[-1] > 0 and not stopped:
            stopped = True
            s.post("/api/trace/%s/stop" % begun["trace_id"], {}).expect()
        if data["state"] in ("done", "failed"):
            break
    events.close()
    equal((states[-1], stopped, counts == sorted(counts)), ("done", True, True), "states %s, counts %s" % (states, counts))
    done = s.wait_trace(begun["trace_id"])
    check(done["seconds"] < 25 and done["lost"] == 0 and done["bytes"] > 0, "the trace: %s", done)
    equal(s.post("/api/trace/%s/stop" % begun["trace_id"], {}).status in (200, 409), True, "stopped once more")


def test_exports_are_those_of_export():
    s = served()
    got = trace({"model_name": "my_transformer", "steps": 3})
    path = recording(got["trace_id"])
    formats = [f["name"] for f in s.get("/api/health").expect().json["formats"]]
    code, text, _ = tool("export", "--help")
    equal(code, 0, "export --help")
    check(len(formats) >= 12, "formats: %s", formats)
    urls = {}
    for name in formats:
        check(name in text, "export --help has no %s", name)
        exported = s.post("/api/trace/export", {"trace_id": got["trace_id"], "format": name}).expect().json
        equal((exported["trace_id"], exported["format"]), (got["trace_id"], name), "what was made")
        file = s.get(exported["download_url"]).expect()
        equal(len(file.body), exported["file_size_bytes"], "bytes of " + name)
        check(got["trace_id"] in exported["download_url"] and file.type, "%s: %s as %s", name, exported["download_url"], file.type)
        urls[name] = exported["download_url"]
        out = scratch("export-" + name)
        equal(tool("export", name, path, "-f", "-o", out)[0], 0, "export " + name)
        with open(out, "rb") as f:
            ours = f.read()
        if name in STAMPED:
            check(abs(len(file.body) - len(ours)) < 100, "%s: %d bytes, export makes %d", name, len(file.body), len(ours))
        else:
            check(file.body == ours, "%s is not what export makes: %d bytes, %d", name, len(file.body), len(ours))
    check(urls["speedscope"].endswith("/%s_flamegraph.json" % got["trace_id"]), "name: %s", urls["speedscope"])
    check(urls["timeline"].endswith("/%s_timeline.json" % got["trace_id"]), "name: %s", urls["timeline"])
    s.delete("/api/trace/" + got["trace_id"]).expect()
    equal({s.get(u).status for u in urls.values()}, {404}, "files of a trace that was deleted")


def test_leaks_diff_compare():
    s = served()
    old, new = (trace({"model_name": "my_model", "steps": 4})["trace_id"] for _ in range(2))
    leaks = s.get("/api/trace/%s/leaks" % new).expect().json
    check(isinstance(leaks, dict) and leaks, "leaks: %s", leaks)
    diff = s.get("/api/trace/diff?old=%s&new=%s" % (old, new)).expect().json
    check("rows" in diff and diff.get("adds_up", True), "diff: %s", str(diff)[:300])
    compared = s.get("/api/trace/compare?traces=%s,%s" % (old, new)).expect().json
    check(old in json.dumps(compared) or len(compared.get("rows", compared.get("captures", []))) == 2, "compare: %s", str(compared)[:300])
    equal(s.get("/api/trace/diff?old=%s&new=trace_1" % old).status, 404, "diff with none")
    page = s.get("/api/trace/%s/page" % new).expect()
    check(page.type.startswith("text/html") and b"<html" in page.body[:500].lower(), "the page: %s", page.type)


def test_ranks():
    """One report of many recordings: what `report` says about them, without the rows in which they are equal."""
    folder = scratch("ranks")
    made(folder, "300", by="make_fleet")
    paths = [os.path.join(folder, "rank-%d.mtr" % n) for n in range(300)]
    s = server.Server(*paths)
    for trace_id in s.get("/api/trace/list").expect().json["active_traces"]:
        s.wait_trace(trace_id)
    doc = s.get("/api/trace/ranks").expect().json
    code, out, err = tool("report", "--together", "--format", "json", *paths)
    equal(code, 0, "report (%s)" % err)
    whole = json.loads(out)
    for key in ("one_job", "recordings", "allocated", "outliers", "outlier_limits", "groups", "step_outliers"):
        equal(doc[key], whole[key], key)
    equal([o["recording"] for o in doc["outliers"]], [100, 100], "who differs")
    odd, = doc["rows"]
    row = whole["rows"][odd.pop("index")]
    equal(row.pop("recordings")[100], 300 << 20, "bytes of the row in rank 100")
    equal((odd, odd["file"], odd["line"]), (row, "odd.py", 42), "the row")
    equal(doc["rows_left_out"], {"rows": len(whole["rows"]) - 1, "bytes": whole["allocated"] - row["bytes"]}, "other rows")
    few = s.get("/api/trace/ranks?traces=trace_rank-13,trace_rank-12&at=end").expect().json
    equal([r["rank"] for r in few["recordings"]], [12, 13], "the requested ranks")
    equal((few["at"], few["one_job"]), ("end", True), "the moment")
    equal(s.get("/api/trace/ranks?traces=trace_rank-13,trace_1").status, 404, "with none")
    equal(s.get("/api/trace/ranks?by=stack").status, 422, "by stack")
    s.stop()


def test_ranks_of_one_job_of_several():
    """Recordings of two jobs on the command line: a folder is a job."""
    jobs = {"first": 8, "second": 4}
    for name, n in jobs.items():
        made(name, str(n), by="make_fleet")
    s = server.Server(*(scratch("%s//rank-%d.mtr" % (name, rank)) for name, n in jobs.items() for rank in range(n)))
    traces = [s.wait_trace(trace_id) for trace_id in s.get("/api/trace/list").expect().json["active_traces"]]
    equal(sorted(t["folder"] for t in traces), ["first"] * 8 + ["second"] * 4, "folders")
    whole = s.get("/api/trace/ranks").expect().json
    equal((whole["one_job"], len(whole["recordings"])), (False, 12), "both")
    for name, n in jobs.items():
        doc = s.get("/api/trace/ranks?job=" + name).expect().json
        equal((doc["one_job"], [r["rank"] for r in doc["recordings"]]), (True, list(range(n))), "ranks of the " + name)
    for name, status in (("none", 404), ("fir", 404), ("", 422), ("x" * 65, 422)):
        equal(s.get("/api/trace/ranks?job=" + name).status, status, "job %r" % name)
    s.stop()


def test_words_of_the_command_line():
    """Parameters have the values of the options, and messages name what is accepted, without the options' dashes."""
    marks, guide = made("marks.mtr", "marks"), os.path.join(harness.REPO, "tests", "data", "guide")
    s = server.Server(*(os.path.join(guide, name) for name in ("base.mtr", "leak.mtr")), marks)
    for trace_id in s.get("/api/trace/list").expect().json["active_traces"]:
        s.wait_trace(trace_id)

    def ask(call, **query):
        return s.get("/api/trace/%s?%s" % (call, urllib.parse.urlencode(query)))

    for mark in ("mark:memory unmapped*", "mark:memory mapped again: 1.20 GiB (wake-up)", "mark:</script>*"):
        equal(ask("trace_marks", at=mark).expect().json, harness.report(marks, at=mark), "report at " + mark)
    moments, groups, old = "mark:memory unmapped*,mark:memory mapped*", "module,category", "trace_marks"
    for options, call, query in (
            (("diff", "--at=" + moments, marks, marks), "diff", {"old": old, "new": old, "at": moments}),
            (("diff", "--at=0,end", "--device=cuda:0", "--top=2", marks, marks), "diff", {"old": old, "new": old, "at": "0,end", "device": "cuda:0", "top": 2}),
            (("report", "--by=" + groups, marks), old, {"by": groups}),
            (("report", "--at=900ms", marks), old, {"at": "900ms"}),
            (("report", "--together", "--outliers", "--by=" + groups, marks), "ranks", {"traces": old, "by": groups}),
            (("compare", "--device=cpu", marks, marks), "compare", {"traces": old + "," + old, "device": "cpu"}),
            (("leaks", "--steps", "--by=category", "--device=cuda:0", "--top=1", marks), old + "/leaks", {"by": "category", "device": "cuda:0", "top": 1})):
        code, out, err = tool(options[0], "--format=json", *options[1:])
        equal(code, 0, "%s: %s" % (options, err))
        equal(ask(call, **query).expect().json, json.loads(out), "%s %s" % (call, query))
    for name, expected in (("base", 0), ("leak", 4)):
        code, out, err = tool("diagnose", "--format=json", os.path.join(guide, name + ".mtr"))
        equal(code, expected, "diagnose %s: %s" % (name, err))
        told = ask("trace_%s/diagnose" % name).expect().json
        equal({**told, "name": ""}, {**json.loads(out), "name": ""}, "diagnosis of %s" % name)
    exported = s.post("/api/trace/export", {"trace_id": old, "format": "folded", "at": "mark:memory unmapped*"}).expect().json
    code, out, err = tool("export", "folded", "--at=mark:memory unmapped*", "-o", "-", marks)
    equal((code, s.get(exported["download_url"]).expect().body.decode()), (0, out), "the export at a mark")
    two = "trace_base,trace_leak"
    for call, query, status, field, said in (
            ("ranks", {"traces": two, "job": "job"}, 422, "job", "cannot be combined with traces"),
            ("ranks", {"traces": two, "by": "stack"}, 422, "by", "layer"), ("ranks", {"traces": two, "by": "segment"}, 422, "by", "layer"),
            ("trace_base", {"by": "module,stack"}, 422, "by", "such as module,category"), ("trace_base", {"at": "0,end"}, 422, "at", "mark:NAME"),
            ("trace_base", {"by": "segment", "filter": "x"}, 422, "by", "by segment"), ("trace_base", {"filter": "size:x"}, 422, "filter", "filter: "),
            ("diff", {"old": "trace_base", "new": "trace_leak", "at": "0,end,oom"}, 422, "at", "OLD,NEW"),
            ("diff", {"old": "trace_base", "new": "trace_leak", "at": "oom"}, 404, None, "no out-of-memory"),
            ("trace_base", {"at": "mark:" + "a" * 128}, 422, "at", "127 bytes"), ("trace_base", {"at": "mark:" + "\u65e5" * 127}, 422, "at", "mark:NAME"),
            ("trace_base", {"at": "mark:"}, 422, "at", "mark:NAME"), ("trace_base", {"at": "mark:a\nb"}, 422, "at", "mark:NAME"),
            ("trace_base", {"at": "mark:a\0b"}, 422, "at", "NUL"), ("trace_base", {"at": "mark:../../etc/passwd"}, 404, None, "no mark"),
            ("trace_base", {"at": "mark:--by; out of memory $(id)"}, 404, None, "no mark"),
            ("trace_marks", {"at": "mark:none"}, 404, None, "the first marks are 'memory unmapped: 1.20 GiB (sleep)'")):
        got = ask(call, **query).expect(status).json
        equal(got.get("field"), field, "field of %s" % query)
        check(said in got["detail"] and "--" not in got["detail"].replace("--hide", ""), "%s: %s", query, got)
    got = s.post("/api/trace/export", {"trace_id": old, "format": "parquet"}).expect(422).json
    check(got["field"] == "format" and "html" in got["detail"] and "ndjson" in got["detail"], "parquet: %s", got)
    s.stop()


def test_outside_view():
    """Live memory read from outside, and the last samples."""
    job, s = jobs()[0], served()
    job.tell("pause")
    try:
        dump = s.get("/api/targets/%d/dump" % job.pid).expect().json
        figures = job.tell("figures")
        equal(harness.device(dump, "cuda:0")["allocated"], figures["allocated"], "allocated, read from outside")
    finally:
        job.tell("go")
    history = s.get("/api/targets/%d/history" % job.pid).expect().json
    check(history.get("samples"), "samples: %s", str(history)[:300])
    equal(s.get("/api/targets/%d/dump" % os.getpid()).status, 404, "of a process that no target means")
    for other in ("%d.0" % job.pid, "%de0" % job.pid, "0%d" % job.pid, "+%d" % job.pid):
        equal(s.get("/api/targets/%s/history" % other).expect(422).json["field"], "pid", "another spelling: " + other)


# Status, the invalid field, the request. A number as body: so many bytes.
BAD = (
    (422, "max_events", {"model_name": "my_model", "max_events": -5}),
    (422, "max_events", {"model_name": "my_model", "max_events": "many"}),
    (422, "max_events", {"model_name": "my_model", "max_events": True}),
    (422, "max_events", {"model_name": "my_model", "max_events": 1.5}),
    (422, "duration_s", {"model_name": "my_model", "duration_s": -1}),
    (422, "duration_s", {"model_name": "my_model", "duration_s": 1e300}),
    (422, "steps", {"model_name": "my_model", "steps": 0}),
    (422, "input_shape", {"model_name": "my_model", "input_shape": "8,3"}),
    (422, "input_shape", {"model_name": "my_model", "input_shape": [1, "x"]}),
    (422, "input_shape", {"model_name": "my_model", "input_shape": [1] * 1000}),
    (422, "batch_size", {"model_name": "my_model", "batch_size": [1]}),
    (422, "enable_fragmentation", {"model_name": "my_model", "enable_fragmentation": 1}),
    (422, "model_name", {"model_name": 7}),
    (422, "model_name", {}),
    (422, "pid", {"pid": "1"}),
    (422, None, []),
    (422, None, "model"),
    (422, None, b"{"),
    (422, None, b""),
    (422, None, b"\xff\xfe{}"),
    (422, None, b"[" * 5000),
    (404, None, {"model_name": "no_such_model"}),
    (404, None, {"pid": 1}),
    (404, None, {"pid": 4194304}),
    (404, None, {"pid": 2147483647}),
    (422, "pid", {"pid": 2147483648}),
    (413, None, b"x" * (4 << 20)),
)


def test_what_is_refused():
    s = served()
    for status, field, body in BAD:
        client = s.connect()
        got = client.ask("POST", "/api/trace/memory", json.dumps(body) if not isinstance(body, bytes) else body, {"Content-Type": "application/json"})
        client.close()
        what = "POST %s" % str(body)[:80]
        equal(got.status, status, what + ": " + got.body[:200].decode("utf-8", "replace"))
        equal((got.type.split(";")[0], isinstance(got.json["detail"], str), got.json["detail"] != ""), ("application/json", True, True), what)
        if field:
            equal(got.json.get("field"), field, "field of " + what)
            check(field in got.json["detail"], "%s: %s", what, got.json)
    for method, path, status in (
            ("GET", "/api/trace/trace_1", 404), ("DELETE", "/api/trace/trace_invalid", 404), ("GET", "/api/trace/trace_1/stream", 404),
            ("POST", "/api/trace/trace_1/stop", 404), ("GET", "/api/nothing", 404), ("GET", "/api/trace/download/trace_1_timeline.json", 404),
            ("GET", "/api/trace/download/..%2f..%2fetc%2fpasswd", 404), ("GET", "/api/trace/download/index.json", 404),
            ("GET", "/api/trace/memory", 405), ("PUT", "/api/trace/list", 405), ("DELETE", "/api/health", 405), ("POST", "/", 405)):
        got = s.ask(method, path)
        check(got.status in ((404, 405) if path.endswith("memory") else (404, 422) if status == 404 and "nothing" not in path else (status,)),
              "%s %s: %d %s", method, path, got.status, got.body[:200])
        check(isinstance(got.json["detail"], str) and got.json["detail"], "%s %s: %s", method, path, got.body[:200])
        if got.status == 405:
            check(got.headers.get("Allow"), "%s %s: 405 says nothing of what is allowed", method, path)
    # All kinds of missing objects have one form of answer.
    equal(s.get("/api/trace/trace_1").expect(404).json["detail"], "Trace trace_1 not found", "a trace that is not there")
    detail = s.post("/api/trace/memory", {"model_name": "jobx"}).expect(404).json["detail"]
    check(detail.startswith("Target jobx not found; "), "a target that is not there: %s", detail)
    existing = trace({"model_name": "my_model", "steps": 1})["trace_id"]
    got = s.post("/api/trace/export", {"trace_id": existing, "format": "docx"}).expect(422)
    equal(got.json["field"], "format", "field")
    equal(s.get("/api/trace/%s?by=nothing" % existing).expect(422).json["field"], "by", "field")
    equal(s.post("/api/trace/export", {"trace_id": "trace_invalid", "format": "speedscope"}).status in (404, 422), True, "export of none")
    # Unknown fields are ignored and not echoed.
    got = trace({"model_name": "my_model", "steps": 1, "colour": "blue"})
    check("colour" not in got, "told back: %s", got.keys())


def test_deleting_frees():
    s = served()
    s.delete_all()
    before = s.get("/api/trace/list").expect().json
    equal((before["active_traces"], before["count"], before["traces"]), ([], 0, []), "the list")
    ids = [trace({"model_name": "my_model", "steps": 2})["trace_id"] for _ in range(2)]
    s.post("/api/trace/export", {"trace_id": ids[0], "format": "timeline"}).expect()
    equal(s.get("/api/trace/list").expect().json["active_traces"], ids, "the list, oldest first")
    gone = s.delete("/api/trace/" + ids[0]).expect().json
    equal(gone, {"message": "Trace %s deleted successfully" % ids[0], "remaining_traces": 1}, "what is told")
    equal(s.delete("/api/trace/" + ids[0]).expect(404).json["detail"], "Trace %s not found" % ids[0], "once more")
    running = s.post("/api/trace/memory", {"model_name": "my_model", "duration_s": 60, "wait": False}).expect().json["trace_id"]
    s.wait_trace(running, ("capturing",))
    equal(s.delete("/api/trace/" + running).expect().json["remaining_traces"], 1, "after one that captures was deleted")
    if harness.IS_ROOT:
        left, limit = [running], time.monotonic() + 10  # running captures must end first
        while left and time.monotonic() < limit:
            left = [name for name in os.listdir(s.folder) if ids[0] in name or running in name]
            time.sleep(0.05)
        equal(left, [], "files of traces that were deleted")
    s.delete_all()


def test_memory_by_events():
    """A trace takes at most 120 bytes per event, also a larger one while it is made."""
    s = server.Server("--target", "my_model=%d" % jobs()[0].pid)
    trace({"model_name": "my_model", "max_events": 15000}, s)
    before, kept = s.memory(), 0
    for _ in range(3):
        got = trace({"model_name": "my_model", "max_events": 15000}, s)
        kept += got["total_events"]
    grown = s.memory() - before
    check(grown <= 120 * kept, "%d bytes for %d events that are kept", grown, kept)
    print("     %.1f bytes an event that is kept (%d events, %d KiB)" % (grown / kept, kept, grown // 1024), flush=True)
    s.stop()


def test_started_again():
    """With the same folder, earlier traces exist again; deleted ones do not."""
    folder = scratch("again")
    target = ("--target", "my_model=%d" % jobs()[0].pid)
    s = server.Server(*target, folder=folder)
    ids = [trace({"model_name": "my_model", "steps": 2}, s)["trace_id"] for _ in range(3)]
    s.delete("/api/trace/" + ids[1]).expect()
    before = s.get("/api/trace/" + ids[2]).expect().json
    s.stop()
    s = server.Server(*target, folder=folder)
    equal(s.get("/api/trace/list").expect().json["active_traces"], [ids[0], ids[2]], "the list, after it was started again")
    equal(s.get("/api/trace/" + ids[2]).expect().json, before, "its report")
    new = trace({"model_name": "my_model", "steps": 1}, s)["trace_id"]
    check(new not in ids, "a name is given again: %s", new)
    s.stop()


@nightly("long")
def test_processes_come_and_go():
    """A target's processes end, and others start."""
    word = "come-and-go-%d" % os.getpid()
    s = server.Server("--target", "job=" + word, "--interval", "200ms")

    def wait_for(wanted):
        limit, pids = time.monotonic() + 20, None
        while pids != wanted and time.monotonic() < limit:
            pids = sorted(s.get("/api/targets").expect().json["targets"][0]["pids"])
            time.sleep(0.1)
        equal(pids, wanted, "processes of the target")

    for _ in range(2):
        two = [server.Job(word) for _ in range(2)]
        for job in two:
            job.ready()
        wait_for(sorted(job.pid for job in two))
        for job in two:
            job.end()
        wait_for([])
    s.stop()


def test_recordings_without_root():
    """Serves given files without privileges: everything except captures."""
    path = made("given.mtr")
    os.chmod(path, 0o644)
    os.utime(path, (0, 0))
    folder, prefix = scratch("nobodys"), ()
    os.mkdir(folder)
    program = harness.TOOL
    if harness.IS_ROOT:
        if not shutil.which("setpriv"):
            raise Skip("setpriv is not here")
        os.chown(folder, 65534, 65534)
        program = scratch("memtrace-bpf")
        shutil.copy(harness.TOOL, program)
        prefix = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
    s = server.Server(path, root=False, folder=folder, tool=program, prefix=prefix)
    listed = s.get("/api/trace/list").expect().json
    equal(listed["count"], 1, "the list")
    trace_id = listed["active_traces"][0]
    document = harness.report(path, at="peak")
    equal(s.get("/api/trace/" + trace_id).expect().json, document, "its report")
    trace = s.wait_trace(trace_id)
    began = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(trace["begun"]))
    equal((trace["pid"], began), (document["target"]["pid"], document["capture"]["start"]), "whose it is, and when it was begun")
    equal(type(s.get("/api/health").expect().json["uptime_s"]), int, "uptime in whole seconds")
    exported = s.post("/api/trace/export", {"trace_id": trace_id, "format": "speedscope"}).expect().json
    equal(len(s.get(exported["download_url"]).expect().body), exported["file_size_bytes"], "bytes")
    check(os.path.exists(path), "the file that was given has gone")
    s.stop()


# ---- clients ----

def test_own_client():
    if not shutil.which("node"):
        raise Skip("node is not here")
    s = served()
    s.delete_all()
    done = subprocess.run(["node", os.path.join(harness.REPO, "tests", "foreign", "api_client.mjs"), s.url, "my_model"], capture_output=True,
                          text=True, timeout=60, check=False)
    check(done.returncode == 0, "the client ended with %d: %s", done.returncode, done.stderr[-1500:])
    got = json.loads(done.stdout)
    check(got["peak"] > 0 and got["layers"] >= len(jobs()[0].modules) and got["profiles"] >= 1, "what it found: %s", got)
    equal((got["type"].split(";")[0], got["remaining"], got["after"]), ("application/json", 0, 404), "what it found: %s" % got)


@nightly("programs")
def test_guide_python():
    s = served()
    out = guide.run_python("client.py", guide.block("python", "BASE_URL", "my_transformer"), s.url)
    check("Peak Memory: " in out and "Exported to: /api/trace/download/trace_" in out and "deleted successfully" in out, "output: %s", out)
    out = guide.run_python("profiler.py", "import requests\n" + guide.block("python", "torch.profiler"), s.url, torch=True)
    check("peak_allocated_mb" in out, "output: %s", out)


@nightly("programs")
def test_guide_workflow():
    """Trace, export, and the timeline as in the guide."""
    s = served()
    s.delete_all()
    code = guide.block("python", "sorted_layers") + guide.block("python", "Get trace ID")
    out = guide.run_python("workflow.py", code, s.url)
    check("Top 5 Memory-Intensive Layers:" in out and " MB" in out and "_flamegraph.json" in out, "output: %s", out)
    trace_id = s.get("/api/trace/list").expect().json["active_traces"][0]
    timeline = s.post("/api/trace/export", {"trace_id": trace_id, "format": "timeline"}).expect().json["download_url"]
    folder = scratch("client-timeline-py")
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "timeline.json"), "wb") as f:
        f.write(s.get(timeline).expect().body)
    given = "import requests\ntrace_id = %r\n" % trace_id
    check_it = "\nassert timeline['events'] and timeline['summary'] and 'layer_stats' in timeline\n"
    guide.run_python("timeline.py", given + guide.block("python", "timeline.json") + check_it, s.url)


@nightly("programs")
def test_guide_typescript():
    s = served()
    s.delete_all()
    calls = "\nconst { trace_id } = await traceMemory();\nawait exportFlameGraph(trace_id);\nawait cleanupTraces();\n"
    out = guide.run_typescript("client", guide.block("typescript", "BASE_URL") + calls, s.url)
    check("Peak Memory: " in out and "Download URL: /api/trace/download/" in out and "Deleted trace: trace_" in out, "output: %s", out)
    equal(s.get("/api/trace/list").expect().json["count"], 0, "traces that are left")


def test_guide_curl():
    s = served()
    of_guide = guide.block("bash", "resnet50")
    trace_id = json.loads(guide.run_shell("trace.sh", of_guide, s.url))["trace_id"]
    here = "trace_1705536000000"
    exported = json.loads(guide.run_shell("export.sh", guide.block("bash", "/api/trace/export").replace(here, trace_id), s.url))
    equal(exported["trace_id"], trace_id, "what was exported")
    check(trace_id in guide.run_shell("list.sh", guide.block("bash", "/api/trace/list"), s.url), "the list")
    check("deleted" in guide.run_shell("delete.sh", guide.block("bash", "-X DELETE").replace(here, trace_id), s.url), "deleting")
    check("ok" in guide.run_shell("health.sh", guide.block("bash", "/api/health"), s.url), "health")


def test_nothing_is_left():
    server.needs_serve()
    served().stop()
    for job in jobs():
        job.end()


if __name__ == "__main__":
    run(globals())

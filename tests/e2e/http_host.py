#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# run: long
"""Host memory by line in captures of `serve` (`"host": true`): rows, ledger, exports and metrics, compared with the process's RSS and with
`record --host` of the same process."""
import gzip
import os
import re
import time

import chaos
import harness
import host_leaks
import http_fleet
import server
from harness import Skip, check, equal, nightly, run, scratch, tool

STEPS, MIB = 20, 2
PLANTED = STEPS * MIB << 20
LINE = "host_leaks.py", host_leaks.LINES["mapped"]

_shared = {}


def metrics(s):
    """Bytes of the metric `memtrace_NAME` by part, for each NAME that has them; `host_use`: of memory in use, and free."""
    found, text = {}, s.get("/metrics").expect().body.decode()
    parts = re.findall(r'^memtrace_(\w+)\{.*part="(\w+)"\} (\d+)$', text, re.M)
    parts += [("host_use", use, value) for use, value in re.findall(r"^memtrace_host_(live|free)_bytes\{.*\} (\d+)$", text, re.M)]
    for name, part, value in parts:
        check(part not in found.setdefault(name, {}), "%s of %s is there twice", name, part)
        found[name][part] = int(value)
    return found


def captured():
    """A server, and a process that mapped memory under a capture of it and under `record --host`: the trace, and both recordings."""
    server.needs_serve()
    if not _shared:
        job = harness.workload("host_leaks.py", "mapped", "--wait", "--steps", str(STEPS), "--mib", str(MIB), "--pause", "0.02")
        job.wait_line("READY", 120)
        s = server.Server("--target", "job=%d" % job.pid, kept=True)
        begun = s.post("/api/trace/memory", {"pid": job.pid, "host": True, "duration_s": 120, "wait": False}).expect().json
        trace_id = begun["trace_id"]
        s.wait_trace(trace_id, ("capturing",))
        path = scratch("record.mtr")
        recorder = harness.record(job.pid, path, "--host")
        running, limit = metrics(s), time.monotonic() + 20
        while not running and time.monotonic() < limit:
            time.sleep(0.1)
            running = metrics(s)
        job.send()
        job.wait_line("DONE", 60)
        s.post("/api/trace/%s/stop" % trace_id, {}).expect()
        done = s.wait_trace(trace_id)
        harness.finish(recorder)
        harness.own(path)
        _shared.update(server=s, running=running, begun=begun, trace=done, rss=harness.resident(job.pid), record=path, served=scratch(trace_id + ".mtr"))
        with open(_shared["served"], "wb") as f:
            f.write(s.get("/api/trace/%s/recording" % trace_id).expect().body)
        job.send()
        job.stop()
    return _shared


def of_line(doc):
    return sum(r["bytes"] for r in doc["rows"] if (os.path.basename(r["file"] or ""), r["line"]) == LINE)


def test_rows_and_ledger():
    """Rows add up to RSS, the line has what it mapped, and the ledger's parts add up, too: as in a recording of `record`."""
    c = captured()
    equal((c["begun"]["host"], c["trace"]["state"], c["trace"].get("error")), (True, "done", None), "the trace: %s" % c["trace"])
    doc = c["server"].get("/api/trace/%s?device=host&at=end&top=0" % c["trace"]["trace_id"]).expect().json
    equal((doc["device"], [d["device"] for d in doc["devices"]]), ("host", ["cpu", "host"]), "devices")
    ours = host_leaks.rows_of(c["record"])
    for name, one in (("serve", doc), ("record", ours)):
        total, last = host_leaks.sums(one)
        equal(total, last, name + ": the sum of the rows, and RSS of the last reading")
        equal(of_line(one), PLANTED, name + ": bytes of the line")
        ledger = one["host"]["last"]
        equal(sum(p["bytes"] for p in ledger["parts"].values() if p["of_rss"]), ledger["rss"], name + ": the sum of the ledger's parts")
        for what, figure in (("rows", total), ("ledger", ledger["rss"])):
            check(abs(figure - c["rss"]) <= 1 << 20, "%s: RSS of the %s is %d, /proc has %d", name, what, figure, c["rss"])
    equal(doc["host"]["last"]["parts"].keys(), ours["host"]["last"]["parts"].keys(), "parts")
    equal(doc, host_leaks.rows_of(c["served"]), "the answer, and report of the recording that came")
    equal(c["trace"]["summary"]["device"], "cpu", "the summary is of a device, not of the host")


def test_metrics():
    """While it captures: parts of RSS at the last reading. Afterwards: at the highest one."""
    c = captured()
    host = c["server"].get("/api/trace/" + c["trace"]["trace_id"]).expect().json["host"]
    of_report = {at: {n: p["bytes"] for n, p in host[at]["parts"].items() if p["of_rss"] and p["known"]} for at in ("first", "highest")}
    use = c["running"].pop("host_use")
    equal(c["running"], {"host_bytes": of_report["first"]}, "while it captures, after the first reading")
    equal(sum(c["running"]["host_bytes"].values()), host["first"]["rss"], "the sum of the parts")
    equal(use["live"] + use["free"], host["first"]["rss"], "memory in use, and free memory")
    check(use["free"] >= host["first"]["parts"]["malloc"]["second"] > 0, "free memory: %s of %s", use, host["first"])
    equal(metrics(c["server"]), {"capture_host_bytes": of_report["highest"]}, "after the capture")


def test_exports():
    """Each is what `export` makes of the recording, and a profile has the line."""
    c = captured()
    for form in ("folded", "csv", "speedscope"):
        made = c["server"].post("/api/trace/export", {"trace_id": c["trace"]["trace_id"], "format": form, "device": "host"}).expect().json
        code, out, err = tool("export", form, "--device", "host", "-o", "-", c["served"], text=False)
        check(code == 0, "export %s: %s", form, err)
        check(c["server"].get(made["download_url"]).expect().body == out, "%s is not what export makes", form)
        check(b"host_leaks.py" in out, "%s has no line of the job", form)


def test_profile():
    """A profile of the device `host` records it."""
    job = harness.workload("host_leaks.py", "mapped", "--wait", "--steps", "1")
    job.wait_line("READY", 120)
    s = server.Server("--target", "job=%d" % job.pid)
    profile = gzip.decompress(s.get("/debug/pprof/heap?seconds=1&device=host").expect().body)
    check(b"[heap]" in profile, "the profile has no mapping of the host")
    equal(s.get("/debug/pprof/heap?seconds=1&device=host:0").expect(404).json.get("field"), None, "a device that is not there")
    s.stop()
    job.send()
    job.wait_line("DONE", 60)
    job.send()
    job.stop()


def test_any_program():
    """A program without Python is captured with the member, by function and line, and refused without it."""
    job = harness.spawn([chaos.compiled("grow.c", "grow", "-g")])
    job.wait_line("^ready", 30)
    s = server.Server("--target", "grow=%d" % job.pid)
    got = s.post("/api/trace/memory", {"pid": job.pid, "duration_s": 1}).expect(404).json
    check("no Python interpreter, PyTorch or CUDA" in got["detail"], "without the member: %s", got)
    trace_id = s.post("/api/trace/memory", {"pid": job.pid, "host": True, "duration_s": 60, "wait": False}).expect().json["trace_id"]
    s.wait_trace(trace_id, ("capturing",))
    for n in range(16):
        job.send()
        job.wait_line("^grown %d$" % n, 30)
    s.post("/api/trace/%s/stop" % trace_id, {}).expect()
    equal(s.wait_trace(trace_id)["state"], "done", "the capture")
    doc = s.get("/api/trace/%s?device=host&at=end&top=0" % trace_id).expect().json
    of_grow = sum(r["bytes"] for r in doc["rows"] if r["function"] == "grow")
    check(of_grow > 15 << 20, "the function has %d bytes: %s", of_grow, doc["rows"][:4])
    s.stop()
    job.stop()


def test_rights():
    """The capabilities of the DaemonSet are enough, for the lines and for each resident page."""
    if not harness.IS_ROOT:
        raise Skip("needs root")
    pod = http_fleet.in_a_pod(scratch("pod"))
    job = harness.workload("host_leaks.py", "mapped", "--wait", "--steps", "4", "--mib", str(MIB), "--pause", "0")
    job.wait_line("READY", 120)
    s = server.Server("--target", "job=%d" % job.pid, folder=scratch("pod"), prefix=pod.prefix)
    trace_id = s.post("/api/trace/memory", {"pid": job.pid, "host": True, "duration_s": 60, "wait": False}).expect().json["trace_id"]
    s.wait_trace(trace_id, ("capturing",))
    job.send()
    job.wait_line("DONE", 60)
    s.post("/api/trace/%s/stop" % trace_id, {}).expect()
    s.wait_trace(trace_id)
    doc = s.get("/api/trace/%s?device=host&at=end&top=0" % trace_id).expect().json
    check(doc["capture"]["host"] in ("fexit", "sys_exit"), "how calls were seen: %s", doc["capture"]["host"])
    equal(of_line(doc), 4 * MIB << 20, "bytes of the line")
    equal(host_leaks.sums(doc)[0], doc["capture"]["host_rss"], "the sum of the rows, and RSS")
    s.stop()
    job.send()
    job.stop()


def test_what_is_refused():
    c = captured()
    s, pid = c["server"], c["trace"]["pid"]
    for wrong, said in ((1, "a number"), ("yes", "a string"), (None, "null"), ([], "an array")):
        got = s.post("/api/trace/memory", {"pid": pid, "host": wrong}).expect(422).json
        equal(got, {"detail": "host: must be true or false, not " + said, "field": "host"}, "host: %r" % wrong)
    fields = s.get("/api/openapi.json").expect().json["paths"]["/api/trace/memory"]["post"]["requestBody"]["content"]["application/json"]["schema"]["properties"]
    equal(fields["host"]["type"], "boolean", "host in the schema")


@nightly("long")
def test_command():
    """A command is recorded from its first instruction on. Another capture of it, without the member, has no device `host`. Both are
    there after a restart."""
    s = server.Server("--command", "job=" + server.command())
    ids = []
    for more in ({"host": True}, {"host": False}, {}):
        got = s.post("/api/trace/memory", {"model_name": "job", **more}).expect().json
        equal(got["device"], "cuda:0", "the device of the result with %s" % more)
        ids.append(got["trace_id"])
    at = "/api/trace/%s?device=host&at=end&top=0"
    doc = s.get(at % ids[0]).expect().json
    total, rss_then = host_leaks.sums(doc)
    later = doc["capture"].get("host_worked_out", 0)  # what came after the last reading
    # A process that ends by itself unmaps some memory after the last reading.
    check(0.97 * rss_then < total <= rss_then + later, "rows add up to %d, RSS is %d, and %d later", total, rss_then, later)
    for without in ids[1:]:
        check("host" in s.get(at % without).expect(404).json["detail"], "without the member: %s", s.get(at % without).json)
    s.stop()
    again = server.Server(folder=s.folder)
    for trace_id in ids:
        again.wait_trace(trace_id)
    equal([t.get("host") for t in again.get("/api/trace/list").expect().json["traces"]], [True, None, None], "after a restart")
    again.get(at % ids[0]).expect()
    again.stop()


def test_nothing_is_left():
    captured()["server"].stop()


if __name__ == "__main__":
    run(globals())

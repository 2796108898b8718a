#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# run: nightly=pages long
"""The dashboard of `serve` and the API's documentation in a browser, used as a person would, with a live job in the dry run.
Screenshots of all views are in test-logs/dashboard."""
import os
import pickle
import re
import subprocess
import time
import zlib

import harness
import server
from harness import OUT, Skip, check, equal, made, run, scratch, spawn
from test_foreign import readers
from test_page import node

PICTURES = os.path.join(OUT, "test-logs", "dashboard")
NAME = "<img src=x>"

_shared = {}


def served():
    server.needs_serve()
    if "server" not in _shared:
        os.makedirs(PICTURES, exist_ok=True)
        job = server.Job(NAME, "--shape", "4,64,256", "--pause", "0.05", kept=True)
        _shared["server"] = server.Server("--target", "job=%d" % job.pid, "--command", "once=exec " + server.command(), "--command-user", "root",
                                          made("dashboard-old.mtr"), made("dashboard-new.mtr", "oom"), kept=True)
        job.ready()
    return _shared["server"]


def browse(what, *args, seconds=240, browser="chromium"):
    done = subprocess.run(["node", os.path.join(readers(), "check_dashboard.mjs"), what, *args], capture_output=True, text=True, timeout=seconds, check=False,
                          env={**os.environ, "BROWSER": browser})
    if done.returncode == 77:
        raise Skip(done.stderr.strip() or done.stdout.strip())
    check(done.returncode == 0, "%s: exit code %d: %s %s", what, done.returncode, done.stdout[-600:], done.stderr[-2500:])


def test_used():
    browse("use", served().url, PICTURES)
    doc = harness.report(os.path.join(PICTURES, "dashboard.mtr"), at="peak")
    equal(sum(r["bytes"] for r in doc["rows"]), doc["allocated"], "the recording as it was downloaded")


def test_looks():
    """A job that leaks, attached late: the first screen says line, holder, rate and confidence, and each capture how much grows.
    BROWSERS=all: in Firefox, too."""
    server.needs_serve()
    job = harness.workload("late_leak.py")
    job.wait_line("^ready", 120)
    begun = time.monotonic()
    # Without the limit: on a busy machine it would leave out the stacks that name the line.
    s = server.Server("--cost", "off", "--target", "job=%d" % job.pid, made("dashboard-healthy.mtr", "healthy"))
    for _ in range(4):
        trace = s.post("/api/trace/memory", {"pid": job.pid, "steps": 60, "wait": False}).expect().json
        s.wait_trace(trace["trace_id"], ("capturing",))
        job.send("70\n")
        trace = s.wait_trace(trace["trace_id"])
        equal((trace["state"], trace["lost"]), ("done", 0), "the capture")
        growth = trace["summary"]["growth"]
        # On a busy machine the steps are over before the holders are read.
        if growth and growth["held_by"]:
            break
        s.delete("/api/trace/" + trace["trace_id"]).expect()
    equal((os.path.basename(growth["file"]), growth["held_by"], growth["bytes_per_step"], growth["confidence"]),
          ("late_leak.py", "global history[*]", 16384, "high"), "the growth in the list of captures")
    healthy, = [t["trace_id"] for t in s.get("/api/trace/list").expect().json["traces"] if t["trace_id"] != trace["trace_id"]]
    going = s.post("/api/trace/memory", {"pid": job.pid, "duration_s": 600, "wait": False}).expect().json["trace_id"]
    s.wait_trace(going, ("capturing",))
    folder = os.path.join(OUT, "test-logs", "looks-dashboard")
    views = {"home": "", "capture": "trace/" + trace["trace_id"], "growth": "trace/%s?tab=leaks" % trace["trace_id"],
             "no-growth": "trace/%s?tab=leaks" % healthy, "compare": "compare?traces=%s,%s" % (healthy, trace["trace_id"])}
    node("looks.mjs", folder, *("%s=%s/#/%s" % (name, s.url, path) for name, path in views.items()),
         "page=%s/api/trace/%s/page" % (s.url, trace["trace_id"]))
    said = harness.read_json(os.path.join(folder, "looks.json"))
    for where, words in said.pop("page").items():
        check(words["findings"][0].startswith("Leak on %s: %s" % (growth["device"], growth["text"])), "page, %s: no %r: %s", where, growth["text"], words["findings"])
    for view, where, text in ((v, w, " ".join(t["text"].split())) for v, at in said.items() for w, t in at.items()):
        if view in ("home", "capture", "growth"):
            check(growth["text"] in text, "%s, %s: no %r:\n%s", view, where, growth["text"], text)
        if view == "home":
            said = re.search(r"([\d.]+) s of figures so far", text)
            check(said and float(said[1]) < time.monotonic() - begun + 1, "%s: the time of the chart: %s", where, said and said[0])
            equal(text.count("grows 16.0 KiB/step"), 1, "%s: captures that grow:\n%s" % (where, text))
        if view in ("home", "no-growth"):
            check("no growth" in text.lower(), "%s, %s: the healthy one:\n%s", view, where, text)
    s.delete("/api/trace/" + going).expect()
    s.stop()


def test_firefox():
    """Views of a capture and the documentation in Firefox. Skipped without it: tools/deps.sh browsers."""
    s = served()
    for what in ("use", "docs"):
        browse(what, s.url, PICTURES, browser="firefox")


def test_ranks_in_firefox():
    test_ranks("firefox")


def test_ranks(browser="chromium"):
    """The ranks of a job as a heat map: by mouse and keys, light and dark, and 4,096 of them."""
    server.needs_serve()
    os.makedirs(PICTURES, exist_ok=True)
    few, other, many, path = scratch("ranks-few"), scratch("ranks-other"), scratch("ranks-many"), scratch("ranks.json")
    made(few, "40", by="make_fleet")
    made(other, "4", by="make_fleet")
    made(many, "4096", by="make_fleet")
    code, out, err = harness.tool("report", "--together", "--outliers", "--format", "json", many)
    equal(code, 0, "report of many (%s)" % err)
    with open(path, "w", encoding="utf-8") as f:
        f.write(out)
    s = server.Server(*(os.path.join(few, "rank-%d.mtr" % n) for n in range(40)), *(os.path.join(other, "rank-%d.mtr" % n) for n in range(4)))
    browse("ranks", s.url, PICTURES, path, browser=browser)
    s.stop()


def test_others():
    """The GPU of the selected process: what is free, and who else holds memory of it. NVML is the dry run's."""
    server.needs_serve()
    os.makedirs(PICTURES, exist_ok=True)
    job, first, second = (spawn(["sleep", str(600 + i)]) for i in range(3))
    path = scratch("machine")
    with open(path, "w", encoding="ascii") as f:
        f.write("".join("process 0 %d %s\n" % (pid, size) for pid, size in ((job.pid, "4G"), (first.pid, "30G"), (second.pid, "20G"), (1, "1G"), (2, "1G"))) + "reserved 0 450M\n")
    s = server.Server("--target", "job=%d" % job.pid, env={**os.environ, "LD_LIBRARY_PATH": os.path.join(OUT, "dryrun"), "MEMTRACE_DRYRUN_NVML": path})
    rows = {h["pid"]: h for h in s.get("/api/devices").expect().json["devices"][0]["holders"]}
    text = "GPU 0, 23.56 GiB of 80.00 GiB free. Other processes: "
    for pid, size in ((first.pid, "30.00"), (second.pid, "20.00"), (1, "1.00")):
        h = rows[pid]
        text += "%s GiB %s (%s)%s" % (size, h["command"] if len(h["command"]) <= 48 else h["command"][:47] + "…", ", ".join(x for x in ("PID %d" % pid, h["user"], h["pod"] or h["container"]) if x), " probably left over" if h["left_over"] else "")
    browse("others", s.url, PICTURES, text + "+ 1 more, 1.00 GiB")
    s.stop()


def test_upload():
    """Memory snapshots that are picked and dropped."""
    server.needs_serve()
    os.makedirs(PICTURES, exist_ok=True)
    whole, path = scratch("whole.pickle"), scratch("upload.pickle")
    code, _, err = harness.tool("export", "snapshot", os.path.join(harness.REPO, "tests", "data", "guide", "base.mtr"), "-o", whole)
    equal(code, 0, "export: %s" % err)
    with open(whole, "rb") as f:
        doc = pickle.load(f)
    doc["device_traces"] = [trace[len(trace) // 2:] for trace in doc["device_traces"]]
    with open(path, "wb") as f:
        pickle.dump(doc, f)
    s = server.Server(root=False)
    browse("upload", s.url, PICTURES, path)
    s.stop()


def test_docs():
    browse("docs", served().url, PICTURES)


def test_assets():
    """A file is equal compressed and uncompressed, and other content has another name."""
    s = served()
    page = s.get("/").expect()
    check("script-src 'self'" in page.headers["Content-Security-Policy"], "no policy: %s", page.headers)
    names = [w.split('"')[0] for w in page.body.decode().split('"assets/')[1:]]
    check(len(names) >= 3, "%s", names)
    for name in names:
        plain = s.get("/assets/" + name).expect()
        packed = s.get("/assets/" + name, Accept_Encoding="gzip").expect()
        equal(packed.headers["Content-Encoding"], "gzip", name)
        equal(plain.headers.get("Content-Encoding"), None, name)
        equal(zlib.decompress(packed.body, 31), plain.body, name)
        check("immutable" in plain.headers["Cache-Control"], "%s", plain.headers)
    s.get("/assets/" + names[0] + "x").expect(404)
    s.get("/assets/..%2f..%2fetc%2fpasswd").expect(404)


def test_login():
    """The login with a token, and a page that reconnects by itself."""
    server.needs_serve()
    os.makedirs(PICTURES, exist_ok=True)
    token = scratch("token")
    with open(token, "w", encoding="ascii") as f:
        f.write("a-token-of-more-than-16-letters\n")
    os.chmod(token, 0o600)
    s = server.Server("--token-file", token)
    browser = spawn(["node", os.path.join(readers(), "check_dashboard.mjs"), "login", s.url, PICTURES, "a-token-of-more-than-16-letters"])
    browser.wait_line("^ready", 90)
    s.stop()
    browser.send()
    browser.wait_line("^lost", 60)
    again = server.Server("--token-file", token, listen="%s:%d" % (s.host, s.port))
    equal(browser.wait(90), 0, "the browser: %s" % browser.tail(browser.stderr()))
    again.stop()


if __name__ == "__main__":
    run(globals())

#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# run: check cpu=30
"""Recordings and memory snapshots that clients send to `serve`: read as on the command line, bounded, and nothing is left of those
that are refused, cut off or deleted."""
import contextlib
import os
import pickle
import shutil
import socket
import threading
import urllib.parse

import harness
import server
from harness import check, equal, report, run, scratch, tool, until

DATA = os.path.join(harness.REPO, "tests", "data", "guide")
TYPE = {"Content-Type": "application/octet-stream"}
_shared = {}


def snapshot():
    path = scratch("base.pickle")
    if not os.path.exists(path):
        code, _, err = tool("export", "snapshot", os.path.join(DATA, "base.mtr"), "-o", path)
        equal(code, 0, "export: %s" % err)
    return path


def served():
    if "server" not in _shared:
        _shared["server"] = server.Server("--requests-per-minute", "0", root=False, kept=True)
    return _shared["server"]


def send(s, body, name="", headers=None):
    query = "?name=" + urllib.parse.quote(name, safe="") if name else ""
    return s.ask("POST", "/api/trace/upload" + query, body, TYPE if headers is None else headers)


def content(path):
    with open(path, "rb") as f:
        return f.read()


def files(s):
    return sorted(os.listdir(s.folder))


def traces(s):
    return s.get("/api/trace/list").expect().json["traces"]


def settled(s, names):
    """Nothing but these files is in the folder, and no trace is left."""
    until(lambda: files(s) == names and not traces(s), "only %s is left" % names, 20)


def begun(s, size, headers=b""):
    """A connection that has sent the head of an upload, and its first byte."""
    c = socket.create_connection((s.host, s.port), timeout=30)
    c.sendall(b"POST /api/trace/upload HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/octet-stream\r\n"
              b"Content-Length: %d\r\n%s\r\nx" % (size, headers))
    return c


@contextlib.contextmanager
def paced(connections):
    """Sends more of each of the list's files every second, because the server refuses a file that stops for 10 s."""
    end = threading.Event()

    def send_more():
        while not end.wait(1):
            for c in list(connections):
                c.sendall(bytes(1 << 16))

    sender = threading.Thread(target=send_more)
    sender.start()
    try:
        yield
    finally:
        end.set()
        sender.join()


def test_snapshot():
    s, path = served(), snapshot()
    got = send(s, content(path), "runs/oom_rank3.pickle").expect().json
    want = harness.device(report(path), "cuda:0")
    equal((got["peak_allocated"], got["peak_reserved"], got["total_events"]),
          (want["peak_allocated"], want["peak_reserved"], report(path)["capture"]["events"]), "the result")
    trace_id = got["trace_id"]
    trace = traces(s)[0]
    equal((trace["process"], trace["uploaded"], trace["state"], trace["pid"]), ("oom_rank3.pickle", True, "done", None), "the trace")
    equal(files(s), [trace_id + ".json", trace_id + ".mtr"], "files")
    doc = s.get("/api/trace/%s?at=end" % trace_id).expect().json
    equal(doc["rows"], report(path, at="end")["rows"], "rows")
    equal((doc["capture"]["attached_at"], doc["target"]["rank"]), ("history", 3), "attached_at, and the rank in the file's name")
    for call in ("leaks", "diagnose", "page"):
        s.get("/api/trace/%s/%s" % (trace_id, call)).expect()
    with open(scratch("kept.mtr"), "wb") as f:
        f.write(s.get("/api/trace/%s/recording" % trace_id).expect().body)
    equal(report(scratch("kept.mtr"))["devices"], report(path)["devices"], "the recording of the snapshot")
    s.delete("/api/trace/" + trace_id).expect()
    settled(s, [])


def test_recording():
    """A recording is kept to the byte, also by the next server of the folder."""
    path, folder = os.path.join(DATA, "leak.mtr"), scratch("again")
    s = server.Server(root=False, folder=folder)
    first = send(s, content(path), "leak.mtr").expect().json
    equal(s.get("/api/trace/%s/recording" % first["trace_id"]).expect().body, content(path), "the recording")
    s.stop()
    s = server.Server(root=False, folder=folder)
    trace = s.wait_trace(first["trace_id"])
    equal((trace["process"], trace["uploaded"], trace["summary"]["peak_allocated"]), ("leak.mtr", True, first["peak_allocated"]), "after a restart")
    other = send(s, content(snapshot())).expect().json["trace_id"]
    s.get("/api/trace/diff?old=%s&new=%s" % (first["trace_id"], other)).expect()
    s.stop()


def test_refused():
    s, good = served(), content(snapshot())
    cut = content(os.path.join(DATA, "leak.mtr"))[:8] + bytes(5000)
    for what, status, body, headers, text in (
            ("a call", 422, pickle.dumps(os.system, 4), None, "it would import code"), ("no file", 422, b"hello", None, "no memory snapshot"),
            ("cut off", 422, good[:len(good) // 2], None, "cut off"), ("a damaged recording", 422, cut, None, "header is damaged"),
            ("empty", 422, b"", None, "empty"), ("no type", 415, good, {}, "application/octet-stream"),
            ("a form", 415, good, {"Content-Type": "text/plain"}, "application/octet-stream"),
            ("another site", 403, good, {**TYPE, "Origin": "http://other.example"}, "other sites"),
            ("no length", 411, iter([good]), {**TYPE, "Transfer-Encoding": "chunked"}, "Content-Length")):
        if status == 411:
            s.client.connection.request("POST", "/api/trace/upload", good[:1000], headers, encode_chunked=True)
            answer = s.client.connection.getresponse()
            answer = server.Answer(answer.status, answer.headers, answer.read())
        else:
            answer = send(s, body, headers=headers)
        equal(answer.status, status, "%s: %s" % (what, answer.body))
        check(text in answer.json["detail"] and not answer.json["detail"].startswith("upload"), "%s: %s", what, answer.json)
        settled(s, [])


def test_names():
    """Names are shown as text, and are no paths."""
    s = served()
    for name, shown in (("../../../etc/cron.d/x", "x"), ("C:\\temp\\oom.pickle", "oom.pickle"), ("<img src=x>", "<img src=x>"), ("..", ".."), ("/", "")):
        got = send(s, content(snapshot()), name).expect().json
        equal(traces(s)[0]["process"], shown, "the name of %s" % name)
        equal(files(s), [got["trace_id"] + ".json", got["trace_id"] + ".mtr"], "files")
        s.delete("/api/trace/" + got["trace_id"]).expect()
    equal(send(s, b"x", "a\x1b[31m\n").status, 422, "control characters")
    settled(s, [])


def test_bounds():
    """A file is larger than the folder may be, than what is left of it, or the third that arrives."""
    s = server.Server("--max-disk", "16M", root=False)
    c = begun(s, 17 << 20)
    check(b" 413 " in c.recv(4096), "larger than --max-disk")
    c.close()
    first = begun(s, 9 << 20)
    arriving = [first]
    with paced(arriving):
        until(lambda: len(traces(s)) == 1, "the first arrives")
        check(send(s, bytes(8 << 20)).expect(429).json["detail"].startswith("the server's folder has no room"), "the rest of --max-disk")
        second = begun(s, 6 << 20)
        arriving.append(second)
        until(lambda: len(traces(s)) == 2, "the second arrives")
        check("files are being sent" in send(s, b"x").expect(429).json["detail"], "the third")
        trace = traces(s)[0]
        equal((trace["state"], trace["uploaded"]), ("starting", True), "what arrives")
        s.ask("POST", "/api/trace/%s/stop" % trace["trace_id"]).expect(409)
    s.delete("/api/trace/" + trace["trace_id"]).expect()
    second.close()
    settled(s, [])
    with contextlib.suppress(OSError):  # its trace was deleted: the connection ends
        for _ in range(64):
            first.sendall(bytes(1 << 16))
    first.close()
    send(s, content(snapshot())).expect()
    s.stop()


def test_memory():
    """A large file does not pass through the server's memory."""
    s = server.Server(root=False)
    large = content(os.path.join(DATA, "leak.mtr"))[:16] + bytes(192 << 20)
    check(send(s, large).status == 422, "a large file that is damaged")
    for pid in s.processes():
        most = 0  # KiB; the worker that read the file may have ended
        with contextlib.suppress(OSError), open("/proc/%d/status" % pid, encoding="utf-8") as f:
            most = sum(int(line.split()[1]) for line in f if line.startswith("VmHWM"))
        check(most < 65536, "PID %d used %d KiB", pid, most)
    settled(s, [])
    s.stop()


def test_token():
    """Without the token, nothing is received."""
    token = scratch("token")
    with open(os.open(token, os.O_CREAT | os.O_WRONLY, 0o600), "w", encoding="ascii") as f:
        f.write("correct-horse-battery-staple\n")
    s = server.Server("--token-file", token, root=False)
    send(s, content(snapshot())[:1000]).expect(401)
    equal(files(s), [], "files without a token")
    send(s, content(snapshot()), headers={**TYPE, "Authorization": "Bearer correct-horse-battery-staple"}).expect()
    s.stop()


def test_ends_meanwhile():
    """A server that ends while a file arrives removes what it has received."""
    s = server.Server(root=False)
    c = begun(s, 1 << 20)
    until(lambda: any(".part-upload" in name for name in files(s)), "it arrives")
    s.stop()
    c.close()
    equal(files(s), [], "files of a server that has ended")


def test_killed():
    """What a killed server had received is removed by the next one."""
    folder = scratch("killed")
    s = server.Server(root=False, folder=folder)
    c = begun(s, 1 << 20)
    until(lambda: any(".part-upload" in name for name in files(s)), "it arrives")
    s.process.stop()
    c.close()
    s = server.Server(root=False, folder=folder)
    settled(s, [])
    s.stop()
    shutil.rmtree(folder)


run(globals())

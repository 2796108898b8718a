#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# run: long
"""`fetch`: the same window of all ranks from several hosts with wrong clocks, and who is missing: hosts that are down, late, old,
hostile, restarted, or that have another token or certificate."""
import json
import os
import re
import time

import fleet
import harness
import mtr_reader
import server
from harness import Skip, check, equal, read_json, run, scratch

SECOND = 1_000_000_000
SKEWS = (0, 3600 * SECOND, -5 * SECOND)
_shared = {}


def job():
    """Three hosts with two ranks each; rank 4 is different."""
    if not harness.IS_ROOT:
        raise Skip("needs root")
    server.needs_serve()
    if "fleet" not in _shared:
        _shared["fleet"] = fleet.Fleet(3, 2, odd=4, skews=SKEWS)
    return _shared["fleet"]


def urls(f):
    return [(h.url(), h.name) for h in f.hosts]


def recording(path):
    with open(path, "rb") as file:
        r = mtr_reader.Recording(file)
        list(r.events())
    return r


def test_same_window():
    """Six ranks of three hosts: each window begins at the same moment, though one clock is an hour and another 5 s off."""
    f, folder = job(), scratch("same")
    began = time.time()
    code, out, err = f.fetch(folder + "/", urls(f), "-d", "500ms", "--at", "/1s", "--lead", "12s", "--format", "json")
    equal(code, 0, "exit code: %s %s" % (out, err))
    doc = json.loads(out)
    equal((doc["processes"], doc["kept"]), (6, 6), "recordings")
    moment = began_at(doc["begin"])
    check(moment * 10 % 10 == 0 and moment > began + 12, "the window begins at %s, asked at %.3f", doc["begin"], began)
    for host, skew in zip(doc["hosts"], SKEWS):
        check(abs(host["clock_offset_ns"] - skew) <= host["clock_offset_error_ns"], "%s: its clock is %d ns ahead, not %d (+- %d)", host["host"],
              skew, host["clock_offset_ns"], host["clock_offset_error_ns"])
        for p in host["processes"]:
            r = recording(os.path.join(folder, p["file"]))
            equal((r.facts["pid"], r.facts["rank"], p["file"]), (str(p["pid"]), str(p["rank"]), "rank-%d.mtr" % p["rank"]), "facts")
            equal(r.facts["clock_offset_ns"], str(host["clock_offset_ns"]), "the fact")
            starts = int(r.facts["clock_zero_ns"]) + int(r.facts["window_start_ns"]) - skew
            # It holds what was live at the last event before that moment.
            check(-SECOND < starts - moment * SECOND <= host["clock_offset_error_ns"] + 2_000_000, "rank %d begins %.6f s after the moment",
                  p["rank"], starts / SECOND - moment)
            check("at 20" in r.facts["window_began"], "window_began: %s", r.facts)
    index = read_json(os.path.join(folder, "index.json"))
    equal({e["rank"]: e["host"] for e in index["recordings"]}, {n: "node%d" % (n // 2) for n in range(6)}, "hosts of the index")
    check("missing" not in index, "missing: %s", index.get("missing"))
    code, out, err = harness.tool("report", folder)
    check(code == 0 and out.startswith("6 recordings of one job, ranks 0-5 of 6"), "report: %d %s %s", code, out[:400], err)
    check("rank 4 on node2: 48.00 MiB more" in out and "fleet.py:" in out and "odd" in out, "the odd rank is not named: %s", out)


def began_at(text):
    return time.mktime(time.strptime(text[:19], "%Y-%m-%dT%H:%M:%S")) - time.timezone + float(text[19:-1])


def test_who_is_missing():
    """Each host that does not answer as it should is named with its reason; the others' recordings are there."""
    f, folder = job(), scratch("missing")
    late = fleet.Late(f.hosts[1].address, fleet.PORT, 0.3)
    listing = (200, {"processes": [{"pid": 77, "rank": 9, "target": "x"}]})

    def endless(handler):
        handler.send_response(200)
        handler.end_headers()
        while True:
            handler.wfile.write(b"[" * 65536)

    good = {"GET /api/clock": fleet.clock, "GET /api/targets": listing, "POST /api/trace/memory": (200, {"trace_id": "trace_1"}),
            "GET /api/trace/list": (200, {"traces": [{"trace_id": "trace_1", "pid": 77, "state": "done"}]}),
            "GET /api/trace/trace_1/recording": (200, b"no recording")}
    with open(scratch("same/rank-0.mtr"), "rb") as file:
        other = file.read()
    liars = {
        "nothing": ({}, "too old"),
        "text": ({"*": (200, b"<html>\x1b[31m")}, "not that of memtrace-bpf serve"),
        "endless": ({"*": endless}, "longer than 1.00 MiB"),
        "moved": ({"*": (302, {"detail": "elsewhere\x1b[2J"})}, "answers 302: elsewhere\\x1b[2J"),
        "path": ({**good, "POST /api/trace/memory": (200, {"trace_id": "../../../../etc/passwd"})}, "the server's answer has no trace"),
        "file": (good, "no good recording"),
        "cut": ({**good, "GET /api/trace/trace_1/recording": (200, other[:40])}, "of another process"),
        "other": ({**good, "GET /api/trace/trace_1/recording": (200, other)}, "it is of another process"),
        "lost": ({**good, "GET /api/trace/list": (200, {"traces": []})}, "has lost the recording"),
        "failed": ({**good, "GET /api/trace/list": (200, {"traces": [{"trace_id": "trace_1", "pid": 77, "state": "failed", "error": "oh\x07"}]})}, "oh\\x07"),
    }
    servers = {name: fleet.Hostile(answers) for name, (answers, _) in liars.items()}
    wanted = urls(f) + [("http://127.0.0.1:%d" % s.port, name) for name, s in servers.items()]
    scheme = f.hosts[1].url().split(":")[0]
    wanted[1] = ("%s://127.0.0.1:%d" % (scheme, late.port), "late")
    wanted.append(("http://127.0.0.1:1", "down"))
    reasons = {name: why for name, (_, why) in liars.items()}
    reasons["down"] = "connect"
    if len(f.files) > 1:
        strange = fleet.Hostile({})
        wanted.append(("https://127.0.0.1:%d" % strange.port, "plain"))
        reasons["plain"] = "SSL"
        servers["plain"] = strange
    begun = time.monotonic()
    code, out, err = f.fetch(folder + "/", wanted, "-d", "300ms", "--lead", "2s", "--timeout", "20s", "--insecure", "--format", "json")
    took = time.monotonic() - begun
    equal(code, 2, "exit code: %s %s" % (out, err))
    doc = json.loads(out)
    described = set(re.findall(r'"([a-z_]+)": \{', json.dumps(json.loads(harness.tool("fetch", "--json-schema")[1]))))
    said = {key for h in doc["hosts"] for o in (doc, h, *h["processes"]) for key in o}
    equal(said - described, set(), "keys that the schema lacks")
    equal(doc["kept"], 6, "recordings that came: %s" % out)
    check(took < 60, "it took %.0f s", took)
    said = {h["host"]: h.get("why") or next((p["why"] for p in h["processes"] if "why" in p), None) for h in doc["hosts"]}
    for name, why in reasons.items():
        check(said[name] and why in said[name], "%s: %r, expected %r", name, said[name], why)
    equal({n for n, why in said.items() if why}, set(reasons), "hosts with a reason")
    equal(sorted(x for x in os.listdir(folder) if x != "index.json"), ["rank-%d.mtr" % n for n in range(6)], "files")
    index = read_json(os.path.join(folder, "index.json"))
    equal({m["host"] for m in index["missing"]}, set(reasons), "missing in the index")
    for s in servers.values():
        check(not any(".." in a for a in s.asked), "a server's text became an address: %s", s.asked)
        s.close()
    late.close()
    # The same as text.
    code, out, err = f.fetch(scratch("text") + "/", [(f.hosts[0].url(), "here"), ("http://127.0.0.1:1", "down")], "-d", "100ms", "--lead", "2s",
                             "--timeout", "20s", "--insecure")
    check(code == 2 and "2 of 2 recordings, from 1 of 2 hosts" in out and "Missing:\n  down: " in out, "text: %d %s %s", code, out, err)


def test_host_memory():
    """Recordings have the device `host`, with rows of its resident memory. A server that does not know it is named, and its capture is ended."""
    f, folder = job(), scratch("host")
    old = fleet.Hostile({
        "GET /api/clock": fleet.clock, "GET /api/targets": (200, {"processes": [{"pid": 77, "rank": 9, "target": "x"}]}),
        "POST /api/trace/memory": (200, {"trace_id": "trace_1"}), "GET /api/trace/list": (200, {"traces": [{"trace_id": "trace_1", "pid": 77, "state": "capturing"}]})})
    code, out, err = f.fetch(folder + "/", [(f.hosts[0].url(), "new"), ("http://127.0.0.1:%d" % old.port, "old")], "-d", "300ms", "--lead", "2s",
                             "--timeout", "4s", "--insecure", "--host-memory")
    check(code == 2 and "the server is too old for --host-memory" in out, "exit %d: %s %s", code, out, err)
    check("DELETE /api/trace/trace_1" in old.asked, "the capture goes on: %s", old.asked)
    old.close()
    for rank in (0, 1):
        doc = harness.report(os.path.join(folder, "rank-%d.mtr" % rank), "--device", "host", "--top", "0")
        total, rss = sum(r["bytes"] for r in doc["rows"]), doc["capture"]["host_rss"]
        check(rss and abs(total - rss) < 1 << 20, "rank %d: the rows add up to %d, RSS was %s", rank, total, rss)


def test_tokens_and_certificates():
    """Another token, an untrusted certificate, or one of another address: no window, and the reason. No token goes out by http."""
    f = job()
    hosts = [(f.hosts[0].url(), "a")]
    wrong = scratch("wrong-token")
    with open(os.open(wrong, os.O_CREAT | os.O_WRONLY, 0o600), "w", encoding="ascii") as file:
        file.write("wrong-horse-battery-staple\n")
    code, out, _ = f.fetch(scratch("wrong") + "/", hosts, "--token-file", wrong, "--timeout", "3s")
    check(code == 2 and "a: the server answers 401" in out, "wrong token: %d %s", code, out)
    code, _, err = harness.tool("fetch", "--token-file", wrong, "-o", scratch("no") + "/", "http://192.0.2.1:8000")
    check(code == 64 and "unencrypted" in err and "--insecure" in err, "http: %d %s", code, err)
    if len(f.files) == 1:
        raise Skip("this build of serve has no HTTPS: the rest holds")
    cert, _ = fleet.make_certificate("other", ["127.0.0.1"])
    code, out, _ = f.fetch(scratch("cert") + "/", hosts, "--ca", cert, "--timeout", "3s")
    check(code == 2 and "--ca" in out and "0 of 0 recordings" in out, "an untrusted certificate: %d %s", code, out)
    proxy = fleet.Late(f.hosts[0].address, fleet.PORT, 0)
    code, out, _ = f.fetch(scratch("name") + "/", [("https://localhost:%d" % proxy.port, "a")], "--timeout", "3s")
    check(code == 2 and "0 of 0 recordings" in out, "a certificate of another name: %d %s", code, out)
    proxy.close()


def test_restart():
    """A server that ends during the window and comes back: its recordings end earlier, and they come."""
    f, folder = job(), scratch("restart")
    h = f.hosts[2]

    def restart():
        h.wait_window(2)
        h.server.stop()
        h.serve(f.files)

    thread = fleet.threading.Thread(target=restart)
    thread.start()
    code, out, err = f.fetch(folder + "/", urls(f), "-d", "4s", "--lead", "2s")
    thread.join()
    check(code == 0, "exit code %d: %s %s", code, out, err)
    lengths = {e["rank"]: e["to"] - e["from"] for e in read_json(os.path.join(folder, "index.json"))["recordings"]}
    equal(sorted(lengths), list(range(6)), "recordings")
    check(min(lengths[n] for n in range(4)) > 3.9 and max(lengths[n] for n in (4, 5)) < 3.9, "lengths: %s", lengths)


def test_start_of_traces():
    """The API's own start: a multiple of align_s, or a moment; what it refuses."""
    pid = job().hosts[0].ranks[0][1].pid
    s = server.Server("--target", "rank=%d" % pid, "--cost", "off")
    before = time.time_ns()
    now = s.get("/api/clock").expect().json["time_ns"]
    check(before <= now <= time.time_ns(), "the clock: %d", now)
    moment = round(time.time() + 2.2, 3)
    wanted = ({"align_s": 1}, {"start_at": moment, "align_s": 5}, {"start_at": 1})
    traces = [s.post("/api/trace/memory", {"pid": pid, "duration_s": 0.1, "wait": False, **w}).expect().json for w in wanted]
    for trace, w in zip(traces, wanted):
        equal({k: trace[k] for k in w}, w, "what the trace says")
        equal(s.wait_trace(trace["trace_id"])["state"], "done", "state")
        path = scratch(trace["trace_id"])
        with open(path, "wb") as f:
            f.write(s.get("/api/trace/%s/recording" % trace["trace_id"]).expect().body)
        r = recording(path)
        start = (int(r.facts["clock_zero_ns"]) + int(r.facts["window_start_ns"])) / SECOND
        told = began_at(r.facts["window_began"][3:])
        if "start_at" not in w:
            equal(told, round(told), "a whole second")
        elif w["start_at"] > 1:
            equal(told, moment, "the moment")
        else:
            told = now / SECOND + 30  # it has passed: at once
        check(told - 30 <= start <= told + 0.01, "%s: %s, from %.3f on", w, r.facts["window_began"], start)
        check("clock_offset_ns" not in r.facts, "an offset without a measurement")
    for body, status, field in (({"start_at": time.time() + 86400}, 409, "start_at"), ({"align_s": 0}, 422, "align_s"), ({"start_at": "now"}, 422, "start_at"),
                                ({"clock_offset_ns": 1.5}, 422, "clock_offset_ns"), ({"clock_offset_error_ns": -1}, 422, "clock_offset_error_ns")):
        refused = s.post("/api/trace/memory", {"pid": pid, **body}).expect(status)
        equal(refused.json.get("field"), field, "field of %s" % body)
    s.stop()


def fake(name, script):
    """PATH with a program of this name first."""
    folder = scratch("bin-" + name)
    os.makedirs(folder, exist_ok=True)
    with open(os.open(os.path.join(folder, name), os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o755), "w", encoding="utf-8") as f:
        f.write("#!/bin/bash\n" + script)
    return dict(os.environ, PATH=folder + ":" + os.environ["PATH"])


def test_slurm():
    """The nodes that scontrol lists, of the job or of a list."""
    script = 'printf "%s\\n" "$*" >>"$0.calls"; [ "$4" ] && exit 9; case $3 in bad) echo no such >&2; exit 1 ;; esac; printf "%s\\n" 127.0.0.1 127.0.0.2\n'
    env = fake("scontrol", script)
    for options, extra, words in ((("--slurm=node[1-2]",), {}, "node[1-2]"), (("--slurm",), {"SLURM_JOB_NODELIST": "gpu[07-08]"}, "gpu[07-08]")):
        code, out, err = harness.tool("fetch", *options, "-o", scratch("slurm%d" % len(words)) + "/", "--timeout", "500ms", "--format", "json",
                                      env={**env, **extra})
        equal(code, 2, "exit code: %s %s" % (out, err))
        equal([h["url"] for h in json.loads(out)["hosts"]], ["https://127.0.0.1:8000", "https://127.0.0.2:8000"], "hosts")
        with open(scratch("bin-scontrol/scontrol.calls"), encoding="utf-8") as f:
            equal(f.read().splitlines()[-1], "show hostnames " + words, "the call of scontrol")
    for options, code, words in ((("--slurm",), 2, "SLURM_JOB_NODELIST"), (("--slurm=bad",), 1, "scontrol failed with status 1")):
        got, _, err = harness.tool("fetch", *options, "-o", scratch("slurm-bad") + "/", env={k: v for k, v in env.items() if k != "SLURM_JOB_NODELIST"})
        check(got == code and words in err, "%s: %d %s", options, got, err)
    got, _, err = harness.tool("fetch", "--slurm=x", "-o", scratch("slurm-no") + "/", env=dict(os.environ, PATH="/nowhere"))
    check(got == 1 and "scontrol" in err and "PATH" in err, "no scontrol: %d %s", got, err)


def test_kubernetes():
    """The memtrace-bpf pods on the nodes of the job's pods, and no processes of other pods."""
    processes = [{"pid": 77, "rank": 0, "target": "", "pod": "uid-a"}, {"pid": 78, "rank": 1, "target": "", "pod": "uid-other"}]
    liar = fleet.Hostile({"GET /api/clock": (200, {"time_ns": time.time_ns()}), "GET /api/targets": (200, {"processes": processes}),
                          "*": (404, {"detail": "enough"})})

    def pod(uid, node, phase="Running", **status):
        return {"metadata": {"uid": uid}, "status": {"phase": phase, **status},
                "spec": {"nodeName": node, "containers": [{"ports": [{"name": "http", "containerPort": liar.port}]}]}}

    answers = {"job": {"items": [pod("uid-a", "gpu-a"), pod("uid-b", "gpu-a"), pod("uid-c", "gpu-c"), pod("uid-d", "gpu-d", "Pending")]},
               "tracers": {"items": [pod("t1", "gpu-a", podIP="127.0.0.1"), pod("t2", "gpu-c", "Pending"), pod("t3", "gpu-x", podIP="127.0.0.9")]}}
    script = 'case "$*" in\n"get pods --all-namespaces -l job=x -o json") cat "$0.job" ;;\n' \
             '"get pods --namespace memtrace-bpf -l app.kubernetes.io/name=memtrace-bpf -o json") cat "$0.tracers" ;;\n*) echo "Error: $*" >&2; exit 1 ;;\nesac\n'
    env = fake("kubectl", script)
    for name, answer in answers.items():
        with open(scratch("bin-kubectl/kubectl." + name), "w", encoding="utf-8") as f:
            json.dump(answer, f)
    code, out, err = harness.tool("fetch", "--kubernetes", "job=x", "--http", "-o", scratch("k8s") + "/", "--timeout", "2s", "--lead", "100ms",
                                  "-d", "100ms", "--format", "json", env=env)
    equal(code, 2, "exit code: %s %s" % (out, err))
    hosts = {h["host"]: h for h in json.loads(out)["hosts"]}
    equal({n: [p["pid"] for p in h["processes"]] for n, h in hosts.items()}, {"gpu-a": [77], "gpu-c": []}, "processes")
    check("no pod of memtrace-bpf" in hosts["gpu-c"]["why"], "a node without a server: %s", hosts["gpu-c"])
    liar.close()
    got, _, err = harness.tool("fetch", "--kubernetes", "job=y", "-o", scratch("k8s-no") + "/", env=env)
    check(got == 1 and "kubectl failed with status 1" in err and "Error: get pods" in err, "kubectl fails: %d %s", got, err)
    with open(scratch("bin-kubectl/kubectl.job"), "w", encoding="utf-8") as f:
        json.dump({"items": []}, f)
    got, _, err = harness.tool("fetch", "--kubernetes", "job=x", "-o", scratch("k8s-none") + "/", env=env)
    check(got == 2 and "no running pod matches 'job=x'" in err, "no pod: %d %s", got, err)


def test_wrong_lines():
    """Files of hosts and options that make no sense."""
    path = scratch("lines")
    for text, words in (("a\nb c d e\n", "line 2: more than a host and a name"), ("a/path\n", "line 1: it is not HOST"), ("a\na\n", "given twice"),
                        ("http://user@a\n", "it is not HOST"), ("a x\nb x\n", "another host has this name"), ("# nothing\n", "name no host"),
                        ("a" * 2000, "too long")):
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        code, _, err = harness.tool("fetch", "--hosts", path, "-o", scratch("none") + "/")
        check(code == 64 and words in err, "%r: %d %s", text[:30], code, err)
    for options, words in ((("-o", "x/"), "--hosts"), (("host",), "-o FOLDER/"), (("-o", "x/", "--at", "10s", "h"), "/TIME"),
                           (("-o", "x/", "-d", "0", "h"), "--duration")):
        code, _, err = harness.tool("fetch", *options)
        check(code == 64 and words in err, "%s: %d %s", options, code, err)
    check(not os.path.exists(scratch("none")), "a folder was made")


def test_end():
    if "fleet" in _shared:
        _shared["fleet"].end()


if __name__ == "__main__":
    run(globals())

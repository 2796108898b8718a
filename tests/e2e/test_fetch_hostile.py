#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""`fetch` and hosts that want to hold it up, fill its memory, or get its token: it ends, and the recordings of other hosts are kept."""
import json
import os
import threading

import fleet
import harness
from harness import check, equal, read_json, run, scratch, spawn, until
from mtr_writer import Writer

RECORDING = "GET /api/trace/trace_1/recording"
_end = threading.Event()


def host(**answers):
    """A host with one process, whose recording is there at once."""
    return fleet.Hostile({"GET /api/clock": fleet.clock, "GET /api/targets": (200, {"processes": [{"pid": 77, "rank": 0, "target": ""}]}),
                          "POST /api/trace/memory": (200, {"trace_id": "trace_1"}),
                          "GET /api/trace/list": (200, {"traces": [{"trace_id": "trace_1", "pid": 77, "state": "done"}]}),
                          "DELETE /api/trace/trace_1": (200, {}), **{k.replace("RECORDING", RECORDING): v for k, v in answers.items()}})


def recording(blocks=1, events=10, compress=False):
    path = scratch("made-%d-%d.mtr" % (blocks, events))
    w = Writer(path, {"comm": "python", "pid": "77"})
    for _ in range(blocks):
        w.block(events, compress=compress)
    w.close()
    with open(path, "rb") as f:
        return f.read()


def endless(status, length, piece, pause):
    """A body that ends with the test, or when the other side hangs up. pause: s between pieces."""
    def answer(h):
        fleet.head(h, status, length)
        while not _end.wait(pause):
            h.wfile.write(piece)
    return answer


def drips(status):
    return endless(status, 1 << 30, b"x", 0.1)


def floods(status):
    return endless(status, 1 << 40, b"x" * 65536, 0)


def test_no_host_holds_up_the_others():
    """Recordings and errors that never end, and bombs: each host is missing, with its reason. A good recording is in the index before they are over."""
    hosts = {
        "good": (host(RECORDING=(200, recording())), None),
        "drips": (host(RECORDING=drips(200)), "comes at less than 10.0 KiB/s"),
        "sad": (host(RECORDING=drips(500)), "the server answers 500"),
        "angry": (host(RECORDING=floods(500)), "the server answers 500: xxx"),
        "bomb": (host(RECORDING=(200, recording(300, 20000, compress=True))), "compressed more than any recording"),
        "json": (host(**{"GET /api/targets": (200, b'{"processes":[' + b"{}," * 600000 + b"{}]}")}), "longer than 1.00 MiB"),
        "list": (host(**{"GET /api/trace/list": (200, b'{"traces":[' + b"{}," * 1000000 + b"{}]}")}), "lost the recording"),
    }
    path, folder = scratch("hosts"), scratch("job")
    with open(path, "w", encoding="utf-8") as f:
        f.writelines("http://127.0.0.1:%d %s\n" % (h.port, name) for name, (h, _) in hosts.items())
    p = spawn([harness.TOOL, "fetch", "--hosts", path, "-o", folder + "/", "-d", "1ms", "--lead", "500ms", "--timeout", "1s", "--format", "json"])
    index = os.path.join(folder, "index.json")
    until(lambda: not p.alive() or os.path.exists(index) and [e["host"] for e in read_json(index)["recordings"]] == ["good"],
          "the good recording is in the index")
    check(p.alive(), "fetch ended before the index had the good recording: %s", p.stderr())
    equal(p.wait(60), 2, "exit code: %s" % p.stderr())
    doc = json.loads(p.stdout())
    _end.set()
    said = {h["host"]: h.get("why") or next((q["why"] for q in h["processes"] if "why" in q), None) for h in doc["hosts"]}
    for name, (h, why) in hosts.items():
        check(said[name] == why if why is None else why in said[name], "%s: %r, expected %r", name, said[name], why)
        h.close()


def test_large_file_after_an_error():
    """The text of an error is kept apart from the file that a later attempt gets."""
    asked = []

    def answer(h):
        asked.append(1)
        body = b"not now" if len(asked) == 1 else bytes(64 << 20)
        fleet.head(h, 503 if len(asked) == 1 else 200, len(body))
        h.wfile.write(body)

    h = host(RECORDING=answer)
    code, out, err = harness.tool("fetch", "--http", "-o", scratch("twice") + "/", "-d", "1ms", "--lead", "500ms", "--timeout", "3s", "127.0.0.1:%d" % h.port)
    check(code == 2 and "not a memtrace-bpf recording" in out, "exit code %d: %s %s", code, out, err)
    equal(len(asked), 2, "requests")
    h.close()


def test_no_proxy_gets_the_token():
    """A token that goes unencrypted goes to its host alone; a proxy is not asked for this machine's addresses."""
    proxy, here = fleet.Hostile({}), fleet.Hostile({})
    token = scratch("token")
    with open(os.open(token, os.O_CREAT | os.O_WRONLY, 0o600), "w", encoding="ascii") as f:
        f.write("correct-horse-battery-staple\n")
    env = {k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy")}
    env.update(http_proxy="http://127.0.0.1:%d" % proxy.port, ALL_PROXY="http://127.0.0.1:%d" % proxy.port)
    for i, options in enumerate((("--http", "127.0.0.1:%d" % here.port), ("--http", "--insecure", "192.0.2.1:8000"))):
        code, out, err = harness.tool("fetch", "--token-file", token, "--timeout", "300ms", "-o", scratch("proxy%d" % i) + "/", *options, env=env)
        equal(code, 2, "exit code: %s %s" % (out, err))
        equal(proxy.asked, [], "what the proxy was asked, of %s" % (options,))
    check(here.asked, "this machine's server was not asked")
    # Without a token a proxy is fine.
    harness.tool("fetch", "--http", "--timeout", "300ms", "-o", scratch("proxy-no-token") + "/", "192.0.2.1:8000", env=env)
    check(any("192.0.2.1" in a for a in proxy.asked), "the proxy was not asked: %s", proxy.asked)
    proxy.close()
    here.close()


def pod(name, port, node="node-1", space="memtrace-bpf", **metadata):
    return {"metadata": {"namespace": space, "name": name, "uid": "u-" + name, **metadata}, "status": {"phase": "Running", "podIP": "127.0.0.1"},
            "spec": {"nodeName": node, "containers": [{"ports": [{"name": "http", "containerPort": port}]}]}}


KUBECTL = """#!/usr/bin/python3
import json, os, sys
here, words = os.path.dirname(sys.argv[0]), sys.argv
with open(os.path.join(here, "tracers" if "app.kubernetes.io/name=memtrace-bpf" in words else "job"), encoding="utf-8") as f:
    items = json.load(f)
space = words[words.index("--namespace") + 1] if "--namespace" in words else None
print(json.dumps({"items": [i for i in items if not space or i["metadata"]["namespace"] == space]}))
"""


def cluster(name, tracers):
    """A cluster with a job on node-1 and these pods with the label of memtrace-bpf: the environment for kubectl."""
    folder = scratch(name)
    os.makedirs(folder)
    with open(os.open(os.path.join(folder, "kubectl"), os.O_CREAT | os.O_WRONLY, 0o755), "w", encoding="utf-8") as f:
        f.write(KUBECTL)
    for what, items in (("tracers", tracers), ("job", [pod("trainer", 1, space="training")])):
        with open(os.path.join(folder, what), "w", encoding="utf-8") as f:
            json.dump(items, f)
    return dict(os.environ, PATH=folder + ":" + os.environ["PATH"])


def test_no_other_pod_gets_the_token():
    """Whoever may make a pod in some namespace can give it the label of memtrace-bpf."""
    tenant, ours = fleet.Hostile({}), fleet.Hostile({})
    token = scratch("cluster-token")
    with open(os.open(token, os.O_CREAT | os.O_WRONLY, 0o600), "w", encoding="ascii") as f:
        f.write("correct-horse-battery-staple\n")
    evil = pod("evil", tenant.port, space="aaa-tenant")
    old = pod("old", tenant.port, deletionTimestamp="2026-01-01T00:00:00Z")
    cases = (("alone", [evil], (), "no pod of memtrace-bpf runs on this node", 0), ("both", [evil, pod("x", ours.port)], (), "", 1),
             ("update", [old, pod("x", ours.port)], (), "", 1),
             ("two", [pod("evil", tenant.port), pod("x", ours.port)], (), "several pods call themselves memtrace-bpf", 0),
             ("named", [pod("x", ours.port, space="tools"), pod("evil", tenant.port)], ("--kubernetes-namespace", "tools"), "", 1))
    for name, tracers, options, why, asked in cases:
        ours.asked.clear()
        code, out, err = harness.tool("fetch", "--kubernetes", "job=x", "--http", "--token-file", token, "--timeout", "1s", "-o", scratch("of-" + name) + "/",
                                      *options, env=cluster("cluster-" + name, tracers))
        check(code == 2 and why in out, "%s: exit code %d: %s %s", name, code, out, err)
        equal((tenant.asked, bool(ours.asked)), ([], bool(asked)), "%s: requests" % name)
    tenant.close()
    ours.close()


if __name__ == "__main__":
    run(globals())

#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# run: nightly=fleet long
"""Profiles of `serve --push-otlp-profiles` in an OpenTelemetry collector, as it has read them and written them again: bytes by device are
PyTorch's, and stacks name the job's lines. Needs `tools/deps.sh collector`."""
import json
import os
import socket
import subprocess

import http_fleet
import readers
import server
from harness import REPO, check, equal, run, scratch, spawn, until
from test_step_figures import Job

CONFIG = """
receivers:
  otlp: {protocols: {http: {endpoint: "127.0.0.1:%d"}}}
exporters:
  file: {path: %s, flush_interval: 200ms}
service:
  telemetry: {logs: {level: warn}, metrics: {level: none}}
  pipelines: {profiles: {receivers: [otlp], exporters: [file]}}
"""


def collector():
    """The address of a collector, and the file that it writes."""
    port, path = http_fleet.free_port(), scratch("profiles.json")
    config = http_fleet.written("profiles.yaml", (CONFIG % (port, path)).encode())
    p = spawn([http_fleet.deps("otelcol"), "--config", "file:" + config, "--feature-gates=service.profilesSupport"])

    def answers():
        check(p.alive(), "the collector does not run: %s", p.stderr()[-2000:])
        with socket.socket() as s:
            return s.connect_ex(("127.0.0.1", port)) == 0
    until(answers, "the collector", 60)
    return "http://127.0.0.1:%d" % port, path


def posts(path):
    """[{"service": name, "bytes": {device: bytes}, "lines": {(function, line)}}] of what the collector has written."""
    found = []
    if not os.path.exists(path):
        return found
    with open(path, encoding="utf-8") as f:
        lines = [line for line in f if line.endswith("\n")]
    for doc in map(json.loads, lines):
        tables = doc["dictionary"]
        strings = tables["stringTable"]
        resource, = doc["resourceProfiles"]
        attributes = {strings[a["keyStrindex"]]: a["value"] for a in resource["resource"]["attributes"]}
        one = {"service": strings[attributes["service.name"]["stringValueStrindex"]], "bytes": {}, "lines": set()}
        profile = resource["scopeProfiles"][0]["profiles"][0]
        equal(strings[profile["sampleType"]["typeStrindex"]], "inuse_space", "type of the first profile")
        for sample in profile["samples"]:
            of = {strings[tables["attributeTable"][i]["keyStrindex"]]: tables["attributeTable"][i]["value"] for i in sample["attributeIndices"]}
            value = of["device"]
            device = strings[value["stringValueStrindex"]] if "stringValueStrindex" in value else value["stringValue"]
            one["bytes"][device] = one["bytes"].get(device, 0) + sum(int(v) for v in sample["values"])
            for i in tables["stackTable"][sample["stackIndex"]]["locationIndices"]:
                for line in tables["locationTable"][i]["lines"]:
                    one["lines"].add(strings[tables["functionTable"][line["functionIndex"]]["nameStrindex"]])
        found.append(one)
    return found


def test_file():
    """A file of `export otlp`, as it is."""
    url, path = collector()
    golden = os.path.join(REPO, "tests", "data", "golden", "tiny.otlp.pb")
    done = subprocess.run(["curl", "-sf", "--data-binary", "@" + golden, "-H", "Content-Type: application/x-protobuf", url + "/v1development/profiles"], check=False)
    equal(done.returncode, 0, "exit code of curl")
    until(lambda: posts(path), "the collector's file", 30)
    equal(posts(path)[0]["bytes"], {device: n for (device, _), n in readers.otlp(golden).items()}, "bytes by device")


def test_pushed():
    job = Job()
    job.do("hold", 3)
    allocated = job.do("step", 8)["allocated"]
    url, path = collector()
    server.needs_serve()
    s = server.Server("--target", "train=%d" % job.pid, "--push-otlp-profiles", url, "--push-every", "1s", "--push-profile", "500ms")
    until(lambda: len(posts(path)) >= 2, "two profiles", 120)
    for one in posts(path):
        equal((one["service"], one["bytes"].get("cuda:0")), ("train", allocated), "whose profile, and live bytes")
        check("[before attach]" in one["lines"] or any("held" in n for n in one["lines"]), "frames: %s", one["lines"])
    metrics = s.get("/metrics").expect().body.decode()
    check('memtrace_serve_pushes_total{to="otlp_profiles",result="sent"}' in metrics, "counts of pushes: %s", [m for m in metrics.splitlines() if "pushes" in m])
    s.stop()


if __name__ == "__main__":
    run(globals())

#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# run: nightly=fleet long
"""OTLP to an OpenTelemetry collector over TLS and back: the file that it writes, and its own metrics for Prometheus, have the figures and
the names of /metrics. Needs `tools/deps.sh collector`."""
import contextlib
import json
import time
import urllib.request

import http_fleet
from harness import check, equal, run, scratch, spawn

CONFIG = """
receivers:
  otlp: {protocols: {http: {endpoint: "127.0.0.1:%(port)d", tls: {cert_file: %(both)s, key_file: %(both)s}}}}
exporters:
  file: {path: %(file)s, flush_interval: 200ms}
  prometheus: {endpoint: "127.0.0.1:%(prometheus)d"}
service:
  telemetry: {logs: {level: warn}, metrics: {level: none}}
  pipelines: {metrics: {receivers: [otlp], exporters: [file, prometheus]}}
"""
# Figures that serve pushes. The others of /metrics are its own, or of captures.
PUSHED = {"memtrace_%s" % name for name in (
    "allocated_bytes", "reserved_bytes", "peak_allocated_bytes", "device_memory_bytes", "device_used_bytes", "device_free_bytes", "ooms_total",
    "alloc_retries_total", "resident_bytes", "host_bytes")}


class Collector:
    """The server that http_fleet's metrics are pushed to."""

    def __init__(self, both):
        ports = {"port": http_fleet.free_port(), "prometheus": http_fleet.free_port()}
        self.otlp, self.metrics = "https://127.0.0.1:%(port)d" % ports, "http://127.0.0.1:%(prometheus)d/metrics" % ports
        self.file = scratch("collected.json")
        config = http_fleet.written("collector.yaml", (CONFIG % {**ports, "both": both, "file": self.file}).encode())
        self.process = spawn([http_fleet.deps("otelcol"), "--config", "file:" + config], kept=True)
        limit = time.monotonic() + 30
        while self.samples() is None:
            check(self.process.alive() and time.monotonic() < limit, "the collector does not run: %s", self.process.stderr()[-2000:])
            time.sleep(0.1)

    def samples(self):
        """[name, labels, value] of its metrics; None: it does not answer."""
        with contextlib.suppress(OSError):
            with urllib.request.urlopen(self.metrics, timeout=10) as r:
                return http_fleet.judge("prometheus", http_fleet.written("collected.txt", r.read()))
        return None

    def points(self):
        """What the last post had; nothing before the first."""
        with open(self.file, encoding="utf-8") as f:
            lines = [line for line in f if line.endswith("\n")]
        return http_fleet.judge("otlp", http_fleet.written("last.json", lines[-1].encode())) if lines else []

    def shutdown(self):
        self.process.stop()


def collected():
    """The figures of a job at rest, with its host memory: the same in /metrics of serve, {(name, labels): value}, in the collector's
    metrics, and in what it has written, which is returned, too."""
    http_fleet.deps("otelcol")
    s = http_fleet.served(Collector)
    collector = http_fleet._shared["metrics"]
    limit = time.monotonic() + 60
    with http_fleet.at_rest(), http_fleet.host_captured():
        while True:
            ours = figures(http_fleet.judge("prometheus", http_fleet.written("ours.txt", s.get("/metrics").expect().body)))
            theirs, points = figures(collector.samples()), collector.points()
            # RSS changes by some pages while the job rests: all three must be of one moment.
            if ours == theirs == posted(points):
                return ours, points
            check(time.monotonic() < limit, "only of serve: %s, only of the collector: %s", sorted(set(ours.items()) - set(theirs.items())),
                  sorted(set(theirs.items()) - set(ours.items())))
            time.sleep(0.5)


def posted(points):
    """The points of a post as figures() has those of /metrics."""
    return {("memtrace_%s%s" % (name.split(".")[1], "_bytes" if unit == "By" else "_total"), tuple(labels.items())): value
            for name, unit, _, _, labels, value in points}


def figures(samples):
    own = ("target", "process", "rank", "device", "part")
    return {(name, tuple((k, labels[k]) for k in own if k in labels)): value for name, labels, value in samples if name in PUSHED}


def test_to_a_collector_and_back():
    ours, points = collected()
    equal({name for name, _ in ours}, PUSHED, "names")
    ranks = {dict(labels)["rank"] for _, labels in ours}
    equal(ranks, {str(n) for n in range(http_fleet.RANKS)}, "ranks")
    owners = {json.dumps([r["service.name"], r["process.pid"]]) for _, _, _, r, _, _ in points}
    equal(owners, {json.dumps(["train", job.pid]) for job in http_fleet._shared["jobs"]}, "whose figures they are")


def test_it_all_ends():
    http_fleet.test_it_all_ends()


if __name__ == "__main__":
    run(globals())

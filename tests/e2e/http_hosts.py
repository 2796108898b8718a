#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# run: nightly=fleet long
"""64 hosts scraped by Prometheus, with our rules: queries find the odd one, and Alertmanager delivers its alert."""
import http.server
import json
import os
import re
import subprocess
import threading
import time
import urllib.parse
import urllib.request

import harness
import http_fleet
import server
from harness import Skip, check, equal, run, scratch, spawn

HOSTS, ODD = 64, 37
GIB = 1 << 30


class Hosts(http.server.ThreadingHTTPServer):
    """Serves the metrics of a real server under a path for each host. The odd host holds 3 GiB more and, from the second scrape on, has an out of memory.
    Takes what Alertmanager sends."""
    daemon_threads = True

    def __init__(self, text):
        self.text, self.scrapes, self.alerts, self.changed = text, {}, [], threading.Condition()
        super().__init__(("127.0.0.1", 0), Host)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def of(self, host):
        self.scrapes[host] = self.scrapes.get(host, 0) + 1
        if host != ODD:
            return self.text
        odd = re.sub(r"^(memtrace_(?:peak_)?allocated_bytes\{.*\}) (\d+)$", lambda m: "%s %d" % (m[1], int(m[2]) + 3 * GIB), self.text, flags=re.M)
        return re.sub(r"^(memtrace_ooms_total\{.*\}) (\d+)$", lambda m: "%s %d" % (m[1], int(m[2]) + (self.scrapes[host] > 2)), odd, flags=re.M)


class Host(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def answer(self, body):
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.answer(self.server.of(int(self.path.split("/")[2])).encode())

    def do_POST(self):
        with self.server.changed:
            self.server.alerts += json.loads(self.rfile.read(int(self.headers["Content-Length"])))["alerts"]
            self.server.changed.notify_all()
        self.answer(b"")


def metrics():
    """What a server says of a job."""
    server.needs_serve()
    job = server.Job("hosts-%d" % os.getpid())
    job.ready()
    s = server.Server("--target", "train=hosts-%d" % os.getpid(), "--interval", "200ms", folder=scratch("recordings"))
    limit = time.monotonic() + 30
    while True:
        text = s.get("/metrics").expect().body.decode()
        if re.search(r'^memtrace_allocated_bytes\{.*device="cuda:0".*\} [1-9]', text, re.M):
            return text
        check(time.monotonic() < limit, "no figures of the job: %s", text[:1500])
        time.sleep(0.2)


def started(name, command):
    p = spawn(command)
    limit = time.monotonic() + 60
    url = "http://127.0.0.1:%s" % re.search(r"127\.0\.0\.1:(\d+)", " ".join(command))[1]
    while True:
        check(p.alive() and time.monotonic() < limit, "%s does not run: %s", name, p.stderr()[-1500:])
        try:
            urllib.request.urlopen(url + "/-/ready", timeout=5).close()
            return url
        except OSError:
            time.sleep(0.2)


def write(name, text):
    with open(scratch(name), "w", encoding="ascii") as f:
        f.write(text)
    return scratch(name)


def query(url, expr):
    with urllib.request.urlopen(url + "/api/v1/query?" + urllib.parse.urlencode({"query": expr}), timeout=20) as r:
        return [(m["metric"], float(m["value"][1])) for m in json.load(r)["data"]["result"]]


def wait(url, expr, good, seconds=90):
    limit = time.monotonic() + seconds
    while not good(query(url, expr)):
        check(time.monotonic() < limit, "%s: %s", expr, query(url, expr))
        time.sleep(0.3)
    return query(url, expr)


def test_the_odd_host():
    manager, programs = http_fleet.deps("alertmanager"), http_fleet.deps("prometheus")
    hosts = Hosts(metrics())
    at = "127.0.0.1:%d" % hosts.server_address[1]
    config = write("alertmanager.yml", "route: {receiver: test, group_wait: 0s, group_interval: 1s, group_by: [alertname]}\n"
                   "receivers: [{name: test, webhook_configs: [{url: 'http://%s/alerts'}]}]\n" % at)
    # Debian's program reads its templates from /usr/share: a view of the file system of its own has them there.
    share = os.path.join(os.path.dirname(os.path.dirname(manager)), "share")
    view = ["unshare", "-m", "sh", "-c", 'mount -t overlay overlay -o "lowerdir=%s:/usr/share" /usr/share && exec "$@"' % share, "sh"]
    if not harness.IS_ROOT or subprocess.run([*view, "true"], capture_output=True, check=False).returncode:
        raise Skip("Alertmanager needs a mount namespace with an overlay of /usr/share")
    alerts = started("Alertmanager", [*view, manager, "--config.file=" + config, "--storage.path=" + scratch("alerts"), "--cluster.listen-address=",
                                      "--web.listen-address=127.0.0.1:%d" % http_fleet.free_port()])
    targets = "".join("  - {targets: ['%s'], labels: {instance: 'node-%02d', __metrics_path__: '/host/%d/metrics'}}\n" % (at, i, i) for i in range(HOSTS))
    config = write("prometheus.yml", "global: {scrape_interval: 2s, scrape_timeout: 2s, evaluation_interval: 1s}\nrule_files: ['%s']\n"
                   "alerting: {alertmanagers: [{static_configs: [{targets: ['%s']}]}]}\nscrape_configs:\n- job_name: memtrace-bpf\n  static_configs:\n%s"
                   % (os.path.join(http_fleet.DEPLOY, "prometheus-rules.yml"), alerts[7:], targets))
    url = started("Prometheus", [os.path.join(programs, "prometheus"), "--config.file=" + config, "--storage.tsdb.path=" + scratch("tsdb"), "--log.level=warn",
                                 "--web.listen-address=127.0.0.1:%d" % http_fleet.free_port()])
    wait(url, 'count(up{job="memtrace-bpf"} == 1)', lambda found: found and found[0][1] == HOSTS)
    found = wait(url, "count(memtrace_allocated_bytes{device=\"cuda:0\"})", lambda found: found and found[0][1] == HOSTS)
    found = query(url, "topk(1, memtrace_allocated_bytes{device=\"cuda:0\"})")
    equal([m["instance"] for m, _ in found], ["node-%d" % ODD], "the host with the most memory")
    found = query(url, "memtrace_allocated_bytes{device=\"cuda:0\"} - on (device) group_left () quantile by (device) (0.5, memtrace_allocated_bytes{device=\"cuda:0\"}) > 0")
    equal([(m["instance"], v) for m, v in found], [("node-%d" % ODD, 3 * GIB)], "hosts above the median")
    with hosts.changed:
        check(hosts.changed.wait_for(lambda: any(a["labels"]["alertname"] == "PyTorchOutOfMemory" for a in hosts.alerts), 90), "alerts: %s", hosts.alerts)
        named = {a["labels"]["instance"] for a in hosts.alerts if a["labels"]["alertname"] == "PyTorchOutOfMemory"}
    equal(named, {"node-%d" % ODD}, "hosts of the alert that Alertmanager delivered")


if __name__ == "__main__":
    run(globals())

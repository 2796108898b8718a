#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# run: nightly=fleet long
"""Interfaces for fleets: /metrics scraped and queried by Prometheus, the dashboard's queries and the rules on a live job's
figures, profiles fetched by `go tool pprof`, pushes to test servers, and the files of tools/packaging/deploy."""
import contextlib
import email.parser
import http.server
import json
import os
import re
import shutil
import socket
import ssl
import subprocess
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

import harness
import readers
import server
from harness import REPO, Failure, Skip, check, equal, installed, run, scratch, spawn

DEPLOY = os.path.join(REPO, "tools", "packaging", "deploy")
TOKEN = "push-token-0123456789"
_shared = {}


# ---- other projects' programs ----

def deps(*what):
    return installed(*what, step="fleet")


def prometheus(name):
    return os.path.join(deps("prometheus"), name)


def judge(what, path):
    done = subprocess.run([deps("python", "fleet"), os.path.join(REPO, "tests", "foreign", "judge_fleet.py"), what, path], capture_output=True,
                          text=True, timeout=120, check=False)
    check(done.returncode == 0, "%s of %s: %s", what, path, done.stderr[-2000:])
    return json.loads(done.stdout)


def promtool(*args, stdin=None):
    done = subprocess.run([prometheus("promtool"), *args], input=stdin, capture_output=True, timeout=60, check=False)
    said = (done.stdout + done.stderr).decode("utf-8", "replace")
    check(done.returncode == 0, "promtool %s: %s", args[:2], said[-2000:])
    return said


def written(name, data):
    path = scratch(name)
    with open(path, "wb") as f:
        f.write(data)
    return path


# ---- a server to push to ----

class Receiver(http.server.ThreadingHTTPServer):
    """Accepts all posts; refuses the first of each path once. cert: uses HTTPS."""
    daemon_threads = True

    def __init__(self, cert=None):
        self.taken, self.refused, self.changed = [], set(), threading.Condition()
        super().__init__(("127.0.0.1", 0), Receiving)
        self.url = "http%s://127.0.0.1:%d" % ("s" if cert else "", self.server_address[1])
        self.otlp = self.url + "/otlp"
        if cert:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(cert)
            self.socket = context.wrap_socket(self.socket, server_side=True)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def wait(self, good, seconds=40):
        """The last accepted post with good() true: (path, headers, body)."""
        limit = time.monotonic() + seconds
        with self.changed:
            while True:
                found = [t for t in self.taken if good(*t)]
                if found:
                    return found[-1]
                left = limit - time.monotonic()
                if left <= 0:
                    raise Failure("what was pushed within %d s is %s" % (seconds, [t[0] for t in self.taken]))
                self.changed.wait(left)


class Receiving(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        path = self.path.split("?")[0]
        status = 200
        with self.server.changed:
            if path not in self.server.refused:
                self.server.refused.add(path)
                status = 503
            else:
                self.server.taken.append((self.path, self.headers, body))
                self.server.changed.notify_all()
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *args):
        pass


# ---- shared by the tests: one server, one job, one Prometheus ----

class in_a_pod:
    """A program started as in the DaemonSet: with its capabilities and one writable folder."""

    def __init__(self, folder):
        os.mkdir(folder)
        with open(os.path.join(DEPLOY, "daemonset.yaml"), encoding="utf-8") as f:
            text = f.read()
        caps = re.search(r"^ *add: \[(.*)\]$", text, re.M)[1].lower().split(", ")
        check("readOnlyRootFilesystem: true" in text and len(caps) > 6, "the DaemonSet's capabilities: %s", caps)
        self.prefix = ("unshare", "--mount", "sh", "-c", 'mount --bind "$0" "$0" && mount -o remount,bind,ro / && exec "$@"', folder,
                       "setpriv", "--bounding-set", "-all," + ",".join("+" + c for c in caps))


def certificate():
    """A self-signed certificate of 127.0.0.1 with its key."""
    if not shutil.which("openssl"):
        raise Skip("openssl is not here")
    key, cert = scratch("key.pem"), scratch("cert.pem")
    done = subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
                           "-subj", "/CN=receiver", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", cert], capture_output=True,
                          text=True, timeout=60, check=False)
    check(done.returncode == 0, "openssl: %s", done.stderr[-500:])
    with open(key, "rb") as k, open(cert, "rb") as c:
        return written("both.pem", k.read() + c.read()), cert


RANKS = 2


def start_jobs():
    """Ranks of one job."""
    jobs = []
    for rank in range(RANKS):
        os.environ["RANK"] = str(rank)
        jobs.append(server.Job("--spread", "20", "--pause", "0.05", "fleet-%d" % os.getpid(), "--shape", "%d,16,64" % (4 << rank), kept=True))
    del os.environ["RANK"]
    return jobs


def served(receive=Receiver):
    """receive: makes the server for metrics, of the path of its certificate and key."""
    server.needs_serve()
    if "server" not in _shared:
        jobs = _shared["jobs"] = start_jobs()
        both, cert = certificate()
        profiles, metrics = _shared["profiles"], _shared["metrics"] = Receiver(), receive(both)
        token = written("token", TOKEN.encode() + b"\n")
        os.chmod(token, 0o600)
        for job in jobs:
            job.ready()
        folder = scratch("recordings")
        gpus = written("gpus", ("process 0 %d 4G\nmore 0 3M\nreserved 0 450M\n" % jobs[0].pid).encode())
        _shared["server"] = server.Server(
            "--target", "train=fleet-%d" % os.getpid(), "--interval", "200ms", "--push-pyroscope", profiles.url.replace("127.0.0.1", "localhost"),
            "--push-otlp", metrics.otlp, "--push-every", "3s", "--push-profile", "500ms", "--push-token-file", token, "--push-ca", cert, folder=folder,
            prefix=in_a_pod(folder).prefix, kept=True, env=dict(os.environ, LD_LIBRARY_PATH=os.path.join(harness.OUT, "dryrun"), MEMTRACE_DRYRUN_NVML=gpus))
        find_processes()
    return _shared["server"]


def find_processes():
    """The labels of each rank's figures: no PIDs, and the order of ranks is arbitrary."""
    limit = time.monotonic() + 20
    while True:
        text = _shared["server"].get("/metrics").expect().body.decode()
        found = dict(re.findall(r'^memtrace_process_info\{.*rank="(\d+)",pid="(\d+)".*\} 1$', text, re.M))
        if found == {str(r): str(job.pid) for r, job in enumerate(_shared["jobs"])}:
            break
        check(time.monotonic() < limit, "ranks and PIDs: %s of %s", found, text[:2000])
        time.sleep(0.1)
    slots = re.findall(r'^memtrace_process_info\{target="train",process="(\d+)",rank="(\d+)"', text, re.M)
    equal(sorted(s for s, _ in slots), [str(n) for n in range(RANKS)], "numbers of processes")
    _shared["labels"] = {int(rank): {"target": "train", "process": slot, "rank": rank} for slot, rank in slots}


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Prometheus:
    """Prometheus with the rules of tools/packaging/deploy, and the server from its static_configs."""

    def __init__(self, target):
        with open(os.path.join(DEPLOY, "prometheus.yml"), encoding="utf-8") as f:
            config = f.read()
        config = re.sub(r"^  (scrape|evaluation)_interval: .*", r"  \1_interval: 300ms", config, flags=re.M)
        check("localhost:8000" in config, "the config names no server")
        config = config.replace("localhost:8000", target).replace("prometheus-rules.yml", os.path.join(DEPLOY, "prometheus-rules.yml"))
        path = written("prometheus.yml", config.encode())
        self.url = "http://127.0.0.1:%d" % free_port()
        self.process = spawn([prometheus("prometheus"), "--config.file=" + path, "--storage.tsdb.path=" + scratch("tsdb"),
                              "--web.listen-address=" + self.url[7:], "--log.level=warn"], kept=True)
        limit = time.monotonic() + 30
        while not self.up():
            check(self.process.alive() and time.monotonic() < limit, "Prometheus does not run: %s", self.process.stderr()[-2000:])
            time.sleep(0.1)

    def up(self):
        with contextlib.suppress(OSError, Failure):
            return [v for _, v in self.query('up{job="memtrace-bpf"}')] == [1]
        return False

    def get(self, path, **query):
        try:
            with urllib.request.urlopen(self.url + path + ("?" + urllib.parse.urlencode(query) if query else ""), timeout=20) as r:
                doc = json.load(r)
        except urllib.error.HTTPError as e:
            raise Failure("Prometheus refuses %s %s: %s" % (path, query, e.read()[:600])) from None
        equal(doc["status"], "success", "answer of Prometheus")
        return doc["data"]

    def query(self, expr):
        data = self.get("/api/v1/query", query=expr)
        check(data["resultType"] == "vector", "%s is a %s", expr, data["resultType"])
        return [(r["metric"], float(r["value"][1])) for r in data["result"]]

    def wait(self, expr, good, seconds=20):
        limit = time.monotonic() + seconds
        while True:
            found = self.query(expr)
            if good(found):
                return found
            check(time.monotonic() < limit, "%s: after %d s %s", expr, seconds, found)
            time.sleep(0.2)


def asked():
    if "prometheus" not in _shared:
        s = served()
        _shared["prometheus"] = Prometheus("%s:%d" % (s.host, s.port))
    return _shared["prometheus"]


def captured():
    """A kept capture of the job: the last capture's results are among the metrics."""
    if "trace" not in _shared:
        asked()
        _shared["trace"] = served().post("/api/trace/memory", {"pid": _shared["jobs"][0].pid, "duration_s": 0.5}).expect().json
    return _shared["trace"]


class at_rest:
    """The ranks paused between two steps, with their figures, after the server has sampled each."""

    def __enter__(self):
        figures = [job.tell("pause") for job in _shared["jobs"]]
        limit, begin = time.monotonic() + 20, time.time()
        while True:
            found = served().get("/api/targets").expect().json["processes"]
            if sum(p.get("time", 0) > begin for p in found) == RANKS:
                return figures
            check(time.monotonic() < limit, "nobody looks at the job: %s", found)
            time.sleep(0.05)

    def __exit__(self, *_):
        for job in _shared["jobs"]:
            job.tell("go")


def host_parts(text):
    """Parts of the first rank's host memory that /metrics has."""
    return {part: int(v) for part, v in re.findall(r'^memtrace_host_bytes\{.*rank="0",part="(\w+)"\} (\d+)$', text, re.M)}


class host_captured:
    """A running capture of the first rank with its host memory, after the first reading: the parts. It ends as the job's last one."""

    def __enter__(self):
        s = served()
        body = {"pid": _shared["jobs"][0].pid, "host": True, "duration_s": 120, "wait": False}
        self.trace = s.post("/api/trace/memory", body).expect().json["trace_id"]
        limit = time.monotonic() + 40
        while True:
            parts = host_parts(s.get("/metrics").expect().body.decode())
            if parts:
                return parts
            check(time.monotonic() < limit, "no reading of the host memory")
            time.sleep(0.1)

    def __exit__(self, *_):
        served().post("/api/trace/%s/stop" % self.trace, {}).expect()
        served().wait_trace(self.trace)


# ---- tests ----

FIGURES = {"memtrace_allocated_bytes": "allocated", "memtrace_peak_allocated_bytes": "peak_allocated"}


def test_metrics():
    """Both formats, checked by Prometheus' tool and library, with PyTorch's figures; few labels, and a PID in only one series."""
    s = served()
    trace = captured()
    with at_rest() as figures:
        text, om = s.get("/metrics").expect(), s.get("/metrics", Accept="application/openmetrics-text;version=1.0.0,text/plain;q=0.5").expect()
    equal(text.type, "text/plain; version=0.0.4; charset=utf-8", "type")
    equal(om.type, "application/openmetrics-text; version=1.0.0; charset=utf-8", "type where OpenMetrics is asked for")
    equal(promtool("check", "metrics", stdin=text.body).strip(), "", "what promtool says of it")
    for what, answer in (("prometheus", text), ("openmetrics", om)):
        samples = judge(what, written("metrics-" + what, answer.body))
        for rank, labels in _shared["labels"].items():
            at = dict(labels, device="cuda:0")
            for name, of in FIGURES.items():
                equal([v for n, labels, v in samples if n == name and labels == at], [figures[rank][of]], "%s of rank %d in %s" % (name, rank, what))
        equal([n for n, labels, _ in samples if str(_shared["jobs"][0].pid) in labels.values()], ["memtrace_process_info"],
              "series with the PID in them")
        check(len(samples) < 150, "%d series of two processes", len(samples))
        check_capture(samples, trace)
    check({n for n, _, _ in samples} >= {"memtrace_serve_captures_total", "memtrace_serve_requests_total", "memtrace_build_info"}, "own figures")


def check_capture(samples, trace):
    at = {"target": "train", "device": "cuda:0"}
    peaks = [v for n, labels, v in samples if n == "memtrace_capture_peak_allocated_bytes" and labels == at]
    # Captures for profiles do not count.
    equal(peaks, [trace["peak_allocated"]], "peak of the last capture")
    for name in ("memtrace_capture_category_bytes", "memtrace_capture_line_bytes"):
        total = sum(v for n, labels, v in samples if n == name and {**labels, **at} == labels)
        equal(total, peaks[0], "sum of " + name)


def test_prometheus_answers_for_a_peak():
    p = asked()
    with at_rest() as figures:
        for rank in range(RANKS):
            for name, of in FIGURES.items():
                p.wait('%s{target="train",rank="%d"}' % (name, rank), lambda found, want=figures[rank][of]: [v for _, v in found] == [want])
        metric, _ = p.query('memtrace_peak_allocated_bytes{target="train",rank="1"}')[0]
        found = p.query('max by (target) (memtrace_peak_allocated_bytes)')
        equal(found, [({"target": "train"}, max(f["peak_allocated"] for f in figures))], "the job's peak")
    equal((metric["device"], metric["job"]), ("cuda:0", "memtrace-bpf"), "labels")
    # The series with the PID identifies the process.
    found = p.query('memtrace_peak_allocated_bytes * on (instance, target, process) group_left (pid) memtrace_process_info')
    equal({m["rank"]: m["pid"] for m, _ in found}, {str(r): str(job.pid) for r, job in enumerate(_shared["jobs"])}, "PIDs by a join")


def queries_of(dashboard):
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            yield panel["title"], target["expr"]


def answered(p, queries):
    for title, expr in queries:
        for variable, value in (("$__rate_interval", "10s"), ("$__range", "30s"), ("$instance", ".*"), ("$target", ".*")):
            expr = expr.replace(variable, value)
        check("$" not in expr, "%s: a variable that is not known: %s", title, expr)
        p.wait(expr, bool)


def test_dashboard_queries():
    """Each query of the Grafana dashboard has an answer for a live job."""
    captured()
    p = asked()
    dashboard = harness.read_json(os.path.join(DEPLOY, "grafana-dashboard.json"))
    asked_for = list(queries_of(dashboard))
    check(len(asked_for) > 20, "%d queries", len(asked_for))
    of_last = [q for q in asked_for if "memtrace_capture_host" in q[1]]
    with host_captured():
        answered(p, [q for q in asked_for if q not in of_last])
    answered(p, of_last)
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            metric, label = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable["definition"]).groups()
            values = p.get("/api/v1/label/%s/values" % label, **{"match[]": metric})
            check(values, "variable %s has no values", variable["name"])


def test_rules_are_evaluated():
    """Rules evaluated by Prometheus on the live job: no error, and no alert about broken servers."""
    p = asked()

    def rules():
        return [r for g in p.get("/api/v1/rules")["groups"] for r in g["rules"]]

    limit = time.monotonic() + 20
    while not all(r["health"] == "ok" for r in rules()):
        check(time.monotonic() < limit, "%s", [(r["name"], r["health"], r.get("lastError")) for r in rules() if r["health"] != "ok"])
        time.sleep(0.2)
    check(len(rules()) >= 16, "%d rules", len(rules()))
    p.wait("memtrace:fragmentation:ratio", lambda found: found and all(0 <= v < 1 for _, v in found))
    p.wait("memtrace:available:bytes", lambda found: found and all(v > 0 for _, v in found))
    active = [r["name"] for r in rules() if r.get("alerts")]
    equal([n for n in active if n.startswith("Memtrace") and n != "MemtracePushesFail"], [], "alerts that are active")
    said = promtool("test", "rules", os.path.join(REPO, "tests", "data", "prometheus-rules.test.yml"))
    check("SUCCESS" in said, "%s", said)


def test_go_pprof_over_http():
    """The request makes a capture; the profile's sum is the device's peak."""
    s = served()
    env = dict(os.environ, PPROF_TMPDIR=scratch("pprof"))
    done = subprocess.run([deps("pprof"), "-timeout", "60", "-top", "-nodefraction=0", "-unit=B", s.url + "/debug/pprof/heap?seconds=1&device=cuda:0&pid=%d" % _shared["jobs"][1].pid],
                          capture_output=True, text=True, env=env, timeout=60, check=False)
    check(done.returncode == 0, "go tool pprof: %s", done.stderr[-1000:])
    check("Type: inuse_space" in done.stdout and "served.py" not in done.stderr, "%s", done.stdout[:500])
    total = re.search(r"of (\d+)B total", done.stdout)
    flat = sum(int(n) for n in re.findall(r"^ *(\d+)B? +[\d.e-]+%", done.stdout, re.M))
    check(total and flat == int(total[1]), "%s, and lines add up to %d", total, flat)
    peak = _shared["jobs"][1].tell("figures")["peak_allocated"]
    check(0 < flat <= peak, "%d in use at the peak of a second, %d at the highest", flat, peak)


def test_profiles():
    """Profiles by PID, of an existing trace, and failures; captures made for profiles are deleted."""
    s = served()
    trace = captured()
    before = [t["trace_id"] for t in s.get("/api/trace/list").expect().json["traces"] if t.get("keep", True)]

    def traces(s):
        return [t["trace_id"] for t in s.get("/api/trace/list").expect().json["traces"]]

    of_trace = s.get("/debug/pprof/memory?trace_id=" + trace["trace_id"]).expect()
    equal(of_trace.type, "application/octet-stream", "type")
    equal(readers.pprof(written("trace.pb.gz", of_trace.body))["cuda:0", "peak"], trace["peak_allocated"], "peak in the profile of a trace")
    live = s.get("/debug/pprof/allocs?seconds=0.3&debug=0&pid=%d" % _shared["jobs"][0].pid).expect()
    check(readers.pprof(written("live.pb.gz", live.body))["cuda:0", "peak"] > 0, "nothing in the profile")
    for query, status in (("target=nobody", 404), ("target=train", 409), ("pid=1", 404), ("trace_id=trace_1", 404), ("seconds=0", 422), ("seconds=x", 422),
                          ("at=never", 422), ("device=gpu", 422)):
        answer = s.get("/debug/pprof/memory?" + query)
        equal(answer.status, status, "status of %s" % query)
        check(answer.json["detail"], "no words for %s", query)
    # A client that disconnects early leaves nothing either.
    with socket.create_connection((s.host, s.port)) as c:
        c.sendall(b"GET /debug/pprof/memory?seconds=1&pid=%d HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" % _shared["jobs"][0].pid)
        harness.until(lambda: traces(s) != before, "its capture")
    harness.until(lambda: traces(s) == before, "only the traces of before")


def test_ranks_of_the_last_captures():
    """Each rank is captured twice: the later captures are the job, also between captures for profiles."""
    s = served()
    pids = [job.pid for job in _shared["jobs"]]
    for _ in range(2):
        started = [s.post("/api/trace/memory", {"pid": pid, "steps": 2, "wait": False}).expect().json["trace_id"] for pid in pids]
        done = [s.wait_trace(trace_id) for trace_id in started]
    doc = s.get("/api/trace/ranks?job=train").expect().json
    equal([r["rank"] for r in doc["recordings"]], list(range(RANKS)), "ranks")
    equal([r["recording"] for r in doc["recordings"]], [t["file"].removesuffix(".mtr") for t in done], "recordings")


def form(headers, body):
    message = email.parser.BytesParser().parsebytes(b"Content-Type: %s\r\n\r\n%s" % (headers["Content-Type"].encode(), body))
    check(message.is_multipart(), "not a form: %s", headers["Content-Type"])
    return {p.get_param("name", header="Content-Disposition"): p.get_payload(decode=True) for p in message.get_payload()}


def test_profiles_are_pushed():
    """Profiles for Pyroscope, repeated after a refusal, with the token."""
    served()
    host = re.sub(r"[^\w.-]", "_", socket.gethostname())
    for rank in range(RANKS):
        name = "train{process=%s,rank=%d,hostname=%s}" % (_shared["labels"][rank]["process"], rank, host)
        check_pushed(rank, *_shared["profiles"].wait(lambda path, *_, name=name: parameters(path)["name"] == name))


def parameters(path):
    equal(path.partition("?")[0], "/ingest", "path")
    return dict(urllib.parse.parse_qsl(path.partition("?")[2], strict_parsing=True))


def check_pushed(rank, path, headers, body):
    query = parameters(path)
    equal((query["format"], query["spyName"]), ("pprof", "memtrace-bpf"), "format")
    check(0 <= int(query["until"]) - int(query["from"]) < 60 and abs(int(query["until"]) - time.time()) < 120, "times: %s", query)
    equal(headers["Authorization"], "Bearer " + TOKEN, "token")
    parts = form(headers, body)
    figures = readers.pprof(written("pushed.pb.gz", parts["profile"]))
    peak = _shared["jobs"][rank].tell("figures")["peak_allocated"]
    check(0 < figures["cuda:0", "peak"] <= peak, "pushed: %s; the highest is %d", figures, peak)
    types = json.loads(parts["sample_type_config"])
    equal(set(types), {"alloc_objects", "alloc_space", "inuse_objects", "inuse_space"}, "types of samples")
    equal(types["inuse_space"], {"units": "bytes", "display-name": "inuse_space", "aggregation": "average", "sampled": False}, "inuse_space")


def pushed_figures(body, like):
    """Figures of metrics whose names match, by rank."""
    found = {}
    for r in json.loads(body)["resourceMetrics"]:
        for m in r["scopeMetrics"][0]["metrics"]:
            for point in m.get("gauge", {}).get("dataPoints", []):
                labels = {a["key"]: a["value"]["stringValue"] for a in point["attributes"]}
                if m["name"] in like.get(labels["rank"], {}) and labels["device"] == "cuda:0":
                    found.setdefault(labels["rank"], {})[m["name"]] = int(point["asInt"])
    return found


def pushed_host(body):
    """Parts of the first rank's host memory in OTLP."""
    found = {}
    for r in json.loads(body)["resourceMetrics"]:
        for m in r["scopeMetrics"][0]["metrics"]:
            for point in m["gauge"]["dataPoints"] if m["name"] == "memtrace.host" else []:
                labels = {a["key"]: a["value"]["stringValue"] for a in point["attributes"]}
                if labels["rank"] == "0":
                    found[labels["part"]] = int(point["asInt"])
    return found


def test_host_memory_is_pushed():
    """Parts of the host memory of a running capture, as /metrics had them once: the kernel takes pages also from a process at rest."""
    s, seen = served(), []
    first = len(_shared["metrics"].taken)

    def pushed():
        seen.append(host_parts(s.get("/metrics").expect().body.decode()))
        return next((body for _, _, body in _shared["metrics"].taken[first:] if pushed_host(body) and pushed_host(body) in seen), None)

    with at_rest(), host_captured():
        body = harness.until(pushed, "a push of what /metrics had")
    parts = pushed_host(body)
    points = [p for p in judge("otlp", written("otlp.json", body)) if p[0] == "memtrace.host"]
    equal({p[4]["part"]: (p[1], p[2], p[5]) for p in points}, {part: ("By", "gauge", v) for part, v in parts.items()}, "points")


def test_metrics_are_pushed():
    """OTLP over TLS, parsed strictly with the protocol's own messages; the figures are PyTorch's."""
    s = served()
    with at_rest() as figures:
        wanted = {str(rank): {"memtrace.allocated": f["allocated"], "memtrace.peak_allocated": f["peak_allocated"]} for rank, f in enumerate(figures)}
        path, headers, body = _shared["metrics"].wait(lambda _p, _h, body: pushed_figures(body, wanted) == wanted)
    equal((path, headers["Content-Type"], headers["Authorization"]), ("/otlp/v1/metrics", "application/json", "Bearer " + TOKEN), "how it came")
    points = judge("otlp", written("otlp.json", body))
    for rank, labels in _shared["labels"].items():
        by_name = {p[0]: p for p in points if p[4].get("rank") == str(rank)}
        for name, of in (("memtrace.allocated", "allocated"), ("memtrace.peak_allocated", "peak_allocated")):
            _, unit, kind, resource, attributes, value = by_name[name]
            equal((unit, kind, attributes, value), ("By", "gauge", dict(labels, device="cuda:0"), figures[rank][of]), name)
        equal((resource["service.name"], resource["process.pid"], resource["host.name"]),
              ("train", _shared["jobs"][rank].pid, socket.gethostname()), "whose")
        equal(by_name["memtrace.ooms"][2], "sum", "kind of a count")
    # /metrics confirms the push.
    text = s.get("/metrics").expect().body.decode()
    sent = re.findall(r'^memtrace_serve_pushes_total\{to="otlp",result="(\w+)"\} (\d+)$', text, re.M)
    check(dict(sent).get("sent", "0") != "0" and dict(sent)["failed"] == "0", "counts of pushes: %s", sent)


# ---- files of tools/packaging/deploy ----

def options_of_serve():
    server.needs_serve()
    done = subprocess.run([harness.TOOL, "serve", "--help"], capture_output=True, text=True, timeout=30, check=False)
    return set(re.findall(r"--[a-z][a-z-]+", done.stdout))


def check_options(words, where):
    known = options_of_serve()
    for word in words:
        option = re.match(r"--[a-z-]+", word)
        check(not option or option[0] in known, "%s: serve has no %s", where, word)


def test_manifests():
    """Kubernetes' own schemas, strictly; all options exist, and capabilities are those needed for captures."""
    path = os.path.join(DEPLOY, "daemonset.yaml")
    kinds = ("NetworkPolicy", "ServiceAccount", "Service", "DaemonSet")
    equal(judge("manifests", path), [[k, "memtrace-bpf"] for k in kinds], "objects")
    pod = judge("yaml", path)[kinds.index("DaemonSet")]["spec"]["template"]["spec"]
    container = pod["containers"][0]
    equal(container["args"][0], "serve", "command")
    check_options(container["args"][1:], path)
    mounts, volumes = ({m["name"] for m in v} for v in (container["volumeMounts"], pod["volumes"]))
    equal(mounts, volumes, "volumes and where they are mounted")
    needed = {"BPF", "PERFMON", "SYS_PTRACE", "DAC_READ_SEARCH", "CHECKPOINT_RESTORE"}
    check(needed <= set(container["securityContext"]["capabilities"]["add"]), "capabilities")
    check(pod["hostPID"] and container["securityContext"]["readOnlyRootFilesystem"], "the pod")
    monitor = judge("yaml", os.path.join(DEPLOY, "podmonitor.yaml"))[0]
    ports = {p["name"] for p in container["ports"]}
    check({e["port"] for e in monitor["spec"]["podMetricsEndpoints"]} <= ports, "ports of the PodMonitor: %s", monitor)
    equal(monitor["spec"]["selector"]["matchLabels"], {"app.kubernetes.io/name": "memtrace-bpf"}, "whom the PodMonitor means")


def test_unit():
    path = os.path.join(DEPLOY, "memtrace-bpf-serve.service")
    with open(path, encoding="utf-8") as f:
        unit = f.read()
    check_options([w for line in re.findall(r"^(?:ExecStart|Environment)=(.*)$|^#   MEMTRACE_SERVE=(.*)$", unit, re.M) for w in " ".join(line).split()], path)
    if not shutil.which("systemd-analyze"):
        raise Skip("systemd-analyze is not here")
    copy = written("memtrace-bpf-serve.service", unit.replace("@BINDIR@/memtrace-bpf", harness.TOOL).encode())
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", copy], capture_output=True, text=True, timeout=30, check=False)
    equal((done.returncode, done.stderr.strip()), (0, ""), "systemd-analyze verify")


def test_config_and_dashboard():
    promtool("check", "config", os.path.join(DEPLOY, "prometheus.yml"))
    promtool("check", "rules", os.path.join(DEPLOY, "prometheus-rules.yml"))
    dashboard = harness.read_json(os.path.join(DEPLOY, "grafana-dashboard.json"))
    ids = [p["id"] for p in dashboard["panels"]]
    equal(len(set(ids)), len(ids), "numbers of panels")
    taken = set()
    for p in dashboard["panels"]:
        g = p["gridPos"]
        check(g["x"] >= 0 and g["x"] + g["w"] <= 24, "%s is beside the grid", p["title"])
        cells = {(x, y) for x in range(g["x"], g["x"] + g["w"]) for y in range(g["y"], g["y"] + g["h"])}
        check(not cells & taken, "%s lies over another", p["title"])
        taken |= cells
        if p["type"] != "row":
            check(all(t["datasource"]["uid"] == "${datasource}" for t in p["targets"]), "%s is of one data source", p["title"])


def test_it_all_ends():
    """The server and its children end in time, also during pushes."""
    if "server" not in _shared:
        raise Skip("nothing was started")
    if "prometheus" in _shared:
        _shared["prometheus"].process.stop()
    _shared["server"].stop()
    for job in _shared["jobs"]:
        job.end()
    for receiver in (_shared["profiles"], _shared["metrics"]):
        receiver.shutdown()


if __name__ == "__main__":
    run(globals())

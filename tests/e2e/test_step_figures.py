#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# run: cpu=60
"""Step figures of a running job (record --figures), as the wheel's module memtrace_bpf.figures reads them and hands them on."""
import errno
import glob
import importlib.util
import json
import os
import socket
import struct
import subprocess
import sys
import types

import harness
import parquet
import readers
import server
from harness import AS_NOBODY, IS_ROOT, REPO, WORKLOADS, Skip, check, equal, own, python, run, scratch, spawn, spawn_job, tool, until

MODULE = os.path.join(REPO, "tools", "packaging", "wheel", "figures.py")
MIB = 1 << 20
SIZES = (40, 10, 70, 20)  # MiB of the steps


def module():
    spec = importlib.util.spec_from_file_location("figures", MODULE)
    m = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(m)
    return m


figures = module()


class Job:
    """A job in the dry run that does what it is told: tests/workloads/logged.py."""

    def __init__(self, *more, start=spawn_job, role="main", **env):
        libraries = " ".join(os.path.join(harness.OUT, "dryrun", name) for name in ("libcuda.so.1", "libnvidia-ml.so.1"))
        self.p = start([python(role), os.path.join(WORKLOADS, "logged.py"), MODULE, *more], env={**os.environ, "LD_PRELOAD": libraries, **env})
        self.pid, self.n = self.p.pid, 0
        self.p.wait_line("^ready", 120)

    def do(self, *words):
        self.p.send(" ".join(map(str, words)) + "\n")
        self.n += 1
        return json.loads(self.p.wait_line(r"^done %d " % self.n, 60).split(None, 2)[2])

    def record(self, path, *options):
        p = spawn([harness.TOOL, "record", "-p", str(self.pid), "--figures", "-f", "-o", path, *options], root=True)
        p.wait_line("attached to PID", 60, stream="err")
        return p


class Watch:
    """What a reader has read so far."""

    def __init__(self, *args, **kwargs):
        self.reader, self.steps = figures.Reader(*args, **kwargs), []

    def until(self, good, what):
        def look():
            self.steps += self.reader.read()
            return good()
        until(look, what, 60)


def of_recording(path, device="cuda:0"):
    """[(the job's number or None, peak, live bytes at the end)] of the steps on a device, as `export parquet` has them."""
    own(path)
    code, _, err = tool("export", "parquet", "-f", path, "-o", path + ".tables")
    equal(code, 0, "export parquet (%s)" % err)
    rows = [r for name in glob.glob(os.path.join(path + ".tables", "steps", "*", "*", "*.parquet")) for r in parquet.read(name)]
    return [(r["job_step"], r["peak_allocated"], r["end_allocated"]) for r in rows if r["device"] == device]


def of_step(step, device="cuda:0"):
    d, = [d for d in step.devices if d["device"] == device]
    return step.number, d["peak_allocated"], d["allocated"]


def event_file(folder):
    """[(step, {tag: value})] of the event file in the folder, read by the bytes."""
    name, = os.listdir(folder)
    check("tfevents" in name, "%s: TensorBoard does not read it", name)
    with open(os.path.join(folder, name), "rb") as f:
        raw = f.read()
    at, found = 0, []
    while at < len(raw):
        length, check_length = struct.unpack_from("<QI", raw, at)
        data = raw[at + 12:at + 12 + length]
        equal((check_length, struct.unpack_from("<I", raw, at + 12 + length)[0]), (readers.masked(raw[at:at + 8]), readers.masked(data)), "checksums")
        at += length + 16
        event = dict(readers.fields(data))
        values = {}
        for _, value in readers.fields(event.get(5, b"")):
            value = dict(readers.fields(value))
            values[value[1].decode()] = value[2]
        if values:
            found.append((event[2], values))
        else:
            equal(event[3], b"brain.Event:2", "version")
    return found


def test_equal_to_torch_and_the_report():
    """Peak, live and reserved bytes of each step are PyTorch's and the report's; so are those of scopes. A writer that was there before
    the recorder, and outlives one recorder, has all steps of both."""
    job, folder = Job(), scratch("runs")
    writer = spawn([sys.executable, MODULE, "tensorboard", "--logdir", folder, "-p", str(job.pid)])
    watch, told, recorded, runs = Watch(job.pid), [], [], []
    for part in range(2):
        path = scratch("figures-%d.mtr" % part)
        recorder = job.record(path, "--scope", "make_samples")
        watch.until(lambda: watch.reader.recorders and writer.stdout().count("reads a recorder") == part + 1, "the recorder's socket")
        told.append(job.do("step", 5))
        for mib in SIZES:
            told.append(job.do("step", mib))
            job.do("hold", mib)
        if part:
            job.p.send("")
            job.p.stop()
        else:
            harness.interrupt(recorder)
        equal(recorder.wait(60), 0, "exit code of record: %s" % recorder.stderr())
        watch.until(lambda: job.pid in watch.reader.ends and not watch.reader.recorders, "the end of the recorder")
        del watch.reader.ends[job.pid]
        recorded += of_recording(path)
        doc = json.loads(tool("report", "--json", "--scope", "make_samples", path)[1])
        names = [s["name"] for s in doc["scopes"]["scopes"]]
        of_part = [(names[r["scope"]], d["peak_allocated"], d["kept"]) for r in doc["scopes"]["runs"] if r["ended"] for d in r["devices"] if d["device"] == "cuda:0"]
        equal(of_part.pop()[0], "update", "the last run: it ends after the last step")
        runs += of_part
    n = len(told)
    equal(len(watch.steps), n, "steps")
    # The recording of a job that was killed lacks the optimizer's last count: the reader counts on.
    equal([of_step(s) for s in watch.steps], [(r[0] or s.number, *r[1:]) for r, s in zip(recorded, watch.steps)], "figures of the steps, and of the recordings")
    equal([s.number for s in watch.steps], list(range(2, n + 2)), "the job's own numbers")
    of_torch = [(t["peak"], t["allocated"]) for t in told]
    whole = [i for i, s in enumerate(watch.steps) if s.whole]
    check(len(whole) >= n - 2, "whole steps: %s", whole)
    equal([of_step(watch.steps[i])[1:] for i in whole], [of_torch[i] for i in whole], "figures, and PyTorch's")
    equal([s.devices[0]["reserved"] for s in watch.steps], [t["reserved"] for t in told], "reserved bytes, and PyTorch's")
    found = [(r["scope"], d["peak_allocated"], d.get("kept")) for s in watch.steps for r in s.scopes for d in r["devices"] if d["device"] == "cuda:0"]
    for name in ("make_samples", "update"):  # a function, and a phase of the job
        equal([f for f in found if f[0] == name], [r for r in runs if r[0] == name], "runs of " + name)
        check(len([f for f in found if f[0] == name]) >= n - 2, "runs of %s: %s", name, found)
    check(all(s.by == "optimizer" and s.rank is None for s in watch.steps), "steps of another kind")
    equal(writer.wait(60), 0, "exit code of the writer (%s)" % writer.stderr())
    check("%d steps written" % n in writer.stdout(), "the writer said: %s", writer.stdout())
    events = event_file(folder)
    equal([(step, v["memtrace/cuda_0/peak_MiB"] * MIB, v["memtrace/cuda_0/allocated_MiB"] * MIB, v["memtrace/cuda_0/reserved_MiB"] * MIB) for step, v in events],
          [(*of_step(s), t["reserved"]) for s, t in zip(watch.steps, told)], "event file")


def test_calls_of_several_processes():
    """Jobs without an optimizer: a step is a call of the model. One recorder of two processes; a reader of all gets both."""
    jobs = [spawn_job([python(), os.path.join(WORKLOADS, "inference.py"), "--seconds", "600", "--pause", "0.02"]) for _ in range(2)]
    for job in jobs:
        job.wait_line("ready", 120)
    folder = scratch("both") + "/"
    recorder = spawn([harness.TOOL, "record", *(o for j in jobs for o in ("-p", str(j.pid))), "--figures", "-f", "-o", folder], root=True)
    watch, written = Watch(None), scratch("both-runs")
    writer = spawn([sys.executable, MODULE, "tensorboard", "--logdir", written])
    watch.until(lambda: watch.reader.recorders and "reads a recorder" in writer.stdout(), "the recorder's socket")

    def has_calls():
        code, out, _ = tool("ctl", "--format", "json", "-p", str(recorder.pid), "status", root=True)
        return code == 0 and [p["captured"] > 2000 for p in json.loads(out)["processes"]] == [True, True]
    until(has_calls, "some calls of both", 60)
    harness.interrupt(recorder)
    watch.until(lambda: {j.pid for j in jobs} <= set(watch.reader.ends), "the end of both")
    writer.wait_line("waits for a recorder", 60)
    harness.finish(writer)
    events = event_file(written)
    for job in jobs:
        job.stop()
        path = os.path.join(folder, "inference-%d.mtr" % job.pid)
        steps = [s for s in watch.steps if s.pid == job.pid]
        check(len(steps) > 5 and {s.by for s in steps} == {"call"}, "steps: %s", steps)
        equal([of_step(s, "cpu") for s in steps], [(i + 1, *r[1:]) for i, r in enumerate(of_recording(path, "cpu"))], "figures of PID %d" % job.pid)
        name = "memtrace/pid_%d/cpu/peak_MiB" % job.pid
        equal([v[name] * MIB for _, v in events if name in v], [of_step(s, "cpu")[1] for s in steps], "event file")


def test_runs_without_steps():
    """A server that calls no module: the runs of its phase have figures, while it runs and at the end of the recording."""
    job, path = Job(MODULE), scratch("server.mtr")
    recorder, watch = job.record(path), Watch(job.pid)
    told = [job.do("request", mib) for mib in SIZES]
    watch.until(lambda: watch.steps, "the first runs")
    told.append(job.do("request", 90))
    harness.interrupt(recorder)
    equal(recorder.wait(60), 0, "exit code of record: %s" % recorder.stderr())
    watch.until(lambda: job.pid in watch.reader.ends, "the end of the recorder")
    job.p.stop()
    equal([(s.by, s.number, s.scopes[0]["runs"]) for s in watch.steps], [("scope", 4, 4), ("scope", 5, 1)], "runs")
    for step, of in zip(watch.steps, (told[:4], told[4:])):
        at = "memtrace/scope/request/cuda_0/"
        equal({n: v for n, v in step.values().items() if "/cpu/" not in n},
              {"memtrace/scope/request/run": step.number, at + "peak_MiB": max(t["peak"] for t in of) / MIB,
               at + "reserved_MiB": max(t["reserved"] for t in of) / MIB, at + "kept_MiB": 1.0}, "figures")


def test_latest_in_the_job():
    """latest() of the job itself: nothing without a recorder; then the values of its last step, also where they come late."""
    job = Job()
    equal(job.do("latest"), {}, "without a recorder")
    recorder = job.record(scratch("latest.mtr"))
    last = {}

    def follow():
        told, latest = job.do("step", 8), job.do("latest")
        if latest:
            last.update(latest=latest, told=told)
        return latest
    until(follow, "figures in the job", 60)
    steps = job.n
    until(lambda: last.update(latest=job.do("latest")) or last["latest"]["memtrace/step"] > 2, "the last step", 60)
    check(last["latest"]["memtrace/step"] <= steps, "steps: %s of %d", last["latest"], steps)
    equal((last["latest"]["memtrace/cuda_0/peak_MiB"] * MIB, last["latest"]["memtrace/cuda_0/reserved_MiB"] * MIB), (last["told"]["peak"], last["told"]["reserved"]), "values")
    harness.interrupt(recorder)
    until(lambda: not job.do("latest"), "no figures after the recorder's end", 60)
    job.p.stop()


def test_a_capture_of_serve():
    """serve --figures: the steps of a capture come while it runs, on the recorder's socket and as events of the server's streams."""
    server.needs_serve()
    job = Job()
    s = server.Server("--figures", "--target", "job=%d" % job.pid)
    started = s.post("/api/trace/memory", {"model_name": "job", "steps": 4, "wait": False}).expect().json
    of_all, of_trace = s.events("/api/stream"), s.events("/api/trace/%s/stream" % started["trace_id"])
    watch = Watch(job.pid)
    watch.until(lambda: watch.reader.recorders, "the recorder's socket")
    s.wait_trace(started["trace_id"], ("capturing",))

    def follow():
        job.do("step", 8)
        return job.pid in watch.reader.ends
    watch.until(follow, "the end of the capture")
    s.wait_trace(started["trace_id"])
    own_file = scratch("capture.mtr")
    with open(own_file, "wb") as f:
        f.write(s.get("/api/trace/%s/recording" % started["trace_id"]).expect().body)
    recorded = of_recording(own_file)
    equal([of_step(x)[1:] for x in watch.steps][:len(recorded)], [r[1:] for r in recorded], "figures of the steps, and of the capture")
    events = list(of_trace)
    equal(([name for name, _ in events][-1], {e["trace_id"] for name, e in events if name == "step"}), ("end", {started["trace_id"]}), "events of the trace")
    equal([figures.step_of(e).values() for name, e in events if name == "step"], [x.values() for x in watch.steps], "steps of the stream, and of the socket")
    seen = []
    for name, e in of_all:
        seen += [e] if name == "step" else []
        if name == "trace" and e["state"] == "done":
            break
    equal(seen, [e for name, e in events if name == "step"], "steps of the stream of all")
    of_all.close()
    of_trace.close()
    s.stop()
    job.p.stop()


def test_only_the_jobs_user():
    """Another user gets nothing, the job's own user everything; a socket in a folder of others is not believed."""
    if not IS_ROOT:
        raise Skip("needs root, to run programs as somebody else")
    ask = "import sys; sys.path.insert(0, %r); import figures; r = figures.Reader(int(sys.argv[1])); r.read(3); print(sum(1 for x in r.recorders.values() if x.you))"
    job = Job()
    recorder = job.record(scratch("user.mtr"))
    job.do("step", 5)
    folder = scratch("module")
    os.mkdir(folder)
    os.chmod(folder, 0o755)
    subprocess.run(["cp", MODULE, folder], check=True)
    command = [sys.executable, "-c", ask % folder, str(job.pid)]
    as_nobody = subprocess.run([*AS_NOBODY, "/usr/bin/python3", *command[1:]], capture_output=True, text=True)
    equal((as_nobody.stdout, as_nobody.stderr), ("0\n", ""), "recorders that greet nobody")
    equal(subprocess.run(command, capture_output=True, text=True).stdout, "1\n", "recorders that greet root")
    path, = glob.glob("/run/memtrace-bpf-figures/%d.*.sock" % job.pid)
    knock = "import socket; print(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET).connect_ex(%r))" % path
    errors = {0o660: "%d\n" % errno.EACCES, 0o666: "0\n"}  # the latter where the file system has no access control lists
    equal(subprocess.run([*AS_NOBODY, "/usr/bin/python3", "-c", knock], capture_output=True, text=True).stdout, errors[os.stat(path).st_mode & 0o777],
          "error when nobody opens the socket")
    harness.interrupt(recorder)
    job.p.stop()
    open_folder = scratch("open")
    os.mkdir(open_folder)
    os.chmod(open_folder, 0o777)
    before, figures.folders = figures.folders, lambda: [open_folder]
    try:
        with Fake(open_folder) as fake:
            equal(Watch(None).reader.read(), [], "steps")
            check(not fake.connections(), "a folder that others can write to was read")
    finally:
        figures.folders = before


class Fake:
    """A recorder that sends what it is told."""

    def __init__(self, folder):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.bind(os.path.join(folder, "4242.1.sock"))
        self.socket.listen(8)
        self.peers = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for s in [self.socket, *self.peers]:
            s.close()

    def connections(self):
        self.socket.setblocking(False)
        try:
            while True:
                self.peers.append(self.socket.accept()[0])
        except BlockingIOError:
            return len(self.peers)

    def send(self, message):
        self.peers[-1].send(message if isinstance(message, bytes) else json.dumps(message).encode())


def step_message(**more):
    return {"kind": "step", "pid": 4242, "by": "optimizer", "step": 1, "start": 1.5, "end": 2.0, "time": 1e9, "whole": True, "lost": 0,
            "devices": [{"device": "cuda:0", "allocated": 5 * MIB, "peak_allocated": 7 * MIB + 1, "reserved": 8 * MIB}], **more}


def reader_of_fake(fake, folder, pid=4242):
    reader = figures.Reader(pid, folder)
    equal(reader.read(), [], "steps before there are any")
    equal(fake.connections(), 1, "connections")
    fake.send({"kind": "hello", "capturer": 1, "you": os.getpid(), "version": "0"})
    return reader


HOSTILE = (b"", b"{", b"[]", b"null", b"\xff\xfe", b"1" * 5000, b"[" * 60000, b'{"kind":"step","pid":4242,"step":NaN}', step_message(step=-1), step_message(step=True),
           step_message(step=1 << 64), step_message(step=None), step_message(start="1"), step_message(by=["optimizer"]), step_message(devices={"device": 1}),
           step_message(devices=[{}] * 65), step_message(devices=[{"device": "x" * 129, "allocated": 1, "peak_allocated": 1}]), step_message(host=[1]),
           step_message(host={"resident": -1}), step_message(scopes=[{"scope": "f", "runs": 1, "devices": [{"device": "cpu"}]}]), step_message(time=1e300),
           step_message(devices=[{"device": "cpu", "allocated": 1, "peak_allocated": 1, "growth_per_step": "1"}]), step_message(pid="4242"))


def test_hostile_answers():
    """A message that is none is left out and counted, whatever it is; the next one is read. Names cannot leave their place."""
    folder = scratch("fake")
    os.mkdir(folder)
    with Fake(folder) as fake:
        reader = reader_of_fake(fake, folder)
        for i, message in enumerate(m for m in HOSTILE if m != b""):
            fake.send(message)
            fake.send(step_message(step=i + 1))
            steps = reader.read()
            equal(([s.number for s in steps], reader.damaged), ([i + 1], i + 1), "after %r" % (message if isinstance(message, dict) else message[:80],))
        fake.send(step_message(step=99, devices=[{"device": "../../é\n", "allocated": 1, "peak_allocated": 1}], pid=4242))
        fake.send(step_message(step=100, pid=77))  # of another process
        step, = reader.read()
        equal([n for n in step.values() if "peak" in n], ["memtrace/.._..___/peak_MiB"], "a name with everything in it")
        fake.send(b"x" * 70000)  # longer than a message may be
        equal((reader.read(), len(reader.recorders)), ([], 1), "a message that is too long")


def test_recorders_that_come_and_go():
    """Steps without the job's own numbers are counted on over a restart; of two recorders of a process one counts."""
    folder = scratch("restart")
    os.mkdir(folder)
    with Fake(folder) as fake:
        reader = reader_of_fake(fake, folder)
        for n in (1, 2, 3):
            fake.send(step_message(step=n))
        equal([s.number for s in reader.read()], [1, 2, 3], "of the first recorder")
        fake.send({"kind": "end", "pid": 4242, "reason": "signal"})
    equal((reader.read(), reader.ends, reader.recorders), ([], {4242: "signal"}, {}), "after its end")
    os.unlink(os.path.join(folder, "4242.1.sock"))
    with Fake(folder) as fake:
        reader.looked = None
        reader.read()
        fake.connections()
        for n in (1, 2):
            fake.send(step_message(step=n))
        fake.send(step_message(step=3, job_step=1007))
        equal([s.number for s in reader.read()], [4, 5, 1007], "of the second one")
    reader.close()


class StandIn:
    """Notes the calls of a client, by name."""

    def __init__(self):
        self.calls = []

    def __getattr__(self, name):
        return lambda *args, **kwargs: self.calls.append((name, args, kwargs))


def test_stand_in_clients():
    """The calls that W&B's and MLflow's clients get: an axis of its own for W&B, numbers of steps and times for MLflow."""
    values, run_, client = {"memtrace/step": 7, "memtrace/cuda_0/peak_MiB": 7.25}, StandIn(), StandIn()
    log = figures.Wandb(run_)
    for _ in range(2):
        log.log(values, 7, 1e9)
    log.close()
    equal(run_.calls, [("define_metric", ("memtrace/step",), {}), ("define_metric", ("memtrace/*",), {"step_metric": "memtrace/step"}),
                       ("log", (values,), {}), ("log", (values,), {})], "calls of W&B; a run of the caller's is not ended")
    entities, tracking = types.ModuleType("mlflow.entities"), types.ModuleType("mlflow.tracking")
    entities.Metric = lambda *args: args
    tracking.MlflowClient = lambda tracking_uri: client
    sys.modules.update({"mlflow": types.ModuleType("mlflow"), "mlflow.entities": entities, "mlflow.tracking": tracking})
    try:
        log = figures.MLflow("the run")
    finally:
        for name in ("mlflow", "mlflow.entities", "mlflow.tracking"):
            del sys.modules[name]
    log.log(values, 7, 1.5)
    log.close()
    equal(client.calls, [("log_batch", ("the run",), {"metrics": [("memtrace/cuda_0/peak_MiB", 7.25, 1500, 7)]})], "calls of MLflow")


def test_large_sizes_in_tensorboard():
    """Sizes that no float of 32 bits has: both values together are exact."""
    folder = scratch("large")
    log, sizes = figures.TensorBoard(folder), [80 * 1024 * MIB + 512, 3 * MIB, (1 << 40) - 1]
    for n, size in enumerate(sizes):
        log.log({"memtrace/step": n, "memtrace/cuda_0/peak_MiB": size / MIB}, n + 1, 1e9)
    log.close()
    name = "memtrace/cuda_0/peak_"
    equal([(step, v[name + "MiB"] * MIB + v.get(name + "rest_bytes", 0)) for step, v in event_file(folder)], list(enumerate(sizes, 1)), "sizes")
    equal([name + "rest_bytes" in v for _, v in event_file(folder)], [True, False, True], "values of their own")


def test_errors():
    for options, status, text in (((), 2, "required"), (("tensorboard",), 2, "--logdir"), (("tensorboard", "--logdir", scratch("none"), "-p", "999999999"), 1, "no process has the PID"),
                                  (("wandb",), 1, "this Python has no wandb")):
        done = subprocess.run([sys.executable, MODULE, *options], capture_output=True, text=True)
        check(done.returncode == status and text in done.stderr, "%s: exit %d, %s", options, done.returncode, done.stderr)


if __name__ == "__main__":
    run(globals())

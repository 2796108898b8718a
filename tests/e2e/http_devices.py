#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# run: long cpu=60
"""`GET /api/devices` of `serve` and the metrics of GPUs: the rows of `ps --device`. NVML is the dry run's."""
import json
import os
import re
import signal
import sys
import threading
import time

import harness
import server
import test_json_schema
from harness import OUT, Skip, check, equal, run, scratch, spawn, tool, until

DRYRUN = os.path.join(OUT, "dryrun")
MIB = 1 << 20


def machine(*lines, devices=1):
    path = scratch("machine-%d" % time.monotonic_ns())
    with open(path, "w", encoding="ascii") as f:
        f.write("".join(line + "\n" for line in lines))
    os.chmod(path, 0o644)
    return {**os.environ, "LD_LIBRARY_PATH": DRYRUN, "MEMTRACE_DRYRUN_NVML": path, "MEMTRACE_DRYRUN_DEVICES": str(devices)}


def sleeper(**env):
    return spawn([sys.executable, "-c", "import time; time.sleep(600)"], env={**os.environ, **env}).pid


def served(env, *args):
    if not harness.IS_ROOT:
        raise Skip("needs root, to look at processes")
    if not os.path.exists(os.path.join(DRYRUN, "libnvidia-ml.so.1")):
        raise Skip("the dry run's libraries are not built")
    return server.Server(*(args or ("--target", "job=%d" % sleeper())), env=env)


def stable(document):
    """A document without what changes from look to look, and without processes that other tests run."""
    for device in document["devices"]:
        device["holders"] = [h for h in device["holders"] if h["kinds"]]
        for h in device["holders"]:
            for key in ("age", "idle", "idle_by", "reason", "state"):
                h.pop(key)
    return document["devices"]


def test_same_rows():
    """The document of `ps --device --format json`: also processes of no target, slices, hidden memory and the rest."""
    mine, other = sleeper(), sleeper()
    env = machine("process 0 %d 4G" % mine, "process 0 %d 3G mps" % other, "process 0 1 2G", "more 0 3M", "reserved 0 450M", "mig 1 1", "slice 1 3 20G", "process 1 %d 1G slice=3" % mine, devices=2)
    s = served(env)
    document = s.get("/api/devices").expect().json
    test_json_schema.validate([["/api/devices", "ps", document]])
    code, out, err = tool("ps", "--device", "--format", "json", root=True, env=env)
    equal(code, 0, "ps --device: %s" % err)
    equal(stable(document), stable(json.loads(out)), "rows")
    d = document["devices"][0]
    equal(sum(h["bytes"] for h in d["holders"]) + d["hidden"] + d["reserved_by_driver"] + d["not_explained"], d["used"], "sum of the rows")
    equal({(h["pid"], h["bytes"]) for h in d["holders"]}, {(mine, 4 << 30), (other, 3 << 30), (1, 2 << 30)}, "holders")
    equal(s.get("/api/devices?device=0").status, 422, "a parameter")
    check("/api/devices" in s.get("/api/openapi.json").expect().json["paths"], "the schema has no such path")


def metrics(s):
    return s.get("/metrics").expect().body.decode()


def samples(text, name):
    return {labels: int(value) for labels, value in re.findall(r"^memtrace_gpu_%s_bytes\{(.*)\} (-?\d+)$" % name, text, re.M)}


def test_metrics():
    """Each scrape asks for a look, and shows the last one. The figures add up to what is used; the labels are dcgm-exporter's."""
    mine = sleeper(SLURM_JOB_ID="7714")
    s = served(machine("process 0 %d 4G" % mine, "process 0 1 2G", "more 0 3M", "reserved 0 450M"), "--target", "job=%d" % mine)
    uuid = s.get("/api/devices").expect().json["devices"][0]["uuid"]
    text = until(lambda: (x := metrics(s)) and "memtrace_gpu_process_bytes{" in x and x, "figures of GPUs", 60)
    gpu = 'UUID="%s",gpu="0"' % uuid
    held = samples(text, "process")
    equal(held, {'%s,pid="%d",user="root"' % (gpu, mine): 4 << 30, '%s,pid="1",user="root"' % gpu: 2 << 30}, "processes")
    parts = sum(held.values()) + sum(samples(text, name)[gpu] for name in ("driver_reserved", "hidden", "not_explained"))
    equal((parts, samples(text, "used")[gpu] + samples(text, "free")[gpu]), (samples(text, "used")[gpu], samples(text, "memory")[gpu]), "sums")
    check(abs(time.time() - float(re.search(r"^memtrace_gpu_sample_timestamp_seconds ([\d.]+)$", text, re.M)[1])) < 120, "time: %s", text)
    check("time.sleep" not in text, "a command line is in a label")
    check(re.search(r'^memtrace_process_info\{.*pid="%d",hpc_job="7714"\} 1$' % mine, text, re.M), "the job in Slurm: %s", text)


def ended(text, result):
    return int(re.search(r'^memtrace_serve_gpu_looks_total\{result="%s"\} (\d+)$' % result, text, re.M)[1])


def test_driver_that_is_not_ready():
    """A look without any GPU does not replace the last one that has figures."""
    env = machine("process 0 1 2G")
    s = served(env)
    text = until(lambda: (x := metrics(s)) and "memtrace_gpu_process_bytes{" in x and x, "figures of GPUs", 60)
    with open(env["MEMTRACE_DRYRUN_NVML"], "a", encoding="ascii") as f:
        f.write("hang\n")
    # The next look may have begun before.
    text = until(lambda: ended(x := metrics(s), "done") > ended(text, "done") + 1 and x, "two more looks", 120)
    if s.get("/api/devices").expect().json["devices"]:
        raise Skip("another process has a device node open")
    check("memtrace_gpu_process_bytes{" in text, "no figures: %s", text)


def looks(s):
    """The processes of `ps --device` that the server runs, without their helpers."""
    found = []
    for pid in harness.children_of(s.process.pid):
        try:
            with open("/proc/%d/cmdline" % pid, "rb") as f:
                if b"\0ps\0--device\0" in f.read():
                    found.append(pid)
        except OSError:
            pass
    return found


def test_driver_that_hangs():
    """The answer has what /proc shows. Nothing else waits for it, and requests share one look. One that does not end is given up."""
    s = served(machine("process 0 1 2G", "hang"))
    answers = []
    threads = [threading.Thread(target=lambda: answers.append(s.connect(90).get("/api/devices"))) for _ in range(2)]
    for t in threads:
        t.start()
    (look,) = until(lambda: looks(s), "the look", 20)
    os.kill(look, signal.SIGSTOP)
    s.get("/api/health").expect()
    check("memtrace_gpu_" not in metrics(s), "figures of GPUs")
    equal((answers, looks(s)), ([], [look]), "answers about GPUs before the other answers, and looks at a time")
    for t in threads:
        t.join(90)
    equal([a.status for a in answers], [503, 503], "answers about a look that does not end")
    check("has taken 30 s" in answers[0].json["detail"], "detail: %s", answers[0].json)
    until(lambda: ended(metrics(s), "failed"), "the look that failed is counted", 20)
    until(lambda: not looks(s), "the end of the look", 20)
    without_figures(s.connect(90).get("/api/devices"), "was not ready within 10 s")


def without_figures(a, why):
    """Other tests may have device nodes open. Then there is a table without figures, otherwise none."""
    document = a.expect().json
    test_json_schema.validate([["/api/devices", "ps", document]])
    for d in document["devices"] or [document]:
        check(why in d["why"] and d.get("used") is None, "%s: %s", why, d)


def test_without_gpus():
    s = served(dict(os.environ))
    without_figures(s.get("/api/devices"), "no libnvidia-ml.so.1")
    metrics(s)
    # This answer comes after the look that the metrics began.
    s.get("/api/devices").expect()
    check(not re.search(r"^memtrace_gpu_\w+_bytes\{", metrics(s), re.M), "figures of GPUs")


def test_recordings_only():
    """A server without targets looks at no processes."""
    s = served(machine("process 0 1 2G"), "--max-traces", "5")
    a = s.get("/api/devices")
    check(a.status == 503 and "no target was given" in a.json["detail"], "without targets: %d %s", a.status, a.body)


if __name__ == "__main__":
    run(globals())

#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# run: nightly=programs long cpu=300
"""Step figures in TensorBoard, W&B (offline) and MLflow (a local server), read back by their own code: the recording's, to the byte."""
import glob
import json
import os
import socket
import subprocess

import harness
from harness import REPO, check, equal, python, run, scratch, spawn, until
from test_step_figures import MIB, MODULE, Job, Watch, of_recording, of_step

SIZES = (40, 10, 70, 20, 30, 60)


def read_back(*words):
    done = subprocess.run([python("loggers"), os.path.join(REPO, "tests", "foreign", "read_loggers.py"), *words], capture_output=True, text=True)
    equal(done.returncode, 0, "reading of %s (%s)" % (words, done.stderr[-2000:]))
    return {int(step): values for step, values in json.loads(done.stdout).items()}


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def served(folder, *words):
    """A server of Python, with its port as the last word, and its address once it answers."""
    port = free_port()
    p = spawn([python("loggers"), "-m", *words, str(port)], cwd=folder, session=True)

    def answers():
        with socket.socket() as s:
            return s.connect_ex(("127.0.0.1", port)) == 0
    until(answers, "the server of " + words[0], 180)
    return p, "http://127.0.0.1:%d" % port


def mlflow_server(folder):
    return served(folder, "mlflow", "server", "--backend-store-uri", "sqlite:///%s/mlflow.db" % folder, "--default-artifact-root", folder, "--host", "127.0.0.1",
                  "--workers", "1", "--port")


def writers(job, folder, uri):
    env = {**os.environ, "WANDB_MODE": "offline", "WANDB_DIR": folder, "WANDB_SILENT": "true"}
    for kind, *options in (("tensorboard", "--logdir", os.path.join(folder, "runs")), ("wandb", "--project", "memory", "--name", "offline"),
                           ("mlflow", "--tracking-uri", uri, "--experiment", "memory", "--run-name", "local")):
        p = spawn([python("loggers"), MODULE, kind, *options, "-p", str(job.pid)], env=env, cwd=folder)
        yield p
        p.wait_line("waits for a recorder", 60)


def test_loggers_own_readers():
    folder = scratch("loggers")
    os.mkdir(folder)
    server, uri = mlflow_server(folder)
    job, path = Job(), scratch("loggers.mtr")
    started = list(writers(job, folder, uri))
    recorder = job.record(path, "--scope", "make_samples")
    watch = Watch(job.pid)
    watch.until(lambda: watch.reader.recorders, "the recorder")
    for p in started:
        p.wait_line("reads a recorder", 60)
    told = [job.do("step", 5)]
    for mib in SIZES:
        told.append(job.do("step", mib))
        job.do("hold", 3)
    harness.interrupt(recorder)
    equal(recorder.wait(60), 0, "exit code of record: %s" % recorder.stderr())
    watch.until(lambda: job.pid in watch.reader.ends, "the end of the recorder")
    job.p.stop()
    for p in started:
        equal(p.wait(120), 0, "exit code of %s: %s" % (p.name(), p.stderr()))
    recorded = of_recording(path)
    equal([of_step(s) for s in watch.steps], recorded, "steps, and the recording's")
    offline, = glob.glob(os.path.join(folder, "wandb", "offline-run-*", "*.wandb"))
    board, address = served(folder, "tensorboard.main", "--logdir", "runs", "--port")
    until(lambda: len(read_back("shown", address)) == len(recorded), "TensorBoard to have read the file", 60)
    names = ("memtrace/cuda_0/peak_MiB", "memtrace/cuda_0/allocated_MiB", "memtrace/cuda_0/reserved_MiB")
    for words in (("tensorboard", os.path.join(folder, "runs")), ("shown", address), ("wandb", offline), ("mlflow", uri)):
        found = read_back(*words)
        equal([(step, *(values[n] * MIB for n in names)) for step, values in sorted(found.items())],
              [(*r, t["reserved"]) for r, t in zip(recorded, told)], "read back from " + words[0])
        check(all(any(n.startswith("memtrace/scope/make_samples/cuda_0/") for n in v) for v in found.values()), "%s: the scope is not there", words[0])
    board.stop()
    server.stop()


def test_the_job_logs_itself():
    """wandb.log({..., **figures.latest()}) in the job: each row has the last step that came, with the recording's figures."""
    folder, path = scratch("own"), scratch("own.mtr")
    os.mkdir(folder)
    torch = subprocess.run([python(), "-c", "import os, torch; print(os.path.dirname(os.path.dirname(torch.__file__)))"], capture_output=True, text=True, check=True).stdout.strip()
    job = Job("wandb", start=spawn, role="loggers", TORCH_PATH=torch, WANDB_MODE="offline", WANDB_DIR=folder, WANDB_SILENT="true")
    recorder, steps = job.record(path), []
    for mib in SIZES:
        steps.append(1 + len(steps) + 1)  # the job made one before
        job.do("step", mib)
        until(lambda: job.do("latest").get("memtrace/step") == steps[-1], "step %d in the job" % steps[-1], 60)
    job.do("step", 1)
    harness.interrupt(recorder)
    equal(recorder.wait(60), 0, "exit code of record: %s" % recorder.stderr())
    job.p.popen.stdin.close()
    equal(job.p.wait(120), 0, "exit code of the job: %s" % job.p.stderr()[-2000:])
    offline, = glob.glob(os.path.join(folder, "wandb", "offline-run-*", "*.wandb"))
    found = read_back("job", offline)
    recorded = {number: figures for number, *figures in of_recording(path)}
    # A row is logged right after its step, whose figures may have come already or not.
    check(max(found) >= steps[-1] and len(found) >= len(steps) // 2, "steps that the job logged: %s", sorted(found))
    equal({n: [v["memtrace/cuda_0/peak_MiB"] * MIB, v["memtrace/cuda_0/allocated_MiB"] * MIB] for n, v in found.items()}, {n: recorded[n] for n in found}, "rows of the job")


if __name__ == "__main__":
    run(globals())

# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
Reads back what memtrace_bpf.figures wrote, with the loggers' own code, in the environment of `tools/deps.sh loggers`:

    read_loggers.py tensorboard LOGDIR | shown URL-OF-TENSORBOARD | wandb FILE.wandb | job FILE.wandb | mlflow URI

job: a run in which the job itself logs, without an axis of ours.

Prints {step: {name: value}} as JSON.
"""
import json
import struct
import sys
import urllib.parse
import urllib.request
from collections import defaultdict


def tensorboard(logdir):
    """By the reader of event files. The page's charts come from another one: see shown()."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    found = defaultdict(dict)
    events = EventAccumulator(logdir, size_guidance={"scalars": 0})
    events.Reload()
    for tag in events.Tags()["scalars"]:
        for e in events.Scalars(tag):
            found[e.step][tag] = e.value
    return found


def shown(url):
    """By TensorBoard's server, which has a fast reader of its own: what the charts of its page show."""
    def get(path):
        with urllib.request.urlopen(url + "/data/plugin/scalars/" + path, timeout=60) as r:
            return json.load(r)
    found = defaultdict(dict)
    for run, tags in get("tags").items():
        for tag in tags:
            for _, step, value in get("scalars?" + urllib.parse.urlencode({"run": run, "tag": tag})):
                found[step][tag] = value
    return found


def records(data):
    """The records of a file of W&B: LevelDB's log format, behind seven bytes."""
    at, whole = 7, b""
    assert data[:4] == b":W&B", data[:7]
    while at + 7 <= len(data):
        room = 32768 - at % 32768
        if room < 7:
            at += room
            continue
        length, kind = struct.unpack_from("<HB", data, at + 4)
        if not kind:
            break
        whole += data[at + 7:at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # full, last
            yield whole
            whole = b""


def job(path):
    return wandb(path, has_axis=False)


def wandb(path, has_axis=True):
    from wandb.proto import wandb_internal_pb2
    found, axis = {}, []
    with open(path, "rb") as f:
        data = f.read()
    for text in records(data):
        record = wandb_internal_pb2.Record.FromString(text)
        if record.HasField("metric"):
            axis.append((record.metric.name or record.metric.glob_name, record.metric.step_metric))
        if record.HasField("history"):
            row = {"/".join(i.nested_key) if i.nested_key else i.key: json.loads(i.value_json) for i in record.history.item}
            step = row.get("memtrace/step")
            if step is not None:
                found[int(step)] = {name: value for name, value in row.items() if name.startswith("memtrace/")}
    assert not has_axis or ("memtrace/*", "memtrace/step") in axis, axis
    return found


def mlflow(uri):
    from mlflow.tracking import MlflowClient
    client, found = MlflowClient(tracking_uri=uri), defaultdict(dict)
    run, = client.search_runs([e.experiment_id for e in client.search_experiments()])
    assert run.info.status == "FINISHED", run.info.status
    for name in run.data.metrics:
        for m in client.get_metric_history(run.info.run_id, name):
            found[m.step][name] = m.value
    return found


print(json.dumps({"tensorboard": tensorboard, "shown": shown, "wandb": wandb, "job": job, "mlflow": mlflow}[sys.argv[1]](sys.argv[2])))

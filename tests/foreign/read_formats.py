#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
Reads a file with the library of its format and prints the result as JSON: read_formats.py FORMAT FILE

Run it with the interpreter of an environment that has the library (tools/deps.sh formats).
"""
import json
import sys


def of_events(frame):
    found = {}
    events = frame[frame.device.notna()]
    for device, rows in events.groupby("device"):
        totals = rows[rows.allocated.notna()]
        allocs = rows[rows.event == "alloc"]
        found[device + " peak"] = int(totals.allocated.max())
        found[device + " end"] = int(totals.allocated.iloc[-1])
        found[device + " total"] = int(allocs["size"].sum())
        found[device + " allocs"] = len(allocs)
        found[device + " frees"] = int((rows.event == "free").sum())
    return found


def csv(path):
    import pandas
    return of_events(pandas.read_csv(path, low_memory=False, dtype={"allocated": "Int64", "reserved": "Int64", "size": "Int64"}))


def ndjson(path):
    import pandas
    return of_events(pandas.read_json(path, lines=True))


def timeline(path):
    import pandas
    with open(path, encoding="utf-8") as f:
        doc = json.load(f)
    frame = pandas.DataFrame(doc["events"])
    found = {}
    for device, rows in frame[frame.device != ""].groupby("device"):
        found[device + " peak"] = int(rows.allocated_bytes.max())
        found[device + " allocs"] = int((rows.event_type == "alloc").sum())
        found[device + " total"] = int(rows[rows.event_type == "alloc"].size_bytes.sum())
    assert len(pandas.DataFrame.from_dict(doc["layer_stats"], orient="index")) == doc["summary"]["total_layers"]
    return found


def otlp(path):
    from opentelemetry.proto.collector.profiles.v1development import profiles_service_pb2
    with open(path, "rb") as f:
        request = profiles_service_pb2.ExportProfilesServiceRequest.FromString(f.read())
    tables, found = request.dictionary, {}
    profile = request.resource_profiles[0].scope_profiles[0].profiles[0]
    assert tables.string_table[profile.sample_type.type_strindex] == "inuse_space"
    for sample in profile.samples:
        attributes = [tables.attribute_table[i] for i in sample.attribute_indices]
        device, = [a.value.string_value for a in attributes if tables.string_table[a.key_strindex] == "device"]
        assert all(tables.function_table[line.function_index].name_strindex for i in tables.stack_table[sample.stack_index].location_indices
                   for line in tables.location_table[i].lines)
        found[device + " peak"] = found.get(device + " peak", 0) + sum(sample.values)
    return found


def tensorboard(path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    accumulator = EventAccumulator(path, size_guidance={"scalars": 0})
    accumulator.Reload()
    found = {}
    for tag in accumulator.Tags()["scalars"]:
        values = [s.value for s in accumulator.Scalars(tag)]
        if tag.startswith("by_second/") and tag.endswith("/peak_MiB"):
            found[tag.split("/")[1] + " peak"] = max(values)
        elif tag.startswith("by_second/") and tag.endswith("/allocated_MiB"):
            found[tag.split("/")[1] + " end"] = values[-1]
    return found


def openmetrics(path):
    from prometheus_client.openmetrics.parser import text_string_to_metric_families
    names = {"memtrace_device_peak_allocated_bytes": "peak", "memtrace_device_allocated_bytes": "end",
             "memtrace_device_allocation_bytes_total": "total", "memtrace_device_allocations_total": "allocs",
             "memtrace_device_frees_total": "frees"}
    found = {}
    with open(path, encoding="utf-8", newline="") as f:
        for family in text_string_to_metric_families(f.read()):
            for sample in family.samples:
                if sample.name in names:
                    found["%s %s" % (sample.labels["device"], names[sample.name])] = int(sample.value)
    return found


def snapshot(path):
    import pickle
    import warnings

    import torch.cuda._memory_viz as viz
    with open(path, "rb") as f:
        doc = pickle.load(f)
    viz.segsum(doc)  # asserts that blocks fill their segments, and sums
    viz.trace(doc)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for device, trace in enumerate(doc["device_traces"]):
            if trace:
                viz.trace_plot(doc, device=device)
                viz.segment_plot(doc, device=device)
    found = {}
    for s in doc["segments"]:
        key = "cuda:%d " % s["device"]
        found[key + "end"] = found.get(key + "end", 0) + viz.calc_active(s)
    notes = doc["memtrace_bpf"]
    rest = notes["bytes_without_address"] + notes["bytes_cut"]  # over all devices
    return {key: v + rest for key, v in found.items()} if len(found) == 1 or not rest else {}


if __name__ == "__main__":
    print(json.dumps(globals()[sys.argv[1]](sys.argv[2])))

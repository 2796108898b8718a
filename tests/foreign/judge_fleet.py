# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
Parses metrics and manifests with other projects' libraries and prints the result as JSON. Run it in the environment of
tools/deps.sh fleet.

    judge_fleet.py prometheus|openmetrics FILE    [[name, labels, value]]
    judge_fleet.py otlp FILE                      [[metric, unit, kind, resource, attributes, value]]
    judge_fleet.py manifests FILE                 [[kind, name]] of objects that are valid for Kubernetes
    judge_fleet.py yaml FILE                      the content
"""
import json
import sys

import yaml


def metrics(path, parse):
    with open(path, encoding="utf-8") as f:
        return [[s.name, s.labels, s.value] for family in parse(f.read()) for s in family.samples]


def prometheus(path):
    from prometheus_client.parser import text_string_to_metric_families
    return metrics(path, text_string_to_metric_families)


def openmetrics(path):
    from prometheus_client.openmetrics.parser import text_string_to_metric_families
    return metrics(path, text_string_to_metric_families)


def otlp(path):
    """Strict: fields unknown to the protocol are an error."""
    from google.protobuf import json_format
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
    with open(path, encoding="utf-8") as f:
        request = json_format.ParseDict(json.load(f), ExportMetricsServiceRequest(), ignore_unknown_fields=False)

    def attributes(pairs):
        return {p.key: getattr(p.value, p.value.WhichOneof("value")) for p in pairs}

    found = []
    for r in request.resource_metrics:
        for scope in r.scope_metrics:
            for m in scope.metrics:
                kind = m.WhichOneof("data")
                for point in getattr(m, kind).data_points:
                    assert point.time_unix_nano and point.WhichOneof("value") == "as_int", point
                    assert kind == "gauge" or (m.sum.is_monotonic and m.sum.aggregation_temporality == 2 and point.start_time_unix_nano), m
                    found.append([m.name, m.unit, kind, attributes(r.resource.attributes), attributes(point.attributes), point.as_int])
    return found


def manifests(path):
    import kubernetes_validate
    found = []
    with open(path, encoding="utf-8") as f:
        for doc in yaml.safe_load_all(f):
            kubernetes_validate.validate(doc, kubernetes_validate.latest_version(), strict=True)
            found.append([doc["kind"], doc["metadata"]["name"]])
    return found


def read_yaml(path):
    with open(path, encoding="utf-8") as f:
        return list(yaml.safe_load_all(f))


JUDGES = {"prometheus": prometheus, "openmetrics": openmetrics, "otlp": otlp, "manifests": manifests, "yaml": read_yaml}
json.dump(JUDGES[sys.argv[1]](sys.argv[2]), sys.stdout)

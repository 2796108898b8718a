#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# run: nightly=fleet
"""The Helm chart: helm's own checks, Kubernetes' schemas for what it renders with few and with all values, and the plain manifests,
which are rendered from it. Needs `tools/deps.sh charts`."""
import json
import os
import re
import subprocess

import http_fleet
from harness import REPO, check, equal, run, scratch

DEPLOY = http_fleet.DEPLOY
CHART = os.path.join(DEPLOY, "helm", "memtrace-bpf")
KUBERNETES = ("1.30.0", "1.37.0")  # the oldest that Chart.yaml allows, and the newest that there are schemas of
ALL_ON = {
    "image": {"repository": "registry.example/memtrace-bpf", "tag": "1.2.3", "pullPolicy": "Always"},
    "imagePullSecrets": [{"name": "registry"}],
    "fullnameOverride": "tracer",
    "token": {"secretName": "own-secret", "key": "api-token"},
    "serve": {"port": 9000, "pushPyroscope": "http://pyroscope.example:4040", "pushOtlp": "http://otel.example:4318",
              "options": ["--max-captures=8", "--target-user=job=alice"]},
    "recordings": {"sizeLimit": "40Gi"},
    "capabilities": {"sysAdmin": True},
    "nodeSelector": {"nvidia.com/gpu.present": None, "pool": "gpu"},
    "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
        {"weight": 1, "preference": {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}}]}},
    "maxUnavailable": 2,
    "podAnnotations": {"example/annotation": "1"},
    "podLabels": {"team": "ml"},
    "serviceAccount": {"name": "tracer-account", "annotations": {"example/role": "none"}},
    "networkPolicy": {"namespace": "prometheus"},
    "podMonitor": {"enabled": True, "interval": "30s", "labels": {"release": "prometheus"}},
    "prometheusRule": {"enabled": True, "labels": {"release": "prometheus"}},
}
ALL_OFF = {
    "nvidia": {"enabled": False}, "nodeSelector": {"nvidia.com/gpu.present": None}, "tolerations": [], "priorityClassName": "", "resources": None,
    "serviceAccount": {"create": False}, "networkPolicy": {"enabled": False}, "scrapeAnnotations": False,
}
ALWAYS = ["DaemonSet", "Service"]
USUAL = ["NetworkPolicy", "ServiceAccount"]
OPERATOR = ["PodMonitor", "PrometheusRule"]
SCHEMAS = ("daemonset-apps-v1", "service-v1", "networkpolicy-networking-v1", "serviceaccount-v1")


def program(name):
    return os.path.join(http_fleet.deps("helm"), name)


def helm(*args, expect=0):
    done = subprocess.run([program("helm"), *args], capture_output=True, text=True, timeout=60, check=False)
    equal(done.returncode, expect, "helm %s: %s%s" % (" ".join(args), done.stdout[-500:], done.stderr[-1500:]))
    return done.stdout + (done.stderr if expect else "")


def template(values, *args, name="memtrace-bpf", kube=KUBERNETES[-1], expect=0):
    path = scratch("values.json")
    with open(path, "w", encoding="utf-8") as f:
        json.dump(values, f)
    return helm("template", name, CHART, "--namespace", "tools", "--kube-version", kube, "-f", path, *args, expect=expect)


def rendered(values, **how):
    """Path of the rendered objects, and the objects by kind."""
    path = scratch("rendered.yaml")
    with open(path, "w", encoding="utf-8") as f:
        f.write(template(values, **how))
    return path, {o["kind"]: o for o in http_fleet.judge("yaml", path) if o}


def strict(schema):
    """Properties that a schema does not name become an error."""
    if isinstance(schema, dict):
        if "properties" in schema and "additionalProperties" not in schema and not schema.get("x-kubernetes-preserve-unknown-fields"):
            schema["additionalProperties"] = False
        for value in schema.values():
            strict(value)
    elif isinstance(schema, list):
        for value in schema:
            strict(value)
    return schema


def operator_schemas():
    """Folder with the schemas of the Prometheus operator, as kubeconform names them."""
    folder = scratch("operator")
    os.makedirs(folder, exist_ok=True)
    for kind in OPERATOR:
        with open(program("%ss-crd.json" % kind.lower()), encoding="utf-8") as f:
            version, = (v for v in json.load(f)["spec"]["versions"] if v["name"] == "v1")
        with open(os.path.join(folder, kind.lower() + "-monitoring-v1.json"), "w", encoding="utf-8") as f:
            json.dump(strict(version["schema"]["openAPIV3Schema"]), f)
    return folder


def kubernetes_schemas(version):
    """Folder with the schemas of kubernetes-validate. They refer to each other by addresses; kubeconform needs file names."""
    folder = scratch("schemas-" + version)
    if os.path.isdir(folder):
        return folder
    script = "import kubernetes_validate, os; print(os.path.dirname(kubernetes_validate.__file__))"
    done = subprocess.run([http_fleet.deps("python", "fleet"), "-c", script], capture_output=True, text=True, check=True)
    theirs = os.path.join(done.stdout.strip(), "kubernetes-json-schema", "v%s-local-strict" % version)
    os.makedirs(folder)
    for name in ("_definitions", *SCHEMAS):
        with open(os.path.join(theirs, name + ".json"), encoding="utf-8") as f:
            schema = json.loads(f.read().replace('"/api/_definitions.json#', '"_definitions.json#'))
        schema.pop("$id", None)
        with open(os.path.join(folder, name + ".json"), "w", encoding="utf-8") as f:
            json.dump(schema, f)
    return folder


def conform(path, version):
    """Kinds of the file's objects, all of which are valid."""
    where = "/{{ .ResourceKind }}{{ .KindSuffix }}.json"
    done = subprocess.run([program("kubeconform"), "-strict", "-verbose", "-output", "json", "-schema-location", kubernetes_schemas(version) + where,
                           "-schema-location", operator_schemas() + where, path], capture_output=True, text=True, timeout=60, check=False)
    equal(done.returncode, 0, "kubeconform with the schemas of %s: %s%s" % (version, done.stdout[-2500:], done.stderr[-500:]))
    found = json.loads(done.stdout)["resources"]
    check(all(r["status"] == "statusValid" for r in found), "%s", found)
    return sorted(r["kind"] for r in found)


def test_lint():
    for values in ({}, ALL_ON, ALL_OFF):
        path = scratch("lint.json")
        with open(path, "w", encoding="utf-8") as f:
            json.dump(values, f)
        said = helm("lint", "--strict", CHART, "-f", path)
        check("[WARNING]" not in said and "[ERROR]" not in said, "%s", said)


def test_schemas():
    """What the chart renders is valid for the oldest and the newest Kubernetes."""
    for version in KUBERNETES:
        for values, kinds in (({}, ALWAYS + USUAL), (ALL_ON, ALWAYS + USUAL + OPERATOR), (ALL_OFF, ALWAYS)):
            path, objects = rendered(values, kube=version)
            equal(sorted(objects), sorted(kinds), "objects")
            equal(conform(path, version), sorted(kinds), "objects that kubeconform saw")
    path, _ = rendered({})
    equal(len(http_fleet.judge("manifests", path)), 4, "objects that kubernetes-validate accepts")


def test_kubeconform_refuses():
    """The check itself: a field that does not exist, in an object of Kubernetes and in one of the operator."""
    path, _ = rendered(ALL_ON)
    with open(path, encoding="utf-8") as f:
        text = f.read()
    for old, new in (("hostPID:", "hostPid:"), ("interval: 30s", "intervall: 30s")):
        with open(path, "w", encoding="utf-8") as f:
            f.write(text.replace(old, new))
        try:
            conform(path, KUBERNETES[-1])
        except http_fleet.Failure as why:
            check(new.split(":")[0] in str(why), "%s", why)
        else:
            raise http_fleet.Failure("kubeconform accepts %s" % new)


def test_values_arrive():
    _, objects = rendered(ALL_ON, name="gpu")
    pod = objects["DaemonSet"]["spec"]["template"]["spec"]
    container, = pod["containers"]
    equal({o["metadata"]["name"] for o in objects.values()}, {"tracer", "tracer-account"}, "names")
    equal({o["metadata"]["namespace"] for o in objects.values()}, {"tools"}, "namespaces")
    equal(container["image"], "registry.example/memtrace-bpf:1.2.3", "image")
    equal(container["args"], ["serve", "--listen=0.0.0.0:9000", "--token-file=/etc/memtrace-bpf/token", "--output=/var/lib/memtrace-bpf", "--all",
                              "--push-pyroscope=http://pyroscope.example:4040", "--push-otlp=http://otel.example:4318", "--max-captures=8",
                              "--target-user=job=alice"], "arguments")
    http_fleet.check_options(container["args"][1:], CHART)
    check("SYS_ADMIN" in container["securityContext"]["capabilities"]["add"], "SYS_ADMIN is missing")
    equal((pod["nodeSelector"], pod["serviceAccountName"]), ({"pool": "gpu"}, "tracer-account"), "the pod")
    secret = next(v["secret"] for v in pod["volumes"] if "secret" in v)
    equal((secret["secretName"], secret["items"]), ("own-secret", [{"key": "api-token", "path": "token"}]), "the token")
    endpoint, = objects["PodMonitor"]["spec"]["podMetricsEndpoints"]
    equal(endpoint["authorization"]["credentials"], {"name": "own-secret", "key": "api-token"}, "token of the PodMonitor")
    check(endpoint["port"] in {p["name"] for p in container["ports"]}, "port of the PodMonitor: %s", endpoint)
    equal([objects["PrometheusRule"]["spec"]], http_fleet.judge("yaml", os.path.join(DEPLOY, "prometheus-rules.yml")), "rules")
    _, objects = rendered(ALL_OFF, name="gpu")
    pod = objects["DaemonSet"]["spec"]["template"]
    container, = pod["spec"]["containers"]
    check(not {"nodeSelector", "tolerations", "runtimeClassName", "priorityClassName"} & set(pod["spec"]) and "env" not in container, "%s", pod)
    check("SYS_ADMIN" not in container["securityContext"]["capabilities"]["add"], "SYS_ADMIN without its value")
    equal(objects["DaemonSet"]["metadata"]["name"], "gpu-memtrace-bpf", "name")


def test_selectors():
    """Service, NetworkPolicy and PodMonitor select the pods of the DaemonSet. The plug-in finds them by one label."""
    _, objects = rendered(ALL_ON)
    labels = objects["DaemonSet"]["spec"]["template"]["metadata"]["labels"]
    equal(labels["app.kubernetes.io/name"], "memtrace-bpf", "the label of the plug-in")
    selectors = [objects["DaemonSet"]["spec"]["selector"]["matchLabels"], objects["Service"]["spec"]["selector"],
                 objects["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"], objects["PodMonitor"]["spec"]["selector"]["matchLabels"]]
    for selector in selectors:
        check(selector.items() <= labels.items(), "%s does not select %s", selector, labels)


def test_wrong_values():
    """values.schema.json names each wrong value."""
    wrong = [({"serve": {"port": 80}}, "port"), ({"imgae": {}}, "imgae"), ({"serve": {"options": ["all"]}}, "options"),
             ({"capabilities": {"sysAdmin": "yes"}}, "sysAdmin"), ({"image": {"repository": ""}}, "repository"),
             ({"podMonitor": {"interval": "often"}}, "interval"), ({"maxUnavailable": "0%"}, "maxUnavailable"),
             ({"token": {"secretName": "No Secret"}}, "secretName")]
    for values, name in wrong:
        said = template(values, expect=1)
        check("values don't meet the specifications of the schema" in said and name in said, "%s: %s", values, said)
    said = template({}, kube="1.29.0", expect=1)
    check("kubeVersion: >=1.30.0-0" in said, "an older Kubernetes: %s", said)


def test_versions():
    """The chart's appVersion is the program's version."""
    with open(os.path.join(REPO, "Makefile"), encoding="utf-8") as f:
        version = re.search(r"^VERSION\s*[:?]?=\s*(\S+)", f.read(), re.M)[1]
    chart, = http_fleet.judge("yaml", os.path.join(CHART, "Chart.yaml"))
    equal(chart["appVersion"], version, "appVersion")


def test_plain_manifests():
    """daemonset.yaml and podmonitor.yaml are what the chart renders."""
    folder = scratch("manifests")
    os.makedirs(folder)
    program("helm")
    subprocess.run([os.path.join(DEPLOY, "manifests.sh"), folder], check=True, timeout=60)
    for name in ("daemonset.yaml", "podmonitor.yaml"):
        with open(os.path.join(folder, name), encoding="utf-8") as new, open(os.path.join(DEPLOY, name), encoding="utf-8") as kept:
            equal(kept.read(), new.read(), "%s; make manifests writes it" % name)


if __name__ == "__main__":
    run(globals())

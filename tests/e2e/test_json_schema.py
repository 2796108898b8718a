#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# run: check
"""--json-schema: outputs of every command with JSON are valid, and have no key that the schema does not describe."""
import glob
import json
import os
import re
import subprocess

import harness
from harness import OUT, REPO, Skip, check, equal, made, python, run, scratch, spawn, spawn_job, tool
from mtr_writer import Writer

GUIDE = os.path.join(REPO, "tests", "data", "guide")
COMMANDS = ("report", "diagnose", "leaks", "diff", "compare", "estimate", "dump", "ps", "replay", "watch", "ctl", "live", "fetch", "check")
# Strict: an object that lists its keys has no others. The published schema allows them, since new versions add keys.
VALIDATE = """
import json, sys, jsonschema
def strict(node):
    if isinstance(node, dict):
        if "properties" in node:
            node.setdefault("additionalProperties", False)
        for value in node.values():
            strict(value)
    elif isinstance(node, list):
        for value in node:
            strict(value)
def leaves(error):
    return [leaf for e in error.context for leaf in leaves(e)] if error.context else [error]
given = json.load(sys.stdin)
for schema in given["schemas"].values():
    jsonschema.Draft202012Validator.check_schema(schema)
    strict(schema)
for label, command, document in given["documents"]:
    for error in jsonschema.Draft202012Validator(given["schemas"][command]).iter_errors(document):
        deepest = max(leaves(error), key=lambda e: (e.validator == "additionalProperties", len(e.absolute_path)))
        print("%s: %s: %s" % (label, deepest.json_path, deepest.message[:300]))
"""


def schema(command):
    code, out, err = tool(*([] if command == "live" else [command]), "--json-schema")
    equal((code, err), (0, ""), "%s --json-schema" % command)
    return json.loads(out)


def validate(documents):
    python_ = "/usr/bin/python3"
    if subprocess.run([python_, "-c", "import jsonschema"], capture_output=True, check=False).returncode:
        raise Skip("no jsonschema: tools/deps.sh test")
    given = {"schemas": {c: schema(c) for c in COMMANDS}, "documents": documents}
    said = subprocess.run([python_, "-c", VALIDATE], input=json.dumps(given), capture_output=True, text=True, check=False, timeout=120)
    equal((said.returncode, said.stdout), (0, ""), "validation: %s" % said.stderr[-800:])
    label, command, document_ = documents[0]
    given["documents"] = [[label, command, {**document_, "undescribed": 1}]]
    said = subprocess.run([python_, "-c", VALIDATE], input=json.dumps(given), capture_output=True, text=True, check=False, timeout=120)
    check(label in said.stdout, "an undescribed key was not found: %s", said.stdout)


def document(command, *args, expect=0, root=False):
    code, out, err = tool(command, "--format", "json", *args, root=root, seconds=120)
    equal(code, expect, "%s %s: %s" % (command, " ".join(args), err[-500:]))
    return ["%s %s" % (command, " ".join(args)), command, json.loads(out)]


def recording(*kind):
    return made("schema%s.mtr" % "-".join(("", *kind)), *kind)


def two_processes():
    """Recordings of two processes on one GPU."""
    paths = [scratch("schema-trainer.mtr"), scratch("schema-engine.mtr")]
    for pid, (path, blocks) in enumerate(zip(paths, (64, 96)), 1):
        w = Writer(path, {"pid": str(pid), "clock_zero_ns": "1700000000000000000", "device.0.uuid": "GPU-1"})
        w.block(blocks, size=1024 // pid)
        w.close()
    return paths


def test_documents_of_recordings():
    tiny, oom, leak = recording("tiny"), recording("oom"), recording("leak")
    files = sorted(glob.glob(os.path.join(REPO, "tests", "data", "recordings", "*.mtr"))) + [os.path.join(GUIDE, f) for f in ("oom.mtr", "leak.mtr")]
    check(len(files) > 8, "recordings: %s", files)
    job = os.path.join(GUIDE, "job")
    documents = [document("report", f) for f in [tiny, oom, leak, *files]]
    for by in ("stack", "module", "layer", "phase", "category", "thread", "line,module,phase,category,thread"):
        documents += [document("report", "--by", by, "--top", "3", f) for f in (tiny, oom)]
    documents += [document("report", "--by", "segment", "--top", "2", os.path.join(GUIDE, "oom.mtr")), document("report", "--advice", tiny), document("report", "--filter", "phase:forward", "--hide", "model.py", oom),
                  document("report", "--at", "oom", oom), document("report", "--together", job), document("report", "--together", "--outliers", job), document("report", job),
                  document("report", "--together", *two_processes()),
                  document("fetch", "-o", scratch("fetched/"), "--timeout", "300ms", "127.0.0.1:1", expect=2),
                  document("report", "--together", "--fail-if", "peak > 1K", job, expect=4),
                  document("report", "--fail-if", "growth > 1K/10steps", leak, expect=4)]
    documents += [document("leaks", f) for f in (tiny, leak, job)] + [document("leaks", "--steps", "--by", by, leak) for by in ("line", "stack", "module", "category")]
    per = next("%s:%d" % (r["file"], r["line"]) for r in document("report", leak)[2]["rows"] if r["file"])
    documents += [document("leaks", "--per", per, leak), document("leaks", "--per", per, leak, leak)]
    documents += [document("diagnose", tiny, expect=4), document("diagnose", os.path.join(GUIDE, "base.mtr")), document("diagnose", leak, expect=4), document("diagnose", os.path.join(GUIDE, "oom.mtr"), expect=4), document("diagnose", job, expect=4)]
    documents += [document("diff", "--by", by, tiny, oom) for by in ("line", "stack", "module", "layer", "phase", "category", "thread")]
    documents += [document("diff", "--top", "2", os.path.join(GUIDE, "base.mtr"), os.path.join(GUIDE, "checkpoint.mtr")),
                  document("compare", tiny, oom, leak), document("compare", files[0], files[-1])]
    validate(documents)


def lines(command, out):
    return [["%s, line %d" % (command, i), command, json.loads(line)] for i, line in enumerate(out.splitlines())]


def test_documents_of_processes():
    """dump, and the lines of the live view, watch and ctl."""
    p = spawn_job([python(), os.path.join(harness.WORKLOADS, "leak.py"), "list", "--steps", "100000", "--pause", "0.02"])
    p.wait_line("step 3")
    pid = str(p.pid)
    documents = [document("dump", "-p", pid, *options, root=True) for options in ((), ("--by", "tensor"), ("--by", "module"), ("--children",), ("--device", "host"))]
    documents.append(document("ps", root=True))
    ended = subprocess.Popen(["true"])
    ended.wait()
    documents += [document("check", root=True), document("check", "-p", pid, root=True), document("check", "-p", str(ended.pid), root=True, expect=2)]
    documents.append(document("ps", "--machine", root=True))
    machine = scratch("schema-machine")
    code, out, err = tool("watch", "--machine", "-o", machine, "-d", "300ms", "--every", "100ms", "--rule", "machine_free<100%", "--format", "json", root=True)
    check(code == 0 and '"fired"' in out, "watch --machine: %d: %s %s", code, out, err)
    documents += lines("watch", out)
    documents.append(document("report", machine, root=True))
    path = scratch("schema-process.mtr")
    recorder = spawn([harness.TOOL, "record", "-p", pid, "--host", "-f", "-o", path], root=True)
    recorder.wait_line("attached", stream="err")
    code, out, err = tool("ctl", "--format", "json", "-p", pid, "status", root=True)
    equal(code, 0, "ctl: %s" % err)
    documents += lines("ctl", out)
    code, out, err = tool("ctl", "--format", "json", "-p", pid, "start", root=True)
    check(code == 1 and json.loads(out)["error"], "ctl start of a capture without windows: %d: %s %s", code, out, err)
    documents += lines("ctl", out)
    harness.finish(recorder)
    documents.append(document("report", path))
    code, out, err = tool("-p", pid, "-n", "2", "--interval", "0.2", "--format", "json", root=True)
    check(code == 0 and out.count("\n") >= 2, "the live view: %d: %s", code, err)
    documents += lines("live", out)
    code, out, err = tool("watch", "-p", pid, "--format", "json", "--rule", "rss > 1M", "-d", "1s", "--every", "200ms", root=True)
    check('"fired"' in out, "watch: %d: %s %s", code, out, err)
    documents += lines("watch", out)
    documents.append(document("leaks", "-p", pid, "-d", "1s", root=True))
    p.stop()
    validate(documents)


def test_documents_of_dry_runs():
    if not os.path.exists(os.path.join(OUT, "dryrun", "libcuda.so.1")):
        raise Skip("the dry run's libraries are not built")
    job = [python(), os.path.join(harness.WORKLOADS, "estimate_job.py")]
    documents, path = [], scratch("schema-estimate.mtr")
    code, out, err = tool("estimate", "--format", "json", "--vram", "24G", "-f", "-o", path, "--", *job, root=True, seconds=300)
    equal(code, 0, "estimate: %s" % err[-500:])
    documents.append(["estimate", "estimate", json.loads(out)])
    documents.append(document("replay", "--python", python(), path, root=True))
    validate(documents)


def test_every_key_is_described():
    """Each key in the sources of the documents is a property of some schema, or, in messages of step figures, in their reference page."""
    described = set()

    def collect(node):
        if isinstance(node, dict):
            described.update(node.get("properties", {}))
            for value in node.values():
                collect(value)
        elif isinstance(node, list):
            for value in node:
                collect(value)
    for command in COMMANDS:
        collect(schema(command))
    sources = [f for part in ("report/*", "model/words", "estimate/*", "live/*", "watch/*", "serve/fetch")
               for f in glob.glob(os.path.join(REPO, "user", part, "*.c"))]
    sources += [os.path.join(REPO, "user", f) for f in ("record/folder/ending.c", "record/stream/detail.c", "model/open/rolling_view.c", "capture/save/control.c", "capture/save/recording.c", "capture/save/windows.c")]
    with open(os.path.join(REPO, "docs/reference/figures.md"), encoding="utf-8") as f:
        messages = set(re.findall(r"`([a-z_0-9]+)`", f.read()))
    found = 0
    for path in sources:
        known = described | messages if path.endswith("/step_figures.c") else described
        with open(path, encoding="utf-8") as f:
            for key in re.findall(r"\bjson__\w+\(\s*\w+,\s*(?:[^\",()]*\?\s*)?\"([a-z_0-9]+)\"", f.read()):
                found += 1
                check(key in known, "%s: no schema describes the key '%s'", os.path.relpath(path, REPO), key)
    check(found > 400, "only %d keys were found in the sources", found)


if __name__ == "__main__":
    run(globals())

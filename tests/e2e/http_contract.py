#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# run: nightly=programs long
"""
Checks the schema of `serve` with an OpenAPI validator, and generated requests, valid and invalid: answers must match the schema,
without server errors and without hanging.

MEMTRACE_CONTRACT_EXAMPLES: examples per call (default 4). MEMTRACE_SERVE: another build of the program.
"""
import json
import os
import re
import shutil
import subprocess
import time

import harness
import guide
import server
from harness import Failure, check, equal, made, run, scratch

EXAMPLES = int(os.environ.get("MEMTRACE_CONTRACT_EXAMPLES", "4"))
# Captures take most of the time: with few examples, few requests start captures.
SHORT = EXAMPLES <= 6
PROGRAM = os.environ.get("MEMTRACE_SERVE", harness.TOOL)
RECORDINGS = 24
TOKEN = "correct-horse-battery-staple"
CALLS = {  # required by the interface
    "post /api/trace/memory", "post /api/trace/export", "get /api/trace/download/{file}", "get /api/trace/list", "delete /api/trace/{trace_id}",
    "get /api/trace/{trace_id}", "get /api/trace/{trace_id}/stream", "get /api/health", "get /metrics", "get /api/docs", "get /api/redoc",
    "get /api/openapi.json", "get /"}

_shared = {}


def recordings():
    """Many copies of one recording: requests may delete them."""
    if not os.path.exists(scratch("contract.mtr")):
        path = made("contract.mtr")
        for n in range(RECORDINGS):
            shutil.copy(path, scratch("contract-%d.mtr" % n))
    return [scratch("contract-%d.mtr" % n) for n in range(RECORDINGS)]


def served():
    """Captures are short whatever is requested, and the rate is unlimited."""
    server.needs_serve(PROGRAM)
    if "server" not in _shared:
        job = _shared["job"] = server.Job("--spread", "50", kept=True).ready()
        _shared["server"] = server.Server(
            "--target", "my_model=%d" % job.pid, "--max-duration", "100ms", "--max-events", "2000", "--max-traces", "200",
            "--requests-per-minute", "0", *recordings(), tool=PROGRAM, kept=True)
    return _shared["server"]


def schema():
    return served().get("/api/openapi.json").expect().json


def test_schema_is_valid():
    path = scratch("openapi.json")
    with open(path, "wb") as f:
        f.write(served().get("/api/openapi.json").expect().body)
    done = subprocess.run([guide.api_python(), "-m", "openapi_spec_validator", path], capture_output=True, text=True, timeout=60, check=False)
    check(done.returncode == 0, "the validator: %s %s", done.stdout[-2000:], done.stderr[-500:])
    doc = schema()
    calls = {"%s %s" % (method, path) for path, methods in doc["paths"].items() for method in methods}
    equal(CALLS - calls, set(), "calls that the schema lacks")
    operations = [o for methods in doc["paths"].values() for o in methods.values()]
    equal(len({o["operationId"] for o in operations}), len(operations), "operations of the same name")
    for o in operations:
        check(o.get("summary") and o.get("tags"), "%s has no words", o["operationId"])
    # A given recording can be deleted from the list, too.
    equal(set(doc["paths"]["/api/trace/{trace_id}"]["delete"]["responses"]) & {"200", "404", "409"}, {"200", "404"}, "answers to a deletion")


def config():
    s = served()
    traces = s.get("/api/trace/list").expect().json["active_traces"]
    path = scratch("schemathesis.toml")
    with open(path, "w", encoding="utf-8") as f:
        f.write("""
max-stream-events = 3
[warnings]
enabled = false
[checks]
not_a_server_error.expected-statuses = ["2xx", "3xx", "4xx", "503"]
[dictionaries]
traces.values = %s
models.values = ["my_model"]
pids.values = [%d]
devices.values = ["cuda:0", "cpu"]
[parameters]
"path.trace_id" = { dictionary = "traces", probability = 0.6 }
"body.trace_id" = { dictionary = "traces", probability = 0.6 }
"query.old" = { dictionary = "traces", probability = 0.6 }
"query.new" = { dictionary = "traces", probability = 0.6 }
"body.model_name" = { dictionary = "models", probability = %s }
"query.trace_id" = { dictionary = "traces", probability = 0.8 }
"body.device" = { dictionary = "devices", probability = 0.7 }
"query.device" = { dictionary = "devices", probability = 0.7 }
"path.pid" = { dictionary = "pids", probability = 0.5 }
# Which devices and moments there are only the recording knows. `traces` and `job` of ranks exclude each other.
[[operations]]
include-path-regex = "^/(debug/pprof/|api/trace/export|api/trace/\\\\{trace_id|api/trace/diff|api/trace/ranks)"
checks.positive_data_acceptance.expected-statuses = ["2xx", "401", "403", "404", "409", "422", "429", "503"]
""" % (json.dumps(traces), _shared["job"].pid, 0.1 if SHORT else 0.5))
    return path


def made_up(*options, url=None, seconds=300):
    """Runs schemathesis to its end; its findings are the failure's text."""
    program = os.path.join(os.path.dirname(guide.api_python()), "st")
    command = [program, "--config-file", config(), "run", (url or served().url) + "/api/openapi.json", "--checks", "all", "--no-color",
               "--workers", "2", "--request-timeout", "20", "--generation-database", "none", "--continue-on-failure", "--no-shrink",
               "--max-examples", str(EXAMPLES), *options]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False, cwd=scratch())
    except subprocess.TimeoutExpired as e:
        raise Failure("schemathesis did not end within %d s: %s" % (seconds, str(e.stdout)[-1500:])) from None
    log = os.path.join(harness.OUT, "test-logs", "http_contract-schemathesis.log")
    os.makedirs(os.path.dirname(log), exist_ok=True)
    with open(log, "a", encoding="utf-8") as f:
        f.write(done.stdout + done.stderr)
    found = re.search(r"= FAILURES =+\n(.*)", done.stdout, re.S)
    check(done.returncode == 0, "schemathesis ended with %d, see %s: %s", done.returncode, log,
          (found[1] if found else done.stdout + done.stderr)[:3000])
    counted = re.search(r"(\d+) generated", done.stdout)
    check(counted and int(counted[1]) > EXAMPLES * 10, "how much was asked: %s", done.stdout[-600:])
    return done.stdout


def test_made_up_requests():
    s = served()
    begin = time.monotonic()
    # Aliases of one call: tests only the first.
    fewer = ("--exclude-path", "/debug/pprof/heap", "--exclude-path", "/debug/pprof/allocs") if SHORT else ()
    out = made_up("--phases", "examples,coverage,fuzzing", *fewer)
    print("     %s, %.0f s" % (re.search(r"\d+ generated[^\n]*", out)[0], time.monotonic() - begin), flush=True)
    equal(s.get("/api/health").expect().json["status"], "ok", "health afterwards")
    check(s.process.alive(), "serve has ended: %s", s.process.stderr()[-1000:])


def test_nothing_is_left():
    server.needs_serve(PROGRAM)
    served().stop()
    _shared["job"].end()


if __name__ == "__main__":
    run(globals())

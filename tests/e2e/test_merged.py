#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# run: nightly=programs
"""`export perfetto --with` a trace of torch.profiler: one clock, and the queries of the reference."""
import datetime
import gzip
import json
import os
import re
import shutil
import subprocess

import harness
from harness import REPO, check, equal, installed, made, python, run, scratch, spawn, spawn_job, tool

# The tables of trace_processor that the queries use, from the JSON by the rules of its importer: spans and instants are slices of a
# thread's track, counters have a track for each key.
STAND_IN = """
import json, sys
import duckdb, pyarrow
path, queries = sys.argv[1], json.load(sys.stdin)
with open(path, encoding="utf-8") as f:
    events = json.load(f)["traceEvents"]
tracks, names, slices, counters, opened = {}, {}, [], [], {}
ns = lambda v: round(v * 1000)
for e in events:
    track = tracks.setdefault((e.get("pid"), e.get("tid")), len(tracks))
    args = json.dumps(e.get("args", {}))
    if e["ph"] in ("X", "i"):
        slices.append((len(slices), ns(e["ts"]), ns(e.get("dur", 0)), track, e.get("cat"), e.get("name"), args))
    elif e["ph"] == "C":
        for key, value in e["args"].items():
            counters.append((ns(e["ts"]), names.setdefault(e["name"] + " " + key, len(names)), value))
db = duckdb.connect()
def table(name, columns, rows):
    db.register(name, pyarrow.table({c: list(v) for c, v in zip(columns.split(), zip(*rows))}))
table("slice", "id ts dur track_id category name arg_set_id", slices)
table("counter", "ts track_id value", counters)
table("counter_track", "id name", [(i, n) for n, i in names.items()])
db.execute("CREATE MACRO EXTRACT_ARG(a, k) AS TRY_CAST(json_extract_string(a, '$.\\"' || replace(k, 'args.', '') || '\\"') AS BIGINT)")
json.dump([[[str(v) for v in row] for row in db.execute(q).fetchall()] for q in queries], sys.stdout)
"""


def queries():
    with open(os.path.join(REPO, "docs", "reference", "export.md"), encoding="utf-8") as f:
        found = re.findall(r"```sql\n(.*?)```", f.read(), re.S)
    equal(len(found), 2, "queries of the reference")
    return found


def ask(path, sql):
    """The rows of each query, as texts."""
    program = shutil.which("trace_processor_shell") or shutil.which("trace_processor")
    if program:
        answers = []
        for q in sql:
            with open(scratch("query.sql"), "w", encoding="ascii") as f:
                f.write(q)
            out = subprocess.run([program, "-q", scratch("query.sql"), path], capture_output=True, text=True, check=True, timeout=60).stdout
            answers.append([[cell.strip('"') for cell in line.split(",")] for line in out.splitlines()[1:] if line])
        return answers
    done = subprocess.run([installed("python", "tables", step="tables"), "-c", STAND_IN, path], input=json.dumps(sql), capture_output=True, text=True, check=False, timeout=120)
    equal(done.returncode, 0, "queries: %s" % done.stderr[-1500:])
    return json.loads(done.stdout)


def merge(recording, trace, expect=0):
    path = scratch("merged.json")
    code, _, err = tool("export", "perfetto", recording, "--with", trace, "-f", "-o", path)
    equal(code, expect, "export perfetto --with: %s" % err)
    return path if code == 0 else err


def test_profiled_training():
    """Allocations lie within the profiler's operations on the same thread, and the bytes of each operation are those of the shapes."""
    trace, path = scratch("kineto.json"), scratch("profiled.mtr")
    p = spawn_job([python(), os.path.join(harness.WORKLOADS, "profiled.py"), trace])
    p.wait_line("ready")
    r = spawn([harness.TOOL, "record", "-p", str(p.pid), "-f", "-o", path], root=True)
    r.wait_line("attached", stream="err")
    p.send()
    p.wait_line("done")
    p.send()
    equal((p.wait(60), r.wait(60)), (0, 0), "exit")
    harness.own(path)
    merged = merge(path, trace)
    at_peak, by_name = ask(merged, [queries()[0].replace("cuda:0", "cpu"), queries()[1]])
    check(len(at_peak) == 1 and at_peak[0][0] == "cpu_op" and at_peak[0][1].startswith("aten::"), "at the peak: %s", at_peak)
    bytes_of = {name: int(n) for name, n in by_name}
    with open(merged, encoding="utf-8") as f:
        events = json.load(f)["traceEvents"]
    ours = [e for e in events if e.get("cat") == "memory" and e["name"] == "alloc"]
    total = sum(e["args"]["bytes"] for e in ours)
    equal(sum(bytes_of.values()), total, "bytes of all operations")
    doc = harness.report(path)
    equal(total, harness.device(doc)["total_allocated"], "bytes of all allocations")
    # Forward: 256 x 2048 and 256 x 512 floats in each of three steps, by addmm alone.
    equal(bytes_of.get("aten::addmm"), 3 * 256 * (2048 + 512) * 4, "bytes of aten::addmm")
    with gzip.open(trace + ".gz", "wb") as f, open(trace, "rb") as g:
        f.write(g.read())
    with open(merged, "rb") as f:
        first = f.read()
    with open(merge(path, trace + ".gz"), "rb") as f:
        check(f.read() == first, "a compressed trace gives another file")


def test_kernels():
    """A kernel at the peak, and the bytes of the operation that started it."""
    path, trace = made("tiny.mtr", "tiny"), scratch("kernels.json")
    doc = harness.report(path, at="peak")
    start = datetime.datetime.fromisoformat(doc["capture"]["start"].replace("Z", "+00:00"))
    start_ns = int(start.timestamp()) * 10**9 + start.microsecond * 1000
    with open(merge(path, trace_of(trace, start_ns, [])), encoding="utf-8") as f:
        events = json.load(f)["traceEvents"]
    alloc = max((e for e in events if e.get("name") == "alloc" and e["args"]["device"] == "cuda:0"), key=lambda e: e["args"]["bytes"])
    peak = harness.device(doc, "cuda:0")["peak_time"] * 1e6
    merged = merge(path, trace_of(trace, start_ns, [
        {"ph": "X", "cat": "cpu_op", "name": "aten::op", "pid": alloc["pid"], "tid": alloc["tid"], "ts": alloc["ts"], "dur": 0.001, "args": {"External id": 7}},
        {"ph": "X", "cat": "kernel", "name": "gemm<7>", "pid": 0, "tid": 7, "ts": peak - 1, "dur": 2, "args": {"External id": 7, "stream": 7}},
        {"ph": "X", "cat": "kernel", "name": "before", "pid": 0, "tid": 7, "ts": peak - 9, "dur": 2, "args": {"External id": 8}}]))
    at_peak, by_name = ask(merged, queries())
    equal(at_peak, [["kernel", "gemm<7>"]], "at the peak")
    check(int(dict(by_name)["gemm<7>"]) >= alloc["args"]["bytes"], "bytes of the kernel: %s", by_name)


def trace_of(path, base, events):
    with open(path, "w", encoding="utf-8") as f:
        json.dump({"schemaVersion": 1, "deviceProperties": [{"name": "a]}\"{["}], "traceEvents": [
            {"ph": "M", "name": "process_name", "pid": 0, "tid": 0, "args": {"name": "GPU 0"}}, *events], "baseTimeNanoseconds": base}, f)
    return path


def test_traces_of_no_profiler():
    path, trace = made("tiny.mtr", "tiny"), scratch("bad.json")
    for text in ("", "x", "[]", "{", "{}", '{"traceEvents": [', '{"traceEvents": [{]}', '{"traceEvents": [{}]}', '{"baseTimeNanoseconds": 1}',
                 '{"baseTimeNanoseconds": "x", "traceEvents": [{}]}', '{"baseTimeNanoseconds": 1, "traceEvents": [{"a": "%s"}]}' % ("x" * (2 << 20)),
                 '{"baseTimeNanoseconds": 1, "traceEvents": [%s]}' % ("[" * 5000), '{"baseTimeNanoseconds": -9223372036854775808, "traceEvents": [{}]}'):
        with open(trace, "w", encoding="ascii") as f:
            f.write(text)
        said = merge(path, trace, expect=1)
        check("bad.json" in said, "for %r: %s", text[:60], said)
    said = merge(path, scratch("none.json"), expect=1)
    check("none.json" in said, "no such file: %s", said)
    code, _, err = tool("export", "csv", path, "--with", trace)
    check(code == 64 and "format perfetto" in err, "--with of csv: %d: %s", code, err)


if __name__ == "__main__":
    run(globals())

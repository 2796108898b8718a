#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# run: long cpu=90
"""The job's own numbers of the recorded steps, from the counts that optimizers keep. tests/workloads/numbered.py allocates
SIZE + N bytes in step N, so each such allocation tells its true number."""
import csv
import glob
import io
import json
import os
import subprocess

import harness
from harness import OUT, WORKLOADS, check, equal, nightly, own, python, run, scratch, spawn, spawn_job, tool

SIZE, MOST = 1 << 20, 1 << 16
PRELOAD = " ".join(os.path.join(OUT, "dryrun", n) for n in ("libcuda.so.1", "libnvidia-ml.so.1"))


def job(kind, start, pause=0.01, device="cpu", role="main", **env):
    env = dict(os.environ, PYTHONUNBUFFERED="1", **env)
    p = spawn_job([python(role), os.path.join(WORKLOADS, "numbered.py"), kind, str(start), str(pause), device], env=env)
    p.wait_line("^ready", 120)
    return p


def record(p, name, *options):
    path = scratch(name)
    r = spawn([harness.TOOL, "record", "-p", str(p.pid), "-o", path, "-f", *options], root=True)
    equal(r.wait(120), 0, "exit code of record (%s)" % r.stderr())
    return path


def document(path):
    own(path)
    code, out, err = tool("report", "--format", "json", path)
    equal(code, 0, "report (%s)" % err)
    return json.loads(out)


def allocations(path):
    """[index of the step in the recording, the job's number] of each allocation that tells it."""
    own(path)
    code, out, err = tool("export", "csv", path, "-o", "-")
    equal(code, 0, "export csv (%s)" % err)
    rows = [r for r in csv.DictReader(io.StringIO(out)) if r["event"] == "alloc" and r["device"] == "cpu"]
    return [[int(r["step"]), int(r["size"]) - SIZE] for r in rows if 0 < int(r["size"]) - SIZE < MOST]


def check_numbers(path, steps):
    """Each allocation of the recording is in the step with its number. Returns the number of the first step."""
    doc = document(path)
    first = doc["capture"]["first_job_step"]
    check(first is not None, "%s: the number is not known: %s", path, doc["capture"].get("first_job_step_unknown"))
    found = allocations(path)
    check(len({s for s, _ in found}) >= steps, "%d steps in %s", len({s for s, _ in found}), path)
    equal([first + s for s, _ in found], [n for _, n in found], "numbers of steps in %s" % path)
    return first


def known(kind, until=("--steps", "30"), **options):
    """Several recordings of one job, each with the right numbers. Returns the last one."""
    p = job(kind, 4811, **options)
    before = 4811
    for i in range(3):
        path = record(p, "%s-%d.mtr" % (kind, i), *until)
        first = check_numbers(path, 3)  # the probes of steps are there first: the others come some fast steps later
        check(first > before, "step %d after step %d", first, before)
        before = first
    p.stop()
    return path


def test_adam():
    path = known("adam")
    doc = document(path)
    code, out, err = tool("report", path, prefix=("env", "COLUMNS=200"))
    first = doc["capture"]["first_job_step"] + 1  # the step at attach is not whole
    words = "steps %s to %s of the job, by the optimizer's own count" % (format(first, ","), format(first + doc["capture"]["steps"] - 1, ","))
    check(code == 0 and words in " ".join(out.split()), "%r is not in the report: %s %s", words, out[:800], err)


@nightly("long")
def test_foreach():
    known("foreach")


def test_dry_run():
    """A job on CUDA without a device, whose optimizer counts on the CPU all the same."""
    known("adam", device="cuda", LD_PRELOAD=PRELOAD)


@nightly("long")
def test_long_optimizer():
    """Most readings are within an optimizer's step."""
    known("wide", pause=0)


@nightly("long")
def test_fast():
    """Steps that are shorter than the recorder's rounds: a reading is anywhere in a step."""
    known("foreach", pause=0, until=("--steps", "100"))


@nightly("long")
def test_batches():
    """Several batches a step, steps that AMP's scaler skips, a parameter without gradients."""
    for kind in ("accumulate", "skip", "sparse"):
        known(kind)


@nightly("versions")
def test_other_pytorch():
    for role in ("newest", "old"):
        known("adam", role=role)


@nightly("long")
def test_python_int():
    """Only the readings of all tensors see this count, and one within which a step ends tells nothing: how many do is chance."""
    p = job("int", 4811)
    for seconds in (4, 12, 24, 48):
        path = record(p, "int.mtr", "-d", str(seconds))
        capture = document(path)["capture"]
        if capture["first_job_step"] is not None:
            break
        check("too seldom" in capture["first_job_step_unknown"], "why it is not known: %r", capture["first_job_step_unknown"])
    check(check_numbers(path, 3) > 4811, "the first step")
    p.stop()


def test_wrapped_optimizer():
    """Wrappers of libraries are optimizers by their class, and the job has one."""
    p = job("wrapped", 4811)
    code, out, err = tool("dump", "-p", str(p.pid), "--format", "json", root=True)
    p.stop()
    equal((code, code or json.loads(out)["reading"]["optimizers"]), (0, 1), "optimizers in dump: %s" % err)


@nightly("long")
def test_idle_optimizer():
    known("idle")


def test_from_the_start():
    path = scratch("start.mtr")
    p = spawn([harness.TOOL, "run", "-o", path, "--steps", "12", "--", python(), os.path.join(WORKLOADS, "numbered.py"), "adam", "0"], root=True)
    p.wait_line("recorded|events", 120, stream="err")
    p.send("\n")
    p.wait(60)
    equal(check_numbers(path, 12), 1, "first step")


def unknown(kind, why, **options):
    p = job(kind, 700, **options)
    path = record(p, kind + ".mtr", "--steps", "10")
    p.stop()
    capture = document(path)["capture"]
    equal(capture["first_job_step"], None, "first step of %s" % kind)
    check(why in capture["first_job_step_unknown"], "%r is not why: %r", why, capture["first_job_step_unknown"])
    code, out, _ = tool("report", path)
    check(code == 0 and "of the job" not in out, "text of %s: %s", kind, out[:600])


@nightly("long")
def test_unknown():
    unknown("sgd", "keeps no count")
    unknown("gan", "several optimizers")
    unknown("capturable", "on the device", device="cuda", LD_PRELOAD=PRELOAD)


@nightly("programs")
def test_table():
    """`job_step` of `export parquet`."""
    arrow = harness.installed("python", "tables", step="tables")
    p = job("adam", 42)
    numbered = record(p, "numbered.mtr", "--steps", "30")
    p.stop()
    p = job("sgd", 42)
    unnumbered = record(p, "unnumbered.mtr", "--steps", "30")
    p.stop()
    first = document(numbered)["capture"]["first_job_step"]
    equal(tool("export", "parquet", numbered, unnumbered, "-o", scratch("tables"))[0], 0, "export parquet")
    query = "import duckdb, json, sys; print(json.dumps(duckdb.execute(\"SELECT recording, step, job_step FROM read_parquet(" \
        "'%s/steps/**/*.parquet')\" % sys.argv[1]).fetchall()))"
    done = subprocess.run([arrow, "-c", query, scratch("tables")], capture_output=True, text=True, check=False, timeout=60)
    equal(done.returncode, 0, "DuckDB: %s" % done.stderr[-500:])
    rows = json.loads(done.stdout)
    check(len(rows) >= 40, "rows: %s", rows)
    for recording, step, number in rows:
        equal(number, first + step if recording == "numbered" else None, "job_step of %s, step %d" % (recording, step))


def test_parts():
    """Windows and parts of a rolling folder begin later than the capture."""
    # A window has the number that is known when it ends: the steps before it take three seconds, the first reading a tenth of one.
    p = job("adam", 90, pause=0.03)
    window = record(p, "window.mtr", "--skip", "100", "--steps", "5")
    folder = record(p, "rolling/", "--rolling", "1M", "--steps", "20")
    p.stop()
    first = check_numbers(window, 5)
    equal(document(window)["capture"]["steps"], 5, "steps of the window")
    check(first > 190, "the window begins with step %d", first)
    parts = sorted(glob.glob(folder + "/*.mtr"))
    check(parts, "no part in %s", folder)
    for part in parts:
        check_numbers(part, 1)


def pass_steps(p, n):
    p.wait_line("^step %d$" % (int(p.stdout().split()[-1]) + n), 60)


def test_ranks():
    """Two ranks of one job, attached at different moments, are compared in the steps that both recordings have."""
    ranks = [job("adam", 300, pause=0.05, RANK=str(i), LOCAL_RANK=str(i), WORLD_SIZE="2", WAIT="1") for i in range(2)]
    files = [scratch("rank%d.mtr" % i) for i in range(2)]
    recorders = []
    for p in ranks:
        p.send()
    for p, file in zip(ranks, files):
        recorders.append(harness.record(p.pid, file))
        pass_steps(p, 10)
    both = max(int(p.stdout().split()[-1]) for p in ranks) + 10
    for p in ranks:
        p.wait_line("^step %d$" % both, 120)
    for r in recorders:
        harness.finish(r)
    for p in ranks:
        p.stop()
    spans = []
    for file in files:
        first = check_numbers(file, 4)
        spans.append((first + 1, first + document(file)["capture"]["steps"]))
    code, out, err = tool("report", "--together", "--format", "json", *files)
    equal((code, err), (0, ""), "report of both")
    doc = json.loads(out)
    equal([r["first_job_step"] for r in doc["recordings"]], [a - 1 for a, _ in spans], "first steps")
    common = (max(a for a, _ in spans), min(b for _, b in spans))
    check(common[0] < common[1] and spans[0] != spans[1], "steps: %s", spans)
    equal(doc["step_match"], {"by": "optimizer", "first": common[0], "last": common[1]}, "steps that are compared (%s)" % spans)
    code, out, err = tool("report", "--together", "--format", "html", *files)
    check(code == 0 and '"step_match":' in out, "page: %s", err)
    code, out, err = tool("report", *files, prefix=("env", "COLUMNS=200"))
    check(code == 0 and "Steps %d to %d of the job, by the optimizers' own count, take " % common in out, "text: %s %s", out, err)


if __name__ == "__main__":
    run(globals())

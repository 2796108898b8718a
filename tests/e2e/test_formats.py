#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# run: check long cpu=60
"""
The formats of `export`: compared with kept files, with their own rules, with other projects' programs and, for the snapshot,
with PyTorch's own. `make formats` does more: docs/internals/FORMATS.md.

After an intended change, UPDATE=1 tests/e2e/test_formats.py test_files_kept writes the files again.
"""
import glob
import gzip
import json
import os
import pickle
import subprocess

import harness
import mtr_reader
import parquet
import readers
import snapshots
from harness import Skip, check, equal, made, nightly, run, scratch, tool
from mtr_writer import Writer

HISTORY = os.path.join(harness.WORKLOADS, "cuda", "history.py")
GOLDEN = os.path.join(harness.REPO, "tests", "data", "golden")
# html and flamegraph are pages: test_page.py and test_foreign.py read them with a browser.
KEPT = [name for name in readers.SUFFIX if name not in ("html", "flamegraph")]
IN_A_BROWSER = ("Chromium", "speedscope")


def recording(*options):
    path = scratch("formats%s.mtr" % "-".join(("", *options)))
    return path if os.path.exists(path) else made(path, *options)


def export(name, *options, of):
    path = scratch(os.path.basename(of) + readers.SUFFIX[name])
    code, _, err = tool("export", name, of, "-f", "-o", path, *options)
    equal(code, 0, "export %s: %s" % (name, err))
    return path


def test_files_kept():
    for name in KEPT:
        with open(export(name, of=recording("tiny")), "rb") as f:
            made = f.read()
        suffix = readers.SUFFIX[name]
        if name == "pprof":  # compressed size depends on zlib
            made, suffix = gzip.decompress(made), ".pb"
        kept = os.path.join(GOLDEN, "tiny" + suffix)
        if os.environ.get("UPDATE"):
            with open(kept, "wb") as f:
                f.write(made)
        with open(kept, "rb") as f:
            want = f.read()
        first = next((i for i, (a, b) in enumerate(zip(made, want)) if a != b), min(len(made), len(want)))
        check(made == want, "%s is not as it was, from byte %d of %d on: %r, was %r", name, first, len(want),
              made[max(0, first - 40):first + 60], want[max(0, first - 40):first + 60])


def accept(name, reader, path, of):
    want = readers.expected(harness.TOOL, of)
    try:
        return readers.accept(name, reader, path, want)
    except readers.Wrong as why:
        raise harness.Failure("%s of %s: %s" % (name, os.path.basename(of), why)) from None


@nightly("programs")
def test_programs_of_others():
    of, asked, missing = recording("tiny"), [], []
    for name, theirs in readers.THEIRS.items():
        for label, reader in theirs.items():
            if label in IN_A_BROWSER:
                continue
            try:
                accept(name, reader, export(name, of=of), of)
                asked.append("%s by %s" % (name, label))
            except readers.Missing as why:
                missing.append("%s by %s (%s)" % (name, label, why))
    print("     read: %s" % ", ".join(asked), flush=True)
    for m in missing:
        print("     not read: %s" % m, flush=True)
    if not asked:
        raise Skip("none of them is here: tools/deps.sh formats")


def test_reduced_detail_is_said():
    """A recording with a limit of its cost: the program says for each format what is missing, and so does each file that has a place for it."""
    path, said = scratch("reduced.mtr"), "tracing took 14 % of the target's time, the limit was 1 %"
    w = Writer(path, {"comm": "python", "pid": "7", "cost.limit": "0.01", "cost.share": "0.14", "cost.changes": "1000:1:65536:140000"})
    w.block(30, size=1536, stack=w.stack("/srv/a.py", "f", 7))
    w.close()
    for name, suffix in readers.SUFFIX.items():
        out = path + suffix
        code, _, err = tool("export", name, path, "-f", "-o", out)
        equal((code, "reduced detail: " + said in err), (0, True), "export %s: %s" % (name, err))
        with gzip.open(out) if name == "pprof" else open(out, "rb") as f:
            data = f.read()
        equal(said.encode() in data.replace(b"\\u0027", b"'"), name not in ("folded", "tensorboard", "csv", "ndjson"), "%s says it" % name)
    code, _, err = tool("export", "parquet", path, "-o", scratch("reduced"))
    check(code == 0 and said in err, "export parquet: %s", err)
    file, = glob.glob(scratch("reduced") + "/devices/*/*/*.parquet")
    check(said in parquet.read(file)[0]["reduced_detail"], "devices: %s", parquet.read(file)[0])
    other = recording("tiny")
    for command in (["report", "--together"], ["leaks"]):
        text, doc = (tool(*command, path, other, "--format", form)[1] for form in ("text", "json"))
        equal(text.count("reduced has reduced detail: " + said), 1, "%s of several: %s" % (command, text))
        equal([bool(r["detail"] and said in r["detail"]) for r in json.loads(doc)["recordings"]], [True, False], "%s as JSON" % command)


def test_a_full_disk_is_no_success():
    for name in readers.SUFFIX:
        code, _, err = tool("export", name, recording("tiny"), "-o", "/dev/full")
        check(code == 1 and "cannot write" in err, "export %s to a full disk: exit %d: %s", name, code, err)


def test_from_a_pipe():
    with open(recording("tiny"), "rb") as f:
        data = f.read()
    for name in ("perfetto", "pprof", "otlp", "snapshot", "openmetrics", "csv", "ndjson", "tensorboard"):
        done = subprocess.run([harness.TOOL, "export", name, "-", "-o", "-"], input=data, capture_output=True, timeout=60, check=False)
        if name == "tensorboard":
            check(done.returncode == 2 and not done.stdout and b"save it to a file first" in done.stderr, "tensorboard of a pipe: %r", done.stderr)
            continue
        check(done.returncode == 0 and done.stdout, "export %s of a pipe: exit %d: %r", name, done.returncode, done.stderr)


def test_first_step_of_an_older_window():
    """Older recorders wrote the facts of a window after its events. Its first step still begins with the window."""
    path = os.path.join(harness.REPO, "tests", "data", "guide", "base.mtr")
    with open(path, "rb") as f:
        reader = mtr_reader.Recording(f)
        list(reader.events())
    start = int(reader.facts["window_start_ns"]) / 1e3
    with open(export("perfetto", of=path), "rb") as f:
        made = f.read()
    with open(path, "rb") as f:
        piped = subprocess.run([harness.TOOL, "export", "perfetto", "-", "-o", "-"], stdin=f, capture_output=True, timeout=60, check=False)
    for data in (made, piped.stdout):
        steps = [e for e in json.loads(data)["traceEvents"] if e.get("cat") == "step"]
        equal((len(steps), steps[0]["ts"]), (4, start), "steps, and the start of the first")
    code, out, err = tool("compare", "--steps", "1", "--format", "json", path)
    equal((code, json.loads(out)["captures"][0]["step_time"] * 1e6), (0, steps[0]["dur"]), "the first step in compare: " + err)


def test_one_device():
    path = export("csv", "--device", "cpu", of=recording("tiny"))
    equal({d for d, _ in readers.csv_(path)}, {"cpu"}, "devices of csv --device cpu")
    path = export("pprof", "--device", "cuda", of=recording("tiny"))
    equal({d for d, _ in readers.pprof(path)}, {"cuda:0"}, "devices of pprof --device cuda")
    code, _, err = tool("export", "snapshot", recording("tiny"), "-o", "-", "--device", "cpu")
    check(code == 2 and "needs CUDA events" in err, "a snapshot of the CPU: exit %d: %s", code, err)


def test_snapshot_is_pytorchs_own():
    snapshots.compare("empty_cache", "expandable")
    snapshots.compare("two devices")


def pytorchs_own_stacks(role):
    """Where PyTorch has recorded Python: file and line of each frame, with nn.Module's own frames and the called module."""
    path, told = scratch("history-%s.mtr" % role), scratch("history-%s.pickle" % role)
    code, _, err = tool("run", "--dry-run-cuda", "-q", "-f", "-o", path, "--", harness.python(role), HISTORY, told, seconds=120)
    equal(code, 0, "run: %s" % err)
    with open(told, "rb") as f:
        theirs = [e for e in pickle.load(f)["device_traces"][0] if e["action"] == "alloc"]
    ours = [e for e in snapshots.export(path)["device_traces"][0] if e["action"] == "alloc"]
    equal([e["addr"] for e in ours], [e["addr"] for e in theirs], "allocations")
    compared = calls = 0
    for a, b in zip(ours, theirs):
        if not b["frames"]:  # autograd's threads run no Python: the stack is the forward call's
            continue
        equal([(f["filename"], f["line"]) for f in a["frames"]], [(f["filename"], f["line"]) for f in b["frames"]], "frames")
        names = [f["name"] for f, g in zip(a["frames"], b["frames"]) if g["name"] == "_wrapped_call_impl"]
        if not all("_wrapped_call_impl [" in name for name in names):
            check(False, "calls of modules in stack %d: %s; counters: %s", compared, names, harness.report(path)["capture"]["counters"])
        calls += sum("[0.up (Linear)]" in name for name in names)
        compared += 1
    check(compared > 100 and calls >= 3, "%d stacks, %d calls of the module 0.up", compared, calls)


def test_snapshot_has_pytorchs_own_stacks():
    pytorchs_own_stacks("main")


@nightly("versions")
def test_snapshot_has_pytorchs_own_stacks_newest():
    pytorchs_own_stacks("newest")


def test_snapshot_of_another_moment():
    """--at peak: the content adds up to the peak, and no event is after it."""
    path, _ = snapshots.recorded("empty_cache")
    want = harness.device(harness.report(path, at="peak"), "cuda:0")
    doc = snapshots.export(path, "--at", "peak")
    _, reserved, _, allocated = snapshots.sums(doc)[0]
    equal(allocated, want["peak_allocated"], "allocated at the peak")
    live = {}
    for e in doc["device_traces"][0]:
        if e["action"] == "alloc":
            live[e["addr"]] = e["size"]
        elif e["action"] == "free_requested":
            del live[e["addr"]]
    blocks = {b["address"] for s in doc["segments"] for b in s["blocks"] if b["state"] == "active_allocated"}
    equal(set(live), blocks, "blocks that the events leave")
    check(reserved <= want["peak_reserved"], "reserved: %d", reserved)


if __name__ == "__main__":
    run(globals())

#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# run: check
"""
Upgrades: this program reads the recordings that older programs wrote (tests/data/recordings), passes over what a newer one may add
to this version of the format, and refuses what it cannot read.

After an intended change of a figure, UPDATE=1 tests/e2e/test_upgrade.py test_figures_kept writes expected.json again.
"""
import collections
import glob
import json
import os
import re
import struct
import subprocess
import time

import harness
import mtr_reader
import readers
import server
from harness import REPO, check, equal, read_json, run, scratch, tool

FOLDER = os.path.join(REPO, "tests", "data", "recordings")
EXPECTED = os.path.join(FOLDER, "expected.json")
UNUSABLE = 2  # user/base/exit.h
NEWER = "made by a newer memtrace-bpf in a format that this version cannot read; read it with the version that wrote it or a later one"
DEVICE = ("device", "state", "allocated", "reserved", "peak_allocated", "peak_reserved", "live_blocks", "allocs", "frees", "total_allocated")


def recordings():
    return sorted(glob.glob(os.path.join(FOLDER, "*.mtr")))


def name_of(path):
    return os.path.basename(path)[:-len(".mtr")]


def this_version():
    with open(os.path.join(REPO, "user", "record", "mtr.h"), encoding="utf-8") as f:
        return int(re.search(r"#define MTR_VERSION (\d+)", f.read())[1])


def document(*args):
    code, out, err = tool(*args)
    equal((code, err), (0, ""), "memtrace-bpf %s" % " ".join(args))
    return json.loads(out)


def reported(path):
    doc = document("report", "--format", "json", path)
    figures = {k: doc["capture"][k] for k in ("events", "lost", "steps", "complete", "attached_at")}
    figures["format"] = doc["memtrace"]["recording_format"]
    figures["devices"] = [{k: d[k] for k in DEVICE} for d in doc["devices"]]
    figures["rows"] = sum(row["bytes"] for row in doc["rows"])
    return figures


def leaking(path):
    keys = ("line", "function", "verdict", "bytes_per_step", "bytes", "count")
    doc = document("leaks", "--format", "json", "--min-confidence", "low", path)
    return [{k: leak[k] for k in keys} for d in doc["devices"] for leak in d["leaks"]]


def test_figures_kept():
    """Totals of report and the growing line of leaks, for a recording of each version."""
    got = {name_of(p): {"report": reported(p), "leaks": leaking(p)} for p in recordings()}
    if os.environ.get("UPDATE"):
        with open(EXPECTED, "w", encoding="utf-8") as f:
            f.write(json.dumps(got, indent=1) + "\n")
    expected = read_json(EXPECTED)
    equal(sorted(got), sorted(expected), "recordings")
    for name, want in expected.items():
        equal(got[name], want, name)


def test_every_version_is_kept():
    """A new version of the format needs a recording of it, made before the next one."""
    kept = {reported(p)["format"] for p in recordings()}
    equal(kept, set(range(1, this_version() + 1)), "versions in tests/data/recordings")


def test_other_reader():
    """A reader that shares no code with the program finds the same events."""
    for path in recordings():
        with open(path, "rb") as f:
            r = mtr_reader.Recording(f)
            kinds = [e["kind"] for e in r.events()]
        want = read_json(EXPECTED)[name_of(path)]["report"]
        marks = kinds.count(mtr_reader.MARK) + kinds.count(mtr_reader.SCOPE)  # which report does not count as events
        equal((r.version, len(kinds) - marks, r.complete), (want["format"], want["events"], True), name_of(path))
        for d, key in ((mtr_reader.ALLOC, "allocs"), (mtr_reader.FREE, "frees")):
            equal(kinds.count(d), sum(x[key] for x in want["devices"]), "%s: %s" % (name_of(path), key))


def test_comparisons():
    """diff of each pair of the same job, in either order, and compare of all."""
    by_kind = {kind: [p for p in recordings() if p.endswith("-%s.mtr" % kind) and "v1-" not in p] for kind in ("started", "attached")}
    for paths in by_kind.values():
        check(len(paths) > 3, "only %s", paths)
        for old in paths:
            for new in (paths[0], paths[-1]):
                doc = document("diff", "--format", "json", old, new)
                figures = [doc[side]["allocated"] for side in ("old", "new")]
                equal((figures[0], doc["change"], doc["adds_up"]), (figures[1], 0, True), "diff %s %s" % (old, new))
    code, out, err = tool("compare", "--format", "json", *by_kind["started"])
    equal(code, 0, "compare: %s" % err)
    equal(len(json.loads(out)["captures"]), len(by_kind["started"]), "compared recordings")


# ---- what a newer program may add ----

def block(kind, payload, flags=0):
    header = struct.pack("<5I", kind, flags, len(payload), len(payload), mtr_reader.crc32c(payload))
    return header + struct.pack("<I", mtr_reader.crc32c(header)) + payload


def facts(**values):
    def text(s):
        return bytes([len(s)]) + s.encode()

    return block(1, bytes([len(values)]) + b"".join(text(k) + text(v) for k, v in values.items()))


def blocks(data):
    """(kind, bytes with the header) of each block."""
    at = 16
    while at < len(data):
        kind, _, stored = struct.unpack_from("<3I", data, at)
        yield kind, data[at:at + 24 + stored]
        at += 24 + stored


def with_additions(path):
    """The recording with new blocks and facts between all of its own."""
    with open(path, "rb") as f:
        data = f.read()
    made = data[:16]
    for kind, old in blocks(data):
        made += block(77, b"from the future") + facts(future="1") + old
    return made + b"anything after the end"


def written(name, data):
    path = scratch(name)
    with open(path, "wb") as f:
        f.write(data)
    return path


def test_additions_are_passed_over():
    """Blocks of unknown types and facts with unknown keys need no new version: the report stays the same."""
    for path in recordings():
        os.makedirs(scratch("added"), exist_ok=True)
        added = written(os.path.join("added", os.path.basename(path)), with_additions(path))
        check(os.path.getsize(added) > os.path.getsize(path) + 200, "nothing was added")
        for args in (["report"], ["report", "--format", "json"], ["leaks"], ["export", "csv", "-o", "-"]):
            equal(tool(*args, added), tool(*args, path), "%s of %s" % (" ".join(args), os.path.basename(path)))
        with open(added, "rb") as f:
            r = mtr_reader.Recording(f)
            collections.deque(r.events(), maxlen=0)
            equal((r.complete, r.facts["future"]), (True, "1"), "the other reader")


def test_unknown_flag_is_damage():
    """Flags of a block, unlike its type, change what its bytes mean. The reading ends before it, and that is said."""
    with open(os.path.join(FOLDER, "v5-started.mtr"), "rb") as f:
        data = f.read()
    *others, end = (b for _, b in blocks(data))
    made = data[:16] + b"".join(others) + block(3, b"", flags=8) + end
    code, out, err = tool("report", "--format", "json", written("flag.mtr", made))
    equal((code, json.loads(out)["capture"]["complete"]), (0, False), "a block with an unknown flag: %s" % err)


# ---- what is refused ----

def newer():
    """A recording of the version after this one."""
    with open(os.path.join(FOLDER, "v5-started.mtr"), "rb") as f:
        data = f.read()
    return written("newer.mtr", data[:8] + struct.pack("<I", this_version() + 1) + data[12:])


def test_newer_format_is_refused():
    """Each command that reads recordings: one line, exit code 2, nothing written."""
    new, old, out = newer(), os.path.join(FOLDER, "v5-started.mtr"), scratch("never")
    commands = [["report", new], [new], ["leaks", new], ["diff", old, new], ["diff", new, old], ["compare", old, new], ["replay", new],
                ["report", "--format", "json", new]]
    commands += [["export", name, new, "-o", out] for name in readers.SUFFIX]
    for command in commands:
        code, printed, err = tool(*command)
        equal((code, printed, err), (UNUSABLE, "", "memtrace-bpf: %s: %s\n" % (new, NEWER)), "memtrace-bpf %s" % " ".join(command))
        check(not os.path.exists(out), "%s wrote a file", command)
    code, printed, err = tool("report", "--together", new, old)
    equal((code, "v5-started" in printed, err), (UNUSABLE, True, "memtrace-bpf: %s: %s\n" % (new, NEWER)), "with one that can be read")
    with open(new, "rb") as f:
        done = subprocess.run([harness.TOOL, "report", "-"], stdin=f, capture_output=True, text=True, check=False)
    equal((done.returncode, done.stdout, done.stderr), (UNUSABLE, "", "memtrace-bpf: standard input: %s\n" % NEWER), "from a pipe")


def test_serve_refuses_a_newer_format():
    """The trace of such a recording has failed, with the same words; the others are served."""
    server.needs_serve()
    s = server.Server(newer(), os.path.join(FOLDER, "v1-attached.mtr"))
    try:
        limit = time.monotonic() + 30
        while True:
            traces = {t["process"]: t for t in s.get("/api/trace/list").expect().json["traces"]}
            if traces["newer.mtr"]["state"] == "failed":
                break
            check(time.monotonic() < limit, "%s", traces)
            time.sleep(0.1)
        equal(traces["newer.mtr"]["error"], "newer.mtr: " + NEWER, "error of the trace")
        doc = s.get("/api/trace/%s" % traces["v1-attached.mtr"]["trace_id"]).expect().json
        equal(doc["devices"][0]["peak_allocated"], read_json(EXPECTED)["v1-attached"]["report"]["devices"][0]["peak_allocated"], "peak of the other")
    finally:
        s.stop()


def test_newer_folder_is_refused():
    folder = scratch("folder")
    os.makedirs(folder)
    written("folder/index.json", b'{"memtrace_folder": 2, "recordings": []}')
    for command in (["report", folder], ["compare", folder], ["leaks", folder]):
        code, out, err = tool(*command)
        equal((code, out, err), (UNUSABLE, "", "memtrace-bpf: %s: its index.json was made by a newer memtrace-bpf; use that version or a later one\n"
                                 % folder), "memtrace-bpf %s" % " ".join(command))
    written("folder/index.json", b'{"memtrace_folder": 1, "recordings": [{"file": "segment-000000.mtr", "kind": "segment", "from": 0, "to": 1, "events": 1, "lost": 0, "bytes": 1, "devices": []}]}')
    written("folder/totals.json", b'{"memtrace_totals": 2}')
    code, out, err = tool("report", folder)
    equal((code, out, err), (UNUSABLE, "", "memtrace-bpf: %s: totals.json was made by a newer memtrace-bpf; use that version or a later one\n" % folder),
          "totals.json")


if __name__ == "__main__":
    run(globals())

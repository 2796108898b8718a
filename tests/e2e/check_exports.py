#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
Exports recordings in every format and checks shape, sums, and that the formats agree.

    tests/e2e/check_exports.py [--program PATH] [--foreign DIR] RECORDING.mtr ...

Other projects' programs read the files too, if installed: pandas from Python's packages, speedscope and Chromium through
tests/foreign (npm ci there, or --foreign names a folder with its node_modules). Missing programs are reported.
"""
import argparse
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SUFFIX = {"flamegraph": ".html", "folded": ".collapsedstack.txt", "speedscope": ".speedscope.json", "timeline": ".json"}
EVENT_FIELDS = {
    "timestamp": float,
    "event_type": str,
    "size_bytes": int,
    "allocated_bytes": int,
    "reserved_bytes": int,
    "fragmentation_ratio": float,
    "device": str,
}
EVENT_TYPES = {"alloc", "free", "snapshot", "layer_enter", "layer_exit", "oom", "lost"}
# null for allocators that do not report reserved memory, such as the CPU's.
OF_RESERVED = {"peak_reserved", "avg_fragmentation"}
LAYER_FIELDS = {
    "layer_name": str,
    "peak_allocated": int,
    "peak_reserved": int,
    "total_allocations": int,
    "total_deallocations": int,
    "avg_fragmentation": float,
    "duration_ms": float,
}


class Failure(Exception):
    pass


def check(condition, what):
    if not condition:
        raise Failure(what)


def run(args, **kwargs):
    return subprocess.run([str(a) for a in args], capture_output=True, text=True, timeout=600, **kwargs)


class Exports:
    """The exported files of one recording, in their own folder."""

    def __init__(self, program, recording, folder):
        self.program, self.recording, self.folder = program, recording, folder
        self.files = {}

    def make(self):
        for fmt, suffix in SUFFIX.items():
            done = run([self.program, "export", fmt, self.recording], cwd=self.folder)
            check(done.returncode == 0, f"export {fmt}: exit {done.returncode}: {done.stderr.strip()}")
            path = self.folder / f"memtrace-{fmt}-{self.recording.name.removesuffix('.mtr')}{suffix}"
            check(path.is_file(), f"export {fmt}: no file {path.name}; there are {os.listdir(self.folder)}")
            check(path.name in done.stderr, f"export {fmt}: the message does not name the file: {done.stderr!r}")
            check(stat.S_IMODE(path.stat().st_mode) == 0o600, f"{path.name}: mode {path.stat().st_mode:o}")
            self.files[fmt] = path

    def manners(self):
        """Output never replaces a file without -f and is never partial; a full disk is an error."""
        path = self.files["folded"]
        before = path.read_bytes()
        done = run([self.program, "export", "folded", self.recording], cwd=self.folder)
        check(done.returncode == 1 and "-f" in done.stderr, "an existing file is replaced, or the message lacks -f")
        check(path.read_bytes() == before, "an existing file was changed")
        done = run([self.program, "export", "folded", self.recording, "-f"], cwd=self.folder)
        check(done.returncode == 0 and path.read_bytes() == before, "export -f does not give the same file again")
        done = run([self.program, "export", "folded", self.recording, "-o", "-"], cwd=self.folder)
        check(done.stdout.encode() == before, "standard output differs from the file")
        for fmt in SUFFIX:
            done = run([self.program, "export", fmt, self.recording, "-o", "/dev/full"], cwd=self.folder)
            check(done.returncode == 1 and done.stderr, f"export {fmt} to a full disk exits {done.returncode}")
        check(stat.S_ISCHR(os.stat("/dev/full").st_mode), "/dev/full was replaced")
        link = self.folder / "link"
        link.symlink_to(self.folder / "elsewhere")
        done = run([self.program, "export", "folded", self.recording, "-f", "-o", link], cwd=self.folder)
        check(done.returncode == 1 and not (self.folder / "elsewhere").exists(), "a symbolic link was followed")
        link.unlink()
        left = {p.name for p in self.folder.iterdir()} - {p.name for p in self.files.values()}
        check(not left, f"files left behind: {left}")


def read_folded(path):
    """device -> bytes"""
    sums = defaultdict(int)
    for line in path.read_text(encoding="utf-8").splitlines():
        match = re.fullmatch(r"([^;]+)((?:;[^;]+)+) (\d+)", line)
        check(match, f"folded: {line!r}")
        # flamegraph.pl would take it for the first of two counts.
        check(not re.fullmatch(r".*\s\d+(\.\d*)?", match[1] + match[2]), f"folded: two counts: {line!r}")
        check(not re.search(r"[\x00-\x1f\x7f]", line), f"folded: control character: {line!r}")
        check(int(match[3]) > 0, f"folded: nothing: {line!r}")
        sums[match[1]] += int(match[3])
    return dict(sums)


def read_speedscope(path):
    """(device, view) -> sum"""
    doc = json.loads(path.read_text(encoding="utf-8"))
    check(doc["$schema"] == "https://www.speedscope.app/file-format-schema.json", "speedscope: $schema")
    frames = doc["shared"]["frames"]
    keys = {(f["name"], f.get("file"), f.get("line")) for f in frames}
    check(len(keys) == len(frames), "speedscope: a frame is there twice")
    sums = {}
    for p in doc["profiles"]:
        device, view = p["name"].split(" ", 1)
        check(p["type"] == "sampled" and p["unit"] == ("none" if view == "allocations" else "bytes"), p["name"])
        check(len(p["samples"]) == len(p["weights"]), f"{p['name']}: samples and weights")
        check(all(s and all(0 <= i < len(frames) for i in s) for s in p["samples"]), f"{p['name']}: frame numbers")
        check(p["startValue"] == 0 and p["endValue"] == sum(p["weights"]), f"{p['name']}: endValue")
        sums[device, view] = p["endValue"]
    check(0 <= doc["activeProfileIndex"] < len(doc["profiles"]), "speedscope: activeProfileIndex")
    return sums


def read_flamegraph(path):
    """(device, view) -> sum"""
    text = path.read_text(encoding="utf-8")
    for outside in (r"\bsrc\s*=", r"\bhref\s*=", r"url\(", r"@import", r"https?://", "@@"):
        check(not re.search(outside, re.sub(r'<script type="application/json".*?</script>', "", text, flags=re.S)),
              f"flamegraph: the page refers to something outside: {outside}")
    check("default-src 'none'" in text, "flamegraph: no content security policy")
    data = json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)[1])
    n = len(data["nodes"]["parent"])
    check(n == len(data["nodes"]["frame"]), "flamegraph: nodes")
    check(all(-1 <= p < i for i, p in enumerate(data["nodes"]["parent"])), "flamegraph: parents come first")
    check(all(0 <= f < len(data["frames"]) // 4 for f in data["nodes"]["frame"]), "flamegraph: frame numbers")
    sums = {}
    for device in data["devices"]:
        for view in device["views"]:
            check(len(view["node"]) == len(view["bytes"]) == len(view["count"]), "flamegraph: a view's arrays")
            check(all(0 <= i < n for i in view["node"]), "flamegraph: node numbers")
            sums[device["name"], view["id"]] = sum(view["bytes"])
    return sums


def check_layers(events, roots, real):
    """Enters and exits nest on each thread, and each allocation is in the thread's current layer; backward's may be charged to
    the layer of its forward. Layers entered before attach are unknown. real: false for generated recordings, which may
    allocate anywhere."""
    inside, whole = defaultdict(list), set()
    for e in events:
        stack = inside[e.get("thread")]
        if e["event_type"] == "layer_enter":
            stack.append(e["layer_name"])
            if e["layer_name"] in roots:
                whole.add(e.get("thread"))
        elif e["event_type"] == "layer_exit":
            check(stack and stack.pop() == e["layer_name"], f"timeline: left {e['layer_name']} but was not in it")
        elif e["event_type"] == "alloc" and e["layer_name"] is not None and e["phase"] != "backward":
            # Inner layers may be reported as left only at the next call.
            check(not real or e.get("thread") not in whole or e["layer_name"] in stack,
                  f"timeline: {e['layer_name']} allocates but was not entered")
    check(not any(inside.values()), "timeline: a layer was not left")
    check(whole or not roots, "timeline: no model was entered")


def read_timeline(path, real=True):
    """The document; events, layer_stats and summary agree."""
    doc = json.loads(path.read_text(encoding="utf-8"))
    events, summary = doc["events"], doc["summary"]
    for e in events:
        for name, kind in EVENT_FIELDS.items():
            check(isinstance(e.get(name), kind), f"timeline: {name} of {e}")
        check("layer_name" in e and e["event_type"] in EVENT_TYPES, f"timeline: {e}")
        check(0 <= e["fragmentation_ratio"] <= 1, f"timeline: fragmentation of {e}")
        if e["reserved_bytes"]:
            want = max(0, e["reserved_bytes"] - e["allocated_bytes"]) / e["reserved_bytes"]
            check(abs(e["fragmentation_ratio"] - want) < 1e-3, f"timeline: fragmentation of {e}")
    check_layers(events, {key for key, layer in doc["layer_stats"].items() if key == layer["layer_class"]}, real)
    reserves = summary["device"] != "cpu"
    for key, layer in doc["layer_stats"].items():
        for name, kind in LAYER_FIELDS.items():
            known = reserves or name not in OF_RESERVED
            check(isinstance(layer[name], kind) if known else layer[name] is None, f"timeline: {name} of layer {key}")
        check(not real or layer["total_deallocations"] <= layer["total_allocations"], f"timeline: {key} frees more than it had")
    for device in summary["devices"]:
        own = [e for e in events if e["device"] == device["device"]]
        allocs = [e for e in own if e["event_type"] == "alloc"]
        check(len(allocs) == device["total_allocations"], f"timeline: allocations of {device['device']}")
        check(sum(e["size_bytes"] for e in allocs) == device["total_allocated"], f"timeline: bytes of {device['device']}")
        check(max(e["allocated_bytes"] for e in own) == device["peak_allocated"], f"timeline: peak of {device['device']}")
        peaks = [e for e in own if e["event_type"] == "snapshot" and e["reason"] == "peak"]
        check(peaks and peaks[-1]["allocated_bytes"] == device["peak_allocated"], "timeline: no snapshot of the peak")
    steps = [e for e in events if e["event_type"] == "snapshot" and e["reason"] == "step"]
    # The step active at attach also ends, but is not counted.
    ends = max((e["step"] for e in steps), default=0)
    check(summary["steps"] in {ends, ends - 1}, "timeline: a snapshot at each step")
    check(summary["events_written"] == len(events), "timeline: events_written")
    return doc


def with_pandas(doc):
    try:
        import pandas
    except ImportError:
        print("  pandas is not installed: the timeline was read by json alone")
        return
    frame = pandas.DataFrame(doc["events"])
    check(len(frame) == len(doc["events"]), "pandas: rows")
    device = doc["summary"]["device"]
    check(frame[frame.device == device].allocated_bytes.max() == doc["summary"]["peak_allocated"], "pandas: peak")
    layers = pandas.DataFrame.from_dict(doc["layer_stats"], orient="index")
    check(len(layers) == doc["summary"]["total_layers"], "pandas: layers")


def with_foreign(exports, foreign):
    node = shutil.which("node")
    if not node or not (foreign / "node_modules").is_dir():
        print(f"  speedscope and Chromium were not asked: {'npm ci in tests/foreign' if node else 'node'} is wanted")
        return
    for script, files in (
        ("check_speedscope.mjs", [exports.files["speedscope"], exports.files["folded"]]),
        ("check_flamegraph.mjs", [exports.files["flamegraph"]]),
    ):
        done = run([node, foreign / script, *files])
        if done.returncode == 77:
            print(f"  {script}: {done.stderr.strip()}")
            continue
        check(done.returncode == 0, f"{script}: {done.stderr.strip()}")


def check_recording(program, recording, foreign):
    with tempfile.TemporaryDirectory(prefix="check_exports.") as folder:
        exports = Exports(program, recording, Path(folder))
        exports.make()
        folded = read_folded(exports.files["folded"])
        speedscope = read_speedscope(exports.files["speedscope"])
        flamegraph = read_flamegraph(exports.files["flamegraph"])
        doc = read_timeline(exports.files["timeline"])
        for device in doc["summary"]["devices"]:
            name = device["device"]
            for view, want in (
                ("peak", device["peak_allocated"]),
                ("end", device["end_allocated"]),
                ("total", device["total_allocated"]),
            ):
                check(flamegraph[name, view] == want, f"flamegraph: {name} {view}: {flamegraph[name, view]}, not {want}")
                check(speedscope.get((name, view), 0) == want, f"speedscope: {name} {view}: not {want}")
            check(folded.get(name, 0) == device["peak_allocated"], f"folded: {name}: not {device['peak_allocated']}")
        with_pandas(doc)
        with_foreign(exports, foreign)
        exports.manners()
        print(f"{recording}: {len(doc['events'])} timeline events, {len(folded)} device(s), the formats agree")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=Path, default=ROOT / ".output" / "memtrace-bpf")
    parser.add_argument("--foreign", type=Path, default=ROOT / "tests" / "foreign")
    parser.add_argument("recordings", nargs="+", type=Path, metavar="RECORDING.mtr")
    args = parser.parse_args()
    for recording in args.recordings:
        try:
            check_recording(args.program.resolve(), recording.resolve(), args.foreign.resolve())
        except Failure as failure:
            print(f"{recording}: FAILED: {failure}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

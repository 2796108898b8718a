# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Compares `export snapshot` with torch.cuda.memory._snapshot() in the same process at the same moment: every segment, block and
event. truth.py runs the jobs."""
import pickle
import pickletools

import truth
from harness import check, equal, own, scratch, tool

# All that PyTorch's viewer supports (torch/utils/viz/MemoryViz.js).
OPCODES = set("""PROTO FRAME EMPTY_DICT EMPTY_LIST EMPTY_TUPLE MARK APPEND APPENDS SETITEM SETITEMS LIST DICT TUPLE TUPLE1 TUPLE2 TUPLE3
    NONE NEWTRUE NEWFALSE BININT BININT1 BININT2 LONG1 BINFLOAT BINUNICODE SHORT_BINUNICODE MEMOIZE BINPUT LONG_BINPUT BINGET LONG_BINGET
    STOP""".split())
LATE = ("streams",)  # jobs with frees that wait for a stream: the end of a wait is not recorded
TOGETHER = 1000  # items that the viewer pushes onto JavaScript's stack at once


def read(path):
    """The document; checks the shape that readers rely on."""
    with open(path, "rb") as f:
        raw = f.read()
    since = [0]
    for opcode, _, _ in pickletools.genops(raw[:8 << 20] if len(raw) < 8 << 20 else b"\x80\x02N."):
        check(opcode.name in OPCODES, "snapshot: %s, which the viewer does not know", opcode.name)
        if opcode.name == "MARK":
            since.append(0)
        elif opcode.name in ("APPENDS", "SETITEMS"):
            check(since.pop() <= TOGETHER, "snapshot: too many items at once")
        elif opcode.name in ("EMPTY_DICT", "EMPTY_LIST"):
            since[-1] += 1
    doc = pickle.loads(raw)
    devices = len(doc["device_traces"])
    for s in doc["segments"]:
        at, allocated, requested = s["address"], 0, 0
        check(0 <= s["device"] < devices, "snapshot: a segment of device %d of %d", s["device"], devices)
        for b in s["blocks"]:
            equal(b["address"], at, "address of a block")
            check(b["size"] > 0 and b["state"] in ("active_allocated", "inactive"), "snapshot: %r", b)
            at += b["size"]
            if b["state"] == "active_allocated":
                allocated, requested = allocated + b["size"], requested + b["requested_size"]
                check(b["frames"], "snapshot: a block without a frame")
                check(0 < b["requested_size"] <= b["size"], "snapshot: %r", b)
        equal(at, s["address"] + s["total_size"], "end of a segment's blocks")
        equal((allocated, s["active_size"], requested), (s["allocated_size"], s["allocated_size"], s["requested_size"]), "sums of a segment")
    for trace in doc["device_traces"]:
        times = [e["time_us"] for e in trace]
        check(all(isinstance(t, int) for t in times), "snapshot: times")
        for e in trace:
            check(("device_free" if e["action"] == "oom" else "addr") in e, "snapshot: %r", e)
            check(all(set(f) == {"filename", "line", "name"} for f in e["frames"]), "snapshot: frames of %r", e)
    return doc


def sums(doc):
    """device -> (segments, reserved, blocks, allocated)"""
    result = {}
    for s in doc["segments"]:
        n, total, blocks, allocated = result.get(s["device"], (0, 0, 0, 0))
        result[s["device"]] = (n + 1, total + s["total_size"],
                               blocks + sum(b["state"] == "active_allocated" for b in s["blocks"]), allocated + s["allocated_size"])
    return result


def export(recording, *options):
    own(recording)
    path = scratch("made.pickle")
    code, _, err = tool("export", "snapshot", "-f", "-o", path, *options, recording, seconds=120)
    check(code == 0, "export snapshot ended with %d: %s", code, err)
    return read(path)


def segments_of(doc):
    """Segments in the oracle's form, without the stream: not every recording has the allocator's number of it."""
    return sorted((s["device"], s["address"], s["total_size"], s["is_expandable"], tuple(
        (b["address"], b["size"], b["requested_size"] if b["state"] == "active_allocated" else 0, b["state"])
        for b in s["blocks"])) for s in doc["segments"])


def events(trace, job):
    """(action, address, size); adjacent mappings are joined, because PyTorch reports several handles as one."""
    result = []
    for e in trace:
        action, addr, size = (e["action"], e.get("addr"), e["size"]) if isinstance(e, dict) else e[:3]
        if action == "snapshot" or (action == "free_completed" and job in LATE):
            continue
        if action == "oom":  # free memory is PyTorch's reading; the recording has the driver's, if there is one at that moment
            addr = None
        last = result[-1] if result else None
        if last and action in ("segment_map", "segment_unmap") and last[0] == action and last[1] + last[2] == addr:
            result[-1] = (action, last[1], last[2] + size)
        else:
            result.append((action, addr, size))
    return result


def recorded(job, backend="native", role="main"):
    """Paths of a recording and of PyTorch's data at its end."""
    return truth.run_job({j.name: j for j in truth.JOBS}[job], role, backend, options=["--requested"] if truth.has_requested() else [])


def compare(job, backend="native", role="main"):
    """Fails on differences; returns the numbers of compared items."""
    path, oracle = recorded(job, backend, role)
    doc, told = export(path), truth.load(oracle)["end"]
    want = sorted((s["device"], s["address"], s["size"], s["expandable"], tuple(
        (at, size, requested if state == "active_allocated" else 0, state) for at, size, requested, state in s["blocks"]))
        for s in told["segments"])
    got = segments_of(doc)
    equal([s[:4] for s in got], [s[:4] for s in want], "segments of " + job)
    for ours, theirs in zip(got, want):
        equal(ours[4], theirs[4], "blocks of the segment at %#x of %s" % (ours[1], job))
    for device, (ours, theirs) in enumerate(zip(doc["device_traces"], told["traces"])):
        ours, theirs = events(ours, job), events(theirs, job)
        for i, (a, b) in enumerate(zip(ours, theirs)):
            equal(a, b, "event %d of device %d of %s" % (i, device, job))
        equal(len(ours), len(theirs), "events of device %d of %s" % (device, job))
    print("     %s, %s, torch %s: %d segments, %d blocks, %d events as PyTorch has them" % (
        job, backend, role, len(got), sum(len(s[4]) for s in got), sum(map(len, doc["device_traces"]))))

#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# run: long cpu=180
"""PyTorch's memory snapshots as input of commands. Each job writes a snapshot at its end while it is recorded, and both must give the
same figures: totals, peaks, and bytes by line."""
import gzip
import json
import os
import pickle
import shutil
import subprocess

import harness
import snapshots
import truth
from harness import check, equal, nightly, report, run, scratch, tool
from torch_snapshots import both, compare, figures, lines

def test_same_as_the_recording():
    for name in ("mlp", "empty_cache", "caught OOM", "two devices"):
        compare(name)


@nightly("long")
def test_expandable_segments():
    compare("empty_cache", "expandable")


@nightly("long")
def test_more_jobs():
    for name in ("MemPool", "CUDA graphs", "gpt", "streams", "checkpointing"):
        compare(name)
    compare("mlp", "expandable")


def test_other_containers():
    """gzip, zstd, JSON, older protocols and standard input give what the pickle gives."""
    _, snapshot = both("mlp")
    want = figures(report(snapshot))
    with open(snapshot, "rb") as f:
        raw = f.read()
    doc = pickle.loads(raw)
    with gzip.open(scratch("s.pickle.gz"), "wb") as f:
        f.write(raw)
    with open(scratch("s.json"), "w", encoding="utf-8") as f:
        json.dump(doc, f)
    for protocol in range(6):
        with open(scratch("p%d.pickle" % protocol), "wb") as f:
            pickle.dump(doc, f, protocol)
    with open(scratch("s.pickle.zst"), "wb") as f:
        subprocess.run(["zstd", "-q", "-c"], input=raw, stdout=f, check=True)
    for name in ("s.pickle.gz", "s.pickle.zst", "s.json", *("p%d.pickle" % p for p in range(6))):
        equal(figures(report(scratch(name))), want, name)
    done = subprocess.run([harness.TOOL, "report", "--format", "json", "--at", "end", "-"], input=raw, capture_output=True, check=False)
    equal(done.returncode, 0, "report -: %s" % done.stderr.decode())
    equal(figures(json.loads(done.stdout)), want, "standard input")


def test_round_trip():
    """A recording that is exported as a snapshot gives the same report again."""
    path, _ = both("mlp")
    made = scratch("made.pickle")
    code, _, err = tool("export", "snapshot", path, "-f", "-o", made)
    equal(code, 0, "export: %s" % err)
    equal(figures(report(made)), figures(report(path)), "figures")
    for at in ("peak", "end"):
        equal(charged(made, at), charged(path, at), "bytes by line and phase at the " + at)
    # Whether the census came in time decides about other roles at the peak.
    want, got = (report(p, "--device", "cuda:0", at="end")["categories"] for p in (path, made))
    known = [role for role, n in want.items() if n and role != "unknown"]
    check({"gradient", "optimizer_state"} <= set(known), "roles of the recording: %s", want)
    equal({role: got[role] for role in known}, {role: want[role] for role in known}, "roles")


def charged(path, at):
    """(file, line, phase) -> bytes, with what autograd allocates at the forward call's line."""
    found = {}
    for r in report(path, "--device", "cuda:0", at=at)["rows"]:
        key = r["file"], r["line"], r["phase"]
        found[key] = found.get(key, 0) + r["bytes"]
    return found


# Without `import torch`, which the viewer does not need.
VIZ = """
import importlib.util, json, os, pickle, sys
folder, = importlib.util.find_spec("torch").submodule_search_locations
spec = importlib.util.spec_from_file_location("viz", os.path.join(folder, "cuda", "_memory_viz.py"))
viz = importlib.util.module_from_spec(spec)
spec.loader.exec_module(viz)
seen = []
for path in sys.argv[1:]:
    with open(path, "rb") as f:
        doc = pickle.load(f)
    seen.append((viz.segsum(doc), viz.trace(doc)))
json.dump(seen, sys.stdout)
"""


def test_round_trip_of_a_snapshot():
    """A snapshot that is read and exported is the same to PyTorch's own viewer. Entries of the action snapshot are not kept, begins
    are rounded to a millisecond, and a free is completed when it is requested."""
    for name, backend in (("mlp", "native"), ("empty_cache", "expandable")):
        _, snapshot = both(name, backend)
        made, seen = scratch("again.pickle"), {}
        equal(tool("export", "snapshot", snapshot, "-f", "-o", made)[0], 0, "export")
        done = subprocess.run([harness.python(), "-W", "ignore", "-c", VIZ, snapshot, made], capture_output=True, text=True, check=True)
        for path, (segsum, trace) in zip((snapshot, made), json.loads(done.stdout)):
            trace = [line for line in trace.split("\n") if not line.startswith(("{'action'", "TOTAL MEM")) and "entries" not in line]
            with open(path, "rb") as f:
                entries = [e for e in pickle.load(f)["device_traces"][0] if e["action"] != "snapshot"]
            seen[path] = segsum, trace, [(e["action"], e["addr"], e["size"], e["stream"], e["action"] == "free_completed" or e["time_us"] - entries[0]["time_us"])
                                           for e in entries]
        for what, ours, theirs in zip(("segsum", "trace", "entries"), seen[made], seen[snapshot]):
            check(len(theirs) > 20, "%s of %s: %s", what, name, theirs)
            equal(ours, theirs, "%s of %s, %s" % (what, name, backend))


def test_round_trip_of_a_window():
    """Of a capture that began late, segments are in the trace after the blocks in them."""
    path, made = os.path.join(harness.REPO, "tests", "data", "guide", "base.mtr"), scratch("window.pickle")
    code, _, err = tool("export", "snapshot", path, "-f", "-o", made)
    equal(code, 0, "export: %s" % err)
    equal(figures(report(made)), figures(report(path)), "the report of the snapshot")


def test_round_trip_without_a_census():
    """What a node allocated in backward is no activation, although it has the frames of the forward call."""
    path, made = os.path.join(harness.REPO, "tests", "data", "guide", "leak.mtr"), scratch("leak.pickle")
    equal(tool("export", "snapshot", path, "-f", "-o", made)[0], 0, "export")
    roles = {r["category"] for r in report(made, at="end")["rows"] if r.get("phase") == "backward"}
    check("gradient" in roles and "activation" not in roles, "roles of backward: %s", roles)


def test_state_only():
    """Without a trace, the snapshot has what is live: all of it is from before."""
    _, snapshot = both("mlp")
    with open(snapshot, "rb") as f:
        doc = pickle.load(f)
    want = figures(report(snapshot))["cuda:0"]
    doc["device_traces"] = []
    path = scratch("state.pickle")
    with open(path, "wb") as f:
        pickle.dump(doc, f)
    got = figures(report(path))["cuda:0"]
    equal((got["allocated"], got["reserved"]), (want["allocated"], want["reserved"]), "the state")
    equal(lines(path, "cuda:0", "end"), lines(snapshot, "cuda:0", "end"), "lines of the state")


def test_part_of_the_trace():
    """A history that began late, or whose ring was full: the rest of the memory is from before it."""
    _, snapshot = both("empty_cache")
    with open(snapshot, "rb") as f:
        doc = pickle.load(f)
    want = figures(report(snapshot))["cuda:0"]
    trace = doc["device_traces"][0]
    path = scratch("part.pickle")
    for part in range(1, 8):
        doc["device_traces"][0] = trace[len(trace) * part // 8:]
        with open(path, "wb") as f:
            pickle.dump(doc, f)
        got = figures(report(path))["cuda:0"]
        equal((got["allocated"], got["reserved"]), (want["allocated"], want["reserved"]), "the end of part %d" % part)
    out = tool("report", path)[1]
    check("before the history" in out and "before attach" not in out, "%s", out)
    for command in (["report", "--by", "phase"], ["report", "--by", "segment"], ["leaks"], ["diff", snapshot], ["compare", snapshot],
                    ["report", "--advice"], ["export", "folded", "-o", "-"], ["export", "openmetrics", "-o", "-"]):
        code, out, err = tool(*command, path)
        equal(code, 0, "%s: %s" % (command, err))
        check("before attach" not in out + err, "%s: %s", command, out)
    equal(report(path)["capture"]["attached_at"], "history", "attached_at")


def test_every_command():
    """Each command that takes a recording takes a snapshot."""
    path, snapshot = both("mlp")
    for command in (["leaks", snapshot], ["diff", snapshot, path], ["compare", snapshot, path], ["report", "--by", "segment", snapshot],
                    ["export", "html", snapshot, "-f", "-o", scratch("s.html")], ["export", "folded", snapshot, "-f", "-o", scratch("s.folded")],
                    ["export", "snapshot", snapshot, "-f", "-o", scratch("again.pickle")]):
        code, _, err = tool(*command)
        equal(code, 0, "%s: %s" % (" ".join(command), err))
    equal(figures(report(scratch("again.pickle"))), figures(report(snapshot)), "a snapshot of a snapshot")
    snapshots.read(scratch("again.pickle"))
    equal(tool("import", snapshot, "-o", scratch("kept.mtr"))[0], 0, "import")
    equal(figures(report(scratch("kept.mtr"))), figures(report(snapshot)), "the recording of a snapshot")
    code, _, err = tool("import", scratch("kept.mtr"), "-o", scratch("twice.mtr"))
    check(code == 2 and "recording already" in err, "import of a recording: %d, %s", code, err)


def test_names():
    """What the program says of its allocations is their name."""
    _, snapshot = both("mlp")
    with open(snapshot, "rb") as f:
        doc = pickle.load(f)
    for e in doc["device_traces"][0]:
        e["user_metadata"] = "layer 7"
    path = scratch("named.pickle")
    with open(path, "wb") as f:
        pickle.dump(doc, f)
    names = {r["name"] for r in report(path)["rows"]}
    check("layer 7" in names, "names: %s", names)


def test_ranks():
    """A folder with a snapshot of each rank is one job, in the order of the ranks."""
    _, snapshot = both("mlp")
    folder = scratch("ranks")
    os.mkdir(folder)
    for rank in (0, 2, 10):
        shutil.copy(snapshot, os.path.join(folder, "oom_rank_%d.pickle" % rank))
    code, out, err = tool("report", "--format", "json", "--together", folder)
    equal(code, 0, "report of a folder: %s" % err)
    equal([r["rank"] for r in json.loads(out)["recordings"]], [0, 2, 10], "ranks")
    code, out, err = tool("compare", folder)
    equal(code, 0, "compare: %s" % err)
    check(out.index("oom_rank_2") < out.index("oom_rank_10"), "%s", out)
    code, _, err = tool("export", "html", folder, "-o", scratch("ranks.html"))
    check(code == 64 and "oom_rank_2.pickle" in err and "report --format html" in err, "a page of a folder of snapshots: %d, %s", code, err)
    code, out, err = tool("report", "--format", "html", folder)
    check(code == 0 and "oom_rank_10" in out, "the page of all ranks: %d, %s", code, err)


def dumps(names, rank):
    """Snapshots with the calls and names of frameworks, in a folder for each."""
    folder = scratch("dumps")
    if not os.path.exists(os.path.join(folder, names.split(",")[0])) or rank:
        env = {**truth.dry_run(), "TORCH_SYMBOLIZE_MODE": "dladdr"}
        job = harness.spawn([harness.python(), os.path.join(harness.WORKLOADS, "cuda", "dumps.py"), names, str(rank), folder], env=env)
        code = job.wait(300)
        equal(code, 0, "dumps: %s" % job.tail(job.stderr()))
    return folder


FRAMEWORKS = ("megatron", "megatron_bridge", "torchtitan", "torchtnt", "sglang", "slime", "composer", "mindspeed", "monarch")


@nightly("long")
def test_ranks_of_frameworks():
    """Names as frameworks write them: each folder is a job of two ranks."""
    for rank in (0, 1):
        folder = dumps(",".join(FRAMEWORKS), rank)
    for name in FRAMEWORKS:
        files = [os.path.join(folder, name)] if name != "torchtnt" else \
            [os.path.join(folder, name, "oom_rank%d" % rank, "snapshot.pickle") for rank in (0, 1)]
        code, out, err = tool("report", "--format", "json", "--together", *files)
        equal(code, 0, "%s: %s" % (name, err))
        equal([r["rank"] for r in json.loads(out)["recordings"]], [0, 1], "ranks of " + name)
        code, out, err = tool("report", *files)
        equal((code, "of one job, ranks 0-1" in out), (0, True), "%s: %s%s" % (name, out[:500], err))


def test_moments_of_one_process():
    """snapshot_0.pickle and snapshot_1.pickle of one process are no ranks, also if the history began anew."""
    folder = dumps("steps,steps_cleared", 0)
    for name in ("steps", "steps_cleared"):
        code, out, err = tool("report", os.path.join(folder, name))
        equal(code, 0, "%s: %s" % (name, err))
        check("snapshots of one process, not of two ranks" in err and "ranks" not in out, "%s: %s%s", name, out[:500], err)
        code, _, err = tool("report", "--together", os.path.join(folder, name))
        check(code == 64 and "their memory cannot be added" in err, "%s together: %d, %s", name, code, err)
        equal(tool("diff", os.path.join(folder, name))[0], 0, "diff of " + name)


def test_ranks_in_step():
    """Ranks whose blocks have the same addresses, and that allocate in the same microsecond now and then, are not one process."""
    folder = scratch("in_step")
    os.mkdir(folder)
    for rank in (0, 1):
        trace = [{"action": "alloc", "addr": (1 << 40) + (i << 21), "size": 4096, "stream": 0, "time_us": 1000000 + 10 * i + i % 3 * rank, "frames": []}
                 for i in range(400)]
        with open(os.path.join(folder, "snapshot_%d.pickle" % rank), "wb") as f:
            pickle.dump({"segments": [], "device_traces": [trace]}, f)
    code, out, err = tool("report", folder)
    check(code == 0 and "of one job, ranks 0-1" in out and not err, "%d: %s%s", code, out[:500], err)


def test_folder_with_brackets():
    """A folder's name is no pattern."""
    folder = scratch("run [0]*")
    os.mkdir(folder)
    shutil.copy(both("mlp")[1], os.path.join(folder, "rank0.pickle"))
    equal(figures(report(folder, at="peak")), figures(report(both("mlp")[1])), "the folder")


def test_what_counts():
    """Segments of pinned memory are none of the device's, an unknown item leaves the others, and what several segments refer to counts once."""
    def segment(addr, blocks):
        return {"device": 0, "address": addr, "total_size": 2 << 20, "stream": 0, "segment_type": "large", "blocks": blocks}

    def live():
        return {"size": 2 << 20, "requested_size": 2 << 20, "state": "active_allocated", "frames": []}

    shared = [live()]
    for name, segments, others, allocated in (("pinned", [segment(1 << 40, [live()])], [segment(1 << 41, [live()])], 2 << 20),
                                              ("unknown", [segment(1 << 40, [{"x": 1}, live()])], [], 2 << 20),
                                              ("shared", [segment(1 << 40, shared), segment(1 << 41, shared)], [], 2 << 20)):
        path = scratch(name + ".pickle")
        with open(path, "wb") as f:
            pickle.dump({"segments": segments, "device_traces": [], "host_segments": others}, f)
        equal(harness.device(report(path, at="end"), "cuda:0")["allocated"], allocated, name)


def test_refused():
    path = scratch("bad.pickle")
    with open(path, "wb") as f:
        f.write(b"\x80\x02cos\nsystem\n(S'echo'\ntR.")
    code, _, err = tool("report", path)
    check(code == 2 and "it would import code (GLOBAL)" in err and err.count("\n") == 1, "exit %d: %s", code, err)
    with open(path, "wb") as f:
        f.write(bytes(4096))
    code, _, err = tool("report", path)
    check(code == 2 and "not a memtrace-bpf recording" in err, "zeros: exit %d: %s", code, err)
    with open(path, "wb") as f:
        f.write(pickle.dumps(subprocess.PIPE.__class__, 4))
    code, _, err = tool("report", path)
    check(code == 2 and "it would import code (STACK_GLOBAL)" in err and err.count("\n") == 1, "exit %d: %s", code, err)


run(globals())

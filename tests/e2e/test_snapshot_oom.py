#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# run: check cpu=60
"""Why a request found no place, in PyTorch snapshots with an out-of-memory entry: free pieces, streams, private pools and blocks that
await a free. Also of a recording of the same run."""
import os
import pickle

import harness
import truth
from harness import check, equal, report, run, scratch, tool

MIB = 1 << 20
STATES = {"live": "active_allocated", "waits": "active_awaiting_free", "free": "inactive"}


def segment(number, *blocks, stream=0, pool=(0, 0), small=False):
    """A segment of these (state, MiB)."""
    return {"device": 0, "address": number << 40, "total_size": sum(n for _, n in blocks) * MIB, "stream": stream, "segment_pool_id": pool,
            "segment_type": "small" if small else "large",
            "blocks": [{"size": n * MIB, "requested_size": n * MIB, "state": STATES[state], "frames": []} for state, n in blocks]}


SEGMENTS = [segment(1, ("live", 20), ("free", 12), ("live", 20), ("free", 12)),
            segment(2, ("live", 1), ("free", 40), stream=5),
            segment(3, ("live", 8), ("free", 24), pool=(1, 0)),
            segment(4, ("live", 1), ("free", 1), small=True),
            segment(5, ("waits", 16), ("live", 2), ("free", 4))]


def snapshot(name, asked, segments):
    trace = [{"action": "alloc", "addr": 1 << 40, "size": 20 * MIB, "stream": 0, "time_us": 5, "frames": []},
             {"action": "oom", "device_free": 3 * MIB, "size": asked, "stream": 0, "time_us": 9,
              "frames": [{"filename": "/job/train.py", "name": "step", "line": 7}]}]
    path = scratch(name + ".pickle")
    with open(path, "wb") as f:
        pickle.dump({"segments": segments, "device_traces": [trace]}, f)
    return path


def oom_of(path):
    found = [d["out_of_memory"] for d in report(path, at="oom")["devices"] if d["ooms"]]
    check(len(found) == 1 and len(found[0]) == 1, "%s", found)
    return found[0][0]


def test_known_numbers():
    o = oom_of(snapshot("stream", 30 * MIB, SEGMENTS))
    equal({p["label"]: [p[k] // MIB for k in ("size", "allocated", "pending", "free", "largest_gap")] + [p["gaps"]] for p in o["pools"]},
          {"default pool": [86, 42, 16, 28, 12, 3], "default pool, stream 0x5": [41, 1, 0, 40, 40, 1],
           "CUDA graph 1": [32, 8, 0, 24, 24, 1], "default pool, for blocks up to 1 MiB": [2, 1, 0, 1, 1, 1]}, "pools")
    check(o["pending_known"], "nothing was freed in the trace")
    equal(o["why"], "40.00 MiB are free in one piece, but only for the default pool, stream 0x5; "
                    "the program has freed 16.00 MiB that a stream still uses", "why")
    o = oom_of(snapshot("pieces", 50 * MIB, SEGMENTS))
    equal(o["why"], "68.00 MiB are free, but in 4 pieces: the largest has 40.00 MiB, 24.00 MiB more in private pools; "
                    "the program has freed 16.00 MiB that a stream still uses", "why")
    o = oom_of(snapshot("little", 50 * MIB, SEGMENTS[:1]))
    equal(o["why"], "only 24.00 MiB are free", "why")
    o = oom_of(snapshot("pool", 30 * MIB, [SEGMENTS[0], segment(3, ("live", 8), ("free", 64), pool=(0, 2))]))
    equal(o["why"], "64.00 MiB are free in one piece, but only for the MemPool 2", "why")


def test_texts():
    path = snapshot("texts", 30 * MIB, SEGMENTS)
    code, out, err = tool("report", "--at", "oom", path)
    check(code == 0 and "30.00 MiB found no place: 40.00 MiB are free in one piece" in out, "%d: %s %s", code, out, err)
    row = next((line for line in out.splitlines() if line.endswith("stream 0x5")), "")
    equal(row.split(), "40.00 MiB 40.00 MiB 1 - 1.00 MiB 41.00 MiB default pool, stream 0x5".split(), "row of the stream: %s" % out)
    _, out, _ = tool("diagnose", path)
    check("another stream's or pool's" in out, "%s", out)
    page = scratch("page.html")
    code, _, err = tool("export", "html", path, "-f", "-o", page)
    equal(code, 0, "export html: %s" % err)


def test_request_of_a_library():
    """The user's line may call a whole training: the line of the library that asked is said, too."""
    path = snapshot("library", 50 * MIB, SEGMENTS[:1])
    with open(path, "rb") as f:
        doc = pickle.load(f)
    doc["device_traces"][0][-1]["frames"].insert(0, {"filename": "/v/lib/python3.12/site-packages/transformers/sdpa.py", "name": "attend", "line": 182})
    with open(path, "wb") as f:
        pickle.dump(doc, f)
    _, out, _ = tool("report", path)
    check("/job/train.py:7 (step) in transformers/sdpa.py:182 (attend)" in " ".join(out.split()).replace(" · ", " "), "%s", out)
    _, out, _ = tool("diagnose", path)
    out = " ".join(out.split())
    check("50.00 MiB asked for in transformers/sdpa.py:182 (attend)" in out and "--at oom --frames all`" in out, "%s", out)


def test_little_cached():
    """The cached memory is no remedy if it is a few percent. Annotations of DataLoader, one for each batch, are no marks."""
    path = snapshot("percent", 10 * MIB, [segment(1, ("live", 1000), ("free", 6), ("live", 1000), ("free", 6))])
    with open(path, "rb") as f:
        doc = pickle.load(f)
    doc["external_annotations"] = [{"name": name, "stage": "START", "time_us": 6, "device": 0}
                                   for name in ("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", "my own")]
    with open(path, "wb") as f:
        pickle.dump(doc, f)
    _, out, _ = tool("diagnose", path)
    check("free what this moment holds" in out and "expandable_segments" not in out, "%s", out)
    _, out, _ = tool("report", path)
    check("my own" in out and "DataLoader" not in out, "%s", out)


def test_many_streams():
    """The streams with least free memory are one row, and nothing is left out."""
    o = oom_of(snapshot("many", 90 * MIB, [segment(i, ("live", 2), ("free", i), stream=2 * i) for i in range(1, 31)]))
    equal(len(o["pools"]), 8, "rows")
    equal(o["pools"][-1]["label"], "others", "last row")
    equal(sum(p["free"] for p in o["pools"]), sum(range(1, 31)) * MIB, "free bytes")


JOB = """
import sys, torch
torch.cuda.memory._record_memory_history(stacks="python")
take = lambda mib: torch.empty(mib << 20, dtype=torch.uint8, device="cuda")
cut = [take(64) for _ in range(20)]
side = torch.cuda.Stream()
with torch.cuda.stream(side):
    big = take(900)
    del big
    small = take(100)
pool = torch.cuda.MemPool()
with torch.cuda.use_mem_pool(pool):
    big = take(300)
    del big
    inside = take(50)
rest = [take(256) for _ in range(4)]
pieces = take(600)
del pieces
between = [take(20) for _ in range(30)]
del between[::2]
try:
    take(int(sys.argv[2]))
except torch.cuda.OutOfMemoryError:
    torch.cuda.memory._dump_snapshot(sys.argv[1])
"""


def test_pytorch():
    """Fragments, two streams and a private pool, made by PyTorch: the snapshot's own segments have the same free pieces."""
    job, path, recording = scratch("job.py"), scratch("job.pickle"), scratch("job.mtr")
    with open(job, "w", encoding="utf-8") as f:
        f.write(JOB)
    target = harness.spawn([harness.TOOL, "run", "-f", "--requested", "-o", recording, "--", harness.python(), job, path, "700"], root=True,
                           env=truth.dry_run(vram="5G"))
    code = target.wait(300)
    check(code == 0 and os.path.exists(path), "run ended with %s: %s", code, target.tail(target.stderr()))
    with open(path, "rb") as f:
        doc = pickle.load(f)
    want = {}
    for s in doc["segments"]:
        row = want.setdefault((tuple(s["segment_pool_id"]), s["stream"], s["segment_type"] == "small"), [0, 0, 0])
        free = [b["size"] for b in s["blocks"] if b["state"] == "inactive"]
        row[0] += s["total_size"]
        row[1] += sum(free)
        row[2] = max([row[2], *free])
    o = oom_of(path)
    got = {(tuple(map(int, p["pool"].split(","))), int(p["stream"], 16), p["small"]): [p["size"], p["free"], p["largest_gap"]]
           for p in o["pools"]}
    equal(got, want, "pools of the snapshot")
    check("in one piece, but only for the default pool, stream 0x" in o["why"], "%s", o["why"])
    harness.own(recording)
    equal(sum(p["free"] for p in oom_of(recording)["pools"]), sum(p["free"] for p in o["pools"]), "free bytes of the recording")


run(globals())

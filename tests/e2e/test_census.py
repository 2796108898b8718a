# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# run: long
"""PyTorch's CUDA allocator, read from outside, compared with PyTorch's own data in the same process: every block, segment and
total. Without a GPU: under the dry run with the real allocator."""
import json
import os
import time
from concurrent.futures import ThreadPoolExecutor

from harness import OUT, WORKLOADS, Failure, check, equal, nightly, python, run, scratch, spawn, spawn_job

DUMP = os.path.join(OUT, "tests", "tools", "alloc_dump")
PRELOAD = " ".join(os.path.join(OUT, "dryrun", n) for n in ("libcuda.so.1", "libnvidia-ml.so.1"))


class Target:
    """The workload, and a reader of its allocator."""

    def __init__(self, role="main", **env):
        for path in (DUMP, *PRELOAD.split()):
            check(os.path.exists(path), "%s is not there: run make all tests", path)
        whole = dict(os.environ, PYTHONUNBUFFERED="1", LD_PRELOAD=PRELOAD, MEMTRACE_DRYRUN_DEVICES="2", **env)
        self.name = role
        self.p = spawn_job([python(role), os.path.join(WORKLOADS, "census.py")], env=whole)
        self.p.wait_line("^ready", 60)
        self.dump = spawn([DUMP, str(self.p.pid)], root=True)

    def go(self, state):
        """Brings the workload into a state; PyTorch's own data, or None."""
        path = scratch("truth-%d.json" % self.p.pid)
        if os.path.exists(path):
            os.unlink(path)
        self.p.send("%s %s\n" % (state, path))
        self.p.wait_line("^in %s$" % state, 60)
        if not os.path.exists(path):
            return None
        with open(path, encoding="utf-8") as f:
            return json.load(f)

    def read(self, how="pass"):
        """One pass of the reader."""
        seen = len(self.dump.out)
        self.dump.send(how + "\n")
        limit = time.monotonic() + 30
        with self.dump.lock:
            while len(self.dump.out) == seen:
                check(self.dump.alive() and time.monotonic() < limit, "no answer of alloc_dump: %s", self.dump.stderr())
                self.dump.lock.wait(0.2)
            return json.loads(self.dump.out[seen][1])

    def compare(self, state, calibrate=False):
        expected = self.go(state)
        got = self.read("calibrate" if calibrate else "pass")
        try:
            same(got, expected)
        except Failure as e:
            raise Failure("%s, %s: %s" % (self.name, state, e)) from None
        return got

    def end(self):
        self.dump.stop()
        self.p.stop()


def same(got, expected):
    """A reading of an idle program equals PyTorch's data, to the byte."""
    check("error" not in got, "%s", got.get("why"))
    check(got["consistent"], "torn: %s", got["why"])
    for device, stats in zip(got["devices"], expected["stats"]):
        equal(device["before"], device["after"], "totals before and after")
        for key in ("allocated", "reserved", "count"):
            equal(device["after"][key], stats[key], key)
        if device["more_known"]:
            for key in ("active", "requested"):
                equal(device["after"][key], stats[key], key)
    equal(len(got["devices"]), len(expected["stats"]), "number of devices")
    want = sorted(expected["segments"], key=lambda s: s["address"])
    equal([s["address"] for s in got["segments"]], [s["address"] for s in want], "segments")
    for g, w in zip(got["segments"], want):
        for key in ("size", "stream", "device", "small", "expandable"):
            equal(g[key], w[key], "%s of the segment at %#x" % (key, w["address"]))
        equal([g["pool0"], g["pool1"]], w["pool"], "pool of the segment at %#x" % w["address"])
        check(g["whole"], "the segment at %#x is not whole", w["address"])
        blocks = got["blocks"][g["first"]:g["first"] + g["blocks"]]
        equal([b[:2] + b[3:] for b in blocks],
              [[b[0], b[1], b[3].replace("active_awaiting_free", "active_pending_free"), w["stream"], w["device"],
                got["segments"].index(g)] for b in w["blocks"]], "blocks of the segment at %#x" % w["address"])
        for g_block, w_block in zip(blocks, w["blocks"]):
            if w_block[3] != "inactive":
                equal(g_block[2], w_block[2], "requested size of the block at %#x" % w_block[0])
    equal(len(got["blocks"]), sum(len(w["blocks"]) for w in want), "number of blocks")


def states_of(got):
    return {b[3] for b in got["blocks"]}


def everything(role):
    """All states from the import on, each compared."""
    t = Target(role)
    t.go("import")
    got = t.read()
    equal((got["backend"], got["known_devices"]), ("native", 0), "before CUDA's first use")
    check(got["error"] == -11, "a layout before CUDA's first use? %s", got)
    t.go("init")
    got = t.read()
    equal(got["known_devices"], 2, "devices")
    check(got["error"] == -11 and "nothing is allocated" in got["why"], "a layout of nothing? %s", got)
    t.compare("one")
    t.compare("sizes", calibrate=True)
    t.compare("holes")
    t.compare("model")
    t.compare("cached", calibrate=True)
    got = t.compare("streams", calibrate=True)
    check(len({b[4] for b in got["blocks"]}) == 4, "not four streams: %s", {b[4] for b in got["blocks"]})
    got = t.compare("pending", calibrate=True)
    check("active_pending_free" in states_of(got), "nothing pending: %s", states_of(got))
    got = t.compare("devices", calibrate=True)
    check({s["device"] for s in got["segments"]} == {0, 1}, "not two devices")
    got = t.compare("pools", calibrate=True)
    check(any(s["pool0"] or s["pool1"] for s in got["segments"]), "no private pool")
    t.compare("pool_gone", calibrate=True)
    t.compare("limited")
    got = t.compare("many")
    check(got["nblocks"] > 40000, "only %d blocks", got["nblocks"])
    t.compare("nothing")
    t.end()


def on_all(job, *roles):
    """Two versions of PyTorch at a time: most of the time is their import."""
    with ThreadPoolExecutor(2) as pool:
        jobs = [pool.submit(job, role) for role in roles]
    for done in jobs:
        done.result()


def test_everything():
    everything("main")


@nightly("versions")
def test_everything_of_versions():
    on_all(everything, "newest", "old", "cu12")


def expandable(role):
    t = Target(role, PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True")
    t.compare("one")
    t.compare("sizes")
    got = t.compare("unmapped", calibrate=True)
    check(all(s["expandable"] for s in got["segments"]), "not all expandable")
    t.compare("devices")
    t.compare("model", calibrate=True)
    t.compare("cached")
    t.end()


def test_expandable():
    expandable("main")


@nightly("versions")
def test_expandable_of_versions():
    on_all(expandable, "newest", "cu12")


def test_nothing_split():
    """The links between blocks cannot be verified yet; later they must be right."""
    t = Target()
    t.compare("exact")
    t.compare("sizes")
    t.end()


def test_other_settings():
    t = Target(PYTORCH_CUDA_ALLOC_CONF="roundup_power2_divisions:4,max_split_size_mb:64,garbage_collection_threshold:0.6")
    t.compare("sizes")
    t.compare("holes")
    t.compare("limited")
    t.end()


def test_not_cached():
    """The allocator's tables are unused then; that is no separate layout."""
    t = Target(PYTORCH_NO_CUDA_MEMORY_CACHING="1")
    t.go("sizes")
    got = t.read()
    equal((got["backend"], got["error"]), ("native", -11), "backend, error")
    t.end()


def test_other_backend():
    t = Target(PYTORCH_CUDA_ALLOC_CONF="backend:cudaMallocAsync")
    t.go("import")
    got = t.read()
    equal((got["backend"], got["error"]), ("cudaMallocAsync", -95), "backend, error")
    check("CudaMallocAsyncAllocator" in got["type"], "type: %s", got["type"])
    t.end()


def test_full_speed():
    """Readings of a program that allocates at full speed: torn or not, they have no block that was never allocated, and permanent
    blocks are in every consistent reading."""
    t = Target()
    expected = t.go("full_speed")
    stays = {(b[0], b[1], b[2]) for s in expected["segments"] for b in s["blocks"] if b[3] == "active_allocated"}
    passes = [t.read("calibrate")]
    until = time.monotonic() + 4
    while time.monotonic() < until:
        passes.append(t.read("calibrate" if len(passes) % 10 == 0 else "pass"))
    seen = {tuple(x) for x in t.go("stopped")}
    same_layout = [p for p in passes if "error" not in p]
    whole = missing = 0
    for p in same_layout:
        live = {(b[0], b[1], b[2]) for b in p["blocks"] if b[3] == "active_allocated"}
        strange = {b for b in live - stays if (b[0], b[2]) not in seen or b[1] < b[2] or b[1] > b[2] + (1 << 20)}
        check(not strange, "live blocks that never were: %s", sorted(strange)[:5])
        order = sorted(live)
        check(all(a[0] + a[1] <= b[0] for a, b in zip(order, order[1:])), "live blocks overlap")
        whole += p["consistent"]
        missing += bool(stays - live)
        check(not (p["consistent"] and stays - live), "consistent, but without %s", sorted(stays - live)[:3])
    check(len(same_layout) >= len(passes) * 9 // 10, "%d of %d calibrations failed: %s", len(passes) - len(same_layout),
          len(passes), [p["why"] for p in passes if "error" in p][:3])
    check(len(seen) > 10000, "it did not run: %d blocks", len(seen))
    union = set().union(*({(b[0], b[1], b[2]) for b in p["blocks"] if b[3] == "active_allocated"} for p in same_layout))
    check(not stays - union, "never seen: %s", sorted(stays - union)[:3])
    print("  %d passes, %d consistent, %d missed something that stays, %d blocks handed out" % (
        len(same_layout), whole, missing, len(seen)))
    t.end()


if __name__ == "__main__":
    run(globals())

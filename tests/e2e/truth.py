# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
Compares a recording with the output of PyTorch's own allocator in the same run (tests/workloads/oracle.py), event for event and
byte for byte. Reads the recording by docs/reference/mtr.md alone (mtr_reader.py), and compares `report`, too.

compare() returns a Verdict: for each aspect "exact", the difference, or why it could not be compared.
"""
import bisect
import itertools
import os
import pickle
import time

import harness
import mtr_reader
from harness import check

CUDA = 1
DEVICE, MAPPED = 1, 7  # enum mem_how
UNKNOWN = 255  # a device's index
BY_ALLOCATOR, SMALL, EXPANDABLE, PENDING, EXACT = 1, 2, 4, 8, 16  # enum event_flag
BLOCK_ACTIONS = ("alloc", "free_requested")
SEGMENT_ACTIONS = ("segment_alloc", "segment_free", "segment_map", "segment_unmap")
ASPECTS = ("events", "sizes", "totals", "peaks", "segments", "live", "state", "oom", "requested", "report")


# ---- jobs -------------------------------------------------------------------------------------------------

class Job:
    """A workload, the oldest torch that supports it, and its number of steps."""

    def __init__(self, name, file, *args, torch=(2, 1), steps=6, native=False, devices=1):
        self.name, self.file, self.args, self.torch, self.steps = name, file, list(args), torch, steps
        self.native = native  # needs the native allocator
        self.devices = devices


JOBS = [
    Job("mlp", "cuda/mlp.py"),
    Job("gpt", "gpt.py", steps=4),
    Job("convnet", "cuda/convnet.py"),
    Job("convnet, cuDNN", "cuda/convnet.py", "--cudnn"),
    Job("amp bf16", "cuda/amp.py", "--dtype", "bf16"),
    Job("amp fp16", "cuda/amp.py", "--dtype", "fp16"),
    Job("checkpointing", "cuda/checkpointing.py"),
    Job("accumulation", "cuda/accumulate.py"),
    Job("loader, pinned", "cuda/loader.py", steps=4),
    Job("two devices", "cuda/two_devices.py", devices=2),
    Job("streams", "cuda/streams.py"),
    Job("caught OOM", "cuda/oom.py", steps=8),
    Job("1,000 OOMs", "cuda/oom.py", "--only-ask", steps=1000),
    Job("empty_cache", "cuda/empty_cache.py"),
    Job("CUDA graphs", "cuda/graphs.py", steps=7),
    Job("threads", "cuda/threads.py"),
    Job("MemPool", "cuda/mempool.py", torch=(2, 5), native=True),
    Job("fraction", "cuda/fraction.py"),
    Job("inference", "cuda/decoding.py"),
    Job("fragments", "cuda/fragments.py"),
]
BACKENDS = {"native": "", "expandable": "expandable_segments:True", "async": "backend:cudaMallocAsync"}


def dry_run(backend="native", vram="80G", devices=1):
    """The environment of a process in the dry run."""
    folder = os.path.join(harness.OUT, "dryrun")
    libs = [os.path.join(folder, name) for name in ("libcuda.so.1", "libnvidia-ml.so.1")]
    for lib in libs:
        check(os.path.exists(lib), "%s is not there: run make", lib)
    env = dict(os.environ, PYTHONUTF8="1", PYTHONUNBUFFERED="1", LD_PRELOAD=" ".join(libs),
               MEMTRACE_DRYRUN_VRAM=vram, MEMTRACE_DRYRUN_DEVICES=str(devices))
    for key in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"):
        env.pop(key, None)
    if BACKENDS[backend]:
        env["PYTORCH_CUDA_ALLOC_CONF"] = BACKENDS[backend]
    return env


# ---- the recording ------------------------------------------------------------------------------------------

class Recording:
    """One device's part of a recording, by kind, in the file's order."""

    def __init__(self, path):
        harness.own(path)
        with open(path, "rb") as f:
            reader = mtr_reader.Recording(f)
            self.all = list(reader.events())
        self.complete, self.facts = reader.complete, reader.facts
        self.find_devices()
        self.lost = sum(e["size"] for e in self.all if self.kind(e) == "lost") + int(self.facts.get("lost", 0))

    @staticmethod
    def kind(e):
        return mtr_reader.KINDS[e["kind"]]

    def find_devices(self):
        """A call's device is unknown if its thread set it before attach: then the block made in it determines the device."""
        following, ranges = {}, {}
        for e in reversed(self.all):
            if e["type"] == CUDA and self.kind(e) in ("alloc", "oom"):
                following[e["thread"]] = e["index"]
            elif self.kind(e) == "take" and e["index"] == UNKNOWN and segment_action("take", e):
                e["index"] = following.get(e["thread"], UNKNOWN)
        for e in self.all:
            if self.kind(e) == "segment" or (self.kind(e) == "take" and segment_action("take", e)):
                ranges.setdefault(e["index"], Ranges()).add(e["addr"], e["size"])
            elif self.kind(e) == "give" and e["index"] == UNKNOWN and segment_action("give", e):
                e["index"] = next((d for d, r in ranges.items() if r.contains(e["addr"])),
                                  min(following.values()) if len(set(following.values())) == 1 else UNKNOWN)

    def devices(self):
        return sorted({e["index"] for e in self.all if e["type"] == CUDA and self.kind(e) in ("alloc", "free", "block", "state")})

    def of(self, device, *kinds):
        return [e for e in self.all if e["type"] == CUDA and e["index"] == device and self.kind(e) in kinds]


class Ranges:
    """Address ranges, adjacent ones joined."""

    def __init__(self):
        self.begins, self.ends = [], []

    def add(self, begin, size):
        end = begin + size
        i = bisect.bisect_left(self.ends, begin)
        while i < len(self.begins) and self.begins[i] <= end:
            begin, end = min(begin, self.begins.pop(i)), max(end, self.ends.pop(i))
        self.begins.insert(i, begin)
        self.ends.insert(i, end)

    def remove(self, begin, size):
        """True if the whole range was present."""
        end = begin + size
        i = bisect.bisect_right(self.ends, begin)
        if i == len(self.begins) or self.begins[i] > begin or self.ends[i] < end:
            return False
        first, last = self.begins.pop(i), self.ends.pop(i)
        for b, e in ((end, last), (first, begin)):
            if b < e:
                self.begins.insert(i, b)
                self.ends.insert(i, e)
        return True

    def contains(self, addr):
        i = bisect.bisect_right(self.begins, addr)
        return i > 0 and addr < self.ends[i - 1]

    def as_dict(self):
        return {b: e - b for b, e in zip(self.begins, self.ends)}


class Segments:
    """The allocator's memory from CUDA: whole segments, and ranges of expandable ones."""

    def __init__(self):
        self.whole, self.mapped = {}, Ranges()

    def apply(self, action, addr, size):
        """False: impossible."""
        if action == "segment_alloc":
            if addr in self.whole:
                return False
            self.whole[addr] = size
        elif action == "segment_free":
            return self.whole.pop(addr, None) is not None
        elif action == "segment_map":
            self.mapped.add(addr, size)
        else:
            return self.mapped.remove(addr, size)
        return True

    def as_dict(self):
        return {**self.whole, **self.mapped.as_dict()}

    def total(self):
        return sum(self.as_dict().values())


def segment_action(kind, e):
    """The oracle's name of the allocator's TAKE or GIVE; None for other events."""
    if not e["flags"] & BY_ALLOCATOR:
        return None
    return {("take", DEVICE): "segment_alloc", ("give", DEVICE): "segment_free",
            ("take", MAPPED): "segment_map", ("give", MAPPED): "segment_unmap"}.get((kind, e["how"]))


# ---- comparison -------------------------------------------------------------------------------------------

class Verdict:
    def __init__(self):
        self.aspects = {}
        self.gaps = []  # aspects that could not be compared, and why
        self.events = 0

    def not_compared(self, why):
        if why not in self.gaps:
            self.gaps.append(why)

    def same(self, aspect, got, expected, what):
        """Notes a difference; an aspect keeps the first."""
        if got != expected:
            self.differs(aspect, "%s: %s, PyTorch says %s" % (what, brief(got), brief(expected)))
        else:
            self.aspects.setdefault(aspect, "exact")

    def differs(self, aspect, why):
        if self.aspects.get(aspect, "exact") == "exact":
            self.aspects[aspect] = why

    def exact(self):
        return all(v == "exact" for v in self.aspects.values())

    def why(self):
        return "; ".join("%s: %s" % (a, v) for a, v in self.aspects.items() if v != "exact")


def brief(value):
    if isinstance(value, (set, dict)) and len(value) > 4:
        return "%d entries" % len(value)
    return repr(value)


def differences(got, expected):
    """Differences of two dicts in words; "" if equal."""
    if got == expected:
        return ""
    missing = [k for k in expected if k not in got]
    extra = [k for k in got if k not in expected]
    wrong = [k for k in expected if k in got and got[k] != expected[k]]
    example = (missing or extra or wrong)[0]
    return "%d missing, %d that are not there, %d wrong of %d, such as %#x (%s instead of %s)" % (
        len(missing), len(extra), len(wrong), len(expected), example, got.get(example), expected.get(example))


class Oracle:
    """PyTorch's view of one device, cut at the recording's beginning."""

    def __init__(self, truth, device, n_blocks, running, lead):
        end, self.attach = truth["end"], truth["attach"]
        self.stats = end["stats"][device]
        self.before = self.attach["stats"][device] if self.attach else {}
        trace = end["traces"][device]
        cut = self.early = 0
        if running:  # at a moment known only by the number of events
            left, cut = n_blocks, len(trace)
            while cut and left:
                cut -= 1
                left -= trace[cut][0] in BLOCK_ACTIONS
            trace, cut, self.early = extend(trace, cut, lead)
        elif self.attach:
            cut = len(self.attach["traces"][device])
        self.late = running or self.attach is not None
        self.trace = [e for e in trace[cut:] if e[0] in (*BLOCK_ACTIONS, *SEGMENT_ACTIONS, "oom")]
        self.blocks, self.segments = {}, Segments()  # at the cut; blocks by requested size
        for action, addr, size, _ in trace[:cut]:
            if action == "alloc":
                self.blocks[addr] = size
            elif action == "free_requested":
                del self.blocks[addr]
            elif action in SEGMENT_ACTIONS:
                self.segments.apply(action, addr, size)
        self.end_segments = [s for s in end["segments"] if s["device"] == device]
        self.sizes_at_attach = None
        if self.attach and not running:
            self.sizes_at_attach = live_blocks(s for s in self.attach["segments"] if s["device"] == device)

    def since(self, name, part):
        key = "%s.all.%s" % (name, part)
        return self.stats.get(key, 0) - self.before.get(key, 0)


def extend(trace, cut, lead):
    """Moves the cut back over segments that were allocated or freed before the first recorded event of a block; lead: the
    recorded ones of these. If the recording began while a range was mapped, the range is split. The third result is the rest,
    from before blocks were recorded: calls are probed first."""
    left = len(lead)
    while left and cut and trace[cut - 1][0] not in BLOCK_ACTIONS:
        action, addr, size, stream = trace[cut - 1]
        n = left
        while n and lead[n - 1][0] == action and (action == "oom" or addr <= lead[n - 1][1] < addr + size):
            n -= 1
            if action == "oom":
                break
        if n == left:
            break
        if action in ("segment_map", "segment_unmap"):
            seen = sum(piece[2] for piece in lead[n:left])
            if seen < size:
                trace = [*trace[:cut - 1], (action, addr, size - seen, stream), (action, addr + size - seen, seen, stream), *trace[cut:]]
                return trace, cut, n
        left, cut = n, cut - 1
    return trace, cut, left


def live_blocks(segments):
    return {b[0]: b[1] for s in segments for b in s["blocks"] if b[3] == "active_allocated"}


class Comparison:
    """Comparison of one device. v: the Verdict; running: attached at a moment unknown to the target."""

    def __init__(self, v, recording, truth, device, running):
        self.v, self.name, self.running = v, "cuda:%d" % device, running
        self.kind = recording.kind
        self.events = recording.of(device, "alloc", "free", "oom", "take", "give", "segment", "block", "state", "asked")
        first = [self.kind(e) in ("segment", "block", "state") for e in self.events]
        first = first.index(False) if False in first else len(first)
        self.told, self.events = self.events[:first], self.events[first:]
        self.ours = self.as_theirs()
        lead = list(itertools.takewhile(lambda e: e[0] not in BLOCK_ACTIONS, self.ours))
        self.t = Oracle(truth, device, sum(e[0] in BLOCK_ACTIONS for e in self.ours), running, lead)
        self.live = {}  # address -> (size, requested)
        self.segments = Segments()
        self.early = [e for e in self.events if segment_action(self.kind(e), e)][:self.t.early]
        self.events = [e for e in self.events if not any(e is x for x in self.early)]
        self.ours = self.as_theirs()

    def same(self, aspect, got, expected, what):
        self.v.same(aspect, got, expected, "%s: %s" % (self.name, what))

    def same_dict(self, aspect, got, expected, what):
        self.same(aspect, differences(got, expected), "", what)

    def run(self):
        self.state()
        self.order()
        self.sums()
        self.totals()
        self.at_end()

    def state(self):
        """Compares the state at the recording's beginning."""
        blocks = {e["addr"]: e for e in self.told if self.kind(e) == "block"}
        states = [e for e in self.told if self.kind(e) == "state"]
        for e in self.told:
            if self.kind(e) == "segment":
                self.segments.apply("segment_map" if e["flags"] & EXPANDABLE else "segment_alloc", e["addr"], e["size"])
        reserved = self.segments.total()
        for e in self.early:
            self.segments.apply(segment_action(self.kind(e), e), e["addr"], e["size"])
        blocks = {a: e for a, e in blocks.items() if not e["flags"] & PENDING}
        self.live = {a: (e["size"], e["requested"]) for a, e in blocks.items()}
        # Without a state, totals are followed from the first event on.
        first = next((e for e in self.events if self.kind(e) in ("alloc", "free")), None)
        self.allocated = states[0]["allocated"] if states else first["allocated"] + (
            first["size"] if self.kind(first) == "free" else -first["size"]) if first else 0
        self.peak = [self.allocated, states[0]["reserved"] if states else first["reserved"] if first else 0]
        if not self.t.late:
            self.same("state", len(blocks), 0, "blocks before the start")
            return
        if not states:
            self.same("state", "not told", "%d blocks, %d segments" % (len(self.t.blocks), len(self.t.segments.as_dict())),
                      "what was there at attach")
            return
        self.same("state", bool(states[0]["flags"] & EXACT), True, "said to be exact")
        self.same_dict("state", dict.fromkeys(blocks), dict.fromkeys(self.t.blocks), "blocks at attach")
        asked = {a: e["requested"] for a, e in blocks.items() if e["requested"]}
        self.same_dict("state", asked, {a: self.t.blocks.get(a) for a in asked}, "requested sizes at attach")
        if self.t.sizes_at_attach is not None:
            self.same_dict("state", {a: e["size"] for a, e in blocks.items()}, self.t.sizes_at_attach, "sizes at attach")
        self.same_dict("state", self.segments.as_dict(), self.t.segments.as_dict(), "segments at attach")
        self.same("state", states[0]["allocated"], sum(e["size"] for e in blocks.values()), "sum of the blocks at attach")
        self.same("state", states[0]["reserved"], reserved, "sum of the segments at attach")

    def as_theirs(self):
        """The recording's events in PyTorch's form (action, address, size); and requested sizes by index."""
        ours, self.asked = [], {}
        last = {}  # other threads' events may come in between
        for e in self.events:
            kind = self.kind(e)
            if kind in ("alloc", "free"):
                last[e["addr"]] = len(ours)
                ours.append(("alloc" if kind == "alloc" else "free_requested", e["addr"], e["size"]))
            elif kind == "oom":
                ours.append(("oom", None, e["size"]))
            elif kind in ("take", "give") and segment_action(kind, e):
                ours.append((segment_action(kind, e), e["addr"], e["size"]))
            elif kind == "asked" and e["addr"] in last:
                self.asked[last[e["addr"]]] = e
        return ours

    def order(self):
        """Every event, in order; both lists as (action, address, size or None)."""
        ours, asked = self.ours, self.asked
        self.n_asked, wrong_asked = len(asked), 0
        theirs = list(self.t.trace)
        i = 0
        for n, (action, addr, size, _) in enumerate(theirs):
            if action in ("segment_map", "segment_unmap"):  # the recording has its pieces
                left = Ranges()
                left.add(addr, size)
                while i < len(ours) and ours[i][0] == action and left.remove(ours[i][1], ours[i][2]):
                    i += 1
                if left.begins:
                    return self.differ(n, theirs, i, ours)
                continue
            if i == len(ours) or ours[i][0] != action or (action != "oom" and ours[i][1] != addr):
                return self.differ(n, theirs, i, ours)
            got = ours[i][2]
            if action == "alloc" and (got < size or got % 512):
                self.same("sizes", got, size, "size of block %d" % n)
            if action == "alloc" and i in asked:
                wrong_asked += asked[i]["requested"] != size or asked[i]["addr"] != addr
            if action == "oom" or action == "segment_alloc" or (action == "segment_free" and got):
                self.same("oom" if action == "oom" else "segments", got, size, "size of %s %d" % (action, n))
            i += 1
        if i < len(ours):
            return self.differ(len(theirs), theirs, i, ours)
        self.same("events", True, True, "order")
        if asked:
            self.same("requested", wrong_asked, 0, "wrong requested sizes of %d" % len(asked))
        return None

    def differ(self, n, theirs, i, ours):
        self.v.differs("events", "%s: event %d of %d is %s, PyTorch's is %s" % (
            self.name, i, len(ours), ours[i] if i < len(ours) else "missing", theirs[n] if n < len(theirs) else "none"))

    def sums(self):
        """Compares sizes and counts of the whole run with PyTorch's counters."""
        if self.running:
            return
        by_kind = {"alloc": [], "free": []}
        taken = {"segment_alloc": 0, "segment_map": 0}
        for e in self.events:
            kind = self.kind(e)
            if kind in by_kind:
                by_kind[kind].append(e["size"])
            elif kind == "take" and segment_action(kind, e):
                taken[segment_action(kind, e)] += e["size"]
        for kind, part in (("alloc", "allocated"), ("free", "freed")):
            self.same("sizes", sum(by_kind[kind]), self.t.since("allocated_bytes", part), "bytes %s" % part)
            self.same("sizes", len(by_kind[kind]), self.t.since("allocation", part), "blocks %s" % part)
        self.same("segments", sum(taken.values()), self.t.since("reserved_bytes", "allocated"), "bytes taken from CUDA")

    def totals(self):
        """After every event the sum equals the total in it; peaks."""
        drift = 0
        for e in self.events:
            kind = self.kind(e)
            if kind in ("alloc", "free"):
                self.allocated += e["size"] if kind == "alloc" else -e["size"]
                drift = max(drift, abs(self.allocated - e["allocated"]))
            if kind in ("alloc", "free", "oom"):
                self.peak = [max(self.peak[0], e["allocated"]), max(self.peak[1], e["reserved"])]
                if kind == "alloc":
                    if e["addr"] in self.live:
                        self.same("live", "twice", "once", "block at %#x" % e["addr"])
                    self.live[e["addr"]] = (e["size"], 0)
                elif kind == "free":
                    was = self.live.pop(e["addr"], None)
                    if was is None or was[0] != e["size"]:
                        self.same("live", was, e["size"], "block freed at %#x" % e["addr"])
            elif kind == "asked" and e["addr"] in self.live:
                self.live[e["addr"]] = (self.live[e["addr"]][0], e["requested"])
            elif kind in ("take", "give") and segment_action(kind, e):
                if not self.segments.apply(segment_action(kind, e), e["addr"], e["size"]):
                    self.same("segments", "cannot be", "fine", "%s of %#x" % (kind, e["addr"]))
                self.peak[1] = max(self.peak[1], self.segments.total())
        self.same("totals", drift, 0, "largest difference of our sum and the carried total")
        if not self.running:
            self.same("peaks", self.peak[0], self.t.stats["allocated_bytes.all.peak"], "peak allocated")
            self.same("peaks", self.peak[1], self.t.stats["reserved_bytes.all.peak"], "peak reserved")

    def at_end(self):
        self.same_dict("live", {a: b[0] for a, b in self.live.items()}, live_blocks(self.t.end_segments), "live blocks at the end")
        asked = {a: b[1] for a, b in self.live.items() if b[1]}
        requested = {b[0]: b[2] for s in self.t.end_segments for b in s["blocks"]}
        if asked:
            self.same_dict("requested", asked, {a: requested.get(a) for a in asked}, "requested sizes at the end")
        self.same_dict("segments", self.segments.as_dict(), {s["address"]: s["size"] for s in self.t.end_segments},
                       "segments at the end")
        last = {e["addr"]: e for e in [*self.told, *self.events] if self.kind(e) == "segment"}
        for s in self.t.end_segments:
            e = last.get(s["address"])
            if e and self.t.late and not s["expandable"]:
                same = (e["stream"], tuple(e["pool"]), bool(e["flags"] & SMALL)) == (s["stream"], s["pool"], s["small"])
                gone = any(x["addr"] == s["address"] for x in self.events if self.kind(x) == "give")
                self.same("segments", same or gone, True, "stream and pool of the segment at %#x" % s["address"])


def compare_report(v, recording, path, truth, running):
    """Compares `report`: the same figures from the program's own reader and model."""
    doc = harness.report(path, at="end")
    v.same("report", doc["capture"]["lost"], 0, "lost")
    for d in recording.devices():
        name = "cuda:%d" % d
        of = harness.device(doc, name)
        t = Oracle(truth, d, len(recording.of(d, "alloc", "free")), running, [])
        expected = {"allocated": t.stats["allocated_bytes.all.current"], "reserved": t.stats["reserved_bytes.all.current"], "drift": 0}
        if not running:
            expected.update(peak_allocated=t.stats["allocated_bytes.all.peak"], peak_reserved=t.stats["reserved_bytes.all.peak"],
                            total_allocated=t.since("allocated_bytes", "allocated"), allocs=t.since("allocation", "allocated"),
                            frees=t.since("allocation", "freed"))
            if "num_ooms" in t.stats:
                expected["ooms"] = t.stats["num_ooms"] - t.before.get("num_ooms", 0)
            expected["before_attach"] = t.before.get("allocated_bytes.all.current", 0)
        for key, value in expected.items():
            v.same("report", of[key], value, "%s of %s" % (key, name))


POOL_PIECE = 512  # rounding of the dry run's pools; PyTorch's figure includes it


def compare_calls(v, recording, path, truth):
    """cudaMallocAsync: blocks are calls, and PyTorch knows the pool's figures and Python's tensors."""
    doc = harness.report(path, at="end")
    v.same("report", doc["capture"]["lost"], 0, "lost")
    groups = {"cuda:%d" % d: [d] for d in range(len(truth["end"]["stats"]))}
    if recording.of(UNKNOWN, "alloc"):
        v.same("totals", bool(truth["attach"]), True, "the device is known")
        v.not_compared("not compared, each device by itself: a thread's device is known only after its first cudaSetDevice since attach; "
                       "all devices together are compared")
        groups = {"all devices": [*range(len(truth["end"]["stats"])), UNKNOWN]}
    for name, devices in groups.items():
        events = [e for e in recording.all if e["type"] == CUDA and recording.kind(e) in ("alloc", "free")
                  and e["index"] in (*devices, UNKNOWN)]  # a free with an unknown device is matched by its address
        addresses = {e["addr"] for e in events if recording.kind(e) == "alloc"}
        unsized = any(e["index"] == UNKNOWN and e["addr"] not in addresses for e in events)
        compare_pools(v, name, [e for e in events if e["index"] in devices or e["addr"] in addresses], truth, devices, doc, unsized)


def compare_pools(v, name, events, truth, devices, doc, unsized):
    """unsized: a block from before attach was freed, and the call has no size."""
    known = [d for d in devices if d != UNKNOWN]
    stats = [truth["end"]["stats"][d] for d in known]
    live, total = {}, 0
    if truth["attach"]:
        total = sum(truth["attach"]["stats"][d].get("allocated_bytes.all.current", 0) for d in known)
    peak = total
    for e in events:
        if Recording.kind(e) == "alloc":
            v.same("live", e["addr"] in live, False, "%s: a block where one is, %#x" % (name, e["addr"]))
            live[e["addr"]] = e["size"]
            total += -(-e["size"] // POOL_PIECE) * POOL_PIECE
        elif e["addr"] in live:
            total -= -(-live.pop(e["addr"]) // POOL_PIECE) * POOL_PIECE
        else:
            v.same("live", bool(truth["attach"]), True, "%s: freed what is not there, %#x" % (name, e["addr"]))
            unsized = True
        peak = max(peak, total)
    if not live and not any(s.get("allocated_bytes.all.peak", 0) for s in stats):
        return
    if unsized:
        v.not_compared("not compared, totals and peaks: the job freed blocks from before attach, and the call does not have their size")
    else:
        v.same("totals", total, sum(s["allocated_bytes.all.current"] for s in stats), "%s: bytes in use at the end" % name)
        if len(known) == 1:
            v.same("peaks", peak, stats[0]["allocated_bytes.all.peak"], "%s: peak in use" % name)
    held = {a: n for (device, a), n in truth["end"]["storages"].items() if device in known}
    if truth["attach"]:
        before = {a for _, a in truth["attach"]["storages"]}
        held = {a: n for a, n in held.items() if a in live or a not in before}
    v.same("live", differences({a: live.get(a) for a in held}, held), "", "%s: memory of the tensors that Python holds" % name)
    reported = sum(harness.device(doc, "cuda:%s" % ("?" if d == UNKNOWN else d))["allocs"] for d in devices)
    v.same("report", reported, sum(Recording.kind(e) == "alloc" for e in events), "allocations of " + name)


def compare(path, truth, running=False):
    """A Verdict on the recording at path; truth: the file of oracle.py."""
    v = Verdict()
    recording = Recording(path)
    v.same("totals", recording.complete, True, "the recording is complete")
    v.same("totals", recording.lost, 0, "events lost")
    v.events = sum(recording.kind(e) in ("alloc", "free") and e["type"] == CUDA for e in recording.all)
    if truth["backend"] != "native":
        compare_calls(v, recording, path, truth)
        return v
    used = [d for d, stats in enumerate(truth["end"]["stats"]) if stats.get("allocation.all.allocated", 0)]
    v.same("events", recording.devices(), used, "devices")
    for d in recording.devices():
        Comparison(v, recording, truth, d, running).run()
    compare_report(v, recording, path, truth, running)
    return v


def load(path):
    with open(path, "rb") as f:
        return pickle.load(f)


# ---- runs ---------------------------------------------------------------------------------------------------

MODES = ("start", "attached", "running")


def command(job, role, oracle, *options):
    return [harness.python(role), os.path.join(harness.WORKLOADS, job.file), *job.args, "--oracle", oracle,
            "--steps", str(job.steps), *options]


def run_job(job, role="main", backend="native", mode="start", name="truth", options=()):
    """Records the job; paths of the recording and of the oracle's file. options: the recorder's."""
    path, oracle = harness.scratch(name + ".mtr"), harness.scratch(name + ".oracle")
    env = dry_run(backend, devices=job.devices)
    if mode == "start":
        target = harness.spawn([harness.TOOL, "run", "-o", path, "-f", *options, "--", *command(job, role, oracle)],
                               root=True, env=env)
        code = target.wait(300)
        check(code == 0, "run ended with %s: %s", code, target.tail(target.stderr()))
        return path, oracle
    late = ["--until-told", "--pause", "0.01"] if mode == "running" else ["--stop-before", str(job.steps // 2)]
    target = harness.spawn(command(job, role, oracle, "--wait", *late), env=env)
    target.wait_line("^ready", 120)
    recorder = harness.record(target.popen.pid, path, *options)
    if mode == "running":
        harness.until_recorded(path, lambda doc: doc["capture"]["events"] > 200, "events")
    target.send()
    target.wait_line("^done", 300)
    harness.finish(recorder, 60)
    target.send()
    code = target.wait(30)
    check(code == 0, "%s ended with %s: %s", job.name, code, target.tail(target.stderr()))
    return path, oracle


def verdict(job, role="main", backend="native", mode="start", name="truth", options=()):
    path, oracle = run_job(job, role, backend, mode, name, options)
    return compare(path, load(oracle), mode == "running")


# ---- very many events -------------------------------------------------------------------------------------

def many(events):
    """A run with this many events, attached: {"facts": {what: number}, "why": "" or the difference}."""
    path, oracle = harness.scratch("many.mtr"), harness.scratch("many.oracle")
    job = Job("many", "cuda/many.py", steps=max(2, events // 2000 + 1))
    target = harness.spawn(command(job, "main", oracle, "--no-history", "--wait", "--stop-before", "1"), env=dry_run())
    target.wait_line("^ready", 120)
    recorder = harness.record(target.popen.pid, path)
    begin = time.monotonic()
    target.send()
    target.wait_line("^done", 3600)
    seconds = time.monotonic() - begin
    harness.finish(recorder, 300)
    target.send()
    target.wait(30)
    t = load(oracle)
    before, after = t["attach"]["stats"][0], t["end"]["stats"][0]
    v = Verdict()
    n, drift, allocated, live, lost = 0, 0, 0, {}, 0
    with open(path, "rb") as f:
        reader = mtr_reader.Recording(f)
        for e in reader.events():
            kind = Recording.kind(e)
            if kind == "lost":
                lost += e["size"]
            if e["type"] != CUDA:
                continue
            if kind == "state":
                allocated = e["allocated"]
            elif kind in ("alloc", "block"):
                live[e["addr"]] = e["size"]
            elif kind == "free":
                del live[e["addr"]]
            if kind in ("alloc", "free"):
                n += 1
                allocated += e["size"] if kind == "alloc" else -e["size"]
                drift = max(drift, abs(allocated - e["allocated"]))
    doc = harness.report(path, at="end")
    of = harness.device(doc, "cuda:0")
    v.same("totals", (reader.complete, lost, doc["capture"]["lost"]), (True, 0, 0), "complete, lost")
    v.same("totals", (drift, of["drift"]), (0, 0), "drift")
    for key, stat in (("allocs", "allocation.all.allocated"), ("frees", "allocation.all.freed"),
                      ("total_allocated", "allocated_bytes.all.allocated")):
        v.same("sizes", of[key], after[stat] - before[stat], key)
    v.same("peaks", (of["peak_allocated"], of["peak_reserved"]),
           (after["allocated_bytes.all.peak"], after["reserved_bytes.all.peak"]), "peaks")
    v.same("live", differences(live, live_blocks(t["end"]["segments"])), "", "live blocks at the end")
    return {"facts": {"events": n, "lost": lost, "drift": drift, "seconds": "%.0f" % seconds,
                      "events a second": round(n / seconds), "bytes of the recording": os.path.getsize(path)}, "why": v.why()}


def has_requested():
    """True if the program reports requested sizes."""
    return "--requested" in harness.tool("record", "--help")[1]

# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Shared by test_hard.py and test_reuse.py: a recording's events, compared with the target's own data."""
import collections
import signal
import time

import mtr_reader
from harness import check, equal, own


class Content:
    """All events of a recording, and the live set after them."""

    def __init__(self, path):
        own(path)
        with open(path, "rb") as f:
            self.recording = mtr_reader.Recording(f)
            self.events = list(self.recording.events())
        self.facts = self.recording.facts
        self.count = collections.Counter()
        self.lost = 0
        self.live = {}
        self.errors = []
        for e in self.events:
            self.count[e["kind"]] += 1
            if e["kind"] == mtr_reader.LOST:
                self.lost += e["size"]
            elif e["kind"] == mtr_reader.ALLOC:
                if e["addr"] in self.live:
                    self.errors.append("block at %#x allocated twice" % e["addr"])
                self.live[e["addr"]] = e
            elif e["kind"] == mtr_reader.FREE:
                if self.live.pop(e["addr"], None) is None:
                    self.errors.append("no block at %#x to free" % e["addr"])

    def fact(self, key):
        return int(self.facts.get(key, 0))

    def frames(self, event):
        """[(file, line, function) or None, (module, class, root) or None] of an event's stack, innermost first."""
        r = self.recording
        out = []
        for location, module in r.stacks[event["stack"]][1]:
            file, function, line = r.locations[location]
            out.append(((r.strings[file], line, r.strings[function]) if location else None,
                        tuple(r.strings[s] for s in r.modules[module]) if module else None))
        return out


def exactly(content, truth):
    """The recording equals the target's data: no event is missing or extra."""
    check(not content.errors, "%d contradictions, as: %s", len(content.errors), content.errors[:3])
    equal(content.lost, 0, "lost")
    equal(content.count[mtr_reader.ALLOC], truth["allocs"], "allocations")
    equal(content.count[mtr_reader.FREE], truth["frees"], "frees")
    got = sorted([e["addr"], e["size"]] for e in content.live.values())
    equal(got, sorted([b[0], b[1]] for b in truth["live"]), "the live set")


def interrupted(recorder, times, pause=0.5):
    for _ in range(times):
        time.sleep(0.3)
        recorder.signal(signal.SIGSTOP)
        time.sleep(pause)
        recorder.signal(signal.SIGCONT)

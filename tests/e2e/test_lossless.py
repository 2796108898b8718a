#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# run: nightly=long long
"""A minute with more than a million events: none is lost, and the live blocks at the end are the target's."""
import json
import os

import mtr_reader
from harness import check, device, equal, finish, record, report, run, scratch, workload

SECONDS = 60
EVENTS = 1000000


def live_at_the_end(path):
    """{address: size}, read by docs/reference/mtr.md alone, not by the program."""
    live = {}
    with open(path, "rb") as f:
        recording = mtr_reader.Recording(f)
        for e in recording.events():
            if mtr_reader.KINDS[e["kind"]] == "alloc":
                check(e["addr"] not in live, "two blocks at %#x", e["addr"])
                live[e["addr"]] = e["size"]
            elif mtr_reader.KINDS[e["kind"]] == "free":
                live.pop(e["addr"], None)
    check(recording.complete, "the other reader finds no end")
    return live


def test_a_minute():
    target = workload("churn.py", "--seconds", str(SECONDS), "--rate", "30000")
    target.wait_line("^ready", 120)
    path = scratch("minute.mtr")
    recorder = record(target.popen.pid, path)
    target.send()
    truth = json.loads(target.wait_line("^{", SECONDS + 60))
    finish(recorder)
    events = truth["allocs"] + truth["frees"]
    check(truth["seconds"] >= SECONDS - 1 and events > EVENTS, "the target did %d events in %.1f s", events, truth["seconds"])

    doc = report(path)
    cpu = device(doc)
    equal(doc["capture"]["lost"], 0, "lost")
    equal(cpu["allocs"], truth["allocs"], "allocations")
    equal(cpu["frees"], truth["frees"], "frees")
    check(doc["capture"]["events"] >= events, "%d events recorded of %d", doc["capture"]["events"], events)
    equal(cpu["allocated"], sum(b[1] for b in truth["live"]), "bytes alive at the end")
    got, expected = {}, {}
    for row in doc["rows"]:
        entry = got.setdefault(row["line"], [0, 0])
        entry[0] += row["count"]
        entry[1] += row["bytes"]
    for _, size, line, _ in truth["live"]:
        entry = expected.setdefault(line, [0, 0])
        entry[0] += 1
        entry[1] += size
    equal(got, expected, "blocks and bytes alive by line")
    live = live_at_the_end(path)
    equal(live, {b[0]: b[1] for b in truth["live"]}, "addresses and sizes alive at the end, as another reader has them")
    size = os.path.getsize(path)
    print("     %d events in %.1f s, 0 lost, %.1f bytes an event" % (events, truth["seconds"], size / events))


if __name__ == "__main__":
    run(globals())

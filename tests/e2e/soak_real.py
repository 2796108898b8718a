#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""A long run with real events through BPF: a job that allocates at full speed for SECONDS, recorded with --rolling; totals must
equal the job's own counts. Not one of the tests: `make soak-real SECONDS=60`."""
import json
import os
import sys
import time

import harness
from harness import check, equal, finish, record, report, run, scratch, workload

SECONDS = int(os.environ.get("SECONDS", "60"))
SIZE = 32 << 20


def test_flat_out():
    folder = scratch("real")
    target = workload("churn.py", "--seconds", str(SECONDS), "--rate", "0", "--threads", "2")
    target.wait_line("^ready", 120)
    recorder = record(target.popen.pid, folder, "--rolling", str(SIZE), "--ring-size", "64M")
    target.send()
    seen, end = [], time.monotonic() + SECONDS - 1
    while time.monotonic() < end:
        seen.append(harness.resident(recorder.pid))
        time.sleep(1)
    truth = json.loads(target.wait_line("^{", SECONDS + 60))
    finish(recorder, 120)
    whole = harness.read_json(os.path.join(folder, "totals.json"))["whole"]
    cpu = [d for d in whole["devices"] if d["device"] == "cpu"][0]
    equal(whole["lost"], 0, "lost")
    equal((cpu["allocs"], cpu["frees"]), (truth["allocs"], truth["frees"]), "allocations and frees")
    equal(cpu["allocated"], sum(b[1] for b in truth["live"]), "bytes alive")
    doc = report(folder)
    equal(sum(r["bytes"] for r in doc["rows"] if r["file"]), cpu["allocated"], "rows at the end")
    taken = sum(os.stat(os.path.join(folder, name)).st_size for name in os.listdir(folder))
    check(taken <= SIZE, "the folder has %d bytes", taken)
    print("     %d events in %.0f s, 0 lost, exact; memory %.1f MiB after a tenth, %.1f MiB at the end; %.1f MiB on disk, %d segments, "
          "%d events dropped" % (whole["events"], truth["seconds"], seen[len(seen) // 10] / 2**20, seen[-1] / 2**20, taken / 2**20,
                                 doc["rolling"]["segments"], doc["rolling"]["dropped_events"]))


if __name__ == "__main__":
    sys.argv = sys.argv[:1]
    run(globals())

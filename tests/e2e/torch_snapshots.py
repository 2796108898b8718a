# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Runs a job that is recorded and writes a snapshot of PyTorch, and compares what `report` says of the two."""
import os

import harness
import truth
from harness import check, equal, report, scratch

FIGURES = ("allocated", "reserved", "peak_allocated", "peak_reserved", "total_allocated", "allocs", "frees", "ooms")
AT_END = ("allocated", "reserved")
_made = {}


def both(name, backend="native", role="main", options=()):
    """Paths of the recording and of the snapshot of a job of truth.JOBS. options: of tests/workloads/oracle.py."""
    job = {j.name: j for j in truth.JOBS}[name]
    return run_both(job.file, ("--steps", str(job.steps), *job.args, *options), backend, role, job.devices)


def run_both(file, options, backend="native", role="main", devices=1):
    """The same of a workload."""
    key = file, backend, role, tuple(options)
    if key not in _made:
        path, snapshot = scratch("%d.mtr" % len(_made)), scratch("%d.pickle" % len(_made))
        target = harness.spawn([harness.TOOL, "run", "-f", "--requested", "-o", path, "--", harness.python(role),
                                os.path.join(harness.WORKLOADS, file), *options, "--snapshot", snapshot],
                               root=True, env=truth.dry_run(backend, devices=devices))
        code = target.wait(600)
        check(code == 0, "run ended with %s: %s", code, target.tail(target.stderr()))
        _made[key] = path, snapshot
    return _made[key]


def figures(doc, keys=("allocated", "reserved", "peak_allocated", "peak_reserved")):
    """What a report says of each GPU that was used."""
    return {d["device"]: {key: d[key] for key in keys} for d in doc["devices"] if d["device"].startswith("cuda") and d["peak_reserved"]}


def lines(path, device, at):
    """(file, line) -> bytes. Memory without a line of the user is together: a recording knows the forward call of what autograd
    allocates, also where only libraries run in it."""
    found = {}
    for r in report(path, "--device", device, at=at)["rows"]:
        place = (r["file"], r["line"]) if r["file"] and r["source"] == "frame" and "/site-packages/" not in r["file"] else None
        found[place] = found.get(place, 0) + r["bytes"]
    return {k: v for k, v in found.items() if v}


def compare(name, backend="native", role="main"):
    """Fails if the reports of a job's recording and snapshot differ."""
    path, snapshot = both(name, backend, role)
    what = "%s, %s, torch %s" % (name, backend, role)
    print("     %s: %d lines are equal" % (what, compare_files(path, snapshot, what)), flush=True)


def compare_files(path, snapshot, what, state=False):
    """Fails if the reports differ. state: the snapshot has no trace, so that only its end is compared. Returns how many lines were
    compared."""
    keys, n = AT_END if state else FIGURES, 0
    want = figures(report(path, at="end"), keys)
    equal(figures(report(snapshot, at="end"), keys), want, "figures of " + what)
    for device in want:
        for at in ("end",) if state else ("peak", "end"):
            a, b = lines(path, device, at), lines(snapshot, device, at)
            equal(b, a, "bytes by line of %s on %s at the %s" % (what, device, at))
            n += len(a)
    check(n > 0, "%s: no lines", what)
    return n

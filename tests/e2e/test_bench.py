#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# run: check
"""The statistics, the judgements and the history of make bench (tools/dev/bench/). Nothing is measured here."""
import contextlib
import io
import json
import os
import random
import sys
import time
import types

from harness import REPO, check, equal, run, scratch

sys.path.insert(0, os.path.join(REPO, "tools", "dev"))
import bench_history  # noqa: E402
from bench import figures, history, machine, part, stats  # noqa: E402


def within(e, value):
    return e["low"] <= value <= e["high"]


def test_intervals_hold_the_truth():
    """Of 200 samples of a known distribution with outliers, the interval holds the true median as often as it says: 95 %, and the
    bootstrap of few values somewhat less."""
    rng, held, draws = random.Random(1), 0, stats.RESAMPLES
    stats.RESAMPLES = 400
    try:
        for _ in range(200):
            values = [rng.lognormvariate(0, 0.2) + (5 if rng.random() < 0.05 else 0) for _ in range(15)]
            held += within(stats.interval(values), 1.013)  # the median of the mixture
    finally:
        stats.RESAMPLES = draws
    check(180 <= held <= 199, "the interval holds the median %d times of 200", held)


def test_intervals_shrink_with_rounds():
    rng = random.Random(2)
    values = [rng.gauss(10, 1) for _ in range(100)]
    width = [e["high"] - e["low"] for e in (stats.interval(values[:n]) for n in (10, 100))]
    check(width[1] < 0.6 * width[0], "10 values: %.2f, 100 values: %.2f", *width)
    equal(stats.interval(values), stats.interval(list(values)), "the interval of the same values")


def test_one_round_has_no_interval():
    equal(stats.interval([3.0]), {"median": 3.0, "low": None, "high": None}, "an interval of one value")
    equal(stats.text(stats.interval([3.0])), "3.00 (?–?)", "its text")


def test_ratio_is_paired():
    """A disturbance that all states of a round share does not widen the interval of their ratio."""
    rng = random.Random(3)
    slow = [rng.uniform(1, 5) for _ in range(12)]
    e = stats.ratio_of_medians((0.7 * s, s) for s in slow)
    check(all(abs(e[k] - 0.7) < 1e-9 for k in ("median", "low", "high")), "0.7 of each round: %s", e)


def test_ratio_to_nothing_is_not_known():
    equal(stats.ratio_of_medians([(1, -1), (1, 0), (1, -2)])["median"], None, "a ratio to less than nothing")
    e = stats.ratio_of_medians([(1, x) for x in (-1.0, 0.1, 0.2, -0.5, 0.3)])
    check(e["median"] == 10 and e["high"] is None and e["low"] is not None, "a ratio to nearly nothing: %s", e)


def test_noise_floor():
    floor = stats.floor_of({"low": 0.96, "high": 1.02})
    check(abs(floor - 0.04) < 1e-9, "the floor of 0.96 to 1.02: %s", floor)
    equal(stats.floor_of(stats.interval([1.0])), None, "the floor of one round")


def test_busy_machines_are_named():
    quiet = {"others": 0.02, "steal": 0.001, "load": 0.3}
    equal(machine.too_busy(quiet, 0.03), [], "reasons against a quiet machine")
    for sample, floor, word in (({**quiet, "others": 0.4}, None, "other programs"), ({**quiet, "steal": 0.2}, None, "hypervisor"),
                                (quiet, 0.2, "differs from itself")):
        reasons = machine.too_busy(sample, floor)
        check(len(reasons) == 1 and word in reasons[0], "%s, floor %s: %s", sample, floor, reasons)


def test_own_work_is_not_of_others():
    """CPU time of this process does not count as that of others; the ticks of /proc are 10 ms."""
    before, end = machine.now(), time.process_time() + 0.5
    while time.process_time() < end:
        pass
    after = machine.now()
    own = after["ours"] - before["ours"]
    check(own >= 0.5 * machine.HZ - 2, "0.5 s of work: %d ticks", own)
    check(machine.since(before)["others"] >= 0, "less than nothing")


def e(median, low, high):
    return {"median": median, "low": low, "high": high}


def test_goals_are_judged():
    found = {"program report, ns": e(450, 440, 470), "program edge, ns": e(950, 930, 960), "program evaluate, ns": e(190, 180, 220)}
    verdicts = {name: verdict for name, _, _, verdict in figures.judge(found)}
    equal(verdicts["program report, ns"], "met", "below the goal")
    equal(verdicts["program edge, ns"], "missed", "above the goal")
    equal(verdicts["program evaluate, ns"], "met, within noise", "an interval with the goal in it")
    equal(verdicts["program module_call, ns"], "not measured", "a figure that is missing")


def result(commit, measured, report, **more):
    return {"schema": 1, "commit": commit * 12, "committed": measured, "changed": False, "measured": measured, "torch": "2.11.0",
            "machine": {"cpu": "a CPU", "cores": 2, "memory_gib": 24, "kernel": "6.18", "virtual": True}, "busy": {},
            "figures": {"program report, ns": report, "program edge, ns": e(1000, 990, 1010)}, **more}


def test_regressions_are_found():
    a, b = result("a", "2026-01-01", e(700, 690, 710)), result("b", "2026-01-02", e(760, 750, 770))
    lines, worse = history.compare(a, b)
    check(worse == 1 and len(lines) == 1 and "WORSE" in lines[0] and "report" in lines[0], "slower: %s", lines)
    lines, worse = history.compare(b, a)
    check(worse == 0 and len(lines) == 1 and "better" in lines[0], "faster: %s", lines)
    equal(history.compare(a, result("b", "2026-01-02", e(705, 700, 715))), ([], 0), "within the intervals")
    lines, worse = history.compare(a, {**b, "figures": {"program edge, ns": e(1, None, None)}})
    check(worse == 0 and "not known" in lines[0] and "missing" in lines[1], "unknown: %s", lines)


def test_table_has_each_commit():
    other = {**result("c", "2026-01-03", e(1, 1, 1)), "torch": "9.9"}
    text = history.table([result("a", "2026-01-01", e(700, 690, 710)), other, result("b", "2026-01-04", e(760, 750, 770),
                                                                                 busy={"peers": ["a reason"]})])
    check("| program report, ns | 700 (690–710) | 760 (750–770) |" in text, "two results of one machine:\n%s", text)
    check("a reason" in text and "torch 9.9" in text and "| program report, ns | 500 | 760 (750–770) | missed |" in text, "%s", text)


def run_doc(commit, changed=False, **parts):
    return {"commit": {"commit": commit * 12, "committed": "2026-01-01", "changed": changed}, "measured": "2026-01-02T00:00:00Z",
            "torch": "2.11.0", "machine": {"cpu": "a CPU", "cores": 2, "memory_gib": 24, "kernel": "6.18", "virtual": True}, "busy": {}, **parts}


def test_a_run_is_kept():
    folder = scratch("history")
    ns = {"median": 5, "low": 4, "high": 6, "quartiles": [4, 6], "values": [4, 5, 6]}
    path = history.add(run_doc("a", bpf={"dry run": {"report": {"ns": ns}}}), folder)
    history.add(run_doc("a", bpf={"cpu": {"cpu_delete": {"ns": ns}}}), folder)
    with open(path, encoding="utf-8") as f:
        one = json.load(f)
    equal(sorted(one["figures"]), ["program cpu_delete (free), ns", "program report, ns"], "figures of two runs of a commit")
    equal(one["figures"]["program report, ns"], e(5, 4, 6), "what is kept of a figure")
    try:
        history.add(run_doc("b", changed=True, bpf={"dry run": {"report": {"ns": ns}}}), folder)
    except ValueError:
        return
    check(False, "a run of a changed tree was kept")


def test_kept_results_are_in_order():
    """The folder of this repository: each result is complete, and README.md is what is generated from them."""
    kept = history.load()
    for one in kept:
        equal(history.valid(one), [], "faults of the result of %s" % one["commit"])
        check(not one["changed"] and one["figures"], "the result of %s is not of a commit", one["commit"])
        check(all(stats.inside(f) for f in one["figures"].values()),
              "a median outside of its interval: %s", one["commit"])
    with open(os.path.join(history.FOLDER, "README.md"), encoding="utf-8") as f:
        equal(f.read(), history.table(kept), "docs/internals/bench/README.md; tools/dev/bench_history.py table writes it")


def test_comparison_without_another_result():
    one = result("a", "2026-01-01", e(700, 690, 710))
    for kept, after in (([], None), ([one], one), ([{**one, "commit": "b" * 12, "torch": "9.9"}, one], one)):
        try:
            bench_history.compare(kept, after)
        except SystemExit as end:
            check("nothing to compare" in str(end.code), "%s", end.code)
        else:
            check(False, "compared with nothing: %s", kept)


def one_part(name, noise, sample, anyway):
    """(what is printed, the run's results) of a part with made-up figures on a made-up machine."""
    doc, text = {"busy": {}, "during": {}}, io.StringIO()
    args = types.SimpleNamespace(anyway=anyway, wait=0)
    look, since = machine.look, machine.since
    machine.look, machine.since = lambda: sample, lambda before: sample
    try:
        with contextlib.redirect_stdout(text):
            part.measure(args, name, lambda: {"noise": noise}, lambda found: print("the ratio"), doc)
    finally:
        machine.look, machine.since = look, since
    return text.getvalue(), doc


def test_busy_machine_gets_no_ratio():
    quiet, busy = {"others": 0.0, "steal": 0.0, "load": 0.0}, {"others": 0.5, "steal": 0.0, "load": 3.0}
    text, doc = one_part("small", e(1, 0.99, 1.01), quiet, False)
    check("the ratio" in text and "BUSY" not in text and not doc["busy"], "a quiet machine: %s", text)
    for noise, sample in ((e(1, 0.99, 1.01), busy), (e(1, 0.7, 1.3), quiet)):
        text, doc = one_part("small", noise, sample, False)
        check("the ratio" not in text and "too busy" in text and doc["busy"]["small"], "a busy machine: %s", text)
        text, doc = one_part("small", noise, sample, True)
        check("the ratio" in text and "BUSY" in text and doc["busy"]["small"], "anyway: %s", text)


if __name__ == "__main__":
    run(globals())

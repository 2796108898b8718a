# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""A limit on what the user pays: a step of a launch-bound job that leaks, on the dry run with its virtual clock, untraced and with
--cost 1%. The step is a mean over time, since the recorder may record some steps in full and others not. After each round `leaks`
must name the line that leaks."""
import json
import os
import time

import harness
from bench import stats, tools
from bench.common import Tail, rounds as rounds_in, spread
from bench.peers import WORKLOADS

JOB = "launch-bound"
LEAK = 64 << 10  # bytes a step
WINDOWS = {"untraced": 7.5, tools.LIMITED: 30}  # in --seconds: 6 and 24 s


def mean_step(target, seconds):
    """Mean time from the begin of a step to that of the next in a window, ms."""
    begin = time.monotonic()
    time.sleep(seconds)
    steps = Tail(target.times).between(begin, time.monotonic())
    harness.check(len(steps) > 20, "only %d steps in %.1f s", len(steps), seconds)
    return 1e3 * (steps[-1][0] - steps[0][0]) / (len(steps) - 1)


def leaking_line():
    with open(os.path.join(harness.WORKLOADS, "step.py"), encoding="utf-8") as f:
        return next(number for number, text in enumerate(f, 1) if "kept.append" in text)


def named(path):
    """Does `leaks` name the line that leaks, with its holder? And its rate / the true one; None: not named."""
    code, out, err = harness.tool("leaks", "--format", "json", path)
    harness.check(code == 0, "leaks: %s", err[-300:])
    found = [line for d in json.loads(out)["devices"] for line in d["leaks"]
             if (os.path.basename(line.get("file") or ""), line.get("line")) == ("step.py", leaking_line())]
    return found[0]["bytes_per_step"] / LEAK if found else None


def round_of(target, tool, seconds):
    untraced = [mean_step(target, WINDOWS["untraced"] * seconds) for _ in range(3)]
    tool.start(target)
    tool.ready()
    limited = mean_step(target, WINDOWS[tools.LIMITED] * seconds)
    tool.stop(target)
    untraced.append(mean_step(target, WINDOWS["untraced"] * seconds))
    detail = harness.report(tool.path)["capture"]["detail"]
    return {"again": untraced[1] / ((untraced[0] + untraced[2]) / 2), "alone": (untraced[2] + untraced[3]) / 2,
            "limited": limited / ((untraced[2] + untraced[3]) / 2), "share": detail["share"], "leak": named(tool.path)}


def bench(args, python):
    _, device, options, env = WORKLOADS[JOB]
    target = tools.Target(python, device, (*options, "--leak", str(LEAK)), env)
    tool = tools.Limited(tools.LIMITED, "--cost", "1%")
    rounds = [round_of(target, tool, args.seconds) for _ in rounds_in(args, "cost")]
    target.stop()
    rates = [r["leak"] for r in rounds if r["leak"] is not None]
    shares = [r["share"] for r in rounds if r["share"] is not None]
    return {"noise": spread(r["again"] for r in rounds), "step_ms": spread(r["alone"] for r in rounds),
            "ratio": spread(r["limited"] for r in rounds), "rounds": len(rounds), "not_named": len(rounds) - len(rates),
            "rate": spread(rates) if rates else None, "share": spread(shares) if shares else None}


def show(doc):
    print("\nA step of the launch-bound job that leaks, mean over time; durations of GPU work are modelled, not measured\n")
    print("  untraced, ms: %s" % stats.text(doc["step_ms"]))
    print("  with --cost 1% / untraced: {}".format(stats.text(doc["ratio"], 3)))
    print("  added CPU time, as the recorder estimates it, %%: %s" % (stats.text(doc["share"], 1, 100) if doc["share"] else "not known"))
    print("  the leak was named in %d of %d rounds; its rate / the true one: %s" % (
        doc["rounds"] - doc["not_named"], doc["rounds"], stats.text(doc["rate"]) if doc["rate"] else "not known"))

# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""The figures that are kept of a run, by name, and the goals among them."""

FLOOR = "against empty probes"
STEP_LIMITED = "step of a launch-bound job that leaks, modelled GPU, with --cost 1% / untraced, ×"
NOT_NAMED = "leaks not named with --cost 1%, of 100 rounds"
# (figure, at most)
GOALS = (("added step time, lines and modules, %s, ×" % FLOOR, 1.5),
         ("added step time, lines, modules and backward, %s, ×" % FLOOR, 1.9),
         ("step of a GPU-bound job, modelled GPU, all / untraced, ×", 1.002),
         (STEP_LIMITED, 1.012), (NOT_NAMED, 0),
         ("program report, ns", 500), ("program edge, ns", 900), ("program evaluate, ns", 200), ("program module_call, ns", 600),
         ("program cpu_delete (free), ns", 120))
PROGRAMS = (("dry run", ("report", "edge", "evaluate", "module_call")), ("cpu", ("cpu_new", "cpu_delete")))
PROGRAM_WORDS = {"cpu_delete": "cpu_delete (free)", "cpu_new": "cpu_new (allocation)"}


def estimate(s):
    return {k: s[k] for k in ("median", "low", "high")}


def figures(doc):
    """{name: {"median", "low", "high"}} of what a run measured. Parts that did not run have none."""
    out = {}

    def add(name, s):
        if s and s["median"] is not None:
            out[name] = estimate(s)

    for part in ("peers", "peers-cpu"):
        for job, d in doc.get(part, {}).items():
            where = "" if job == "cuda" else ", CPU job"
            for words, r in d["ratios"].items():
                add("added step time, %s%s, ×" % (words, where), r["wall"])
                add("added CPU time, %s%s, ×" % (words, where), r["cpu"])
            for name, t in d["tools"].items():
                if name in ("all", "no backward", "empty probes", "PyTorch's recorder", "empty probes, also of backward"):
                    add("added to a step, %s%s, ms" % (name, where), t["wall_added"])
            add("noise floor, untraced step against itself%s, ×" % where, d["noise"])
    for job, d in doc.get("clock", {}).items():
        for name in ("all", "no backward"):
            if name in d["tools"]:
                add("step of a %s job, modelled GPU, %s / untraced, ×" % (job, name), d["tools"][name]["wall_ratio"])
                add("added to a step of a %s job, modelled GPU, %s, ms" % (job, name), d["tools"][name]["wall_added"])
    if "cost" in doc:
        missed = 100 * doc["cost"]["not_named"] / doc["cost"]["rounds"]
        add(STEP_LIMITED, doc["cost"]["ratio"])
        add(NOT_NAMED, {"median": missed, "low": missed, "high": missed})
    for job, programs in PROGRAMS:
        for name in programs:
            if name in doc.get("bpf", {}).get(job, {}):
                add("program %s, ns" % PROGRAM_WORDS.get(name, name), doc["bpf"][job][name]["ns"])
    for part, words in (("events", "an event of the CPU"), ("calls", "a call of CUDA")):
        for what in ("alloc", "free"):
            if part in doc:
                add("%s, %s, added, ns" % (words, what), doc[part][what]["recorded_ns"])
    for part in ("small", "demo"):
        if part in doc:
            add("step of the %s model, recorded / untraced, CPU time, ×" % part, doc[part]["recorded"]["cpu"])
            add("recorder's CPU per 10,000 events/s, %s model, %% of a core" % part,
                {k: v * 100 if v is not None else None
                 for k, v in estimate(doc[part]["tracer"]["cpu_per_10000_events_per_second"]).items()})
    if "stall" in doc:
        ours = doc["stall"]["tools"]["all"]
        add("attach: a thread stands still, ms", ours["net"])
        add("attach: from the command to attached, ms", ours["took"])
        add("detach, ms", ours["detach"])
    for d in doc.get("report", {}).values():
        add("report of {:,} events, CPU ns an event".format(d["events"]), d["cpu_ns"])
    return out


def judge(found):
    """[(figure, goal, estimate or None, verdict)]: "met", "missed", each "within noise" if the interval has the goal in it."""
    out = []
    for name, limit in GOALS:
        e = found.get(name)
        if not e:
            verdict = "not measured"
        else:
            verdict = "met" if e["median"] <= limit else "missed"
            if None in (e["low"], e["high"]):
                verdict += ", interval not known"
            elif e["low"] <= limit < e["high"]:
                verdict += ", within noise"
        out.append((name, limit, e, verdict))
    return out

# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Compares a training step under each tool with the untraced step, in one interleaved run. Each window of a tool is between two
untraced windows of the same process; ratio and difference refer to their mean. Tools that change the process permanently get a
new process per window. Ctrl-C ends the run after the last complete round."""
import contextlib
import statistics
import subprocess
import time

import harness
from bench import stats, tools
from bench.common import Tail, memory, rounds as rounds_in, spread

CPU_MODEL = ("--batch", "4", "--context", "64", "--width", "64", "--heads", "4", "--layers", "4", "--vocab", "512")
CLOCK = {"MEMTRACE_DRYRUN_CLOCK": "1"}
# {name: (words, device, options of the job, its environment)}
WORKLOADS = {"cuda": ("on the dry run, no GPU work", "cuda", (), {}), "cpu": ("on the CPU", "cpu", CPU_MODEL, {}),
             "GPU-bound": ("on the dry run with its clock, GPU-bound", "cuda", (), CLOCK),
             "launch-bound": ("on the dry run with its clock, launch-bound", "cuda", ("--batch", "2", "--context", "128"), CLOCK)}
SETTLE = 0.3
LEAST = 5


def rows(target, seconds, who="untraced"):
    """Steps that begin in a window, which lasts until there are some: median step times in ms, and their number."""
    time.sleep(SETTLE)
    begin = time.monotonic()
    found, end = [], begin
    while len(found) < LEAST and end - begin < 30 * seconds:
        time.sleep(seconds)
        end = time.monotonic()
        time.sleep(0.1)
        found = Tail(target.times).between(begin, end)
    harness.check(len(found) >= LEAST, "%s: only %d steps in %.1f s", who, len(found), end - begin)
    return {"wall": 1e3 * statistics.median(r[1] - r[0] for r in found), "cpu": 1e3 * statistics.median(r[2] for r in found),
            "steps": len(found), "seconds": end - begin}


def window(tool, target, seconds):
    """One window of a tool, without the comparison."""
    rss = memory(target.pid)["VmRSS"]
    tool.start(target)
    since = tool.since or time.monotonic()
    tool.ready()
    begin = time.monotonic()
    cpu = tool.cpu()
    one = rows(target, seconds, tool.name)
    took = time.monotonic() - begin
    one["tool_cpu"] = None if cpu is None else (tool.cpu() - cpu) / took
    one["tool_rss"], one["grown"] = tool.rss(), memory(target.pid)["VmRSS"] - rss
    end = time.monotonic()
    one.update(tool.stop(target))
    if one["events"]:
        # Events of the tool's whole time, steps of nearly all of it.
        steps = len(Tail(target.times).between(since, end))
        one["events_per_step"] = one["events"] / max(steps, 1)
        one["events_s"] = one["events"] / (end - since)
    return one


def against(one, before, after):
    for column in ("wall", "cpu"):
        alone = [b[column] for b in (before, after) if b]
        base = statistics.mean(alone)
        one[column + "_alone"], one[column + "_ratio"] = base, one[column] / base
        one[column + "_added"] = one[column] - base
    return one


def attempt(tool, target, seconds, failed):
    """A window, or None with the reason in `failed` if another tool does not work. Our own tool must work."""
    try:
        return window(tool, target, seconds)
    except (harness.Failure, subprocess.TimeoutExpired) as e:
        if isinstance(tool, tools.Ours) or not target.process.alive():
            raise
        failed[tool.name] = str(e)[:200].replace("\n", " ")
        return None


def round_of(shared, apart, target, fresh, seconds, failed):
    """{tool: window} of all tools, once; adds to `failed`."""
    result = {}
    before = rows(target, seconds)
    for tool in shared:
        one = attempt(tool, target, seconds, failed)
        after = rows(target, seconds)
        if one:
            result[tool.name] = against(one, before, after)
        before = after
    with target.paused():
        for tool in apart:
            own = fresh()
            alone = rows(own, seconds)
            with contextlib.suppress(harness.Failure):  # the process may have ended the tool's child
                one = attempt(tool, own, seconds, failed)
                if one:
                    result[tool.name] = against(one, alone, None)
            own.stop()
    return result


def turned(things, n):
    return things[n % len(things):] + things[:n % len(things)] if things else things


def chosen(args, tool, only):
    if args.tools:
        return tool.name in args.tools.split(",")
    return tool.name in only if only else args.long or not tool.long


def measure(args, python, memray_python, workload, part, only=()):
    """Compares the tools on a workload in the rounds of a part; only: names of tools, if not all."""
    _, device, options, env = WORKLOADS[workload]
    found, left_out, failed = [], {}, {}
    for tool in tools.all_tools(memray_python):
        if not chosen(args, tool, only):
            continue
        why = tool.missing() or ("records CUDA memory only" if tool.gpu_only and device != "cuda" else "")
        if why:
            left_out[tool.name] = why
        else:
            found.append(tool)
    def fresh():
        return tools.Target(memray_python or python, device, options, env)

    target = fresh()
    rounds = []
    try:
        for n in rounds_in(args, part):
            rounds.append(round_of(turned([t for t in found if not t.fresh], n), turned([t for t in found if t.fresh], n), target,
                                   fresh, args.seconds, failed))
    except KeyboardInterrupt:
        harness.check(rounds, "interrupted in the first round")
    target.stop()
    done = [t for t in found if any(t.name in r for r in rounds)]
    left_out.update((name, why) for name, why in failed.items() if name not in [t.name for t in done])
    return {"tools": {t.name: summary(t, [r[t.name] for r in rounds if t.name in r]) for t in done}, "left_out": left_out,
            "ratios": ratios(rounds), "noise": noise(rounds)}


def summary(tool, windows):
    out = {"records": tool.records}
    for key in windows[0]:
        values = [w[key] for w in windows if w.get(key) is not None]
        if values:
            out[key] = spread(values)
    return out


PAIRS = (("no backward", tools.TRAPS, "lines and modules, against empty probes"),
         ("all", tools.TRAPS, "lines, modules and backward, against empty probes"),
         ("all", tools.ALL_TRAPS, "lines, modules and backward, against empty probes, also of backward"),
         ("empty probes", "PyTorch's recorder", "empty probes, against PyTorch's own recorder"),
         ("no backward", "PyTorch's recorder", "lines and modules, against PyTorch's own recorder"),
         ("all", "PyTorch's recorder", "lines, modules and backward, against PyTorch's own recorder"),
         ("no backward or modules", "PyTorch's recorder", "lines, against PyTorch's own recorder"),
         ("all", "bpftrace stacks", "against bpftrace printing native stacks of the same hits"),
         ("no backward or modules", "bpftrace stacks, allocations", "without backward and modules, against bpftrace printing native "
          "stacks of the same hits"),
         ("all", "bpftrace count", "against bpftrace counting the same hits"),
         ("all", "torch.profiler", "against torch.profiler"), ("all", "memray", "against memray"), ("all", "heaptrack", "against heaptrack"))


def noise(rounds):
    """The untraced job against itself, measured as each tool is. None: not measured."""
    values = [r[tools.AGAIN]["wall_ratio"] for r in rounds if tools.AGAIN in r]
    return spread(values) if values else None


def ratios(rounds):
    """Time that memtrace-bpf adds to a step / time that another tool adds, from medians: in a single round both may be noise."""
    out = {}
    for ours, other, words in PAIRS:
        both = [(r[ours], r[other]) for r in rounds if ours in r and other in r]
        if both:
            out[words] = {c: stats.ratio_of_medians((a[c + "_added"], b[c + "_added"]) for a, b in both) for c in ("wall", "cpu")}
    return out


def cell(s, digits=2, scale=1.0, between=False):
    if not s:
        return "–"
    return stats.text(s, digits, scale) if between else "%.*f" % (digits, s["median"] * scale)


def per_event(d):
    if "bytes" not in d or "events" not in d:
        return "–"
    seen = d.get("printed", d["events"])["median"] or d["events"]["median"]
    return "%.1f" % (d["bytes"]["median"] / seen)


def show(doc):
    for workload, d in doc.items():
        alone = spread([x for t in d["tools"].values() for x in t["wall_alone"]["values"]])
        print("\nA GPT's training step %s, %s ms untraced\n" % (WORKLOADS[workload][0], cell(alone, 1, between=True)))
        print("| | step / untraced | added, ms a step | the same in CPU time | events a step | tool's CPU, % of a core | tool's memory, "
              "MiB | target grown by, MiB | bytes an event |\n|---|---|---|---|---|---|---|---|---|")
        for name, t in d["tools"].items():
            print("| %s | %s | %s | %s | %s | %s | %s | %s | %s |" % (
                name, cell(t["wall_ratio"], 2, between=True), cell(t["wall_added"], 2, between=True), cell(t["cpu_added"], 2, between=True),
                cell(t.get("events_per_step"), 0), cell(t.get("tool_cpu"), 1, 100), cell(t.get("tool_rss"), 0, 2**-20),
                cell(t["grown"], 0, 2**-20), per_event(t)))
        for name, why in d["left_out"].items():
            print("| %s | not run: %s | | | | | | | |" % (name, why))
        print()
        for words, r in d["ratios"].items():
            print("Added to a step, %s: %s; CPU time %s" % (words, stats.text(r["wall"]), stats.text(r["cpu"])))
        for name, t in d["tools"].items():
            if "lost" in t and sum(t["lost"]["values"]):
                print("%s lost %d events" % (name, sum(t["lost"]["values"])))
            if "printed" in t and "stacks" in name:
                print("%s printed %.0f %% of its hits" % (name, 100 * t["printed"]["median"] / max(t["events"]["median"], 1)))
    first = next(iter(doc.values()))
    print("\n| | lines | modules | backward | frees | what was there before it | which memory |\n|---|---|---|---|---|---|---|")
    for name, t in first["tools"].items():
        r = t["records"]
        print("| %s | %s | %s | %s | %s | %s | %s |" % (name, r["lines"], r["modules"], r["backward"], r["frees"], r["before"], r["memory"]))


def bench(args, python, memray_python, workload):
    return {workload: measure(args, python, memray_python, workload, "peers" if workload == "cuda" else "peers-cpu")}

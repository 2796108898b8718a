#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# run: check cpu=60
"""Steps of PyTorch snapshots without an optimizer: the period of the trace. Traces without one must not get steps."""
import pickle
import random

from harness import check, equal, report, run, scratch, tool

FILE, TORCH = "/job/serve.py", "/site-packages/torch/nn/modules/"


def frames(*lines):
    """Innermost first: a line is of the job; a tuple (file, function, line) of PyTorch."""
    found = [{"filename": FILE, "name": "serve", "line": x} if isinstance(x, int) else dict(zip(("filename", "name", "line"), x))
             for x in lines]
    return found + [{"filename": FILE, "name": "<module>", "line": 1}]


def module(file, *inner):
    """Frames of a call of a module whose forward is in the file, with the frames inside it."""
    return (*inner, (file, "forward", 10), (TORCH + "module.py", "_call_impl", 1786))


def snapshot(name, allocations, each=10):
    """Writes a snapshot. allocations: (frames, size, kept). One that is not kept ends three allocations later, or when a step ends.
    each: microseconds from one entry to the next."""
    trace, live = [], []
    for i, (stack, size, kept) in enumerate(allocations):
        addr = (1 << 32) + i * (1 << 24)
        trace.append({"action": "alloc", "addr": addr, "size": size, "frames": stack})
        if kept is not True:
            live.append((addr, size))
        while live and (len(live) > 3 or kept == "ends"):
            addr, size = live.pop(0)
            trace += [{"action": act, "addr": addr, "size": size, "frames": []} for act in ("free_requested", "free_completed")]
    for i, e in enumerate(trace):
        e.update(stream=0, time_us=1000 + each * i)
    path = scratch(name + ".pickle")
    with open(path, "wb") as f:
        pickle.dump({"segments": [], "device_traces": [trace]}, f)
    return path


def steps(path):
    capture = report(path)["capture"]
    return capture["steps_from"], capture["steps"]


def step(n=0):
    """One request: eight allocations at five lines."""
    return [(frames(x), 4096 * x + n, "ends" if x == 50 else False) for x in (10, 20, 20, 20, 20, 30, 40, 50)]


def bare(allocations):
    """The same without frames."""
    return [([], size, kept) for _, size, kept in allocations]


def test_requests():
    """Each request is a step, also with other sizes, an interlude, work before the first one and an incomplete last one."""
    load = [(frames(2), 1 << 20, True), (frames(3), 1 << 10, True)] * 20
    log = [(frames(60), 512, False)]
    same = [a for _ in range(24) for a in step()]
    equal(steps(snapshot("same", same)), ("period", 24), "equal requests")
    equal(steps(snapshot("load", load + same)), ("period", 24), "a model before them")
    equal(steps(snapshot("sizes", [a for i in range(24) for a in step(512 * i)])), ("period", 24), "requests of other sizes")
    equal(steps(snapshot("part", load + same + step()[:3])), ("period", 24), "an incomplete one")
    logs = [a for i in range(40) for a in step() + log * (i % 10 == 9)]
    equal(steps(snapshot("log", logs)), ("period", 40), "a line at each tenth request")
    equal(steps(snapshot("bare", bare(load + same))), ("likely period", 24), "sizes alone")
    equal(steps(snapshot("few", step() * 3)), ("unknown", 0), "three requests")
    _, out, _ = tool("report", scratch("same.pickle"))
    check("24 steps of" in out and "steps by the trace's own period (sure)" in out, "%s", out)
    _, out, _ = tool("report", scratch("few.pickle"))
    check("steps not known" in out, "%s", out)


def test_layers_are_no_steps():
    """The layers of a model come one after the other, within one call."""
    layer = [(frames(*module("/job/block.py", (TORCH + "linear.py", "forward", x)), *module("/job/model.py"), 7), 4096, False)
             for x in range(12, 18)]
    embed = [(frames((TORCH + "sparse.py", "forward", 9), ("/job/model.py", "forward", 8), (TORCH + "module.py", "_call_impl", 1786), 7),
              9000, False)]
    equal(steps(snapshot("layers", embed + layer * 30)), ("unknown", 0), "layers of one call")
    equal(steps(snapshot("calls", (embed + layer * 30) * 10)), ("period", 10), "calls with layers")
    equal(steps(snapshot("wrapped", layer * 30)), ("period", 30), "calls of a wrapper, which calls nothing else")


def test_making_a_model_is_no_step():
    made = [(frames(x), 4096 * x, True) for x in (10, 20, 30, 40)] * 30
    equal(steps(snapshot("made", made)), ("unknown", 0), "parameters, made one after the other")
    equal(steps(snapshot("made_bare", bare(made))), ("unknown", 0), "without frames")


def test_no_false_steps():
    """Random traces of few and many lines and sizes, of any shape, have no steps."""
    r = random.Random(45)
    for lines in (1, 2, 3, 5, 13, 200):
        for sizes in (1, 3, 50):
            for n in (30, 400, 2000):
                drawn = r.choices(range(2, lines + 2), [1 / (i + 1) ** r.choice((0, 1, 2)) for i in range(lines)], k=n)
                work = [(frames(x), 512 * r.randrange(1, sizes + 1), False) for x in drawn]
                for name, trace in (("frames", work), ("bare", bare(work))):
                    equal(steps(snapshot("random", trace)), ("unknown", 0), "%d lines, %d sizes, %d allocations, %s" % (lines, sizes, n, name))


def test_leak_of_requests():
    """A line that keeps memory with each request is found, per step."""
    kept = [(frames(70), 1 << 20, True)]
    path = snapshot("leak", [a for _ in range(120) for a in step() + kept])
    code, out, err = tool("leaks", path)
    check(code == 0 and "+1.00 MiB/step" in out and "serve.py:70" in out and "confidence high" in out, "%d: %s %s", code, out, err)
    check("a snapshot does not tell" in out, "the holder: %s", out)


def test_leak_without_steps():
    """Without a period, slices of the trace's time take the place of steps."""
    r = random.Random(7)
    work = [(frames(x), r.randrange(1000, 200000 * x), x == 70) for x in r.choices((10, 20, 70), (45, 50, 5), k=3000)]
    work = [(stack, size if not kept else size % 200000 + 512, kept) for stack, size, kept in work]
    path = snapshot("slow_leak", work, each=15000)
    equal(steps(path), ("unknown", 0), "steps")
    code, out, err = tool("leaks", path)
    check(code == 0 and "equal slices (no steps)" in out and "MiB/min at /job/serve.py:70" in out and "confidence high" in out,
          "%d: %s %s", code, out, err)


run(globals())

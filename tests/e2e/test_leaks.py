#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# run: long reads-code cpu=90
"""`leaks`: growing lines come first, false alarms are absent; from recordings and from running processes."""
import json
import os
import re

import harness
from harness import check, equal, nightly, python, run, scratch, spawn, spawn_job, tool, workload

LEAK = os.path.join(harness.WORKLOADS, "leak.py")
SERVER = os.path.join(harness.WORKLOADS, "request_server.py")
with open(LEAK, encoding="utf-8") as _f:
    LINES = {m[1]: number for number, text in enumerate(_f, 1) for m in [re.search(r"# LEAK (\w+)$", text)] if m}


def recorded(modes, *options, cuda=False, steps=60):
    """A recording of a whole run of the workload."""
    path = scratch(modes.replace(",", "-") + ("-cuda" if cuda else "") + ".mtr")
    p = spawn([harness.TOOL, "run", *(["--dry-run-cuda"] if cuda else []), "-q", "-f", "-o", path, "--", python(), LEAK, modes,
               "--steps", str(steps), *(["--device", "cuda"] if cuda else []), *options], root=True)
    equal(p.wait(90), 0, "exit code of run: %s" % p.stderr()[-500:])
    harness.own(path)
    return path


def leaks(path, *options, expect=0):
    code, out, err = tool("leaks", "--format", "json", *options, path)
    equal(code, expect, "exit code of leaks: %s" % err)
    return {d["device"]: d for d in json.loads(out)["devices"]}


def lines(device):
    return [(os.path.basename(r["file"] or ""), r["line"]) for r in device["leaks"]]


def on_one_line(text):
    return " ".join(text.split())


def check_growth(name, d):
    """The summary of a device has the judgement of its lines."""
    g = d["growth"]
    if d["clock"] == "time":
        equal((g["verdict"], g["why"]), ("unknown", "too_short"), "growth on %s in less than a minute" % name)
    elif d["leaks"] or d["pool_grows"] or d["others_grow"]:
        equal(g["verdict"], "grows", "growth on %s" % name)
    else:
        check(g["verdict"] != "grows", "growth on %s: %s", name, g)
    if g.get("part") == "line":
        most = d["leaks"][0]
        equal([g[k] for k in ("file", "line", "function", "bytes_per_step", "confidence", "bytes", "count")],
              [most[k] for k in ("file", "line", "function", "bytes_per_step", "confidence", "bytes", "count")], "line that grows most on %s" % name)
        equal(g["held_by"], most["held_by"][0]["name"] if most["held_by"] else None, "holder on %s" % name)
        equal(g["lines"], len(d["leaks"]), "lines that grow on %s" % name)


def agree(path):
    """Report, its JSON and advice, leaks and metrics say the same of growth. Returns the verdicts."""
    found = leaks(path)
    code, text, err = tool("report", path)
    equal((code, err), (0, ""), "report")
    code, said, err = tool("leaks", path)
    equal((code, err), (0, ""), "leaks")
    code, metrics, err = tool("export", "openmetrics", "-o", "-", path)
    equal((code, err), (0, ""), "export openmetrics")
    code, out, err = tool("report", "--format", "json", "--advice", path)
    equal((code, err), (0, ""), "report --format json")
    doc = json.loads(out)
    equal(sorted(found), sorted(d["device"] for d in doc["devices"]), "devices")
    same_elsewhere(path, {d["device"]: d["growth"] for d in doc["devices"]})
    for d in doc["devices"]:
        name, g = d["device"], d["growth"]
        check_growth(name, found[name])
        equal(g, found[name]["growth"], "growth of report and leaks on %s" % name)
        if g["verdict"] == "grows":
            check("Growth " + g["text"] in on_one_line(text), "%s: %s is not in the report:\n%s", name, g["text"], text)
            check("Growth " + g["text"] in on_one_line(said), "%s: %s is not in leaks:\n%s", name, g["text"], said)
        else:
            check(g.get("text", "") in on_one_line(text), "%s: %s is not in the report:\n%s", name, g, text)
            equal("no growth from " in g.get("text", ""), g["verdict"] == "no_growth" or "not sure" in g.get("text", ""), "%s" % g)
        rate = re.search(r'^memtrace_growth_bytes_per_step\{device="%s"\} (\S+)$' % name, metrics, re.M)
        equal(float(rate[1]) if rate else None, {"grows": g.get("bytes_per_step"), "no_growth": 0}.get(g["verdict"]), "metric of %s" % name)
        if name == doc["device"]:
            advised = [a["kind"] for a in doc["advice"]]
            equal("growth" in advised[:1], g.get("part") in ("line", "reserved", "peaks", "calls"), "first advice of %s, growth %s" % (advised, g))
            equal(advised[1:].count("growth"), 0, "growth further down")
    return {d["device"]: d["growth"]["verdict"] for d in doc["devices"]}


def same_elsewhere(path, growths):
    """The exported page has the same growth, and a report of several recordings that of the devices that it counts."""
    page = scratch("growth.html")
    code, _, err = tool("export", "html", "-f", "-o", page, path)
    equal(code, 0, "export html: " + err)
    with open(page, encoding="utf-8") as f:
        head = json.loads(re.search(r'<script type="application/json" id="head">(.*?)</script>', f.read(), re.S)[1])
    equal({d["name"]: d["growth"] for d in head["devices"]}, growths, "growth in the page")
    code, out, err = tool("report", "--together", "--format", "json", path, path)
    equal((code, err), (0, ""), "report --together")
    for r in json.loads(out)["recordings"]:
        equal(r["growth"], [{"device": name, **growths[name]} for name in r["devices"].split()], "growth of several recordings")


def check_leaks(d, modes, steps=60):
    got = dict((line, r) for (_, line), r in zip(lines(d), d["leaks"]))
    equal(sorted(got), sorted(LINES[m] for m in modes), "lines that grow")
    for m in modes:
        r = got[LINES[m]]
        equal((r["verdict"], r["confidence"]), ("grows", "high"), m)
        want = {"rare": 16384 / 5, "concat": 1024}.get(m, 16384)
        check(abs(r["bytes_per_step"] - want) < 0.1 * want, "%s: %.0f bytes a step, not %.0f", m, r["bytes_per_step"], want)
        equal(r["kind"], "enlarged" if m == "concat" else "piles_up", m)
        check(r["rises"] >= (steps // 5 if m == "rare" else steps - 2), "%s: rose in %d of %d", m, r["rises"], r["values"])
        if m not in ("concat", "closure"):
            equal(r["survives"][-1]["share"], 1, "%s: what stays" % m)


MODELS = """
import copy, sys, time, torch
from torch import nn
torch.set_num_threads(1)
class Lit(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64))
        self.decoder = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64))
    def training_step(self, x):
        return nn.functional.mse_loss(self.decoder(self.encoder(x)), x)
lit, best = Lit(), {}
opt = torch.optim.SGD(lit.parameters(), lr=1e-3)
print("ready", flush=True)
sys.stdin.readline()
for n in range(10000):
    lit.training_step(torch.ones(256, 64)).backward()
    opt.step()
    opt.zero_grad()
    best[n] = copy.deepcopy(lit.encoder)
    time.sleep(0.1)  # time to name modules before the recording ends
"""


def test_kept_models():
    """Copies of a part that a dict keeps: growth names the dict, and modules that a method calls have their whole path."""
    path = scratch("models.mtr")
    p = spawn_job([python(), "-c", MODELS])
    p.wait_line("^ready", 60)
    r = spawn([harness.TOOL, "record", "-p", str(p.pid), "--steps", "60", "-f", "-o", path], root=True)
    harness.until(lambda: os.path.exists(path), "a recording")
    p.send()
    equal(r.wait(90), 0, "record: " + r.stderr()[-500:])
    p.stop()
    harness.own(path)
    found = leaks(path)["cpu"]
    check(found["growth"]["text"].find(", held by best[*] (") > 0, "growth: %s", found["growth"])
    check({"best[*].0.weight", "best[*].2.weight"} <= {h["name"] for line in found["leaks"] for h in line["held_by"]}, "holders: %s", found["leaks"])
    said = on_one_line(tool("leaks", path)[1])
    check(re.search(r"Models \d+ models of class Sequential, 129\.3 KiB each: held by global best\[\*\]", said), "models in:\n%s", said)
    code, out, err = tool("report", "--by", "module", "--at", "peak", "--format", "json", path)
    equal(code, 0, err)
    modules = {(r.get("module_root"), r.get("module")) for r in json.loads(out)["rows"] if not r.get("before_attach") and r.get("module")}
    check({("Lit", "encoder.0"), ("Lit", "decoder.0")} <= modules and ("Sequential", "0") not in modules, "modules: %s", modules)


CALLS = """
import gc, sys, torch
from torch import nn
torch.set_num_threads(1)
gc.disable()
class Probe(nn.Module):
    def __init__(self):
        super().__init__()
        self.big = nn.Linear(64, 64)
        self.me = self
    def forward(self, x):
        return self.big(x)
net, loss_of = nn.Sequential(nn.Linear(64, 64), nn.Tanh()), nn.CrossEntropyLoss()
x, want = torch.ones(8, 64), torch.zeros(8, dtype=torch.long)
print("ready", flush=True)
sys.stdin.readline()
for n in range(40):
    loss_of(net(x), want).backward()
    with torch.no_grad():
        for p in net.parameters():
            p.sub_(p.grad, alpha=0.1)
            p.grad = None
    if not n:
        print("first", flush=True)
        sys.stdin.readline()
for n in range(60):
    Probe()(x)
print("done", flush=True)
sys.stdin.readline()
"""


def test_calls():
    """Without an optimizer of PyTorch, calls of models are the clock: not those of a loss, and those of a model for each request, too."""
    path = scratch("calls.mtr")
    p = spawn_job([python(), "-c", CALLS])
    p.wait_line("^ready", 60)
    r = spawn([harness.TOOL, "record", "-p", str(p.pid), "-f", "-o", path], root=True)
    harness.until(lambda: os.path.exists(path), "a recording")
    p.send()
    p.wait_line("^first", 60)
    harness.settle(r)
    p.send()
    p.wait_line("^done", 60)
    harness.settle(r)
    equal(harness.interrupt(r), 0, "record: " + r.stderr()[-500:])
    p.stop()
    harness.own(path)
    d = leaks(path)["cpu"]
    equal(d["clock"], "calls", "clock")
    # The first call of each class shows that there is such a model.
    equal(d["steps"], 39 + 59, "calls")
    held = {h["name"] for line in d["leaks"] for h in line["held_by"]}
    check({"big.weight"} <= held, "models that pile up: %s", d["leaks"])


@nightly("long")
def test_lines_on_cuda():
    """Five concurrent leaks are found, and no other line; the allocator's pool and other libraries' memory are separate."""
    modes = ("list", "closure", "attribute", "concat", "rare")
    path = recorded(",".join(modes) + ",pool,others", cuda=True)
    d = leaks(path)
    equal(agree(path)["cuda:0"], "grows", "verdict")
    check_leaks(d["cuda:0"], modes)
    pool, others = d["cuda:0"]["reserved"], d["cuda:0"]["others"]
    equal((d["cuda:0"]["pool_grows"], d["cuda:0"]["others_grow"]), (True, True), "the pool and others grow")
    check(50e6 < pool["bytes_per_step"] < 110e6, "reserved: %s", pool)
    equal(others["bytes_per_step"], 1024 * 1024, "taken by others, a step")
    equal(d["cpu"]["leaks"], [], "leaks on the CPU")
    equal((d["cuda:0"]["clock"], d["cuda:0"]["steps"]), ("steps", 60), "steps")
    equal(len(leaks(path, "--by", "stack")["cuda:0"]["leaks"]), 5, "stacks that grow")
    code, out, _ = tool("leaks", "--fail", "--steps", path, prefix=("env", "COLUMNS=80"))
    equal(code, 1, "exit code with --fail")
    check(re.search(r"leak\.py:%d \(Work\.leak\): \+16\.0 KiB a step, in\s+59\s+of\s+59\s+steps" % LINES["list"], out), "sentence in:\n%s", out[:3000])
    check(re.search(r"The pool grows, .*leak\.py:%d \(take\)" % LINES["others"], out, re.S), "pool and others in:\n%s", out[:3000])
    check(all(len(line) <= 80 for line in out.splitlines()), "wider than 80 columns:\n%s", out)
    equal(leaks(path, "--min-growth", "1M", "--device", "cuda:0")["cuda:0"]["leaks"], [], "leaks of more than 1 MiB")


def test_graph():
    """A kept loss keeps its whole graph: forward's lines grow."""
    path = recorded("graph", cuda=True)
    d = leaks(path)["cuda:0"]
    equal(agree(path)["cuda:0"], "grows", "verdict")
    equal(lines(d)[0], ("leak.py", LINES["graph"]), "the first line")
    check(d["leaks"][0]["confidence"] == "high", "confidence: %s", d["leaks"][0])
    check(all(r["kind"] == "piles_up" for r in d["leaks"]), "kinds: %s", d["leaks"])


def healthy(modes, *options, verdicts=(), **kwargs):
    path = recorded(modes, *options, **kwargs)
    for name, d in leaks(path).items():
        equal(d["leaks"], [], "leaks on %s" % name)
        check(not d["pool_grows"] and not d["others_grow"], "%s: pool %s, others %s", name, d["reserved"], d["others"])
    check("grows" not in agree(path).values(), "%s: %s", modes, agree(path))
    seen = {r["verdict"] for d in leaks(path).values() for r in d["no_leaks"]}
    check(set(verdicts) <= seen, "verdicts %s, not %s", seen, verdicts)
    code, out, err = tool("leaks", "--fail", path)
    equal((code, err), (0, ""), "exit code with --fail")
    check("no growth from " in out, "nothing said:\n%s", out)


MANY_LINES = """
import sys, torch
kept, model = [], torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
exec("def keep(n):\\n" + "".join(f"    if n % 150 == {i}:\\n        kept.append(torch.ones(4096))\\n" for i in range(150)))
for n in range(400):
    model(torch.ones(8)).sum().backward()
    optimizer.step()
    keep(n)
    if n == 20:
        print("ready", flush=True)
        sys.stdin.readline()
sys.stdin.readline()
"""


def test_sum_alone():
    """150 lines keep one block each in turn. None of them grows in 100 steps, but it is wrong that nothing grows."""
    job = spawn_job([python(), "-c", MANY_LINES])
    job.wait_line("^ready", 60)
    path = scratch("sum.mtr")
    recorder = harness.record(job.pid, path, "--steps", "100")
    job.send()
    equal(recorder.wait(60), 0, "record")
    harness.own(path)
    d = leaks(path)["cpu"]
    equal((d["leaks"], d["growth"]["verdict"], d["growth"]["why"]), ([], "unknown", "no_line"), "leaks")
    code, out, err = tool("leaks", path)
    equal((code, err), (0, ""), "leaks")
    check("no single line is shown to grow, but their sum grows, by +16.0 KiB a step: 100 steps" in on_one_line(out), "the sum: %s", out)
    check("no growth" not in out, "it says that nothing grows: %s", out)
    code, out, err = tool("leaks", path, path)
    equal((code, err), (0, ""), "leaks of two recordings")
    check("but the sum of all lines may" in on_one_line(out) and "no growth" not in out, "the sum of two: %s", out)
    job.stop()


def test_tricky():
    """Filling caches, lists emptied regularly, graphs of varying size, reference cycles."""
    healthy("cache,sawtooth,lengths,cycles", cuda=True, verdicts=("stopped", "released"))


@nightly("long")
def test_generation():
    """A key-value cache grows and is freed; without an optimizer, model calls are the steps."""
    healthy("kv", verdicts=("released",))


def test_stepless():
    """Without steps: slices of time, without imports and the end."""
    path = recorded("stepless", "--pause", "0.02")
    d = leaks(path)["cpu"]
    equal(agree(path), {"cpu": "unknown"}, "growth in less than a minute")
    equal(d["clock"], "time", "clock")
    equal(lines(d), [("leak.py", LINES["stepless"])], "lines that grow")
    check(d["leaks"][0]["confidence"] in ("medium", "high"), "confidence: %s", d["leaks"][0])


def live(t, *options):
    return tool("leaks", "-q", "-p", str(t.popen.pid), *options, root=True, seconds=90)


def test_live():
    """Attached in the middle for a number of steps; the census says who holds the memory."""
    t = workload("leak.py", "list,closure,attribute", "--steps", "100000", "--pause", "0.01")
    t.wait_line("^step 20$", 120)
    code, out, err = live(t, "--steps", "60", "--format", "json")
    equal((code, err), (0, ""), "leaks -p")
    d = json.loads(out)["devices"][0]
    check_leaks(d, ("list", "closure", "attribute"))
    equal(d["steps"], 60, "steps")
    held = {r["line"]: [h["name"] for h in r["held_by"]] for r in d["leaks"]}
    for mode, name in (("list", "global history[*]"), ("attribute", "local work.trainer.outputs[*]['out'] in main (leak.py:"),
                       ("closure", "local work.closure's cell cache[*] in main (leak.py:")):
        check(any(h.startswith(name) for h in held[LINES[mode]]), "%s: held by %s", mode, held[LINES[mode]])
    equal(d["growth"]["held_by"], d["leaks"][0]["held_by"][0]["name"], "holder")
    view = spawn([harness.TOOL, "-p", str(t.popen.pid), "-q", "-i", "1s"], root=True)
    view.wait_line(r"^  growth \+16\.0 KiB/step, .* at leak\.py:\d+, held by ", 60)  # after 24 steps
    equal((harness.interrupt(view), view.stderr()), (0, ""), "-p")
    out, line = view.stdout(), d["leaks"][0]["line"]
    summary = re.search(r"^Growth  \+16\.0 KiB/step \(\S+ MiB/min\) at .*leak\.py:(\d+) \(\S+\), held by (.*), confidence high; 3 lines",
                        on_one_line(out).replace("Growth ", "\nGrowth  "), re.M)
    check(summary, "growth in the summary:\n%s", out)
    named = {r["line"]: r["held_by"][0]["name"] for r in d["leaks"]}
    equal(summary[2], named[int(summary[1])].split(" ", 1)[1], "holder in the summary of -p, leaks has %d" % line)
    check(t.alive(), "the target ended")
    equal(harness.patched_bytes(t.popen.pid), 0, "bytes of the target's code that still differ")
    path = scratch("record.mtr")
    recorder = harness.record(t.popen.pid, path)
    t.wait_line("^step %d$" % (int(t.stdout().split()[-1]) + 80), 60)
    harness.finish(recorder)
    harness.own(path)
    held = {r["line"]: [h["name"] for h in r["held_by"]] for r in leaks(path)["cpu"]["leaks"]}
    check("global history[*]" in held.get(LINES["list"], ()), "in a recording: %s", held)


@nightly("long")
def test_brief_recordings():
    """A busy machine may read the names of few blocks before the end."""
    t = workload("leak.py", "list,closure,attribute", "--steps", "100000", "--pause", "0.01")
    t.wait_line("^step 20$", 120)
    for i in range(3):
        check_brief(t, scratch("steps-%d.mtr" % i))


def check_brief(t, path):
    """A recording of a second: nearly all blocks that leaked in it have the name of their holder, not only those of its first steps."""
    recorder = harness.record(t.popen.pid, path, "--steps", "60", "-q", wait=False)
    equal(recorder.wait(60), 0, "exit code of record --steps: %s" % recorder.stderr()[-500:])
    harness.own(path)
    rows = {r["line"]: r for r in leaks(path)["cpu"]["leaks"]}
    for mode in "list", "closure", "attribute":
        row = rows.get(LINES[mode])
        check(row and row["held_by"] and row["held_by"][0]["count"] >= row["count"] - 2, "%s in a recording of 60 steps: %s", mode, row)


@nightly("long")
def test_early_steps():
    """Steps that end while the probes are put in place are not of the recording: each step that it has leaves its block."""
    t = workload("leak.py", "list", "--steps", "1000000", "--pause", "0.001")
    t.wait_line("^step 20$", 120)
    for i in range(5):
        path = scratch("early-%d.mtr" % i)
        equal(harness.record(t.popen.pid, path, "--steps", "60", "-q", wait=False).wait(60), 0, "exit code of record --steps")
        harness.own(path)
        row = leaks(path)["cpu"]["leaks"][0]
        check(60 <= row["count"] <= 62, "%d blocks of 60 steps, and of those under way at both ends", row["count"])


def server_line(name):
    with open(SERVER, encoding="utf-8") as f:
        return next(n for n, text in enumerate(f, 1) if text.endswith("# LINE %s\n" % name))


def check_requests(d, own, requests, device):
    """The rate of each request is what the server says that one left."""
    equal((d["clock"], d["requests"], d["request"]["line"], d["request"]["device"]), ("requests", requests, server_line("prompt"), device), "clock")
    equal(sorted((r["line"], r["bytes_per_request"], r["confidence"]) for r in d["leaks"]),
          [(server_line("history"), 65536, "high"), (server_line("traces"), 2048, "high")], "bytes per request")
    equal([sum(r["bytes_per_request"] for r in d["leaks"])], own["left"], "bytes that a request leaves, as the server says")


def test_requests_on_cuda():
    """A server calls its model several times in each request: the rate by request is what the server itself measured."""
    path = scratch("requests.mtr")
    p = spawn([harness.TOOL, "run", "--dry-run-cuda", "-q", "-f", "-o", path, "--", python(), SERVER, "cuda", "60", "0"], root=True)
    equal(p.wait(90), 0, "exit code of run: %s" % p.stderr()[-500:])
    harness.own(path)
    own = json.loads(p.stdout().split("\n")[1])
    d, per = leaks(path)["cuda:0"], "request_server.py:%d" % server_line("prompt")
    equal((d["clock"], d["steps"]), ("calls", sum(3 + i % 5 for i in range(60)) - 1), "the clock without --per")
    blocks = {r["line"]: (r["allocations"], r["stays_per_allocation"]) for r in d["leaks"]}
    equal(blocks, {server_line("history"): (60, own["left"][0] - 2048), server_line("traces"): (120, 1024)}, "blocks of each line")
    code, out, _ = tool("leaks", path)
    equal(code, 0, "leaks")
    for what in ("a call (+64.0 KiB for each block allocated there), in", "(+1.0 KiB for each block allocated there), in",
                 "Rate by request: --per FILE:LINE"):
        check(what in on_one_line(out), "%r is not in %s", what, out)
    check_requests(leaks(path, "--per", per)["cuda:0"], own, 60, "cuda:0")
    check_requests(leaks(path, "--per", SERVER + per[per.index(":"):])["cuda:0"], own, 60, "cuda:0")
    code, out, err = tool("leaks", "--per", per, path)
    equal((code, err), (0, ""), "leaks --per")
    for what in ("60 requests, each a block of %s on cuda:0" % per, "(handle): +64.0 KiB a request, in 5", "A request", "Growth +64.0 KiB/request at",
                 "is freed less than once in 60 requests looks like"):
        check(what in on_one_line(out), "%r is not in %s", what, out)
    check("--per" not in out and " call" not in out, "another clock: %s", out)
    code, out, err = tool("leaks", "--per", per, path, path)
    equal((code, err), (0, ""), "leaks --per of two recordings")
    check("+64.0 KiB a request in each" in on_one_line(out), "two recordings: %s", out)
    code, out, err = tool("leaks", "--per", "request_server.py:%d" % (server_line("prompt") + 1), path)
    equal((code, out), (2, ""), "a line that allocates nothing")
    check("the nearest lines that do are %d and " % server_line("prompt") in err, "what it says: %s", err)
    for wrong in ("serve.py", "serve.py:0", "serve.py:x", ":3", "serve.py:3x"):
        code, _, err = tool("leaks", "--per", wrong, path)
        check(code == 64 and "is not FILE:LINE" in err, "--per %s: %d, %s", wrong, code, err)


def test_requests_live():
    """The same in a running server, from the middle on."""
    t = workload("request_server.py", "cpu", "0", "0.01")
    t.wait_line("^served 20$", 60)
    p = spawn([harness.TOOL, "leaks", "-p", str(t.pid), "--per", "request_server.py:%d" % server_line("prompt"), "--format", "json"], root=True)
    p.wait_line(harness.ATTACHED, 30, stream="err")
    t.wait_line("^served %d$" % (int(t.stdout().split()[-1]) + 60), 60)
    harness.finish(p)
    t.send()
    own = json.loads(t.wait_line("{", 60))
    d = json.loads(p.stdout())["devices"][0]
    check(32 <= d["requests"] < own["requests"], "%d requests of %d", d["requests"], own["requests"])
    check_requests(d, own, d["requests"], "cpu")


def test_steps_without_an_optimizer():
    """--steps of a server counts calls of its model, and ends."""
    t = workload("request_server.py", "cpu", "0", "0.01")
    t.wait_line("^served 20$", 60)
    code, out, err = tool("leaks", "-p", str(t.popen.pid), "--steps", "40", root=True, seconds=120)
    equal(code, 0, "leaks --steps of a server: " + err)
    check(": no optimizer: --steps counts calls of the model\n" in err, "what it says:\n%s", err)
    got = re.search(r"^cpu \S+ ([\d,]+) calls of the model", out, re.M)
    check(got and int(got[1].replace(",", "")) >= 40, "its calls:\n%s", out)
    t.send()


def test_live_healthy():
    t = workload("leak.py", "none", "--steps", "100000", "--pause", "0.01")
    t.wait_line("^step 20$", 120)
    code, out, err = live(t, "--steps", "60", "--fail")
    equal((code, err), (0, ""), "leaks -p of a healthy job")
    check("no growth from " in out, "nothing said:\n%s", out)
    code, out, err = tool("-p", str(t.popen.pid), "-q", "--steps", "110", root=True, seconds=60)
    equal((code, err), (0, ""), "-p of a healthy job")
    check("Growth" not in out and "growth +" not in out, "growth of a healthy job:\n%s", out)
    check("no growth from " in out, "nothing said:\n%s", out)


def test_usage():
    for args, words in (((), "no recording given"), (("-p", "1", "x.mtr"), "cannot be combined"), (("--steps=3", "x.mtr"), "needs a running process"),
                        (("--by", "thread", "x.mtr"), "use line, stack"), (("--min-confidence", "sure", "x.mtr"), "use low, medium or high"),
                        (("--top", "many", "x.mtr"), "whole number")):
        code, out, err = tool("leaks", *args)
        equal((code, out), (64, ""), "leaks %s" % " ".join(args))
        check(words in err, "%s: %s", args, err)
    for option, words in (("--by", "line stack module category"), ("--min-confidence", "low medium high"), ("--format", "text json")):
        for word in words.split():
            code, _, err = tool("leaks", option, word, "/nonexistent.mtr")
            equal(code, 2, "no such file, %s %s: %s" % (option, word, err))


if __name__ == "__main__":
    run(globals())

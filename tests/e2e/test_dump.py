#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# run: long cpu=160
"""`dump` and the census compared with PyTorch's own data in the same process: names, categories, addresses, sizes."""
import json
import os
import re
import time
from concurrent.futures import ThreadPoolExecutor

import mtr_reader
from harness import OUT, WORKLOADS, check, equal, nightly, own, python, run, scratch, spawn, spawn_job, tool

PRELOAD = " ".join(os.path.join(OUT, "dryrun", n) for n in ("libcuda.so.1", "libnvidia-ml.so.1"))
VERSIONS = ("newest", "old", "cu12")


class Target:
    def __init__(self, kind, role="main", device="cpu"):
        env = dict(os.environ, PYTHONUNBUFFERED="1", OMP_NUM_THREADS="1")
        if device != "cpu":
            env["LD_PRELOAD"] = PRELOAD
        self.what = "%s on %s (%s)" % (kind, device, role)
        path = scratch("truth-%s-%s-%s.json" % (kind, role, device))
        self.p = spawn_job([python(role), os.path.join(WORKLOADS, "dump.py"), kind, device, path], env=env)
        self.p.wait_line("^ready", 120)
        with open(path, encoding="utf-8") as f:
            self.truth = json.load(f)

    def dump(self, *options):
        code, out, err = tool("dump", "-p", str(self.p.pid), "--format", "json", *options, root=True)
        check(code == 0, "dump of %s ended with %d: %s", self.what, code, err[-800:])
        return json.loads(out)

    def ask(self, what):
        self.p.out.clear()
        self.p.send(what + "\n")
        return self.p.wait_line("^did %s" % what, 60).split()[2:]


def sums(doc, what):
    """Rows add up to the device's total, the allocator's own if it has one."""
    for d in doc["devices"]:
        rows = [r for r in doc["rows"] if r["device"] == d["device"]]
        equal(sum(r["bytes"] for r in rows), d["allocated"], "%s: rows of %s" % (what, d["device"]))
        equal(sum(c["bytes"] for c in d["categories"].values()) + d["unheld"], d["allocated"], "%s: categories" % what)


def compare(t, doc):
    """All of PyTorch's tensors are there, and no others."""
    got = {"%s %d" % (r["device"], r["address"]): r for r in doc["rows"] if r["held"]}
    wrong, missing, named, kept, bytes_all, bytes_right = [], [], 0, 0, 0, 0
    parameters = [w["name"] + mark for w in t.truth.values() if w["category"] == "parameter" for mark in (".", "'s hooks")]
    for key, want in t.truth.items():
        r = got.get(key)
        bytes_all += want["size"]
        if not r:
            missing.append((key, want))
            continue
        name = r["name"].split(" and ")[0].split(", graph of ")[0] if "any" in want else r["name"]
        # Containers deep in libraries are not in the truth, nor what they keep at parameters.
        holder = r["name"] in want["held"] if "held" in want else r["name"].startswith(("global ", "local ", *parameters))
        right = name in want.get("any", (want["name"],)) or (not want["name"] and holder)
        kept += right and "any" in want
        if not right or (r["category"], r["size"]) != (want["category"], want["size"]):
            wrong.append((key, want, {k: r[k] for k in ("name", "category", "size")}))
            continue
        if want["name"]:
            equal((r["dtype"], r["shape"]), (want["dtype"], want["shape"]), "%s: type and shape of %s" % (t.what, want["name"]))
        bytes_right += want["size"]
        named += bool(want["name"])
    check(not wrong, "%s: %d of %d are wrong: %s", t.what, len(wrong), len(t.truth), wrong[:4])
    check(not missing, "%s: %d of %d are missing: %s", t.what, len(missing), len(t.truth), missing[:4])
    strange = [r for k, r in got.items() if k not in t.truth]
    check(not strange, "%s: %d that PyTorch does not know: %s", t.what, len(strange), strange[:4])
    check(doc["reading"]["complete"], "%s: not complete: %s", t.what, doc["reading"])
    check(named >= 4 and bytes_right == bytes_all, "%s: %d names, %d of %d bytes", t.what, named, bytes_right, bytes_all)
    for d in doc["devices"]:
        check(d["consistent"] and not d["moved"], "%s: %s", t.what, d)
    sums(doc, t.what)
    return kept


_gpt = {}


def gpt(device="cpu"):
    """One GPT per device for all tests, because a start takes longer than a test. It rests before "train" and after "stop"."""
    if device not in _gpt:
        _gpt[device] = Target("gpt", "main", device)
        _gpt[device].p.kept = True
    return _gpt[device]


def one(kind, role, device="cpu"):
    t = Target(kind, role, device)
    doc = t.dump()
    kept = compare(t, doc)
    if kind == "saved":
        check(kept > 40, "%s: only %d tensors are told that the graph keeps", t.what, kept)
    if device != "cpu":
        d = next(d for d in doc["devices"] if d["device"] == "cuda:0")
        equal((d["source"], d["reserved"] >= d["allocated"] > 0), ("allocator", True), "%s: totals" % t.what)
    t.p.stop()


def on_all(kinds, roles, device="cpu"):
    with ThreadPoolExecutor(2) as pool:
        jobs = [pool.submit(one, kind, role, device) for role in roles for kind in kinds]
    for j in jobs:
        j.result()


ELSEWHERE = """
import sys, torch
class View:
    def __init__(self, of):
        self.__cuda_array_interface__ = {"shape": tuple(of.shape), "typestr": "<f4", "data": (of.data_ptr(), False), "version": 2}
held = torch.ones(1 << 20, device="cuda")
host = [torch.ones(1 << 10).pin_memory() for _ in range(3)]
views = [torch.as_tensor(View(h), device="cuda") for h in host]
print("ready", views[0].device, views[0].data_ptr() == host[0].data_ptr(), flush=True)
sys.stdin.readline()
"""


def test_elsewhere():
    """CUDA tensors over pinned host memory, as vLLM has them, have not come or gone."""
    p = spawn_job([python(), "-c", ELSEWHERE], env=dict(os.environ, LD_PRELOAD=PRELOAD))
    equal(p.wait_line("^ready", 120).split()[1:], ["cuda:0", "True"], "the views")
    code, out, err = tool("dump", "-p", str(p.pid), "--format", "json", root=True)
    equal(code, 0, err)
    d = next(d for d in json.loads(out)["devices"] if d["device"] == "cuda:0")
    equal((d["allocated"], d["moved"], d["elsewhere"]), (4 << 20, 0, 3), "allocated, moved, elsewhere")
    text = tool("dump", "-p", str(p.pid), root=True)[1]
    check("3 tensors in memory that PyTorch's allocator did not take, such as pinned host memory, are left out" in text, "text: %s", text)
    p.stop()


FEW = """
import sys, time, torch
from torch._subclasses import FakeTensorMode
what, device = sys.argv[1:3]
keep = [torch.ones(100 * (i + 1), device=device) for i in range(5)] if what != "meta" else [torch.ones(3, device="meta") for i in range(40)]
if what == "fake":
    with FakeTensorMode():
        fakes = [torch.empty(64, 512) for _ in range(40)]
    offloaded = torch.nn.Sequential(*[torch.nn.Linear(8, 8, device="meta") for _ in range(10)])
net = torch.nn.Linear(256, 256, device=device if what != "meta" else "meta")
opt = torch.optim.SGD(net.parameters(), lr=1e-3)
print("ready", flush=True)
while what == "brief":  # its tensors come and go all the time
    net(torch.randn(64, 256, device=device)).square().mean().backward()
    time.sleep(0.001)  # its gradients are there
    opt.step()
    opt.zero_grad()
sys.stdin.readline()
"""


def few(what, device):
    return spawn_job([python(), "-c", FEW, what, device], env=dict(os.environ, LD_PRELOAD=PRELOAD, OMP_NUM_THREADS="1"))


def test_few_tensors():
    """A program with few tensors, brief ones, and others without memory: all that stay are read each time."""
    for what, device in (("brief", "cpu"), ("brief", "cuda"), ("fake", "cuda")):
        p = few(what, device)
        p.wait_line("^ready", 120)
        for _ in range(5):
            code, out, err = tool("dump", "-p", str(p.pid), "--by", "tensor", "--format", "json", root=True)
            equal(code, 0, "%s on %s: %s" % (what, device, err))
            doc = json.loads(out)
            names = {r["name"] for r in doc["rows"] if r["held"]}
            check({"weight", "bias"} <= names, "%s on %s: %s", what, device, sorted(names))
            check(what == "brief" or not doc["reading"]["unreadable"], "%s: %s", what, doc["reading"])
        p.stop()


def test_without_names():
    """A recording says why no tensor has a name."""
    p = few("meta", "cpu")
    p.wait_line("^ready", 120)
    path, why = scratch("without-names.mtr"), "no tensor has memory so far, so tensors have no names"
    code, _, err = tool("record", "-p", str(p.pid), "-o", path, "-f", "-d", "1s", root=True, seconds=120)
    equal(code, 0, err)
    own(path)
    equal(json.loads(tool("report", path, "--format", "json")[1])["capture"].get("census_problem"), why, "JSON")
    check(why in " ".join(tool("report", path)[1].split()), "text: %s", tool("report", path)[1])
    p.stop()


DTYPES = """
import json, sys, warnings
import torch
warnings.simplefilter("ignore")
held = torch.nn.Module()
for d in sorted({v for v in vars(torch).values() if isinstance(v, torch.dtype)}, key=str):
    try:
        held.register_buffer("of_" + str(d).replace("torch.", ""), torch.empty(3, 5, dtype=d))
    except RuntimeError:  # such as the types that only quantizers make
        pass
print(json.dumps([n for n, _ in held.named_buffers()]), flush=True)
sys.stdin.readline()
"""


def dtypes(role):
    p = spawn_job([python(role), "-W", "ignore", "-c", DTYPES])
    names = json.loads(p.wait_line("^\\[", 60))
    code, out, err = tool("dump", "-p", str(p.pid), "--by", "tensor", "--format", "json", root=True)
    equal(code, 0, "dump: " + err)
    found = {r["name"]: r["dtype"] for r in json.loads(out)["rows"]}
    check(len(names) > 15, "the job made few: %s", names)
    equal({n: found.get(n) for n in names}, {n: n[len("of_"):] for n in names}, "types of tensors by their names, torch of %s" % role)
    p.stop()


def test_dtypes():
    """Each type of elements has PyTorch's name, also those of quantized weights."""
    for role in ("main", "debian"):
        dtypes(role)


@nightly("versions")
def test_dtypes_of_versions():
    for role in ("newest", "old"):
        dtypes(role)


def test_models():
    on_all(("llama", "shared", "parametrized", "loose", "saved"), ("main",))


def test_debian():
    on_all(("gpt", "saved"), ("debian",))


@nightly("versions")
def test_versions():
    on_all(("gpt", "saved"), VERSIONS)


def test_wrapped():
    on_all(("compiled", "traced", "frozen", "ddp", "fsdp2"), ("main",))


def test_cuda():
    on_all(("saved",), ("main",), "cuda")


@nightly("versions")
def test_cuda_of_versions():
    on_all(("gpt",), ("old", "cu12"), "cuda")


SEVERAL = """
import copy, gc, sys, torch
from torch import nn
gc.disable()
class Net(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(64, width, bias=False), nn.Linear(width, 64, bias=False))
class Probe(nn.Module):
    def __init__(self):
        super().__init__()
        self.big = nn.Linear(64, 64, bias=False)
        self.me = self
teacher, student = Net(512), Net(128)
opt = torch.optim.Adam(student.parameters())
student.body(torch.ones(1, 64)).sum().backward()
opt.step()
plain = nn.Sequential(nn.Linear(64, 64, bias=False))
best = {n: copy.deepcopy(plain) for n in range(20)}
alone = nn.ModuleDict({"only": nn.Conv1d(8, 8, 3)})
for _ in range(7):
    Probe()
print("ready", flush=True)
sys.stdin.readline()
"""


def test_several_models():
    """Models of one structure are told apart by the variable that leads to them, and counted."""
    p = spawn_job([python(), "-c", SEVERAL])
    p.wait_line("^ready", 60)
    code, out, err = tool("dump", "-p", str(p.pid), "--by", "tensor", "--format", "json", root=True)
    equal(code, 0, "dump: " + err)
    doc = json.loads(out)
    names = [r["name"] for r in doc["rows"] if r["size"] > 4]
    for of in ("teacher.body.0", "teacher.body.1", "student.body.0", "student.body.1", "plain.0", "only"):
        equal(names.count(of + ".weight"), 1, "%s.weight in %s" % (of, names))
    equal((names.count("best[*].0.weight"), names.count("big.weight")), (20, 7), "copies, and models in cycles: %s" % names)
    check({"grad of student.body.0.weight", "Adam exp_avg of student.body.1.weight"} < set(names), "gradients and state: %s", names)
    equal({r["module"] for r in doc["rows"] if r["name"].startswith("best")}, {"best[*].0"}, "module of the copies")
    size = 64 * 64 * 4
    found = {(m["class"], m["held_by"]): (m["count"], m["bytes"]) for m in doc["models"]}
    equal(found, {("Net", "global teacher"): (1, 16 * size), ("Net", "global student"): (1, 4 * size), ("Sequential", "global plain"): (1, size),
                  ("Sequential", "global best[*]"): (20, 20 * size), ("ModuleDict", "global alone"): (1, 800), ("Probe", None): (7, 7 * size)}, "models")
    text = tool("dump", "-p", str(p.pid), root=True)[1]
    for line in ("20 models of class Sequential, 16.0 KiB each: held by global best[*]", "7 models of class Probe, 16.0 KiB each: no variable leads to them; reference cycles stay, because the garbage collector is off"):
        check("\n" + line in re.sub("\n  ", " ", text), "no %r in the text:\n%s", line, text)
    p.stop()


FUNCTIONS = """
import sys, torch
class Same(torch.autograd.Function):
    forward = staticmethod(lambda ctx, x: x.view_as(x))
    backward = staticmethod(lambda ctx, grad: grad)
x = torch.ones(1 << 18, requires_grad=True)
def run():
    y = x.exp()  # its result stays, for backward
    for _ in range(70000):
        y = Same.apply(y)
    return y.sum()
loss = run()
print("ready", flush=True)
sys.stdin.readline()
"""


@nightly("long")
def test_many_nodes_of_a_function():
    """What autograd's graph saved behind tens of thousands of nodes of a custom Function is found, too."""
    p = spawn_job([python(), "-c", FUNCTIONS])
    p.wait_line("^ready", 60)
    code, out, err = tool("dump", "-p", str(p.pid), "--by", "tensor", "--format", "json", root=True)
    equal(code, 0, "dump: " + err)
    equal(sorted(r["bytes"] for r in json.loads(out)["rows"]), [4, 1 << 20, 1 << 20], "bytes of the tensors")
    p.stop()


def test_groups():
    """Rows by module and category are the sums of those by tensor."""
    t = gpt()
    whole = t.dump()
    compare(t, whole)
    for by, key in (("module", lambda r: (r["module_root"], r["module"], r["module_class"])), ("category", lambda r: r["category"])):
        doc = t.dump("--by", by)
        want = {}
        for r in whole["rows"]:
            n, b = want.get(key(r), (0, 0))
            want[key(r)] = (n + r["count"], b + r["bytes"])
        equal({key(r): (r["count"], r["bytes"]) for r in doc["rows"]}, want, "rows by %s" % by)
        sums(doc, by)
    doc = t.dump("--top", "3")
    equal(len(doc["rows"]), 3, "rows with --top 3")
    equal(doc["rows"], whole["rows"][:3], "the first three")
    equal(doc["rows_left_out"]["bytes"], sum(r["bytes"] for r in whole["rows"][3:]), "left out")
    doc = t.dump("--by", "holder")
    sums(doc, "holder")
    equal(sum(r["count"] for r in doc["rows"]), len(whole["rows"]), "tensors of all holders")
    held = {r["holder"]: r for r in doc["rows"]}
    r = held["blocks.*.ln1.bias, .weight"]
    equal((r["module"], r["module_class"], r["modules"], r["category"]), ("blocks.*.ln1", "LayerNorm", r["count"] // 2, "parameter"), "a holder")
    equal((len(r["shape"]), r["dtype"], r["size"] > 0), (1, "float32", True), "what its tensors have in common")
    code, out, err = tool("dump", "-p", str(t.p.pid), root=True)
    check("  blocks.*.ln1.bias, .weight  [" in out and "Held by" in out and err == "" and code == 0, "by holder: %s %s", out, err)
    code, out, err = tool("dump", "-p", str(t.p.pid), "--by", "tensor", "--top", "1000", root=True)
    equal((code, err), (0, ""), "as text")
    for name in ("wte.weight", "blocks.2.attn.mask", "grad of blocks.0.ln1.bias", "AdamW exp_avg of wte.weight"):
        check(" %s  [" % name in out, "%r is not in %s", name, out)
    check("head.weight" not in out, "the tied weight has two names: %s", out)


def test_many_objects():
    t = Target("many")
    doc = t.dump()
    compare(t, doc)
    check(doc["reading"]["objects"] > 1000000, "only %d objects", doc["reading"]["objects"])
    print("  %d objects in %.0f ms" % (doc["reading"]["objects"], doc["reading"]["seconds"] * 1e3))


HOLDERS = """
import sys, torch
class Item:
    def __init__(self):
        self.out, self.step = torch.empty(32), 0
more = [[] for _ in range(int(sys.argv[1]))]
outputs = [{"out": torch.empty(64)} for _ in range(120000)]
items = [Item() for _ in range(20000)]
print("ready", flush=True)
sys.stdin.readline()
"""


KINDS = """
import functools, sys, types, torch
def some(n):
    return [torch.empty(n) for _ in range(4)]
other = types.ModuleType("other")
other.__file__ = "other.py"
sys.modules["other"] = other
other.results = some(1000)
class Session:
    opened = some(2000)
    @functools.lru_cache(maxsize=64)
    def load(self, i):
        return torch.empty(3000)
session = Session()
for i in range(4):
    session.load(i)
@functools.cache
def read(i):
    return torch.empty(4000)
for i in range(4):
    read(i)
group, frozen = set(some(5000)), frozenset(some(6000))
bound = functools.partial(print, *some(7000))
def step(x=some(8000)):
    return x
step.kept = some(9000)
space = types.SimpleNamespace(out=some(10000))
proxy = types.MappingProxyType(dict(enumerate(some(11000))))
import numpy
array = numpy.empty(4, dtype=object)
for i, t in enumerate(some(12000)):
    array[i] = t
del t
array.shape = (2, 2)
net = torch.nn.Sequential(torch.nn.ReLU())
net[0].register_forward_hook(functools.partial(lambda kept, m, i, o: None, some(13000)))
def generate(kept):
    for i in range(9):
        yield i
generator = generate(some(14000))
next(generator)
def fail(kept):
    raise ValueError(len(kept))
try:
    fail(some(15000))
except ValueError as e:
    error = e
alone = torch.empty(3)
alone.extra = some(16000)
weights = torch.nn.Linear(2, 2)
weights.weight.kept = some(17000)
weights.bias.register_hook(functools.partial(lambda kept, g: None, some(18000)))
print("ready", flush=True)
sys.stdin.readline()
"""
HOLDS = ("other.results[*]", "Session.opened[*]", "Session.load's cache[*]", "read's cache[*]", "group[*]", "frozen[*]", "bound.args[*]",
         "step's defaults[*][*]", "step.kept[*]", "space.out[*]", "proxy[*]", "array[*]", "net._modules['0']._forward_hooks[*].args[*][*]",
         None, "error's traceback: kept[*] in fail (<string>:42)", "alone.extra[*]", "weight.kept[*]", "bias's hooks[*].args[*][*]")


def test_kinds_of_holders():
    """Each kind of container and root is named."""
    p = spawn_job([python(), "-c", KINDS])
    p.wait_line("^ready", 120)
    code, out, err = tool("dump", "-p", str(p.pid), "--format", "json", root=True)
    equal((code, err), (0, ""), "dump")
    rows = json.loads(out)["rows"]
    for i, name in enumerate(HOLDS):
        got = [r["name"] for r in rows if r["size"] == 4000 * (i + 1)]
        want = name if name and name.startswith(("weight", "bias")) else "global " + name if name else "local kept[*] in generate (<string>:37)"
        equal(got, [want] * 4, "tensors of %d bytes" % (4000 * (i + 1)))
    p.stop()


GRAPHS = """
import sys, torch
from torch import nn
net = nn.Linear(32, 32)
class Worker:
    state = None
worker = Worker()
worker.state = torch.randn(64, 32)
for i in range(20):
    worker.state = net(worker.state) * 2
history = [net(torch.randn(48, 32)).sum() for i in range(5)]
twice = nn.Linear(16, 16)
for i in range(3):
    twice(torch.randn(80, 16)).square().mean().backward(create_graph=True)
print("ready", flush=True)
sys.stdin.readline()
"""


def test_graphs():
    """What autograd saved is named by its operation and the tensor that keeps the longest graph, also if no node saved its own result."""
    p = spawn_job([python(), "-c", GRAPHS])
    p.wait_line("^ready", 120)
    code, out, err = tool("dump", "-p", str(p.pid), "--format", "json", root=True)
    equal((code, err), (0, ""), "dump")
    rows = json.loads(out)["rows"]
    for rows_of, most, keeper in ((64, 18, "global worker.state"), (48, 5, "global history[*]"), (80, 3, "grad of twice.weight")):
        names = [r["name"].split(" and ")[0] for r in rows if r["shape"] and r["shape"][0] == rows_of]
        kept = [n.partition(", graph of ")[2] for n in names if n.startswith("saved for ") and ", graph of " in n]
        check(len(kept) >= most, "tensors that the graph of %s saved: %s", keeper, names)
        equal({n.replace("bias", "weight") for n in kept}, {keeper}, "what keeps the graph, in %s" % names)
    p.stop()


def many_holders(role, more=0):
    """Each of 140,000 tensors is in a dict or an object of its own: the search for holders reaches all of them in its time. If there are
    more containers than it examines, `dump` says so, and a list of very many does not keep the search from others."""
    p = spawn_job([python(role), "-c", HOLDERS, str(more)], env=dict(os.environ, OMP_NUM_THREADS="1"))
    p.wait_line("^ready", 120)
    expected, found = (120000, 20000, not more), None
    for _ in range(5):  # the search has a second or so, which a busy machine may take away
        code, out, err = tool("dump", "-p", str(p.pid), "--by", "holder", "--format", "json", root=True)
        equal((code, err), (0, ""), "dump of many holders (%s)" % role)
        doc = json.loads(out)
        held = {r["holder"]: r["count"] for r in doc["rows"]}
        found = (held.get("global outputs[*]['out']"), held.get("global items[*].out"), doc["reading"]["holders_complete"])
        if found == expected:
            break
    equal(found, expected, "tensors by holder, and whether all containers were examined (%s)" % role)
    code, out, err = tool("dump", "-p", str(p.pid), root=True)
    equal("too many containers" in out, bool(more), "what the text says (%s): %s" % (role, out))
    p.stop()


def test_many_holders():
    many_holders("main")
    many_holders("main", 400000)


@nightly("versions")
def test_many_holders_of_versions():
    for role in VERSIONS:
        many_holders(role)


def passing(name, category):
    """True if a short-lived tensor may have this name."""
    what = {"gradient": ("grad of ",), "activation": ("saved for ",), "unknown": ("saved for ", "local ", "global ")}.get(category, ())
    return (not name and category == "unknown") or name.startswith(what)


def variables(role):
    t = Target("frames", role)
    compare(t, t.dump())
    t.ask("train")
    seen, until = 0, time.monotonic() + 20
    while seen < 3 and time.monotonic() < until:
        for r in t.dump()["rows"]:
            if " in churn (dump.py:" not in r["name"]:
                continue
            want = {"a": 1000, "b": 2000, "c": 3000}[r["name"].split()[1]]
            equal((r["shape"], r["size"]), ([want], 4 * want), "%s: what %s is" % (t.what, r["name"]))
            seen += 1
    check(seen, "%s: no variable of a function at work was seen", t.what)
    t.ask("stop")
    t.p.stop()


def test_variables():
    """Variables of running functions and of the main module; those of an active function have the right name or none."""
    variables("main")


@nightly("versions")
def test_variables_old():
    variables("old")


FIRST, TORN = 1 << 6, 1 << 7
CATEGORIES = ("unknown", "parameter", "buffer", "gradient", "optimizer_state", "activation")


def record(t, *options):
    """A recording's events, its strings and modules, and its facts."""
    path = scratch("%s.mtr" % t.what.split()[0])
    code, _, err = tool("record", "-p", str(t.p.pid), "-o", path, "-f", *options, root=True, seconds=120)
    check(code == 0, "record of %s ended with %d: %s", t.what, code, err[-800:])
    own(path)
    with open(path, "rb") as f:
        recording = mtr_reader.Recording(f)
        return list(recording.events()), recording


def check_told(t, told, recording, want):
    """Each permanent tensor is reported with its name, category and size; none has another's."""
    names = recording.strings
    seen = set()
    for e in told:
        key = "%s %d" % ("cpu" if e["type"] == 0 else "cuda:%d" % e["index"], e["addr"])
        got = (names[e["name"]], CATEGORIES[e["category"]], e["size"])
        if key in want:
            w = want[key]
            equal(got, (w["name"], w["category"], w["size"]), "%s: told of %s" % (t.what, key))
            seen.add(key)
    check(len(seen) == len(want), "%s: %d of %d told", t.what, len(seen), len(want))


def recorded(device):
    """Names of blocks in a recording: at attach, after the first steps, at the end."""
    t = gpt(device)
    compare(t, t.dump())
    stays = {k: v for k, v in t.truth.items() if v["category"] in ("parameter", "buffer", "optimizer_state")}
    resting = {k: v for k, v in t.truth.items() if v["name"]}
    # Idle: all tensors, with gradients; one census at attach, one at the end.
    events, recording = record(t, "-d", "2s")
    told = [e for e in events if e["kind"] == mtr_reader.TENSOR]
    first = [e for e in told if e["flags"] & FIRST]
    check_told(t, told, recording, resting)
    check_told(t, first, recording, resting)
    ends = [e for e in events if e["kind"] == mtr_reader.CENSUS]
    check({e["type"] for e in ends} >= {0 if device == "cpu" else 1}, "%s: readings of no device: %s", t.what, ends)
    sums = {}
    for e in first:
        sums[e["type"]] = sums.get(e["type"], 0) + e["size"]
    for e in ends:
        if e["flags"] & FIRST and e["type"]:
            equal(e["size"], sums[e["type"]], "%s: bytes of the first reading" % t.what)
    equal(recording.facts["census"], "2", "%s: readings" % t.what)
    # During training: also after the first steps.
    t.ask("train 0.02")
    events, recording = record(t, "-d", "3s")
    told = [e for e in events if e["kind"] == mtr_reader.TENSOR]
    check_told(t, told, recording, stays)
    for e in told:
        key = "%s %d" % ("cpu" if e["type"] == 0 else "cuda:%d" % e["index"], e["addr"])
        name = recording.strings[e["name"]]
        check(key in stays or passing(name, CATEGORIES[e["category"]]), "%s: a name that is not its own: %s %s", t.what, name, e)
    check(int(recording.facts["census"]) >= 2, "%s: %s readings", t.what, recording.facts["census"])
    grads = {recording.strings[e["name"]] for e in told if CATEGORIES[e["category"]] == "gradient"}
    check(grads <= {"grad of " + v["name"] for v in t.truth.values()}, "%s: gradients %s", t.what, grads)
    events, recording = record(t, "-d", "1s", "--no-census")
    check(not [e for e in events if e["kind"] in (mtr_reader.TENSOR, mtr_reader.CENSUS)], "told with --no-census")
    t.ask("stop")


def test_recorded():
    recorded("cpu")
    recorded("cuda")


def full_speed(device):
    """Read during training: permanent tensors have their names each time, no tensor has another's name, and the program
    continues."""
    t = gpt(device)
    stays = {k: v for k, v in t.truth.items() if v["category"] in ("parameter", "buffer", "optimizer_state")}
    t.ask("train")
    t.ask("worst")
    time.sleep(2)
    alone = t.ask("none")
    t.ask("worst")
    docs, until = [], time.monotonic() + 3
    while time.monotonic() < until or len(docs) < 5:
        docs.append(t.dump())
    beside = t.ask("none")
    t.ask("stop")
    names = 0
    for doc in docs:
        sums_or_torn = [d for d in doc["devices"] if d["consistent"]]
        sums({"devices": sums_or_torn, "rows": doc["rows"]}, t.what)
        for r in doc["rows"]:
            if not r["held"]:
                continue
            want = stays.get("%s %d" % (r["device"], r["address"]))
            if want:
                equal((r["name"], r["category"], r["size"]), (want["name"], want["category"], want["size"]), t.what)
                names += 1
            else:
                check(passing(r["name"], r["category"]), "%s: a name that is not its own: %s", t.what, r)
    check(names >= 0.99 * len(stays) * len(docs), "%s: %d of %d names", t.what, names, len(stays) * len(docs))
    check(int(beside[1]) > 20, "it did not train: %s", beside)
    print("  %s: %d readings, %d of %d names, %s torn; longest step %.1f ms alone, %.1f ms while read" % (
        t.what, len(docs), names, len(stays) * len(docs), sum(d["reading"]["torn"] for d in docs),
        float(alone[0]) * 1e3, float(beside[0]) * 1e3))


@nightly("long")
def test_full_speed():
    full_speed("cpu")
    full_speed("cuda")


def test_children():
    """A router without PyTorch, an engine and workers are one answer: a row for each, and the sums of what the program allocated."""
    target = spawn([python(), os.path.join(WORKLOADS, "service.py")])
    target.wait_line("^ready", 60)
    target.send()
    truth = json.loads(target.wait_line("^up", 120)[3:])
    code, out, err = tool("dump", "-p", str(target.pid), "--children", "--format", "json", root=True)
    equal((code, err), (0, ""), "dump --children")
    doc = json.loads(out)
    by_name = {p["name"]: p for p in doc["processes"]}
    check({"service.py", "fork server", *truth} <= set(by_name), "processes %s", list(by_name))
    for name, (pid, size) in truth.items():
        p = by_name[name]
        equal((p["pid"], p["why"], p["dump"]["target"]["pid"]), (pid, None, pid), name)
        equal(p["dump"]["devices"][0]["allocated"], size, "bytes of %s" % name)
    for name in ("service.py", "fork server"):
        equal((by_name[name]["dump"], "torch is not imported" in by_name[name]["why"]), (None, True), name)
    equal(by_name["service.py"]["parent"], None, "the router's parent")
    equal([by_name[n]["parent"] for n in truth if n != "EngineCore"], [by_name["fork server"]["pid"]] * 2, "the workers' parent")
    total = sum(size for _, size in truth.values())
    equal(doc["devices"], [{"device": "cpu", "allocated": total, "reserved": None, "processes": 3}], "sums")
    code, out, err = tool("dump", "-p", str(target.pid), "--children", "--top", "1", root=True)
    equal((code, err), (0, ""), "dump --children as text")
    table, *parts = re.split(r"\n\n(?=\w+ · PID )", out)
    check(re.search(r"^ +%d +\d+ +cpu +72\.00 MiB +EngineCore$" % by_name["EngineCore"]["pid"], table, re.M), "no engine: %s", table)
    check(re.search(r"^ +all +cpu +129\.00 MiB +3 processes$", table, re.M), "no sum: %s", table)
    equal(len(parts), 3, "processes with tensors")
    for (name, (pid, _)), part in zip(truth.items(), parts):
        check(part.startswith("%s · PID %d · " % (name, pid)), "not of %s: %s", name, part)
    target.stop()


def test_children_without_tensors():
    """Without PyTorch in any process, the reason is that of the first, as without --children."""
    target = spawn(["sleep", "60"])
    both = [tool("dump", "-p", str(target.pid), *more, root=True) for more in ((), ("--children",))]
    equal(both[0], both[1], "answers")
    equal((both[0][0], both[0][1]), (2, ""), "status and output")
    target.stop()

if __name__ == "__main__":
    run(globals())

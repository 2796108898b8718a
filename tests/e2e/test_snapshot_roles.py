#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# run: check cpu=90
"""Roles in PyTorch snapshots, which have no objects of the program: from frames, phases and lifetimes. And names of blocks."""
import os
import pickle

import torch_snapshots
from harness import REPO, check, equal, report, run, scratch, tool

MIB = 1 << 20
NN, ADAM, AUTOGRAD = "/site-packages/torch/nn/modules/", "/site-packages/torch/optim/adam.py", []
JOB = {"filename": "/job/train.py", "name": "<module>", "line": 9}


def frame(filename, name, line=1):
    return {"filename": filename, "name": name, "line": line}


MOVED = [frame(NN + "module.py", "convert"), frame(NN + "module.py", "_apply"), JOB]
OWN = [frame("/job/train.py", "load", 3), JOB]
BATCH = [frame("/job/train.py", "batch", 4), JOB]
CALL = [frame(NN + "module.py", "_call_impl", 1786), JOB]
FORWARD = [frame(NN + "linear.py", "forward", 134), *CALL]
LOSS = [frame("/job/train.py", "loss", 5), JOB]
AGAIN = [frame(NN + "linear.py", "forward", 134), frame(NN + "module.py", "_call_impl", 1786), frame("/torch/utils/checkpoint.py", "recompute_fn")]
STATE = [frame(ADAM, "_init_group"), frame(ADAM, "step"), JOB]
UPDATE = [frame(ADAM, "_multi_tensor_adam"), frame(ADAM, "step"), JOB]


class Trace:
    """Entries of a trace; each block has an address of its own."""

    def __init__(self):
        self.entries, self.n, self.live = [], 0, {}

    def add(self, action, **fields):
        self.entries.append({"action": action, "stream": 0, "time_us": 1000 + len(self.entries), "frames": [], **fields})

    def alloc(self, frames, mib):
        self.n += 1
        addr = self.n << 32
        self.add("alloc", addr=addr, size=mib * MIB, frames=frames)
        self.live[addr] = mib * MIB
        return addr

    def free(self, *addrs):
        for addr in addrs:
            for action in ("free_requested", "free_completed"):
                self.add(action, addr=addr, size=self.live[addr])
            del self.live[addr]

    def oom(self, frames):
        self.add("oom", device_free=0, size=64 * MIB, frames=frames)

    def model(self):
        self.alloc(MOVED, 30)
        self.alloc(OWN, 7)

    def forward(self):
        return [self.alloc(BATCH, 2), self.alloc(FORWARD, 10), self.alloc(FORWARD, 11), self.alloc(LOSS, 1)]

    def step(self, first):
        batch, *kept = self.forward()
        gradients = [self.alloc(AUTOGRAD, 30), self.alloc(AUTOGRAD, 7)]
        self.free(*kept)
        if first:
            self.alloc(STATE, 30), self.alloc(STATE, 7)
        self.free(self.alloc(UPDATE, 5))
        self.free(*gradients, batch)

    def roles(self, name, at="oom"):
        path = scratch(name + ".pickle")
        with open(path, "wb") as f:
            pickle.dump({"segments": [], "device_traces": [self.entries]}, f)
        return {k: v / MIB for k, v in report(path, at=at)["categories"].items() if v}


def trained(steps):
    t = Trace()
    t.model()
    for i in range(steps):
        t.step(not i)
    return t


def test_forward_fails():
    """In a later step all roles are known, also if the exception then frees what the forward made."""
    want = {"parameter": 37, "optimizer_state": 37, "activation": 21, "input": 2}
    t = trained(3)
    made = [t.alloc(BATCH, 2), t.alloc(FORWARD, 10), t.alloc(FORWARD, 11)]
    t.oom(FORWARD)
    equal(t.roles("later"), want, "roles")
    t.free(*made)
    equal(t.roles("unwound"), want, "roles of what the exception frees")


def test_first_forward_fails():
    """Memory that known functions of PyTorch make has a role at once; other memory from before the first forward has none."""
    t = Trace()
    t.model()
    t.alloc(FORWARD, 10)
    t.oom(FORWARD)
    equal(t.roles("first"), {"parameter": 30, "unknown": 7, "activation": 10}, "roles")


def test_loss_fails():
    t = trained(2)
    t.forward()
    t.oom(LOSS)
    equal(t.roles("loss"), {"parameter": 37, "optimizer_state": 37, "activation": 22, "input": 2}, "roles")


def test_backward_fails():
    t = trained(1)
    t.forward()
    t.alloc(AUTOGRAD, 30)
    t.alloc(AGAIN, 9)
    t.oom([])
    got = t.roles("backward")
    equal((got["gradient"], got["parameter"], got["optimizer_state"]), (30, 37, 37), "roles: %s" % got)


def test_optimizer_fails():
    """The state is known by its function; what else it makes (5 MiB) is not before its step has ended. The first batch and its loss (3) are not, either."""
    t = Trace()
    t.model()
    t.forward()
    t.alloc(AUTOGRAD, 30), t.alloc(AUTOGRAD, 7)
    t.alloc(STATE, 30), t.alloc(STATE, 7)
    t.alloc(UPDATE, 5)
    t.oom(UPDATE)
    got = t.roles("optimizer")
    equal((got["parameter"], got["gradient"], got["optimizer_state"], got["unknown"]), (37, 37, 37, 8), "roles: %s" % got)


def test_accumulated():
    """Gradients that live from one backward to the next, in the middle of the second forward."""
    t = trained(1)
    made = t.forward()
    t.alloc(AUTOGRAD, 30), t.alloc(AUTOGRAD, 7)
    t.free(*made[1:])
    t.alloc(FORWARD, 10)
    t.oom(FORWARD)
    got = t.roles("accumulated")
    equal((got["gradient"], got["activation"]), (37, 10), "roles: %s" % got)


def test_without_optimizer_state():
    """As with SGD: a parameter has the size of a gradient. So has the first input, but it is gone after some steps."""
    for steps, want in (1, 30), (4, 37):
        t = Trace()
        t.model()
        other = t.alloc(OWN, 3)
        for i in range(steps):
            made = t.forward()
            gradients = [t.alloc(AUTOGRAD, n) for n in (30, 7, 3)]
            t.free(*made, t.alloc(UPDATE, 5), *gradients)
        t.alloc(FORWARD, 10)
        if steps > 1:
            t.free(other)
        t.oom(FORWARD)
        equal(t.roles("sgd")["parameter"], want, "parameters after %d steps" % steps)


def test_buffers():
    """Module._apply moves parameters, then gradients, then buffers, each at a line of its own."""
    def moved(*lines):
        t = Trace()
        for mib, line in enumerate(lines, 1):
            t.alloc([frame(NN + "module.py", "convert", 1341), frame(NN + "module.py", "_apply", line), frame(NN + "module.py", "_apply", 900), JOB], mib)
        return t.roles("buffers", "end")
    equal(moved(928, 928, 996), {"parameter": 3, "buffer": 3}, "a model with buffers")
    equal(moved(996, 928, 996), {"parameter": 2, "buffer": 4}, "a module whose buffer comes first")
    equal(moved(928, 955, 996), {"parameter": 3, "buffer": 3}, "a model with gradients and buffers")
    equal(moved(928, 928), {"parameter": 3}, "a model without buffers")


def test_pytorchs_buffers():
    """Those of a residual network's batch norms: two of a channel's floats each, and a counter."""
    _, path = torch_snapshots.run_both("cuda/convnet.py", ("--steps", "2"))
    sizes = 2 * 2 * 3 * 512 + 2 * 3 * 512
    got = report(path, at="end")["categories"]
    equal(got["buffer"], sizes, "buffers: %s" % got)
    check(got["parameter"] > 0, "parameters: %s", got)


def test_before_the_history():
    """PyTorch writes empty frames for blocks from before the history: they are nobody's, not the autograd thread's."""
    t = Trace()
    t.alloc(FORWARD, 10), t.alloc(AUTOGRAD, 7)
    path = scratch("before.pickle")
    blocks = [{"size": n * MIB, "requested_size": n * MIB, "state": "active_allocated", "frames": f}
              for n, f in ((30, []), (10, FORWARD), (7, AUTOGRAD))]
    trace = [{**e, "addr": (1 << 40) + at * MIB} for e, at in zip(t.entries, (30, 40))]
    with open(path, "wb") as f:
        pickle.dump({"segments": [{"device": 0, "address": 1 << 40, "total_size": 47 * MIB, "stream": 0, "segment_pool_id": (0, 0),
                                   "segment_type": "large", "blocks": blocks}], "device_traces": [trace]}, f)
    rows = {r["bytes"] // MIB: (r["source"], r["category"]) for r in report(path, at="end")["rows"]}
    check(rows[30][0] == "census" and rows[7] == ("untraced", "gradient"), "%s", rows)


def test_set_to_zero():
    """Gradients that stay through all steps; a workspace of backward that does is none."""
    t = trained(1)
    t.alloc(AUTOGRAD, 30), t.alloc(AUTOGRAD, 8)
    for _ in range(5):
        t.step(False)
    got = t.roles("zero", "end")
    equal((got["gradient"], got["unknown"]), (30, 8), "roles: %s" % got)


def test_a_server():
    """Without a backward, what a forward leaves is no activation: it may be a cache."""
    t = Trace()
    t.model()
    for _ in range(8):
        t.alloc(FORWARD, 1)
        t.free(t.alloc(FORWARD, 2))
    equal(t.roles("server", "end"), {"parameter": 30, "unknown": 15}, "roles")
    _, out, _ = tool("report", scratch("server.pickle"))
    check("roles by frames and lifetimes" in out, "%s", out)


def roles_of(path):
    """Where the roles are from, and all of them by line, at the end."""
    doc, found = report(path, at="end"), {}
    for r in doc["rows"]:
        key = r["file"], r["line"], r["category"]
        found[key] = found.get(key, 0) + r["bytes"]
    return doc["capture"].get("roles_from"), found


def test_inferred_twice():
    """Roles that were inferred stay so in an export of it, and in an export of that."""
    t = trained(3)
    t.forward()
    t.alloc(AUTOGRAD, 30)
    t.roles("inferred", "end")
    path = scratch("inferred.pickle")
    want = roles_of(path)
    check({c for _, _, c in want[1]} >= {"parameter", "gradient", "optimizer_state", "activation"}, "roles: %s", want)
    for again in "second", "third":
        made = scratch(again + ".pickle")
        equal(tool("export", "snapshot", path, "-f", "-o", made)[0], 0, "export")
        with open(made, "rb") as f:
            inferred = {b["role_inferred"] for s in pickle.load(f)["segments"] for b in s["blocks"] if "role" in b}
        equal(inferred, {True}, "role_inferred of the %s" % again)
        equal(roles_of(made), ("frames", want[1]), "roles of the %s" % again)
        check("roles by frames and lifetimes" in tool("report", made)[1], "the %s does not say that roles are inferred", again)
        path = made


def test_roles_of_objects():
    """A recording's roles are those of the program's objects, also after two exports; those by the life of a block stay inferred."""
    path, inferred = os.path.join(REPO, "tests", "data", "guide", "base.mtr"), []
    want = {k: v for k, v in roles_of(path)[1].items() if k[2] != "unknown"}
    check({c for _, _, c in want} >= {"parameter", "optimizer_state"}, "roles: %s", want)
    for again in "objects1", "objects2":
        made = scratch(again + ".pickle")
        equal(tool("export", "snapshot", path, "-f", "-o", made)[0], 0, "export")
        origin, got = roles_of(made)
        equal((origin, {k: got.get(k) for k in want}), ("objects", want), "roles of " + again)
        check("roles by the program's objects, frames and lifetimes" in tool("report", made)[1], "%s does not say where roles are from", again)
        with open(made, "rb") as f:
            inferred.append({(b["address"], b["role"]) for s in pickle.load(f)["segments"] for b in s["blocks"] if b.get("role_inferred") is False})
        path = made
    check(inferred[0] and inferred[0] == inferred[1], "roles of objects: %d, then %d", *map(len, inferred))


def test_names():
    """The text has a column for names that the program gave its memory, if a row has one. A line with several names says so."""
    path, t = scratch("names.pickle"), Trace()
    t.alloc(OWN, 7)
    t.roles("names", "end")
    check("Name" not in tool("report", path)[1], "a column without a name: %s", tool("report", path)[1])
    t.alloc(LOSS, 3)
    t.entries[-1]["user_metadata"] = "a\x1b[31mcache"
    for name in "one", "two":
        t.alloc(BATCH, 2)
        t.entries[-1]["user_metadata"] = name
    t.roles("names", "end")
    out = tool("report", path)[1]
    rows = {row.split()[0]: " ".join(row.split()) for row in out.split("\n") if "train.py:" in row}
    check(" Name " in out and "(several)" in rows["4.00"] and "a\\x1b[31mcache" in rows["3.00"] and " - " in rows["7.00"], "names: %s", out)
    out = tool("report", "--columns", "size,name", path)[1]
    check("      Size  Name " in out and "Blocks" not in out, "--columns: %s", out)


def test_pytorch():
    """The roles of a recording of the same run, to the byte. A recording that did not read the program's objects in time knows fewer,
    so the parameters are compared with the snapshot's own frames, too."""
    recording, path = torch_snapshots.both("gpt")
    for at in ("peak", "end"):
        want, got = ({k: v for k, v in report(p, at=at)["categories"].items() if v} for p in (recording, path))
        check(want["optimizer_state"] > 500 * MIB and want["input"], "roles of the recording at the %s: %s", at, want)
        for role in set(want) - {"unknown"}:
            equal(got.get(role), want[role], "%s at the %s: %s" % (role, at, got))
    check(got["gradient"] > 200 * MIB and got["activation"] > 200 * MIB, "%s", got)
    with open(path, "rb") as f:
        blocks = [b for s in pickle.load(f)["segments"] for b in s["blocks"] if b["state"] == "active_allocated"]
    moved = sum(b["size"] for b in blocks if any(f["name"] == "_apply" for f in b["frames"]))
    check(moved > 200 * MIB, "no model was moved")
    equal(got["parameter"], moved, "parameters")


run(globals())

#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
Modules that call one another in many ways, with the number and duration of their calls.

usage: layers.py TRUTH [--wait] [--jobs a,b] | layers.py --slow

Writes to TRUTH, for each job, {"job", "modules": [[root class, dotted name, calls, ns], ...]}. The truth is a timed
nn.Module.__call__. --wait: begins after a line on standard input, once torch is imported. --slow: one model whose forward takes
a second, until a line comes.
"""
import argparse
import json
import os
import select
import sys
import threading
import time

import torch
from torch import nn

STEPS = 3
WRAPPERS = {"_orig_mod", "_checkpoint_wrapped_module", "_fsdp_wrapped_module"}
own_call = nn.Module.__call__
inside = threading.local()
lock = threading.Lock()
names = {}  # module -> root class, dotted name
counts = {}  # root class, dotted name -> [calls, ns]


def timed(self, *args, **kwargs):
    stack = inside.__dict__.setdefault("stack", [])
    key = names[self]
    wrapped = bool(stack) and stack[-1][0] == key and stack[-1][1] is not self
    again = any(outer == key for outer, _ in stack)
    stack.append((key, self))
    begin = time.perf_counter_ns()
    try:
        return own_call(self, *args, **kwargs)
    finally:
        took = time.perf_counter_ns() - begin
        stack.pop()
        with lock:
            count = counts.setdefault(key, [0, 0])
            count[0] += not wrapped
            count[1] += 0 if again else took  # a recursive call's time is part of the outer call's


def name_all(root, ddp=False):
    cls = type(root.module if ddp else root).__name__  # wrappers do not count as root modules
    for name, module in root.named_modules():
        parts = [p for p in name.split(".") if p and p not in WRAPPERS]
        if ddp:
            parts = parts[1:]
        names[module] = (cls, ".".join(parts))
    return root


class Block(nn.Module):
    def __init__(self, n=16):
        super().__init__()
        self.inner = nn.Linear(n, n)
        self.act = nn.ReLU()

    def forward(self, x):
        return self.act(self.inner(x)) + x


class Sleeper(nn.Module):
    def forward(self, x):
        time.sleep(0.05)
        return x


class Plain(nn.Module):
    """With a container that is never called, and a module that calls nothing in PyTorch."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(3))
        self.sleeper = Sleeper()
        self.dropout = nn.Dropout(0.1)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.dropout(self.sleeper(x)).sum()


class Reused(nn.Module):
    def __init__(self):
        super().__init__()
        twice = nn.Linear(16, 16)
        self.body = nn.Sequential(twice, nn.Tanh(), twice)
        self.shared = nn.ModuleDict({"a": Block(), "b": Block()})
        self.shared["b"].inner = self.shared["a"].inner  # one module with two names

    def forward(self, x):
        return self.shared["b"](self.shared["a"](self.body(x))).sum()


class Recursive(nn.Module):
    def __init__(self):
        super().__init__()
        self.leaf = nn.Linear(16, 16)

    def forward(self, x, depth=5):
        return self(self.leaf(x), depth - 1) if depth else x.sum()


class Raises(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = Block()
        self.thrower = Thrower()

    def forward(self, x):
        try:
            self.thrower(self.first(x))
        except ValueError:
            pass
        return self.first(x).sum()


class Thrower(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(16, 16)

    def forward(self, x):
        x = self.inner(x)
        raise ValueError("on purpose")


class Generates(nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = nn.ModuleList(Block() for _ in range(3))
        self.lazy = Lazy()

    def each(self, x):
        for part in self.parts:
            x = part(x)
            yield x

    def forward(self, x):
        generator = self.lazy(x)  # returns before any of its code runs
        for one, other in zip(self.each(x), generator):
            x = x + one + other
        return x.sum()


class Lazy(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(16, 16)

    def forward(self, x):
        for _ in range(4):
            x = self.inner(x)
            yield x


class Checkpointed(nn.Module):
    """Both kinds: backward calls their blocks again."""

    def __init__(self):
        super().__init__()
        self.old, self.new = Block(), Block()

    def forward(self, x):
        from torch.utils.checkpoint import checkpoint
        x = checkpoint(self.old, x.requires_grad_(), use_reentrant=True)
        return checkpoint(self.new, x, use_reentrant=False).sum()


class Wrapped(nn.Module):
    def __init__(self):
        super().__init__()
        from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
        self.block = checkpoint_wrapper(Block())
        self.last = nn.Linear(16, 16)

    def forward(self, x):
        return self.last(self.block(x)).sum()


class Sharded(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.Sequential(Block(), Block())

    def forward(self, x):
        return self.blocks(x).sum()


class Replaced(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = Block()
        self.head = nn.Linear(16, 16)

    def forward(self, x):
        return self.head(self.body(x)).sum()


class Compiled(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = Block()
        self.plain = Eager()

    def forward(self, x):
        return self.plain(self.block(x)).sum()


class Eager(nn.Module):
    @torch.compiler.disable
    def forward(self, x):
        time.sleep(0.002)
        return x * 2


def train(model, steps=STEPS):
    for _ in range(steps):
        model(torch.randn(4, 16)).backward()


def job_threads():
    """Two threads, each in its own model, and both in one model."""
    def work(own, common):
        for _ in range(STEPS):
            own(torch.randn(4, 16))
            common(torch.randn(4, 16))

    common = name_all(Reused())
    threads = [threading.Thread(target=work, args=(name_all(Plain()), common)) for _ in range(2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()


def job_replaced():
    model = name_all(Replaced())
    for _ in range(4):
        train(model, 2)
        time.sleep(0.1)
        model.head = nn.Linear(16, 16)
        name_all(model)
        time.sleep(0.3)


def process_group():
    if not torch.distributed.is_initialized():
        torch.distributed.init_process_group("gloo", rank=0, world_size=1, store=torch.distributed.HashStore())


def job_ddp():
    process_group()
    train(name_all(nn.parallel.DistributedDataParallel(Sharded()), ddp=True))


def job_fsdp2():
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.device_mesh import init_device_mesh
    process_group()
    mesh, model = init_device_mesh("cpu", (1,)), Sharded()
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    train(name_all(fully_shard(model, mesh=mesh)))


def job_compiled():
    """Dynamo compiles the block's call; that code calls the module that Dynamo must not trace."""
    nn.Module.__call__ = own_call
    model = torch.compile(Compiled(), backend="eager")
    train(model)
    counts[("Compiled", "")] = counts[("Compiled", "plain")] = [STEPS, 0]
    nn.Module.__call__ = timed


OF_ONE_MODEL = {c.__name__.lower(): c for c in (Plain, Reused, Recursive, Raises, Generates, Checkpointed, Wrapped)}
JOBS = (*OF_ONE_MODEL, "threads", "replaced", "ddp", "fsdp2", "compiled")


class Slow(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Sequential(Sleeper(), nn.Linear(16, 16)) for _ in range(20))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


def slow():
    model = Slow()
    print("ready", flush=True)
    while not select.select([sys.stdin], [], [], 0)[0]:
        with torch.no_grad():
            model(torch.randn(4, 16))
    print("done", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("truth", nargs="?")
    parser.add_argument("--wait", action="store_true")
    parser.add_argument("--slow", action="store_true")
    parser.add_argument("--jobs", default=",".join(JOBS))
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.slow:
        return slow()
    if args.wait:
        print("ready", os.getpid(), flush=True)
        sys.stdin.readline()
    nn.Module.__call__ = timed
    with open(args.truth, "w", encoding="utf-8") as f:
        for job in args.jobs.split(","):
            try:
                if job in OF_ONE_MODEL:
                    train(name_all(OF_ONE_MODEL[job]()))
                else:
                    globals()["job_" + job]()
            except ImportError as e:
                print("skipped", job, e, flush=True)
            modules = [[*key, *count] for key, count in counts.items()]
            f.write(json.dumps({"job": job, "modules": modules}) + "\n")
            counts.clear()
            time.sleep(0.05)
    print("done", flush=True)
    # Let the recorder drain the ring while the objects exist.
    time.sleep(0.3)


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
A job whose reserved memory depends on the allocator's settings, with the result for each: after importing PyTorch once, a forked
child per --conf runs the job under these settings and writes the allocator's own history. Finally the process runs it under its
initial settings.

    python replayed.py OUT.json [--conf expandable_segments:True] ...

OUT.json: {"CONF": [[allocated, reserved], ...]}: after each allocation and free that changed the reserved memory.

torch >= 2.1, Python >= 3.8.
"""
import argparse
import gc
import json
import os
import random
import warnings

import torch
import torch.nn as nn
import torch.nn.functional as F

MIB = 1 << 20


class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(x)))


def train(lengths):
    model = nn.Sequential(*(Layer(256) for _ in range(3))).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for length in lengths:
        optimizer.zero_grad()
        model(torch.zeros(8, length, 256, device="cuda")).sum().backward()
        optimizer.step()
    return model, optimizer


def churn(rng, steps):
    """Blocks of many sizes, allocated and freed."""
    held = []
    for _ in range(steps):
        size = rng.choice((rng.randrange(1, 4096), rng.randrange(4096, MIB), rng.randrange(MIB, 8 * MIB), rng.randrange(8 * MIB, 40 * MIB)))
        held.append(torch.empty(size, dtype=torch.uint8, device="cuda"))
        if len(held) > 24:
            held.pop(rng.randrange(len(held)))
    return held


def beside(rng):
    """A second stream's pool, with blocks that would fit into both."""
    side = torch.cuda.Stream()
    kept = []
    for _ in range(40):
        with torch.cuda.stream(side):
            kept.append(torch.empty(rng.randrange(MIB, 30 * MIB), dtype=torch.uint8, device="cuda"))
        kept.append(torch.empty(rng.randrange(MIB, 30 * MIB), dtype=torch.uint8, device="cuda"))
        if len(kept) > 10:
            kept.pop(0)
            kept.pop(rng.randrange(len(kept)))
    return kept


def graph():
    """A private pool."""
    x = torch.zeros(1024, 1024, device="cuda")
    g = torch.cuda.CUDAGraph()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side), torch.cuda.graph(g, stream=side):
        y = (x + 1) * 2
    g.replay()
    return g, x, y


def job(parts):
    rng = random.Random(7)
    if hasattr(torch.autograd, "set_multithreading_enabled"):
        # A thread of autograd's frees blocks a moment later on a busy machine: then the next ones are others.
        torch.autograd.set_multithreading_enabled(False)
    kept = [train(rng.randrange(64, 1024) for _ in range(5))]
    kept.append(churn(rng, 200))
    if "streams" in parts:
        kept.append(beside(rng))
    if "empty" in parts:
        kept.pop(1)
        torch.cuda.empty_cache()
        kept.append(churn(rng, 100))
    if "graph" in parts:
        kept.append(graph())
        kept.append(churn(rng, 50))
    return kept


def curve():
    """The allocator's history: allocated and reserved after each event that changed reserved memory."""
    allocated = reserved = before = 0
    points = []
    for e in torch.cuda.memory._snapshot()["device_traces"][0]:
        sign = {"segment_alloc": 1, "segment_map": 1, "segment_free": -1, "segment_unmap": -1}.get(e["action"])
        if sign:
            reserved += sign * e["size"]
        elif e["action"] in ("alloc", "free_requested"):
            allocated += e["size"] if e["action"] == "alloc" else -e["size"]
            if reserved != before:
                points.append([allocated, reserved])
                before = reserved
    return points


def observed(parts):
    torch.cuda.memory._record_memory_history(context=None, max_entries=1000000)
    kept = job(parts)
    points = curve()
    del kept
    return points


def child(conf, parts):
    """Runs in a child, before CUDA is used."""
    out, into = os.pipe()
    pid = os.fork()
    if not pid:
        os.environ["PYTORCH_CUDA_ALLOC_CONF"] = conf
        with warnings.catch_warnings():  # newer versions deprecate this name
            warnings.simplefilter("ignore")
            torch.cuda.memory._set_allocator_settings(conf)
        with os.fdopen(into, "w") as f:
            json.dump(observed(parts), f)
        os._exit(0)
    os.close(into)
    with os.fdopen(out) as f:
        points = json.load(f)
    os.waitpid(pid, 0)
    return points


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("out")
    p.add_argument("--conf", action="append", default=[])
    p.add_argument("--parts", default="streams,empty,graph")
    p.add_argument("--oom", action="store_true", help="an out of memory is how it ends")
    a = p.parse_args()
    parts = a.parts.split(",")
    gc.disable()
    found = {conf: child(conf, parts) for conf in a.conf}
    own = os.environ.get("PYTORCH_CUDA_ALLOC_CONF", "")
    try:
        found[own] = observed(parts)
    except torch.cuda.OutOfMemoryError:
        if not a.oom:
            raise
        found[own] = curve()
    with open(a.out, "w", encoding="utf-8") as f:
        json.dump(found, f)
    os._exit(0)


if __name__ == "__main__":
    main()

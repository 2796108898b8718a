# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
One way to waste memory per job, and its remedy, to compare the advice of `report --advice` on the first with the second's
memory.

    memtrace-bpf run --dry-run-cuda -o wasted.mtr -- python tests/workloads/advised.py outputs
    memtrace-bpf run --dry-run-cuda --no-trace -- python tests/workloads/advised.py outputs --remedied

`all` has every waste of a single process except the optimizer's. At the end it prints PyTorch's own peak as one JSON line.

torch >= 2.1, Python >= 3.8.
"""
import argparse
import json
import os
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

from gpt import Block

CHUNKS = 8
BLOCK = 256  # elements per scale


class Masked(nn.Module):
    """A block with a mask: its own, or a given one."""

    def __init__(self, width, heads, mask):
        super().__init__()
        self.block = Block(width, heads)
        self.register_buffer("mask", mask)

    def forward(self, x):
        return self.block(x)


class Model(nn.Module):
    def __init__(self, a, masks, checkpointing):
        super().__init__()
        self.checkpointing = checkpointing
        self.tokens = nn.Embedding(a.vocab, a.width)
        if masks == "none":
            blocks = [Block(a.width, a.heads) for _ in range(a.layers)]
        else:
            one = torch.ones(a.mask, a.mask, device="cuda").tril()
            blocks = [Masked(a.width, a.heads, one if masks == "one" else one.clone()) for _ in range(a.layers)]
        self.blocks = nn.ModuleList(blocks)
        self.norm = nn.LayerNorm(a.width)
        self.head = nn.Linear(a.width, a.vocab, bias=False)

    def body(self, ids):
        x = self.tokens(ids)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.checkpointing else block(x)
        return self.norm(x)

    def forward(self, ids, targets=None):
        x = self.body(ids)
        if targets is None:
            return self.head(x)
        x, targets = x.flatten(0, 1), targets.flatten()
        parts = zip(x.chunk(CHUNKS), targets.chunk(CHUNKS))
        return sum(checkpoint(self.part, p, t, use_reentrant=False) for p, t in parts) / len(targets)

    def part(self, x, targets):
        return F.cross_entropy(self.head(x), targets, reduction="sum")


class Adam8bit(torch.optim.Optimizer):
    """Only the memory of Adam in 8 bit: for both moments a byte per element and a scale per 256."""

    def __init__(self, params):
        super().__init__(params, {})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None or self.state[p]:
                    continue
                n = p.numel()
                for name in ("exp_avg", "exp_avg_sq"):
                    if n < 4096:
                        self.state[p][name] = torch.zeros_like(p)
                        continue
                    self.state[p][name] = torch.zeros(n, dtype=torch.uint8, device=p.device)
                    self.state[p][name + "_scale"] = torch.zeros((n + BLOCK - 1) // BLOCK, device=p.device)


def parse_args():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("waste", choices=("all", "checkpoint", "state", "foreach", "late", "zeroed", "buffers", "logits", "outputs", "ddp"))
    p.add_argument("--remedied", action="store_true")
    p.add_argument("--amp", action="store_true")
    p.add_argument("--steps", type=int, default=4)
    p.add_argument("--rest", type=float, default=1, help="seconds after the first step")
    p.add_argument("--batch", type=int, default=4)
    p.add_argument("--context", type=int, default=256)
    p.add_argument("--width", type=int, default=256)
    p.add_argument("--heads", type=int, default=4)
    p.add_argument("--layers", type=int, default=6)
    p.add_argument("--vocab", type=int, default=1000)
    p.add_argument("--mask", type=int, default=1024)
    return p.parse_args()


def make_optimizer(a, has, model):
    if a.waste == "state" and a.remedied:
        return Adam8bit(model.parameters())
    return torch.optim.AdamW(model.parameters(), lr=1e-3, fused=not has("foreach"), foreach=has("foreach") or None)


def parallel(a, model):
    os.environ.update(MASTER_ADDR="127.0.0.1", RANK="0", WORLD_SIZE="1", LOCAL_RANK="0")
    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("nccl", store=store, rank=0, world_size=1)
    return nn.parallel.DistributedDataParallel(model, device_ids=[0], gradient_as_bucket_view=a.remedied)


def main():
    a = parse_args()
    everything = ("checkpoint", "zeroed", "buffers", "logits", "outputs")

    def has(waste):
        return not a.remedied and (a.waste == waste or (a.waste == "all" and waste in everything))

    torch.manual_seed(1)
    torch.set_num_threads(1)
    masks = "each" if has("buffers") else "one" if a.waste in ("buffers", "all") else "none"
    model = Model(a, masks, not has("checkpoint") and a.waste in ("checkpoint", "all", "foreach", "ddp")).cuda()
    if a.waste == "ddp":
        model = parallel(a, model)
    optimizer = make_optimizer(a, has, model)
    in_parts = a.waste in ("logits", "all") and a.remedied
    for step in range(a.steps):
        if step == 1:
            time.sleep(a.rest)  # about the length of a few real steps: the census runs meanwhile
        text = torch.randint(a.vocab, (a.batch, a.context + 1)).cuda()
        ids, targets = text[:, :-1], text[:, 1:]
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=a.amp):
            if in_parts:
                loss = model(ids, targets)
            elif has("outputs"):
                logits = model(ids)
                loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
            else:
                loss = F.cross_entropy(model(ids).flatten(0, 1), targets.flatten())
        if has("late"):
            optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if not has("late"):
            optimizer.zero_grad(set_to_none=not has("zeroed"))
    print(json.dumps({"waste": a.waste, "remedied": a.remedied, "max_memory_allocated": torch.cuda.max_memory_allocated()}), flush=True)


if __name__ == "__main__":
    main()

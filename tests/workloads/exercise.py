# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
The memory exercise: one model, trained plainly, with gradient checkpointing, with automatic mixed precision, with both.

    memtrace-bpf run --dry-run-cuda -o baseline.mtr -- python tests/workloads/exercise.py baseline

Each step ends with zero_grad(), so a step begins with no gradients. At its end it prints, as one JSON line, what PyTorch
itself says of the run: max_memory_allocated, max_memory_reserved, and the largest total after each part of a step.

torch >= 2.1, Python >= 3.8.
"""
import argparse
import json
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

from gpt import Block

CONFIGURATIONS = ("baseline", "checkpointing", "amp", "both")


class Model(nn.Module):
    def __init__(self, vocab, width, heads, layers, context, checkpointing):
        super().__init__()
        self.checkpointing = checkpointing
        self.tokens = nn.Embedding(vocab, width)
        self.positions = nn.Embedding(context, width)
        self.blocks = nn.ModuleList([Block(width, heads) for _ in range(layers)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocab, bias=False)

    def forward(self, ids):
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            if self.checkpointing:
                x = checkpoint(block, x, use_reentrant=False)
            else:
                x = block(x)
        return self.head(self.norm(x))


def parse_args():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("configuration", choices=CONFIGURATIONS)
    p.add_argument("--steps", type=int, default=6)
    p.add_argument("--batch", type=int, default=8)
    p.add_argument("--context", type=int, default=256)
    p.add_argument("--width", type=int, default=256)
    p.add_argument("--heads", type=int, default=4)
    p.add_argument("--layers", type=int, default=8)
    p.add_argument("--vocab", type=int, default=1000)
    p.add_argument("--device", default="cuda")
    return p.parse_args()


def train_step(model, optimizer, scaler, amp, text, after):
    with torch.autocast("cuda", dtype=torch.float16, enabled=amp):
        logits = model(text[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), text[:, 1:].flatten())
    after("forward")
    scaler.scale(loss).backward()
    after("backward")
    scaler.step(optimizer)
    scaler.update()
    after("optimizer")
    optimizer.zero_grad(set_to_none=True)
    after("zero_grad")


def make_scaler(enabled):
    if hasattr(torch.amp, "GradScaler"):
        return torch.amp.GradScaler("cuda", enabled=enabled)
    return torch.cuda.amp.GradScaler(enabled=enabled)


def main():
    args = parse_args()
    amp = args.configuration in ("amp", "both")
    torch.manual_seed(1)
    torch.set_num_threads(1)
    model = Model(args.vocab, args.width, args.heads, args.layers, args.context,
                  args.configuration in ("checkpointing", "both")).to(args.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scaler = make_scaler(amp)
    totals, times = {}, []

    def after(part):
        totals[part] = max(totals.get(part, 0), torch.cuda.memory_allocated())

    for _ in range(args.steps):
        begin = time.monotonic()
        text = torch.randint(args.vocab, (args.batch, args.context + 1)).to(args.device)
        train_step(model, optimizer, scaler, amp, text, after)
        times.append(time.monotonic() - begin)
    print(json.dumps({"configuration": args.configuration, "steps": args.steps,
                      "max_memory_allocated": torch.cuda.max_memory_allocated(),
                      "max_memory_reserved": torch.cuda.max_memory_reserved(),
                      "after": totals, "step_time": sorted(times[1:] or times)[len(times[1:] or times) // 2]}), flush=True)


if __name__ == "__main__":
    main()

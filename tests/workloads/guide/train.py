# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
The job of the guide's examples: a small GPT on random tokens. With --keep it has a leak: it appends each step's logits to a list. In a
job of several ranks, rank 2 alone does.
"""
import argparse
import os
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

history = []


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.qkv(x).chunk(3, dim=-1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn = Attention(width, heads)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.tokens = nn.Embedding(args.vocab, args.width)
        self.blocks = nn.ModuleList(Block(args.width, 8) for _ in range(args.layers))
        self.norm = nn.LayerNorm(args.width)
        self.head = nn.Linear(args.width, args.vocab)
        self.checkpoint = args.checkpoint

    def forward(self, ids):
        x = self.tokens(ids)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.checkpoint else block(x)
        return self.head(self.norm(x))


def train_step(model, optimizer, ids, args):
    logits = model(ids[:, :-1])
    loss = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if args.keep and os.environ.get("RANK", "2") == "2":
        history.append(logits.detach())


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--batch", type=int, default=8)
    p.add_argument("--width", type=int, default=512)
    p.add_argument("--layers", type=int, default=6)
    p.add_argument("--context", type=int, default=128)
    p.add_argument("--vocab", type=int, default=2048)
    p.add_argument("--steps", type=int, default=0, help="0: no limit")
    p.add_argument("--pause", type=float, default=0, help="seconds after each step")
    p.add_argument("--checkpoint", action="store_true")
    p.add_argument("--keep", action="store_true")
    p.add_argument("--device", default="cuda")
    args = p.parse_args()

    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = GPT(args).to(args.device)
    optimizer = torch.optim.AdamW(model.parameters())
    print("pid %d" % os.getpid(), flush=True)
    step = 0
    while not args.steps or step < args.steps:
        ids = torch.randint(args.vocab, (args.batch, args.context + 1)).to(args.device)
        train_step(model, optimizer, ids, args)
        step += 1
        if step in (1, 10):
            print("step %d" % step, flush=True)
        time.sleep(args.pause)


if __name__ == "__main__":
    main()

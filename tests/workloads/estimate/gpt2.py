# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""GPT-2 in plain PyTorch, in the four sizes that were published: 124M, 355M, 774M, 1.5B; tied weights, no dropout."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

import common

SIZES = {"124M": (12, 12, 768), "355M": (24, 16, 1024), "774M": (36, 20, 1280), "1.5B": (48, 25, 1600)}
VOCAB = 50257


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (y.view(b, t, self.heads, c // self.heads).transpose(1, 2) for y in self.qkv(self.norm1(x)).split(c, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, c))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class GPT2(nn.Module):
    def __init__(self, layers, heads, width, length, checkpointed):
        super().__init__()
        self.checkpointed = checkpointed
        self.tokens, self.positions = nn.Embedding(VOCAB, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, VOCAB, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, ids):
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.checkpointed else block(x)
        return self.head(self.norm(x))


def loss_of(model, ids):
    return F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())


def main():
    p = common.options(__doc__, batch=4, length=1024)
    p.add_argument("--size", choices=sorted(SIZES), default="124M")
    args = p.parse_args()
    layers, heads, width = SIZES[args.size]
    with torch.device("cuda"):
        model = GPT2(layers, heads, width, args.length, args.checkpoint)
    common.train(args, model, lambda: common.tokens(args, args.length + 1, VOCAB), loss_of)
    common.finish(model)


if __name__ == "__main__":
    main()

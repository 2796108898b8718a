# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""A small GPT with a separate line for each allocation. torch >= 2.1, Python >= 3.8."""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class SelfAttention(nn.Module):
    def __init__(self, width, heads, context):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self.register_buffer("mask", torch.tril(torch.ones(context, context)).bool())

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(x).split(c, dim=2)
        q = q.reshape(b, t, self.heads, c // self.heads).transpose(1, 2)
        k = k.reshape(b, t, self.heads, c // self.heads).transpose(1, 2)
        v = v.reshape(b, t, self.heads, c // self.heads).transpose(1, 2)
        scores = q @ k.transpose(-2, -1) / math.sqrt(c // self.heads)
        scores = scores.masked_fill(~self.mask[:t, :t], float("-inf"))
        weights = F.softmax(scores, dim=-1)
        mixed = weights @ v
        mixed = mixed.transpose(1, 2).reshape(b, t, c)
        return self.proj(mixed)


class Gelu(nn.Module):
    """The tanh approximation by hand: several temporaries on one line, as in user code."""

    def forward(self, x):
        return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x * x * x)))


class FeedForward(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up = nn.Linear(width, 4 * width)
        self.act = Gelu()
        self.down = nn.Linear(4 * width, width)

    def forward(self, x):
        hidden = self.up(x)
        hidden = self.act(hidden)
        return self.down(hidden)


class Block(nn.Module):
    def __init__(self, width, heads, context):
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attn = SelfAttention(width, heads, context)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = FeedForward(width)

    def forward(self, x):
        normed = self.norm1(x)
        x = x + self.attn(normed)
        normed = self.norm2(x)
        x = x + self.mlp(normed)
        return x


class GPT(nn.Module):
    def __init__(self, vocab=256, width=128, heads=4, layers=4, context=128):
        super().__init__()
        self.tokens = nn.Embedding(vocab, width)
        self.positions = nn.Embedding(context, width)
        self.blocks = nn.ModuleList([Block(width, heads, context) for _ in range(layers)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocab, bias=False)

    def forward(self, ids):
        places = torch.arange(ids.shape[1], device=ids.device)
        x = self.tokens(ids)
        x = x + self.positions(places)
        for block in self.blocks:
            x = block(x)
        x = self.norm(x)
        return self.head(x)

#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
Keys and values as inference programs hold them, in classes with the names and layouts of transformers, SGLang, vLLM and gpt-fast.

usage: kv_caches.py: prints "ready PID BYTES" (of all keys and values), and ends after a line on standard input. One tensor is next to
them in each holder and is none of them.
"""
import os
import sys
import types

import torch
from torch import nn


def library(name):
    sys.modules[name] = types.ModuleType(name)
    return sys.modules[name]


transformers, sglang = library("transformers.cache_utils"), library("sglang.srt.mem_cache.memory_pool")


class Cache:
    pass


class DynamicLayer:
    def __init__(self, *tensors):
        self.keys, self.values = tensors
        self.positions = torch.zeros(1000)


class DynamicCache(Cache):
    """Since 4.56."""

    def __init__(self, keep):
        self.layers = [DynamicLayer(keep(torch.zeros(1, 8, 100 + i, 64)), keep(torch.zeros(1, 8, 100 + i, 64))) for i in range(3)]


class StaticCache(Cache):
    """Before 4.56."""

    def __init__(self, keep):
        self.key_cache = [keep(torch.zeros(2, 8, 128, 64)) for _ in range(2)]
        self.value_cache = [keep(torch.zeros(2, 8, 128, 64)) for _ in range(2)]
        self.seen = torch.zeros(1000)


class KVCache:
    pass


class MHATokenToKVPool(KVCache):
    def __init__(self, keep):
        self.k_buffer, self.v_buffer = [[keep(torch.zeros(300, 8, 64)) for _ in range(2)] for _ in range(2)]
        self.slots = torch.zeros(1000)


Cache.__module__, transformers.Cache = transformers.__name__, Cache
KVCache.__module__, sglang.KVCache = sglang.__name__, KVCache


class Attention(nn.Module):
    """vLLM's layer: a tensor, or a list of one for each pipeline stage."""

    def __init__(self, keep, n):
        super().__init__()
        self.qkv = nn.Linear(64, 192)
        self.kv_cache = keep(torch.zeros(2, 50, 16, 64)) if n else [keep(torch.zeros(2, 60, 16, 64))]
        self.scale = torch.zeros(1000)


class Fast(nn.Module):
    """gpt-fast: buffers."""

    def __init__(self, keep):
        super().__init__()
        self.register_buffer("k_cache", keep(torch.zeros(1, 8, 70, 64)))
        self.register_buffer("v_cache", keep(torch.zeros(1, 8, 70, 64)))
        self.register_buffer("mask", torch.zeros(1000))


def main():
    kept = []

    def keep(tensor):
        kept.append(tensor.untyped_storage().nbytes())
        return tensor

    held = [DynamicCache(keep), StaticCache(keep), MHATokenToKVPool(keep), nn.ModuleList([Attention(keep, i) for i in range(2)]), Fast(keep)]
    print("ready", os.getpid(), sum(kept), flush=True)
    sys.stdin.readline()
    print(len(held), flush=True)


main()

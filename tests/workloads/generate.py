# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Generates so many tokens in each call with transformers' kind of loop, and waits for the device in a loop of its own: generate.py
TOKENS ... Prints JSON: the shape and length of the cache of each call, the peak in bytes, the turns of the other loop, twice."""
import json
import os
import sys

import torch

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "generation"))
from transformers.generation.loop import Criteria, MaxLength, _sample


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = torch.nn.Embedding(100, 64), torch.nn.Linear(64, 100)

    def forward(self, ids):
        hidden = self.embed(ids)
        return self.head(hidden), hidden


def wait(turns=0):
    done = torch.zeros(4, device="cuda") > 1
    while not done.all():  # the line that waits
        turns += 1
    return turns


model, seen = Model().cuda(), []
with torch.no_grad():
    for new in map(int, sys.argv[1:]):
        prompt = torch.randint(0, 100, (3, 10), device="cuda")
        ids, cache = _sample(model, prompt, Criteria([MaxLength(10 + new)]))
        seen.append([list(ids.shape), sum(t.shape[1] for t in cache)])
        del ids, cache, prompt
print(json.dumps({"generated": seen, "peak": torch.cuda.max_memory_allocated(), "turns": [wait(), wait()]}))

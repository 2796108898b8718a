# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""A loop like that of transformers' generate(), in a folder and with names like its own: it asks the device after each token."""
import torch


class MaxLength:
    def __init__(self, max_length):
        self.max_length = max_length

    def __call__(self, input_ids):
        return torch.full((input_ids.shape[0],), input_ids.shape[1] >= self.max_length, device=input_ids.device)


class Criteria(list):
    def __call__(self, input_ids):
        done = torch.zeros(input_ids.shape[0], dtype=torch.bool, device=input_ids.device)
        for criterion in self:
            done = done | criterion(input_ids)
        return done

    @property
    def max_length(self):
        return next((c.max_length for c in self if isinstance(c, MaxLength)), None)


class StopCheck:
    def __call__(self, unfinished):
        return bool(unfinished.max() == 0)


def _sample(model, input_ids, stopping_criteria):
    stop_check, finished = StopCheck(), False
    unfinished = torch.ones(input_ids.shape[0], dtype=torch.long, device=input_ids.device)
    cache = []
    while not finished:
        logits, kept = model(input_ids[:, -1:] if cache else input_ids)
        cache.append(kept)
        input_ids = torch.cat([input_ids, logits[:, -1].argmax(-1)[:, None]], dim=-1)
        unfinished = unfinished & ~stopping_criteria(input_ids)
        finished = stop_check(unfinished)
        del logits
    return input_ids, cache

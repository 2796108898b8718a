# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""A hand-written loop of reinforcement learning with the phases rollout, train and sync: rl_loop.py [cpu|cuda] [ROUNDS]. The train
phase calls loss_of() twice, which calls itself once. Prints as JSON what torch.cuda says of each phase, reset at its begin. With
RL_PHASES=1 the phases also have names of the module phases: "rl rollout" and so on."""
import contextlib
import functools
import json
import os
import sys

import torch

if os.environ.get("RL_PHASES"):
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools", "packaging", "wheel"))
    from phases import phase
else:
    phase = contextlib.nullcontext

KIB = 1 << 10
figures = []


def measured(function):
    """Runs the phase and notes the allocator's own peaks within. The names of the phases stay those of the functions."""
    @functools.wraps(function)
    def call(*args):
        if not torch.cuda.is_available():
            with phase("rl " + function.__name__):
                return function(*args)
        with phase("rl " + function.__name__):
            torch.cuda.reset_peak_memory_stats()
            start = torch.cuda.memory_allocated()
            result = function(*args)
            figures.append({"scope": function.__name__, "start": start, "peak": torch.cuda.max_memory_allocated(),
                            "reserved": torch.cuda.max_memory_reserved(), "end": torch.cuda.memory_allocated()})
        return result
    return call


class Policy:
    def __init__(self, device):
        self.device = device
        self.model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 64)).to(device)
        self.engine = [p.detach().clone() for p in self.model.parameters()]
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)

    @measured
    def rollout(self, number):
        """Makes more samples in each round. What it returns stays until the round ends."""
        cache = torch.empty(300 * KIB * (number + 1), dtype=torch.uint8, device=self.device)
        samples = [torch.randn(64, 256, device=self.device) for _ in range(number + 2)]
        del cache
        return samples

    def loss_of(self, x, again=True):
        y = self.model(x).square().mean()
        return y + self.loss_of(x * 0.5, False) if again else y

    @measured
    def train(self, samples):
        for x in (samples[0], samples[-1]):
            loss = self.loss_of(x)
            loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)

    @measured
    def sync(self):
        """Replaces the engine's weights by copies of the trained ones."""
        fresh = [p.detach().clone() for p in self.model.parameters()]
        self.engine = fresh


def main():
    device = sys.argv[1] if len(sys.argv) > 1 else "cuda"
    policy = Policy(device)
    for number in range(int(sys.argv[2]) if len(sys.argv) > 2 else 4):
        samples = policy.rollout(number)
        policy.train(samples)
        policy.sync()
        torch.empty(KIB, device=device)  # ends the phase before the samples are freed
        del samples
    print(json.dumps(figures), flush=True)


main()

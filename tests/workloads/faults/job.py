# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
What the programs of faults.py and healthy.py share: a small model that trains, and the command line.

    python faults.py NAME [--device cuda] [--pause SECONDS] [--steps N]

A program prints "step N" after each step, and "attach PID" if not itself but a child process is to be looked at.
torch >= 2.1, Python >= 3.8.
"""
import argparse
import functools
import itertools
import time

import torch
from torch import nn

MIB = 1 << 20
WIDTH = 256  # of the model; a batch of 64 rows has 64 KiB


def net(width, layers=2):
    linears = [nn.Linear(width, width, bias=False) for _ in range(layers)]
    return nn.Sequential(*[m for linear in linears for m in (linear, nn.ReLU())][:-1])


class Job:
    def __init__(self, device, pause, most):
        self.device, self.pause, self.most = device, pause, most

    @functools.cached_property
    def model(self):
        return net(WIDTH).to(self.device)

    @functools.cached_property
    def optimizer(self):
        return torch.optim.AdamW(self.model.parameters(), lr=1e-3)

    def batch(self, rows=64, width=WIDTH):
        return torch.randn(rows, width, device=self.device)

    def loss(self, rows=64):
        return self.model(self.batch(rows)).pow(2).mean()

    def learn(self, loss):
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def train(self, rows=64):
        self.learn(self.loss(rows))

    @torch.no_grad()
    def predict(self, rows=64):
        return self.model(self.batch(rows))

    def steps(self):
        for i in itertools.count(1) if self.most is None else range(1, self.most + 1):
            yield i
            print("step", i, flush=True)
            time.sleep(self.pause)


def print_retries():
    print("retries %d" % torch.cuda.memory_stats()["num_alloc_retries"], flush=True)


def main(programs):
    """Runs the program that the command line names. programs: globals() of the file; its functions that take a job."""
    p = argparse.ArgumentParser()
    p.add_argument("name", choices=sorted(k for k, v in programs.items() if getattr(v, "is_program", False)))
    p.add_argument("--device", default="cpu")
    p.add_argument("--pause", type=float, default=0.05)
    p.add_argument("--steps", type=int, help="default: it does not end")
    a = p.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    programs[a.name](Job(a.device, a.pause, a.steps))


def program(function):
    function.is_program = True
    return function

# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
Trains from step START on, as after a checkpoint unless it is 0: numbered.py KIND START [PAUSE [DEVICE]]. While the optimizer's step N is being
prepared, it allocates and frees SIZE + N bytes on the CPU, which no other line does: a recording tells by that which step it was.
Prints "step N" after each of the first steps. Ends with its input. WAIT in the
environment: begins with a line of its input.

KIND: adam, foreach, wide (most of a step's time is the optimizer's), capturable, sgd, gan (two optimizers in turns), accumulate (three batches a step), skip (an AMP scaler's skipped
steps), sparse (one parameter has no gradient in most steps), int (an optimizer that counts in Python ints), idle (another optimizer
exists and never steps), wrapped (the optimizer is in wrappers, as accelerate and lightning make them).
"""
import os
import select
import sys

import torch
from torch import nn

SIZE = 1 << 20
kind, start = sys.argv[1], int(sys.argv[2])
pause = float(sys.argv[3]) if len(sys.argv) > 3 else 0.01
device = sys.argv[4] if len(sys.argv) > 4 else "cpu"
torch.set_num_threads(1)


class Counting(torch.optim.Optimizer):
    """As libraries write them: state["step"] is a Python int."""

    def __init__(self, params, lr):
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                state["step"] = state.get("step", 0) + 1
                p.add_(p.grad, alpha=-group["lr"])


class Wrapper(torch.optim.Optimizer):
    """As accelerate's: it has nothing of its own."""

    def __init__(self, optimizer):
        self.optimizer = optimizer

    def step(self, closure=None):
        return self.optimizer.step(closure)

    def zero_grad(self, set_to_none=True):
        self.optimizer.zero_grad()


class Twin(torch.optim.AdamW):
    """As lightning's: it has all that the optimizer has."""

    def __init__(self, optimizer):
        self.__dict__.update(optimizer.__dict__)


def make(lr=1e-3):
    width, layers = (768, 4) if kind == "wide" else (16, 12)
    model = nn.Sequential(*[nn.Linear(width, width) for _ in range(layers)]).to(device)
    if kind == "int":
        return model, Counting(model.parameters(), lr)
    if kind == "sgd":
        return model, torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    options = {"foreach": {"foreach": True}, "wide": {"foreach": True}, "capturable": {"capturable": True}}.get(kind, {})
    return model, torch.optim.AdamW(model.parameters(), lr=lr, **options)


def forward(model, i=0):
    part = model[:-1] if kind == "sparse" and i % 7 else model
    part(torch.randn(4, model[0].in_features, device=device)).square().mean().backward()


def resume(model, optimizer):
    """As from a checkpoint of step start."""
    forward(model)
    optimizer.step()
    optimizer.zero_grad()
    state = optimizer.state_dict()
    for s in state["state"].values():
        if "step" in s:
            s["step"] = s["step"] * 0 + start
    optimizer.load_state_dict(state)


def prepare(n):
    torch.empty(SIZE + n, dtype=torch.uint8)


def main():
    model, optimizer = make()
    other = make() if kind in ("gan", "idle") else None
    if start:
        resume(model, optimizer)
    if kind == "gan":
        resume(*other)
    if kind == "wrapped":
        twin, optimizer = Twin(optimizer), Wrapper(optimizer)
    n, i = start, 0
    print("ready", flush=True)
    if "WAIT" in os.environ:
        sys.stdin.readline()
    while not select.select([sys.stdin], [], [], pause)[0]:
        i += 1
        m, o = other if kind == "gan" and i % 2 else (model, optimizer)
        prepare(n + 1)
        forward(m, i)
        if (kind == "accumulate" and i % 3) or (kind == "skip" and i % 5 == 0):
            continue
        o.step()
        o.zero_grad()
        n += 1
        if n < start + 1000:
            print("step %d" % n, flush=True)


if __name__ == "__main__":
    main()

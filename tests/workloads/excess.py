# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
Small jobs with one fault each, for `diagnose`, and healthy ones that look alike. MODE:

    graded      evaluation without torch.no_grad(): each call throws its graph away
    ungraded    the same with it
    trained     training, and evaluation with torch.no_grad()
    checkpoint  a checkpoint stays next to the model that was loaded from it
    loaded      the same, and the checkpoint is dropped
    optimizers  an optimizer that is not used any more has state of the parameters, too
    retry       the cache is in pieces that are too small, so that the allocator gives it back (CUDA, 1 GiB)
    roomy       the same with a cache that fits (CUDA)

--device cuda works under `run --dry-run-cuda`. Prints "step N", and after --steps steps "done". --pause: seconds per step.
"""
import argparse
import time

import torch
from torch import nn

MIB = 1 << 20
kept = []


def model_on(device):
    return nn.Sequential(*(nn.Linear(256, 256) for _ in range(8))).to(device)


def evaluate(model, batch):
    return model(batch).argmax(1).sum().item()  # FAULT graded


def graded(device):
    model = model_on(device)
    return lambda i: evaluate(model, torch.ones(512, 256, device=device))


def ungraded(device):
    step = graded(device)

    def without(i):
        with torch.no_grad():
            step(i)

    return without


def trained(device):
    model = model_on(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)

    def step(i):
        optimizer.zero_grad()
        model(torch.ones(512, 256, device=device)).pow(2).mean().backward()
        optimizer.step()
        with torch.no_grad():
            evaluate(model, torch.ones(512, 256, device=device))

    return step


def train(model, optimizer):
    optimizer.zero_grad()
    model(torch.ones(8, 256, device=next(model.parameters()).device)).pow(2).mean().backward()
    optimizer.step()


def checkpoint(device):
    state = {"model": {k: v.clone() for k, v in model_on(device).state_dict().items()}, "step": 1}
    kept.append(state)
    model = model_on(device)
    model.load_state_dict(state["model"])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    return lambda i: train(model, optimizer)


def loaded(device):
    step = checkpoint(device)
    kept.clear()
    return step


def optimizers(device):
    model = model_on(device)
    first = torch.optim.AdamW(model.parameters(), lr=1e-4)
    train(model, first)
    kept.append(first)
    second = torch.optim.AdamW(model.parameters(), lr=1e-5)
    return lambda i: train(model, second)


def use(device, pieces, size):
    """Fills the cache with pieces, then takes one block."""
    parts = [torch.empty(piece, dtype=torch.uint8, device=device) for piece in pieces]
    del parts
    block = torch.empty(size, dtype=torch.uint8, device=device)  # FAULT retry
    del block


def retry(device):
    return lambda i: use(device, [20 * MIB] * 20, 600 * MIB)


def roomy(device):
    return lambda i: use(device, [600 * MIB], 600 * MIB)


MODES = {f.__name__: f for f in (graded, ungraded, trained, checkpoint, loaded, optimizers, retry, roomy)}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mode", choices=sorted(MODES))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--pause", type=float, default=0)
    args = parser.parse_args()
    one_step = MODES[args.mode](args.device)
    for n in range(args.steps):
        one_step(n)
        print("step %d" % n, flush=True)
        if args.pause:
            time.sleep(args.pause)
    if args.device != "cpu":
        print("retries %d" % torch.cuda.memory_stats()["num_alloc_retries"], flush=True)
    print("done", flush=True)

# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
A training job that knows the categories of its memory: parameters, buffers, gradients, optimizer state, inputs, and tensors
saved for backward. Its peak is in backward, with all of these live.

usage: categories.py DEVICE STEPS FILE [wait [own]]

Writes the sums of live memory at the peak to FILE as JSON, in blocks of the device's allocator. wait: after two steps, prints
its PID and waits for a line on standard input. own: the optimizer is no torch.optim.Optimizer.
"""
import json
import os
import sys
import time

import torch
import torch.nn.functional as F

DEVICE, STEPS, FILE = sys.argv[1], int(sys.argv[2]), sys.argv[3]
PEAK = 64 << 20  # larger than everything else, so that its allocation is the peak


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(256, 1024)
        self.norm = torch.nn.BatchNorm1d(1024)
        self.second = torch.nn.Linear(1024, 64)

    def forward(self, x):
        # At the peak in backward, only the second layer's gradients exist.
        return self.second(Peak.apply(torch.relu(self.norm(self.first(x)))))


class Peak(torch.autograd.Function):
    """Identity; in backward it notes the live memory, and allocates and frees the peak."""

    note = None

    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        if Peak.note:
            Peak.note()
            torch.empty(PEAK, dtype=torch.uint8, device=DEVICE)
        return grad


class Sum:
    def __init__(self, p):
        self.accumulated_grad = torch.zeros_like(p)


class OwnOptimizer:
    """As fastai's: its state belongs to parameters. It adds gradients up in attributes of its own, as FSDP does."""

    def __init__(self, parameters):
        self.parameters = list(parameters)
        self.state = {p: {"avg": torch.zeros_like(p)} for p in self.parameters}
        self.sums = [Sum(p) for p in self.parameters]

    def step(self):
        with torch.no_grad():
            for p, own in zip(self.parameters, self.sums):
                own.accumulated_grad.add_(p.grad)
                self.state[p]["avg"].mul_(0.9).add_(p.grad)
                p.sub_(self.state[p]["avg"], alpha=1e-3)

    def zero_grad(self, set_to_none):
        for p in self.parameters:
            p.grad = None


def storage(tensor):
    """PyTorch before 2.0 lacks untyped_storage()."""
    return tensor.untyped_storage() if hasattr(tensor, "untyped_storage") else tensor.storage()


def block(tensor):
    """Bytes of the block that holds a tensor's storage."""
    size = storage(tensor).nbytes()
    return (size + 511) // 512 * 512 if DEVICE != "cpu" else size


def blocks(tensors):
    return sum({storage(t).data_ptr(): block(t) for t in tensors if t.device.type == torch.device(DEVICE).type}.values())


def main():
    torch.manual_seed(1)
    torch.set_num_threads(1)
    model = Net().to(DEVICE)
    if "own" in sys.argv[4:]:
        optimizer = OwnOptimizer(model.parameters())
    else:
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False)
    saved, truth = [], {}

    def keep(tensor):
        saved.append(tensor)
        return tensor

    def note():
        own = [*model.parameters(), *model.buffers(), x, y]
        ours = {storage(t).data_ptr() for t in own}
        kept = [t for t in saved if storage(t).data_ptr() not in ours]
        truth.update({
            "parameter": blocks(model.parameters()), "buffer": blocks(model.buffers()),
            "gradient": blocks([*(p.grad for p in model.parameters() if p.grad is not None),
                                *(own.accumulated_grad for own in getattr(optimizer, "sums", ()))]),
            "optimizer_state": blocks(t for s in optimizer.state.values() for t in s.values() if torch.is_tensor(t)),
            "input": blocks((x, y)), "activation": blocks([*kept, out]), "temporary": PEAK,
        })
        if DEVICE != "cpu":
            truth["allocated"] = torch.cuda.memory_allocated() + PEAK

    for step in range(STEPS):
        if step == 2:
            time.sleep(1)  # about the length of a few real steps: the census runs meanwhile
        if step == 2 and "wait" in sys.argv[4:]:
            print("ready %d" % os.getpid(), flush=True)
            sys.stdin.readline()
        x, y = torch.randn(32, 256, device=DEVICE), torch.randint(64, (32,), device=DEVICE)
        optimizer.zero_grad(set_to_none=True)
        # Only the step in the middle is recorded completely, so the peak is there.
        Peak.note = note if step == STEPS // 2 else None
        saved.clear()
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda t: t):
            out = model(x)
        loss = F.cross_entropy(out, y)
        loss.backward()
        saved.clear()
        optimizer.step()
        if Peak.note:
            with open(FILE, "w", encoding="utf-8") as f:
                json.dump(truth, f)
    print("end", flush=True)


if __name__ == "__main__":
    main()

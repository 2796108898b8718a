# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Shared by the training scripts of this folder: options, the training loop, the allocator's figures at the end."""
import argparse
import contextlib
import json
import os
import sys

import torch

DTYPES = {"none": None, "bf16": torch.bfloat16, "fp16": torch.float16}


def options(doc, batch, **more):
    """A parser with the common options; more: name=default, for a script's own numbers."""
    p = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--steps", type=int, default=3)
    p.add_argument("--batch", type=int, default=batch)
    p.add_argument("--accumulate", type=int, default=1, help="batches a step")
    p.add_argument("--amp", choices=sorted(DTYPES), default="none", help="autocast to that; fp16 with a GradScaler")
    p.add_argument("--optimizer", choices=sorted(OPTIMIZERS), default="adamw")
    p.add_argument("--checkpoint", action="store_true", help="keep no activations within a block: compute them again in backward")
    p.add_argument("--clip", type=float, default=0, help="norm that gradients are clipped to; 0: they are not")
    for name, default in more.items():
        p.add_argument("--" + name.replace("_", "-"), type=type(default), default=default)
    return p


OPTIMIZERS = {
    "adamw": lambda p: torch.optim.AdamW(p, lr=1e-4),
    "adamw-fused": lambda p: torch.optim.AdamW(p, lr=1e-4, fused=True),
    "adamw-loop": lambda p: torch.optim.AdamW(p, lr=1e-4, foreach=False),
    "sgd": lambda p: torch.optim.SGD(p, lr=1e-2),
    "momentum": lambda p: torch.optim.SGD(p, lr=1e-2, momentum=0.9),
}


def tokens(args, length, vocab):
    """A batch as from a data loader: made on the host, then copied."""
    return torch.randint(vocab, (args.batch, length)).to("cuda")


def autocast(args):
    kind = DTYPES[args.amp]
    return torch.autocast("cuda", dtype=kind) if kind else contextlib.nullcontext()


def train(args, model, batch, loss_of):
    """The loop: loss_of(model, batch()) is differentiated, args.steps times."""
    optimizer = OPTIMIZERS[args.optimizer](model.parameters())
    scaler = torch.amp.GradScaler("cuda", enabled=args.amp == "fp16") if hasattr(torch.amp, "GradScaler") else \
        torch.cuda.amp.GradScaler(enabled=args.amp == "fp16")
    for _ in range(args.steps):
        for _ in range(args.accumulate):
            inputs = batch()
            with autocast(args):
                loss = loss_of(model, inputs) / args.accumulate
            scaler.scale(loss).backward()
        if args.clip:
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), args.clip)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)


def finish(model=None, **facts):
    """Prints the allocator's counters as the last line, and exits."""
    line = {"allocated": torch.cuda.max_memory_allocated(), "reserved": torch.cuda.max_memory_reserved(),
            "torch": torch.__version__, "device": torch.cuda.get_device_name(), "sm": "%d.%d" % torch.cuda.get_device_capability(),
            "total": torch.cuda.mem_get_info()[1], "retries": torch.cuda.memory_stats()["num_alloc_retries"]}
    # Memory of other libraries than the allocator: from the device's own figure, as nothing else runs on it.
    free, total = torch.cuda.mem_get_info()
    line["besides"] = total - free - torch.cuda.memory_reserved()
    if model is not None:
        line["parameters"] = sum(p.numel() for p in model.parameters())
    line.update(facts)
    print(json.dumps(line), flush=True)
    sys.stdout.flush()
    # An autograd thread that takes the GIL while Python ends can abort the process (pytorch issues 38228, 190489).
    if not os.environ.get("MEMTRACE_ESTIMATE_RETURN"):
        os._exit(0)

# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""A CUDA job for watching: training of a small GPT, one tensor on a second device, a list that grows by 1 MiB per step, a module
and a function whose names have control characters. Each line of input is a command: "go", "pause", "end". "pause" prints
PyTorch's view of its memory as JSON, and stops."""
import json
import select
import sys
import types

import torch
import torch.nn.functional as F

import gpt

HOSTILE = "own\x1b]0;owned\x07\x1b[2J\x9b31m\u202eed"


def named(function, name):
    changes = {"co_name": name, **({"co_qualname": name} if sys.version_info >= (3, 11) else {})}
    return types.FunctionType(function.__code__.replace(**changes), globals())


def keep(kept):
    kept.append(torch.empty(1 << 20, dtype=torch.uint8, device="cuda"))


def scratch():
    return torch.empty(3 << 20, dtype=torch.uint8, device="cuda")


def figures(steps):
    return {"allocated": torch.cuda.memory_allocated(), "reserved": torch.cuda.memory_reserved(), "peak": torch.cuda.max_memory_allocated(),
            "other": torch.cuda.memory_allocated(1), "steps": steps}


def main():
    torch.manual_seed(1)
    torch.backends.cuda.matmul.allow_tf32 = False
    model = gpt.GPT(256, 64, 4, 2, 32).cuda()
    model._modules[HOSTILE] = torch.nn.Linear(64, 64).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    hostile = named(scratch, HOSTILE)
    other = torch.ones(5 << 20, dtype=torch.uint8, device="cuda:1")
    kept, steps, running = [], 0, True
    print("ready", flush=True)
    while True:
        while select.select([sys.stdin], [], [], 0 if running else None)[0]:
            command = sys.stdin.readline().strip()
            if command in ("end", ""):
                return
            running = command == "go"
            if not running:
                torch.cuda.reset_peak_memory_stats()
                print("figures " + json.dumps(figures(steps)), flush=True)
        text = torch.randint(256, (4, 33)).cuda()
        F.cross_entropy(model(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten()).backward()
        model._modules[HOSTILE](torch.empty(256, 64, device="cuda"))
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        keep(kept)
        if len(kept) > 64:
            kept.clear()
        kept.append(hostile()) if steps % 8 == 0 else None
        other.add_(1)
        steps += 1
        if steps % 20 == 0:
            print("step %d" % steps, flush=True)


main()

# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
A job that trains as it is told by lines of its input, and logs its memory: logged.py [FIGURES.py [wandb]]. It prints "done N JSON"
after line N. With wandb it logs each step to W&B, with what figures.latest() says then. TORCH_PATH: a folder with PyTorch.

    step MIB    a step with that much temporary memory: PyTorch's own peak in it, and allocated and reserved bytes after it
    hold MIB    one more tensor that stays
    request MIB a phase with that much temporary memory, of which 1 MiB stays, without a call of a module
    latest      what figures.latest() of the module FIGURES.py says

torch >= 1.13, Python >= 3.8; on a GPU or in the dry run.
"""
import contextlib
import importlib.util
import json
import os
import sys

sys.path += os.environ.get("TORCH_PATH", "").split()  # after the packages of this Python
import torch  # noqa: E402

MIB = 1 << 20
held = []
phase = contextlib.nullcontext  # until main() has read phases.py, which is next to FIGURES.py


def module_of(path):
    spec = importlib.util.spec_from_file_location(os.path.basename(path)[:-3], path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def make_samples(model, mib):
    """The scope of the tests: its memory is its own, and one tensor of it stays until the step ends."""
    torch.empty(mib * MIB, dtype=torch.uint8, device="cuda")
    return torch.ones(64, 256, device="cuda")


def train_step(model, optimizer, mib):
    torch.cuda.reset_peak_memory_stats()
    loss = model(make_samples(model, mib)).sum()
    loss.backward()
    del loss
    with phase("update"):
        optimizer.step()
    told = {"peak": torch.cuda.max_memory_allocated(), "allocated": torch.cuda.memory_allocated(), "reserved": torch.cuda.memory_reserved()}
    optimizer.zero_grad(set_to_none=False)
    return told


def main():
    torch.set_num_threads(1)
    model = torch.nn.Linear(256, 256).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    module = None
    if len(sys.argv) > 1:
        global phase
        module = module_of(sys.argv[1])
        phase = module_of(os.path.join(os.path.dirname(sys.argv[1]), "phases.py")).phase
    run = None
    if sys.argv[2:] == ["wandb"]:
        import wandb
        run = wandb.init(project="memory", name="job")
    train_step(model, optimizer, 1)
    print("ready", flush=True)
    for n, line in enumerate(sys.stdin):
        word, *mib = line.split()
        told = {}
        if word == "step":
            told = train_step(model, optimizer, int(mib[0]))
            if run:
                run.log({"loss": n, **module.latest()})
        elif word == "hold":
            held.append(torch.empty(int(mib[0]) * MIB, dtype=torch.uint8, device="cuda"))
        elif word == "request":
            with phase("request"):
                torch.cuda.reset_peak_memory_stats()
                torch.empty(int(mib[0]) * MIB, dtype=torch.uint8, device="cuda")
                held.append(torch.empty(MIB, dtype=torch.uint8, device="cuda"))
                told = {"peak": torch.cuda.max_memory_allocated(), "reserved": torch.cuda.max_memory_reserved()}
        elif word == "latest":
            told = module.latest()
        print("done", n + 1, json.dumps(told), flush=True)
    if run:
        run.finish()


main()

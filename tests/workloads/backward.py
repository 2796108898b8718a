# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
Jobs whose backward is known node by node: the line of forward that made each node, from PyTorch's anomaly mode, and the time it
ran, as marks in the stream of allocations. torch >= 2.1, Python >= 3.8.

A mark is an allocation of an odd number of bytes, which the jobs never make: 4 * N + 1 when node N begins to run, 4 * N + 3 when
it has ended. Hooks of the node make both. --truth receives the nodes as JSON lines. With modules(), calls of modules have
numbers and marks of the same kind.
"""
import argparse
import inspect
import json
import os
import re
import signal
import sys
import threading

import torch
import torch.fx.traceback
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

KEPT = []  # models, to the end of the process
PLACE = re.compile(r'File "(.*)", line (\d+), in (.*)')


class Truth:
    def __init__(self, path):
        self.out = open(path, "w", encoding="utf-8")
        self.n = 0
        self.attached = False
        self.names = {}  # names of parameters, by id
        self.calls = threading.local()
        self.backward = torch.autograd.backward
        torch.autograd.backward = self
        torch.fx.traceback.format_stack = self.stack  # anomaly mode calls this when a node is made

    def __call__(self, tensors, *args, **kwargs):
        for tensor in [tensors] if torch.is_tensor(tensors) else tensors:
            self.follow(tensor.grad_fn)
        return self.backward(tensors, *args, **kwargs)

    def follow(self, root):
        nodes, seen = [root], set()
        while nodes:
            node = nodes.pop()
            if node is None or node in seen:
                continue
            seen.add(node)
            nodes += [n for n, _ in node.next_functions]
            if "mark" not in node.metadata:
                self.mark(node)

    def stack(self):
        """As traceback.format_stack() without the text of lines, with a line for the module and one for the time."""
        lines, frame = [], sys._getframe().f_back
        while frame:
            lines.append('File "%s", line %d, in %s' % (frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name))
            frame = frame.f_back
        return [json.dumps([self.inside()[-1:], self.attached])] + lines[::-1]

    def tell(self, **what):
        self.n += 1
        self.out.write(json.dumps(dict(what, node=self.n)) + "\n")
        return self.n

    def mark(self, node):
        lines = node.metadata.get("traceback_") or ()
        frames = [PLACE.search(s) for s in lines]
        module, attached = json.loads(lines[0]) if lines else ([], False)
        parent = node.metadata.get("parent_")
        n = node.metadata["mark"] = self.tell(**{
            "class": node.name().rpartition("::")[2], "frames": [[f[1], int(f[2]), f[3]] for f in frames if f][::-1][:8],
            "modules": module[0] if module else None, "attached": attached,
            "parent": parent.metadata.get("mark") if parent is not None else None,
            "parameter": self.names.get(id(getattr(node, "variable", None)))})
        node.register_prehook(lambda *_: mark(4 * n + 1))
        node.register_hook(lambda *_: mark(4 * n + 3))

    def inside(self):
        """Names of the modules active on this thread, outermost first; a module has all names that lead to it."""
        if not hasattr(self.calls, "names"):
            self.calls.names = []
        return self.calls.names

    def modules(self, model):
        """Records calls of the model's modules from now on; `model` has the names, also if it is wrapped."""
        names = {}
        for name, module in model.named_modules(remove_duplicate=False):
            names.setdefault(module, []).append(name)
        for module, all_names in names.items():
            self.follow_calls(module, all_names)
        self.names.update((id(p), name) for name, p in model.named_parameters())

    def follow_calls(self, module, names):
        n = self.tell(call=names, of=type(module).__name__)

        def enter(*_):
            self.inside().append(names)
            mark(4 * n + 1)

        def leave(*_):
            mark(4 * n + 3)
            self.inside().pop()
        hook(module.register_forward_pre_hook, enter, prepend=True)
        hook(module.register_forward_hook, leave, always_call=True)


def hook(register, function, **options):
    """Passes the options that this PyTorch supports: prepend came with 2.0, always_call with 2.1."""
    known = inspect.signature(register).parameters
    register(function, **{k: v for k, v in options.items() if k in known})


def mark(size):
    torch.empty(size, dtype=torch.uint8)


# ---- models -----------------------------------------------------------------------------------------------

class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad):
        x, = ctx.saved_tensors
        return 2 * x * grad  # two allocations with separate lines


class Fails(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        scratch = grad * 3
        raise ValueError("as it is meant to: %d" % scratch.numel())


def gpt(device):
    from model import GPT
    model = GPT(256, width=64, heads=2, layers=2, context=32).to(device)
    def step():
        tokens = torch.randint(0, 256, (4, 32), device=device)
        logits = model(tokens)
        F.cross_entropy(logits.reshape(-1, logits.shape[-1]), tokens.reshape(-1)).backward()
    return model, step


def encoder(device):
    layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
    model = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False).to(device).train()
    def step():
        model(torch.randn(8, 16, 64, device=device)).pow(2).mean().backward()
    return model, step


class Mixed(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(4, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.lstm = nn.LSTM(64, 32)
        self.out = nn.Linear(32, 32)
        self.stages = nn.ModuleList(nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32)) for _ in range(2))

    def forward(self, x):
        x = F.relu(self.norm(self.conv(x)), inplace=True)
        x = Square.apply(x) + x
        x, _ = self.lstm(x.flatten(2))
        x = F.dropout(x, 0.25)
        x = x.clone()
        x[:, ::2] = torch.sigmoid(x[:, 1::2])  # CopySlices
        view = x[1:]
        view.mul_(2)  # in place on a view
        x = self.out(x)
        x = checkpoint(self.stages[0], x, use_reentrant=True)
        x = checkpoint(self.stages[1], x, use_reentrant=False)
        return torch.cat([x, x.exp().log1p()]).var()


def mixed(device):
    model = Mixed().to(device)
    def step():
        model(torch.randn(4, 4, 8, 8, device=device)).backward()
    return model, step


def exceptions(device):
    model = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 64)).to(device)
    count = 0
    def step():
        nonlocal count
        count += 1
        x = model(torch.randn(32, 64, device=device))
        if count % 2:
            x = Fails.apply(x)
        try:
            (x * x).sum().backward()
        except ValueError:
            pass
        torch.ones(32, 65, device=device).add_(1)  # no node runs here
    return model, step


def again(device):
    model = nn.Sequential(nn.Linear(64, 64), nn.Softplus(), nn.Linear(64, 64)).to(device)
    def step():
        loss = model(torch.randn(32, 64, device=device)).pow(2).mean()
        loss.backward(retain_graph=True)
        loss.backward()
        y = model(torch.randn(32, 64, device=device, requires_grad=True)).tanh().sum()
        y.backward(create_graph=True)
        sum(p.grad.pow(2).sum() for p in model.parameters()).backward()
    return model, step


class Sizes(nn.Module):
    """Sizes of backward's allocations identify the line of forward."""

    def __init__(self):
        super().__init__()
        widths = (31, 37, 41, 43, 47, 53, 59)
        self.a, self.b, self.c, self.d, self.e, self.f = (nn.Linear(i, o) for i, o in zip(widths, widths[1:]))

    def forward(self, x):
        x = self.a(x)
        x = self.b(x)
        x = self.c(x)
        x = self.d(x)
        x = self.e(x)
        return self.f(x)


def sizes(device):
    model = Sizes().to(device)
    def step():
        for _ in range(20):
            model(torch.randn(61, 31, device=device, requires_grad=True)).sum().backward()
    return model, step


def cloned(device):
    conv = nn.Conv2d(3, 192, 16, 16).to(device)
    def step():
        x = torch.randn(16, 3, 64, 64, device=device).contiguous(memory_format=torch.channels_last)
        out = conv(x)  # LINE cloned
        out.mean().backward()
    return conv, step


JOBS = {f.__name__: f for f in (gpt, encoder, mixed, exceptions, again, sizes, cloned)}


def train(name, args, truth, ended):
    """Steps of one job; keeps named objects, so that no address is reused."""
    model, step = JOBS[name](args.device)
    if truth:
        truth.modules(model)
    optimizer = torch.optim.AdamW(model.parameters())
    steps = 0
    while not ended and (not args.steps or steps < args.steps):
        optimizer.zero_grad(set_to_none=True)
        step()
        optimizer.step()
        steps += 1
        if steps in (2, 10):
            print("step %d" % steps, flush=True)
    return model


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("jobs", help="one, or some with commas: %s" % ", ".join(JOBS))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--steps", type=int, default=0, help="of each job; 0: until SIGTERM")
    parser.add_argument("--truth", help="say what ran in this file, and mark it; else neither")
    parser.add_argument("--wait", action="store_true", help="begin, and end, when standard input has a line")
    args = parser.parse_args()
    ended = []
    signal.signal(signal.SIGTERM, lambda *_: ended.append(True))
    torch.manual_seed(1)
    torch.set_num_threads(1)
    if args.truth:
        torch.autograd.set_detect_anomaly(True, check_nan=False)
    truth = Truth(args.truth) if args.truth else None
    print("ready", flush=True)
    if args.wait:
        sys.stdin.readline()
    KEPT.extend(train(name, args, truth, ended) for name in args.jobs.split(","))
    if truth:
        truth.out.close()
    print("done %d" % len(KEPT), flush=True)
    if args.wait:
        sys.stdin.readline()


if __name__ == "__main__":
    main()

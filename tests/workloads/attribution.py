# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
Training jobs that know the owner of their memory: line and module of each autograd node (backward.py), and the role of each
block that is live at a moment in the middle (dump.py). torch >= 2.4.

usage: attribution.py JOB DEVICE NODES [--live FILE --at between|backward]

The nodes are written to NODES. With --live the job stops after some steps, between two steps or in the middle of a backward,
writes the live blocks to FILE, prints "paused" and continues after the next line on standard input.
"""
import argparse
import json
import math
import os
import sys
import warnings

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import backward as marked  # noqa: E402
import dump  # noqa: E402
from dump import RMSNorm  # noqa: E402
from model import GPT  # noqa: E402
from resnet18 import ResNet18  # noqa: E402

warnings.simplefilter("ignore")
WIDTH, VOCAB, CONTEXT = 64, 256, 32
DEVICE = "cpu"
TRUTH = None
KEEP = []


class Job:
    """A model with the names, the object to call, its optimizer."""

    def __init__(self, model, called=None, optimizer=torch.optim.AdamW, follow=True, **options):
        self.model, self.called = model, called if called is not None else model
        self.optimizer = optimizer(model.parameters(), lr=1e-3, **options)
        if follow:
            TRUTH.modules(model)

    def forward(self):
        tokens = torch.randint(0, VOCAB, (4, CONTEXT), device=DEVICE)
        logits = self.called(tokens)
        return F.cross_entropy(logits.reshape(-1, VOCAB), tokens.reshape(-1))

    def backward(self):
        self.forward().backward()

    def step(self):
        self.optimizer.zero_grad(set_to_none=True)
        self.backward()
        self.optimizer.step()


def small_gpt():
    return GPT(VOCAB, width=WIDTH, heads=2, layers=2, context=CONTEXT).to(DEVICE)


def gpt():
    return Job(small_gpt())


class Images(Job):
    def forward(self):
        images = torch.randn(2, 3, 64, 64, device=DEVICE)
        return F.cross_entropy(self.called(images), torch.randint(0, 10, (2,), device=DEVICE))


def resnet():
    return Images(ResNet18(10, 8).to(DEVICE), optimizer=torch.optim.SGD, momentum=0.9)


class Checkpointed(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = small_gpt()

    def forward(self, ids):
        inner = self.inner
        x = inner.tokens(ids) + inner.positions(torch.arange(ids.shape[1], device=ids.device))
        for i, block in enumerate(inner.blocks):
            x = checkpoint(block, x, use_reentrant=i % 2 == 0)
        return inner.head(inner.norm(x))


def checkpointed():
    return Job(Checkpointed())


class Amp(Job):
    def __init__(self, model):
        super().__init__(model)
        self.scaler = torch.amp.GradScaler(DEVICE, init_scale=64.0)

    def step(self):
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast(DEVICE, dtype=torch.bfloat16):
            loss = self.forward()
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()


def amp():
    return Amp(small_gpt())


def ddp():
    dump.group()
    model = small_gpt()
    return Job(model, nn.parallel.DistributedDataParallel(model))


def fsdp2():
    dump.group()
    from torch.distributed.fsdp import fully_shard
    model = small_gpt()
    mesh = torch.distributed.device_mesh.init_device_mesh(DEVICE, (1,))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return Job(model)


class Swish(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx, grad):
        x, = ctx.saved_tensors
        s = torch.sigmoid(x)
        return grad * (s + x * s * (1 - s))


class Activation(nn.Module):
    def forward(self, x):
        return Swish.apply(x)


def function():
    model = small_gpt()
    for block in model.blocks:
        block.mlp.act = Activation()
    return Job(model)


class Compiled(Job):
    """Inner modules have no calls of their own: only the outer module is known."""

    def forward(self):
        tokens = torch.randint(0, VOCAB, (4, CONTEXT), device=DEVICE)
        TRUTH.inside().append([""])
        logits = self.called(tokens)
        TRUTH.inside().pop()
        return F.cross_entropy(logits.reshape(-1, VOCAB), tokens.reshape(-1))


def compiled(backend):
    model = small_gpt()
    TRUTH.names.update((id(p), name) for name, p in model.named_parameters())
    return Compiled(model, torch.compile(model, backend=backend), follow=False)


def compiled_eager():
    return compiled("eager")


def compiled_aot():
    return compiled("aot_eager")


def compiled_inductor():
    return compiled("inductor")


class GroupedAttention(nn.Module):
    def __init__(self, width, heads, groups):
        super().__init__()
        self.heads, self.groups, self.size = heads, groups, width // heads
        self.q_proj, self.o_proj = (nn.Linear(width, width, bias=False) for _ in range(2))
        self.k_proj, self.v_proj = (nn.Linear(width, groups * self.size, bias=False) for _ in range(2))
        angles = torch.outer(torch.arange(CONTEXT), 1e4 ** (-torch.arange(0, self.size, 2) / self.size))
        self.register_buffer("cos", angles.cos().repeat(1, 2), persistent=False)
        self.register_buffer("sin", angles.sin().repeat(1, 2), persistent=False)

    def rotate(self, x):
        first, second = x.chunk(2, -1)
        return x * self.cos + torch.cat((-second, first), -1) * self.sin

    def forward(self, x):
        b, t, c = x.shape
        q = self.rotate(self.q_proj(x).view(b, t, self.heads, -1).transpose(1, 2))
        k = self.rotate(self.k_proj(x).view(b, t, self.groups, -1).transpose(1, 2))
        v = self.v_proj(x).view(b, t, self.groups, -1).transpose(1, 2)
        k, v = (y.repeat_interleave(self.heads // self.groups, 1) for y in (k, v))
        scores = q @ k.transpose(-2, -1) / math.sqrt(self.size)
        y = scores.softmax(-1) @ v
        return self.o_proj(y.transpose(1, 2).reshape(b, t, c))


class SwiGLU(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.gate_proj, self.up_proj = (nn.Linear(width, 3 * width, bias=False) for _ in range(2))
        self.down_proj = nn.Linear(3 * width, width, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class LlamaLayer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.input_layernorm, self.post_attention_layernorm = RMSNorm(width), RMSNorm(width)
        self.self_attn, self.mlp = GroupedAttention(width, 4, 2), SwiGLU(width)

    def forward(self, x):
        x = x + self.self_attn(self.input_layernorm(x))
        return x + self.mlp(self.post_attention_layernorm(x))


class Llama(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed_tokens = nn.Embedding(VOCAB, WIDTH)
        self.layers = nn.ModuleList(LlamaLayer(WIDTH) for _ in range(2))
        self.norm = RMSNorm(WIDTH)
        self.lm_head = nn.Linear(WIDTH, VOCAB, bias=False)

    def forward(self, ids):
        x = self.embed_tokens(ids)
        for layer in self.layers:
            x = layer(x)
        return self.lm_head(self.norm(x))


def llama():
    return Job(Llama().to(DEVICE))


class Accumulating(Job):
    def backward(self):
        for _ in range(3):
            (self.forward() / 3).backward()


def accumulation():
    return Accumulating(small_gpt())


class Penalty(Job):
    """The gradient's norm is part of the loss."""

    def backward(self):
        x = torch.randn(32, 64, device=DEVICE, requires_grad=True)
        loss = self.called(x).pow(2).mean()
        loss.backward(create_graph=True)
        penalty = x.grad.pow(2).sum() + sum(p.grad.pow(2).sum() for p in self.model.parameters())
        penalty.backward()
        for p in self.model.parameters():
            p.grad = p.grad.detach()


def second_derivative():
    return Penalty(nn.Sequential(nn.Linear(64, 96), nn.Softplus(), nn.Sequential(nn.Linear(96, 64), nn.Tanh())).to(DEVICE))


JOBS = {f.__name__: f for f in (gpt, resnet, checkpointed, amp, ddp, fsdp2, function, compiled_eager, compiled_aot, compiled_inductor,
                                llama, accumulation, second_derivative)}


# ---- live blocks ------------------------------------------------------------------------------------------

def tell_live(job, path, roots):
    dump.GRAPHS[:] = roots
    with open(path, "w", encoding="utf-8") as f:
        json.dump(dump.truth([job.model], [job.optimizer]), f)
    dump.GRAPHS.clear()


class Pause:
    """Pauses once, at the requested moment."""

    def __init__(self, job, path, at):
        self.job, self.path, self.at, self.roots, self.left = job, path, at, [], 0

    def now(self, *_):
        tell_live(self.job, self.path, self.roots)
        self.roots = []
        print("paused", flush=True)
        sys.stdin.readline()
        TRUTH.attached = True

    def between(self):
        if self.at == "between":
            self.now()

    def in_backward(self):
        """Makes the next backward stop when half of the parameters have gradients."""
        if self.at != "backward":
            return
        seen = []
        parameters = [p for p in self.job.model.parameters() if p.requires_grad]
        backward = TRUTH.backward

        def start(tensors, *args, **kwargs):
            self.roots = [tensors] if torch.is_tensor(tensors) else list(tensors)
            TRUTH.backward = backward
            return backward(tensors, *args, **kwargs)

        def count(*_):
            seen.append(True)
            if len(seen) == len(parameters) // 2:
                self.now()
            if len(seen) >= len(parameters) // 2:
                for h in handles:
                    h.remove()
        TRUTH.backward = start
        handles = [p.register_post_accumulate_grad_hook(count) for p in parameters]


def main():
    global DEVICE, TRUTH
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("job", choices=JOBS)
    parser.add_argument("device")
    parser.add_argument("nodes")
    parser.add_argument("--live")
    parser.add_argument("--at", choices=("between", "backward"), default="between")
    parser.add_argument("--steps", type=int, default=3, help="before and after the pause")
    args = parser.parse_args()
    DEVICE = dump.DEVICE = args.device
    torch.manual_seed(1)
    torch.set_num_threads(1)
    torch.autograd.set_detect_anomaly(True, check_nan=False)
    TRUTH = marked.Truth(args.nodes)
    job = JOBS[args.job]()
    KEEP.append(job)
    for _ in range(args.steps):
        job.step()
    if args.live:
        pause = Pause(job, args.live, args.at)
        pause.between()
        pause.in_backward()
        for _ in range(args.steps):
            job.step()
    TRUTH.out.close()
    print("done", flush=True)
    sys.stdout.flush()
    os._exit(0) if args.job in ("ddp", "fsdp2") else None


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Models and optimizers of many kinds, one per run: dump.py KIND DEVICE FILE. Writes the role of each tensor to FILE, as PyTorch
itself knows it, prints "ready", then obeys lines on standard input ("train", "worst", "stop"; "train SECONDS": with such a pause
after each step)."""
import gc
import json
import os
import sys
import threading
import time
import warnings

import torch
from torch import nn

warnings.simplefilter("ignore")
DEVICE = "cpu"
KEEP, GRAPHS, VARIABLES = [], [], {}  # GRAPHS: tensors with live graphs; VARIABLES: by name
KEPT = None


# ---- models -----------------------------------------------------------------------------------------------

class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self.register_buffer("mask", torch.tril(torch.ones(32, 32)))

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (y.view(b, t, self.heads, -1).transpose(1, 2) for y in self.qkv(x).split(c, 2))
        a = (q @ k.transpose(-2, -1)).masked_fill(self.mask[:t, :t] == 0, -1e9).softmax(-1)
        return self.proj((a @ v).transpose(1, 2).reshape(b, t, c))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn = Attention(width, heads)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        x = x + self.attn(self.ln1(x))
        return x + self.mlp(self.ln2(x))


class GPT(nn.Module):
    """With the embedding tied to the head, as in GPT-2."""

    def __init__(self, width=64, layers=3, heads=4, tied=True):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(100, width), nn.Embedding(32, width)
        self.blocks = nn.ModuleList([Block(width, heads) for _ in range(layers)])
        self.head = nn.Linear(width, 100, bias=False)
        if tied:
            self.head.weight = self.wte.weight

    def forward(self, idx):
        x = self.wte(idx) + self.wpe.weight[:idx.shape[1]]
        for b in self.blocks:
            x = b(x)
        return self.head(x)


class RMSNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight


class LlamaLayer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.q_proj, self.k_proj = nn.Linear(width, width, bias=False), nn.Linear(width, width // 2, bias=False)
        self.gate_proj, self.up_proj = nn.Linear(width, 96, bias=False), nn.Linear(width, 96, bias=False)
        self.down_proj = nn.Linear(96, width, bias=False)
        self.input_layernorm = RMSNorm(width)
        self.kv_cache = None

    def forward(self, x):
        h = self.input_layernorm(x)
        self.kv_cache = self.k_proj(h).detach()
        h = self.q_proj(h)
        return x + self.down_proj(nn.functional.silu(self.gate_proj(h)) * self.up_proj(h))


class Llama(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.embed_tokens = nn.Embedding(100, width)
        self.layers = nn.ModuleList([LlamaLayer(width) for _ in range(3)])
        self.norm = RMSNorm(width)
        self.register_buffer("inv_freq", torch.rand(width // 2), persistent=False)

    def forward(self, idx):
        x = self.embed_tokens(idx)
        for layer in self.layers:
            x = layer(x)
        return self.norm(x)


def tokens():
    return torch.randint(0, 100, (2, 16), device=DEVICE)


def step(model, opt, *args):
    opt.zero_grad()
    model(*args).float().sum().backward()
    opt.step()


# ---- kinds: each keeps its objects, and returns ([(model, "")], [optimizer], one step) -----------------------------

def gpt():
    model = GPT().to(DEVICE)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    return [model], [opt], lambda: step(model, opt, tokens())


def llama():
    """In bfloat16, with tensors in plain attributes; SGD with momentum."""
    model = Llama().to(DEVICE).to(torch.bfloat16)
    opt = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    return [model], [opt], lambda: step(model, opt, tokens())


def shared():
    """Nested modules, one of them at two places; two models, one of them frozen; batch norm."""
    inner = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8))
    a = nn.ModuleDict({"x": nn.Sequential(inner, nn.Sequential(inner, nn.Linear(8, 4)))}).to(DEVICE)
    b = nn.Sequential(nn.Conv1d(3, 5, 2), nn.BatchNorm1d(5)).to(DEVICE).requires_grad_(False)
    opt = torch.optim.Adam(a.parameters(), amsgrad=True)
    return [a, b], [opt], lambda: step(a["x"], opt, torch.rand(4, 8, device=DEVICE))


def parametrized():
    """Parametrizations, a subclass of Parameter's use, LBFGS with its lists of tensors."""
    model = nn.Sequential(nn.Linear(8, 6), nn.Linear(6, 6)).to(DEVICE)
    nn.utils.parametrize.register_parametrization(model[0], "weight", Symmetric())
    nn.utils.parametrizations.orthogonal(model[1])
    opt = torch.optim.LBFGS(model.parameters(), max_iter=3, history_size=4)

    def closure():
        opt.zero_grad()
        loss = model(torch.ones(4, 8, device=DEVICE)).pow(2).sum()
        loss.backward()
        return loss
    return [model], [opt], lambda: opt.step(closure)


class Symmetric(nn.Module):
    def forward(self, w):
        return w * 2


def loose():
    """Parameters outside of modules, and a tensor as learning rate."""
    latents = [torch.rand(5, i + 2, device=DEVICE, requires_grad=True) for i in range(4)]
    KEEP.append(latents)
    opt = torch.optim.Adagrad([{"params": latents[:1]}, {"params": latents[1:]}], lr=0.1)

    def one():
        opt.zero_grad()
        sum(x.sum() for x in latents).backward()
        opt.step()
    return [], [opt], one


def frozen():
    """gc.freeze(): the collector's generations are empty."""
    got = gpt()
    got[2]()
    gc.freeze()
    return got


def compiled():
    """Wrapped by torch.compile, whose module name differs from the program's; never run."""
    model = GPT(tied=False).to(DEVICE)
    KEEP.append(torch.compile(model))
    opt = torch.optim.AdamW(model.parameters())
    return [model], [opt], lambda: step(model, opt, tokens())


def traced():
    """A traced graph holds the model's parameters under other names."""
    model = nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 2)).to(DEVICE)
    KEEP.append(torch.fx.symbolic_trace(model))
    opt = torch.optim.Adam(model.parameters())
    return [model], [opt], lambda: step(model, opt, torch.rand(3, 8, device=DEVICE))


def group():
    from torch import distributed as dist
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    return dist


def ddp():
    group()
    model = GPT(tied=False).to(DEVICE)
    wrapped = nn.parallel.DistributedDataParallel(model)
    opt = torch.optim.AdamW(wrapped.parameters())
    return [model], [opt], lambda: step(wrapped, opt, tokens())


def fsdp2():
    group()
    from torch.distributed.fsdp import fully_shard
    model = GPT(tied=False).to(DEVICE)
    mesh = torch.distributed.device_mesh.init_device_mesh(DEVICE, (1,))
    for b in model.blocks:
        fully_shard(b, mesh=mesh)
    fully_shard(model, mesh=mesh)
    opt = torch.optim.AdamW(model.parameters())
    return [model], [opt], lambda: step(model, opt, tokens())


class Exp(torch.autograd.Function):
    """Keeps its result, with no other reference to it."""

    @staticmethod
    def forward(ctx, x):
        y = x.exp()
        ctx.save_for_backward(y)
        return y * 1

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.saved_tensors[0]


def saved():
    """Between forward and backward: saved tensors, most of them without a Python object."""
    got = gpt()
    got[2]()
    x = Exp.apply(got[0][0](tokens()))
    frozen = torch.rand(100, device=DEVICE, requires_grad=True)
    x = nn.functional.dropout(x, 0.5).softmax(-1).tanh().exp() * frozen.view(10, 10).t().reshape(-1)
    GRAPHS.append(x.sum())
    KEEP.append(frozen.view(10, 10))
    return got


def hold(batch, ready):
    mask = torch.ones(7, 7, device=DEVICE)
    shared = torch.ones(5, device=DEVICE)  # no unique name: an inner function has the same name
    where = " in hold (dump.py:%d)" % hold.__code__.co_firstlineno
    VARIABLES.update({"local batch" + where: batch, "local mask" + where: mask, "global KEPT": KEPT, "": shared})
    ready.set()
    (lambda: shared)()
    threading.Event().wait()


def churn():
    """Variables whose objects and memory change all the time; the number of elements identifies each."""
    for i in range(61):
        a, b = torch.empty(1000, device=DEVICE), torch.empty(2000, device=DEVICE)
        if i % 3:
            del a
        c = torch.empty(3000, device=DEVICE)
        if i % 2:
            del b, c
        a = torch.empty(1000, device=DEVICE)
        b = torch.empty(2000, device=DEVICE)
        c = torch.empty(3000, device=DEVICE)
        if i % 30 == 0:
            time.sleep(0.5)  # pauses longer than a census from time to time
        del a, b, c


def frames():
    """Tensors in variables of running functions and of the main module."""
    global KEPT
    got, ready = gpt(), threading.Event()
    got[2]()
    KEPT = torch.rand(11, device=DEVICE)
    threading.Thread(target=hold, args=(torch.rand(3, 9, device=DEVICE), ready), daemon=True).start()
    ready.wait()
    return got[0], got[1], churn


def many():
    """A million Python objects and some ten thousand tensors."""
    got = gpt()
    KEEP.append([[i] for i in range(900000)])
    KEEP.append([torch.empty(3, device=DEVICE) for _ in range(10000)])
    return got


# ---- expected roles ---------------------------------------------------------------------------------------

def local(t):
    return getattr(t, "_local_tensor", t)


def storage(t):
    return t.untyped_storage() if hasattr(t, "untyped_storage") else t.storage()  # before 2.0


ORDER = ("parameter", "buffer", "gradient", "optimizer_state", "kv_cache", "activation", "unknown")


class Truth:
    def __init__(self):
        self.at = {}

    def add(self, t, name, category):
        t = local(t)
        try:
            s = storage(t)
            addr, size = s.data_ptr(), s.nbytes()
        except (RuntimeError, NotImplementedError):
            return
        if not addr or not size or t.device.type == "meta":
            return
        index = t.device.index or 0
        key = "%s %d" % ("cpu" if t.device.type == "cpu" else "%s:%d" % (t.device.type, index), addr)
        old = self.at.get(key)
        if old and category == old["category"] and name and name not in old["all"]:
            old["all"].append(name)
            old["name"] = "%s and %d more" % (old["all"][0], len(old["all"]) - 1)
        if not old or ORDER.index(category) < ORDER.index(old["category"]):
            self.at[key] = {"name": name, "all": [name], "address": addr, "category": category, "size": size, "dtype": str(t.dtype)[6:], "shape": list(t.shape)}

    def state(self, value, what, of):
        if isinstance(value, torch.Tensor):
            self.add(value, what + of, "optimizer_state")
        elif isinstance(value, (list, tuple)):
            for i, v in enumerate(value):
                self.state(v, "%s[%d]" % (what, i), of)


    def node(self, node):
        """Tensors saved by a node. If several nodes save a tensor, any of them may be reported."""
        try:
            kept = [(a, getattr(node, a)) for a in dir(node) if a.startswith("_saved_")]
            kept += [("", x) for x in getattr(node, "saved_tensors", ())]
        except RuntimeError:  # the node has run, and saves nothing any more
            return
        for attribute, x in kept:
            if not isinstance(x, torch.Tensor):
                continue
            base = x._base if x._base is not None else x
            made = not (base.is_leaf and base.requires_grad) and (x.grad_fn is not None or attribute.startswith("_saved_result"))
            self.add(x, "", "unknown")
            try:
                address = storage(x).data_ptr()
            except (RuntimeError, NotImplementedError):  # a compiler's node has none
                continue
            for at in self.at.values():
                if at["address"] != address or at["category"] not in ("unknown", "activation") or at["name"]:
                    continue
                at.setdefault("any", []).append("saved for " + node.name())
                at["category"] = "activation" if made else at["category"]

    def held(self, value, path):
        """Tensors in lists of the main module may be reported by the list; very large lists only in part."""
        if isinstance(value, (list, tuple)):
            for v in value:
                self.held(v, path + "[*]")
        elif isinstance(value, torch.Tensor):
            try:
                address = storage(local(value)).data_ptr()
            except (RuntimeError, NotImplementedError):
                return
            for device in ("cpu", "cuda:0"):
                at = self.at.get("%s %d" % (device, address))
                if at and not at["name"]:
                    at.setdefault("held", []).append(path)

    def graph(self, nodes):
        todo, seen = list(nodes), set()
        while todo:
            node = todo.pop()
            if node is None or node in seen:
                continue
            seen.add(node)
            todo += [next_node for next_node, _ in node.next_functions]
            self.node(node)


def truth(models, opts):
    t, names = Truth(), {}
    frozen_objects = gc.get_freeze_count()
    gc.unfreeze()  # otherwise get_objects() omits them
    for m in models:
        for name, p in m.named_parameters():
            t.add(p, name, "parameter")
            names[id(p)] = name
    for m in models:
        for name, b in m.named_buffers():
            t.add(b, name, "buffer")
    for o in opts:
        for g, one in enumerate(o.param_groups):
            for i, p in enumerate(one["params"]):
                if id(p) not in names:
                    names[id(p)] = "%s param_groups[%d].params[%d]" % (type(o).__name__, g, i)
                    t.add(p, names[id(p)], "parameter")
    objects = [x for x in gc.get_objects() if issubclass(type(x), torch.Tensor)]
    for x in [p for m in models for p in m.parameters()] + objects:
        if x.is_leaf and x.grad is not None:
            t.add(x.grad, "grad of " + names[id(x)] if id(x) in names else "", "gradient")
    for o in opts:
        for p, s in o.state.items():
            for key, value in s.items():
                t.state(value, "%s %s" % (type(o).__name__, key), " of " + names[id(p)])
    for m in models:
        for prefix, module in m.named_modules():
            for key, value in vars(module).items():
                if isinstance(value, torch.Tensor):
                    t.add(value, prefix + "." * bool(prefix) + key, "kv_cache" if key == "kv_cache" else "unknown")
    for name, x in VARIABLES.items():
        t.add(x, name, "unknown")
    for x in objects:
        t.add(x, "", "unknown")
    nodes = [x.grad_fn for x in objects + GRAPHS]
    del objects, x
    VARIABLES.clear()
    t.held(KEEP, "global KEEP")
    t.held(GRAPHS, "global GRAPHS")
    t.graph(nodes)
    del nodes
    gc.collect()
    if frozen_objects:
        gc.freeze()
    return t.at


def main():
    global DEVICE
    kind, DEVICE, path = sys.argv[1:4]
    torch.manual_seed(0)
    models, opts, one = globals()[kind]()
    for _ in range(0 if GRAPHS else 2):
        one()
    KEEP.append((models, opts))
    with open(path, "w", encoding="utf-8") as f:
        json.dump(truth(models, opts), f)
    print("ready", flush=True)
    stop, worst, steps = threading.Event(), [0.0], [0]

    def train(pause):
        while not stop.is_set():
            begin = time.monotonic()
            one()
            worst[0] = max(worst[0], time.monotonic() - begin)
            steps[0] += 1
            if pause:
                time.sleep(pause)
    thread = None
    for line in sys.stdin:
        if line.startswith("train"):
            stop.clear()
            thread = threading.Thread(target=train, args=(float(line[5:].strip() or 0),))
            thread.start()
        elif line.strip() == "worst":  # the longest step and the number of steps since the last "worst"
            worst[0], steps[0] = 0.0, 0
        elif line.strip() == "stop":
            stop.set()
            thread.join()
        print("did %s %.6f %d" % (line.strip(), worst[0], steps[0]), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()

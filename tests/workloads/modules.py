# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
Models of all kinds; prints the addresses and expected names of their modules, one tab-separated line each.

    mod   module  root  parent  name  class  root-class      (texts as hex of UTF-8)

After "ready" it obeys lines on its standard input, see commands().
"""
import os
import sys
import threading
import warnings

import torch
from torch import nn

warnings.simplefilter("ignore")
KEEP = []


def keep(obj):
    KEEP.append(obj)
    return obj


def text(s):
    return s.encode("utf-8").hex() or "-"


def emit(*fields):
    sys.stdout.write("\t".join(str(f) for f in fields) + "\n")


def emit_module(m, root, parent, name, root_class):
    keep((m, root, parent))
    emit("mod", id(m), id(root), id(parent) if parent is not None else 0, text(name), text(type(m).__name__), text(root_class))


def names(model):
    return [(name, m) for name, m in model.named_modules()]


def emit_tree(root, tree, root_class):
    for name, m in tree:
        emit_module(m, root, root, name, root_class)


def emit_model(model):
    keep(model)
    emit_tree(model, names(model), type(model).__name__)


class Inline(nn.Module):
    """Has only modules as attributes; nothing here creates its __dict__."""

    def __init__(self, depth=2):
        super().__init__()
        self.first = nn.Linear(2, 2)
        if depth:
            self.child = Inline(depth - 1)
        self.absent = None
        self.register_module("nothing", None)


class Mixin:
    pass


class WithMixin(Mixin, nn.Module):
    """Its tp_base is Mixin, not nn.Module."""

    def __init__(self):
        super().__init__()
        self.inner = nn.ReLU()


class Many(nn.Module):
    """More attributes than a class's instances share keys for."""

    def __init__(self):
        super().__init__()
        for i in range(50):
            setattr(self, "attribute%d" % i, i)
        for i in range(50):
            setattr(self, "layer%d" % i, nn.Identity())


class Slotted(nn.Module):
    __slots__ = ("slot",)

    def __init__(self):
        super().__init__()
        self.slot = 1
        self.x = nn.Identity()


class Module(nn.Module):
    """A module class called Module."""

    def __init__(self):
        super().__init__()
        self.module = nn.Sequential(nn.Linear(2, 2))


class NotTorch:
    def __init__(self):
        self._modules = {}


NotTorch.__name__ = "Module"


class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.norm = nn.LayerNorm(d)
        self.attn = nn.MultiheadAttention(d, 1)
        self.mlp = nn.Sequential(nn.Linear(d, d), nn.GELU(), nn.Linear(d, d), nn.Dropout(0.0))


class Gpt(nn.Module):
    def __init__(self, layers=3, d=4):
        super().__init__()
        self.embed = nn.Embedding(8, d)
        self.blocks = nn.ModuleList(Block(d) for _ in range(layers))
        self.head = nn.Linear(d, 8)


def plain_models():
    emit_model(nn.Linear(2, 2))
    emit_model(nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16), 3))
    emit_model(nn.Sequential(nn.Sequential(nn.Linear(1, 1), nn.ReLU()), nn.ModuleList([nn.Linear(1, 1), nn.ModuleDict({"a b": nn.ReLU(), "\xe9\u4f60": nn.Linear(1, 1)})])))
    emit_model(Inline())
    emit_model(Inline().train())
    emit_model(Inline().eval())
    emit_model(Gpt())
    emit_model(WithMixin())
    emit_model(Many())
    emit_model(Slotted())
    emit_model(Module())
    emit_model(nn.utils.parametrizations.weight_norm(nn.Linear(2, 2)) if hasattr(nn.utils.parametrizations, "weight_norm") else nn.Linear(2, 2))
    shared = nn.Linear(3, 3)
    emit_model(nn.ModuleDict({"a": nn.Sequential(shared), "b": shared, "c": nn.Sequential(nn.ReLU(), shared)}))
    model = Gpt(1)
    vars(model)
    model.extra = 1
    emit_model(model)
    model = nn.Sequential(nn.ReLU(), nn.ReLU(), nn.ReLU())
    del model[1]
    emit_model(model)


def cyclic_models():
    a, b = nn.Sequential(nn.Linear(1, 1)), nn.Sequential(nn.ReLU())
    a._modules["self"] = a
    a._modules["b"] = b
    b._modules["back"] = a
    b._modules["self"] = b
    emit_model(a)
    emit_model(b)
    deep = keep(nn.Sequential())
    at, chain = deep, [("", deep)]
    for i in range(1500):
        child = nn.Sequential()
        at.add_module("d", child)
        at = child
        chain.append((".".join(["d"] * (i + 1)), child))
    emit_tree(deep, chain[:1025], "Sequential")  # deeper modules are not named
    emit_module(chain[1025][1], deep, deep, "?", "Sequential")
    emit_module(chain[1100][1], deep, chain[900][1], chain[900][0] + ".?", "Sequential")
    long = nn.Sequential()
    long.add_module("n" * 4096, nn.ReLU())
    long.add_module("m" * 4097, nn.ReLU())
    keep(long)
    emit_module(long[0], long, long, "n" * 4096, "Sequential")
    emit_module(long[1], long, long, "?", "Sequential")


def wrapped_models():
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

    model = Gpt()
    tree = names(model)
    wrapper = nn.DataParallel(model)
    emit_tree(wrapper, tree + [("", wrapper)], "Gpt")

    model = Gpt()
    tree = names(model)
    for block in model.blocks:
        block.mlp = checkpoint_wrapper(block.mlp)
    model.blocks[1] = checkpoint_wrapper(model.blocks[1])
    tree += [("blocks.1", model.blocks[1]), ("blocks.0.mlp", model.blocks[0].mlp)]
    emit_tree(model, tree, "Gpt")

    model = Gpt()
    tree = names(model)
    model.head = nn.DataParallel(model.head)
    compiled = torch.compile(nn.DataParallel(model), backend="eager")
    emit_tree(compiled, tree + [("", compiled), ("", compiled._orig_mod), ("head", model.head)], "Gpt")

    model = Module()  # an attribute "module" without a wrapper
    tree = names(model)
    compiled = torch.compile(model, backend="eager")
    emit_tree(compiled, tree + [("", compiled)], "Module")


class FullyShardedDataParallel(nn.Module):
    """Holds its module as torch's class of this name, which may be unavailable here."""

    def __init__(self, module):
        super().__init__()
        self._fsdp_wrapped_module = module


def distributed_models():
    if not torch.distributed.is_available():
        return
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    model = Gpt()
    tree = names(model)
    ddp = nn.parallel.DistributedDataParallel(model)
    emit_tree(ddp, tree + [("", ddp)], "Gpt")

    class MyDdp(nn.parallel.DistributedDataParallel):
        pass

    model = Gpt()
    tree = names(model)
    emit_tree(MyDdp(model), tree, "Gpt")

    model = Gpt()
    tree = names(model)
    for i, block in enumerate(model.blocks):
        model.blocks[i] = FullyShardedDataParallel(block)
    fsdp = FullyShardedDataParallel(model)
    emit_tree(fsdp, tree + [("", fsdp), ("blocks.1", model.blocks[1])], "Gpt")
    try:
        from torch.distributed.fsdp import fully_shard

        mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (1,))
        model = Gpt()
        for block in model.blocks:
            fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)
        emit("note", "fully_shard: %s, %s" % (type(model).__name__, type(model).__bases__[0].__name__))
        emit_model(model)
    except (ImportError, RuntimeError, AttributeError) as e:
        emit("note", "fully_shard cannot be used here: %s" % str(e).replace("\n", " ")[:200])


def strays():
    """Modules without a root."""
    model = keep(Gpt())
    other = nn.Linear(1, 1)
    emit_module(other, model, model, "?", "Gpt")
    emit_module(nn.ReLU(), model, model.blocks[1], "blocks.1.?", "Gpt")
    emit_module(nn.ReLU(), model, None, "?", "Gpt")
    emit_module(nn.ReLU(), model, NotTorch(), "?.?", "Gpt")
    functional = nn.Sequential(nn.Linear(1, 1), nn.Sequential(nn.ReLU()))
    emit_module(functional, model, model.blocks[0].attn, "blocks.0.attn.?", "Gpt")
    emit_module(functional[0], model, functional, "blocks.0.attn.?.0", "Gpt")
    emit_module(functional[1][0], model, functional, "blocks.0.attn.?.1.0", "Gpt")
    unseen = nn.Sequential(nn.Linear(1, 1))
    emit_module(unseen[0], model, unseen, "?.0", "Gpt")
    for obj in (NotTorch(), "text", 5, nn.Linear, torch.zeros(1)):
        emit("notmod", id(keep(obj)), id(model))
        emit("notmod", id(model), id(obj))


class Thousand(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block(2) for _ in range(110))  # of 9 modules each


def churn(model):
    """Changes everything except the names of existing modules."""
    n = 0
    while True:
        n += 1
        model.counter = n
        setattr(model, "attribute%d" % (n % 50), n)
        if hasattr(model, "attribute%d" % ((n * 7) % 50)):
            delattr(model, "attribute%d" % ((n * 7) % 50))
        block = model.blocks[n % 100]
        block.add_module("new%d" % (n % 30), nn.Identity())
        block._modules.pop("new%d" % ((n * 7) % 30), None)
        block.training = not block.training


def main():
    for part in (plain_models, cyclic_models, wrapped_models, distributed_models, strays):
        part()
    big2 = keep(Thousand())
    emit("big", id(big2), id(big2.blocks[109].mlp[3]), len(names(big2)))
    big = keep(Thousand().train())
    emit("big", id(big), id(big.blocks[109].mlp[3]), len(names(big)))
    method = getattr(nn.Module, "_wrapped_call_impl", nn.Module._call_impl)
    emit("codes", id(method.__code__))
    model = keep(nn.Sequential(nn.Linear(1, 1), nn.Sequential(nn.ReLU())))
    late = keep(nn.Linear(1, 1))
    emit("change", id(model), id(model[0]), id(model[1]), id(model[1][0]), id(late))
    emit("ready")
    sys.stdout.flush()
    for line in sys.stdin:
        word = line.strip()
        if word == "add":
            model.add_module("late", late)
        elif word == "rename":
            model._modules["renamed"] = model._modules.pop("1")
        elif word == "churn":
            threading.Thread(target=churn, args=(big,), daemon=True).start()
        elif word == "nothing":
            model.training = True
        emit(word)
        sys.stdout.flush()
    os._exit(0)


main()

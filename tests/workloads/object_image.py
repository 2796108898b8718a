# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Objects of all kinds that the readers support, with modules like PyTorch's but without PyTorch, for a saved image
(tests/tools/object_image.c). Prints kinds and addresses, then "ready", and sleeps."""
import _thread
import sys
import time
import types

torch = types.ModuleType("torch")
nn = types.ModuleType("torch.nn.modules.module")
torch_c = types.ModuleType("torch._C")
torch_c.DisableTorchFunctionSubclass = _thread.LockType
sys.modules.update({"torch": torch, "torch.nn.modules.module": nn, "torch._C": torch_c})


class Module(object):
    def __init__(self, **children):
        self.training = True
        self._parameters = {}
        self._buffers = {}
        self._modules = dict(children)

    def _wrapped_call_impl(self, *args):
        return self.forward(*args)

    __call__ = _wrapped_call_impl

    def forward(self, *args):
        for m in self._modules.values():
            m(*args)


Module.__module__ = "torch.nn.modules.module"
nn.Module = Module


class Mixin(object):
    pass


class Linear(Mixin, Module):
    pass


class DistributedDataParallel(Module):
    pass


DistributedDataParallel.__module__ = "torch.nn.parallel.distributed"


class Last(Module):
    def forward(self, number, name):
        tell()
        time.sleep(600)


class Slots(object):
    __slots__ = ("a", "b")


def tell():
    d = {"a": 1, "b": [2], "\xe9": 3, 4: 5}
    del d["b"]
    for kind, obj in (("str", "plain"), ("str", "h\xe9"), ("str", "\u4f60" * 40), ("str", "\U0001f600"), ("type", Linear), ("type", int),
                      ("code", tell.__code__), ("code", Module.forward.__code__), ("func", tell), ("dict", d), ("dict", vars(Linear)),
                      ("dict", {}), ("dict", dict.fromkeys(range(300))), ("object", Slots()), ("object", layer), ("tree", model), ("tree", layer)):
        keep.append(obj)
        sys.stdout.write("%s %d " % (kind, id(obj)))
    print("ready")
    sys.stdout.flush()


keep = []
layer = Linear(inner=Linear(), last=Last())
layer.extra = "an attribute"
model = DistributedDataParallel(module=Module(layers=Linear(**{"0": layer, "1": Linear(), "none": None}), loop=Module()))
model._modules["module"]._modules["loop"]._modules["back"] = layer
model._modules["module"]._modules["loop"]._modules["own"] = model._modules["module"]._modules["loop"]
model._modules["module"]._modules["layers"](1, "two")

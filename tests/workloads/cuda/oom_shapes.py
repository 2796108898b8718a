#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Runs out of GPU memory in several calls, and goes on. Before each it prints what PyTorch says about the tensors in the variables of
the frames that the report shows: a line of JSON. With an argument, only these cases."""
import json
import sys

import torch

HUGE = 90 << 30
said = []
kept = []  # functions whose code would be gone before anyone reads its names


def about(name, t):
    storage = 0 if t.device.type == "meta" else t.untyped_storage().nbytes()
    index = ":%d" % t.device.index if t.device.index is not None else ""
    return {"name": name, "dtype": str(t.dtype)[6:], "shape": list(t.shape)[:8], "dimensions": t.dim(), "bytes": t.numel() * t.element_size() or None,
            "storage_bytes": storage or None, "device": t.device.type + index}


def say(variables):
    said.append([about(k, v) for k, v in variables.items() if isinstance(v, torch.Tensor)])


def gpu(*shape, dtype=torch.float32):
    return torch.empty(*shape, dtype=dtype, device="cuda")


def allocate():
    """The line of the request in a module of the program: the report shows this frame alone."""
    return torch.empty(HUGE, dtype=torch.uint8, device="cuda")


class Mine(torch.Tensor):
    pass


def kinds():
    x = gpu(1, 2048, 512, dtype=torch.bfloat16)
    half, whole, flags, waves, small = (gpu(8, n, dtype=d) for n, d in ((3, torch.float16), (5, torch.int64), (7, torch.bool), (9, torch.complex64), (11, torch.float8_e4m3fn)))
    scalar, nothing = gpu(()), gpu(0, 4)
    part, turned, spread = x[:, 5:9], x.transpose(1, 2), gpu(1, 6).expand(1000, 6)
    many = gpu(1, 2, 3, 4, 5, 6, 7, 8, 2)
    host, meta = torch.zeros(4, 4), torch.empty(3, 3, device="meta")
    mine, weight = gpu(2, 2).as_subclass(Mine), torch.nn.Parameter(gpu(6, 6))
    gone = gpu(100)
    gone.untyped_storage().resize_(0)
    same = x
    number, text, listed, none, typed = 1, "x", [x], None, torch.Tensor
    say({k: v for k, v in locals().items() if k != "same"})
    torch.empty(HUGE, dtype=torch.uint8, device="cuda")


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.head = torch.nn.Linear(64, 100352, device="cuda", dtype=torch.bfloat16)

    def forward(self, x, labels=None):
        hidden = x * 2
        scale = gpu(3)
        # Before CPython 3.11, what an inner function shares is not in the frame's variables.
        shared = [about("scale", scale)] if sys.version_info >= (3, 11) else []
        said.append([about("hidden", hidden), about("x", x), *shared])
        return (lambda: scale) and self.head(hidden)


def module():
    Net()(gpu(8, 150000, 64, dtype=torch.bfloat16))


def large():
    names = ["v%d" % i for i in range(200)]
    body = "\n".join("    %s = gpu(%d)" % (name, i + 1) for i, name in enumerate(names))
    space = {"gpu": gpu, "torch": torch, "HUGE": HUGE}
    exec("def f():\n" + body + "\n    torch.empty(HUGE, dtype=torch.uint8, device='cuda')", space)
    said.append([about(name, gpu(i + 1)) for i, name in enumerate(names[:64])])
    kept.append(space["f"])
    space["f"]()


def hostile():
    """Names that no compiler makes, and objects that are nearly tensors."""
    def f():
        a = gpu(2)
        b = gpu(3)
        c = type("torch._C.TensorBase", (), {})()
        torch.empty(HUGE, dtype=torch.uint8, device="cuda")

    names = ("a\tb\n9 9 9", "</script>\x1b[2J" + "x" * 500, "c")
    f.__code__ = f.__code__.replace(co_varnames=names)
    kept.append(f)
    said.append([about("</script>\x1b[2J" + "x" * 500, gpu(3)), about(names[0], gpu(2))])
    f()


def nothing():
    say({})
    allocate()


def deep():
    def f(n, t):
        if n:
            return f(n - 1, t)
        torch.empty(HUGE, dtype=torch.uint8, device="cuda")

    t = gpu(7)
    kept.append(f)
    said.append([about("t", t)])
    f(300, t)


CASES = {"kinds": kinds, "module": module, "large": large, "hostile": hostile, "nothing": nothing, "deep": deep}
sys.setrecursionlimit(2000)
torch.empty(1, device="cuda")
print("ready", flush=True)
if "wait" in sys.argv:
    sys.stdin.readline()
for case in [c for c in sys.argv[1:] if c in CASES] or CASES:
    try:
        CASES[case]()
    except torch.cuda.OutOfMemoryError:
        pass
print("said " + json.dumps(said), flush=True)
if "wait" in sys.argv:
    sys.stdin.read()

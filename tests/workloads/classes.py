# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
Classes of autograd nodes that take one another's place: each Function is used and dropped, the next one's Backward class lies where its
predecessor's was. Says "ready"; then, for each line read, the name of the class that has run and whether its address had been another's.
"""
import gc
import sys

import torch


def function(name):
    def forward(ctx, x):
        return x.clone()

    def backward(ctx, grad):
        return grad * torch.ones(300007)

    return type(name, (torch.autograd.Function,), {"forward": staticmethod(forward), "backward": staticmethod(backward)})


def run(name, wanted):
    """Its address, which is wanted if that can be had."""
    for i in range(2000):
        f = function(name)
        if not wanted or id(f._backward_cls) == wanted:
            break
        if i % 100 == 0:
            gc.collect()
    x = torch.zeros(300007, requires_grad=True)
    f.apply(x).sum().backward()
    return id(f._backward_cls)


def main():
    torch.set_num_threads(1)
    run("Warm", 0)
    gc.collect()
    print("ready", flush=True)
    last = 0
    for name in ("First", "Second"):
        sys.stdin.readline()
        at = run(name, last)
        gc.collect()
        print(name, "again" if at == last else "elsewhere", flush=True)
        last = at
    sys.stdin.readline()


if __name__ == "__main__":
    main()

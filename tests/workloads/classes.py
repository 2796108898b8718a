# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
Classes of autograd nodes that take one another's place: each Function is used and dropped, the next one's Backward class lies where its
predecessor's was. Says "ready". Then, a line read before each, the name of a class that has run, three times, and whether its address
had been another's. Its nodes are there until the next class is made, however late somebody looks at them.
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


def make(name, wanted):
    """Its class lies at the wanted address, if that can be had."""
    for i in range(2000):
        f = function(name)
        if not wanted or id(f._backward_cls) == wanted:
            break
        if i % 100 == 0:
            gc.collect()
    return f


def use(f):
    """Returns what keeps its node."""
    y = f.apply(torch.zeros(300007, requires_grad=True))
    y.sum().backward(retain_graph=True)
    return y


def main():
    torch.set_num_threads(1)
    use(make("Warm", 0))
    gc.collect()
    print("ready", flush=True)
    last, f, kept = 0, None, []
    for name in ("First", "Second"):
        sys.stdin.readline()
        f = None
        kept.clear()
        gc.collect()
        f = make(name, last)
        for again in range(3):
            if again:
                sys.stdin.readline()
            kept.append(use(f))
            print(name, "again" if id(f._backward_cls) == last else "elsewhere", flush=True)
        last = id(f._backward_cls)
    sys.stdin.readline()


if __name__ == "__main__":
    main()

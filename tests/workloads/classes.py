# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Classes of autograd nodes that reuse addresses: each Function is used and freed, and the next one's Backward class gets its
predecessor's address. Prints "ready". Then, after a line of input each, prints three times the name of a class that has run
and whether its address was another class's before. Its nodes live until the next class is made."""
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
    """Makes a class at the wanted address if possible."""
    for i in range(2000):
        f = function(name)
        if not wanted or id(f._backward_cls) == wanted:
            break
        if i % 100 == 0:
            gc.collect()
    return f


def use(f):
    """Returns an object that keeps its node alive."""
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

# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
A job with many exceptions, all caught: C++ exceptions out of backward (a saved tensor was changed in place), Python exceptions
out of an autograd.Function in backward, and out of memory. The other results give a digest.

Prints "ready", waits for a line on standard input, does --rounds, prints {caught, digest, allocs}. torch >= 1.13, Python >= 3.8.
"""
import argparse
import hashlib
import json
import sys

import torch


class Fails(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, fail):
        ctx.fail = fail
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        if ctx.fail:
            raise ValueError("as asked for")
        return grad * 2, None


def in_backward(x):
    """A C++ exception: a tensor saved by the node was changed."""
    y = x.exp()
    z = y.sum()
    y.add_(1)
    z.backward()


def in_python(x):
    Fails.apply(x, True).sum().backward()


def out_of_memory(x):
    torch.empty(1 << 50, dtype=torch.uint8, device=x.device)


def caught(function, *args):
    try:
        function(*args)
    except (RuntimeError, ValueError):
        return 1
    return 0


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--rounds", type=int, default=100)
    p.add_argument("--device", default="cpu")
    args = p.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    x = torch.randn(100).to(args.device).requires_grad_()
    print("ready", flush=True)
    sys.stdin.readline()
    digest, n = hashlib.sha256(), 0
    for i in range(args.rounds):
        n += caught(in_backward, x) + caught(in_python, x) + caught(out_of_memory, x)
        x.grad = None
        (Fails.apply(x, False).sin() * (i + 1)).sum().backward()
        digest.update(x.grad.cpu().numpy().tobytes())
    print(json.dumps({"caught": n, "digest": digest.hexdigest()}), flush=True)


if __name__ == "__main__":
    main()

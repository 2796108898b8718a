# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Inference without an optimizer: a step is a call of the outermost module."""
import argparse
import os
import time

import torch

from model import GPT


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--seconds", type=float, default=60)
    p.add_argument("--steps", type=int, default=0)
    p.add_argument("--pause", type=float, default=0.01)
    args = p.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    model = GPT(width=32, layers=2, context=32).eval()
    print("pid %d ready" % os.getpid(), flush=True)
    begin = time.monotonic()
    steps = 0
    with torch.no_grad():
        while time.monotonic() - begin < args.seconds and not (args.steps and steps >= args.steps):
            ids = torch.randint(256, (2, 32))
            probabilities = model(ids).softmax(-1)
            probabilities.argmax(-1)
            steps += 1
            time.sleep(args.pause)
    print("end after %d steps" % steps, flush=True)


if __name__ == "__main__":
    main()

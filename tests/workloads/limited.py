# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
Endless training steps of a GPT of which `metrics.losses` keeps a tensor of --leak bytes each (0: none), for recordings with a limit on
their cost. --noise: the steps' pauses vary by this share, and a buffer of the last tensors, whose sizes are drawn, is cleared now and
then. Prints "ready" after five steps.

torch >= 2.1, Python >= 3.8.
"""
import collections
import random
import time

import torch

import gpt


class Metrics:
    def __init__(self):
        self.losses = []


metrics = Metrics()


def keep(leak, device):
    if leak:
        metrics.losses.append(torch.zeros(leak, dtype=torch.uint8, device=device))


class Noise:
    def __init__(self, args):
        self.args, self.random = args, random.Random(args.seed)
        self.recent = collections.deque(maxlen=20)

    def step(self):
        if self.args.noise:
            self.recent.append(torch.zeros(self.random.randrange(1, 1 << 16), dtype=torch.uint8, device=self.args.device))
            if self.random.random() < 0.02:
                self.recent.clear()
        time.sleep(max(0, self.args.pause * self.random.gauss(1, self.args.noise)))


def main():
    p = gpt.arguments()
    p.add_argument("--leak", type=int, default=0)
    p.add_argument("--noise", type=float, default=0)
    args = p.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    job, noise = gpt.job(args), Noise(args)
    for step, _ in enumerate(job):
        keep(args.leak, args.device)
        if args.device == "cuda":
            torch.cuda.synchronize()  # as a loop that prints its loss
        noise.step()
        if step == 4:
            print("ready", flush=True)


if __name__ == "__main__":
    main()

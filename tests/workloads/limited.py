# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
Endless training steps of a GPT of which `metrics.losses` keeps a tensor of --leak bytes each (0: none), for recordings with a limit on
their cost. Prints "ready" after five steps.

torch >= 2.1, Python >= 3.8.
"""
import torch

import gpt


class Metrics:
    def __init__(self):
        self.losses = []


metrics = Metrics()


def keep(leak, device):
    if leak:
        metrics.losses.append(torch.zeros(leak, dtype=torch.uint8, device=device))


def main():
    p = gpt.arguments()
    p.add_argument("--leak", type=int, default=0)
    args = p.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    job = gpt.job(args)
    for step, _ in enumerate(job):
        keep(args.leak, args.device)
        if args.device == "cuda":
            torch.cuda.synchronize()  # as a loop that prints its loss
        if step == 4:
            print("ready", flush=True)


if __name__ == "__main__":
    main()

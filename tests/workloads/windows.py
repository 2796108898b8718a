# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
A job that runs commands, one per line of input, and prints "done N ALLOCATED PEAK" after the N-th, in bytes of PyTorch's
counters. The peak is since the last "reset".

    step N MIB    N training steps with MIB of temporary memory each
    hold MIB      one more tensor that stays
    drop          frees these tensors
    reset         resets the peak
    spin S        steps for S seconds

torch >= 1.13, Python >= 3.8; on a GPU or in the dry run.
"""
import sys
import time

import torch

MIB = 1 << 20


class Job:
    def __init__(self):
        torch.manual_seed(1)
        torch.set_num_threads(1)
        self.model = torch.nn.Linear(256, 256).cuda()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3, momentum=0.9)
        self.held = []

    def one_step(self, mib):
        x = torch.ones(64, 256, device="cuda")
        temporary = torch.empty(int(mib) * MIB, dtype=torch.uint8, device="cuda")
        self.model(x).sum().backward()
        del temporary
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def step(self, n, mib):
        for _ in range(int(n)):
            self.one_step(mib)

    def hold(self, mib):
        self.held.append(torch.empty(int(mib) * MIB, dtype=torch.uint8, device="cuda"))

    def drop(self):
        self.held.clear()

    def reset(self):
        torch.cuda.reset_peak_memory_stats()

    def spin(self, seconds):
        until = time.monotonic() + float(seconds)
        while time.monotonic() < until:
            self.one_step(1)
            time.sleep(0.005)


def main():
    job = Job()
    job.one_step(1)
    print("ready", flush=True)
    for n, line in enumerate(sys.stdin, 1):
        word, *numbers = line.split()
        getattr(job, word)(*numbers)
        print("done", n, torch.cuda.memory_allocated(), torch.cuda.max_memory_allocated(), flush=True)


if __name__ == "__main__":
    main()

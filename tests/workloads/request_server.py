# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
A generate() server: each request calls the model several times, not always as often, and leaves two tensors in lists. The second
list's line allocates two blocks, of which one stays.

usage: request_server.py DEVICE REQUESTS PAUSE: serves so many requests, or until a line comes if REQUESTS is 0, with PAUSE seconds
after each. Prints "ready", "served N" after every 20th request if REQUESTS is 0, then JSON: requests, and the bytes that each but
the first left behind. The first one also makes cuBLAS allocate its workspace.
"""
import json
import select
import sys
import time

import torch

HISTORY, TRACES = [], []


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(64, 64)

    def forward(self, x):
        return self.linear(x)


def handle(model, device, tokens):
    x = torch.zeros(16, 64, device=device)  # LINE prompt
    for _ in range(tokens):
        x = model(x)
    HISTORY.append(torch.zeros(16384, device=device))  # LINE history
    TRACES.append(torch.ones(512, device=device) * 2)  # LINE traces


def held(device):
    if device == "cuda":
        return torch.cuda.memory_allocated()
    return sum(t.untyped_storage().nbytes() for t in HISTORY + TRACES)


def main():
    device, requests, pause = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    torch.set_num_threads(1)
    model = Model().to(device)
    print("ready", flush=True)
    left, served = set(), 0
    with torch.no_grad():
        while served < requests if requests else not select.select([sys.stdin], [], [], 0)[0]:
            before = held(device)
            handle(model, device, 3 + served % 5)
            if served:
                left.add(held(device) - before)
            served += 1
            if not requests and served % 20 == 0:
                print("served %d" % served, flush=True)
            time.sleep(pause)
    print(json.dumps({"requests": served, "left": sorted(left)}), flush=True)


main()

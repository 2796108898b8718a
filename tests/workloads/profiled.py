# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
Training steps under torch.profiler. Prints "ready", waits for a line, trains, writes the trace to the file that the argument names, prints "done" and
waits for a line again.
"""
import sys

import torch
from torch.profiler import ProfilerActivity, profile

model = torch.nn.Sequential(torch.nn.Linear(512, 2048), torch.nn.ReLU(), torch.nn.Linear(2048, 512))
optimizer = torch.optim.AdamW(model.parameters())


def step():
    loss = model(torch.randn(256, 512)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()


print("ready", flush=True)
sys.stdin.readline()
with profile(activities=[ProfilerActivity.CPU]) as trace:
    for _ in range(3):
        step()
trace.export_chrome_trace(sys.argv[1])
print("done", flush=True)
sys.stdin.readline()

# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""A training loop with the ranges that such programs have, and nothing of memtrace-bpf: ranges.py [cpu|cuda] [STEPS]. Ranges of
torch.cuda.nvtx and record_function are nested, on two threads, on a decorated function, and left by an exception. A line on stdin begins
it, another ends the process. Prints as JSON what torch.cuda says of each run of a range, reset at each begin and end, or on the CPU the
bytes from its start to its peak."""
import contextlib
import json
import sys
import threading

import torch
from torch.profiler import record_function

DEVICE = sys.argv[1] if len(sys.argv) > 1 else "cuda"
STEPS = int(sys.argv[2]) if len(sys.argv) > 2 else 3
KIB = 1 << 10
HAS_NVTX = hasattr(torch._C, "_nvtx")  # not in a build without CUDA
figures, open_runs = [], []


def flush():
    """Adds torch.cuda's peaks since the last call to the open runs, of all threads: they take turns."""
    if DEVICE != "cuda":
        return
    for run in open_runs:
        run["peak"] = max(run["peak"], torch.cuda.max_memory_allocated())
        run["reserved"] = max(run["reserved"], torch.cuda.max_memory_reserved())
    torch.cuda.reset_peak_memory_stats()


@contextlib.contextmanager
def measured(name, source):
    flush()
    now = (torch.cuda.memory_allocated(), torch.cuda.memory_reserved()) if DEVICE == "cuda" else (0, 0)
    run = {"name": name, "source": source, "start": now[0], "peak": now[0], "reserved": now[1]}
    figures.append(run)
    open_runs.append(run)
    try:
        yield
    finally:
        flush()
        open_runs.remove(run)
        run["end"] = torch.cuda.memory_allocated() if DEVICE == "cuda" else 0


@contextlib.contextmanager
def nvtx(name):
    if not HAS_NVTX:
        yield
        return
    torch.cuda.nvtx.range_push(name)
    try:
        with measured(name, "nvtx"):
            yield
    finally:
        torch.cuda.nvtx.range_pop()


@contextlib.contextmanager
def recorded(name):
    with record_function(name), measured(name, "record_function"):
        yield


def empty(kib):
    return torch.empty(kib * KIB, dtype=torch.uint8, device=DEVICE)


@record_function("validate")
def validate(kib):
    with measured("validate", "record_function"):
        empty(kib)


def prefetch(into):
    with nvtx("prefetch"), recorded("collate é"):
        into.append(empty(64))


def main():
    model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 64)).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    print("ready", flush=True)
    sys.stdin.readline()
    batches = []
    for number in range(STEPS):
        thread = threading.Thread(target=prefetch, args=(batches,), name="loader")
        with nvtx("step"):
            thread.start()
            thread.join()
            with recorded("forward"):
                x = torch.ones(32 * (number + 1), 256, device=DEVICE)
                with nvtx("loss"):
                    loss = model(x).square().mean()
            with nvtx("backward"):
                loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            del x, loss
        with contextlib.suppress(ValueError), recorded("checkpoint"), nvtx("write"):
            empty(700)
            raise ValueError
        validate(300 * (number + 1))
    print(json.dumps(figures), flush=True)
    sys.stdin.readline()


main()

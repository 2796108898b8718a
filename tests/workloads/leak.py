# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
Training steps that leak, or look as if they did, in each of several MODEs, separated by commas:

    list, closure, graph, attribute, concat   endless growth (see the functions)
    rare        a leak in every fifth step
    pool        each step's largest tensor is larger than the one before: only the allocator's pool grows (CUDA)
    others      memory taken from CUDA outside of PyTorch (CUDA)
    none        no growth
    cache       a cache that is full after the first steps
    sawtooth    results that are deleted every ten steps
    lengths     batches of different lengths; the loss keeps the last one's graph
    cycles      tensors in reference cycles, freed by the garbage collector
    kv          generation with a key-value cache, sequence after sequence: without an optimizer, model calls are the steps
    stepless    a leak without a model, --pause seconds per turn

--device cuda works under `run --dry-run-cuda`. --pause: seconds per step. Prints "step N", and after --steps steps "done"; then
it waits for a line on standard input with --wait. --late N: after N steps it prints "ready" and waits for a line, too. torch >= 2.1, Python >= 3.8.
"""
import argparse
import ctypes
import gc
import sys
import time

import torch

MODES = "list closure graph attribute concat rare pool others none cache sawtooth lengths cycles kv stepless".split()
history = []
WIDTH = 64
KIB = 256  # float32 numbers per KiB


class Trainer:
    def __init__(self):
        self.outputs = []


class Node:
    """A tensor that refers to itself."""

    def __init__(self, data):
        self.data = data
        self.me = self


def take(size):
    """Calls the cudaMalloc used by PyTorch, or a preloaded one."""
    address = ctypes.c_void_p()
    code = ctypes.CDLL(None).cudaMalloc(ctypes.byref(address), ctypes.c_size_t(size))  # LEAK others
    assert code == 0, code


def make_step(device):
    cache = []

    def step(i):
        cache.append(torch.ones(16 * KIB, device=device) * i)  # LEAK closure

    return step


def build(device):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU(), torch.nn.Linear(WIDTH, 1)).to(device)
    return model, torch.optim.Adam(model.parameters())


class Work:
    def __init__(self, modes, device):
        self.modes, self.device = modes, device
        self.model, self.optimizer = build(device)
        self.closure = make_step(device)
        self.trainer = Trainer()
        self.cache = {}
        self.results = []
        self.joined = torch.zeros(KIB, device=device)
        self.last = None

    def batch(self, i):
        n = 32
        if "lengths" in self.modes:
            n = (8, 64, 16, 128, 32, 96, 8, 24)[i * 7919 % 8]
        return torch.randn(n, WIDTH, device=self.device)

    def leak(self, i, loss):
        if "list" in self.modes:
            history.append(torch.zeros(16 * KIB, device=self.device))  # LEAK list
        if "closure" in self.modes:
            self.closure(i)
        if "graph" in self.modes:
            history.append(loss)
        if "attribute" in self.modes:
            self.trainer.outputs.append({"step": i, "out": torch.zeros(16 * KIB, device=self.device)})  # LEAK attribute
        if "concat" in self.modes:
            self.joined = torch.cat([self.joined, torch.zeros(KIB, device=self.device)])  # LEAK concat
        if "pool" in self.modes:
            torch.empty((20 + 2 * i) * 1024 * KIB, device=self.device)
        if "others" in self.modes:
            take(1024 * 1024)
        if "rare" in self.modes and i % 5 == 0:
            history.append(torch.zeros(16 * KIB, device=self.device))  # LEAK rare

    def look_as_if(self, i, loss):
        if "cache" in self.modes and i % 12 not in self.cache:
            self.cache[i % 12] = torch.zeros(16 * KIB, device=self.device)
        if "sawtooth" in self.modes:
            self.results.append(torch.zeros(16 * KIB, device=self.device))
            if i % 10 == 9:
                self.results.clear()
        if "lengths" in self.modes:
            self.last = loss
        if "cycles" in self.modes:
            Node(torch.zeros(16 * KIB, device=self.device))
            if i % 7 == 6:
                gc.collect()

    def step(self, i):
        loss = self.model(self.batch(i)).pow(2).mean()  # LEAK graph
        self.optimizer.zero_grad()
        loss.backward(retain_graph=bool(self.modes & {"graph", "lengths"}))
        self.optimizer.step()
        self.leak(i, loss)
        self.look_as_if(i, loss)


def stepped(i, late):
    """Says that step i is done."""
    print("step", i, flush=True)
    if i == late:
        print("ready", flush=True)
        sys.stdin.readline()


def attend(model, keys, token):
    keys = token if keys is None else torch.cat([keys, token])
    model(keys[-1:])
    return keys


def generate(model, device, tokens, pause, late):
    """Sequences of up to 12 tokens; each call of the model is a step."""
    done = 0
    with torch.no_grad():
        while done < tokens:
            keys = None
            for _ in range(7 + done % 6):
                keys = attend(model, keys, torch.randn(1, WIDTH, device=device))
                done += 1
                stepped(done, late)
                time.sleep(pause)


def stepless(device, turns, pause, late):
    for i in range(turns):
        torch.ones(4 * KIB, device=device)
        history.append(torch.zeros(16 * KIB, device=device))  # LEAK stepless
        stepped(i + 1, late)
        time.sleep(pause)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("modes")
    p.add_argument("--steps", type=int, default=60)
    p.add_argument("--pause", type=float, default=0)
    p.add_argument("--device", default="cpu")
    p.add_argument("--wait", action="store_true")
    p.add_argument("--late", type=int, default=0)
    a = p.parse_args()
    modes = set(a.modes.split(","))
    if modes - set(MODES):
        p.error("no such mode: " + ", ".join(modes - set(MODES)))
    torch.set_num_threads(1)
    gc.disable()
    work = Work(modes, a.device)
    if "kv" in modes:
        generate(work.model, a.device, a.steps, a.pause, a.late)
    elif "stepless" in modes:
        stepless(a.device, a.steps, a.pause, a.late)
    else:
        for i in range(a.steps):
            work.step(i)
            stepped(i + 1, a.late)
            time.sleep(a.pause)
    print("done", flush=True)
    if a.wait:
        sys.stdin.readline()


if __name__ == "__main__":
    main()

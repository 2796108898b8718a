# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
Training steps of a GPT, for ever, for tools/bench.py: one JSON line [begin, end, CPU time] of each in --times, in s of
the monotonic clock and of the thread. Commands come as lines on standard input, each is done between two steps and
answered with "did COMMAND ...":

    history on|off     PyTorch's own recorder of CUDA memory, with the Python stack of each event; off says how many events
                       it holds
    profiler on|off    torch.profiler with memory and stacks; off says how many events there were
    none               nothing

torch >= 2.1, Python >= 3.8.
"""
import argparse
import json
import select
import sys
import time

import torch

import gpt

profiler = None


def history(on):
    if on:
        torch.cuda.memory._record_memory_history(stacks="python")
        return 0
    count = sum(len(trace) for trace in torch.cuda.memory._snapshot()["device_traces"])
    torch.cuda.memory._record_memory_history(enabled=None)
    return count


def profile(on):
    global profiler
    if on:
        profiler = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True, with_stack=True,
                                          with_modules=True)
        profiler.start()
        return 0
    profiler.stop()
    count = len(profiler.profiler.kineto_results.events())
    profiler = None
    return count


COMMANDS = {"none": lambda: 0, "history on": lambda: history(True), "history off": lambda: history(False),
            "profiler on": lambda: profile(True), "profiler off": lambda: profile(False)}


def obey():
    while select.select([sys.stdin], [], [], 0)[0]:
        line = sys.stdin.readline()
        if not line:
            sys.exit(0)
        print("did", line.strip(), COMMANDS[line.strip()](), flush=True)


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--times", required=True)
    p.add_argument("--device", default="cuda")
    p.add_argument("--batch", type=int, default=4)
    p.add_argument("--context", type=int, default=512)
    p.add_argument("--width", type=int, default=512)
    p.add_argument("--heads", type=int, default=8)
    p.add_argument("--layers", type=int, default=6)
    p.add_argument("--vocab", type=int, default=50257)
    return p.parse_args()


def main():
    args = arguments()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    job = gpt.job(args)
    for _ in range(5):
        next(job)
    with open(args.times, "w", encoding="utf-8", buffering=1) as f:
        print("ready", flush=True)
        while True:
            begin, cpu = time.monotonic(), time.thread_time()
            next(job)
            f.write(json.dumps([begin, time.monotonic(), time.thread_time() - cpu]) + "\n")
            obey()


if __name__ == "__main__":
    main()

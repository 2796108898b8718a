# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
Endless training steps of a GPT, for tools/dev/bench.py: one JSON line [begin, end, CPU time] per step in --times, in s of the
monotonic clock and of the whole process. With --leak N each step also keeps N bytes. Commands are lines on standard input; each runs between two steps and is answered with
"did COMMAND ...":

    history on|off     PyTorch's own recorder of CUDA memory, with Python stacks; off prints the number of events
    profiler on|off    torch.profiler with memory and stacks; off prints the number of events
    spin on LIBRARY    a thread that reads the clock (tests/programs/spin.c)
    spin off           prints the longest pause in ns, and the longest without waiting for a core
    none               nothing

torch >= 2.1, Python >= 3.8.
"""
import ctypes
import json
import select
import sys
import time

import torch

import gpt

profiler = spinner = None
kept = []


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
        profiler = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True, with_stack=True)
        profiler.start()
        return 0
    profiler.stop()
    count = len(profiler.profiler.kineto_results.events())
    profiler = None
    return count


def spin(on, library=""):
    global spinner
    if on:
        spinner = ctypes.CDLL(library)
        spinner.spin_longest.restype = spinner.spin_longest_net.restype = ctypes.c_uint64
        return spinner.spin_start()
    spinner.spin_stop()
    return "%d %d" % (spinner.spin_longest(), spinner.spin_longest_net())


COMMANDS = {"none": lambda: 0, "history on": lambda: history(True), "history off": lambda: history(False),
            "profiler on": lambda: profile(True), "profiler off": lambda: profile(False),
            "spin on": lambda library: spin(True, library), "spin off": lambda: spin(False)}


def obey():
    while select.select([sys.stdin], [], [], 0)[0]:
        line = sys.stdin.readline()
        if not line:
            sys.exit(0)
        words = line.split()
        print("did", " ".join(words[:2]), COMMANDS[" ".join(words[:2])](*words[2:]), flush=True)


def leak(args):
    kept.append(torch.empty(args.leak, dtype=torch.uint8, device=args.device))


def main():
    p = gpt.arguments()
    p.add_argument("--times", required=True)
    p.add_argument("--leak", type=int, default=0, metavar="BYTES")
    args = p.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    job = gpt.job(args)
    for _ in range(5):
        next(job)
    with open(args.times, "w", encoding="utf-8", buffering=1) as f:
        print("ready", flush=True)
        while True:
            begin, cpu = time.monotonic(), time.process_time()
            next(job)
            if args.leak:
                leak(args)
            f.write(json.dumps([begin, time.monotonic(), time.process_time() - cpu]) + "\n")
            obey()


if __name__ == "__main__":
    main()

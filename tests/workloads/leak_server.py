# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
Makes jobs that leak CPU tensors and end in many ways: a process that has imported torch forks each of them, which saves the import.
A line of JSON on stdin is a job: its cgroup (a folder, or null), the file that lets it begin, its end, and its sizes. The answer is
its PID. Jobs are this process's children; a line {"wait": PID} is answered by the status of wait().
"""
import ctypes
import gc
import json
import os
import random
import sys
import time

import torch

history = []


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(256, 512)
        self.second = torch.nn.Linear(512, 256)

    def forward(self, x):
        return self.second(torch.relu(self.first(x)))


def remember(size):
    history.append(torch.ones(size // 4))  # the planted line


def end(how):
    if how == "segv":
        ctypes.string_at(0)
    if how == "abort":
        os.abort()
    if how == "kill":
        os.kill(os.getpid(), 9)
    if how == "bus":
        os.kill(os.getpid(), 7)
    if how.startswith("exit"):
        sys.exit(int(how[4:]))


def job(spec):
    if spec.get("cgroup"):
        with open(spec["cgroup"] + "/cgroup.procs", "w", encoding="ascii") as f:
            f.write(str(os.getpid()))
    model = Model()
    while spec.get("go") and not os.path.exists(spec["go"]):
        time.sleep(0.005)
    rng = random.Random(spec.get("seed", 0))
    for i in range(spec.get("rounds", 1 << 40)):
        model(torch.randn(32, 256)).sum().backward()
        remember(rng.randrange(spec["chunk"] // 2, spec["chunk"]))
        time.sleep(spec.get("pause", 0.001))
    end(spec["end"])
    while True:  # until it is killed
        time.sleep(1)


def main():
    torch.set_num_threads(1)
    gc.freeze()
    print("ready", flush=True)
    for line in sys.stdin:
        spec = json.loads(line)
        if "wait" in spec:
            print(os.waitpid(spec["wait"], 0)[1], flush=True)
            continue
        pid = os.fork()
        if not pid:
            try:
                job(spec)
            except SystemExit as e:
                os._exit(e.code)
            except BaseException:
                sys.excepthook(*sys.exc_info())
            os._exit(120)
        print(pid, flush=True)


if __name__ == "__main__":
    main()

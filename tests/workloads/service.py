# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
A service: a router without PyTorch spawns an engine, and the engine starts two workers by a fork server. Each process but the
router has a tensor of its own. The engine's second tensor is in shared memory, and the first worker maps it, too.

    service.py    prints "ready", waits for a line, starts the service, prints "up" with {name: [PID, bytes]}, waits for a line, ends
"""
import json
import multiprocessing
import os
import sys

MIB = 1 << 20
ENGINE, SHARED, WORKER = 64 * MIB, 8 * MIB, 24 * MIB


def work(number, queue, conn):
    import torch

    own = torch.ones(WORKER + number * MIB, dtype=torch.uint8)
    other = queue.get()
    conn.send([os.getpid(), own.numel() + (other.numel() if other is not None else 0)])
    conn.recv()


def engine(conn):
    import torch
    from torch import multiprocessing as tm

    own = torch.ones(ENGINE, dtype=torch.uint8)
    shared = torch.ones(SHARED, dtype=torch.uint8)
    start = tm.get_context("forkserver")
    workers, ends, pids = [], [], {"EngineCore": [os.getpid(), own.numel() + shared.numel()]}
    for i in range(2):
        here, there = start.Pipe()
        queue = start.SimpleQueue()
        p = start.Process(target=work, args=(i, queue, there), name="Worker_TP%d" % i)
        p.start()
        queue.put(shared if i == 0 else None)
        pids[p.name] = here.recv()
        workers.append(p)
        ends.append(here)
    conn.send(pids)
    conn.recv()
    for p, end in zip(workers, ends):
        end.send(0)
        p.join()


def main():
    print("ready", flush=True)
    sys.stdin.readline()
    start = multiprocessing.get_context("spawn")
    here, there = start.Pipe()
    p = start.Process(target=engine, args=(there,), name="EngineCore")
    p.start()
    print("up " + json.dumps(here.recv()), flush=True)
    sys.stdin.readline()
    here.send(0)
    p.join()
    print("over %d" % p.exitcode, flush=True)


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
Many small tensors, allocated and freed by several threads at a high rate, with a known live set at the end.

Prints "ready", waits for a line on standard input, runs for --seconds or until a second line, prints one JSON object {allocs,
frees, seconds, live: [[address, bytes, line, thread], ...]}, and keeps the live set until the next line or the end of input.
"""
import argparse
import json
import queue
import random
import sys
import threading
import time

import torch

SLOTS = 400  # live tensors per thread


def leaf_0(n):
    return torch.empty(n, dtype=torch.uint8)


def leaf_1(n):
    return torch.empty((n,), dtype=torch.uint8)


def leaf_2(n):
    return torch.ones(n, dtype=torch.uint8)


def leaf_3(n):
    return torch.empty(n, dtype=torch.int8)


def leaf_4(n):
    return torch.empty(2 * n, dtype=torch.uint8)


def deeper(leaf, n, depth):
    return leaf(n) if depth == 0 else deeper(leaf, n, depth - 1)


LEAVES = (leaf_0, leaf_1, leaf_2, leaf_3, leaf_4)


class Worker(threading.Thread):
    def __init__(self, number, rate, until, stop, exchange):
        super().__init__(name="churn-%d" % number)
        self.random = random.Random(number)
        self.number = number
        self.rate = rate
        self.until = until
        self.stop = stop
        self.exchange = exchange
        self.slots = [None] * SLOTS
        self.allocs = self.frees = 0

    def work(self, count):
        rnd, slots, exchange = self.random, self.slots, self.exchange
        for _ in range(count):
            k = int(rnd.random() * SLOTS)
            leaf = LEAVES[k % 5]
            new = (deeper(leaf, 1 + int(rnd.random() * 5000), k % 7), leaf)
            old, slots[k] = slots[k], new
            self.allocs += 1
            if old is None:
                continue
            if k % 8:
                self.frees += 1
            else:  # another thread frees it
                try:
                    exchange.put_nowait(old)
                    old = exchange.get_nowait()
                    self.frees += 1
                except queue.Full:
                    self.frees += 1
                except queue.Empty:
                    pass
            old = None

    def run(self):
        begin = time.monotonic()
        done = 0
        while not self.stop.is_set() and time.monotonic() < self.until:
            self.work(200)
            done += 400
            if self.rate:
                pause = begin + done / self.rate - time.monotonic()
                if pause > 0:
                    time.sleep(pause)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--seconds", type=float, default=60)
    p.add_argument("--rate", type=float, default=30000, help="events a second, all threads together; 0: flat out")
    p.add_argument("--threads", type=int, default=3)
    args = p.parse_args()
    torch.set_num_threads(1)
    print("ready", flush=True)
    if not sys.stdin.readline():
        return
    stop = threading.Event()
    exchange = queue.Queue(maxsize=50)
    begin = time.monotonic()
    workers = [Worker(i, args.rate / args.threads, begin + args.seconds, stop, exchange) for i in range(args.threads)]

    def wait_for_line():
        sys.stdin.readline()
        stop.set()
    reader = threading.Thread(target=wait_for_line, daemon=True)
    reader.start()
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    seconds, by_line = time.monotonic() - begin, stop.is_set()
    parked = []
    while not exchange.empty():
        parked.append(exchange.get_nowait())
    live = []
    for who, items in [(w.number, w.slots) for w in workers] + [(-1, parked)]:
        for item in items:
            if item is not None:
                storage = item[0].untyped_storage()
                live.append([storage.data_ptr(), storage.nbytes(), item[1].__code__.co_firstlineno + 1, who])
    answer = {"allocs": sum(w.allocs for w in workers), "frees": sum(w.frees for w in workers),
              "seconds": seconds, "live": live}
    assert answer["allocs"] - answer["frees"] == len(live), (answer["allocs"], answer["frees"], len(live))
    print(json.dumps(answer), flush=True)
    reader.join()
    if by_line:
        sys.stdin.readline()


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Many small tensors of random sizes, allocated by one thread and freed by another."""
import queue
import random
import threading

import torch

from common import oracle

THREADS = 4


def work(args, seed, count, mine, theirs):
    r = random.Random(seed)
    kept = []
    for _ in range(count):
        size = r.choice((1, 100, 5000, 100000, 3000000)) + r.randrange(1000)
        kept.append(torch.empty(size, dtype=torch.uint8, device=args.device))
        if len(kept) > 60:
            tensor = kept.pop(r.randrange(len(kept)))
            if r.random() < 0.5:
                theirs.put(tensor)
            del tensor
        while not mine.empty():
            mine.get()
    return kept


def job(args):
    queues = [queue.Queue() for _ in range(THREADS)]
    step = 0
    kept = [None] * THREADS
    while True:
        def body(i, step=step):
            kept[i] = work(args, args.seed + step * THREADS + i, args.count, queues[i], queues[(i + 1) % THREADS])
        threads = [threading.Thread(target=body, args=(i,)) for i in range(THREADS)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        step += 1
        yield


if __name__ == "__main__":
    parser = oracle.arguments(__doc__)
    parser.add_argument("--count", type=int, default=1000, help="of tensors a thread and step")
    oracle.main(job, parser.parse_args())

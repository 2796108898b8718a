# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""A job of several ranks, each on its own device: ranks.py FOLDER STEPS [wait]. Started by torchrun. Rank 2 keeps 4 MiB more per
step than the others. Each rank has two workers that load its batches. It writes PyTorch's view of its memory to
FOLDER/RANK.json, waits for FOLDER/end and ends without freeing. wait: waits for FOLDER/go before its first step."""
import json
import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, Dataset

SAMPLE = 250000  # floats; a size that is easy to recognize


class Samples(Dataset):
    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return torch.full((SAMPLE,), float(os.getpid()), dtype=torch.float64)


def wait_for(name):
    while not os.path.exists(os.path.join(sys.argv[1], name)):
        time.sleep(0.02)


def leak(kept):
    kept.append(torch.empty(1 << 20, device="cuda"))


def main():
    folder, steps = sys.argv[1], int(sys.argv[2])
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.set_num_threads(1)
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    model = nn.Sequential(*[nn.Linear(256, 256) for _ in range(4)]).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    workers, kept = set(), []
    if "wait" in sys.argv:
        print("rank %d waits" % rank, flush=True)
        wait_for("go")
    loader = DataLoader(Samples(4), batch_size=1, num_workers=2)
    for batch in loader:
        workers.add(int(batch[0, 0]))
    for _ in range(steps):
        loss = model(torch.randn(32, 256, device="cuda")).square().mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if rank == 2:
            leak(kept)
    total = torch.tensor([float(torch.cuda.memory_allocated())], dtype=torch.float64)
    dist.all_reduce(total)
    truth = {"rank": rank, "pid": os.getpid(), "workers": sorted(workers), "allocated": torch.cuda.memory_allocated(),
             "reserved": torch.cuda.memory_reserved(), "peak": torch.cuda.max_memory_allocated(), "all": int(total.item())}
    with open(os.path.join(folder, "%d.json" % rank), "w", encoding="utf-8") as f:
        json.dump(truth, f)
    dist.barrier()
    wait_for("end")
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()

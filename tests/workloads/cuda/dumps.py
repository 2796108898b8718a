# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Writes snapshots with the calls and names of frameworks: dumps.py FRAMEWORK RANK FOLDER. Each trains a little, asks for more memory
than there is, and writes. "steps": one process that writes at two moments; "steps_cleared": with a new history in between."""
import os
import pickle
import sys
import time

import torch

from common import mlp


def train():
    model = mlp(256, 2).cuda()
    model(torch.randn(32, 256).cuda()).sum().backward()
    return model


def ask():
    try:
        torch.empty(1 << 50, dtype=torch.uint8, device="cuda")
    except torch.cuda.OutOfMemoryError:
        return


def pickled(path):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as f:
        pickle.dump(torch.cuda.memory._snapshot(), f)


def dumped(path):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    torch.cuda.memory._dump_snapshot(path)


def at_oom(write):
    torch._C._cuda_attach_out_of_memory_observer(lambda *_: write())
    kept = train()
    ask()
    return kept


def megatron(rank, folder):
    torch.cuda.memory._record_memory_history(True, trace_alloc_max_entries=100000, trace_alloc_record_context=True)
    at_oom(lambda: dumped("%s/oom_rank-%d_snapshot.pickle" % (folder, rank)))


def megatron_bridge(rank, folder):
    torch.cuda.memory._record_memory_history(True, trace_alloc_max_entries=100000, trace_alloc_record_context=True)
    at_oom(lambda: dumped("%s/snapshot_oom_rank-%d.pickle" % (folder, rank)))


def torchtitan(rank, folder):
    torch.cuda.memory._record_memory_history(max_entries=100000)
    kept = train()
    ask()
    pickled("%s/rank%d_memory_snapshot.pickle" % (folder, rank))
    del kept


def torchtnt(rank, folder):
    torch.cuda.memory._record_memory_history(enabled="all", max_entries=1000000)
    at_oom(lambda: pickled("%s/oom_rank%d/snapshot.pickle" % (folder, rank)))


def sglang(rank, folder):
    torch.cuda.memory._record_memory_history(max_entries=100000)
    kept = train()
    dumped("%s/%s-TP-%d-memory-DECODE.pickle" % (folder, time.time(), rank))
    del kept


def slime(rank, folder):
    torch.cuda.memory._record_memory_history(max_entries=1000000, stacks="all")
    at_oom(lambda: dumped("%s/memory_snapshot_time%s_rank%d_snapshot.pickle" % (folder, time.time(), rank)))


def composer(rank, folder):
    torch.cuda.memory._record_memory_history(True, trace_alloc_max_entries=100000, trace_alloc_record_context=True)
    kept = train()
    pickled("%s/rank%d.4.memory_snapshot.pickle" % (folder, rank))
    del kept


def mindspeed(rank, folder):
    torch.cuda.memory._record_memory_history(stacks="all", max_entries=sys.maxsize)
    kept = train()
    dumped("%s/snapshot_%s_%d.pickle" % (folder, time.strftime("%Y-%m-%d-%H-%M"), rank))
    del kept


def monarch(rank, folder):
    torch.cuda.memory._record_memory_history()
    kept = train()
    dumped("%s/snapshot_%d.pickle" % (folder, rank))
    del kept


def steps(_, folder, clears=False):
    """What a callback of Hugging Face's Trainer writes every few steps."""
    torch.cuda.memory._record_memory_history(max_entries=100000, stacks="python")
    kept = []
    for step in (0, 1):
        kept.append(train())
        dumped("%s/snapshot_%d.pickle" % (folder, step))
        if clears:
            torch.cuda.memory._record_memory_history(enabled=None)
            torch.cuda.memory._record_memory_history(max_entries=100000, stacks="python", clear_history=True)


def steps_cleared(rank, folder):
    steps(rank, folder, clears=True)


if __name__ == "__main__":
    for name in sys.argv[1].split(","):
        globals()[name](int(sys.argv[2]), os.path.join(sys.argv[3], name))
        torch.cuda.memory._record_memory_history(enabled=None)

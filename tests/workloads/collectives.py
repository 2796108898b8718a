# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Results of collectives on one rank of a job: each kind whose values scripts read, one JSON document. Objects travel as pickles
in small tensors, so they arrive complete or not at all."""
import json
import os

import torch
import torch.distributed as dist


def attempt(what):
    try:
        return what()
    except Exception as e:  # noqa: BLE001: the error is the result
        return repr(e)


def gathered(group, n):
    out = [None] * n
    dist.all_gather_object(out, {"rank": dist.get_rank()}, group=group)
    return [out[0], out[-1]]


def broadcast(rank):
    out = [{"from": 0, "list": list(range(20))} if rank == 0 else None]
    dist.broadcast_object_list(out, 0)
    return out[0]


def to_first(rank, n):
    out = [None] * n if rank == 0 else None
    dist.gather_object({"rank": rank}, out, 0)
    return [out[0], out[-1]] if rank == 0 else None


def scatter(rank, n):
    out = [None]
    dist.scatter_object_list(out, [{"for": i} for i in range(n)] if rank == 0 else None, 0)
    return out[0]


def shape(rank, n):
    """A pipeline stage: the previous stage sends the size first."""
    sizes = torch.tensor([rank, 300], device="cuda")
    if rank:
        dist.recv(sizes, rank - 1)
    if rank < n - 1:
        dist.send(torch.tensor([rank + 10, 300], device="cuda"), rank + 1)
    return list(torch.empty(sizes.tolist(), device="cuda").shape)


def main():
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl")
    rank, n = dist.get_rank(), dist.get_world_size()
    half = dist.new_group([i for i in range(n) if i % 2 == rank % 2], use_local_synchronization=True)
    ones = torch.tensor([1.5] * 3, device=device)
    dist.all_reduce(ones)
    dist.barrier()
    out = {"rank": rank, "world": n, "sum": ones.tolist(), "all": attempt(lambda: gathered(None, n)),
           "half": attempt(lambda: gathered(half, n // 2)), "broadcast": attempt(lambda: broadcast(rank)),
           "first": attempt(lambda: to_first(rank, n)), "scatter": attempt(lambda: scatter(rank, n)), "shape": attempt(lambda: shape(rank, n))}
    print(json.dumps(out), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()

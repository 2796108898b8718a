# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""One rank of a large job, compared with closed formulas of its memory: ranks_of_many.py JOB ... Each job prints one JSON line:
PyTorch's counters at its peak and end, and the results of the formulas in this file, with their terms. Rank and rendezvous
come from torchrun's environment."""
import gc
import json
import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn

WIDTH, LAYERS, ROWS, STEPS = 2048, 16, 32, 3
LAYER = 4 * WIDTH * WIDTH  # bytes of one layer's weights; a power of two, as all large sizes here
WEIGHTS = LAYERS * LAYER
ACTIVATION = 4 * ROWS * WIDTH  # bytes passed from layer to layer
MICROBATCHES, MICRO_ROWS = 8, 1024
MICRO = 4 * MICRO_ROWS * WIDTH
DEVICE = torch.device("cuda", int(os.environ["LOCAL_RANK"]))



def workspaces():
    """Workspace of cuBLAS from PyTorch's allocator, by device and version: kept by each of the two threads that multiply, or,
    from 2.15 on, only during a multiplication."""
    torch._C._cuda_clearCublasWorkspaces()
    a, b = torch.empty(64, 64, device=DEVICE), torch.empty(64, 64, device=DEVICE)
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    c = a @ b
    kept = torch.cuda.memory_allocated() - before - c.untyped_storage().nbytes()
    most = torch.cuda.max_memory_allocated() - before - c.untyped_storage().nbytes()
    torch._C._cuda_clearCublasWorkspaces()
    return 2 * kept, 2 * kept or most


def settle():
    """Frees the previous job's memory: NCCL's watchdog releases it with the next collective."""
    gc.collect()
    torch._C._cuda_clearCublasWorkspaces()
    for _ in range(2):
        dist.all_reduce(torch.zeros(1, device=DEVICE))
        torch.cuda.synchronize()
        time.sleep(0.25)
    torch.cuda.empty_cache()


def layers(n=LAYERS):
    with DEVICE:
        return nn.Sequential(*[nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(n)])


def adamw(model):
    # one kernel: no temporaries
    return torch.optim.AdamW(model.parameters(), fused=True)


def steps(one, optimizer):
    """Peak of the last steps, memory left at the end, and the peak of each step."""
    peaks = []
    for _ in range(STEPS):
        torch.cuda.reset_peak_memory_stats()
        one()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        peaks.append(torch.cuda.max_memory_allocated())
    return peaks[-1], torch.cuda.memory_allocated(), peaks


def train(model, optimizer=None):
    x = torch.empty(ROWS, WIDTH, device=DEVICE)
    return steps(lambda: model(x).sum().backward(), optimizer or adamw(model))


# Terms of all jobs: the input, each optimizer's step, at the peak a gradient between layers, the loss and its gradient.
SMALL_END = {"input": ACTIVATION, "steps": 512 * LAYERS}
SMALL_PEAK = dict(SMALL_END, passing=ACTIVATION, loss=2 * 512)


def ddp(**options):
    from torch.nn.parallel import DistributedDataParallel
    model = DistributedDataParallel(layers(), device_ids=[DEVICE.index], **options)
    got = train(model)
    # The buckets are as large as all gradients; with gradient_as_bucket_view they replace the gradients.
    view = options.get("gradient_as_bucket_view", False)
    held = {"weights": WEIGHTS, "states": 2 * WEIGHTS, "buckets": WEIGHTS}
    # At the end of the backward; or, if no gradient stays, at its beginning, with the first layer's gradient on its way into the
    # bucket.
    more = {"gradient": LAYER, "activations": LAYERS * ACTIVATION} if view else {"gradients": WEIGHTS}
    return got, dict(held, **more, **SMALL_PEAK), dict(held, **SMALL_END)


def fsdp2(mesh=None):
    from torch.distributed.fsdp import fully_shard
    model = layers()
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    got = train(model)
    n = dist.get_world_size() if mesh is None else mesh.size(mesh.ndim - 1)
    # In the backward of a layer: its full weights and gradient; the next layer's gathered weights; the last layer's gradient
    # during its reduction. The peak is at the second layer.
    return got, dict({"weights": WEIGHTS // n, "gradients": (LAYERS - 2) * LAYER // n, "states": 2 * WEIGHTS // n, "whole": 4 * LAYER,
                      "activations": 2 * ACTIVATION}, **SMALL_PEAK), \
        dict({"weights": WEIGHTS // n, "states": 2 * WEIGHTS // n}, **SMALL_END)


def hsdp():
    from torch.distributed.device_mesh import init_device_mesh
    return fsdp2(init_device_mesh("cuda", (dist.get_world_size() // 8, 8), mesh_dim_names=("replicate", "shard")))


def fsdp1():
    from torch.distributed.fsdp import FullyShardedDataParallel
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy
    model = FullyShardedDataParallel(layers(), auto_wrap_policy=ModuleWrapPolicy({nn.Linear}), device_id=DEVICE)
    got, n = train(model), dist.get_world_size()
    return got, dict({"weights": WEIGHTS // n, "gradients": (LAYERS - 2) * LAYER // n, "states": 2 * WEIGHTS // n, "whole": 4 * LAYER}, **SMALL_PEAK), \
        dict({"weights": WEIGHTS // n, "states": 2 * WEIGHTS // n}, **SMALL_END)


def zero():
    """Full weights and gradients; states of this rank's share of the layers."""
    from torch.distributed.optim import ZeroRedundancyOptimizer
    from torch.nn.parallel import DistributedDataParallel
    model = DistributedDataParallel(layers(), device_ids=[DEVICE.index], gradient_as_bucket_view=True)
    got = train(model, ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, fused=True))
    mine = len(range(dist.get_rank(), LAYERS, dist.get_world_size()))
    held = {"weights": WEIGHTS, "buckets": WEIGHTS, "states": 2 * mine * LAYER, "input": ACTIVATION, "steps": 512 * mine}
    return got, dict(held, gradient=LAYER, activations=LAYERS * ACTIVATION, passing=ACTIVATION, loss=2 * 512), held


def tp():
    """Pairs of layers, the first split by columns, the second by rows."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
    n = dist.get_world_size()
    model = parallelize_module(layers(), init_device_mesh("cuda", (n,)),
                               {str(i): RowwiseParallel() if i % 2 else ColwiseParallel() for i in range(LAYERS)})
    got = train(model)
    # Before the last gradient: the tensor between the layers of a pair, and its gradient, have this rank's columns only.
    held = {"weights": WEIGHTS // n, "states": 2 * WEIGHTS // n}
    return got, dict(held, gradients=(LAYERS - 1) * LAYER // n, columns=2 * ACTIVATION // n, **SMALL_PEAK), dict(held, **SMALL_END)


def pipeline(schedule):
    """Two layers per stage; first and last stage like the others, so the loss is computed from the last one's output."""
    from torch.distributed.pipelining import PipelineStage, schedules
    n, rank = dist.get_world_size(), dist.get_rank()
    model = layers(2)
    rows = MICRO_ROWS * MICROBATCHES
    part = torch.empty(MICRO_ROWS, WIDTH, device=DEVICE)
    stage = PipelineStage(model, rank, n, DEVICE, input_args=(part,), output_args=(part,))
    runs = getattr(schedules, schedule)(stage, MICROBATCHES, loss_fn=lambda output, target: output.sum())
    whole = torch.empty(rows, WIDTH, device=DEVICE)

    def one():
        if rank == 0:
            runs.step(whole)
        elif rank == n - 1:
            runs.step(target=whole)
        else:
            runs.step()

    # Allocated at the start: the batch, a part of it for its shape, buffers for each part from the previous stage and each
    # gradient from the next stage.
    held = {"weights": 2 * LAYER, "states": 4 * LAYER, "steps": 512 * 2, "batch": rows * 4 * WIDTH + MICRO, "places": 2 * MICROBATCHES * MICRO}
    # Each active microbatch has the tensor between its layers and its output. The last gradient is in transfer.
    if schedule == "ScheduleGPipe":
        more = {"under_way": 2 * MICROBATCHES * MICRO, "passing": MICRO}
    else:
        more = {"under_way": 2 * min(MICROBATCHES, n - rank) * MICRO, "passing": 2 * MICRO, "gradient": LAYER}
    return steps(one, adamw(model)), dict(held, gradients=2 * LAYER, **more), held


def by_hand():
    """A pipeline with alternating forwards and backwards, as in Megatron: each stage sends and receives in groups of two."""
    n, rank = dist.get_world_size(), dist.get_rank()
    model = layers(2)
    before, after = (rank - 1) % n, (rank + 1) % n

    def exchange(sends, to, origin):
        got = torch.empty(MICRO_ROWS, WIDTH, device=DEVICE)
        both = [dist.P2POp(dist.irecv, got, origin)] + ([] if sends is None else [dist.P2POp(dist.isend, sends, to)])
        for work in dist.batch_isend_irecv(both):
            work.wait()
        return got

    def forward():
        x = exchange(None, after, before).requires_grad_()
        flight.append((x, model(x)))

    def backward():
        x, y = flight.pop(0)
        gradient = exchange(y.detach(), after, after)
        torch.autograd.backward(y, gradient)
        x.grad = None

    flight = []
    ahead = min(MICROBATCHES, n - rank - 1)

    def one():
        for _ in range(ahead):
            forward()
        for _ in range(MICROBATCHES - ahead):
            forward()
            backward()
        while flight:
            backward()

    got = steps(one, adamw(model))
    held = {"weights": 2 * LAYER, "states": 4 * LAYER, "steps": 512 * 2}
    # Each active microbatch has its input, the tensor between the layers, and its output.
    under_way = min(MICROBATCHES, ahead + 1)
    return got, dict(held, gradients=2 * LAYER, under_way=3 * under_way * MICRO, passing=2 * MICRO, gradient=LAYER), held


JOBS = {
    "ddp": ddp,
    "ddp_view": lambda: ddp(gradient_as_bucket_view=True),
    "fsdp2": fsdp2,
    "hsdp": hsdp,
    "fsdp1": fsdp1,
    "zero": zero,
    "tp": tp,
    "gpipe": lambda: pipeline("ScheduleGPipe"),
    "1f1b": lambda: pipeline("Schedule1F1B"),
    "by_hand": by_hand,
}


def main():
    torch.cuda.set_device(DEVICE)
    dist.init_process_group("nccl")
    kept, most = workspaces()
    for name in sys.argv[1:]:
        settle()
        base = torch.cuda.memory_allocated()
        (peak, end, peaks), at_peak, at_end = JOBS[name]()
        at_peak["workspaces"], at_end["workspaces"] = most, kept
        print(json.dumps({"job": name, "rank": dist.get_rank(), "world": dist.get_world_size(), "base": base, "peak": peak, "end": end, "peaks": peaks,
                          "at_peak": at_peak, "at_end": at_end,
                          "off": [peak - sum(at_peak.values()), end - sum(at_end.values())]}), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()

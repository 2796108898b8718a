# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Jobs that use what the dry run models, in one process: cuda_dryrun.py [JOB ...]. Needs two devices of 2 GiB. Each job prints
one JSON line: its name, and its result or error."""
import json
import sys
import warnings

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader

import gpt

warnings.simplefilter("ignore")
MIB = 1 << 20


def properties():
    p = torch.cuda.get_device_properties(0)
    return {"available": torch.cuda.is_available(), "count": torch.cuda.device_count(), "name": p.name, "total": p.total_memory,
            "capability": list(torch.cuda.get_device_capability(1)), "backend": torch.cuda.get_allocator_backend()}


def train():
    """Two steps of a small GPT with PyTorch's attention; the second allocates the same as the first."""
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    model = gpt.GPT(256, 64, 4, 2, 32).cuda()
    weights = torch.cuda.memory_allocated() - before
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    peaks = []
    for _ in range(3):
        torch.cuda.reset_peak_memory_stats()
        text = torch.randint(256, (4, 33)).cuda()
        F.cross_entropy(model(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten()).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        peaks.append(torch.cuda.max_memory_allocated() - before)
    states = sum(t.numel() * t.element_size() for s in optimizer.state.values() for t in s.values() if t.is_cuda)
    parameters = sum(p.numel() * p.element_size() for p in model.parameters())
    del model, optimizer, text
    return {"parameters": parameters, "weights": weights, "states": states, "peaks": peaks}


def round_trips():
    wrong = []
    for dtype in (torch.uint8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.bool):
        host = torch.arange(1000).to(dtype)
        there = host.cuda()
        if not torch.equal(there.cpu(), host) or not torch.equal(there.clone().cpu(), host) or there[7].item() != host[7].item():
            wrong.append(str(dtype))
        host.zero_()
        if not torch.equal(there[100:130].cpu(), torch.arange(1000).to(dtype)[100:130]):
            wrong.append("part of " + str(dtype))
    big = torch.ones(1 << 20).cuda()
    return {"wrong": wrong, "big": big.cpu().sum().item(), "list": torch.tensor([[1.5, -2.0]]).cuda().tolist(),
            "fresh": torch.empty(1000, device="cuda").abs().sum().item()}


def out_of_memory():
    torch.cuda.empty_cache()
    at_begin = torch.cuda.memory_allocated()
    out = {}
    try:
        torch.empty(4096 * MIB, dtype=torch.uint8, device="cuda")
    except torch.cuda.OutOfMemoryError as e:
        out["type"] = type(e).__name__
        out["text"] = str(e)[:100]
    held = []
    try:
        while len(held) < 1000:
            held.append(torch.empty(64 * MIB, dtype=torch.uint8, device="cuda"))
    except torch.cuda.OutOfMemoryError:
        pass
    out["held"] = len(held)
    del held
    torch.cuda.empty_cache()
    big = torch.empty(1024 * MIB, dtype=torch.uint8, device="cuda")
    out["after"] = [big.numel(), (torch.tensor([3.0]).cuda()).item()]
    del big
    torch.cuda.empty_cache()
    out["left"] = torch.cuda.memory_allocated() - at_begin
    return out


def two_devices():
    before = [torch.cuda.memory_allocated(i) for i in (0, 1)]
    first, second = torch.nn.Linear(64, 64).to("cuda:0"), torch.nn.Linear(64, 64).to("cuda:1")
    second(first(torch.ones(8, 64, device="cuda:0")).relu().to("cuda:1")).sum().backward()
    with torch.cuda.device(1):
        here = torch.empty(10 * MIB, dtype=torch.uint8, device="cuda")
    other = torch.arange(100, device="cpu").to("cuda:0").to("cuda:1")
    return {"gradients": [str(first.weight.grad.device), str(second.weight.grad.device)], "here": str(here.device),
            "grew": [torch.cuda.memory_allocated(i) - before[i] > 0 for i in (0, 1)],
            "kept": other.tolist() == list(range(100)), "peer": torch.cuda.can_device_access_peer(0, 1),
            "current": torch.cuda.current_device()}


def pinned():
    host = torch.arange(10).pin_memory()
    loader = DataLoader(torch.arange(32.0).view(8, 4), batch_size=4, num_workers=1, pin_memory=True)
    batches = list(loader)
    moved = [b.to("cuda", non_blocking=True) for b in batches]
    torch.cuda.synchronize()
    return {"own": [torch.arange(10).is_pinned(), host.is_pinned(), host[3:].is_pinned(), host.clone().is_pinned()],
            "loader": [b.is_pinned() for b in batches], "values": torch.cat([m.cpu() for m in moved]).flatten().tolist() == list(range(32)),
            "empty": torch.empty(5 * MIB, dtype=torch.uint8, pin_memory=True).is_pinned()}


def streams():
    before = torch.cuda.memory_allocated()
    side = torch.cuda.Stream()
    done = torch.cuda.Event(enable_timing=True)
    begun = torch.cuda.Event(enable_timing=True)
    begun.record()
    x = torch.ones(3 * MIB, device="cuda")
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        y = x * 2
        x.record_stream(side)
        done.record()
    torch.cuda.current_stream().wait_event(done)
    y.record_stream(torch.cuda.current_stream())
    del x
    done.synchronize()
    z = torch.empty(3 * MIB, device="cuda")
    out = {"query": [done.query(), side.query()], "time": begun.elapsed_time(done) >= 0}
    side.synchronize()
    torch.cuda.synchronize()
    del y, z
    torch.cuda.empty_cache()
    out["left"] = torch.cuda.memory_allocated() - before
    return out


def graphs():
    x = torch.zeros(64, 64, device="cuda")
    module = torch.nn.Linear(64, 64).cuda()
    with torch.no_grad():
        module(x)
        g = torch.cuda.CUDAGraph()
        with torch.cuda.graph(g):
            inside = torch.cuda.is_current_stream_capturing()
            y = module(x).relu()
        kept = y.data_ptr()
        for _ in range(3):
            x.copy_(torch.ones(64, 64))
            g.replay()
        torch.cuda.synchronize()
    out = {"inside": inside, "outside": torch.cuda.is_current_stream_capturing(), "same": y.data_ptr() == kept, "value": x[3, 3].item()}
    if torch.cuda.get_allocator_backend() == "native":
        pools = {tuple(s["segment_pool_id"]) for s in torch.cuda.memory_snapshot() if s["total_size"]}
        out["pools"] = len(pools)
    # A captured training step as in the documentation.
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            optimizer.zero_grad(set_to_none=True)
            module(x).sum().backward()
            optimizer.step()
    torch.cuda.current_stream().wait_stream(side)
    step = torch.cuda.CUDAGraph()
    optimizer.zero_grad(set_to_none=True)
    with torch.cuda.graph(step):
        module(x).sum().backward()
        optimizer.step()
    step.replay()
    torch.cuda.synchronize()
    return out


def memory():
    """Device memory in use compared with the allocator's own figures."""
    torch.cuda.empty_cache()
    torch.cuda.synchronize()
    rows = []
    for size in (0, 1, 30 * MIB, 300 * MIB):
        block = torch.empty(size, dtype=torch.uint8, device="cuda")
        free, total = torch.cuda.mem_get_info()
        rows.append([total - free, torch.cuda.memory_reserved()])
        del block
    torch.cuda.empty_cache()
    torch.cuda.synchronize()
    free, total = torch.cuda.mem_get_info()
    return {"total": total, "rows": rows, "end": [total - free, torch.cuda.memory_reserved()]}


def failed_capture():
    """Runs last, because some PyTorch releases stay in the failed capture: tests the state of CUDA then."""
    x = torch.zeros(64, device="cuda")
    g = torch.cuda.CUDAGraph()
    out = {"errors": []}
    try:
        with torch.cuda.graph(g):
            y = x * 2
            try:
                torch.cuda.synchronize()
            except RuntimeError as e:
                out["errors"].append(str(e).split("\n")[0])
            try:
                y = x + 1
            except RuntimeError as e:
                out["errors"].append(str(e).split("\n")[0])
    except RuntimeError as e:
        out["errors"].append(str(e).split("\n")[0])
    torch.cuda.synchronize()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        z = torch.ones(1000, device="cuda") * 3
    side.synchronize()
    out["capturing"] = torch.cuda.is_current_stream_capturing()
    out["after"] = [z.numel(), torch.tensor([5]).cuda().item()]
    return out


JOBS = (properties, memory, train, round_trips, out_of_memory, two_devices, pinned, streams, graphs, failed_capture)


def main():
    wanted = sys.argv[1:] or [j.__name__ for j in JOBS]
    for job in JOBS:
        if job.__name__ not in wanted:
            continue
        line = {"job": job.__name__}
        try:
            line["result"] = job()
        except Exception as e:
            line["error"] = "%s: %s" % (type(e).__name__, str(e)[:500])
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()

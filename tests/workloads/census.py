# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Brings PyTorch's CUDA allocator into named states, one for each line on standard input: "NAME FILE". In the state, it writes
PyTorch's own view of it to FILE, prints "in NAME" and waits for the next line. Runs in the dry run: it never reads a kernel's
result."""
import gc
import json
import os
import sys
import threading

import torch

KEEP = {}


def truth(path):
    segments = []
    for s in torch.cuda.memory._snapshot()["segments"]:
        at, blocks = s["address"], []
        for b in s["blocks"]:
            blocks.append([at, b["size"], b.get("requested_size", 0), b["state"]])
            at += b["size"]
        segments.append({
            "address": s["address"], "size": s["total_size"], "stream": s["stream"], "device": s["device"],
            "small": s["segment_type"] == "small", "pool": list(s.get("segment_pool_id", (0, 0))),
            "expandable": s.get("is_expandable", False), "blocks": blocks})
    stats = []
    for i in range(torch.cuda.device_count()):
        m = torch.cuda.memory_stats(i)
        stats.append({"allocated": m["allocated_bytes.all.current"], "reserved": m["reserved_bytes.all.current"],
                      "active": m["active_bytes.all.current"], "requested": m["requested_bytes.all.current"],
                      "count": m["allocation.all.current"]})
    with open(path, "w", encoding="utf-8") as f:
        json.dump({"segments": segments, "stats": stats}, f)


def empty(n, device="cuda:0"):
    return torch.empty(n, dtype=torch.uint8, device=device)


# ---- states -----------------------------------------------------------------------------------------------

def init():
    torch.cuda.init()


def one():
    KEEP["one"] = empty(1000)


def exact():
    """A segment filled by one block: nothing is split."""
    KEEP["exact"] = empty(64 << 20)


def sizes():
    KEEP["sizes"] = [empty(1 + i * i * 977 % 5000000) for i in range(400)]


def holes():
    KEEP["sizes"][1::3] = [None] * len(KEEP["sizes"][1::3])


def model():
    net = torch.nn.Sequential(*[torch.nn.Linear(512, 512) for _ in range(12)]).cuda()
    opt = torch.optim.AdamW(net.parameters())
    for _ in range(2):
        net(torch.empty(64, 512, device="cuda")).sum().backward()
        opt.step()
        opt.zero_grad()
    KEEP["model"] = (net, opt)


def cached():
    """The model is freed, its memory cached."""
    del KEEP["model"]
    gc.collect()


def streams():
    KEEP["streams"] = []
    for _ in range(3):
        s = torch.cuda.Stream()
        with torch.cuda.stream(s):
            KEEP["streams"].append((s, [empty(700 * (i + 1)) for i in range(20)]))


def pending():
    """Freed, and used by another stream: pending until the allocator next looks at its events."""
    side = torch.cuda.Stream()
    x = [empty(3000), empty(5000000)]
    for t in x:
        t.record_stream(side)
    KEEP["side"] = side
    del x, t


def devices():
    KEEP["devices"] = [empty(12345 * (i + 1), "cuda:%d" % (i % 2)) for i in range(40)]
    del KEEP["devices"][5:20:2]


def pools():
    """Private pools: of a MemPool if available, and of a captured graph."""
    if hasattr(torch.cuda, "MemPool"):
        pool = torch.cuda.MemPool()
        with torch.cuda.use_mem_pool(pool):
            KEEP["pool"] = (pool, [empty(9000 + i) for i in range(10)], empty(7 << 20))
    g = torch.cuda.CUDAGraph()
    static = torch.empty(1000, 100, device="cuda")
    with torch.cuda.graph(g):
        out = static * 2
        out2 = out + 1
    KEEP["graph"] = (g, static, out, out2)


def pool_gone():
    """A tensor is left in the pool of a deleted graph."""
    KEEP["graph"] = KEEP["graph"][2:]
    gc.collect()


def unmapped():
    """Expandable segments with unmapped holes."""
    x = [empty(30 << 20) for _ in range(12)]
    y = [empty(1 << 18) for _ in range(200)]
    KEEP["unmapped"] = x[0::3] + y[0::50]
    del x, y
    torch.cuda.empty_cache()


def limited():
    """At the process's memory limit, and above it."""
    torch.cuda.set_per_process_memory_fraction(0.01)
    KEEP["limited"] = []
    try:
        while True:
            KEEP["limited"].append(empty(100 << 20))
    except RuntimeError:
        torch.cuda.set_per_process_memory_fraction(1.0)


def many():
    KEEP["many"] = [empty(1 + i % 2048) for i in range(50000)]
    del KEEP["many"][7::5]


def nothing():
    KEEP.clear()
    gc.collect()


def full_speed():
    """Allocates and frees as fast as it can until the next state is requested, besides the blocks that stay."""
    KEEP["stays"] = [empty(1 + i * 4099 % 3000000) for i in range(300)]
    KEEP["stop"] = threading.Event()
    KEEP["seen"] = set()
    KEEP["thread"] = threading.Thread(target=churn, args=(KEEP["stop"], KEEP["seen"]))


def churn(stop, seen):
    window = [None] * 200
    i = 0
    while not stop.is_set():
        n = 1 + i * i * 7919 % 400000
        window[i * 31 % 200] = None
        x = empty(n)
        seen.add((x.data_ptr(), n))
        window[i * 31 % 200] = x
        i += 1


def stopped():
    """Writes every (address, size) ever allocated to the file."""
    KEEP["stop"].set()
    KEEP["thread"].join()


def main():
    print("ready", flush=True)
    for line in sys.stdin:
        name, path = line.split()
        if name != "import":
            globals()[name]()
        if name not in ("import", "init") or os.environ.get("CENSUS_TRUTH"):
            if torch.cuda.is_initialized():
                truth(path)
        if name == "full_speed":
            KEEP["thread"].start()
        if name == "stopped":
            with open(path, "w", encoding="utf-8") as f:
                json.dump(sorted(KEEP["seen"]), f)
        print("in", name, flush=True)


if __name__ == "__main__":
    main()

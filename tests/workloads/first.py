# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
Makes tensors of unique sizes from the first statement after `import torch` on, and prints them as one JSON object: {"made":
[[bytes, line], ...], ...}. Options in any order:

    cuda     on the first device; adds the device's memory, the number of devices and the allocator's counters
    hang     prints "ready" and waits for a signal; SIGTERM makes it exit with 9, SIGINT with 8
"""
import torch; first = torch.empty(100003, dtype=torch.uint8)  # noqa: E702

import json
import os
import signal
import sys
import time

ON = "cuda" if "cuda" in sys.argv[1:] else "cpu"
LINE = 9  # the first tensor's


def make(n):
    return [torch.empty(100019 + 1009 * i, dtype=torch.uint8, device=ON) for i in range(n)]


def main():
    known = {}
    keep = make(20)
    known["made"] = [[first.numel(), LINE]] + [[t.numel(), make.__code__.co_firstlineno + 1] for t in keep]
    if ON == "cuda":
        stats = torch.cuda.memory_stats()
        known["devices"] = [torch.cuda.get_device_properties(i).total_memory for i in range(torch.cuda.device_count())]
        known["allocs"] = stats["allocation.all.allocated"]
        known["bytes"] = stats["allocated_bytes.all.allocated"]
    known["env"] = {k: v for k, v in os.environ.items()
                    if k.startswith(("MEMTRACE_", "TRITON_", "TORCHINDUCTOR_", "CUDA_", "CUPY_", "VLLM_", "LD_PRELOAD"))}
    print(json.dumps(known), flush=True)
    if "hang" in sys.argv[1:]:
        signal.signal(signal.SIGTERM, lambda *_: os._exit(9))
        signal.signal(signal.SIGINT, lambda *_: os._exit(8))
        print("ready", flush=True)
        time.sleep(120)
    time.sleep(0.3)  # code freed at the program's end has no name if it is less than one drain interval old


if __name__ == "__main__":
    main()

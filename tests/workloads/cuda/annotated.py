# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""A job with all that the history of PyTorch 2.15 can have: pinned host memory, texts of blocks, annotations, code that is being
compiled, skipped actions. torch >= 2.15."""
import argparse
import os

import torch

memory = torch.cuda.memory
MIB = 1 << 20


def pinned(mib):
    return torch.empty(mib * MIB, dtype=torch.uint8, pin_memory=True)


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--snapshot", required=True)
    p.add_argument("--skip", default="", help="actions that the history skips, with commas")
    args = p.parse_args()
    torch.cuda.init()
    early = pinned(1)
    memory._record_memory_history(enabled="all", context="all", stacks="python", compile_context=True,
                                  skip_actions=[s for s in args.skip.split(",") if s], record_pinned_host_memory=True)
    memory._set_memory_metadata({"part": "weights"})
    weights = torch.empty(3 * MIB, dtype=torch.uint8, device="cuda")
    memory._set_memory_metadata("")
    kept = torch.empty(5 * MIB, dtype=torch.uint8, device="cuda")
    memory._annotate_tensor(kept[4096:], "saved for backward")
    memory._annotate_tensor(weights, "frozen")
    batches = [pinned(2) for _ in range(3)]
    doubled = torch.compile(lambda x: x * 2, backend="eager")(kept)
    for batch in batches:
        torch.empty(2 * MIB, dtype=torch.uint8, device="cuda").copy_(batch)
    del batches, batch
    torch._C._accelerator_emptyHostCache()
    last = pinned(4)
    memory._dump_snapshot(args.snapshot)
    print(sum(t.nbytes for t in (early, weights, kept, doubled, last)), flush=True)
    os._exit(0)  # no destructor may free anything after the file is written


main()

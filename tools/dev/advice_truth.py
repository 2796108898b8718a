#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
Compares savings predicted by `report --advice` with real savings: records each job of tests/workloads/advised.py without and
with its remedy, in the dry run. Prints a table; docs/internals/ESTIMATE.md, section "Advice", has the errors. Needs the same as
`run`, and no GPU. Exits with 1 if advice is missing that saves 1 % or more, if it is given where the remedy is applied already,
or if its error is too large: an upper bound must not be exceeded, other predictions may be off by 5 % of the peak.

    tools/dev/advice_truth.py [--only PATTERN]
"""
import argparse
import json
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "tests", "e2e"))
import harness  # noqa: E402

# name, script, its arguments, arguments with the remedy, kind of advice, PyTorch role
JOBS = (
    ("checkpoint", "advised.py", "checkpoint --batch 8", "--remedied", "checkpoint", "main"),
    ("checkpoint, autocast", "advised.py", "checkpoint --batch 8 --amp", "--remedied", "checkpoint", "main"),
    ("checkpoint, 12 layers of width 512", "advised.py", "checkpoint --layers 12 --width 512", "--remedied", "checkpoint", "main"),
    ("checkpoint, GPT-2 124M", "estimate/gpt2.py", "", "--checkpoint", "checkpoint", "main"),
    ("checkpoint, GPT-2 124M, bf16", "estimate/gpt2.py", "--amp bf16", "--checkpoint", "checkpoint", "main"),
    ("checkpoint, HF GPT-2 124M", "estimate/hf.py", "gpt2", "--checkpoint", "checkpoint", "estimate"),
    ("checkpoint, HF Llama 1B, weights bf16", "estimate/hf.py", "llama --size 1B --dtype bf16 --batch 2 --length 2048", "--checkpoint", "checkpoint",
     "estimate"),
    ("state in 8 bit", "advised.py", "state --width 512", "--remedied", "optimizer_8bit", "main"),
    ("fused=True", "advised.py", "foreach --width 1024 --batch 1 --context 64", "--remedied", "optimizer_foreach", "main"),
    ("zero_grad() after forward", "advised.py", "late --vocab 8000 --width 512 --batch 1", "--remedied", "gradients_late", "main"),
    ("set_to_none=False", "advised.py", "zeroed --vocab 8000 --width 512 --batch 1", "--remedied", "gradients_late", "main"),
    ("a mask for each block", "advised.py", "buffers", "--remedied", "buffers", "main"),
    ("cross entropy in 8 parts", "advised.py", "logits --vocab 32000", "--remedied", "logits", "main"),
    ("output held", "advised.py", "outputs --vocab 8000", "--remedied", "outputs_held", "main"),
    ("DDP's buckets", "advised.py", "ddp --width 512 --batch 1", "--remedied", "ddp_buckets", "main"),
)
LARGEST_ERROR = 0.05  # share of the peak
LEAST = 0.01  # share of the peak; smaller savings need no advice


def recorded(script, arguments, role):
    """PyTorch's own peak, and the advice by kind."""
    path = harness.scratch("advised.mtr")
    workload = os.path.join(harness.WORKLOADS, script)
    code, out, err = harness.tool("run", "--dry-run-cuda", "-f", "-o", path, "--", harness.python(role), workload, *arguments, root=True, seconds=900)
    harness.equal(code, 0, "exit code of run (%s)" % err[-800:])
    told = json.loads([line for line in out.splitlines() if line.startswith("{")][-1])
    told = told.get("allocated", told.get("max_memory_allocated"))
    code, out, err = harness.tool("report", "--advice", "--format", "json", "--device", "cuda:0", path, root=True)
    harness.equal(code, 0, "exit code of report (%s)" % err[-800:])
    doc = json.loads(out)
    device = [d for d in doc["devices"] if d["device"] == "cuda:0"][0]
    harness.equal(device["peak_allocated"], told, "the peak")
    return told, {a["kind"]: a for a in doc["advice"]}


def mib(n):
    return "%.1f" % (n / (1 << 20))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--only", default="")
    args = p.parse_args()
    bad = 0
    print("| remedy | peak | figure | predicted saving | saved | error, of the peak | advised with the remedy in use |\n|---|---:|---|---:|---:|---:|---|")
    for name, script, arguments, remedy, kind, role in JOBS:
        if not re.search(args.only, name):
            continue
        peak, advice = recorded(script, arguments.split(), role)
        after, left = recorded(script, (arguments + " " + remedy).split(), role)
        if kind not in advice:
            print("| %s | %s | none | | %s | | |" % (name, mib(peak), mib(peak - after)), flush=True)
            bad += peak - after >= LEAST * peak
            continue
        said, saved = advice[kind], peak - after
        error = (said["saves_bytes"] - saved) / peak
        wrong = error < -LARGEST_ERROR or (error > LARGEST_ERROR and said["figure"] != "upper_bound")
        bad += wrong or kind in left
        print("| %s | %s | %s | %s | %s | %+.2f %%%s | %s |" % (name, mib(peak), said["figure"].replace("_", " "), mib(said["saves_bytes"]), mib(saved),
                                                         100 * error, " (!)" if wrong else "", mib(left[kind]["saves_bytes"]) if kind in left else "no"),
              flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())

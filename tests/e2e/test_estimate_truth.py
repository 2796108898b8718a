#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# run: nightly=versions
"""Estimates of training scripts compared with PyTorch's own counters in them, to the byte: a quick part of `make estimate-truth`,
which runs more and larger models. No GPU is needed."""
import functools
import json
import os
import re
import subprocess
import sys

import harness
from harness import Skip, check, equal, run

sys.path.insert(0, os.path.join(harness.WORKLOADS, "estimate"))
import estimates  # noqa: E402
import jobs  # noqa: E402

# AdamW in a loop: its fused variants reject fake tensors, and have other temporaries.
SMALL = jobs.Job("small", "gpt2.py --amp fp16 --clip 1 --checkpoint --accumulate 2 --batch 1 --length 64 --steps 3 --optimizer adamw-loop")
PLAIN = jobs.Job("plain", "gpt2.py --amp bf16 --checkpoint --batch 1 --length 64 --steps 2 --optimizer adamw-loop")
COUNTERS = ("allocated", "reserved")


def counters(told):
    return {k: told[k] for k in COUNTERS}


@functools.lru_cache(None)
def of_plain():
    return estimates.untraced(PLAIN)


def test_to_the_byte():
    r = estimates.recorded(SMALL)
    equal(counters(r["ours"]), counters(r["torch"]), "peaks")
    equal(r["ours"]["drift"], 0, "drift")
    check(r["torch"]["allocated"] > 4 * 4 * r["torch"]["parameters"], "no room for parameters, gradients and states: %s", r["torch"])
    equal(counters(estimates.untraced(SMALL)), counters(r["torch"]), "a second time, with no recording")


def test_command():
    if not estimates.has_estimate():
        raise Skip("no command estimate in this build")
    equal(counters(estimates.estimated(PLAIN)), counters(of_plain()), "estimate")


def test_fake_tensors_agree():
    """An independent estimate without the allocator must be near the allocated bytes."""
    truth = of_plain()
    fake = estimates.faked(PLAIN, "dispatch", True)
    check(fake["error"] is None, "%s", fake)
    check(abs(fake["peak"] - truth["allocated"]) < 0.03 * truth["allocated"], "%s, and the allocator had %s", fake, truth)


def test_devices_are_documented():
    """Each device in the program's table is a row of the document's table, with its figures."""
    with open(os.path.join(harness.REPO, "user", "estimate", "runs", "device_kinds.c"), encoding="utf-8") as f:
        source = f.read()
    with open(os.path.join(harness.REPO, "docs", "internals", "ESTIMATE.md"), encoding="utf-8") as f:
        document = f.read()
    kinds = re.findall(r'\{ "([^"]+)", "([^"]+)", (\d+), (\d+), (\d+), (\d+)( \* MIB)?,', source)
    contexts = dict(re.findall(r'\{ "([^"]+)", \d+, (\d+), FIGURE_', source))
    check(len(kinds) > 10 and len(kinds) == len(contexts), "the table is not understood: %s %s", kinds, contexts)
    for option, *_, size, mib in kinds:
        total = int(size) << (20 if mib else 0)
        row = "| `%s` | %s | %s, " % (option, format(total, ","), contexts[option])
        check(any(line.startswith(row) for line in document.splitlines()), "docs/internals/ESTIMATE.md has no row %s", row)


def test_bundle_for_a_gpu():
    """The bundle runs with the dry run instead of a GPU, and says so."""
    archive = harness.scratch("gpu.tar.gz")
    subprocess.run([os.path.join(harness.REPO, "tools", "dev", "estimate_gpu.sh"), archive], check=True, capture_output=True)
    subprocess.run(["tar", "-C", harness.scratch(), "-xzf", archive], check=True)
    folder = harness.scratch("estimate-gpu")
    with open(os.path.join(folder, "estimate", "jobs.py"), "a", encoding="utf-8") as f:
        f.write('\nJOBS = (Job("small", "gpt2.py --batch 1 --length 64 --steps 1"), Job("lacking", "hf.py gpt2", ("no_such_module",)))\n')
    libraries = " ".join(os.path.join(folder, "dryrun", lib) for lib in ("libcuda.so.1", "libnvidia-ml.so.1"))
    out = harness.scratch("gpu.json")
    done = subprocess.run(["python3", os.path.join(folder, "estimate_gpu.py"), "--python", harness.python("main"), "--json", out],
                          env=dict(os.environ, LD_PRELOAD=libraries, MEMTRACE_DRYRUN_SM="9.0", MEMTRACE_DRYRUN_VRAM="24G"),
                          capture_output=True, text=True, timeout=300)
    equal(done.returncode, 0, "exit: %s%s" % (done.stdout, done.stderr))
    check("This is not a GPU" in done.stdout and "SM 9.0" in done.stdout and "not measured (stand-in" in done.stdout, "%s", done.stdout)
    check("| +0.00 %, +0.00 % | - |" in done.stdout and "not run: no no_such_module" in done.stdout, "%s", done.stdout)
    with open(out, encoding="utf-8") as f:
        told = json.load(f)
    equal([told["real"], told["jobs"][0]["predicted"]["sm"]], [False, "9.0"], "what it tells in JSON")
    equal(told["jobs"][0]["predicted"]["total"], 24 << 30, "the device's memory")


if __name__ == "__main__":
    run(globals())

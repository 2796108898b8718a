#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# run: cpu=60
"""`estimate --here`: the script's devices are GPUs of this host, with what is free on them now. NVML is the dry run's."""
import json
import os
import sys

import test_json_schema
from harness import OUT, Skip, check, equal, python, run, scratch, spawn, tool

MIB = 1 << 20
DRYRUN = os.path.join(OUT, "dryrun")
CONTEXT = 512 * MIB
# 256 MiB on each device, and what CUDA says of them.
JOB = """
import sys, torch
held = [torch.empty(256 << 20, dtype=torch.uint8, device="cuda:%d" % i) for i in range(torch.cuda.device_count())]
print("seen", [torch.cuda.mem_get_info(i) for i in range(len(held))], file=sys.stderr, flush=True)
"""
_machines = []
TOUCH = "open(%r, 'w').close()"


def machine(*lines, devices=1, vram="2G", **more):
    path = scratch("machine-%d" % len(_machines))
    _machines.append(path)
    with open(path, "w", encoding="ascii") as f:
        f.write("".join(line + "\n" for line in lines))
    return {**os.environ, "LD_LIBRARY_PATH": DRYRUN, "MEMTRACE_DRYRUN_NVML": path, "MEMTRACE_DRYRUN_DEVICES": str(devices), "MEMTRACE_DRYRUN_VRAM": vram, **more}


def here(env, *options, code=JOB, expect=0, form="json"):
    """What it prints, and standard error."""
    if not os.path.exists(os.path.join(DRYRUN, "libnvidia-ml.so.1")):
        raise Skip("the dry run's libraries are not built")
    script = scratch("job.py")
    with open(script, "w", encoding="ascii") as f:
        f.write(code)
    status, out, err = tool("estimate", "--here", "--format", form, *options, "--", python(), "-u", script, root=True, seconds=300, env=env)
    equal(status, expect, "exit of estimate --here: %s" % err[-1500:])
    if form == "json" and out:
        out = json.loads(out)
        test_json_schema.validate([["estimate --here", "estimate", out]])
    return out, err


def seen(err):
    return json.loads(next(line for line in err.splitlines() if line.startswith("seen "))[5:].replace("(", "[").replace(")", "]"))


def sleeper():
    return spawn([sys.executable, "-c", "import time; time.sleep(600)"]).pid


def test_two_gpus():
    """Each device has its own free memory, as CUDA tells the script. All holders are named."""
    mine = sleeper()
    env = machine("process 0 %d 500M" % mine, "process 0 1 100M", "more 0 4M", "reserved 0 64M", "process 1 %d 300M" % mine, devices=2)
    doc, err = here(env)
    total, free = 2048 * MIB, [(2048 - 500 - 100 - 4 - 64) * MIB, (2048 - 300) * MIB]
    equal((doc["verdict"], doc["on"]["devices"], doc["on"]["vram"]), ("fits", 2, total), "verdict")
    equal([(d["device"], d["gpu"], d["slice"], d["total"], d["free"]) for d in doc["here"]["devices"]],
          [("cuda:0", 0, None, total - 64 * MIB, free[0]), ("cuda:1", 1, None, total, free[1])], "GPUs")
    equal([sorted((h["pid"], h["bytes"] // MIB) for h in d["holders"]) for d in doc["here"]["devices"]], [sorted([(mine, 500), (1, 100)]), [(mine, 300)]], "holders")
    equal([d["left"] for d in doc["devices"]], [f - CONTEXT - 256 * MIB for f in free], "what is left")
    equal(seen(err), [[f - CONTEXT - 256 * MIB, total] for f in free], "what CUDA tells the script")
    # CUDA's numbers are those of CUDA_VISIBLE_DEVICES. The GPU with less is the one that counts.
    doc, err = here({**env, "CUDA_VISIBLE_DEVICES": "1,0"}, code=JOB.replace("device_count()", "device_count() - 1"))
    equal([d["gpu"] for d in doc["here"]["devices"]], [1, 0], "order")
    equal(seen(err), [[free[1] - CONTEXT - 256 * MIB, total]], "cuda:0 is GPU 1")
    check("CUDA_VISIBLE_DEVICES is ignored" not in err, "said: %s", err)


def test_does_not_fit_now():
    """It would fit into the GPU, but others hold too much of it: exit status 4, and they are named."""
    mine = sleeper()
    env = machine("process 0 %d 1400M" % mine, "reserved 0 48M")
    out, _ = here(env, "--no-search", expect=4, form="text")
    lines = out.splitlines()
    check(lines[0] == "does not fit: needs 768.00 MiB, but GPU 0 has 600.00 MiB free: 168.00 MiB are missing", "verdict: %s", out)
    text = " ".join(out.split())
    check("cuda:0 is GPU 0: NVIDIA A100-SXM4-80GB (dry run), 600.00 MiB of 1.95 GiB free; held: 1.37 GiB by PID %d (root: python" % mine in text, "holders: %s", out)
    check("it would fit if nothing else held memory of GPU 0" in text and "48.00 MiB as the driver's reserve" in text, "the rest: %s", out)
    doc, _ = here(machine("process 0 %d 1400M" % mine, vram="1536M"), expect=4)
    equal((doc["verdict"], doc["smallest"]["vram"], doc["devices"][0]["left"]), ("does_not_fit", 768 * MIB, (136 - 768) * MIB), "less than a context is free")


def test_slice():
    """A slice of a GPU in multi-instance mode, by its UUID; without it, there is no answer."""
    mine = sleeper()
    env = machine("mig 0 1", "slice 0 3 1G", "slice 0 5 2G", "process 0 %d 100M slice=3" % mine, "process 0 1 1500M slice=5")
    _, out, _ = tool("ps", "--device", "--json", root=True, env=env)
    uuid = json.loads(out)["devices"][0]["slices"][0]["uuid"]
    doc, _ = here({**env, "CUDA_VISIBLE_DEVICES": uuid})
    equal([(d["slice"], d["total"], d["free"], [h["pid"] for h in d["holders"]]) for d in doc["here"]["devices"]], [(3, 1024 * MIB, 924 * MIB, [mine])], "slice")
    left = scratch("ran")
    _, err = here({**env, "CUDA_VISIBLE_DEVICES": uuid}, "--devices", "4", code=TOUCH % left, expect=2)
    check("the job has 4 devices, and CUDA shows 1 slice of this host (CUDA_VISIBLE_DEVICES)" in err and not os.path.exists(left), "more devices: %s", err)
    _, err = here(env, code=TOUCH % left, expect=2)
    check("multi-instance mode" in err and not os.path.exists(left), "without a slice: %s", err)
    _, err = here({**env, "CUDA_VISIBLE_DEVICES": "MIG-x"}, code=TOUCH % left, expect=2)
    check("no such slice" in err and not os.path.exists(left), "no such slice: %s", err)


def test_no_figure():
    """Without a figure it says so, and does not run the script: exit status 2."""
    left = scratch("ran")
    for env, options, words in ((dict(os.environ), (), "this machine has no libnvidia-ml.so.1"), (machine("no_memory"), (), "uses the host's"),
                                (machine("reserved 0 1M"), ("--devices", "3"), "the job has 3 devices, and CUDA shows 1 GPU of this host"),
                                (machine(CUDA_VISIBLE_DEVICES=""), (), "CUDA shows 0 GPUs of this host (CUDA_VISIBLE_DEVICES)")):
        out, err = here(env, *options, code=TOUCH % left, expect=2)
        check(words in err and not out and not os.path.exists(left), "%s: %s", words, err)
    _, err = here(machine("hang"), code=TOUCH % left, expect=2)
    check("was not ready within 10 s" in err, "a driver that hangs: %s", err)
    for options in (("--vram", "4G"), ("--device", "h100")):
        code, _, err = tool("estimate", "--here", *options, "--", "python", "x.py")
        check(code == 64 and "leave out --vram and --device" in err, "--here %s: %s", options, err)


if __name__ == "__main__":
    run(globals())

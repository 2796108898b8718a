#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
Compares predictions with measurements on a machine with a GPU: runs each job of estimate/jobs.py in the dry run, set to that
GPU, and on the GPU, with the same PyTorch. Prints a row per job: peak allocated and reserved of both by PyTorch's counters, and
the memory of CUDA and its libraries. Needs Linux on x86-64 and a Python with torch; no compiler, network or privileges.

    python3 estimate_gpu.py [--python PYTHON] [--only PATTERN] [--json FILE] [--steps N]

tools/dev/estimate_gpu.sh makes the archive with this script, the scripts (estimate/) and the dry run's libraries (dryrun/). No
other process should use the GPU meanwhile. Exits with 1 if a predicted peak is off by more than 1 %.
"""
import argparse
import json
import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
LIMIT = 1800  # seconds per run
STAND_IN = "(dry run)"  # part of the dry run's device name
PROBE = """
import json, torch
p = torch.cuda.get_device_properties(0)
print(json.dumps({"name": p.name, "sm": "%d.%d" % (p.major, p.minor), "processors": p.multi_processor_count,
                  "total": torch.cuda.mem_get_info()[1], "torch": torch.__version__}))
"""


def run(command, env):
    """Its last line as JSON, or {"error": why}."""
    try:
        done = subprocess.run(command, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=LIMIT)
    except subprocess.TimeoutExpired:
        return {"error": "not done after %d s" % LIMIT}
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode == 0 and lines:
        return json.loads(lines[-1])
    said = [line for line in done.stderr.splitlines() if line.strip()]
    last = said[-1] if said else "no output"
    return {"error": "out of memory" if "OutOfMemoryError" in last else "exit %d: %s" % (done.returncode, last[:200])}


def dry_run(device, cache):
    """Environment with a dry-run device like the given one."""
    env = dict(os.environ)
    folder = os.path.join(HERE, "dryrun")
    env["LD_PRELOAD"] = " ".join(os.path.join(folder, name) for name in ("libcuda.so.1", "libnvidia-ml.so.1"))
    env.pop("CUDA_VISIBLE_DEVICES", None)
    env.update({"MEMTRACE_DRYRUN_VRAM": str(device["total"]), "MEMTRACE_DRYRUN_SM": device["sm"],
                "MEMTRACE_DRYRUN_NAME": device["name"].replace(STAND_IN, "").strip() + " " + STAND_IN,
                "MEMTRACE_DRYRUN_PROCESSORS": str(device["processors"]), "MEMTRACE_DRYRUN_CONTEXT": "0",
                "TRITON_LIBCUDA_PATH": folder, "TRITON_CACHE_DIR": os.path.join(cache, "triton"),
                "TORCHINDUCTOR_CACHE_DIR": os.path.join(cache, "inductor")})
    return env


def off(predicted, measured):
    return 100 * (predicted - measured) / measured


def pair(side):
    return side["error"] if "error" in side else "%.3f, %.3f" % (side["allocated"] / 2 ** 30, side["reserved"] / 2 ** 30)


def row(name, predicted, measured, real):
    both = "error" not in predicted and "error" not in measured
    cells = [name, pair(predicted), pair(measured) if real else "not measured (stand-in: %s)" % pair(measured)]
    cells.append("%+.2f %%, %+.2f %%" % tuple(off(predicted[k], measured[k]) for k in ("allocated", "reserved")) if both else
                 "the same" if predicted == measured else "-")
    cells.append("%.0f" % (measured["besides"] / 2 ** 20) if "besides" in measured and real else "-")
    return "| " + " | ".join(cells) + " |"


def good(predicted, measured):
    if "error" in predicted or "error" in measured:
        return predicted == measured
    return all(abs(off(predicted[k], measured[k])) <= 1 for k in ("allocated", "reserved"))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--python", default=sys.executable, help="the interpreter that has torch (default: this one)")
    p.add_argument("--only", default="", metavar="PATTERN", help="of a job's name")
    p.add_argument("--steps", help="of each job, instead of its own number")
    p.add_argument("--json", metavar="FILE", help="all that was printed by the jobs, for whoever made the archive")
    args = p.parse_args()
    sys.path.insert(0, os.path.join(HERE, "estimate"))
    import jobs
    device = run([args.python, "-c", PROBE], dict(os.environ))
    if "error" in device:
        sys.exit("no device that %s can use: %s" % (args.python, device["error"]))
    real = STAND_IN not in device["name"]
    print("%s, SM %s, %d multiprocessors, %.2f GiB, PyTorch %s%s" % (
        device["name"], device["sm"], device["processors"], device["total"] / 2 ** 30, device["torch"],
        "" if real else "\nThis is not a GPU: what is called measured is a dry run, too."))
    print("| job | predicted: peak allocated, reserved, GiB | measured | off | besides, MiB |\n" + "|---" * 5 + "|", flush=True)
    told, bad = [], 0
    with tempfile.TemporaryDirectory() as cache:
        for job in jobs.JOBS:
            if not re.search(args.only, job.name):
                continue
            missing = [m for m in job.needs if subprocess.run([args.python, "-c", "import " + m], capture_output=True).returncode]
            if missing:
                print("| %s | not run: no %s | | | |" % (job.name, ", ".join(missing)), flush=True)
                continue
            command = [args.python, os.path.join(HERE, "estimate", job.script), *job.arguments]
            command += ["--steps", args.steps] if args.steps else []
            predicted, measured = run(command, dry_run(device, cache)), run(command, dict(os.environ))
            print(row(job.name, predicted, measured, real), flush=True)
            bad += not good(predicted, measured)
            told.append({"job": job.name, "predicted": predicted, "measured": measured})
    if args.json:
        with open(args.json, "w", encoding="utf-8") as f:
            json.dump({"device": device, "real": real, "jobs": told}, f, indent=1)
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()

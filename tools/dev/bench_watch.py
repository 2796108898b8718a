#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
Measures `watch`: the processor time of a job's step with and without it, in turns, and its own processor time. The job trains a
small model on PyTorch's CUDA allocator without a GPU (docs/internals/DRYRUN.md), so steps are short and allocate much; with a GPU's work
in them the relative cost is lower. Run as root on a quiet machine.

    tools/dev/bench_watch.py [PYTHON] [ROUNDS]
"""
import os
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
OUT = os.path.abspath(os.environ.get("OUTPUT", os.path.join(HERE, "..", ".output")))
TOOL = os.path.join(OUT, "memtrace-bpf")
PRELOAD = " ".join(os.path.join(OUT, "dryrun", name) for name in ("libcuda.so.1", "libnvidia-ml.so.1"))
JOB = """
import sys, time, torch
torch.set_num_threads(1)
model = torch.nn.Sequential(*[torch.nn.Linear(256, 256) for _ in range(24)]).cuda()
optimizer = torch.optim.AdamW(model.parameters())
x = torch.randn(64, 256, device="cuda")
def step():
    loss = model(x).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
for _ in range(50):
    step()
print("ready", flush=True)
for line in sys.stdin:
    times, end = [], time.perf_counter() + float(line)
    while time.perf_counter() < end:
        begin = time.process_time()
        step()
        times.append(time.process_time() - begin)
    print(sorted(times)[len(times) // 20], flush=True)
"""
RULES = {
    "totals": ["--rule", "reserved>=99%", "--rule", "ooms>0"],
    "growth": ["--rule", "growth>1T/10m", "--rule", "ooms>0"],
    "steps": ["--rule", "growth>1T/100steps", "--rule", "step_time>1h"],
}
SECONDS = 0.6


def cpu_ns(pid):
    with open("/proc/%d/schedstat" % pid, encoding="ascii") as f:
        return int(f.read().split()[0])


def measure(job):
    """Lower bound of 19 in 20 steps: the rest is noise of the machine."""
    job.stdin.write("%f\n" % SECONDS)
    job.stdin.flush()
    return float(job.stdout.readline())


def start(job, rules):
    watch = subprocess.Popen([TOOL, "watch", "--format", "json", "-p", str(job.pid), *rules], stdout=subprocess.PIPE, text=True)
    watch.stdout.readline()  # waits until `watch` has attached
    return watch


def own_cost(job, rules, seconds):
    """Processor time of `watch` as a share of a core, while the job runs."""
    watch = start(job, rules)
    measure(job)
    spent, begin = cpu_ns(watch.pid), time.monotonic()
    while time.monotonic() - begin < seconds:
        measure(job)
    share = (cpu_ns(watch.pid) - spent) / 1e9 / (time.monotonic() - begin)
    watch.terminate()
    watch.wait()
    return share


def turns(job, rules, rounds):
    """With and without `watch`, one right after the other, in alternating order."""
    ratios = []
    for i in range(rounds):
        times = {}
        for on in (i % 2 == 0, i % 2 == 1):
            watch = start(job, rules) if on else None
            times[on] = measure(job)
            if watch:
                watch.terminate()
                watch.wait()
        ratios.append(times[True] / times[False])
    return sorted(ratios)


def main():
    python = sys.argv[1] if len(sys.argv) > 1 else subprocess.check_output([os.path.join(HERE, "deps.sh"), "python", "main"], text=True).strip()
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 20
    with subprocess.Popen([python, "-c", JOB], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                          env=dict(os.environ, LD_PRELOAD=PRELOAD)) as job:
        job.stdout.readline()
        measure(job)
        for name, rules in RULES.items():
            r = turns(job, rules, rounds)
            print("%-7s a step x %.4f (quartiles %.4f and %.4f of %d), watch itself %.3f %% of a core" % (
                name, statistics.median(r), r[rounds // 4], r[3 * rounds // 4], rounds, 100 * own_cost(job, rules, 20)), flush=True)
        print("a step: %.2f ms" % (1000 * measure(job)))
        job.stdin.close()


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
What `watch` costs: the processor time of a job's step with it and without, in turns, and the processor time that it takes itself. The job trains a
small model on PyTorch's CUDA allocator without a GPU (docs/DRYRUN.md), so that its steps are short and allocate much; with a GPU's work
in them all that is told of is less. Run as root; the machine should be quiet.

    tools/bench_watch.py [PYTHON] [ROUNDS]
"""
import os
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
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
    print(sorted(times)[len(times) // 2], flush=True)
"""
RULES = {
    "totals": ["--rule", "reserved>=99%", "--rule", "ooms>0"],
    "growth": ["--rule", "growth>1T/10m", "--rule", "ooms>0"],
    "steps": ["--rule", "growth>1T/100steps", "--rule", "step_time>1h"],
}
SECONDS, SETTLE = 2, 2


def cpu_ns(pid):
    with open("/proc/%d/schedstat" % pid, encoding="ascii") as f:
        return int(f.read().split()[0])


def measure(job):
    job.stdin.write("%d\n" % SECONDS)
    job.stdin.flush()
    return float(job.stdout.readline())


def main():
    python = sys.argv[1] if len(sys.argv) > 1 else subprocess.check_output([os.path.join(HERE, "deps.sh"), "python", "main"], text=True).strip()
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    with subprocess.Popen([python, "-c", JOB], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                          env=dict(os.environ, LD_PRELOAD=PRELOAD)) as job:
        job.stdout.readline()
        measure(job)
        for name, rules in RULES.items():
            ratios, own = [], []
            for _ in range(rounds):
                before = measure(job)
                with subprocess.Popen([TOOL, "watch", "-p", str(job.pid), *rules], stdout=subprocess.DEVNULL) as watch:
                    time.sleep(SETTLE)
                    spent, begin = cpu_ns(watch.pid), time.monotonic()
                    during = measure(job)
                    own.append((cpu_ns(watch.pid) - spent) / 1e9 / (time.monotonic() - begin))
                    watch.terminate()
                after = measure(job)
                ratios.append(2 * during / (before + after))
            print("%-7s a step x %.4f (%.4f to %.4f), of a core %.3f %%" % (
                name, statistics.median(ratios), min(ratios), max(ratios), 100 * statistics.median(own)), flush=True)
        job.stdin.close()


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
Random jobs under --cost 1%: which leaks are named, and which healthy jobs get a leak. A seed draws the leak's rate, the time of a
step, noise and the device of each job (tests/workloads/limited.py); CUDA is the dry run's.

    tests/e2e/cost_jobs.py [LEAKY [HEALTHY [AT_ONCE [SECONDS]]]]
"""
import os
import random
import sys
import time

import harness
import truth
from harness import finish, python, record, report, scratch, spawn

SMALL = ["--layers", "1", "--width", "32", "--heads", "2", "--vocab", "500", "--batch", "1", "--context", "16"]
MILLISECONDS = 4, 80  # a step's pause


class Job:
    def __init__(self, number, leaky):
        self.number, self.leaky = number, leaky
        draw = random.Random(2 * number + leaky)
        self.leak = 512 * round(2 ** draw.uniform(1, 9)) if leaky else 0  # 1 KiB to 256 KiB
        self.pause = MILLISECONDS[0] * (MILLISECONDS[1] / MILLISECONDS[0]) ** draw.random() / 1000
        self.noise, self.device = draw.uniform(0, 0.3), draw.choice(("cpu", "cuda"))

    def start(self, seconds):
        args = {"leak": self.leak, "pause": self.pause, "noise": self.noise, "device": self.device, "seed": self.number + 1}
        command = [python(), os.path.join(harness.WORKLOADS, "limited.py"), *SMALL, *(w for k, v in args.items() for w in ("--" + k, str(v)))]
        self.process = spawn(command, env=truth.dry_run() if self.device == "cuda" else None)
        self.process.wait_line("^ready", 120)
        self.path = scratch("job-%d-%d.mtr" % (self.number, self.leaky))
        self.recorder = record(self.process.pid, self.path, "--cost", "1%")
        self.end = time.monotonic() + seconds
        return self

    def judge(self):
        """Ends the job. Sets .wrong if its leak was not named, or if a leak was named that it does not have."""
        finish(self.recorder, 60)
        self.process.stop()
        doc = report(self.path)
        detail = doc["capture"]["detail"]
        growing = [d["growth"] for d in doc["devices"] if d["growth"] and d["growth"]["verdict"] == "grows"]
        right = [g for g in growing if g["function"] == "keep" and "metrics.losses" in (g["held_by"] or "") and
                 abs(g["bytes_per_step"] - self.leak) < 0.1 * self.leak]
        self.wrong = not right if self.leaky else bool(growing)
        lost = doc["capture"]["lost"] or sum(d["drift"] or 0 for d in doc["devices"])
        step, steps = detail["step"], detail["steps"]
        print("%3d %6.0f KiB/step  pause %5.1f ms +-%2.0f %%  %-4s  step %s  lines in %s steps  %s%s" % (
            self.number, self.leak / 1024, self.pause * 1000, self.noise * 100, self.device,
            "+%5.1f %% (%.1f to %.1f)" % tuple(100 * step[k] for k in ("longer", "low", "high")) if step else "unknown",
            "%d of %d" % (steps["whole"], steps["all"]) if steps else "all",
            ("NOT NAMED" if self.leaky else "FALSE") if self.wrong else "named" if self.leaky else "none",
            ": %s" % [g["text"] for g in growing] if self.wrong else "") + ("  LOST OR DRIFTING: %s" % lost if lost else ""), flush=True)
        os.unlink(self.path)


def main(leaky=20, healthy=20, at_once=4, seconds=60):
    wait = [Job(n, True) for n in range(leaky)] + [Job(n, False) for n in range(healthy)]
    jobs, running = list(wait), []
    while wait or running:
        while wait and len(running) < at_once:
            running.append(wait.pop(0).start(seconds))
        first = min(running, key=lambda j: j.end)
        time.sleep(max(0, first.end - time.monotonic()))
        running.remove(first)
        first.judge()
    print("%d of %d leaks named, %d of %d healthy jobs with a leak" % (
        sum(j.leaky and not j.wrong for j in jobs), leaky, sum(not j.leaky and j.wrong for j in jobs), healthy))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))

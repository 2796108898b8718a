#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# run: alone
"""The scenarios of tools/dev/chaos.py, each a few times: see there and docs/internals/SAFETY.md."""
import chaos
import chaos_around
from harness import run

# Scenarios, with the number of repetitions here.
FEW = (
    (chaos.exceptions, 20), (chaos_around.return_probes, 1), (chaos.kills, 10), (chaos_around.tables, 1), (chaos.crashes, 4), (chaos.run_kills, 3), (chaos_around.little_memory, 3),
    (chaos_around.oom_killed, 2), (chaos.forks, 10), (chaos.vforks, 10), (chaos.spawns, 10), (chaos_around.execs, 20),
    (chaos.threads, 100), (chaos.reloads, 10), (chaos.cuda_loads, 5), (chaos.signals, 0.3), (chaos.seccomp, 2), (chaos_around.bystanders, 20), (chaos_around.many_files, 4200),
    (chaos_around.stopped, 2), (chaos_around.gdb, 2), (chaos_around.strace, 2), (chaos_around.tracers, 1),
    (chaos_around.other_uprobe, 1), (chaos_around.replaced, 4), (chaos_around.contained, 1), (chaos_around.on_fuse, 1), (chaos_around.reused_pids, 5),
    (chaos_around.nop5_avoided, 2), (chaos_around.nop5_refused, 1), (chaos_around.nop5_harm, 1), (chaos.overload, 3),
)


def tests():
    for scenario, n in FEW:
        yield "test_" + scenario.__name__, lambda scenario=scenario, n=n: scenario(n).verify()


globals().update(tests())


if __name__ == "__main__":
    run(globals())

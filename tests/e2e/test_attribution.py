#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# run: long
"""Owners of memory in the jobs of tools/dev/attribution.py that no other test runs: attached in the middle, on the CPU; every
line, module, category and name is compared with the job's own data."""
from concurrent.futures import ThreadPoolExecutor

from attribution import attached
from harness import check, nightly, run


def one(job, at):
    v, live = attached(job, "cpu", at)
    where = "%s, attached %s" % (job, at)
    print("     %-18s %-9s %10d bytes: line %6.2f%% module %6.2f%% wrong %d; %9d there: named %6.2f%% wrong %d" % (
        job, at, v.inside(), 100 * v.line_share(), 100 * v.module_share(), len(v.wrong), live.all(), 100 * live.share(), len(live.wrong)),
        flush=True)
    check(not v.wrong and not v.stale, "%s: %d wrong, %d outside of backward: %s", where, len(v.wrong), v.stale, v.wrong[:4])
    check(not live.wrong and live.first, "%s: %d names are wrong: %s", where, len(live.wrong), live.wrong[:4])
    check(len(v.nodes) >= 5, "%s: only %d nodes", where, len(v.nodes))
    check(at == "between" or v.bytes["attached"] > 0, "%s: nothing ran that was made before", where)
    check(v.line_share() >= 0.99, "%s: lines: %s, %s", where, dict(v.bytes), v.lineless)
    check(v.module_share() >= 0.99, "%s: modules: %s, %s", where, dict(v.bytes), v.homeless)
    check(live.share() >= (0.99 if at == "between" else 0.9), "%s: names: %s, %s", where, dict(live.bytes), live.missed[:4])


def each(at, *jobs):
    """Two jobs at a time: most of the time is PyTorch's import."""
    with ThreadPoolExecutor(2) as pool:
        done = [pool.submit(one, job, at) for job in jobs]
    for d in done:
        d.result()


def test_models():
    each("between", "resnet", "llama")


def test_wrapped():
    each("between", "ddp", "fsdp2")


@nightly("long")
def test_steps_of_other_kinds():
    each("between", "amp", "accumulation")


@nightly("long")
def test_compiled():
    each("between", "compiled_eager", "compiled_aot")


def test_in_the_middle_of_a_backward():
    each("backward", "checkpointed", "second_derivative")


if __name__ == "__main__":
    run(globals())

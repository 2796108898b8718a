#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# run: nightly=versions
"""One rank of a large job without its peers: its memory compared with closed formulas, and the data it receives."""
import json
import os
import subprocess

from harness import OUT, WORKLOADS, check, equal, python, run, scratch, spawn, tool

FOLDER = os.path.join(OUT, "dryrun")
TOOL = os.path.join(OUT, "tests", "tools", "rank_of_many")


def rank_of_many(world, rank, command, **env):
    """The rank's output, one JSON document per line. world 0: from the launcher's command line."""
    env = dict(os.environ, DRYRUN_PRELOAD="%s/libcuda.so.1 %s/libnvidia-ml.so.1" % (FOLDER, FOLDER), **env)
    p = spawn([TOOL, str(world), str(rank), "0", *command], env=env, stdin=subprocess.DEVNULL)
    code = p.wait(300)
    check(code == 0, "rank %d of %d, %s, ended with %s: %s", rank, world, command[-1], code, p.tail(p.stderr()))
    return [json.loads(line) for line in p.stdout().splitlines() if line.startswith("{")]


def jobs(role, world, rank, *names):
    command = [python(role), "-W", "ignore", os.path.join(WORKLOADS, "ranks_of_many.py"), *names]
    found = rank_of_many(world, rank, command)
    equal([j["job"] for j in found], list(names), "jobs that were run")
    equal([(j["rank"], j["world"]) for j in found], [(rank, world)] * len(names), "rank and world as the jobs see them")
    return found


def near(job, share):
    for got, form, when in ((job["peak"], job["at_peak"], "peak"), (job["end"], job["at_end"], "end")):
        off = got - job["base"] - sum(form.values())
        check(abs(off) <= share * got, "%s, rank %d of %d: %s is %d bytes, %+d than the closed form %s", job["job"], job["rank"],
              job["world"], when, got, off, form)


def test_sharded_of_64():
    """Sharded weights, gradients and states; replicated ones; columns and rows: to the byte."""
    first = jobs("main", 64, 0, "fsdp2", "ddp_view", "tp")
    for job in first:
        near(job, 0)
        equal(job["peaks"][1:], job["peaks"][1:2] * (len(job["peaks"]) - 1), "peaks of the steps of %s after the first" % job["job"])
    two_ranks(max(first[0]["peaks"]))


def two_ranks(peak):
    """The same by `estimate`: the first rank and the last, one after the other."""
    code, out, err = tool("estimate", "--format", "json", "--world-size", "64", "--rank", "63,0", "--steps", "3", "--", python("main"),
                          "-W", "ignore", os.path.join(WORKLOADS, "ranks_of_many.py"), "fsdp2", root=True, seconds=300)
    check(code == 0, "estimate of two ranks exited with %d: %s", code, err)
    ranks = json.loads(out)["ranks"]
    equal([(r["rank"]["rank"], r["rank"]["world_size"], r["verdict"]) for r in ranks], [(0, 64, "fits"), (63, 64, "fits")], "ranks")
    for doc in ranks:
        equal(max(p["peak_allocated"] for name, p in doc["phases"].items() if name != "other"), peak,
              "peak of the steps of rank %d" % doc["rank"]["rank"])
    equal(*[doc["devices"][0]["peak_allocated"] for doc in ranks], "peaks of the two, all in all")


def test_newest():
    """Another of PyTorch's NCCL process groups, and a manual pipeline, where a rank receives from both sides."""
    for job in jobs("newest", 8, 5, "fsdp2", "by_hand"):
        near(job, 0.02)


def test_what_is_heard():
    """Without other data, this rank's own sends stand for those of its peers; with ranks that ran earlier, their real data is
    used."""
    n = 8
    launch = [python("main"), "-W", "ignore", "-m", "torch.distributed.run", "--nproc-per-node", str(n),
              os.path.join(WORKLOADS, "collectives.py")]
    folder = scratch("peers")
    os.mkdir(folder)
    first, = rank_of_many(0, 0, launch, MEMTRACE_DRYRUN_PEERS=folder)
    whole = {"from": 0, "list": list(range(20))}
    equal(first, {"rank": 0, "world": n, "sum": [1.5 * n] * 3, "all": [{"rank": 0}] * 2, "half": [{"rank": 0}] * 2, "broadcast": whole,
                  "first": [{"rank": 0}] * 2, "scatter": {"for": 0}, "shape": [0, 300]}, "what rank 0 hears")
    second, = rank_of_many(0, 1, launch, MEMTRACE_DRYRUN_PEERS=folder)
    equal(second, {"rank": 1, "world": n, "sum": [1.5 * n] * 3, "all": [{"rank": 1}] * 2, "half": [{"rank": 1}] * 2, "broadcast": whole,
                  "first": None, "scatter": {"for": 1}, "shape": [10, 300]}, "what rank 1 hears after rank 0")


if __name__ == "__main__":
    run(globals())

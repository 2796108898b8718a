#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# run: long probes-all
"""A job of four ranks under torchrun, each on its own device, with workers that load its data: one recording per process, named
by rank; each equals its PyTorch's own figures, and the leaking rank is named."""
import glob
import json
import os
import re
import time

import harness
from harness import OUT, TOOL, WORKLOADS, check, equal, nightly, own, python, read_json, report, run, scratch, spawn, tool

RANKS, STEPS, LEAK = 4, 40, 4 << 20
with open(os.path.join(WORKLOADS, "ranks.py"), encoding="utf-8") as _f:
    LEAKS = next(i for i, text in enumerate(_f, 1) if "kept.append" in text)


def command(folder, *what):
    return [python(), "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(RANKS),
            os.path.join(WORKLOADS, "ranks.py"), folder, str(STEPS), *what]


def folder(name):
    path = scratch(name)
    os.mkdir(path)
    return path


def truth_of(where):
    """Each rank's own data, by rank."""
    told = sorted((read_json(f) for f in glob.glob(os.path.join(where, "*.json"))), key=lambda t: t["rank"])
    equal([t["rank"] for t in told], list(range(RANKS)), "ranks that said what they have")
    equal({t["all"] for t in told}, {sum(t["allocated"] for t in told)}, "what the ranks know of one another")
    return told


def recordings(path):
    found = {}
    for file in glob.glob(path[:-4] + ".*.mtr"):
        own(file)
        found[int(file.split(".")[-2])] = file
    own(path)
    return found


def check_ranks(path, told, attached_at):
    """Each rank's recording equals the rank's own data; together they add up. Returns files, ranks first, then workers."""
    files = recordings(path)
    ranks = [files[t["pid"]] for t in told]
    for t, file in zip(told, ranks):
        doc = report(file)
        target, d = doc["target"], harness.device(doc, "cuda:%d" % t["rank"])
        equal([target.get(k) for k in ("rank", "local_rank", "world_size")], [t["rank"], t["rank"], RANKS], "who it is: %s" % target)
        equal(doc["capture"]["attached_at"], attached_at, "attached_at of rank %d" % t["rank"])
        equal((d["allocated"], d["reserved"]), (t["allocated"], t["reserved"]), "rank %d at its end" % t["rank"])
        equal(d["peak_allocated"], t["peak"], "peak of rank %d" % t["rank"])
        equal((d["drift"], doc["capture"]["lost"]), (0, 0), "drift and lost of rank %d" % t["rank"])
        equal(sum(r["bytes"] for r in doc["rows"]), t["allocated"], "rows of rank %d" % t["rank"])
    workers = [files[pid] for t in told for pid in t["workers"]]
    equal(sorted(set(files) - {t["pid"] for t in told}), sorted(pid for t in told for pid in t["workers"]), "recordings of nobody that we know")
    return ranks, workers


def check_job(told, ranks, workers, launcher):
    """All recordings as one job: members, sums, differences, leaks."""
    code, out, err = tool("report", "--together", "--format", "json", "--at", "end", launcher, *workers, *ranks)
    equal((code, err), (0, ""), "report of all")
    doc = json.loads(out)
    equal((doc["one_job"], doc["recordings_without_events"]), (True, 1), "one job, and a launcher")
    by_pid = {r["pid"]: r for r in doc["recordings"]}
    for t in told:
        r = by_pid[t["pid"]]
        equal((r["rank"], r["worker"], r["devices"], r["allocated"]), (t["rank"], False, "cuda:%d" % t["rank"], t["allocated"]), "a rank")
        for pid in t["workers"]:
            equal((by_pid[pid]["rank"], by_pid[pid]["worker"], by_pid[pid]["parent"], by_pid[pid]["devices"]), (t["rank"], True, t["pid"], "cpu"),
                  "a worker of rank %d" % t["rank"])
    if doc["step_match"]["by"] == "optimizer":  # the ranks are brief: their optimizers may not have been read
        equal(doc["step_match"], {"by": "optimizer", "first": 2, "last": STEPS}, "steps that are compared")
    equal(sum(r["allocated"] for r in doc["recordings"] if not r["worker"]), told[0]["all"], "all ranks together")
    equal(sum(r["bytes"] for r in doc["rows"]), doc["allocated"], "rows of all together")
    named = doc["outliers"][0]
    equal((doc["recordings"][named["recording"]]["pid"], named["row"], named["difference"]), (told[2]["pid"], None, STEPS * LEAK), "who differs")
    # Roles of a rank's blocks are known only if the census was in time, which changes rows; rows by place stay equal.
    code, out, err = tool("report", *ranks, *workers, launcher)
    equal((code, err), (0, ""), "report as text")
    check(out.startswith("%d recordings of one job, ranks 0-3 of 4 and %d workers: " % (len(ranks) + len(workers), len(workers))), "head: %s", out[:200])
    # On a busy machine the steps of any rank may take longer. The report then names that rank, too.
    named = re.findall(r"(?m)^  (rank \d+(?: worker \d+)?): (?![\d.]+ \w+ a step)", out)
    equal(set(named), {"rank 2"}, "who differs, in text:\n%s" % out[:3000])
    check(re.search(r"rank 2: 160\.00 MiB more (\(\d+ %%\) )?at\s\S*ranks\.py:%d " % LEAKS, " ".join(out.split())), "the line:\n%s", out[:3000])
    check("\n  rank 2: 160.00 MiB more" in out and "\nrank 3 worker 2 " in out, "rank 2 is not named, or no worker:\n%s", out[:3000])
    check_leaks(told, ranks, workers, launcher)


def check_leaks(told, ranks, workers, launcher):
    code, out, err = tool("leaks", "--format", "json", *workers, *ranks, launcher)
    equal((code, err), (0, ""), "leaks of all")
    doc = json.loads(out)
    equal([(os.path.basename(r["file"]), r["line"]) for r in doc["leaks"]], [("ranks.py", LEAKS)], "lines that grow")
    line = doc["leaks"][0]
    equal([doc["recordings"][i]["pid"] for i in line["grows_in"]], [told[2]["pid"]], "in which rank")
    equal((line["recordings"][0]["bytes_per_step"], line["recordings"][0]["confidence"]), (LEAK, "high"), "how much, and how sure")
    code, out, err = tool("leaks", "--fail", *ranks)
    equal((code, err), (1, ""), "leaks --fail")
    check("ranks.py:%d (leak) grows in rank 2 of 4 only: +4.00 MiB a step" % LEAKS in " ".join(out.split()), "rank 2 is not named:\n%s", out)
    code, out, err = tool("leaks", "--fail", *(r for r, t in zip(ranks, told) if t["rank"] != 2))
    equal((code, err), (0, ""), "leaks of the others")


def end(p, recorder, where):
    """Lets the ranks end when all have written their data and the recorder has read the names in their code."""
    limit = time.monotonic() + 240
    while len(glob.glob(os.path.join(where, "*.json"))) < RANKS:
        check(time.monotonic() < limit and p.alive(), "the ranks do not come to their end: %s", p.tail(p.stderr()))
        time.sleep(0.05)
    harness.settle(recorder)
    open(os.path.join(where, "end"), "w", encoding="ascii").close()


@nightly("long")
def test_from_the_start():
    where, path = folder("start"), scratch("start.mtr")
    p = spawn([TOOL, "run", "--dry-run-cuda", "--devices", str(RANKS), "--vram", "2G", "--children", "-o", path, "--", *command(where)], root=True)
    end(p, p, where)
    equal(p.wait(120), 0, "exit code of the command (%s)" % p.stderr()[-1000:])
    told = truth_of(where)
    ranks, workers = check_ranks(path, told, "start")
    check_job(told, ranks, workers, path)


def test_attached():
    """Attached to the launcher after its ranks started: they are followed, and their workers from the first instruction on."""
    where, path = folder("attach"), scratch("attach.mtr")
    env = dict(os.environ, PYTHONUNBUFFERED="1", MEMTRACE_DRYRUN_DEVICES=str(RANKS), MEMTRACE_DRYRUN_VRAM="2G",
               LD_PRELOAD=" ".join(os.path.join(OUT, "dryrun", n) for n in ("libcuda.so.1", "libnvidia-ml.so.1")))
    p = spawn(command(where, "wait"), env=env)
    limit = time.monotonic() + 120
    while p.stdout().count(" waits") < RANKS:
        check(time.monotonic() < limit and p.alive(), "the ranks do not start: %s", p.tail(p.stderr()))
        time.sleep(0.05)
    recorder = harness.record(p.popen.pid, path, "--children", wait=False)
    limit = time.monotonic() + 120
    while recorder.stderr().count("following PID") < RANKS:
        check(time.monotonic() < limit and recorder.alive(), "not all ranks are followed: %s", recorder.tail(recorder.stderr()))
        time.sleep(0.05)
    open(os.path.join(where, "go"), "w", encoding="ascii").close()
    end(p, recorder, where)
    equal(p.wait(120), 0, "exit code of torchrun (%s)" % p.stderr()[-1000:])
    equal(recorder.wait(120), 0, "exit code of record (%s)" % recorder.stderr()[-1000:])
    told = truth_of(where)
    ranks, workers = check_ranks(path, told, "live")
    check_job(told, ranks, workers, path)


if __name__ == "__main__":
    run(globals())

#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# run: cpu=80
"""The tensors in the variables of a call that ran out of memory: name, dtype, shape and bytes as PyTorch says them."""
import json
import os
import re
import subprocess

import harness
from harness import check, device, equal, own, python, record, report, run, scratch, spawn, tool

JOB = os.path.join(harness.WORKLOADS, "cuda", "oom_shapes.py")
KEYS = ("name", "dtype", "shape", "dimensions", "bytes", "storage_bytes", "device")


def recorded(path, *words, role="main", options=()):
    """What the job said, and the out-of-memory errors of its recording."""
    code, out, err = tool("run", "--dry-run-cuda", "-f", "-o", path, *options, "--", python(role), JOB, *words, root=True, seconds=240)
    equal(code, 0, "exit code: %s" % err[-500:])
    own(path)
    said = json.loads(re.search("^said (.*)$", out, re.M).group(1))
    return said, device(report(path), "cuda:0")["out_of_memory"]


def clean(name):
    """A name as recorded: cut, and without what ends fields and lines."""
    return "".join("?" if ch < " " else ch for ch in name)[:255]


def ordered(tensors):
    return sorted([[t[k] for k in KEYS] for t in tensors], key=lambda t: (-(t[4] or 0), t[0]))


def same(got, said, what):
    said = [{**t, "name": clean(t["name"])} for t in said]
    got_bytes = [t["bytes"] or 0 for t in got]
    equal(got_bytes, sorted(got_bytes, reverse=True), "order of " + what)
    equal(ordered(got), ordered(said), what)


def test_as_pytorch_says():
    path = scratch("shapes.mtr")
    said, ooms = recorded(path)
    equal(len(ooms), len(said), "errors")
    for tensors, oom in zip(said, ooms):
        same(oom["tensors"], tensors, oom["function"])
        check(all((t["file"], t["line"], t["function"]) == (oom["file"], oom["line"], oom["function"]) or oom["function"] == "Net.forward" for t in oom["tensors"]),
              "frames: %s", oom)
    code, out, err = tool("report", path)
    words = " ".join(out.split())
    check("tensors there: x bfloat16 [1, 2048, 512] 2.00 MiB" in words, "the first error: %s", out[:2000])
    check("\x1b" not in out, "a name acts on the terminal")
    page = scratch("page.html")
    equal(tool("export", "html", "-f", "-o", page, path)[0], 0, "the page")
    with open(page, encoding="utf-8") as f:
        check("largest tensor there: x bfloat16 [1, 2048, 512] 2.00 MiB" in f.read(), "the page's finding")


def test_inside():
    """A process that records itself reads its own variables."""
    said, ooms = recorded(scratch("inside.mtr"), "kinds", "module", options=("--inside",))
    for tensors, oom in zip(said, ooms, strict=True):
        same(oom["tensors"], tensors, "inside, " + oom["function"])


def test_attached():
    """Of a running job, in a window up to the error: by itself and as one of a group of processes, whose addresses differ."""
    folder, path = scratch("many"), scratch("one.mtr")
    for options, output in ((["--children"], folder + "/"), ([], path)):
        libraries = " ".join(os.path.join(harness.OUT, "dryrun", name) for name in ("libcuda.so.1", "libnvidia-ml.so.1"))
        job = spawn([python(), JOB, "module", "wait"], stdin=subprocess.PIPE, env={**os.environ, "LD_PRELOAD": libraries})
        job.wait_line("^ready", 120)
        recorder = record(job.popen.pid, output, "--on-oom", *options)
        job.send("go\n")
        said = json.loads(job.wait_line("^said ", 120)[5:])
        harness.settle(recorder)
        job.popen.stdin.close()
        equal(recorder.wait(60), 0, "exit code of record: %s" % recorder.stderr()[-500:])
        own(output)
        files = [path] if output == path else [os.path.join(folder, n) for n in os.listdir(folder) if n.endswith(".mtr")]
        equal(len(files), 1, "files")
        ooms = device(report(files[0]), "cuda:0")["out_of_memory"]
        same(ooms[0]["tensors"], said[0], "attached %s" % options)


@harness.nightly("versions")
def test_versions():
    for role in harness.VERSIONS:
        said, ooms = recorded(scratch(role + ".mtr"), "kinds", "module", role=role)
        for tensors, oom in zip(said, ooms, strict=True):
            same(oom["tensors"], tensors, "%s, %s" % (role, oom["function"]))


if __name__ == "__main__":
    run(globals())

#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# run: nightly=zoo cpu=1500 long
"""
Jobs of libraries that people train with (tests/workloads/zoo), compared with PyTorch's own history of the same run: every event and
figure, the user's line and the whole stack of each allocation, the module of each layer's call, the optimizer's steps. `make zoo`
runs it. No GPU is needed.
"""
import collections
import functools
import itertools
import json
import os
import re

import harness
import truth
from harness import check, equal, run, scratch, tool


class Job:
    """A file of tests/workloads/zoo, the package that it needs, and what has to be true besides. parts: a method of a module calls its
    parts, so the end of a module's name is right, too. says: patterns of report's text. optimizer: it is PyTorch's."""

    def __init__(self, file, package, steps=4, optimizer=True, parts=False, says=()):
        self.file, self.package, self.steps, self.optimizer, self.parts, self.says = file, package, steps, optimizer, parts, says


JOBS = (
    Job("transformers_llama", "transformers"),
    Job("peft_lora", "peft"),
    Job("accelerate_gan", "accelerate"),
    Job("lightning_fit", "lightning", parts=True),
    Job("lightning_fabric", "lightning"),
    Job("timm_ema", "timm"),
    Job("torchvision_detection", "torchvision", steps=2),
    Job("torch_geometric_sage", "torch_geometric"),
    Job("fastai_learn", "fastai", optimizer=False),
    Job("optuna_search", "optuna"),
    Job("bitsandbytes_adam", "bitsandbytes"),
    Job("trl_dpo", "trl"),
    Job("trl_sft", "trl"),
    Job("sentence_transformers_pairs", "sentence-transformers"),
    Job("deepspeed_zero", "deepspeed"),
    Job("torchao_quantized", "torchao"),
    Job("ipykernel_cells", "ipykernel"),
    Job("gradio_app", "gradio", steps=16, optimizer=False),
    Job("torch_functional", "torch"),
    Job("torch_compiled", "torch"),
    Job("torch_selective", "torch"),
)


def is_users(file):
    """Whether a file is of the user, and not of a library, nor one that a library wrote."""
    return (file.endswith(".py") or file.startswith("<cell ")) and not re.search(r"site-packages|/lib/python3|torchinductor|/torch_geometric\.", file)


def named(file):
    """The name that a recording gives a file: torch_geometric writes files with random names."""
    return re.sub(r"(/torch_geometric\..*_)\w{8}\.py$", r"\1*.py", file)


def python(package):
    interpreter = harness.python("zoo")
    missing = os.path.join(os.path.dirname(os.path.dirname(interpreter)), "missing", package)
    if os.path.exists(missing):
        with open(missing, encoding="utf-8") as f:
            lines = [line for line in f if line.strip()]
        raise harness.Skip("%s cannot be installed here: %s" % (package, lines[-1].strip() if lines else "pip failed"))
    return interpreter


def record(job):
    """Runs the job in the dry run: paths of the recording and of the oracle's file."""
    path, oracle = scratch(job.file + ".mtr"), scratch(job.file + ".oracle")
    env = dict(truth.dry_run(), HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false", OMP_NUM_THREADS="1", PYTHONWARNINGS="ignore")
    command = [python(job.package), os.path.join(harness.WORKLOADS, "zoo", job.file + ".py"), "--oracle", oracle, "--steps", str(job.steps)]
    target = harness.spawn([harness.TOOL, "run", "-o", path, "-f", "--", *command], root=True, env=env)
    code = target.wait(600)
    check(code == 0, "%s ended with %s: %s", job.file, code, target.tail(target.stderr()))
    return path, truth.load(oracle), target.stderr()


def allocations(path):
    """The recording's allocations on cuda:0 in their order, each with the frames of its stack."""
    code, _, err = tool("export", "ndjson", path, "-f", "-o", path + ".ndjson", seconds=180)
    check(code == 0, "export ended with %d: %s", code, err)
    stacks, found = {}, []
    with open(path + ".ndjson", encoding="utf-8") as f:
        for e in map(json.loads, f):
            if e["event"] == "stack":
                stacks[e["stack"]] = [(frame["file"], frame["line"]) for frame in e["frames"] if frame["line"]]
            elif e["event"] == "alloc" and e["device"] == "cuda:0":
                found.append(dict(e, frames=stacks.get(e.get("stack"), ())))
    return found


def same(job, what, pairs):
    """pairs: (recorded, expected), any number of them."""
    wrong = collections.Counter((got, want) for got, want in pairs if got != want)
    check(not wrong, "%s: %d of %d %s differ, such as %s", job.file, sum(wrong.values()), len(pairs), what,
          ["%d x %s, not %s" % (n, got, want) for (got, want), n in wrong.most_common(4)])
    return len(pairs)


def lines(job, recorded, history, files):
    """The user's line, and the whole stack, of each allocation for which PyTorch has Python's frames."""
    users, stacks = [], []
    for e, frames in zip(recorded, history):
        frames = [(files.get(file) or named(file), line) for file, line in frames if file.endswith(".py") or file.startswith("<")]
        user = next((f for f in frames if is_users(f[0])), None)
        if user:
            users.append(((e.get("file"), e.get("line")), user))
        if frames and e.get("source") == "frame":
            stacks += itertools.zip_longest(e["frames"], frames)
    return same(job, "lines", users), same(job, "frames of stacks", stacks)


def modules(job, recorded, calls):
    """The module of what a layer's call allocates."""
    def right(got, names):
        return got in names or job.parts and got and names[0].endswith("." + got)
    pairs = [(e.get("module"), names) for names, first, last in calls for e in recorded[first:last]]
    return same(job, "modules", [(got, got if right(got, names) else names[-1]) for got, names in pairs])


def compare(job):
    path, own, err = record(job)
    v = truth.compare(path, own)
    check(v.exact() and v.events > 100, "%s: %d events, %s", job.file, v.events, v.why())
    recorded = allocations(path)
    of_alloc = [f for e, f in zip(own["end"]["traces"][0], own["end"]["frames"][0]) if e[0] == "alloc"]
    equal(len(recorded), len(of_alloc), "allocations of %s" % job.file)
    n_lines, n_frames = lines(job, recorded, of_alloc, own["files"])
    n_modules = modules(job, recorded, own["calls"])
    lineless = collections.Counter(e.get("node_class") for e in recorded if not e.get("line"))
    check(not lineless, "%s: allocations without a line, by node: %s", job.file, dict(lineless))
    doc = harness.report(path)
    if job.optimizer:
        equal(doc["capture"]["steps"], own["optimizer_steps"], "steps of " + job.file)
    text = tool("report", path)[1] if job.says else ""
    for pattern in job.says:
        check(re.search(pattern, text), "report of %s has no %r: %s", job.file, pattern, text)
    warnings = [line for line in err.splitlines() if line.startswith("memtrace-bpf: warning") and "no event for" not in line]
    check(not warnings, "%s: %s", job.file, warnings)
    print("     %s: %d events, %d lines, %d frames, %d of modules" % (job.file, v.events, n_lines, n_frames, n_modules))


for _job in JOBS:
    globals()["test_" + _job.file] = functools.partial(compare, _job)

if __name__ == "__main__":
    run(globals())

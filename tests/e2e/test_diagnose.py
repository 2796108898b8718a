#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# run: reads-code cpu=65
"""`diagnose`: the right finding comes first, healthy jobs have none; from recordings and from running processes."""
import concurrent.futures
import functools
import json
import os
import re
import time

import harness
from harness import REPO, check, equal, nightly, python, run, spawn_job, tool

GUIDE = os.path.join(REPO, "tests", "data", "guide")
LEAK = os.path.join(harness.WORKLOADS, "leak.py")
FAULTS = os.path.join(harness.WORKLOADS, "faults", "faults.py")
HEALTHY = os.path.join(harness.WORKLOADS, "faults", "healthy.py")
CLEAN, FOUND, USAGE = 0, 4, 64


def diagnosed(*args, expect, root=False):
    code, out, err = tool("diagnose", "--format", "json", *args, root=root, seconds=120)
    equal(code, expect, "diagnose %s: %s %s" % (" ".join(args), out[-500:], err[-500:]))
    return json.loads(out)


def faults(document):
    return [f["code"] for f in document["findings"] if f["fault"]]


def test_recordings():
    leak = diagnosed(os.path.join(GUIDE, "leak.mtr"), expect=FOUND)
    equal(faults(leak), ["leak"], "faults of leak.mtr")
    first = leak["findings"][0]
    equal((first["where"], first["held_by"], first["confidence"]), ("train.py:56 (GPT.forward)", "global history[*]", "high"), "the leak")
    equal(first["bytes_per_step"], 8 * 2**20, "bytes of the leak in a step")
    check(820 <= first["full_in_steps"] < 830 and 60 < first["full_in_seconds"] < 80, "until the device is full: %s", first)
    oom = diagnosed(os.path.join(GUIDE, "oom.mtr"), expect=FOUND)
    equal(faults(oom), ["out_of_memory", "leak"], "faults of oom.mtr")
    equal(oom["findings"][0]["bytes"], 16 * 2**20, "bytes asked for")
    equal(faults(diagnosed(os.path.join(GUIDE, "base.mtr"), expect=CLEAN)), [], "faults of base.mtr")
    tiny = diagnosed(harness.made("diagnose-tiny.mtr", "tiny"), expect=FOUND)
    equal([(f["code"], f["fault"]) for f in tiny["findings"]], [("out_of_memory", True), ("logits", False)], "findings of a made-up recording")


def test_ranks():
    """A finding stands once, with the ranks that have it, and a rank that has more than the others is one."""
    job = diagnosed(os.path.join(GUIDE, "job"), expect=FOUND)
    equal([(f["code"], f["recordings"]) for f in job["findings"] if f["fault"]], [("leak", [2]), ("ranks_differ", [2])], "faults of the ranks")
    equal(([r["rank"] for r in job["recordings"]], job["one_job"]), ([0, 1, 2, 3], True), "the ranks")
    code, out, _ = tool("diagnose", os.path.join(GUIDE, "job"))
    check(code == FOUND and "Leak on cuda:0 in rank 2 of 4: +4.00 MiB/step" in out, "text: %s", out)


def test_twenty_lines():
    """The text has at most 20 lines on terminals of all widths, none wider than the terminal."""
    for columns in (40, 60, 80, 120, 200):
        for name in ("leak.mtr", "oom.mtr", "base.mtr", "job"):
            _, out, _ = tool("diagnose", os.path.join(GUIDE, name), env={**os.environ, "COLUMNS": str(columns)})
            lines = out.splitlines()
            check(1 <= len(lines) <= 20, "%s has %d lines in %d columns: %s", name, len(lines), columns, out)
            wide = [line for line in lines if len(line) > columns and " " in line.strip() and not line.startswith("Details")]
            equal(wide, [], "%s: lines wider than %d columns" % (name, columns))


def attached(mode, expect, program=LEAK):
    job = spawn_job([python(), program, mode, "--steps", "100000", "--pause", "0.02"])
    job.wait_line("step 3")
    document = diagnosed("-p", str(job.pid), expect=expect, root=True)
    job.stop()
    return document


def test_attached_leak():
    """It ends as soon as it is sure."""
    document = attached("list", FOUND)
    equal(faults(document)[0], "leak", "first fault")
    places = [f["where"] for f in document["findings"]]
    equal(len(places), len(set(places)), "a line is named once, although tensors on the CPU are host memory, too: %s" % places)
    equal(document["findings"][0]["held_by"], "global history[*]", "holder")
    check(document["steps"] >= 24, "steps: %s", document["steps"])


def test_attached_graph():
    document = attached("graph", FOUND)
    equal(faults(document)[0], "graph_kept", "first fault")


def test_attached_healthy():
    document = attached("none", CLEAN)
    equal(document["findings"], [], "findings")  # 50 KiB of gradients are not worth a line
    check(document["steps"] >= 60, "steps: %s", document["steps"])


def line_of(word):
    with open(FAULTS, encoding="utf-8") as f:
        return next("faults.py:%d " % number for number, text in enumerate(f, 1) if text.endswith("# FAULT %s\n" % word))


def test_attached_no_grad():
    """An evaluation that builds the graph is a fault; one under no_grad() is none, alone or next to training."""
    first = attached("thrown_graphs", FOUND, FAULTS)["findings"][0]
    equal((first["code"], first["device"]), ("no_grad", "cpu"), "first finding")
    check(line_of("thrown_graphs") in first["where"], "where: %s", first)
    for healthy in ("no_grad", "validation"):
        equal(faults(attached(healthy, CLEAN, HEALTHY)), [], "faults of %s" % healthy)


def test_attached_twice():
    """Weights of a checkpoint that stays, and state of an optimizer that is not used any more."""
    def held(document):
        return [f["held_by"] for f in document["findings"] if f["code"] == "weights_held"]

    equal(held(attached("checkpoint", CLEAN, FAULTS)), ["global kept[*]['model']"], "finding of a checkpoint")
    document = attached("two_optimizers", FOUND, FAULTS)
    equal(faults(document), ["optimizer_state_twice"], "faults of two_optimizers")
    check("AdamW" in document["findings"][0]["text"], "finding of two_optimizers: %s", document["findings"])
    equal(attached("loaded", CLEAN, HEALTHY)["findings"], [], "findings without the checkpoint")


def dry_run(file, name, vram, path):
    """A job under the dry run, recorded from its start: the allocator's own count of retries."""
    code, out, err = tool("run", "--dry-run-cuda", "--vram", vram, "-q", "-f", "-o", path, "--", python(), file, name, "--device", "cuda", "--steps", "5",
                          root=True, seconds=120)
    counted = re.search(r"^retries (\d+)$", out, re.M)
    check(code == 0 and counted, "%s: %s %s", name, out[-500:], err[-800:])
    harness.own(path)
    return int(counted[1])


def test_retries():
    """Retries are those that PyTorch counts, with the line that needed the memory."""
    path = harness.scratch("retry.mtr")
    counted = dry_run(FAULTS, "retries", "1400M", path)
    check(counted > 0, "PyTorch retried nothing")
    (first,) = [f for f in diagnosed(path, expect=FOUND)["findings"] if f["fault"]]
    equal((first["code"], first["bytes"]), ("retries", 600 * 2**20), "the finding")
    check(line_of("retries") in first["where"] and "%d time" % counted in first["text"], "text: %s", first)
    equal(dry_run(HEALTHY, "cache_that_fits", "1400M", path), 0, "retries of a cache that fits")
    equal(faults(diagnosed(path, expect=CLEAN)), [], "faults of a cache that fits")


def test_retries_of_handles():
    """A request for several handles is retried once, and not at all if CUDA refuses one of them each time."""
    path = harness.scratch("handles.mtr")
    counted = dry_run(FAULTS, "handle_retries", "1400M", path)
    (first,) = [f for f in diagnosed(path, expect=FOUND)["findings"] if f["code"] == "retries"]
    check(line_of("handle_retries") in first["where"] and "; %d times in all" % counted in first["text"], "text: %s", first)
    dry_run(FAULTS, "handle_oom", "1400M", path)
    equal([code for code in faults(diagnosed(path, expect=FOUND)) if code == "retries"], [], "retries of requests that failed")


# The finding that is named first for each program of tests/workloads with a planted fault; None: a healthy program, without findings.
PROGRAMS = {
    # a container or variable that grows
    "leak.py list": "leak", "leak.py closure": "leak", "leak.py attribute": "leak", "leak.py concat": "leak",
    "faults.py in_dict": "leak", "faults.py class_attribute": "leak", "faults.py lru_cache": "leak", "faults.py thread_per_request": "leak",
    "faults.py forward_hook": "leak", "faults.py gradient_hook": "leak", "faults.py log_records": "leak", "faults.py metric": "leak",
    "faults.py views": "leak", "faults.py tracebacks": "leak", "faults.py kv_sessions": "leak", "faults.py adapters": "leak",
    "faults.py cycles": "leak", "faults.py best_models": "leak", "faults.py numpy_frames": "leak", "faults.py byte_strings": "leak",
    # autograd's graph
    "leak.py graph": "graph_kept", "faults.py running_sum": "graph_kept", "faults.py create_graph": "graph_kept",
    "faults.py functional_update": "graph_kept", "faults.py state_in_thread": "graph_kept", "faults.py evaluation": "calls_keep",
    "faults.py thrown_graphs": "no_grad",
    # more than one of something
    "faults.py best_model": "model_copies", "faults.py average": "model_copies", "faults.py second_state": "state_held",
    "faults.py two_optimizers": "optimizer_state_twice", "faults.py checkpoint": "weights_held", "faults.py masks": "buffers",
    # the peak
    "faults.py growing_inputs": "peaks_grow", "faults.py oom_inputs": "out_of_memory", "faults.py oom_leak": "out_of_memory",
    "faults.py pieces": "out_of_memory",
    "faults.py late_zero_grad": "gradients_late", "faults.py float_logits": "logits", "faults.py output_variable": "outputs_held",
    "faults.py autocast": "autocast_casts",
    # memory without tensors
    "leak.py others": "others_grow", "faults.py burst": "cached", "faults.py graph_pools": "cache_grows", "faults.py fragments": "cached",
    "faults.py pinned_sizes": "pinned_grows", "faults.py free_heap": "malloc_free", "faults.py worker": "copies_grow",
    # healthy
    "leak.py none": None, "leak.py cache": None, "leak.py sawtooth": None, "leak.py lengths": None, "leak.py cycles": None, "leak.py kv": None,
    "healthy.py accumulation": None, "healthy.py warm_up": None, "healthy.py evaluation": None, "healthy.py first_steps": None,
    "healthy.py server": None, "healthy.py checkpoints": None, "healthy.py no_grad": None, "healthy.py validation": None,
    "healthy.py loaded": None, "healthy.py cache_that_fits": None,
}
# Faults of CUDA's memory, which do not exist on the CPU.
ONLY_CUDA = {"leak.py others", "faults.py oom_inputs", "faults.py oom_leak", "faults.py burst", "faults.py graph_pools",
             "faults.py fragments", "faults.py pieces", "faults.py pinned_sizes", "healthy.py cache_that_fits"}
# What `diagnose` does not find yet, or not each time.
NOT_YET = {
    "faults.py float_logits",
}
FAILED = "failed"  # in place of a code: the program did not start, or `diagnose` failed
PATHS = {"leak.py": LEAK, "faults.py": FAULTS, "healthy.py": HEALTHY}


@functools.cache
def environment(device):
    """The environment of a program: that of `run --dry-run-cuda`, which is all that makes a dry run, or this one."""
    if device == "cpu":
        return dict(os.environ)
    code, out, err = tool("run", "--dry-run-cuda", "--vram", "2G", "--no-trace", "--", "env", "-0")
    equal(code, 0, "exit code of run (%s)" % err)
    return dict(variable.split("=", 1) for variable in out.split("\0")[:-1])


def started(program, device):
    """Starts a program of PROGRAMS and waits until its third step is done. Returns the job, and the PID to attach to."""
    file, name = program.split()
    command = [python(), PATHS[file], name, "--device", device, "--pause", "0.05", *(["--steps", "100000"] if file == "leak.py" else [])]
    job = spawn_job(command, env=environment(device))
    job.wait_line("^step 3$", 120)
    attach = re.search(r"^attach (\d+)$", job.stdout(), re.M)
    return job, int(attach[1]) if attach else job.pid


def answer(program, device):
    """What `diagnose` says of a program: the codes of its findings or FAILED, the text of the first one, and the time that it took."""
    try:
        job, pid = started(program, device)
    except harness.Failure as e:
        return [FAILED], str(e), 0
    begin = time.monotonic()
    code, out, err = tool("diagnose", "--format", "json", "-p", str(pid), root=True, seconds=120)
    seconds = time.monotonic() - begin
    job.stop()
    document = json.loads(out) if code in (CLEAN, FOUND) else {"findings": [{"code": FAILED, "text": "exit code %d: %s" % (code, err)}]}
    findings = document["findings"]
    return [f["code"] for f in findings], findings[0]["text"] if findings else document["growth"], seconds


def write_table(device, answers):
    """Writes the answers as Markdown: .output/diagnose-cpu.md, .output/diagnose-cuda.md."""
    with open(os.path.join(harness.OUT, "diagnose-%s.md" % device), "w", encoding="utf-8") as f:
        f.write("| program | expected | found | s | first finding |\n|---|---|---|---|---|\n")
        for program, (codes, text, seconds) in answers.items():
            text = " ".join(text.replace("|", "/").split())
            f.write("| `%s` | %s | %s | %.0f | %s |\n" % (program, PROGRAMS[program] or "nothing", codes[0] if codes else "nothing", seconds, text))


def diagnose_programs(device):
    """The right finding comes first, and a healthy program has none. MEMTRACE_PROGRAMS: only these, "in_dict,metric"."""
    names = os.environ.get("MEMTRACE_PROGRAMS", "").split(",")
    programs = [p for p in PROGRAMS if (device != "cpu" or p not in ONLY_CUDA) and (names == [""] or p.split()[1] in names)]
    check(programs, "no program has one of the names %s", names)
    with concurrent.futures.ThreadPoolExecutor(int(os.environ.get("MEMTRACE_TESTS_AT_ONCE", "2"))) as pool:
        answers = dict(zip(programs, pool.map(lambda p: answer(p, device), programs)))
    write_table(device, answers)
    wrong = ["%s: %s (%s), expected %s" % (p, codes, text, PROGRAMS[p]) for p, (codes, text, _) in answers.items()
             if codes[:1] != ([PROGRAMS[p]] if PROGRAMS[p] else []) and (p not in NOT_YET or FAILED in codes)]
    check(not wrong, "%s", "; ".join(wrong))


def test_two_models():
    """Two variables lead to models of one class and size."""
    job, pid = started("faults.py best_model", "cpu")
    document = diagnosed("-p", str(pid), expect=CLEAN, root=True)
    job.stop()
    (found,) = document["findings"]
    # The other one is job.model, unless objects were read while a call had it.
    check(found["code"] == "model_copies" and "held by local best in best_model" in found["text"], "finding: %s", found)


@nightly("long")
def test_programs_on_cpu():
    diagnose_programs("cpu")


@nightly("long")
def test_programs_on_dry_run():
    diagnose_programs("cuda")


@nightly("long")
def test_one_rank():
    """One rank of two leaks: the finding is that rank's."""
    folder = harness.scratch("one-rank") + os.sep
    code, _, err = tool("run", "--children", "-q", "-o", folder, "--", python(), "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
                        FAULTS, "one_rank", "--steps", "60", root=True, seconds=180)
    equal(code, 0, "exit code of run (%s)" % err[-1000:])
    document = diagnosed(folder, expect=FOUND, root=True)
    first, ranks = document["findings"][0], [r["rank"] for r in document["recordings"]]
    equal((first["code"], [ranks[i] for i in first["recordings"]]), ("leak", [1]), "the first finding, and the ranks that have it")


def test_kept():
    """-o keeps the recording, which says the same."""
    job = spawn_job([python(), LEAK, "list", "--steps", "100000", "--pause", "0.02"])
    job.wait_line("step 3")
    path = harness.scratch("kept.mtr")
    with open(path, "wb"):
        pass
    first = diagnosed("-p", str(job.pid), "--steps", "50", "-f", "-o", path, expect=FOUND, root=True)
    job.stop()
    harness.own(path)
    equal(diagnosed(path, expect=FOUND)["findings"], first["findings"], "findings of the recording that was kept")


def test_usage():
    for args in ((), ("-f", "x.mtr"), ("-p", "1", "x.mtr"), ("-o", "y.mtr", "x.mtr"), ("-p", "1", "-o", "-"), ("-p", "1", "-o", "runs/"), ("--steps", "5", "x.mtr"), ("-d", "5s", "x.mtr")):
        code, out, err = tool("diagnose", *args)
        equal((code, out), (USAGE, ""), "diagnose %s" % " ".join(args))
        check("diagnose" in err, "error: %s", err)


if __name__ == "__main__":
    run(globals())

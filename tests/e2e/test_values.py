#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""The dry run's log of dependences on values: each place that reads a kernel's result, and no other."""
import json
import os
import re
import subprocess

from harness import OUT, WORKLOADS, check, equal, nightly, python, run, scratch, spawn_job

FOLDER = os.path.join(OUT, "dryrun")
PRELOAD = [os.path.join(FOLDER, n) for n in ("libcuda.so.1", "libnvidia-ml.so.1")]
SCRIPT = os.path.join(WORKLOADS, "values.py")


def lines():
    with open(SCRIPT, encoding="utf-8") as f:
        return f.read().splitlines()


def at(text):
    found = [n for n, line in enumerate(lines(), 1) if text in line]
    equal(len(found), 1, "lines with %r" % text)
    return found[0]


def expected():
    """Expected reads from the comments: sort, operation and line."""
    wanted = set()
    for n, line in enumerate(lines(), 1):
        comment = re.search(r"# (shape|value) ([\w, ]+)$", line)
        if comment:
            wanted |= {(comment[1], op, n) for op in comment[2].split(", ")}
    return wanted


def job(role, log, *command, **more):
    env = dict(os.environ, LD_PRELOAD=" ".join(PRELOAD), PYTHONUNBUFFERED="1", MEMTRACE_DRYRUN_LOG=log, **more)
    if os.path.exists(log):
        os.unlink(log)
    p = spawn_job([python(role), "-W", "ignore", *command], env=env, stdin=subprocess.DEVNULL)
    code = p.wait(120)
    check(code == 0, "the script ended with %s: %s", code, p.tail(p.stderr()))
    with open(log, encoding="utf-8") as f:
        return p.stdout(), f.read().splitlines()


def depends(log):
    """The largest count of each place."""
    counts = {}
    for line in log:
        parts = line.split("\t")
        if parts[0] == "depends":
            equal(len(parts), 7, "fields of %r" % line)
            _, sort, operation, count, path, number, function = parts
            key = (sort, operation, path, int(number), function)
            counts[key] = max(counts.get(key, 0), int(count))
    return counts


def looks(role):
    first, loop = at("seen[\"said\"]"), at("while not bool(")
    out, log = job(role, scratch("log"), SCRIPT,
                   MEMTRACE_DRYRUN_VALUES="values.py:%d=2.5;workloads/values.py:%d=true@7" % (first, loop))
    seen = json.loads([line for line in out.splitlines() if line.startswith("{")][-1])
    taken = seen.pop("host_bytes")
    equal(seen, {"host": [True, True, 0, 0], "begun": True, "item": 0, "bool": False, "list": 0, "both": False, "nonzero": [0, 1], "index": [0], "known": [4, [3, 4, 5], [3, 4, 5]],
                 "part": [3, 4, 5], "said": [2.5, seen["said"][1], 2.5, False], "turns": 6, "backward": 0}, "what the script saw")
    # 256 MiB of weights; PyTorch 2.1 has no interface to identify a tensor.
    check(taken < 64 << 20 if role != "old" else taken > 200 << 20, "a model on the host took %.1f MiB", taken / (1 << 20))
    # Whole numbers and floating-point numbers of one size are not distinguishable.
    check(seen["said"][1] != 0, "the third number that was said")
    counts = depends(log)
    equal({(sort, operation, n) for sort, operation, path, n, _ in counts if path.endswith("values.py")}, expected(), "what depends on values")
    equal(sorted({path for _, _, path, _, _ in counts}), [SCRIPT], "files")
    reads = {n: count for (_, _, _, n, _), count in counts.items()}
    equal(reads[at("x.max().tolist()")], 5, "reads in the loop, with those that its end tells")
    equal(reads[loop], 7, "questions of the loop that was told when to end")
    equal({k[4].split(".")[-1] for k in counts if k[3] == at("seen[\"backward\"]")}, {"backward"}, "the function in autograd's thread")
    assumed = [line.split() for line in log if line.startswith("assumed")]
    places = {sort: {int(a[2].rsplit(":", 1)[1]) for a in assumed if a[1] == sort} for sort in ("true_at", "value_at")}
    # Versions of PyTorch differ in checking these repeats.
    equal(places["true_at"] - {at("torch.repeat_interleave(")},
          {at(t) for t in ("assert torch.isfinite", "if not torch.isfinite", "if not (~torch.isnan", "distributions.Normal")}, "truth values that were assumed")
    equal(places["value_at"], {first, loop}, "values that were told")


def test_looks_main():
    looks("main")


@nightly("versions")
def test_looks_old():
    """Python 3.8 has another frame API."""
    looks("old")


GENERATE = os.path.join(WORKLOADS, "generate.py")
LOOP = os.path.join(WORKLOADS, "generation", "transformers", "generation", "loop.py")


def line_of(path, text):
    with open(path, encoding="utf-8") as f:
        return next(n for n, line in enumerate(f, 1) if text in line)


WAITS = "generate.py:%d" % line_of(GENERATE, "the line that waits")
ASKS = "loop.py:%d" % line_of(LOOP, "return bool(")


def generate(role):
    """Loops like that of generate() end at their greatest length in each call; others where a value is told, again and again."""
    out, log = job(role, scratch("generate"), GENERATE, "40", "7", "40", MEMTRACE_DRYRUN_VALUES=WAITS + "=true@64*")
    seen = json.loads(out.splitlines()[-1])
    equal((seen["generated"], seen["turns"]), ([[[3, 50], 49], [[3, 17], 16], [[3, 50], 49]], [63, 63]), "lengths and turns")
    check(any("greatest_length_at" in line and line.endswith(ASKS) for line in log), "the log: %s", log)
    # Reading a frame's variables keeps none of its tensors.
    out, _ = job(role, scratch("told"), GENERATE, "40", "40", MEMTRACE_DRYRUN_VALUES="%s=true@64*,%s=true@40*" % (WAITS, ASKS))
    told = json.loads(out.splitlines()[-1])
    equal((told["generated"], told["peak"]), ([[[3, 50], 49]] * 2, seen["peak"]), "the same with values that are told")


def test_generate_main():
    generate("main")


@nightly("versions")
def test_generate_old():
    """Python 3.8 has no function for one variable of a frame."""
    generate("old")


def test_waiting_is_said():
    """A place that reads a truth value a thousand times gets a hint, and the log is there from the start."""
    log = scratch("waiting")
    env = dict(os.environ, LD_PRELOAD=" ".join(PRELOAD), PYTHONUNBUFFERED="1", MEMTRACE_DRYRUN_LOG=log)
    p = spawn_job([python("main"), "-W", "ignore", GENERATE, "3"], env=env, stdin=subprocess.DEVNULL)
    line = p.wait_line("dry run: .*generate.py", stream="err")
    hint = WAITS + " has read a truth value of the device 1000 times"
    check(hint in line and WAITS + "=true@64*" in line, "the hint: %r", line)
    p.stop()
    empty = scratch("empty")
    done = subprocess.run(["true"], env=dict(os.environ, LD_PRELOAD=PRELOAD[0], MEMTRACE_DRYRUN_LOG=empty), capture_output=True, text=True, timeout=60, check=False)
    equal((done.returncode, os.path.getsize(empty)), (0, 0), "a log of nothing")
    done = subprocess.run(["true"], env=dict(os.environ, LD_PRELOAD=PRELOAD[0], MEMTRACE_DRYRUN_LOG="/nowhere/log"), capture_output=True, text=True, timeout=60, check=False)
    check(done.returncode == 0 and "no log" in done.stderr, "a log that cannot be written: %r", done.stderr)


def test_without_python_lines():
    """Without an interpreter the place is unknown, and the read is counted."""
    log = scratch("plain")
    if os.path.exists(log):
        os.unlink(log)
    script = r"""
import ctypes, sys
cuda = ctypes.CDLL(sys.argv[1])
V, S = ctypes.c_void_p, ctypes.c_size_t
at, host = V(), ctypes.create_string_buffer(64)
assert cuda.cudaMalloc(ctypes.byref(at), S(4096)) == 0
def read(n, offset=0):
    assert cuda.cudaMemcpy(host, V(at.value + offset), S(n), 2) == 0
    return host.raw[:n]
cuda.cudaMemset(at, 7, S(10))
assert read(10) == bytes([7] * 10)
assert cuda.cudaMemcpy(V(at.value + 4090), b"abcdef", S(6), 1) == 0
assert read(6, 4090) == b"abcdef"
assert cuda.cudaMemcpy(V(at.value + 63), V(at.value + 1), S(9), 3) == 0
assert read(9, 63) == bytes([7] * 9)
""" + "\n" * 7 + r"""
read(11); read(10, 62)
"""
    done = subprocess.run([python("main"), "-c", script, PRELOAD[0]], capture_output=True, text=True, timeout=60, check=False,
                          env=dict(os.environ, LD_PRELOAD=" ".join(PRELOAD), MEMTRACE_DRYRUN_LOG=log))
    equal((done.returncode, done.stderr), (0, ""), "exit and messages")
    with open(log, encoding="utf-8") as f:
        counts = depends(f.read().splitlines())
    equal({(k[0], k[2], k[4]): n for k, n in counts.items()}, {("value", "<string>", "read"): 2}, "what was read and not known")


if __name__ == "__main__":
    run(globals())

#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
Programs that use CUDA besides training, on the dry run and attached to by PID: does each run, and are the figures equal to its own?
usage: tests/serving/run.py [PROGRAM ...]

Installs CuPy, numba, onnxruntime, transformers, FastAPI and uvicorn from PyPI, once, next to the other environments (about 2 GB).
"""
import json
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "e2e"))

import harness  # noqa: E402
import truth  # noqa: E402

MIB = 1 << 20
GRANULE = 2 * MIB
VENVS = os.environ.get("MEMTRACE_VENVS", os.path.expanduser("~/.cache/memtrace-bpf"))
ALONE = ["cupy-cuda12x", "numba-cuda", "nvidia-cuda-nvrtc-cu12", "nvidia-cuda-nvcc-cu12", "nvidia-cuda-runtime-cu12", "nvidia-cublas-cu12"]
WITH_TORCH = ["transformers", "fastapi", "uvicorn", "onnxruntime-gpu", "onnx"]
SOURCE = os.path.join(harness.PROGRAMS, "native", "cuda_memory.c")


def install(folder, command, packages):
    mark = os.path.join(folder, "installed")
    wanted = " ".join(packages)
    if os.path.exists(mark) and open(mark, encoding="utf-8").read() == wanted:
        return
    print("installing %s into %s" % (wanted, folder), file=sys.stderr)
    subprocess.run([*command, "-m", "pip", "install", "-q", "--disable-pip-version-check", *packages], check=True)
    with open(mark, "w", encoding="utf-8") as f:
        f.write(wanted)


def environments():
    """The interpreter without PyTorch, that with PyTorch, and the folder of what the second one gets on top."""
    alone, more = os.path.join(VENVS, "serving"), os.path.join(VENVS, "serving-torch")
    interpreter = os.path.join(alone, "bin", "python")
    if not os.path.exists(interpreter):
        subprocess.run([sys.executable, "-m", "venv", alone], check=True)
    install(alone, [interpreter], ALONE)
    os.makedirs(more, exist_ok=True)
    torch = harness.python()
    mark = os.path.join(more, "installed")
    if not os.path.exists(mark):
        subprocess.run([torch, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--target", more, *WITH_TORCH], check=True)
        open(mark, "w", encoding="utf-8").close()
    return interpreter, torch, more


def with_jax():
    """The interpreter of JAX's environment, which has CUDA's libraries of its own."""
    folder = os.path.join(VENVS, "serving-jax")
    interpreter = os.path.join(folder, "bin", "python")
    if not os.path.exists(interpreter):
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    install(folder, [interpreter], ["jax[cuda12]"])
    return interpreter


def compile_program(name, *libraries):
    path = harness.scratch(name)
    subprocess.run(["cc", "-O2", "-g", "-o", path, SOURCE, *libraries], check=True)
    return [path]


def static_runtime(torch):
    folder = os.path.join(os.path.dirname(os.path.dirname(torch)), "lib")
    found = subprocess.run(["find", folder, "-name", "libcudart_static.a"], capture_output=True, text=True, check=True).stdout.split()
    return found[0]


def compiled(command):
    """A round of cuda_memory.c before and one after attaching: the driver is not open sooner."""
    job = harness.spawn(command, env=truth.dry_run())
    job.send()
    job.wait_line("done")
    path = harness.scratch("compiled.mtr")
    recorder = harness.record(job.pid, path)
    job.send()
    job.wait_line("done")
    return job, recorder, path, {"bytes": 320 * MIB}


def scripted(interpreter, name, more):
    env = dict(truth.dry_run(), PYTHONPATH=more, PYTHONWARNINGS="ignore", HF_HUB_OFFLINE="1", XLA_PYTHON_CLIENT_PREALLOCATE="false")
    job = harness.spawn([interpreter, os.path.join(HERE, "programs.py"), name], env=env)
    job.wait_line("ready", 120)
    path = harness.scratch(name + ".mtr")
    recorder = harness.record(job.pid, path)
    job.send()
    return job, recorder, path, json.loads(job.wait_line("{", 120))


def compare(name, path, own):
    """The tool's figures next to the program's. Returns the lines that differ, and a text."""
    doc = harness.report(path)
    device = harness.device(doc, "cuda:0")
    peak = harness.device(harness.report(path, at="peak"), "cuda:0")["peak_allocated"]
    others = (device.get("reconciliation") or {}).get("others") or {}
    # Calls into CUDA are blocks, or, next to PyTorch, memory of others.
    taken = others.get("bytes") if others.get("bytes") else device["allocated"]
    figures = {"bytes": device["allocated"], "peak": peak, "driver": taken}
    blocks = sum(r.get("count", 0) for r in others.get("rows") or doc["rows"])
    wrong, said = [], []
    for what, value in own.items():
        seen = figures[what]
        # The driver counts whole granules for each block.
        equal = seen == value if what != "driver" else seen <= value < seen + GRANULE * blocks
        said.append("%s %d = %d" % (what, value, seen) if seen == value else "%s %d, recorded %d" % (what, value, seen))
        if not equal:
            wrong.append(what)
    top = max(doc["rows"], key=lambda r: r["bytes"], default=None)
    where = "%s:%s (%s)" % (os.path.basename(top["file"] or "?"), top["line"], top["function"]) if top else "none"
    return wrong, "; ".join(said) + "; most: " + where


def main():
    interpreter, torch, more = environments()
    stubs = ["-L" + os.path.join(harness.OUT, "dryrun"), "-lcuda"]
    jobs = {"C, shared runtime": lambda: compiled(compile_program("shared", *stubs)),
            "C, static runtime": lambda: compiled(compile_program("static", static_runtime(torch), "-ldl", "-lpthread", "-lrt"))}
    for name in ("cupy", "numba"):
        jobs[name] = lambda name=name: scripted(interpreter, name, "")
    jobs["jax"] = lambda: scripted(with_jax(), "jax", "")
    for name in ("onnxruntime", "generate-dynamic", "generate-static", "uvicorn"):
        jobs[name] = lambda name=name: scripted(torch, name, more)
    chosen, failed = sys.argv[1:] or list(jobs), 0
    print("| program | dry run | attach | figures equal | own figure = recorded |\n|---|---|---|---|---|")
    for name in chosen:
        cells = ["no", "no", "no", ""]
        try:
            job, recorder, path, own = jobs[name]()
            cells[0] = "yes"
            harness.settle(recorder)
            recorder.signal(2)
            recorder.wait()
            job.stop()
            wrong, cells[3] = compare(name, path, own)
            cells[1], cells[2] = "yes", "no" if wrong else "yes"
        except (harness.Failure, subprocess.CalledProcessError, OSError) as e:
            cells[3] = str(e).replace("\n", " ")[-400:].replace("|", "/")
        failed += cells[2] != "yes"
        print("| %s | %s |" % (name, " | ".join(cells)), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

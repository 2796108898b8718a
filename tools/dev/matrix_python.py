#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
Which CPython and PyTorch memtrace-bpf works with: one cell for each pair, one JSON line for each cell. Needs root, a build, a network.

    tools/dev/matrix_python.py                        the ends of PyTorch's versions for each interpreter that tools/deps.sh finds
    tools/dev/matrix_python.py 3.14:2.10.0 3.12:2.15.0  these cells
    tools/dev/matrix_python.py --python PROGRAM       the PyTorch that this interpreter has now

A cell makes an environment, runs tests/workloads/matrix.py in it, attaches, and compares lines, modules and totals with what the
job says, and the names of `dump`. Environments made here are removed, one before the next is made, unless --keep. The lines go
into tests/data/matrix/python.json, in order, and replace those of the same cell; a cell that fails is not written, and ends this
with 1.
"""
import argparse
import datetime
import json
import os
import platform
import re
import shutil
import subprocess
import sys

REPO = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(REPO, "tests", "e2e"))
import harness  # noqa: E402
from harness import Failure, check, equal, finish, record, report, scratch, spawn  # noqa: E402

RESULTS = os.path.join(REPO, "tests", "data", "matrix", "python.json")
VENVS = os.environ.get("MEMTRACE_VENVS", os.path.expanduser("~/.cache/memtrace-bpf"))
NEED_MIB = 12000
ABOUT = ("import json, os, platform, sys, torch; print(json.dumps({"
         "'python': platform.python_version() + sys.abiflags, 'torch': torch.__version__.split('+')[0], 'cuda': torch.version.cuda,"
         "'libc': os.confstr('CS_GNU_LIBC_VERSION')}))")
JOB = os.path.join(REPO, "tests", "workloads", "matrix.py")


def say(text):
    print("matrix_python: " + text, file=sys.stderr, flush=True)


def output(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


# ---- interpreters and environments ------------------------------------------------------------------------

def interpreters():
    """Paths by version, such as "3.14t"."""
    found = {}
    for path in output(os.path.join(REPO, "tools", "deps.sh"), "pythons").split(":"):
        found[output(path, "-c", "import sys; print('%d.%d' % sys.version_info[:2] + sys.abiflags)")] = path
    return found


def versions(python):
    """PyTorch's versions on the index for an interpreter, oldest first."""
    done = subprocess.run([python, "-m", "pip", "index", "versions", "torch", "--only-binary=:all:"], capture_output=True, text=True, check=False)
    listed = re.search(r"Available versions: (.*)", done.stdout)
    return listed.group(1).split(", ")[::-1] if listed else []


def ends(python):
    """The oldest, the newest, and one between."""
    all_of_them = versions(python)
    return sorted({all_of_them[0], all_of_them[len(all_of_them) // 2], all_of_them[-1]}) if all_of_them else []


def environment(python, torch):
    """An interpreter with that PyTorch, and the folder to remove afterwards or None."""
    full = output(python, "-c", "import platform; print(platform.python_version())")
    there = os.path.join(VENVS, "torch-%s-py%s" % (torch, full))
    if os.path.exists(os.path.join(there, ".complete")):
        return os.path.join(there, "bin", "python"), None
    made = os.path.join(VENVS, "matrix-%s-%s" % (torch, os.path.basename(python)))
    free = shutil.disk_usage(VENVS).free >> 20
    check(free >= NEED_MIB, "%s has %d MiB free, %d are needed", VENVS, free, NEED_MIB)
    shutil.rmtree(made, ignore_errors=True)
    subprocess.run([python, "-m", "venv", made], check=True)
    try:
        pip = [os.path.join(made, "bin", "pip"), "install", "-q", "--disable-pip-version-check", "--no-cache-dir", "--no-compile"]
        subprocess.run([*pip, "torch==" + torch, *(["numpy<2"] if [int(n) for n in torch.split(".")[:2]] < [2, 3] else ["numpy"])], check=True)
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise
    return os.path.join(made, "bin", "python"), made


# ---- a cell -----------------------------------------------------------------------------------------------

def names(pid, want):
    """"tested", or the message that refuses names."""
    code, out, err = harness.tool("dump", "-p", str(pid), "--format", "json", root=True)
    if code == 2:
        return "refused: " + re.sub(r"^memtrace-bpf: PID \d+: |; `memtrace-bpf check.*", "", err.strip())
    check(code == 0, "dump ended with %d: %s", code, err)
    found = {r["name"]: r["bytes"] for r in json.loads(out)["rows"] if r["name"] in want}
    equal(found, want, "tensors with names")
    return "tested"


def compare(path, truth, named):
    lines = report(path, by="line")
    got = {str(r["line"]): r["bytes"] for r in lines["rows"] if (r["file"] or "").endswith("matrix.py")}
    equal(got, truth["lines"], "bytes by line")
    before = sum(truth["names"].values()) if named else 0  # from before attach, of the same module
    rows = report(path, by="module")["rows"]
    equal({r["module"]: r["bytes"] for r in rows if r["module"]}, {m: n + before for m, n in truth["modules"].items()}, "bytes by module")
    cpu = harness.device(lines)
    equal((cpu["allocs"] >= truth["allocs"], sum(got.values()), lines["capture"]["lost"]), (True, truth["bytes"], 0), "totals")


def refusal(said):
    """The reason why the process cannot be recorded."""
    return re.sub(r"^.*?PID \d+( \([^)]*\))?:? ", "", said.strip().splitlines()[-1])


def cell(python):
    host = platform.release().split(".")
    result = {"kernel": ".".join(host[:2]), "arch": platform.machine(), **json.loads(output(python, "-W", "ignore", "-c", ABOUT))}
    target = spawn([python, "-W", "ignore", JOB])
    path = scratch("matrix.mtr")
    try:
        target.wait_line("^ready", 180)
        recorder = record(target.pid, path, wait=False)
        try:
            recorder.wait_line(harness.ATTACHED, 30, stream="err")
        except Failure:
            check(recorder.popen.poll() == 2, "record: %s", recorder.stderr())
            return {**result, "result": "refused: " + refusal(recorder.stderr()).removeprefix("memtrace-bpf: ")}
        target.send()
        truth = json.loads(target.wait_line("^{", 60))
        harness.settle(recorder)
        result["names"] = names(target.pid, truth["names"])
        finish(recorder)
        compare(path, truth, result["names"] == "tested")
        return {**result, "result": "tested"}
    finally:
        target.stop()


def key(line):
    numbers = [[int(n) for n in re.findall(r"\d+", line[k] or "")] for k in ("python", "torch", "kernel")]
    return [line["arch"], line["libc"], numbers[0], line["python"], numbers[1], numbers[2]]


def write(lines):
    os.makedirs(os.path.dirname(RESULTS), exist_ok=True)
    old = []
    if os.path.exists(RESULTS):
        with open(RESULTS, encoding="utf-8") as f:
            old = [json.loads(line) for line in f]
    new = [key(line) for line in lines]
    with open(RESULTS, "w", encoding="utf-8") as f:
        for line in sorted([o for o in old if key(o) not in new] + lines, key=key):
            f.write(json.dumps(line, sort_keys=True) + "\n")


def run(name, python):
    """The line of a cell, or None if it failed."""
    try:
        line = {**cell(python), "date": datetime.date.today().isoformat()}
    except (Failure, subprocess.CalledProcessError, OSError) as e:
        say("%s: FAILED: %s" % (name, e))
        return None
    print(json.dumps(line, sort_keys=True), flush=True)
    write([line])
    return line


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cells", nargs="*", metavar="PYTHON:TORCH")
    parser.add_argument("--python", action="append", default=[], help="an interpreter that has PyTorch")
    parser.add_argument("--keep", action="store_true", help="keep the environments")
    args = parser.parse_args()
    failed = sum(run(python, os.path.abspath(python)) is None for python in args.python)
    known = interpreters() if args.cells or not args.python else {}
    cells = args.cells or ["%s:%s" % (v, torch) for v, path in known.items() for torch in ends(path)]
    for name in cells if args.cells or not args.python else []:
        version, _, torch = name.partition(":")
        made = None
        try:
            check(version in known, "no interpreter %s", version)
            python, made = environment(known[version], torch)
        except (Failure, subprocess.CalledProcessError) as e:
            say("%s: FAILED: %s" % (name, e))
            failed += 1
            continue
        try:
            failed += run(name, python) is None
        finally:
            if made and not args.keep:
                shutil.rmtree(made, ignore_errors=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

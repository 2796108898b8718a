#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# run: nightly=long long
"""tools/gpu_check.sh, made for machines with a GPU, in the dry run; and its bundle."""
import os
import subprocess

import harness
from harness import OUT, REPO, Skip, check, equal, python, run, scratch

CHECK = os.path.join(REPO, "tools", "gpu_check.sh")
GPU = "needs a GPU"


def rows_of(only, *options, expect=0, **env):
    """The table as {row: (what, expected, seen, verdict)}, read from the Markdown."""
    done = subprocess.run([CHECK, "--dry-run", "--program", harness.TOOL, "--only", only, "--steps", "8", *options], capture_output=True, text=True,
                          env=dict(os.environ, PYTHON=python(), **env), timeout=580, check=False)
    equal(done.returncode, expect, "exit status; it said %s %s" % (done.stdout[-1500:], done.stderr[-1500:]))
    table = [line for line in done.stdout.splitlines() if line.startswith("|")]
    equal(table[:2], ["| row | what | expected | seen | verdict |", "|---|---|---|---|---|"], "the head of the table")
    cells = [[c.strip() for c in line.strip("|").split("|")] for line in table[2:]]
    check(all(len(c) == 5 for c in cells), "rows of another width: %s", cells)
    return {c[0]: c[1:] for c in cells}, done.stdout


def verdicts(rows):
    return {number: row[3] for number, row in rows.items()}


def test_rows_that_need_no_gpu_pass():
    rows, out = rows_of("ADJ")
    equal(verdicts(rows), {"A1": "pass", "A2": "pass", "A3": "pass", "A4": GPU, "A5": GPU, "A6": "pass", "D1": "pass", "D2": "pass", "D3": "pass",
                           "D4": GPU, "D5": "pass", "J1": GPU, "J2": "pass", "J3": GPU}, "verdicts")
    check("This is not a GPU." in out and "9 passed, 0 failed, 5 need a GPU" in out, "what is said besides: %s", out)
    check("512.0 MiB, 512.0 MiB, 512.0 MiB" in rows["D5"][2], "the dry run's context: %s", rows["D5"])


def test_what_is_wrong_fails():
    """A driver that returns functions without exporting them."""
    rows, _ = rows_of("A", expect=1, MEMTRACE_DRYRUN_BYPASS="1")
    equal(rows["A1"][3], "FAIL", "verdict")
    check("cuMemCreate" in rows["A1"][2], "which: %s", rows["A1"])


def test_the_bundle_has_all_that_it_needs():
    made = subprocess.run(["make", "-s", "-C", REPO, "OUTPUT=" + OUT, "gpu-bundle"], capture_output=True, text=True, timeout=580, check=False)
    if made.returncode and "command not found" in made.stderr:
        raise Skip("nothing to link with")
    equal(made.returncode, 0, "make gpu-bundle; it said %s" % made.stderr[-1000:])
    folder = scratch("bundle")
    os.mkdir(folder)
    subprocess.run(["tar", "-C", folder, "-xzf", os.path.join(OUT, "gpu-check.tar.gz")], check=True)
    folder = os.path.join(folder, "gpu-check")
    program = os.path.join(folder, "memtrace-bpf")
    # With a loader path that finds nothing else, as on a machine without these libraries.
    libraries = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    elsewhere = [line.split()[0] for line in libraries.splitlines() if "=>" in line and folder not in line]
    check(all(n.startswith(("libc.", "libm.", "libpthread.", "libdl.", "librt.", "libresolv.")) for n in elsewhere), "not in the bundle: %s", elsewhere)
    done = subprocess.run([program, "run", "--no-trace", "--dry-run-cuda", "--", "true"], capture_output=True, text=True, timeout=60, check=False)
    equal(done.returncode, 0, "the program with its dry run; it said %s" % done.stderr)
    done = subprocess.run([os.path.join(folder, "gpu_check.sh"), "--dry-run", "--only", "A"], capture_output=True, text=True, timeout=300,
                          env=dict(os.environ, PYTHON=python()), check=False)
    equal(done.returncode, 0, "gpu_check.sh of the bundle; it said %s %s" % (done.stdout, done.stderr))
    check("| A1 |" in done.stdout, "no rows: %s", done.stdout)


if __name__ == "__main__":
    run(globals())

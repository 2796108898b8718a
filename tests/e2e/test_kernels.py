#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# run: long reads-code
"""The golden job of tests/kernels on the running kernel, and on the oldest supported one under emulation. `make test-kernels` has
more kernels, `make test-kernels-arm` those of aarch64."""
import os
import platform
import shutil
import subprocess
import sys

from harness import IS_ROOT, REPO, Skip, check, equal, run


def test_running_and_oldest():
    if not IS_ROOT:
        raise Skip("needs root")
    if platform.machine() != "x86_64" or not shutil.which("qemu-system-x86_64"):
        raise Skip("needs qemu-system-x86_64, on x86_64")
    images = subprocess.run([os.path.join(REPO, "tools", "deps.sh"), "kernel-images"], capture_output=True, text=True, check=True).stdout.split()
    oldest = [k for k in images if "/linux-image-cloud-amd64@bullseye/" in k]
    if not oldest:
        raise Skip("Linux 5.10 is not here: tools/deps.sh kernels")
    done = subprocess.run([sys.executable, os.path.join(REPO, "tests", "kernels", "run.py"), *oldest], capture_output=True, text=True, timeout=850, check=False)
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in done.stdout.splitlines()[2:]]
    equal([(row[1], row[3], row[4]) for row in rows], [(how, way, "the same") for how in ("this machine", "emulated") for way in ("the kernel's", "the programs'")],
          "rows (%s%s)" % (done.stdout, done.stderr))
    check(rows[2][0].startswith("5.10.") and "bpf_loop (5.17)" in rows[2][2], "the oldest kernel, and what it lacks: %s", rows[2])


if __name__ == "__main__":
    run(globals())

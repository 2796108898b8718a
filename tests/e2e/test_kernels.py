#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# run: nightly=hosts long reads-code cpu=500
"""The golden job of tests/kernels on the running kernel, and under emulation on the oldest supported one and on one for aarch64.
`make test-kernels` has more kernels, `make test-kernels-arm` all of it on those of aarch64."""
import os
import platform
import shutil
import subprocess
import sys

from harness import IS_ROOT, REPO, Skip, check, equal, run


def image(which, package):
    found = subprocess.run([os.path.join(REPO, "tools", "deps.sh"), which], capture_output=True, text=True, check=True).stdout.split()
    found = [k for k in found if "/%s/" % package in k]
    if not found:
        raise Skip("the kernel of %s is not here: tools/deps.sh golden" % package)
    return found[0]


def golden(*args, output=None):
    """The rows of the table, and all that was printed. output: the build to run, when it is not the one under test."""
    env = {**os.environ, "OUTPUT": output} if output else None
    done = subprocess.run([sys.executable, os.path.join(REPO, "tests", "kernels", "run.py"), *args], capture_output=True, text=True, timeout=850, check=False, env=env)
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in done.stdout.splitlines()[2:]], done


def needs(qemu):
    if platform.machine() != "x86_64" or not shutil.which(qemu):
        raise Skip("needs %s, on x86_64" % qemu)


def test_running_and_oldest():
    if not IS_ROOT:
        raise Skip("needs root")
    needs("qemu-system-x86_64")
    rows, done = golden(image("kernel-images", "linux-image-cloud-amd64@bullseye"))
    equal([(row[1], row[3], row[4]) for row in rows], [(how, way, "the same") for how in ("this machine", "emulated") for way in ("the kernel's", "the programs'")],
          "rows (%s%s)" % (done.stdout, done.stderr))
    check(rows[2][0].startswith("5.10.") and "bpf_loop (5.17)" in rows[2][2], "the oldest kernel, and what it lacks: %s", rows[2])


def test_arm64():
    """The verifier of another machine sees other code: here, too, the kernel must accept the programs."""
    needs("qemu-system-aarch64")
    kernel = image("kernel-images-arm64", "linux-image-cloud-arm64@trixie")
    output = ".output-aarch64"
    subprocess.run(["make", "-s", "-C", REPO, "ARCH=aarch64", "OUTPUT=" + output, "CFLAGS=-O0", "WERROR=", output + "/memtrace-bpf"], check=True, stdout=subprocess.DEVNULL)
    rows, done = golden("--arm64", "--quick", kernel, output=output)
    equal([(row[1], row[3], row[4]) for row in rows], [("emulated", "the kernel's", "the same")], "rows (%s%s)" % (done.stdout, done.stderr))


if __name__ == "__main__":
    run(globals())

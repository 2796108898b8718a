# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Shared by the tests of packages: the packages that `make` has made, older ones, and fresh systems to install them in."""
import contextlib
import glob
import os
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "e2e"))
import harness  # noqa: E402
from harness import OUT, REPO, Failure, Skip, check, equal, run, scratch  # noqa: E402

PACKAGES = os.path.join(OUT, "packages")
CHROOT = os.path.join(REPO, "tools", "dev", "chroot.sh")
SUITES = ("bullseye", "bookworm", "trixie", "forky")


def execute(*command, seconds=300, expect=0, **kwargs):
    """Output of a command, both streams; fails if it exits otherwise than expected."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True, timeout=seconds, **kwargs)
    check(expect is None or done.returncode == expect, "%s: exit %d\n%s", " ".join(command), done.returncode, done.stdout[-2000:])
    return done.stdout


def package(pattern):
    """The path of the newest package of that name."""
    found = sorted(glob.glob(os.path.join(PACKAGES, pattern)), key=os.path.getmtime)
    check(found, "no %s in %s: run make test-packages", pattern, PACKAGES)
    return found[-1]


def program():
    """The static program that the packages contain."""
    path = os.path.join(PACKAGES, "stage", "usr", "bin", "memtrace-bpf")
    check(os.path.exists(path), "no %s: run make test-packages", path)
    return path


def older(kind):
    """Version 0.0.9 of a .deb or .rpm, with a file that the newer one lacks. Its path."""
    folder = scratch("older-" + kind)
    stage, out = os.path.join(folder, "stage"), os.path.join(folder, "out")
    if not os.path.isdir(folder):
        check(os.path.isdir(os.path.join(PACKAGES, "stage")), "no staged tree in %s: run make test-packages", PACKAGES)
        shutil.copytree(os.path.join(PACKAGES, "stage"), stage, symlinks=True)
        with open(os.path.join(stage, "usr/share/doc/memtrace-bpf/guide/gone.md"), "w", encoding="utf-8") as f:
            f.write("The newer version lacks this file.\n")
        execute(os.path.join(REPO, "tools/packaging", kind + ".py"), env={**os.environ, "VERSION": "0.0.9", "OUTPUT": out, "STAGE": stage})
    return glob.glob(os.path.join(out, "packages", "*." + kind))[0]


@contextlib.contextmanager
def system(suite):
    """The folder of a fresh Debian system; it is removed at the end."""
    if not harness.IS_ROOT:
        raise Skip("needs root")
    done = subprocess.run([CHROOT, "new", suite], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        raise Skip("no system of %s: %s" % (suite, done.stderr.strip()))
    root = done.stdout.strip()
    try:
        yield root
    finally:
        execute(CHROOT, "remove", root)


def inside(root, *command, **kwargs):
    """Output of a command in that system."""
    return execute(CHROOT, "in", root, *command, **kwargs)


def listing(root, *without):
    """All files and links below root, but those below the named folders."""
    found = set()
    for folder, folders, names in os.walk(root):
        relative = os.path.relpath(folder, root)
        folders[:] = [f for f in folders if os.path.normpath(os.path.join(relative, f)) not in without]
        found.update(os.path.normpath(os.path.join(relative, n)) for n in names)
        found.update(os.path.normpath(os.path.join(relative, n)) for n in folders if os.path.islink(os.path.join(folder, n)))
    return found


def no_leftover(before, after):
    check(not after - before, "left over: %s", sorted(after - before)[:20])
    check(not before - after, "removed, though it was there before: %s", sorted(before - after)[:20])


def version_of(text):
    """The first line of `memtrace-bpf version`."""
    check(text.startswith("memtrace-bpf "), "not a version: %s", text[:200])
    return text.splitlines()[0]


__all__ = ["Failure", "Skip", "check", "equal", "harness", "run", "scratch"]  # of the harness, for the tests

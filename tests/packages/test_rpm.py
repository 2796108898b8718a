#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""The .rpm in an empty root file system, which has no shell and no C library: installed, upgraded, used and removed."""
import os
import shutil

import packages
from packages import Skip, check, harness, run, scratch


def rpm(root, *args):
    return packages.execute("rpm", "--root", root, *args)


def test_empty_root():
    if not shutil.which("rpm"):
        raise Skip("no rpm")
    if not harness.IS_ROOT:
        raise Skip("needs root")
    root = scratch("rpm-root")
    os.makedirs(root)
    rpm(root, "--initdb")
    before = set(packages.listing(root))
    database = {os.path.dirname(f) for f in before}
    rpm(root, "-i", packages.older("rpm"))
    packages.version_of(packages.execute("chroot", root, "/usr/bin/memtrace-bpf", "version"))
    rpm(root, "-U", packages.package("*.rpm"))
    check(not os.path.exists(os.path.join(root, "usr/share/doc/memtrace-bpf/guide/gone.md")), "the upgrade left a file of the older version")
    packages.version_of(packages.execute("chroot", root, "/usr/bin/memtrace-bpf", "version"))
    rpm(root, "-V", "memtrace-bpf")
    check(os.path.exists(os.path.join(root, "usr/share/doc/memtrace-bpf/guide/README.md")), "no guide")
    rpm(root, "-e", "memtrace-bpf")
    left = {f for f in packages.listing(root) if os.path.dirname(f) not in database}
    packages.no_leftover(set(), left)


def test_needs_nothing():
    """The package asks for nothing but rpm's own features."""
    if not shutil.which("rpm"):
        raise Skip("no rpm")
    asks = [line for line in packages.execute("rpm", "-qp", "--requires", packages.package("*.rpm")).splitlines() if line.startswith(("/", "lib"))]
    check(not asks, "it needs %s", asks)


run(globals())

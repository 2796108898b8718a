#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""The source tarball builds without a network, a repository or anything that was downloaded before."""
import os
import shutil

import packages
from packages import Skip, check, harness, run, scratch


def test_builds_offline():
    if not harness.IS_ROOT or not shutil.which("unshare"):
        raise Skip("needs root and unshare")
    tarball = packages.package("memtrace-bpf-*.tar.xz")
    folder = scratch("source")
    os.makedirs(folder)
    packages.execute("tar", "-xf", tarball, "-C", folder)
    (name,) = os.listdir(folder)
    check(os.path.basename(tarball) == name + ".tar.xz", "the folder is named %s", name)
    tree = os.path.join(folder, name)
    # A user's environment, without make's and without the caches.
    kept = {k: v for k, v in os.environ.items() if k in ("PATH", "LANG", "TERM")}
    env = {**kept, "HOME": scratch("nobody"), "MEMTRACE_VENVS": scratch("nothing")}
    packages.execute("unshare", "-n", "make", "-C", tree, "-j2", seconds=900, env=env)
    said = packages.execute(os.path.join(tree, ".output", "memtrace-bpf"), "version")
    packages.version_of(said)
    with open(os.path.join(tree, "RELEASE"), encoding="utf-8") as f:
        commit = f.readline().strip().removeprefix("commit=")
    check(commit in said, "version does not name the commit %s: %s", commit, said)


run(globals())

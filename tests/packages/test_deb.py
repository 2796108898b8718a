#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""The .deb in fresh systems of each suite: installed, upgraded, used and removed with nothing left over."""
import os
import shutil
import subprocess

import packages
from packages import SUITES, Skip, check, inside, listing, run

CHANGING = ("var/lib/dpkg", "var/log", "var/cache", "tmp", "proc", "sys", "dev")  # of the system itself


def installs_upgrades_removes(suite):
    with packages.system(suite) as root:
        before = listing(root, *CHANGING)
        for path in (packages.older("deb"), packages.package("*.deb")):
            shutil.copy(path, os.path.join(root, "tmp"))
            inside(root, "dpkg", "-i", "/tmp/" + os.path.basename(path))
            packages.version_of(inside(root, "memtrace-bpf", "version"))
        check(not os.path.exists(os.path.join(root, "usr/share/doc/memtrace-bpf/guide/gone.md")), "the upgrade left a file of the older version")
        check(inside(root, "dpkg", "--verify", "memtrace-bpf") == "", "dpkg --verify finds differences")
        check("/usr/share/doc/memtrace-bpf" in inside(root, "memtrace-bpf", "help"), "help does not name the guide's folder")
        check(os.path.exists(os.path.join(root, "usr/lib/systemd/system/memtrace-bpf-serve.service")), "no unit")
        check(not [f for f in listing(os.path.join(root, "etc/systemd")) if "memtrace" in f], "a unit is enabled")
        wants = os.path.join(root, "etc/systemd/system/multi-user.target.wants")
        os.makedirs(wants, exist_ok=True)
        os.symlink("/usr/lib/systemd/system/memtrace-bpf-watch@.service", os.path.join(wants, "memtrace-bpf-watch@train.service"))
        inside(root, "memtrace-bpf", "check")
        inside(root, "dpkg", "-r", "memtrace-bpf")
        inside(root, "dpkg", "-P", "memtrace-bpf")
        packages.no_leftover(before, listing(root, *CHANGING))


for _suite in SUITES:
    globals()["test_" + _suite] = lambda suite=_suite: installs_upgrades_removes(suite)


def test_lintian():
    """lintian finds no error."""
    if not shutil.which("lintian"):
        raise Skip("no lintian")
    done = subprocess.run(["lintian", "--fail-on", "error", packages.package("*.deb")], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    check(done.returncode == 0, "%s", done.stdout)


run(globals())

#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Every block, byte, line, function and module of a target with a known answer: nothing is missing or extra."""
import os

from exact_rows import judge
from harness import check, finish, nightly, read_json, record, report, run, scratch, workload


def exact(role):
    folder = scratch("exact-" + role)
    os.mkdir(folder)
    recording, expected_file = os.path.join(folder, "exact.mtr"), os.path.join(folder, "expected.json")
    target = workload("exact.py", expected_file, folder, role=role, cwd=folder)
    target.wait_line("^ready", 120)
    recorder = record(target.popen.pid, recording)
    target.send()
    target.wait_line("^done", 60)
    finish(recorder)
    target.send()
    check(target.wait(30) == 0, "the target failed: %s", target.stderr()[-500:])

    wrong = judge(report(recording), read_json(expected_file))
    check(not wrong, "%s", "\n    ".join(wrong))


def test_torch_main():
    exact("main")


def test_torch_debian():
    exact("debian")


@nightly("versions")
def test_torch_newest():
    exact("newest")


@nightly("versions")
def test_torch_old():
    exact("old")


@nightly("versions")
def test_torch_oldest():
    exact("oldest")


if __name__ == "__main__":
    run(globals())

#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""The scenarios of tools/chaos.py, each a few times."""
import chaos
from harness import run


def test_exceptions():
    chaos.exceptions(20).verify()


def test_children():
    chaos.forks(10).verify()
    chaos.vforks(10).verify()
    chaos.spawns(10).verify()


def test_threads():
    chaos.threads(100).verify()


def test_reloads():
    chaos.reloads(10).verify()
    chaos.cuda_loads(5).verify()


def test_signals():
    chaos.signals(0.5).verify()


def test_seccomp():
    chaos.seccomp(2).verify()


def test_kills():
    chaos.kills(10).verify()


def test_crashes():
    chaos.crashes(4).verify()


def test_overload():
    chaos.overload(4).verify()


if __name__ == "__main__":
    run(globals())

#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# run: check
"""The faults of `make mutate` can still be planted: tests/mutate.py."""
import os
import sys

from harness import REPO, check, equal, run, scratch

sys.path.insert(0, os.path.join(REPO, "tests"))
import mutate  # noqa: E402


def test_every_fault_can_be_planted():
    names = [fault.name for fault in mutate.FAULTS]
    equal(len(set(names)), len(names), "names")
    for fault in mutate.FAULTS:
        without, with_it = mutate.planted(fault, REPO)
        check(with_it not in (without, ""), "%s changes nothing", fault.name)
        for file in fault.tests.split():
            check(os.path.exists(os.path.join(REPO, "tests", "e2e", file + ".py")), "%s: no tests/e2e/%s.py", fault.name, file)


def test_a_fault_that_cannot_be_planted():
    """Its text is not in the file any more, or twice."""
    top = scratch("tree")
    os.mkdir(top)
    fault = mutate.Fault("made-up", "", "a.c", "old", "new", "")
    for text, times in (("other", 0), ("old, old", 2)):
        mutate.write(top, "a.c", text)
        try:
            mutate.planted(fault, top)
        except mutate.Broken as e:
            check("made-up: a.c has its text %d times" % times in str(e), "the message: %s", e)
        else:
            check(False, "%r was planted in %r", fault.old, text)


if __name__ == "__main__":
    run(globals())

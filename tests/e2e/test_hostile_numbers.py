#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Recordings whose numbers are negative, huge or no numbers at all: every reader ends in order, and JSON stays valid."""
import json

import readers
from harness import check, equal, run, scratch, tool
from mtr_writer import Writer

NUMBERS = ("-1", "18446744073709551615", "99999999999999999999999", "4611686018427387904", "0x10", "", "nan")
FACTS = ("duration_ns", "pid", "parent", "rank", "world_size", "clock_zero_ns", "window_start_ns", "end_rss", "end_time", "host_rss", "lost", "device.0.total",
         "job_step", "counter.x")
COMMANDS = [["report"], ["report", "--format", "json"], ["report", "--together"], ["report", "--fail-if", "growth>1G/1step"], ["leaks"], ["compare"]]
EXPORTS = tuple(readers.SUFFIX)


def recording(name, number):
    """A device with allocations, and one with nothing but a block from before the first event: it has no curve."""
    path = scratch(name)
    w = Writer(path, {"comm": "python", "device.1.total": "1", **{key: number for key in FACTS}})
    thread, stack = w.thread(7, "MainThread"), w.stack("train.py", "main", 7)
    w.block(3, stack=stack, thread=thread)
    w.before(1 << 44, (1 << 63) + 512, device=1, stack=stack, thread=thread)
    w.close()
    return path


def test_no_number_ends_a_command():
    for i, number in enumerate(NUMBERS):
        path = recording("numbers%d.mtr" % i, number)
        for command in COMMANDS + [["export", x, "-f", "-o", scratch("out")] for x in EXPORTS]:
            code, _, err = tool(*command, path)
            check(0 <= code <= 4, "%s of the number '%s': exit code %s: %s", " ".join(command[:2]), number, code, err[-500:])


def test_numbers_are_bounded():
    for number, pid in (("-1", None), ("0x10", None), ("18446744073709551615", 1 << 62), ("12", 12)):
        code, out, err = tool("report", "--format", "json", recording("bounded.mtr", number))
        equal(code, 0, err)
        doc = json.loads(out)
        equal(doc["target"]["pid"], pid, "PID from the fact '%s'" % number)
        equal(doc["target"].get("rank"), pid, "rank from the fact '%s'" % number)
        equal(doc["capture"]["counters"].get("x"), pid, "counter from the fact '%s'" % number)


if __name__ == "__main__":
    run(globals())

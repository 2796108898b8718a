#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# run: check
"""A small recording cannot use all of this machine's memory: reading stops at a limit, with a message."""
import os

import mtr_reader
from harness import check, equal, nightly, run, scratch, tool
from mtr_writer import Writer

BLOCKS, EVENTS = 10, 100000  # in a block
MIB = 1 << 20
ENTRY = '{"file":"a.mtr","kind":"segment","from":0,"to":1,"events":1,"lost":0,"bytes":1,"devices":[]}'
READERS = (["report"], ["leaks"], ["export", "html", "-f", "-o", os.devnull], ["export", "csv", "-f", "-o", os.devnull], ["compare"], ["diff"], ["replay"])


def bomb(name, blocks, events, noise=False):
    """Maximally similar allocations, none of them freed."""
    path = scratch(name)
    if not os.path.exists(path):
        w = Writer(path)
        for _ in range(blocks):
            w.block(events, compress=True, noise=noise)
        w.close()
    return path


def limited(mib):
    return ("sh", "-c", 'ulimit -v %d; exec "$@"' % (mib * 1024), "sh")


def read(command, path, *options, prefix=()):
    files = [path, path] if command[0] in ("compare", "diff") else [path]
    return tool(*command, *options, *files, prefix=prefix, seconds=120)


def test_written_as_documented():
    """The recordings written by these tests are valid for the independent reader."""
    path = scratch("small.mtr")
    w = Writer(path, {"comm": "python"})
    w.block(3, stack=w.stack("a.py", "f", 7), thread=w.thread(1, "main"), compress=True)
    w.block(2)
    w.close()
    with open(path, "rb") as f:
        r = mtr_reader.Recording(f)
        events = list(r.events())
    equal((len(events), r.complete, {e["size"] for e in events}), (5, True, {512}), "events, complete, sizes")
    code, out, err = tool("report", "--at", "end", path)
    check(code == 0 and "a.py:7" in out, "report ended with %d: %s %s", code, out, err)


@nightly("long")
def test_stops_at_a_bound():
    path = bomb("similar.mtr", BLOCKS, EVENTS, noise=True)
    check(os.path.getsize(path) < 300000, "%d bytes are no small recording", os.path.getsize(path))
    for command in READERS:
        code, _, err = read(command, path, "--max-memory", "16M")
        equal(code, 1, "exit of %s: %s" % (command[0], err))
        check("this recording needs more memory than 16.00 MiB" in err, "%s says: %s", command[0], err)
    code, _, err = tool("report", "--max-memory", "many", path)
    check(code == 64 and "--max-memory" in err, "exit with a size that is none: %d, %s", code, err)
    # With enough memory it is read.
    code, out, err = tool("report", "--at", "end", "--max-memory", "1G", path, seconds=120)
    check(code == 0 and "%.2f MiB" % (BLOCKS * EVENTS * 512 / MIB) in out, "report ended with %d: %s %s", code, out[:400], err)


def test_stops_at_what_may_be_had():
    """If a process may have little memory, the limit is lower; the system never ends a reader."""
    path = bomb("similar.mtr", BLOCKS, EVENTS, noise=True)
    for command in READERS[:-1]:  # replay needs less
        code, _, err = read(command, path, prefix=limited(100))
        equal(code, 1, "exit of %s: %s" % (command[0], err))
        check("needs more memory than" in err, "%s says: %s", command[0], err)


def test_no_block_is_a_bomb():
    """A block compressed far more than real ones is not unpacked."""
    path = bomb("block.mtr", 16, 1000000)
    check(os.path.getsize(path) < 32000, "%d bytes are no small recording", os.path.getsize(path))
    for command in (["report"], ["export", "html", "-f", "-o", os.devnull]):
        code, _, err = read(command, path, prefix=limited(512))
        equal(code, 2, "exit of %s: %s" % (command[0], err))
        check("compressed more than any recording" in err, "%s says: %s", command[0], err)


def test_no_recording_is_a_bomb():
    """Many blocks, each below the size from which a block is judged: the recording as a whole is judged."""
    path = bomb("blocks.mtr", 300, 20000)
    check(os.path.getsize(path) < 100000, "%d bytes are no small recording", os.path.getsize(path))
    for command in READERS:
        code, out, err = read(command, path, prefix=limited(768))
        check("compressed more than any recording" in err, "%s says: %s", command[0], err)
        check("needs more memory" not in err, "%s: %s", command[0], err)


def test_no_index_is_a_bomb():
    """An index is read by element: its memory does not grow with its text."""
    for name, elements, why in (("empty", "{}," * 4000000 + "{}", "invalid entry"), ("nested", '{"a":[%s{}]}' % ("{}," * 4000000), "invalid entry"),
                                ("many", ",".join([ENTRY] * 70000), "too many recordings")):
        folder = scratch(name)
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, "index.json"), "w", encoding="ascii") as f:
            f.write('{"memtrace_folder":1,"recordings":[%s]}' % elements)
        code, _, err = tool("report", folder, prefix=limited(512), seconds=120)
        equal(code, 2, "exit of report: %s" % err)
        check(why in err, "report says: %s", err)


def test_no_totals_are_a_bomb():
    folder = scratch("totals")
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "index.json"), "w", encoding="ascii") as f:
        f.write('{"memtrace_folder":1,"recordings":[%s]}' % ENTRY)
    with open(os.path.join(folder, "totals.json"), "w", encoding="ascii") as f:
        f.write('{"memtrace_totals":1,"series":[%s{}]}' % ("{}," * 4000000))
    code, _, err = tool("report", "--max-memory", "256M", folder, prefix=limited(512), seconds=120)
    check(code == 2 and "needs more memory than 256.00 MiB" in err, "report ended with %d: %s", code, err)


if __name__ == "__main__":
    run(globals())

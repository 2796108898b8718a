#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Number of bytes in a process's code that differ from its files because of probes. Needs the right to read its memory; as a
program, for callers without that right: code_bytes.py PID NAME..., where a NAME is the prefix of a file name.

A capture of several processes has its probes in every process that maps the file as code, also in this one. Bytes that differ
here, too, are of such a capture, which may be anybody's: they do not count.
"""
import mmap
import os
import re
import sys

CHUNK = 1 << 20


class Code:
    """The code of some files in a process, for repeated comparisons: the files are read once."""

    def __init__(self, pid, names):
        self.mem = open("/proc/%d/mem" % pid, "rb", buffering=0)
        self.pieces = []  # address, bytes of the file, its path and their place in it
        with open("/proc/%d/maps" % pid, encoding="utf-8", errors="replace") as f:
            lines = f.readlines()
        for line in lines:
            m = re.match(r"([0-9a-f]+)-([0-9a-f]+) r-xp ([0-9a-f]+) \S+ \d+\s+(/.*)", line)
            if m and any(os.path.basename(m[4]).startswith(n) for n in names):
                self.add(int(m[1], 16), int(m[2], 16), int(m[3], 16), m[4])

    def add(self, start, end, offset, path):
        with open(path, "rb") as f:
            f.seek(offset)
            while start < end:
                data = f.read(min(CHUNK, end - start))
                if not data:
                    return
                self.pieces.append((start, data, path, offset))
                start += len(data)
                offset += len(data)

    def differing(self):
        total = 0
        for address, data, path, offset in self.pieces:
            self.mem.seek(address)
            now = self.mem.read(len(data))
            if now != data:
                here = mapped_here(path, offset, len(data))
                total += sum(x != y == z for x, y, z in zip(now, data, here))
        return total


def mapped_here(path, offset, length):
    """A piece of a file as it is in a process that maps it as code."""
    with open(path, "rb") as f, mmap.mmap(f.fileno(), length, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_EXEC, offset=offset) as code:
        return code[:]


def differing(pid, names):
    return Code(pid, names).differing()


if __name__ == "__main__":
    print(differing(int(sys.argv[1]), sys.argv[2:]))

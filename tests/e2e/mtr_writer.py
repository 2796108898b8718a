# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Writes .mtr recordings by docs/reference/mtr.md alone: facts, names, and allocations of one thread on one device that are
never freed. For recordings that memtrace-bpf would not write."""
import ctypes
import ctypes.util
import random
import struct

from harness import Skip
from mtr_reader import crc32c

CUDA = 1


def varint(n):
    out = bytearray()
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    return bytes([*out, n])


def zigzag(n):
    return varint(n << 1 if n >= 0 else -n * 2 - 1)


def text(s):
    return varint(len(s.encode())) + s.encode()


def zstd(data):
    name = ctypes.util.find_library("zstd")
    if not name:
        raise Skip("no zstd library")
    lib = ctypes.CDLL(name)
    lib.ZSTD_compressBound.restype = lib.ZSTD_compress.restype = ctypes.c_size_t
    lib.ZSTD_compressBound.argtypes = [ctypes.c_size_t]
    lib.ZSTD_compress.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int]
    out = ctypes.create_string_buffer(lib.ZSTD_compressBound(len(data)))
    n = lib.ZSTD_compress(out, len(out), data, len(data), 19)
    return out.raw[:n]


class Writer:
    """facts: a dict. stack(): adds a stack and returns its number. block(): adds n allocations of a size at that stack."""

    def __init__(self, path, facts=None):
        self.file = open(path, "wb")  # pylint: disable=consider-using-with
        self.events, self.address, self.numbers, self.names = 0, 1 << 40, {"string": 1, "location": 1, "module": 1, "stack": 1, "thread": 1}, {"": 0}
        self.file.write(struct.pack("<8sII", b"\x89MTR\r\n\x1a\n", 4, 0x01020304))
        facts = facts or {}
        self._put(1, varint(len(facts)) + b"".join(text(k) + text(v) for k, v in facts.items()))

    def _put(self, kind, payload, compress=False):
        stored = zstd(payload) if compress else payload
        head = struct.pack("<5I", kind, int(compress), len(stored), len(payload), crc32c(stored))
        self.file.write(head + struct.pack("<I", crc32c(head)) + stored)

    def _define(self, kind, number, entry):
        first = self.numbers[kind]
        self.numbers[kind] += 1
        self._put(2, varint(number) + varint(first) + varint(1) + entry)
        return first

    def string(self, s):
        if s not in self.names:
            self.names[s] = self._define("string", 1, text(s))
        return self.names[s]

    def stack(self, file, function, line, module="", cls=""):
        words = [self.string(s) for s in (file, function, module, cls)]
        location = self._define("location", 2, varint(words[0]) + varint(words[1]) + varint(line))
        entered = self._define("module", 3, varint(words[2]) + varint(words[3]) + varint(words[3])) if module else 0
        return self._define("stack", 4, varint(0) + varint(1) + varint(location) + varint(entered))

    def thread(self, tid, name):
        return self._define("thread", 5, varint(tid) + varint(self.string(name)))

    def block(self, n, size=512, stack=0, thread=0, compress=False, noise=False):
        """A block of n allocations at adjacent addresses. noise: their intervals differ by a bit, so that they compress as real ones can."""
        # Tags: alloc; the first one's thread and device; size by its number; address as a difference.
        alloc = 1 | 1 << 6 | 1 << 7
        times = bytes(b & 2 for b in random.Random(n).randbytes(n)) if noise else zigzag(1) * n
        columns = [varint(alloc | 3 << 3) + varint(alloc) * (n - 1), times, zigzag(self.address) + zigzag(size) * (n - 1),
                   varint(0) + varint(size) + varint(0) * (n - 1), varint(stack) * n, varint(thread) + varint(0) + bytes([CUDA, 0])]
        self.address += (n + 1) * size
        self._put(3, varint(self.events) + varint(n) + varint(self.events) + b"".join(varint(len(c)) for c in columns) + b"".join(columns), compress)
        self.events += n

    def before(self, address, size, device=0, stack=0, thread=0):
        """A block on a device of this number from before the first event, the only event of its events block."""
        tag = varint(7 | (10 - 7) << 3 | 0b1011 << 7)
        columns = [tag, zigzag(0), zigzag(address), varint(0) + varint(size), varint(stack), varint(thread) + varint(0) + bytes([CUDA, device])]
        self._put(3, varint(self.events) + varint(1) + varint(self.events) + b"".join(varint(len(c)) for c in columns) + b"".join(columns))
        self.events += 1

    def close(self):
        self._put(4, varint(self.events))
        self.file.close()

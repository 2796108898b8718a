# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Reads the Parquet files of `export parquet` by the format's rules (parquet-format, Thrift's compact protocol), without an engine.
Only what these files have: optional columns, zstd, plain numbers, texts by dictionary."""
import ctypes
import ctypes.util
import struct

from harness import Skip, check

BOOL, INT64, DOUBLE, BYTES = 0, 2, 5, 6


def unzstd(data, size):
    name = ctypes.util.find_library("zstd")
    if not name:
        raise Skip("no zstd library")
    lib = ctypes.CDLL(name)
    lib.ZSTD_decompress.restype = ctypes.c_size_t
    lib.ZSTD_decompress.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t]
    out = ctypes.create_string_buffer(size or 1)
    check(lib.ZSTD_decompress(out, size, data, len(data)) == size, "a page of another length")
    return out.raw[:size]


class Thrift:
    """A struct is {field: value}."""

    def __init__(self, data, at):
        self.data, self.at = data, at

    def varint(self):
        value = shift = 0
        while True:
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    def zigzag(self):
        n = self.varint()
        return n >> 1 ^ -(n & 1)

    def value(self, kind):
        if kind in (1, 2):
            return kind == 1
        if kind == 3:
            self.at += 1
            return self.data[self.at - 1]
        if kind in (4, 5, 6):
            return self.zigzag()
        if kind == 8:
            n = self.varint()
            self.at += n
            return self.data[self.at - n:self.at]
        if kind == 9:
            head = self.data[self.at]
            self.at += 1
            n = self.varint() if head >> 4 == 15 else head >> 4
            return [self.value(head & 15) for _ in range(n)]
        check(kind == 12, "a field of kind %d", kind)
        fields, number = {}, 0
        while self.data[self.at]:
            head = self.data[self.at]
            self.at += 1
            number = number + (head >> 4) if head >> 4 else self.zigzag()
            fields[number] = self.value(head & 15)
        self.at += 1
        return fields


def hybrid(data, at, width, n):
    """n numbers of `width` bits, in runs and bit-packed groups; and where they end."""
    out, t = [], Thrift(data, at)
    while len(out) < n:
        head = t.varint()
        size = (width + 7) // 8
        if head & 1:
            bits = int.from_bytes(data[t.at:t.at + (head >> 1) * width], "little")
            out += [bits >> i * width & (1 << width) - 1 for i in range((head >> 1) * 8)]
            t.at += (head >> 1) * width
        else:
            out += [int.from_bytes(data[t.at:t.at + size], "little")] * (head >> 1)
            t.at += size
    return out[:n]


def plain(kind, page, at, n):
    if kind == BOOL:
        return [bool(page[at + i // 8] >> i % 8 & 1) for i in range(n)]
    if kind in (INT64, DOUBLE):
        return list(struct.unpack_from("<%d%s" % (n, "q" if kind == INT64 else "d"), page, at))
    check(kind == BYTES, "a column of type %d", kind)
    out = []
    for _ in range(n):
        length, = struct.unpack_from("<I", page, at)
        out.append(page[at + 4:at + 4 + length].decode("utf-8"))
        at += 4 + length
    return out


def page(data, at):
    t = Thrift(data, at)
    head = t.value(12)
    return head, unzstd(data[t.at:t.at + head[3]], head[2]), t.at + head[3]


def column(data, meta):
    kind, texts, at = meta[1], None, meta.get(11, meta[9])
    if 11 in meta:
        head, body, at = page(data, at)
        texts = plain(kind, body, 0, head[7][1])
    head, body, _ = page(data, at)
    rows, = struct.unpack_from("<I", body, 0)
    present = hybrid(body, 4, 1, head[5][1])
    at, n = 4 + rows, sum(present)
    if texts is None:
        values = plain(kind, body, at, n)
    else:
        values = [texts[i] for i in (hybrid(body, at + 1, body[at], n) if body[at] else [0] * n)]
    values = iter(values)
    return [next(values) if p else None for p in present]


def read(path):
    """The rows, each a dict."""
    with open(path, "rb") as f:
        data = f.read()
    check(data[:4] == data[-4:] == b"PAR1", "%s: no Parquet", path)
    size, = struct.unpack("<I", data[-8:-4])
    meta, rows = Thrift(data, len(data) - 8 - size).value(12), []
    names = [s[4].decode() for s in meta[2][1:]]
    for group in meta[4]:
        columns = [column(data, c[3]) for c in group[1]]
        check({len(c) for c in columns} == {group[3]}, "%s: columns of other lengths", path)
        rows += [dict(zip(names, values)) for values in zip(*columns)]
    check(len(rows) == meta[3], "%s: rows", path)
    return rows

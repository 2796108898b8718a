#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
Reads a .mtr recording by docs/reference/mtr.md alone, as an independent check of memtrace-bpf's writer.

As a program: prints one event per line, facts as "# key value" at the end. Exit status 0 if the recording is complete, 1 if it
is cut off or damaged, 77 if there is no zstd library.
"""
import collections
import ctypes
import ctypes.util
import struct
import sys

KINDS = (None, "alloc", "free", "oom", "step", "call", "lost", "take", "give", "segment", "block", "state", "asked", "used",
         "tensor", "census", "enter", "leave", "mark", "left", "host", "scope")
ALLOC, FREE, OOM, STEP, CALL, LOST, TAKE, GIVE, SEGMENT, BLOCK, STATE, ASKED, USED, TENSOR, CENSUS, ENTER, LEAVE, MARK, LEFT, HOST, SCOPE = range(1, 22)
READINGS = {SEGMENT, BLOCK, STATE, USED, TENSOR, CENSUS, LEFT, HOST}  # what is there; the others happen
LAST_KIND = {1: LOST, 2: USED, 3: LEAVE, 4: MARK, 5: LEFT, 6: HOST, 7: SCOPE}  # by version
MASK = (1 << 64) - 1


CRC_TABLE = list(range(256))
for _ in range(8):
    CRC_TABLE = [c >> 1 ^ (0x82F63B78 if c & 1 else 0) for c in CRC_TABLE]


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ CRC_TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def unzstd(data, raw):
    name = ctypes.util.find_library("zstd")
    if not name:
        print("no zstd library", file=sys.stderr)
        sys.exit(77)
    lib = ctypes.CDLL(name)
    lib.ZSTD_decompress.restype = ctypes.c_size_t
    lib.ZSTD_decompress.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t]
    out = ctypes.create_string_buffer(raw + 1)
    if lib.ZSTD_decompress(out, raw, data, len(data)) != raw:
        raise ValueError("zstd")
    return out.raw[:raw]


class Cursor:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, n):
        if n > len(self.data) - self.at:
            raise ValueError("a payload is too short")
        self.at += n
        return self.data[self.at - n:self.at]

    def varint(self):
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def zigzag(self):
        v = self.varint()
        return v >> 1 ^ -(v & 1)

    def text(self):
        return self.take(self.varint()).decode()


Last = collections.namedtuple("Last", "addr size requested how flags stream pool name module")


class Device:
    def __init__(self, kind, index):
        self.type, self.index, self.totals, self.allocated, self.reserved = kind, index, 0, 0, 0
        self.last = [Last(0, 0, 0, 0, 0, 0, (0, 0), 0, 0)] * len(KINDS)  # by kind


class Recording:
    """facts, and strings, locations, modules, stacks, threads, nodes by number; all grow while events() goes on."""

    def __init__(self, stream):
        self.stream, self.count, self.complete, self.facts = stream, 0, False, {}
        self.strings, self.locations, self.modules = [""], [(0, 0, 0)], [(0, 0, 0)]
        self.stacks, self.threads, self.nodes = [(0, [])], [(0, 0)], [(0, 0, 0, 0)]
        magic, self.version, order = struct.unpack("<8sII", stream.read(16))
        if magic != b"\x89MTR\r\n\x1a\n" or self.version not in LAST_KIND or order != 0x01020304:
            raise ValueError("not a recording that this reader knows")

    def events(self):
        while not self.complete:
            header = self.stream.read(24)
            if len(header) < 24:
                return
            kind, flags, stored, raw, payload_crc, header_crc = struct.unpack("<6I", header)
            payload = self.stream.read(stored)
            if len(payload) < stored:
                return
            if crc32c(header[:20]) != header_crc or crc32c(payload) != payload_crc:
                raise ValueError("checksum")
            cursor = Cursor(unzstd(payload, raw) if flags & 1 else payload)
            if kind == 1:
                for _ in range(cursor.varint()):
                    key = cursor.text()
                    self.facts[key] = cursor.text()
            elif kind == 2:
                while cursor.at < len(cursor.data):
                    self.section(cursor)
            elif kind == 3:
                yield from self.block(cursor)
            elif kind == 4:
                self.complete = cursor.varint() == self.count

    def section(self, c):
        kind, first, count = c.varint(), c.varint(), c.varint()
        table = (self.strings, self.locations, self.modules, self.stacks, self.threads, self.nodes)[kind - 1]
        if first != len(table):
            raise ValueError("a dictionary entry is missing")
        for _ in range(count):
            if kind == 1:
                table.append(c.text())
            elif kind == 4:
                walk = c.varint()
                table.append((walk, [(c.varint(), c.varint()) for _ in range(c.varint())]))
            else:
                table.append(tuple(c.varint() for _ in range({5: 2, 6: 4}.get(kind, 3))))

    def block(self, head):
        first, count, time = head.varint(), head.varint(), head.varint()
        lengths = [head.varint() for _ in range(6)]
        tags, times, addrs, sizes, stacks, rest = (Cursor(head.take(n)) for n in lengths)
        thread = device = addr_stored = walk0 = node0 = 0
        devices, touched, known_sizes, called = [], [], [], {ENTER: 0, LEAVE: 0}
        if first != self.count:
            raise ValueError("a block of events is missing")

        def size_or(bit, predicted):
            if not fields & bit:
                return predicted
            number = sizes.varint()
            if number == len(known_sizes):
                known_sizes.append(sizes.varint())
            return known_sizes[number]

        for _ in range(count):
            tag = tags.varint()
            kind, fields = tag & 7, tag >> 3
            if kind == 0:
                kind = ASKED
            elif kind == 7:
                kind, fields = 7 + (fields & 15), fields >> 4
            if kind > LAST_KIND[self.version]:
                raise ValueError("kind")
            addr = size = stack = walk = module = requested = node = name = category = 0
            time = (time + times.zigzag()) & MASK
            if fields & 1:
                thread = rest.varint()
            if fields & 2:
                device = rest.varint()
                if device == len(devices):
                    devices.append(Device(*rest.take(2)))
            d = devices[device]
            last = d.last[kind]
            if kind in (ALLOC, FREE):
                if fields & 16:
                    addr = addr_stored = (addr_stored + addrs.zigzag()) & MASK
                    before = (addr, 0, 0)
                else:
                    before = touched[-1 - addrs.varint()]
                    addr = before[0]
                size = size_or(8, before[1])
                remembered = size or before[1]
                touched.append((addr, remembered, before[2] if remembered == before[1] else 0))
            elif kind in (TAKE, GIVE, SEGMENT, BLOCK, TENSOR, HOST):
                addr = (last.addr + last.size + addrs.zigzag()) & MASK
                size = size_or(8, last.size)
                if kind == BLOCK:
                    requested = size if last.requested else 0
                    if fields & 128:
                        requested = (size - sizes.zigzag()) & MASK
                    touched.append((addr, size, requested))
            elif kind == ASKED:
                place = -1 - (addrs.varint() if fields & 16 else 0)
                if fields & 16 and place == -1:
                    addr = addr_stored = (addr_stored + addrs.zigzag()) & MASK
                    of, place = (addr, 0, 0), None
                else:
                    of = touched[place]
                    addr = of[0]
                requested = (of[1] - sizes.zigzag()) & MASK if fields & 8 else of[2] or of[1]
                if place is not None and requested:
                    touched[place] = (*of[:2], requested)
            elif kind in (OOM, LOST):
                size = size_or(8, 0)
            elif kind in (USED, CENSUS, LEFT):
                size = size_or(8, last.size)
            if kind in (ALLOC, OOM, STEP, CALL, TAKE, BLOCK):
                stack = stacks.varint()
                walk = rest.varint() if fields & 32 else self.stacks[stack][0] if stack else walk0
                walk0 = walk0 if stack else walk
            totals = False
            if kind <= LOST or kind == STATE:
                allocated = d.allocated + (size if kind == ALLOC else -size if kind == FREE else 0)
                reserved = d.reserved
                if fields & 4:
                    d.totals = rest.varint()
                    if d.totals:
                        allocated += rest.zigzag()
                        reserved += rest.zigzag()
                totals = d.totals
                if totals:
                    d.allocated, d.reserved = allocated & MASK, reserved & MASK
            if kind == CALL:
                module = rest.varint()
            how, flags = (rest.varint(), rest.varint()) if fields & 64 else (last.how, last.flags)
            stream = rest.varint() if fields & 256 else last.stream
            pool = (rest.varint(), rest.varint()) if fields & 512 else last.pool
            if fields & 1024:
                node = node0 = node0 + rest.zigzag()
            if kind == TENSOR:
                name, module, category = last.name + rest.zigzag(), last.module + rest.zigzag(), rest.varint()
            elif kind in (ENTER, LEAVE):
                module = called[kind] = called[kind] + rest.zigzag()
            elif kind == MARK:
                name = rest.varint()
            elif kind == SCOPE:
                name, addr, size = rest.varint(), rest.varint(), rest.varint()
            d.last[kind] = Last(addr, size, requested, how, flags, stream, pool, name, module)
            self.count += 1
            kind_of, index = (0, 0) if kind in (ENTER, LEAVE, MARK, SCOPE) else (d.type, d.index)
            yield {"kind": kind, "walk": walk, "totals": int(totals), "type": kind_of, "index": index, "thread": thread,
                   "stack": stack, "module": module, "time": time, "addr": addr, "size": size,
                   "allocated": d.allocated if totals else 0, "reserved": d.reserved if totals else 0,
                   "how": how, "flags": flags, "requested": requested, "stream": stream,
                   "node": node, "name": name, "category": category, "pool": pool}


def main():
    with open(sys.argv[1], "rb") as stream:
        recording = Recording(stream)
        for event in recording.events():
            print(KINDS[event["kind"]], *list(event.values())[1:-1], *event["pool"])
    for key, value in recording.facts.items():
        print("#", key, value)
    return 0 if recording.complete else 1


if __name__ == "__main__":
    sys.exit(main())

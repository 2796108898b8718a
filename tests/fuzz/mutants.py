#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
Recordings that are wrong inside, with valid checksums, through all readers of recordings.

    tests/fuzz/mutants.py PROGRAM COUNT [SEED]

Half of them are changes of the recordings in tests/data/recordings, half are made here after docs/reference/mtr.md, with any value in
any field. PROGRAM is a memtrace-bpf built with sanitizers. Each mutant goes through some commands. They must end in order, and print
valid UTF-8 without control characters and valid JSON. Findings go to OUTPUT/fuzz/mutants/. Exit status 1: something was found.
"""
import ctypes
import ctypes.util
import glob
import json
import os
import random
import re
import resource
import shutil
import struct
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
REPO = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(REPO, "tests", "e2e"))
import readers  # noqa: E402
from mtr_reader import crc32c  # noqa: E402
from mtr_writer import text, varint  # noqa: E402

TOP = (1 << 64) - 1
EDGES = (0, 1, 127, 128, 511, 512, 1 << 20, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 40, 1 << 53, (1 << 62) + 1, (1 << 63) - 1, 1 << 63, TOP - 511, TOP)
NAMES = ("", "train.py", "a/b.py", "main", "layers.0", "layers.18446744073709551616", "a;b", "\x1b[2J", "\r\n", "\u202eabc", "=1+1", "</script>", "%n%s", "x" * 4000,
         "é" * 900, "torch/optim/adamw.py", "detail: all", "..", "cuda:0", "host")
FACTS = ("pid", "parent", "rank", "local_rank", "world_size", "comm", "cmdline", "cwd", "torch", "allocator", "alloc_conf", "device.0.name", "device.0.total",
         "duration_ns", "lost", "dropped_events", "counter.x", "host", "host_rss", "cost.limit", "cost.changes", "clock_zero_ns", "clock_offset_ns",
         "clock_offset_error_ns", "window_start_ns", "window_first_step", "job_step", "end_reason", "end_signal", "end_time", "end_rss", "end_process.1",
         "oom_cgroup_limit", "oom_badness", "ancestors", "process_started", "start", "stdlib", "census", "segment", "attached_at", "container", "pod")
VALUES = ("", "-1", "0", "7", "18446744073709551615", "99999999999999999999", "nan", "1e308", "[", '["python","t.py"]', "2.11.0", "cuda", "native", "signal", "oom killer",
          "1:2:3:4", "2026-01-01T00:00:00Z", "x" * 70000, "\x1b]0;x\x07", "\u202e")
ALLOC, ASKED, ENTER, LEAVE, MARK, TENSOR, HOST, KINDS = 1, 12, 16, 17, 18, 14, 20, 21
WHENS = ([], ["--at", "end"], ["--at", "peak"], ["--at", "oom"], ["--at", "0"], ["--at", "1e9"])
EXPORTS = tuple(readers.SUFFIX)
ACTS = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def block(kind, payload):
    head = struct.pack("<5I", kind, 0, len(payload), len(payload), crc32c(payload))
    return head + struct.pack("<I", crc32c(head)) + payload


def zigzag(n):
    n &= TOP
    return varint((n << 1 & TOP) ^ (TOP if n >> 63 else 0))


# ---- changes of real recordings ----

def unzip(data, size):
    lib = ctypes.CDLL(ctypes.util.find_library("zstd"))
    lib.ZSTD_decompress.restype = ctypes.c_size_t
    lib.ZSTD_decompress.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t]
    out = ctypes.create_string_buffer(size + 1)
    return out.raw[:lib.ZSTD_decompress(out, size, data, len(data))]


def blocks_of(path):
    """The file's header, and kind and payload of each block."""
    with open(path, "rb") as f:
        data = f.read()
    at, found = 16, []
    while at + 24 <= len(data):
        kind, flags, stored, raw = struct.unpack_from("<4I", data, at)
        payload = data[at + 24:at + 24 + stored]
        found.append((kind, unzip(payload, raw) if flags & 1 else payload))
        at += 24 + stored
    return data[:16], found


def changed(rng, payload):
    p = bytearray(payload)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        if not p:
            break
        i = rng.randrange(len(p))
        end = i
        while end < len(p) - 1 and p[end] & 128:
            end += 1
        how = rng.randrange(6)
        if how == 0:
            p[i] ^= 1 << rng.randrange(8)
        elif how == 1:
            p[i:end + 1] = varint(rng.choice(EDGES))
        elif how == 2:
            del p[i:i + rng.choice((1, 2, 16))]
        elif how == 3:
            p[i:i] = p[rng.randrange(len(p)):][:rng.choice((1, 4, 32))]
        elif how == 4:
            p[i:i] = rng.randbytes(rng.choice((1, 2, 8)))
        else:
            value = sum((b & 127) << 7 * k for k, b in enumerate(p[i:end + 1]))
            p[i:end + 1] = varint(value + rng.choice((1, 2, 512)) & TOP)
    return bytes(p)


def from_seed(rng, seeds):
    head, found = rng.choice(seeds)
    found = list(found)
    for _ in range(rng.choice((1, 1, 2))):
        i = rng.randrange(len(found))
        how = rng.randrange(12)
        if how == 0:
            found.insert(i, rng.choice(found))
        elif how == 1 and len(found) > 1:
            del found[i]
        elif how == 2:
            rng.shuffle(found)
        else:
            found[i] = (found[i][0], changed(rng, found[i][1]))
    return head + b"".join(block(*b) for b in found)


# ---- made here ----

class Made:
    """A recording with any value in any field. Each event stores all of its fields."""

    def __init__(self, rng):
        self.rng, self.columns, self.n = rng, [bytearray() for _ in range(6)], 0
        self.time, self.stored, self.sizes, self.devices = 0, 0, {}, []
        self.last, self.names, self.modules, self.totals, self.node, self.called = {}, {}, {}, {}, 0, {ENTER: 0, LEAVE: 0}

    def number(self, usual=0):
        rng = self.rng
        return rng.choice(EDGES) if rng.random() < 0.1 else usual + 512 * rng.randrange(1, 4096) & TOP

    def dictionary(self):
        rng = self.rng
        names = [n for n in rng.sample(NAMES, rng.randrange(3, len(NAMES))) if n]
        self.counts = {"strings": len(names) + 1, "stacks": 4, "threads": 3, "modules": 3, "nodes": 3}
        any_name = lambda: varint(rng.randrange(len(names) + 1))  # noqa: E731
        sections = [(1, [text(n) for n in names]),
                    (2, [any_name() + any_name() + varint(7 + i) for i in range(5)]),
                    (3, [any_name() + varint(i + 1) + any_name() for i in range(2)]),
                    (4, [varint(0) + varint(i + 1) + b"".join(varint(rng.randrange(6)) + varint(rng.randrange(3)) for _ in range(i + 1)) for i in range(3)]),
                    (5, [varint(i + 1) + any_name() for i in range(2)]),
                    (6, [varint(1 + i) + varint(rng.randrange(4)) + any_name() + varint(rng.randrange(3)) for i in range(2)])]
        return b"".join(varint(kind) + varint(1) + varint(len(entries)) + b"".join(entries) for kind, entries in sections)

    def put_size(self, size):
        new = size not in self.sizes
        self.columns[3] += varint(self.sizes.setdefault(size, len(self.sizes))) + (varint(size) if new else b"")

    def event(self):
        rng, (tag, time, addr, size, stack, rest) = self.rng, self.columns
        kind = rng.choice((1, 1, 1, 1, 2, 2, 2, *range(3, KINDS)))
        device = rng.choice(((1, 0), (1, 1), (0, 0), (30, 0)))
        now = self.time + rng.choice((0, 1, 1000, 10**6, 10**9)) if rng.random() > 0.01 else rng.choice(EDGES)
        time += zigzag(now - self.time) if self.n else zigzag(0)
        self.time = now & TOP if self.n else self.time
        fields, of_call = 1, kind in (ENTER, LEAVE, MARK)
        rest += varint(rng.randrange(self.counts["threads"]))
        if not of_call or not self.n:
            fields |= 2
            number = self.devices.index(device) if device in self.devices else len(self.devices)
            rest += varint(number) + (bytes(device) if number == len(self.devices) else b"")
            self.devices += [device] if number == len(self.devices) else []
            self.device = device
        device = self.device
        where, bytes_ = self.number(0x7f0000000000), self.number() if kind != 6 else rng.choice((0, 5))
        last = self.last.get((kind, device), 0)
        if kind in (1, 2):
            fields |= 16
            addr += zigzag(where - self.stored)
            self.stored = where
        elif kind == ASKED:
            fields |= 16 | 8
            addr += varint(0) + zigzag(where - self.stored)
            self.stored = where
            size += zigzag(-self.number())
        elif kind in (7, 8, 9, 10, TENSOR, HOST):
            addr += zigzag(where - last)
        if kind in (1, 2, 3, 6, 7, 8, 9, 10, 13, 19, TENSOR, 15, HOST):
            fields |= 8
            self.put_size(bytes_)
            self.last[kind, device] = where + bytes_ & TOP
        if kind == 10:
            fields |= 128
            size += zigzag(rng.choice((0, 12, TOP)))
        if kind in (1, 3, 4, 5, 7, 10):
            fields |= 32
            stack += varint(rng.randrange(self.counts["stacks"]))
            rest += varint(rng.randrange(10))
        if kind <= 6 or kind == 11:
            fields |= 4
            rest += varint(1) + zigzag(rng.choice((0, 512, self.number()))) + zigzag(rng.choice((0, 0, 2 << 20, self.number()))) if rng.random() < 0.8 else varint(0)
        if kind == 5:
            rest += varint(rng.randrange(3))
        if kind in (1, 2, 7, 8, 9, 10, 11, TENSOR, 15, HOST):
            fields |= 64
            rest += varint(rng.randrange(28) if kind == HOST else rng.choice((0, 0, 1, 4, 6, 7, 8))) + varint(rng.choice((0, 0, 1, 2, 16, 32, 48, 64, 128, 255)))
        if kind in (9, 10, ASKED):
            fields |= 256
            rest += varint(rng.choice((0, 1, TOP)))
        if kind == 9:
            fields |= 512
            rest += varint(rng.choice((0, 1, TOP))) + varint(rng.choice((0, TOP)))
        if kind in (1, 3, 10, ENTER) and rng.random() < 0.3:
            fields |= 1024
            node = rng.randrange(1, self.counts["nodes"])
            rest += zigzag(node - self.node)
            self.node = node
        if kind == TENSOR:
            name, module = rng.randrange(self.counts["strings"]), rng.randrange(3)
            rest += zigzag(name - self.names.get(device, 0)) + zigzag(module - self.modules.get(device, 0)) + varint(rng.randrange(9))
            self.names[device], self.modules[device] = name, module
        if kind in (ENTER, LEAVE):
            module = rng.randrange(3)
            rest += zigzag(module - self.called[kind])
            self.called[kind] = module
        if kind == MARK:
            rest += varint(rng.randrange(self.counts["strings"]))
        tag += varint(kind | fields << 3 if kind < 7 else fields << 3 if kind == ASKED else 7 | kind - 7 << 3 | fields << 7)
        self.n += 1

    def file(self):
        rng = self.rng
        facts = {k: rng.choice(VALUES) for k in rng.sample(FACTS, rng.randrange(len(FACTS)))}
        facts.setdefault("pid", "7")
        out = [b"\x89MTR\r\n\x1a\n" + struct.pack("<II", 6, 0x01020304),
               block(1, varint(len(facts)) + b"".join(text(k) + text(v) for k, v in facts.items())), block(2, self.dictionary())]
        for _ in range(rng.choice((1, 20, 200, 600))):
            self.event()
        payload = varint(0) + varint(self.n) + varint(0) + b"".join(varint(len(c)) for c in self.columns) + b"".join(self.columns)
        return b"".join(out) + block(3, payload) + block(4, varint(self.n))


# ---- commands ----

def commands(rng, a, b, out):
    at = rng.choice(WHENS)
    return [["report", a, *at], ["report", "--by", rng.choice("line stack module layer phase category thread segment module,category".split()), a, *at],
            ["report", "--format", "json", a, *at], ["report", "--advice", a], ["report", "--tree", a], ["report", "--format", "csv", a],
            ["report", "--together", a, b], ["report", "--together", "--format", "json", a, b], ["report", "--side-by-side", a, b], ["report", "--device", "host", a],
            ["report", "--fail-if", rng.choice(("peak>1G", "growth>1M/10steps", "leaks>0", "fragmentation>10%")), a], ["leaks", a],
            ["leaks", "--format", "json", a], ["leaks", "--steps", a], ["diff", a, b], ["diff", "--format", "json", a, b], ["compare", a, b],
            ["compare", "--format", "json", a, b], ["export", "parquet", "-f", a, "-o", out + ".tables/"]] + \
           [["export", x, "-f", "-o", out, a] for x in EXPORTS]


def acts(raw):
    try:
        found = ACTS.search(raw.decode("utf-8"))
    except UnicodeDecodeError as e:
        return "no UTF-8: %s" % e
    return "a control character: %r" % found.group() if found else None


def no_twins(pairs):
    if len(dict(pairs)) != len(pairs):
        raise ValueError("a key twice")
    return dict(pairs)


def no_constant(word):
    raise ValueError("the constant " + word)


def limits():
    resource.setrlimit(resource.RLIMIT_CPU, (60, 65))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def flaw_of(argv, done):
    """What is wrong with a command's end; None: nothing."""
    if not 0 <= done.returncode <= 4 and done.returncode != 64:
        return "exit status %d" % done.returncode
    if b"AddressSanitizer" in done.stderr or b"runtime error" in done.stderr:
        return "a sanitizer's message"
    flaw = acts(done.stderr) or acts(done.stdout)
    if not flaw and "json" in argv and done.returncode in (0, 4):
        try:
            json.loads(done.stdout, object_pairs_hook=no_twins, parse_constant=no_constant)
        except ValueError as e:
            flaw = "no valid JSON: %s" % e
    return flaw


def main():
    program, count = sys.argv[1], int(sys.argv[2])
    rng = random.Random(int(sys.argv[3]) if len(sys.argv) > 3 else 1)
    folder = os.path.join(os.environ.get("OUTPUT", ".output"), "fuzz", "mutants")
    os.makedirs(folder, exist_ok=True)
    seeds = [blocks_of(p) for p in sorted(glob.glob(os.path.join(REPO, "tests", "data", "recordings", "*.mtr")))]
    env = dict(os.environ, ASAN_OPTIONS="detect_leaks=0:exitcode=99:hard_rss_limit_mb=3500", UBSAN_OPTIONS="print_stacktrace=1:exitcode=98")
    a, b, out = (os.path.join(folder, n) for n in ("a.mtr", "b.mtr", "out"))
    findings = runs = 0
    for i in range(count):
        data = from_seed(rng, seeds) if rng.random() < 0.5 else Made(rng).file()
        if not i or rng.random() < 0.3:
            with open(b, "wb") as f:
                f.write(data)
        with open(a, "wb") as f:
            f.write(data)
        for argv in rng.sample(commands(rng, a, b, out), 4):
            runs += 1
            shutil.rmtree(out + ".tables", ignore_errors=True)
            done = subprocess.run([program, *argv], env=env, capture_output=True, stdin=subprocess.DEVNULL, preexec_fn=limits, check=False)
            flaw = flaw_of(argv, done)
            if flaw:
                findings += 1
                kept = os.path.join(folder, "found-%d" % findings)
                shutil.copy(a, kept + ".a.mtr")
                shutil.copy(b, kept + ".b.mtr")
                with open(kept + ".txt", "wb") as f:
                    f.write(("%s\n%s\n" % (flaw, argv)).encode() + done.stderr[-4000:])
                print("FOUND %s: %s" % (flaw, " ".join(argv)), flush=True)
        if i % 100 == 99:
            print("%d mutants, %d commands, %d findings" % (i + 1, runs, findings), flush=True)
    print("%d mutants, %d commands, %d findings" % (count, runs, findings))
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())

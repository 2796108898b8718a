#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# run: alone cpu=100
"""Rare cases that need an otherwise idle machine: absent pages, a small ring, the last milliseconds, an import during the
capture. test_reuse.py has others."""
import contextlib
import ctypes
import json
import os
import re
import shutil
import struct
import subprocess
import threading

import exact_rows
import harness
import mtr_reader
from hard import Content, exactly, interrupted
from harness import (ATTACHED, IS_ROOT, OUT, TOOL, Failure, Skip, check, device, equal, finish, nightly, record, report, run,
                     scratch, spawn, sudo, tool, workload)

OK, TRUNCATED, FAULT_THREAD, FAULT_FRAME, FAULT_SELF = 0, 4, 5, 6, 7
MAX_STACK = 48  # bytes: a function with 64 bytes or more may get a per-CPU stack


# ---- absent pages -----------------------------------------------------------------------------------------

SYS_PROCESS_MADVISE = 440
MADV_PAGEOUT = 21


@contextlib.contextmanager
def swap(mebibytes):
    """Swap space."""
    if not IS_ROOT:
        raise Skip("needs root, to make a swap file")
    path = scratch("swap")
    on = False

    def off():
        subprocess.run(["swapoff", path], check=False, capture_output=True)

    harness.undo_on_signal.append(off)
    try:
        with open(path, "wb") as f:
            os.posix_fallocate(f.fileno(), 0, mebibytes << 20)
        os.chmod(path, 0o600)
        for command in (["mkswap", path], ["swapon", path]):
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                raise Skip("%s: %s" % (command[0], done.stderr.strip()))
        on = True
        yield
    finally:
        if on:
            off()
        harness.undo_on_signal.remove(off)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)


class Iovec(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]


class PageOut(threading.Thread):
    """Pages out a process's anonymous memory repeatedly until stopped."""

    def __init__(self, pid, every):
        super().__init__(daemon=True)
        self.pid, self.every = pid, every
        self.pidfd = os.pidfd_open(pid)
        self.end = threading.Event()
        self.advised = 0
        self.libc = ctypes.CDLL(None, use_errno=True)

    def once(self):
        with open("/proc/%d/maps" % self.pid) as f:
            lines = f.readlines()
        for line in lines:
            m = re.match(r"([0-9a-f]+)-([0-9a-f]+) rw\S+ \S+ \S+ 0\s*(\[heap\]|\[stack\]|\[anon.*\]|)\n", line)
            if not m:
                continue
            start, end = int(m[1], 16), int(m[2], 16)
            n = self.libc.syscall(SYS_PROCESS_MADVISE, self.pidfd, ctypes.byref(Iovec(start, end - start)), 1, MADV_PAGEOUT, 0)
            self.advised += max(n, 0)

    def run(self):
        while not self.end.wait(self.every):
            with contextlib.suppress(OSError):
                self.once()

    def stop(self):
        self.end.set()
        self.join()
        os.close(self.pidfd)


def until_faults(path, later):
    """Waits until a walk has met an absent page, a second passed in the recording, and so many allocations came after that. Without
    such a walk, it gives up after 300,000 allocations."""
    seen = []

    def look(doc):
        counters, allocs = doc["capture"]["counters"], device(doc)["allocs"]
        faults = counters.get("walks.fault_frame", 0) + counters.get("walks.fault_thread", 0)
        if not seen and (faults or allocs > 300000):
            seen.append(doc["capture"]["duration"] + 1)
        if len(seen) == 1 and doc["capture"]["duration"] > seen[0]:
            seen.append(allocs + later)
        return len(seen) == 2 and allocs > seen[1]

    harness.until_recorded(path, look, "allocations after a walk that met an absent page")


def under_pressure(role, threads):
    """Whether a walk meets an absent page is random: three tries."""
    if not any(pressed(role, threads) for _ in range(3)):
        raise Failure("no walk met a page that was not there")


def pressed(role, threads):
    """True if walks met absent pages; then checks their results and those of later walks."""
    target = workload("cold_frames.py", "--seconds", "60", "--rate", "30000", "--threads", str(threads), role=role)
    target.wait_line("^ready", 120)
    path = scratch("cold-%s-%d.mtr" % (role, threads))
    recorder = record(target.popen.pid, path)
    target.send()
    harness.settle(recorder)
    pressure = PageOut(target.popen.pid, 0.05)
    pressure.start()
    until_faults(path, 60000)
    target.send()
    truth = json.loads(target.wait_line("^{", 60))
    pressure.stop()
    finish(recorder)
    check(pressure.advised, "no page was taken out of memory")

    content = Content(path)
    exactly(content, truth)
    faulted = [e["time"] for e in content.events if e["kind"] == mtr_reader.ALLOC and e["walk"] in (FAULT_FRAME, FAULT_THREAD)]
    if not faulted:
        return False
    check(content.fact("counter.walks.fault_frame") + content.fact("counter.walks.fault_thread") > 0, "faults are not counted")
    equal(content.fact("sleepable"), 1, "the sleepable programs have taken over")
    check(content.fact("counter.faults_retried") > 0, "no page was brought in by a walk")
    # A busy recorder may take more than a second to take over.
    allocs = [e for e in content.events if e["kind"] == mtr_reader.ALLOC]
    last = max(i for i, e in enumerate(allocs) if e["walk"] != OK)
    late = allocs[last + 1:]
    check(len(late) > 10000, "only %d of %d walks after the last one that was not whole, %s", len(late), len(allocs), allocs[last]["walk"])
    for e in late[::97]:
        frames = content.frames(e)
        check(len(frames) > 100 and frames[-1][0], "a stack of %d frames that ends in %s", len(frames), frames[-1][0])
    return True


def test_pages_not_in_memory():
    with swap(1024):  # the whole process must fit: pages without swap space stay in memory
        under_pressure("main", 3)


@nightly("long")
def test_pages_of_more_threads_not_in_memory():
    with swap(1024):
        under_pressure("main", 10)


@nightly("versions")
def test_pages_not_in_memory_old():
    with swap(1024):  # the whole process must fit: pages without swap space stay in memory
        under_pressure("old", 3)


def brought_in(bench):
    """True if walks met absent pages; then checks that the recorder brought them in, so that later stacks are whole."""
    target = workload("cold_frames.py", "--seconds", "60", "--rate", "20000", "--threads", "3")
    target.wait_line("^ready", 120)
    path = scratch("brought-in-%s.mtr" % bench)
    recorder = spawn(["env", "MEMTRACE_BENCH=" + bench, TOOL, "record", "-p", str(target.popen.pid), "-o", path, "-f"], root=True)
    recorder.wait_line(harness.ATTACHED, 30, stream="err")
    target.send()
    harness.settle(recorder)
    pressure = PageOut(target.popen.pid, 1.5)
    pressure.start()
    until_faults(path, 60000)
    target.send()
    truth = json.loads(target.wait_line("^{", 60))
    pressure.stop()
    finish(recorder)
    content = Content(path)
    exactly(content, truth)
    walks = [e["walk"] for e in content.events if e["kind"] == mtr_reader.ALLOC]
    if FAULT_FRAME not in walks:
        return False
    equal(content.fact("sleepable"), 0, "sleepable (%s)" % bench)
    check(content.fact("counter.pages_brought_in") > 0, "no page was brought in (%s)", bench)
    later = walks[walks.index(FAULT_FRAME):]
    whole = later.count(OK) / len(later)
    check(whole > 0.3, "only %.0f %% of %d later stacks are whole (%s)", 100 * whole, len(later), bench)
    return True


def test_pages_brought_in_from_outside():
    """As on kernels before 6.0: without the recorder's reads, no stack is whole once a page of its frames is absent."""
    with swap(1024):
        check(any(brought_in("old") for _ in range(3)), "no walk met a page that was not there")


@nightly("long")
def test_pages_brought_in_beside_programs_that_may_wait():
    with swap(1024):
        check(any(brought_in("atomic") for _ in range(3)), "no walk met a page that was not there")


def test_sleepable_from_the_start():
    """The sleepable programs give the same rows as the others."""
    folder = scratch("sleepable")
    os.mkdir(folder)
    expected_file, path = os.path.join(folder, "expected.json"), os.path.join(folder, "x.mtr")
    target = workload("exact.py", expected_file, folder, cwd=folder)
    target.wait_line("^ready", 120)
    recorder = spawn(["env", "MEMTRACE_BENCH=sleepable", TOOL, "record", "-p", str(target.popen.pid), "-o", path, "-f"], root=True)
    recorder.wait_line(harness.ATTACHED, 30, stream="err")
    target.send()
    target.wait_line("^done", 60)
    finish(recorder)
    expected = harness.read_json(expected_file)
    doc = report(path)
    got = exact_rows.by_key(doc["rows"])
    wrong = exact_rows.difference(got, exact_rows.settle_fleeting(got, expected))
    check(not wrong, "%d rows differ:\n    %s", len(wrong), "\n    ".join(wrong[:10]))
    equal(device(doc)["allocs"], expected["allocs"], "allocations")
    equal(Content(path).fact("sleepable"), 1, "sleepable")


def functions_of(elf):
    """(name, code) of each function in a BPF object."""
    with open(elf, "rb") as f:
        data = f.read()
    offset, = struct.unpack_from("<Q", data, 40)
    size, number = struct.unpack_from("<HH", data, 58)
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, offset + i * size) for i in range(number)]
    symbols = next(s for s in sections if s[1] == 2)
    names = sections[symbols[6]][4]
    for at in range(symbols[4], symbols[4] + symbols[5], 24):
        name, info, _, section, value, length = struct.unpack_from("<IBBHQQ", data, at)
        if info & 15 == 2:
            begin = sections[section][4] + value
            yield data[names + name:data.index(b"\0", names + name)].decode(), data[begin:begin + length]


def stack_of(code):
    """Stack bytes of a BPF function: the lowest offset accessed from the frame pointer, r10."""
    deepest, copies = 0, set()
    for at in range(0, len(code), 8):
        op, regs, off, imm = struct.unpack_from("<BBhi", code, at)
        dst, src = regs & 15, regs >> 4
        if (op & 7 in (2, 3) and dst == 10) or (op & 7 == 1 and src == 10):
            deepest = min(deepest, off)
        elif op == 0xbf and src == 10:
            copies.add(dst)
        elif op == 0x07 and dst in copies:
            deepest = min(deepest, imm)
            copies.discard(dst)
    return -deepest


def test_programs_need_little_stack():
    """With more stack the kernel may use a per-CPU area, where tasks would overwrite each other's data."""
    found = {name: stack_of(code) for name, code in functions_of(os.path.join(OUT, "bpf", "memtrace.bpf.o"))}
    check("report_s" in found and any(found.values()), "functions: %s", found)
    large = {n: s for n, s in found.items() if s > MAX_STACK}
    check(not large, "functions with more than %d bytes of stack: %s", MAX_STACK, large)


def test_programs_load_where_kernel_memory_is_locked():
    """With lockdown=confidentiality bpf_probe_read_kernel() is missing, and programs that may call it are refused."""
    pids = {"number_here", "process_here", "thread_here"}  # for PID namespaces; the verifier removes them otherwise
    found = {name for name, code in functions_of(os.path.join(OUT, "bpf", "memtrace.bpf.o"))
             for at in range(0, len(code), 8) if struct.unpack_from("<BBhi", code, at) == (0x85, 0, 0, 113)}
    equal(found, pids, "functions that call bpf_probe_read_kernel()")


# ---- a small ring -----------------------------------------------------------------------------------------

def test_losses_are_counted():
    target = workload("churn.py", "--seconds", "4", "--rate", "0", "--threads", "4")
    target.wait_line("^ready", 120)
    path = scratch("small-ring.mtr")
    recorder = record(target.popen.pid, path, "--ring-size", "64K", "--no-census")  # blocks from events alone
    target.send()
    interrupted(recorder, 3)
    truth = json.loads(target.wait_line("^{", 60))
    finish(recorder)

    content = Content(path)
    for what, kind, own_count in (("cpu_new", mtr_reader.ALLOC, truth["allocs"]), ("cpu_delete", mtr_reader.FREE, truth["frees"])):
        hits, lost = content.fact("counter.hits." + what), content.fact("counter.lost." + what)
        equal(hits, own_count, "hits of %s, as the target counts" % what)
        equal(content.count[kind] + lost, hits, "%s: in the file and lost" % what)
        check(lost > 0, "nothing lost of %s: the ring was large enough", what)
    lost = content.fact("counter.lost.cpu_new") + content.fact("counter.lost.cpu_delete")
    equal(content.fact("lost"), lost, "the fact `lost`")
    equal(content.lost, lost, "sum of the events that say so")
    said = "{:,}".format(lost)
    check(said in recorder.stderr() and "lost" in recorder.stderr(), "record does not speak of %s lost: %s", said, recorder.stderr()[-400:])
    code, out, err = tool("report", path)
    check(code == 0 and re.search(r"\b%s lost\b" % said, out), "the report does not speak of %s lost: %d %s %s", said, code, out[-500:], err)
    doc = report(path)
    equal(doc["capture"]["lost"], lost, "lost in the JSON report")
    walks = sum(int(v) for k, v in content.facts.items() if k.startswith("counter.walks."))
    equal(walks, content.fact("counter.hits.cpu_new"), "walks by outcome, all together")
    cpu = device(doc)
    equal(cpu["allocs"] - cpu["frees"] + cpu["frees_unknown"] - cpu["frees_missed"], cpu["live_blocks"],
          "blocks alive: allocated, less those freed, less those whose free was missed")


# ---- the last milliseconds ------------------------------------------------------------------------------

def last_words(role, rounds=5):
    """Functions called for the first time just before the end are named, except those of the last moment. The recorder has a
    real-time priority, because on a busy machine it would not run at once."""
    if not shutil.which("chrt") or subprocess.run(sudo(["chrt", "-f", "1", "true"]), capture_output=True, check=False).returncode:
        raise Skip("no real-time priority to be had")
    target = workload("last_words.py", role=role)
    unnamed = []
    for i in range(rounds):
        path, go = scratch("last-%s-%d.mtr" % (role, i)), scratch("last-%s-%d.go" % (role, i))
        target.send(go + "\n")
        pid = target.wait_line(r"^ready", 120).split()[1]
        target.out.clear()
        recorder = spawn(["chrt", "-f", "1", TOOL, "record", "-p", pid, "-o", path], root=True)
        recorder.wait_line(ATTACHED, 30, stream="err")
        harness.settle(recorder)  # work after attach is done
        with open(go, "w", encoding="utf-8"):
            pass
        equal(recorder.wait(60), 0, "exit code of record: %s" % recorder.stderr()[-300:])
        content = Content(path)
        check(not content.errors, "%d contradictions, as: %s", len(content.errors), content.errors[:3])
        callers = [content.frames(e)[1][0] for e in content.events if e["kind"] == mtr_reader.ALLOC]
        equal(len(callers), 80, "tensors")
        wrong = [f for n, f in enumerate(callers) if f and (f[2] != "last_%d" % n or f[1] != 2 * n + 2)]
        check(not wrong, "wrong names: %s", wrong[:3])
        unnamed.append(callers.count(None))
    equal(target.alive(), True, "the target still runs")
    # Without an early wakeup, unnamed ones would be those since the last 10 ms tick, half of them on average.
    check(sorted(unnamed)[rounds // 2] <= 10, "unnamed of 80, by round: %s", unnamed)


def test_last_words():
    last_words("main")


@nightly("versions")
def test_last_words_old():
    last_words("old")


# ---- import during the capture ----------------------------------------------------------------------------

def late_import(role, *options, begins="recording its host memory"):
    target = workload("late_model.py", role=role, start=spawn)
    target.wait_line("^ready", 30)
    path = scratch("late-%s%s.mtr" % (role, len(options)))
    recorder = record(target.popen.pid, path, *options, wait=False)
    recorder.wait_line(begins, 30, stream="err")
    target.send()
    truth = {size: (line, module) for size, line, module in json.loads(target.wait_line(r"^\[", 120))}
    finish(recorder)
    content = Content(path)
    got = {}
    for e in content.live.values():
        frames = content.frames(e)
        if frames and frames[0][0] and frames[0][0][0].endswith("late_model.py"):
            module = next((m[0] for _, m in frames if m), "")
            got[e["size"]] = (frames[0][0][1], module)
    equal(got, truth, "line and module of the first tensors, by size")


def test_late_import():
    late_import("main", "--wait-for", "torch", begins="waiting for `import torch`")


def test_late_import_into_a_capture():
    """A capture that began with host memory goes on with tensors."""
    late_import("main")


@nightly("versions")
def test_late_import_newest():
    late_import("newest")


@nightly("versions")
def test_late_import_old():
    late_import("old")


if __name__ == "__main__":
    run(globals())

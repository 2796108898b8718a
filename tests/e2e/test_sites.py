#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# run: nightly=long
"""Probe sites: functions with all kinds of prologues, called a known number of times. The chosen instruction is the expected one
and runs once per call, for all arguments. PyTorch's static probe on all kinds of nops."""
import json
import os
import re
import subprocess
import sys

import harness
import mtr_reader
from harness import REPO, Skip, check, compiled, equal, finish, record, report, run, scratch, spawn

CALLS = 1500

# The function's instructions; the chosen site, and its offset.
PROLOGUES = {
    "push": ("push %r12; mov %rdi, %r12; pop %r12; ret", "push %r12", "emulated", 0),
    "endbr64": ("endbr64; push %rbp; mov %rsp, %rbp; pop %rbp; ret", "push %rbp", "emulated", 4),
    "mov": ("mov %rsi, %rax; push %rbx; pop %rbx; ret", "push %rbx", "emulated", 3),
    "sub": ("sub $0x18, %rsp; call 1f; 1: add $0x20, %rsp; ret", "call", "emulated", 4),
    "test-je": ("test $0x10, %sil; je 1f; xor %eax, %eax; 1: ret", "je", "emulated", 4),
    "jmp": ("jmp 1f; nop; 1: mov %rsi, %rax; ret", "jmp", "emulated", 0),
    # A branch leads behind the push: the site must not be skipped by it.
    "skipped": ("test $0x10, %sil; jne 1f; push %rax; pop %rax; 1: ret", "jne", "emulated", 4),
    # A site in the loop would count its turns.
    "loop": ("mov $3, %eax; 1: dec %eax; push %rax; pop %rax; test %eax, %eax; jne 1b; ret", None, None, None),
    # The argument is overwritten before the first emulated instruction.
    "argument": ("mov $0, %esi; push %rax; pop %rax; ret", "mov", "single-stepped", 0),
    "stepped": ("lea 8(%rsi), %rax; ret", "lea", "single-stepped", 0),
}

TARGET = """
import ctypes, sys
lib = ctypes.CDLL(sys.argv[1])
new = lib._ZN3c1025ProfiledCPUMemoryReporter3NewEPvm
new.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
print("ready", flush=True)
sys.stdin.readline()
for i in range(%d):
    new(None, 0x100000 + i * 16, 16)
print("done", flush=True)
sys.stdin.readline()
""" % CALLS


def each(name, code, instruction, how, offset):
    folder = scratch(name)
    os.mkdir(folder)
    library = os.path.join(folder, "libc10.so")
    subprocess.run(["gcc", "-O2", "-shared", "-fPIC", "-o", library, '-DPROLOGUE="%s"' % code, os.path.join(REPO, "tests", "kernels", "c10.c")], check=True)
    target = spawn([sys.executable, "-c", TARGET, library])
    target.wait_line("^ready")
    if instruction:
        code, out, _ = harness.tool("check", "-p", str(target.pid), "--explain", root=True)
        line = next((text for text in out.splitlines() if " cpu new " in text), out)
        got = re.search(r"(\S+)\+0x[0-9a-f]+: (.*) \(([a-z-]+)\), (\w+)\+(\d+)$", line)
        check(got and got[1] == library and got[2].startswith(instruction), "%s: %r", name, line)
        equal((got[3], got[4], int(got[5])), (how, "_ZN3c1025ProfiledCPUMemoryReporter3NewEPvm", offset), name + ": class, function, offset")
    path = os.path.join(folder, "x.mtr")
    recorder = record(target.pid, path)
    target.send()
    target.wait_line("^done", 30)
    finish(recorder)
    doc = report(path)
    dev = harness.device(doc)
    equal((dev["allocs"], dev["allocated"], doc["capture"]["lost"]), (CALLS, 16 * CALLS, 0), name + ": calls, their bytes, lost")
    target.send()
    equal(target.wait(10), 0, name + ": exit code of the target")


def test_picked_as_often_as_entered():
    for name, (code, instruction, how, offset) in PROLOGUES.items():
        each(name, code, instruction, how, offset)


# The instructions of pytorch:malloc in a library, and what a kernel probes that makes no safe calls of 10-byte nops.
PLACES = {"nop": ("NOP1", True), "nop, 5-byte nop": ("NOP1 NOP5", True), "5-byte nop": ("NOP5", False),
          "nop, 10-byte nop": ("NOP1 NOP10", True), "10-byte nop": ("NOP10", False)}

CALLER = """
import ctypes, os, sys
c10, cuda = (ctypes.CDLL(path) for path in sys.argv[1:3])
new = c10._ZN3c1025ProfiledCPUMemoryReporter3NewEPvm
new.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
take = cuda.take
take.argtypes, take.restype = [ctypes.c_void_p, ctypes.c_int8, ctypes.c_size_t, ctypes.c_int64], ctypes.c_uint64
def calls():
    return sum(take(0x100000 + i, 1, i, 7) != 0x100008 + 2 * i for i in range(%d))
print("ready", flush=True)
sys.stdin.readline()
new(None, 0x100000, 16)
wrong = calls()
child = os.fork()
if not child:
    os._exit(calls() != 0)
print("wrong %%d, child %%d" %% (wrong, os.waitpid(child, 0)[1]), flush=True)
sys.stdin.readline()
print("wrong %%d, after it" %% calls(), flush=True)
sys.stdin.readline()
""" % CALLS


def calls_are_safe():
    """What the probe on a 10-byte nop of a process of its own shows, as check prints it."""
    code, out, err = harness.tool("check", "--format", "json", root=True)
    equal(code, 0, "check: " + err)
    hit = next(h for h in json.loads(out)["hits"] if h["place"] == "10-byte nop")
    return bool(hit["by_call"]) and not hit["fork_dies"] and not hit["overwrites"]


def place(name, macro, probed, c10):
    folder = scratch("usdt " + name)
    os.mkdir(folder)
    library = compiled("usdt_malloc", os.path.join(folder, "libc10_cuda"), ("-DPLACE=" + macro,))
    target = spawn([sys.executable, "-c", CALLER, c10, library])
    target.wait_line("^ready")
    path = os.path.join(folder, "x.mtr")
    recorder = record(target.pid, path, "--requested", "-v")
    target.send()
    equal(target.wait_line("^wrong", 30).strip(), "wrong 0, child 0", name + ": wrong results, status of a forked child")
    finish(recorder)
    said = recorder.stderr()
    check(probed == ("this kernel's probes end forked children" not in said), "%s: what is said: %s", name, said[-600:])
    target.send()
    target.wait_line("^wrong 0, after it", 30)
    harness.own(path)
    with open(path, "rb") as f:
        asked = [e for e in mtr_reader.Recording(f).events() if e["kind"] == mtr_reader.ASKED]
    equal([(e["addr"], e["index"], e["requested"], e["stream"]) for e in asked],
          [(0x100000 + i, 1, i, 7) for i in range(CALLS)] if probed else [], name + ": recorded")
    target.send()
    equal(target.wait(10), 0, name + ": exit code of the target")


def test_static_probe():
    """PyTorch's probe is on the nop, or on the 10-byte nop if the kernel's calls are safe. A forked child lives, and gets right results."""
    if os.uname().machine != "x86_64":
        raise Skip("PyTorch has static probes on x86-64 only")
    c10, safe = scratch("libc10.so"), calls_are_safe()
    subprocess.run(["gcc", "-O2", "-shared", "-fPIC", "-o", c10, os.path.join(REPO, "tests", "kernels", "c10.c")], check=True)
    for name, (macro, probed) in PLACES.items():
        place(name, macro, probed or (safe and "10" in name), c10)


run(globals())

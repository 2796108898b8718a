#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# run: nightly=long
"""Probe sites: functions with all kinds of prologues, called a known number of times. The chosen instruction is the expected one
and runs once per call, for all arguments."""
import os
import re
import subprocess
import sys

import harness
from harness import REPO, check, equal, finish, record, report, run, scratch, spawn

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


run(globals())

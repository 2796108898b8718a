#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# run: probes-all
"""A capture of several processes changes no byte of code that a recorded process has chosen: bystanders keep theirs, whatever
recorded processes map and point to. The bystander of each test is this process."""
import ctypes
import mmap
import os
import re
import shutil
import subprocess
import sys

import chaos
from harness import IS_ROOT, REPO, TOOL, Failure, Skip, check, equal, run, scratch, spawn

CODE = 0x1000  # where the libraries here have their code, and a page of it
TIMES = range(1, 7)  # opens and closes of its library after which a process maps another file
# A library with PyTorch's names at offsets 0x1101 and so on. There the other one has the middle of an instruction: mov $0x11223344, %eax.
TORCH = "".join(".globl {0}\n.type {0}, @function\n.org {1}\n{0}: .byte 0x55,0x5d,0xc3\n.size {0}, 3\n".format(*function) for function in (
    ("_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE", 0x101), ("_ZN3c1025ProfiledCPUMemoryReporter3NewEPvm", 0x200),
    ("_ZN3c1025ProfiledCPUMemoryReporter6DeleteEPv", 0x240)))
WORK = ".globl work\n.type work, @function\n.org 0x100\nwork: .byte 0xb8,0x44,0x33,0x22,0x11,0xc3\n.size work, 6\n.org 0x200\n.fill 0x600, 1, 0x55\n"


def shared_object(name, text):
    path = scratch(name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    if os.uname().machine != "x86_64" or not shutil.which("cc"):
        raise Skip("needs x86-64 and a C compiler")
    subprocess.run(["cc", "-shared", "-nostdlib", "-x", "assembler", "-o", path, "-"], input=".text\n" + text + ".org 0x800\n"
                   ".section .note.GNU-stack,\"\",@progbits\n", text=True, check=True)
    return path


class Bystander:
    """Maps the code of a file, and says which of its bytes are not the file's."""

    def __init__(self, path):
        self.path = path
        with open(path, "rb") as f:
            self.code = mmap.mmap(f.fileno(), CODE, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_EXEC, offset=CODE)
            f.seek(CODE)
            self.right = f.read(CODE)
        self.code[:]  # the page is there

    def changed(self):
        return ["%#x: %#x" % (CODE + i, now) for i, now in enumerate(self.code[:len(self.right)]) if now != self.right[i]]

    def stays_the_same(self, what):
        equal(self.changed(), [], "bytes of a bystander's code that changed (%s)" % what)


def remapping(swapper, n):
    own = shared_object("remaps%d/torch/lib/libc10.so" % n, TORCH)
    p = spawn([swapper, own, scratch("bystander.so"), str(n), "0", "map"])
    p.wait_line("^ready", 30)
    return p


def record(*options):
    return spawn([TOOL, "record", *options, "-v"], root=True)


def test_a_file_that_is_mapped_after_the_look():
    """The code of another file comes to the addresses where the recorder has just read PyTorch's names."""
    bystander = Bystander(shared_object("bystander.so", WORK))
    swapper = chaos.compiled("tenant_maps.c", "maps_others")
    processes = [remapping(swapper, n) for n in TIMES]
    recorder = record("--name", swapper, "-o", scratch("remapped.mtr"))
    for p in processes:
        recorder.wait_line("PID %d" % p.pid, 60, stream="err")
    for p in processes:
        p.wait_line("^swapped", 60)
    bystander.stays_the_same("mapped later")
    recorder.signal(2)
    # 1: all had swapped before the recorder read them, so that it refused each.
    code = recorder.wait(60)
    check(code == 0 or (code == 1 and recorder.stderr().count("code is not mapped") >= len(TIMES)), "exit code %d (%s)",
          code, recorder.stderr()[-500:])
    bystander.stays_the_same("at the end")


def pointing(library, function, preload=""):
    command = [sys.executable, os.path.join(REPO, "tests", "workloads", "points.py"), library, function]
    p = spawn(command, env=dict(os.environ, LD_PRELOAD=preload))
    p.wait_line("^ready", 30)
    return p


def interpreter(function):
    """The interpreter's file, and the offset of a function in it."""
    address = ctypes.cast(ctypes.pythonapi[function], ctypes.c_void_p).value
    with open("/proc/self/maps", encoding="utf-8") as f:
        for line in f:
            m = re.match(r"([0-9a-f]+)-([0-9a-f]+) r-xp ([0-9a-f]+) \S+ \d+\s+(/.*)", line)
            if m and int(m[1], 16) <= address < int(m[2], 16):
                return m[4], address - int(m[1], 16) + int(m[3], 16)
    raise Failure("no file has %s" % function)


def code_of(pid, path, offset):
    """The first bytes of a function of a file, as a process has them."""
    with open("/proc/%d/maps" % pid, encoding="utf-8") as f:
        for line in f:
            m = re.match(r"([0-9a-f]+)-([0-9a-f]+) r-xp ([0-9a-f]+) \S+ \d+\s+(/.*)", line)
            start = int(m[3], 16) if m else 0
            if m and m[4] == path and start <= offset < start + int(m[2], 16) - int(m[1], 16):
                with open("/proc/%d/mem" % pid, "rb", buffering=0) as mem:
                    mem.seek(int(m[1], 16) + offset - start)
                    return mem.read(32)
    raise Failure("PID %d does not map %s" % (pid, path))


def test_a_pointer_to_a_function_elsewhere():
    """Where Python frees code objects is known by a pointer in the process's memory. It counts in the interpreter's file only."""
    bystander = Bystander(shared_object("bystander.so", WORK))
    p = pointing(bystander.path, "work")
    recorder = record("--name", "points.py .*bystander.so work", "-o", scratch("elsewhere.mtr"))
    recorder.wait_line("PID %d: (Python is understood|no frames of Python)" % p.pid, 60, stream="err")
    bystander.stays_the_same("a pointer to it")
    recorder.signal(2)
    recorder.wait(60)
    p.stop()


def test_a_pointer_to_another_function_of_the_interpreter():
    """A function that the interpreter's file does not give for it is probed in that process alone."""
    if not IS_ROOT:
        raise Skip("needs root, to read code")
    path, offset = interpreter("PyObject_Size")
    p = pointing("", "PyObject_Size")
    right = code_of(p.pid, path, offset)
    recorder = record("--name", "points.py +PyObject_Size", "-o", scratch("other.mtr"))
    recorder.wait_line("PID %d: Python is understood" % p.pid, 60, stream="err")
    check(code_of(p.pid, path, offset) != right, "the process itself has no probe")
    equal(code_of(os.getpid(), path, offset), right, "a bystander's code")
    recorder.signal(2)
    recorder.wait(60)
    p.stop()


def test_what_to_do_if_the_programs_filter():
    """Where the programs tell processes apart, no process can have a probe of its own: root has other probes, another user has not."""
    p = pointing("", "PyObject_Size", preload=shared_object("alone/torch/lib/libc10.so", TORCH))
    recorder = spawn(["env", "MEMTRACE_BENCH=filter", TOOL, "record", "-p", str(p.pid), "-o", scratch("alone.mtr")], root=True)
    equal(recorder.wait(60), 3, "exit code (%s)" % recorder.stderr()[-500:])
    said = recorder.stderr()
    check("is not recorded: the file does not say" in said and "Run memtrace-bpf as root" in said, "what is said: %s", said)
    p.stop()


if __name__ == "__main__":
    run(globals())

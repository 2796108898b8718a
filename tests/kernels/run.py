#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
Runs the built program on other kernels under emulation, and on this one: golden results must be equal (golden.py), or the
refusal must be named. Each kernel runs twice: normally, and with the programs filtering by process (MEMTRACE_BENCH=filter),
which 6.6 to 6.9 need.

    tests/kernels/run.py [KERNEL ...]     image files; default: those of tools/deps.sh kernels, and the running kernel

KERNEL_ARGS in the environment is added to the kernels' command line: KERNEL_ARGS=lockdown=confidentiality.

Each machine is qemu without acceleration, with a file system in memory: this interpreter, the program and their dependencies.
Consoles are in .output/kernels/. Prints a table; 1: a kernel's result is wrong.
"""
import gzip
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import time

HERE = os.path.dirname(os.path.abspath(__file__))
REPO = os.path.dirname(os.path.dirname(HERE))
OUT = os.path.join(REPO, os.environ.get("OUTPUT", ".output"))
TOOL = os.path.join(OUT, "memtrace-bpf")
DIR = os.path.join(OUT, "kernels")
SECONDS = 900
LEFT_OUT = {"test", "tests", "idlelib", "tkinter", "ensurepip", "site-packages", "dist-packages", "lib2to3", "pydoc_data", "turtledemo", "config-3.11-x86_64-linux-gnu"}


class Cpio:
    """An initramfs archive ("newc")."""

    def __init__(self, out):
        self.out = out
        self.n = 0
        self.known = set()

    def entry(self, name, mode, data=b""):
        name = name.lstrip("/")
        if not name or name in self.known:
            return
        self.known.add(name)
        if os.path.dirname(name):
            self.entry(os.path.dirname(name), 0o040755)
        self.n += 1
        fields = (self.n, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name) + 1, 0)
        head = b"070701" + b"".join(b"%08x" % f for f in fields) + name.encode() + b"\0"
        self.out.write(head + b"\0" * (-len(head) % 4) + data + b"\0" * (-len(data) % 4))

    def file(self, path, name=None):
        """Adds a file under the path `name`, resolving links."""
        with open(path, "rb") as f:
            self.entry(name or path, 0o100755 if os.access(path, os.X_OK) else 0o100644, f.read())

    def close(self):
        self.entry("TRAILER!!!", 0)


def libraries(path):
    done = subprocess.run(["ldd", path], capture_output=True, text=True, check=False)
    return re.findall(r"(/\S+) \(0x", done.stdout)


def put_python(cpio):
    """Adds the running interpreter at its path."""
    python = os.path.realpath(sys.executable)
    cpio.file(python)
    for path in libraries(python):
        cpio.file(path)
    for top in {sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")}:
        for folder, folders, files in os.walk(top):
            folders[:] = [d for d in folders if d not in LEFT_OUT]
            for name in files:
                path = os.path.join(folder, name)
                cpio.file(path)
                if name.endswith(".so"):
                    for needed in libraries(path):
                        cpio.file(needed)
    return python


def make_image(path, library):
    with gzip.open(path, "wb", compresslevel=1) as f:
        cpio = Cpio(f)
        for name in ("dev", "proc", "sys", "tmp"):
            cpio.entry(name, 0o040755)
        python = put_python(cpio)
        cpio.file(TOOL, "/memtrace-bpf")
        for needed in libraries(TOOL):
            cpio.file(needed)
        cpio.file(library, "/libc10.so")
        for name in ("golden.py", "target.py"):
            cpio.file(os.path.join(HERE, name), "/kernels/" + name)
        cpio.file(os.path.join(REPO, "tests", "e2e", "code_bytes.py"), "/e2e/code_bytes.py")
        with open(os.path.join(HERE, "init.py"), "rb") as f:
            cpio.entry("init", 0o100755, b"#!" + python.encode() + b"\n" + f.read())
        cpio.close()


def boot(kernel, image, log):
    command = ["qemu-system-x86_64", "-accel", "tcg", "-cpu", "max", "-smp", "2", "-m", "2048", "-nographic", "-no-reboot", "-kernel", kernel, "-initrd", image,
               "-append", "console=ttyS0 panic=-1 quiet loglevel=3 " + os.environ.get("KERNEL_ARGS", "")]
    with open(log, "wb") as f:
        try:
            subprocess.run(command, stdin=subprocess.DEVNULL, stdout=f, stderr=subprocess.STDOUT, timeout=SECONDS, check=False)
        except subprocess.TimeoutExpired:
            f.write(b"\nnot through after %d s\n" % SECONDS)


def here(library, log):
    with open(log, "wb") as f:
        f.write(b"KERNEL %s\n" % os.uname().release.encode())
        for bench in ("", "filter"):
            f.write(b"WAY %s\n" % ("the programs'" if bench else "the kernel's").encode())
            f.flush()
            subprocess.run([sys.executable, os.path.join(HERE, "golden.py"), TOOL, library, DIR], stdin=subprocess.DEVNULL, stdout=f, stderr=subprocess.STDOUT,
                           timeout=SECONDS, check=False, env={**os.environ, "MEMTRACE_BENCH": bench})


def read(log):
    """Kernel release, "yes" or "no" for uprobe.multi; for each run its name, the refusal, the result."""
    with open(log, encoding="utf-8", errors="replace") as f:
        text = f.read()
    release = re.search(r"KERNEL (\S+)", text)
    multi = "no" if "not in this kernel (6.6" in text else "yes"
    ways = []
    for part in re.split(r"^ ?WAY ", text, flags=re.M)[1:]:
        refused = re.search(r"^ ?REFUSED (.*)", part, re.M)
        result = re.search(r"^ ?RESULT (\{.*\})", part, re.M)
        ways.append((part.split("\n")[0].strip(), refused[1] if refused else None, json.loads(result[1]) if result else None))
    return (release[1] if release else "?"), multi, ways or [("?", None, None)]


def judge(golden, refused, result):
    """The result in words, and whether it is right."""
    if refused:
        return "refused: " + refused, True
    if result is None:
        return "FAILED", False
    other = ["%s: %s, not %s" % (k, result.get(k), golden[k]) for k in golden if result.get(k) != golden[k]]
    return ("DIFFERS: " + ", ".join(other), False) if other else ("the same", True)


def main():
    os.makedirs(DIR, exist_ok=True)
    kernels = sys.argv[1:]
    if not kernels:
        done = subprocess.run([os.path.join(REPO, "tools", "deps.sh"), "kernel-images"], capture_output=True, text=True, check=True)
        kernels = done.stdout.split()
    if not shutil.which("qemu-system-x86_64"):
        sys.exit("qemu-system-x86_64 is not here: run tools/deps.sh kernels")
    library = os.path.join(DIR, "libc10.so")
    subprocess.run(["gcc", "-O2", "-shared", "-fPIC", "-o", library, os.path.join(HERE, "c10.c")], check=True)
    image = os.path.join(DIR, "image.gz")
    make_image(image, library)
    golden = json.load(open(os.path.join(HERE, "golden.json"), encoding="utf-8"))
    status = 0
    print("| kernel | how | uprobe.multi | filter | result | seconds |\n|---|---|---|---|---|---|")
    for kernel in ["", *kernels]:
        log = os.path.join(DIR, (os.path.basename(kernel) or "here") + ".log")
        begin = time.monotonic()
        if kernel:
            boot(kernel, image, log)
        else:
            here(library, log)
        release, multi, ways = read(log)
        seconds = "%.0f" % (time.monotonic() - begin)
        for way, refused, result in ways:
            said, right = judge(golden, refused, result)
            if not right:
                status = 1
                said += ", see " + os.path.relpath(log, REPO)
            print("| %s | %s | %s | %s | %s | %s |" % (release, "emulated" if kernel else "this machine", multi, way, said, seconds), flush=True)
            seconds = ""
    sys.exit(status)


main()

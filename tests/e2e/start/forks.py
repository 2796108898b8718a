# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
The other side of tests/e2e/forked.py: a Python that imports PyTorch once and forks a job for each request. sitecustomize.py calls
serve() before the main program, and in a job serve() returns. So a job runs as if it had been started with its own command line:
no frame of this file is on its stack, and /proc/PID/cmdline has its own arguments.

The command line has PLACEHOLDER instead of the script, or of the code after -c. CPython copies it as wide characters and runs it
after sitecustomize.py; the kernel shows it in /proc/PID/cmdline. A job writes its own text over all of these.
"""
import array
import ctypes
import json
import os
import re
import socket
import struct
import sys

PLACEHOLDER = "/" + "placeholder" * 3000  # room for the code of a test
PR_SET_MM, PR_SET_MM_MAP = 35, 14  # linux/prctl.h


def wide(text):
    return text.encode("utf-32-le" if sys.byteorder == "little" else "utf-32-be")


def read_memory(begin, size):
    with open("/proc/self/mem", "rb", 0) as memory:
        memory.seek(begin)
        return memory.read(size)


def copies():
    """CPython's copies of the placeholder: (address, what follows it: the code of -c ends with a newline)."""
    found = []
    with open("/proc/self/maps", encoding="utf-8") as maps:
        heap = next(line for line in maps if line.endswith("[heap]\n"))
    begin, end = (int(n, 16) for n in heap.split()[0].split("-"))
    content = read_memory(begin, end - begin)
    for match in re.finditer(re.escape(wide(PLACEHOLDER)), content):
        after = content[match.end():match.end() + 4]
        found.append((begin + match.start(), "\n\0" if after == wide("\n") else "\0"))
    return found


def show(command_line):
    """Has /proc/PID/cmdline show this, which is no longer than what it shows now."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.sbrk.restype = ctypes.c_void_p
    with open("/proc/self/stat", encoding="utf-8") as f:
        field = [0, 0, 0, *f.read().rpartition(")")[2].split()]  # from 1: proc(5)
    start_code, end_code, start_stack = (int(n) for n in field[26:29])
    start_data, end_data, start_brk, arg_start, arg_end, env_start, env_end = (int(n) for n in field[45:52])
    ctypes.memmove(arg_start, command_line, len(command_line))
    # struct prctl_mm_map. Only this form of PR_SET_MM needs no capability.
    new = struct.pack("=12QIi", start_code, end_code, start_data, end_data, start_brk, libc.sbrk(0), start_stack, arg_start,
                      arg_start + len(command_line), env_start, env_end, 0, 0, -1)
    if libc.prctl(PR_SET_MM, PR_SET_MM_MAP, new, ctypes.c_ulong(len(new)), ctypes.c_ulong(0)):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_MM)")


def overwrite(places, at, command):
    """Makes this process one that was started with this command line; at: the index of its script or code."""
    for address, after in places:
        own = wide(command[at] + after)
        ctypes.memmove(address, own, len(own))
    sys.argv[:] = [sys.argv[0] if sys.argv[0] == "-c" else command[at], *command[at + 1:]]
    if hasattr(sys, "orig_argv"):
        sys.orig_argv[:] = command
    show(b"".join(os.fsencode(arg) + b"\0" for arg in command))


def receive(channel):
    """A request, and the three descriptors of a new job."""
    fds = array.array("i")
    data, ancillary, _, _ = channel.recvmsg(1 << 18, socket.CMSG_SPACE(3 * fds.itemsize))
    for _, _, content in ancillary:
        fds.frombytes(content)
    return json.loads(data) if data else None, fds


def serve(fd):
    """Answers requests; returns in each job."""
    channel = socket.socket(fileno=fd)
    channel.set_inheritable(False)
    places = copies()
    with open("/proc/self/cmdline", "rb") as f:
        own = f.read().split(b"\0")
    at = own.index(PLACEHOLDER.encode())
    show(b"\0".join([*own[:at], b"(tests fork jobs from this)", b""]))
    import torch  # noqa: F401 (what it is all for)
    while True:
        request, fds = receive(channel)
        if not request:
            os._exit(0)
        if "wait" in request:
            pid, status = os.waitpid(request["wait"], os.WNOHANG)
            answer = status if pid else None
        else:
            answer = os.fork()
            if not answer:
                break
            for given in fds:
                os.close(given)
        channel.send(json.dumps(answer).encode())
    channel.close()
    for i, given in enumerate(fds):
        os.dup2(given, i)
        os.close(given)
    os.chdir(request["cwd"])
    overwrite(places, at, request["command"])

#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Runs a program as the user `nobody` in its own mount namespace, with a file on that user's FUSE mount:

    fuse_mount.py [stall] [open] FILE FOLDER PROGRAM [ARGUMENT...]

The kernel gives access to that user only, as for images mounted without setuid; open: to all users. stall: no read of the file is ever
answered, and each prints "asked"."""
import ctypes
import errno
import os
import signal
import stat
import struct
import sys

NOBODY = 65534
CLONE_NEWNS, MS_NOSUID, MS_NODEV, MS_REC, MS_PRIVATE = 0x20000, 2, 4, 0x4000, 1 << 18
LOOKUP, FORGET, GETATTR, OPEN, READ, RELEASE, FLUSH, INIT, OPENDIR, RELEASEDIR, ACCESS, BATCH_FORGET = 1, 2, 3, 14, 15, 18, 25, 26, 27, 29, 34, 42
ROOT, FILE = 1, 2
VALID = 3600  # s


def attributes(node, size):
    mode = stat.S_IFDIR | 0o755 if node == ROOT else stat.S_IFREG | 0o755
    return struct.pack("<QQQQQQIIIIIIIIII", node, size, (size + 511) // 512, 0, 0, 0, 0, 0, 0, mode, 1, NOBODY, NOBODY, 0, 4096, 0)


def answer(op, node, body, name, data):
    """The reply to a request: bytes, or an errno; None: no reply."""
    size = len(data) if node == FILE else 4096
    if op == INIT:
        major, minor, readahead, flags = struct.unpack_from("<IIII", body)
        return struct.pack("<IIIIHHIIHHI7I", 7, min(minor, 31), readahead, 0, 12, 9, 4096, 1, 0, 0, 0, *[0] * 7)
    if op == LOOKUP:
        if body.rstrip(b"\0").decode() != name:
            return errno.ENOENT
        return struct.pack("<QQQQII", FILE, 0, VALID, VALID, 0, 0) + attributes(FILE, len(data))
    if op == GETATTR:
        return struct.pack("<QII", VALID, 0, 0) + attributes(node, size)
    if op in (OPEN, OPENDIR):
        return struct.pack("<QII", 0, 0, 0)
    if op == READ:
        _, offset, length = struct.unpack_from("<QQI", body)
        return data[offset:offset + length]
    if op in (RELEASE, RELEASEDIR, FLUSH, ACCESS):
        return b""
    return None if op in (FORGET, BATCH_FORGET) else errno.ENOSYS


def serve(fd, name, data, stall):
    while True:
        try:
            request = os.read(fd, 1 << 20)
        except OSError:
            return  # unmounted
        _, op, unique, node = struct.unpack_from("<IIQQ", request)
        if op == READ and stall:
            print("asked", flush=True)
            continue
        got = answer(op, node, request[40:], name, data)
        if got is None:
            continue
        error, body = (-got, b"") if isinstance(got, int) else (0, got)
        os.write(fd, struct.pack("<IiQ", 16 + len(body), error, unique) + body)


def main():
    args = sys.argv[1:]
    stall, shared = (args.pop(0) if args[0] == word else "" for word in ("stall", "open"))
    file, folder, *command = args
    libc = ctypes.CDLL(None, use_errno=True)
    with open(file, "rb") as f:
        data = f.read()
    fd = os.open("/dev/fuse", os.O_RDWR)
    options = "fd=%d,rootmode=40000,user_id=%d,group_id=%d" % (fd, NOBODY, NOBODY)
    options += ",allow_other" if shared else ""
    if libc.unshare(CLONE_NEWNS) or libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None) or \
       libc.mount(b"test", folder.encode(), b"fuse", MS_NOSUID | MS_NODEV, options.encode()):
        sys.exit("cannot mount: %s" % os.strerror(ctypes.get_errno()))
    child = os.fork()
    if not child:
        os.close(fd)
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
        os.execv(command[0], command)
    server = os.fork()
    if not server:
        serve(fd, os.path.basename(file), data, stall)
        os._exit(0)
    os.close(fd)
    sys.stdin.close()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os.kill(server, signal.SIGKILL)
    sys.exit(code)


if __name__ == "__main__":
    main()

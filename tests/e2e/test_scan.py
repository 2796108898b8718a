#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Files that other people choose: behind links of a process, in folders of recordings, in file systems that do not answer. None of
them acts on a device, and none holds up memtrace-bpf or its figures of others."""
import ctypes
import os
import shutil

import chaos
from harness import check, run, scratch, tool

IN_OPEN = 0x20


class Opens:
    """Counts the opens of a file (inotify). A handle that opens nothing does not count."""

    def __init__(self, path):
        libc = ctypes.CDLL(None, use_errno=True)
        self.fd = libc.inotify_init1(os.O_NONBLOCK)
        check(self.fd >= 0 and libc.inotify_add_watch(self.fd, path.encode(), IN_OPEN) >= 0, "inotify: %s", os.strerror(ctypes.get_errno()))

    def seen(self):
        try:
            return len(os.read(self.fd, 65536)) > 0
        except BlockingIOError:
            return False


def test_no_device_behind_a_link():
    """`check` reads torch/version.py of a target. The target made it a link to a special file, which is never opened."""
    folder, special = scratch("linked/torch"), scratch("special")
    os.makedirs(os.path.join(folder, "lib"))
    library = os.path.join(folder, "lib", chaos.HOOKS)
    shutil.copy(chaos.hooks(), library)
    os.mkfifo(special)
    os.symlink(special, os.path.join(folder, "version.py"))
    storm, opens = chaos.Storm(library), Opens(special)
    code, out, err = tool("check", "-p", str(storm.pid), root=True)
    check("libc10" in out + err or "torch" in (out + err).lower(), "check does not know PyTorch: %s%s", out, err)
    check(not opens.seen(), "the special file was opened (check: exit code %d)", code)
    os.close(os.open(special, os.O_RDONLY | os.O_NONBLOCK))
    check(opens.seen(), "inotify does not show opens here")


if __name__ == "__main__":
    run(globals())

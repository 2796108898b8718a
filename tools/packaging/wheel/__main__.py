# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Becomes the program: arguments, environment, signals and exit status are its own from then on."""
import os
import signal
import sys

HERE = os.path.dirname(os.path.abspath(__file__))


def environment():
    """The environment that this process began with: Python itself may have set LC_CTYPE (PEP 538)."""
    env = dict(os.environb)
    try:
        with open("/proc/self/environ", "rb") as f:
            if not any(entry.startswith(b"LC_CTYPE=") for entry in f.read().split(b"\0")):
                env.pop(b"LC_CTYPE", None)
    except OSError:
        pass
    return env


def become(path):
    # Python ignores these two, and programs keep what is ignored.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    try:
        os.execve(path, [path] + sys.argv[1:], environment())
    except OSError as e:
        sys.exit("memtrace-bpf: cannot execute %s: %s\nInstall the package again: pip install --force-reinstall memtrace-bpf" % (path, e.strerror))


def main():
    become(os.path.join(HERE, "bin", "memtrace-bpf"))


def token():
    become(os.path.join(HERE, "sbin", "memtrace-bpf-token"))


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""As tests/programs/host/mallocs.c, in Python: `bytes` above 512 bytes, which are malloc's."""
import sys
import time

KEPT = []


def keep():
    for i in range(8000):
        KEPT.append(bytes(4000))  # LIVE: bytes
        if i % 100 == 0:
            time.sleep(0.001)


def drop():
    for i in range(8000):
        bytes(4000)  # LIVE: dropped
        if i % 100 == 0:
            time.sleep(0.001)


if __name__ == "__main__":
    print("ready", flush=True)
    sys.stdin.readline()
    keep()
    drop()
    print("done bytes:%d dropped:0" % sum(map(len, KEPT)), flush=True)
    sys.stdin.readline()

# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""The longest time in which a reading of host memory keeps a process from changing its mappings. usage: stall.py TOOL MAP_STALL MIB
[RESERVED_GIB]; prints "STALL" and JSON: what map_stall.c says without readings, next to a busy process, and during
readings; and the seconds of a reading."""
import json
import subprocess
import sys
import time

tool, program, mib, *reserved = sys.argv[1:]
READINGS, QUIET = 3, 10  # QUIET: seconds without readings, and of another process's work

target = subprocess.Popen([program, mib, *reserved], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
if target.stdout.readline() != "ready\n":
    sys.exit("map_stall did not start")


def ask():
    target.stdin.write("\n")
    target.stdin.flush()
    return json.loads(target.stdout.readline())


def read():
    begin = time.monotonic()
    done = subprocess.run([tool, "dump", "-p", str(target.pid), "--device", "host", "--format", "json"], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit("dump ended with %d: %s" % (done.returncode, done.stderr))
    host = json.loads(done.stdout)["host"]
    if host["bytes"] < int(mib) << 20 or sum(p["bytes"] for p in host["parts"].values() if p["of_rss"]) != host["bytes"]:
        sys.exit("the ledger is wrong: %s" % host)
    return time.monotonic() - begin


read()  # the program's files are in memory from now on
ask()
time.sleep(QUIET)
without = ask()
# In the emulator, a process that only computes delays others, too.
spin = subprocess.Popen([sys.executable, "-c", "while True: pass"])
time.sleep(QUIET)
busy = ask()
spin.kill()
spin.wait()
ask()
took = [read() for _ in range(READINGS)]
print("STALL", json.dumps({"mib": int(mib), "without": without, "busy": busy, "with": ask(), "seconds": round(min(took), 2)}))
target.kill()

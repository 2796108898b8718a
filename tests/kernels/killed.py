# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
How processes end, on this kernel: targets that a cgroup v2's limit and SIGKILL end while --on-kill records them.
usage: killed.py TOOL LIBRARY FOLDER. Prints "ENDINGS right", or what is wrong.
"""
import ctypes
import json
import os
import signal
import subprocess
import sys

tool, library, folder = sys.argv[1:]
HERE = os.path.dirname(os.path.abspath(__file__))
libc = ctypes.CDLL(None, use_errno=True)
LIMIT = 64 << 20


def write(path, text):
    with open(path, "w", encoding="ascii") as f:
        f.write(text)


def record(target, path):
    p = subprocess.Popen([tool, "record", "-p", str(target.pid), "--on-kill", "-f", "-o", path], stderr=subprocess.PIPE, text=True)
    for line in p.stderr:
        if "attached" in line:
            return p
    sys.exit("ENDINGS wrong: record ended with %d" % p.wait())


def end_of(path):
    done = subprocess.run([tool, "report", "--format", "json", path], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit("ENDINGS wrong: report: %s" % done.stderr)
    return json.loads(done.stdout)["end"]


def start():
    p = subprocess.Popen([sys.executable, HERE + "/target.py", library], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    p.stdin.write("work\n")
    p.stdin.flush()
    p.stdout.readline()
    return p


def killed():
    target, path = start(), folder + "/killed.mtr"
    recorder = record(target, path)
    target.send_signal(signal.SIGKILL)
    target.wait()
    recorder.communicate()
    end = end_of(path)
    assert end["signal"]["from"] == str(os.getpid()) and end["signal"]["name"] == "SIGKILL", end
    assert end["memory"]["rss"] > 1 << 20, end
    return end


def out_of_memory():
    """The target is alone in a cgroup with a limit."""
    top = "/cgroup"
    os.makedirs(top, exist_ok=True)
    if libc.mount(b"cgroup2", top.encode(), b"cgroup2", 0, None):
        sys.exit("ENDINGS wrong: no cgroup2: %s" % os.strerror(ctypes.get_errno()))
    write(top + "/cgroup.subtree_control", "+memory")
    os.makedirs(top + "/job")
    write(top + "/job/memory.max", str(LIMIT))
    target, path = start(), folder + "/oom.mtr"
    write(top + "/job/cgroup.procs", str(target.pid))
    recorder = record(target, path)
    target.stdin.write("grow\n")
    target.stdin.flush()
    target.wait()
    recorder.communicate()
    end = end_of(path)
    assert end["reason"] == "oom killer", end
    assert end["oom"]["constraint"] == "cgroup" and end["oom"]["cgroup_limit"] == LIMIT, end
    assert end["cgroup"]["version"] == 2 and end["cgroup"]["limit"] == LIMIT, end
    return end


print("END", json.dumps(killed()))
print("END", json.dumps(out_of_memory()))
print("ENDINGS right")

# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Process 1 of a machine with PyTorch: records exact.py, which knows every row that a recording must have."""
import ctypes
import json
import os
import signal
import subprocess
import sys
import traceback

libc = ctypes.CDLL(None, use_errno=True)
for kind, where in (("proc", "/proc"), ("sysfs", "/sys"), ("devtmpfs", "/dev"), ("tracefs", "/sys/kernel/tracing"), ("tmpfs", "/tmp")):
    os.makedirs(where, exist_ok=True)
    libc.mount(kind.encode(), where.encode(), kind.encode(), 0, None)
try:
    sys.path.insert(0, "/kernels")
    from exact_rows import judge

    os.environ.update(PATH="/usr/bin:/bin", HOME="/tmp", PYTHONPATH="/torch")
    print("KERNEL", os.uname().release, flush=True)
    os.mkdir("/tmp/exact")
    target = subprocess.Popen([sys.executable, "/kernels/exact.py", "/tmp/expected.json", "/tmp/exact"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                              cwd="/tmp/exact")
    print("WAY torch:", target.stdout.readline(), flush=True)
    print(subprocess.run(["/memtrace-bpf", "check", "-p", str(target.pid)], capture_output=True, text=True, check=False).stdout, flush=True)
    recorder = subprocess.Popen(["/memtrace-bpf", "record", "-p", str(target.pid), "-o", "/tmp/exact.mtr"], stderr=subprocess.PIPE, text=True)
    for line in recorder.stderr:
        print(line, end="", flush=True)
        if "attached to PID" in line:
            break
    target.stdin.write("\n")
    target.stdin.flush()
    target.stdout.readline()
    recorder.send_signal(signal.SIGINT)
    print(recorder.stderr.read(), recorder.wait(), flush=True)
    report = subprocess.run(["/memtrace-bpf", "report", "--format", "json", "--at", "end", "--by", "line", "/tmp/exact.mtr"], capture_output=True, text=True, check=True)
    doc = json.loads(report.stdout)
    with open("/tmp/expected.json", encoding="utf-8") as f:
        expected = json.load(f)
    # Here a recorder may need more than the quarter of a second for which this code lives.
    expected["fleeting"] = (expected["fleeting"], "lingering_")
    wrong = judge(doc, expected)
    print("RESULT", json.dumps({"torch": doc["target"].get("torch"), "rows": len(doc["rows"]), "wrong": wrong}), flush=True)
except BaseException:
    traceback.print_exc()
sys.stdout.flush()
os.sync()
libc.reboot(0x4321FEDC)

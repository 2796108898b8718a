# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Process 1 of the small machine that run.py makes: mounts what the tool needs, runs golden.py, turns the machine off."""
import ctypes
import os
import subprocess
import sys
import traceback

libc = ctypes.CDLL(None, use_errno=True)
for kind, where in (("proc", "/proc"), ("sysfs", "/sys"), ("devtmpfs", "/dev"), ("tracefs", "/sys/kernel/tracing"), ("tmpfs", "/tmp"), ("cgroup2", "/sys/fs/cgroup")):
    os.makedirs(where, exist_ok=True)
    if libc.mount(kind.encode(), where.encode(), kind.encode(), 0, None):
        print("mount %s: %s" % (where, os.strerror(ctypes.get_errno())))
try:
    os.environ["PATH"] = "/usr/bin:/bin"
    print("KERNEL", os.uname().release, flush=True)
    print(subprocess.run(["/memtrace-bpf", "check"], capture_output=True, text=True, check=False).stdout, flush=True)
    if os.path.exists("/kernels/many.py"):
        done = subprocess.run([sys.executable, "/kernels/many.py", "/memtrace-bpf", "/tmp", "/storm", "/hooks/libc10.so"], capture_output=True, text=True, check=False)
        print(done.stdout, done.stderr, "EXIT", done.returncode, flush=True)
    with open("/proc/cmdline", encoding="utf-8") as f:
        cmdline = f.read().split()
    quick = ["quick"] if "golden=quick" in cmdline else []
    for arg in cmdline:
        if arg.startswith("stall="):
            done = subprocess.run([sys.executable, "/kernels/stall.py", "/memtrace-bpf", "/map_stall", *arg[6:].split(",")], capture_output=True, text=True, timeout=800, check=False)
            print(done.stdout, done.stderr, flush=True)
    if "only-stall" in cmdline:
        raise SystemExit
    print("ENDINGS begin", flush=True)
    done = subprocess.run([sys.executable, "/kernels/killed.py", "/memtrace-bpf", "/libc10.so", "/tmp"], capture_output=True, text=True, timeout=300, check=False)
    print(done.stdout, done.stderr, flush=True)
    for bench in ("",) if quick else ("", "filter"):
        print("WAY", "the programs'" if bench else "the kernel's", flush=True)
        done = subprocess.run([sys.executable, "/kernels/golden.py", "/memtrace-bpf", "/libc10.so", "/tmp", *quick], capture_output=True, text=True, timeout=600,
                              check=False, env={**os.environ, "MEMTRACE_BENCH": bench})
        print(done.stdout, done.stderr, "EXIT", done.returncode, flush=True)
except SystemExit:
    pass
except BaseException:
    traceback.print_exc()
sys.stdout.flush()
os.sync()
libc.reboot(0x4321FEDC)

# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Jobs recorded from inside: inside.py train [FILE] | busy THREADS TENSORS | filtered | endless. All except the last are deterministic.
train waits for FILE in its second step.
"""
import ctypes
import json
import os
import signal
import struct
import subprocess
import sys
import threading
import time

PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, FILTER = 38, 22, 2
PROCESS_VM_READV, PTRACE, EPERM = 310, 101, 1


class Refuse(ctypes.Structure):
    _fields_ = [("n", ctypes.c_ushort), ("program", ctypes.c_char_p)]


def refuse(*calls):
    """Makes the kernel answer these system calls with EPERM."""
    lines = [(0x20, 0, 0, 0)]  # loads the system call number
    for i, number in enumerate(calls):
        lines.append((0x15, len(calls) - i, 0, number))
    lines += [(0x06, 0, 0, 0x7fff0000), (0x06, 0, 0, 0x50000 | EPERM)]
    code = b"".join(struct.pack("HBBI", *line) for line in lines)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or libc.prctl(PR_SET_SECCOMP, FILTER, ctypes.byref(Refuse(len(lines), code)), 0, 0):
        raise OSError(ctypes.get_errno(), "no filter")


if sys.argv[1] == "filtered":
    refuse(PROCESS_VM_READV, PTRACE)

import torch  # noqa: E402


class Block(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up = torch.nn.Linear(width, 4 * width)
        self.down = torch.nn.Linear(4 * width, width)
        self.norm = torch.nn.LayerNorm(width)

    def forward(self, x):
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))


def in_thread(device, kept):
    for n in range(20):
        kept.append(torch.empty(1000 * (n + 1), device=device))


def in_child(device):
    """A forked process is not part of this recording."""
    pid = os.fork()
    if not pid:
        torch.empty(12345678)
        os._exit(5)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def train(device="cuda"):
    torch.manual_seed(0)
    said = {"traps": 0}

    def on_trap(_number, _frame):
        said["traps"] += 1

    signal.signal(signal.SIGTRAP, on_trap)
    model = torch.nn.Sequential(*[Block(64) for _ in range(3)]).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    kept = []
    for step in range(4):
        x = torch.randn(16, 32, 64, device=device)
        model(x).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step == 1:
            signal.raise_signal(signal.SIGTRAP)
            t = threading.Thread(target=in_thread, args=(device, kept))
            t.start()
            t.join()
            said["child"] = in_child(device)
            said["program"] = subprocess.run([sys.executable, "-c", "print(6 * 7)"], capture_output=True, text=True, check=True).stdout
            while len(sys.argv) > 2 and not os.path.exists(sys.argv[2]):
                time.sleep(0.05)
    said["handler"] = signal.getsignal(signal.SIGTRAP) is on_trap
    print(json.dumps(said), flush=True)


def busy(threads, tensors):
    """All threads allocate at once; prints the live tensors at the end, and exits without ending Python."""
    kept = [[] for _ in range(threads)]

    def some(mine):
        for n in range(tensors):
            x = torch.empty(100 + n % 7)
            if n % 1000 == 0:
                mine.append(x)

    for t in [threading.Thread(target=some, args=(mine,)) for mine in kept]:
        t.start()
    while threading.active_count() > 1:
        time.sleep(0.01)
    os.write(1, b"%d\n" % sum(t.untyped_storage().nbytes() for mine in kept for t in mine))
    os._exit(3)


def endless():
    """Allocates until a line of input."""
    stop = []
    threading.Thread(target=lambda: stop.append(sys.stdin.readline())).start()
    print("ready", flush=True)
    n = 0
    while not stop:
        torch.empty(1000)
        n += 1
    print("done", n > 0, flush=True)


if sys.argv[1] == "train":
    train()
elif sys.argv[1] == "busy":
    busy(int(sys.argv[2]), int(sys.argv[3]))
elif sys.argv[1] == "filtered":
    busy(1, 2000)
else:
    endless()

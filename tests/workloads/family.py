# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
A program whose processes allocate tensors of unique sizes and report them: each writes FOLDER/PID.json: {"pid", "parent",
"what", "made": [bytes, ...]}.

    family.py FOLDER what ...    prints "ready", waits for a line, does these, prints "done" with its children's exit codes,
    waits again

    fork     a child that begins with a tensor; it has a child of its own
    many     100 children in a row, each with two tensors
    quiet    20 children without tensors, 10 that exec /bin/true, 5 started with posix_spawn
    loader   a DataLoader with two forked workers
    spawn    the same with spawned workers
    exec     a child that executes this program with "leaf"
    leaf     its own tensors
    threads  forks while other threads run

As a rank of torchrun (RANK is set) it never waits.
"""
import json
import os
import subprocess
import sys
import threading
import time

import torch
from torch.utils.data import DataLoader, Dataset

FIRST = 200003
folder = sys.argv[1] if len(sys.argv) > 1 else "."
made = []


def make(n):
    """n tensors of unique sizes."""
    for _ in range(n):
        made.append(torch.empty(FIRST + 1009 * len(made), dtype=torch.uint8).numel())


def tell(what):
    path = os.path.join(folder, "%d.json" % os.getpid())
    with open(path + ".new", "w", encoding="ascii") as f:
        json.dump({"pid": os.getpid(), "parent": os.getppid(), "what": what, "made": made}, f)
    os.rename(path + ".new", path)


def forked(function):
    """Runs it in a child; the child's exit code."""
    pid = os.fork()
    if not pid:
        first = torch.empty(FIRST, dtype=torch.uint8) if function is not nothing else None
        code = 1
        try:
            made[:] = [first.numel()] if first is not None else []
            function()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def nothing():
    pass


def child():
    make(40)
    if forked(grandchild):
        raise SystemError("the grandchild failed")
    make(5)
    tell("fork")


def grandchild():
    make(20)
    tell("grandchild")
    time.sleep(0.3)


def brief():
    make(1)
    tell("many")


class Numbers(Dataset):
    def __len__(self):
        return 32

    def __getitem__(self, i):
        if torch.utils.data.get_worker_info():
            if not i or not os.path.exists(os.path.join(folder, "%d.json" % os.getpid())):
                made.clear()
            make(3)
            tell("worker")
        return torch.full((1000,), float(i))


def load(context):
    total = sum(float(b.sum()) for b in DataLoader(Numbers(), batch_size=4, num_workers=2, multiprocessing_context=context))
    return 0 if total == 496000.0 else 1


def become():
    pid = os.fork()
    if not pid:
        try:
            os.execv(sys.executable, [sys.executable, os.path.abspath(__file__), folder, "leaf"])
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def with_threads():
    stop = threading.Event()

    def work():
        while not stop.is_set():
            torch.empty(1000, dtype=torch.uint8)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for t in threads:
        t.start()
    codes = [forked(brief) for _ in range(10)]
    stop.set()
    for t in threads:
        t.join()
    return codes


def quiet():
    codes = [forked(nothing) for _ in range(20)]
    codes += [subprocess.run(["/bin/true"], check=False).returncode for _ in range(10)]
    pids = [os.posix_spawn("/bin/true", ["true"], {}) for _ in range(5)]
    return codes + [os.waitstatus_to_exitcode(os.waitpid(p, 0)[1]) for p in pids]


def leaf():
    make(30)
    tell("leaf" if "RANK" not in os.environ else "rank")
    time.sleep(0.3)  # code freed at the program's end has no name if it is less than one drain interval old
    return 0


WHAT = {"fork": lambda: forked(child), "many": lambda: [forked(brief) for _ in range(100)], "quiet": quiet, "exec": become,
        "loader": lambda: load("fork"), "spawn": lambda: load("spawn"), "leaf": leaf, "threads": with_threads}


def main():
    torch.set_num_threads(1)
    waits = sys.argv[2:] != ["leaf"]
    if waits:
        print("ready", flush=True)
        sys.stdin.readline()
    codes = {what: WHAT[what]() for what in sys.argv[2:]}
    if waits:
        make(10)
        tell("first")
        print("done " + json.dumps(codes), flush=True)
        sys.stdin.readline()


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
Code objects made and freed as fast as possible, so that addresses are reused for other code. Each runs once or a few times and
allocates a tensor of a unique size; it is freed at once, after a moment or later.

Prints "ready", waits for a line on standard input, runs for --seconds, writes [[size, file, line, function, caller's file,
caller's line], ...] to EXPECTED, prints "done ALLOCATIONS ADDRESSES", and ends with the input. The caller is a piece of such
code, too.
"""
import argparse
import json
import random
import sys
import threading
import time
import types

import torch

SOURCE = """
def inner(new, size):
    return new(size)


def outer(inner, new, size):

    return inner(new, size)
"""
FILLED = "def inner(new, size):\n" + "    pass\n" * 3 + "    x = new(size); return x\n"
templates = {}
for text, names in ((SOURCE, ("inner", "outer")), (FILLED, ("filled",))):
    scope = {}
    exec(compile(text.replace("inner(new, size):", names[0] + "(new, size):", 1), "template.py", "exec"), scope)
    for name in names:
        function = scope[name]
        line = {"inner": 1, "outer": 2, "filled": 4}[name]
        templates[name] = (function.__code__, line)
lock = threading.Lock()
made = 0
rows = []
addresses = set()


def new(size):
    return torch.empty(size, dtype=torch.uint8)


def take(n):
    """n unique sizes."""
    global made
    with lock:
        made += n
        return made - n + 1


def generated(rnd, kind):
    """A function with its own code: (function, file, line of the call in it, name)."""
    code, offset = templates[kind]
    first = 1 + int(rnd.random() * 500)
    name = "%s_%d" % (kind, int(rnd.random() * 100000))
    changes = {"co_filename": name + ".py", "co_firstlineno": first, "co_name": name}
    if hasattr(code, "co_qualname"):
        changes["co_qualname"] = name
    code = code.replace(**changes)
    addresses.add(id(code))
    return types.FunctionType(code, {}), name + ".py", first + offset, name


def work(seed, until):
    rnd = random.Random(seed)
    pool = []
    mine = []
    while time.monotonic() < until:
        inner = generated(rnd, "inner" if rnd.random() < 0.5 else "filled")
        outer = generated(rnd, "outer") if rnd.random() < 0.7 or not pool else rnd.choice(pool)
        times = 1 + int(rnd.random() * 2)
        size = take(times)
        for i in range(times):
            outer[0](inner[0], new, size + i)
            mine.append((size + i, *inner[1:], *outer[1:3]))
        # Most are freed here; some are kept for a moment, some longer.
        chance = rnd.random()
        if chance < 0.1:
            pool.append(outer)
        if chance < 0.002 or len(pool) > 200:
            time.sleep(0.03)
            del pool[:100]
        if chance > 0.995:
            compile("\n" * int(chance * 50) + "x = 1", "other_%d.py" % size, "exec")
    with lock:
        rows.extend(mine)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("expected", help="file for the answer")
    p.add_argument("--seconds", type=float, default=3)
    p.add_argument("--threads", type=int, default=2)
    args = p.parse_args()
    torch.set_num_threads(1)
    print("ready", flush=True)
    if not sys.stdin.readline():
        return
    until = time.monotonic() + args.seconds
    threads = [threading.Thread(target=work, args=(i, until)) for i in range(args.threads)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    with open(args.expected, "w", encoding="utf-8") as f:
        json.dump(rows, f)
    print("done %d %d" % (len(rows), len(addresses)), flush=True)
    sys.stdin.readline()


if __name__ == "__main__":
    main()

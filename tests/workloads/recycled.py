# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
A thread whose handled exception and an object with pointers to a list take turns at one address, some 100 us each. Tensors are stood in
for as in holders.py; their only name is the one printed. It ends when its input does.
"""
import os
import sys
import threading
import time


class TensorBase:
    pass


class Tensor(TensorBase):
    pass


class Module:
    pass


class Record:
    """As large as a ValueError, so it takes the memory of one that was freed."""
    __slots__ = tuple("field%d" % i for i in range((ValueError.__basicsize__ - object.__basicsize__) // 8))


kept = [Tensor() for _ in range(3)]
deep = {"a": {"b": {"c": {"d": kept}}}}


def wait():
    end = time.perf_counter() + 1e-4
    while time.perf_counter() < end:
        pass


def fill(record, last):
    last.append(id(record))
    for name in Record.__slots__:
        setattr(record, name, deep["a"]["b"]["c"]["d"])
    return record


def take_turns():
    same = 0
    for turn in range(1 << 60):
        last = []
        fill(Record(), last), wait()  # no variable holds the record while this thread waits
        try:
            raise ValueError
        except ValueError as e:
            same += id(e) in last
            wait()
        if turn == 99:
            print("same", same, sep="\t")
            print("ready", flush=True)


print("types", id(TensorBase), id(Tensor), id(Module), sep="\t")
for tensor in kept:
    print("hold", id(tensor), "global deep['a']['b']['c']['d'][*]", sep="\t")
del kept, tensor
threading.Thread(target=take_turns, daemon=True).start()
sys.stdin.read()
os._exit(0)

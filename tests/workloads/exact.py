# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
A target with a known answer: a prime number of tensors of unique sizes, made at known lines in every kind of place that Python
code has.

Prints "ready", waits for a line on standard input, allocates, writes what a recording must show to EXPECTED, prints "done", and
keeps everything alive until the next line (or the end of input).

The truth comes from Python itself: note() reads its caller's frame while the allocating line is still running, so file, line and
function are the interpreter's. Supports torch 1.13 and Python 3.8 or later.
"""
import argparse
import asyncio
import functools
import importlib.util
import json
import os
import sys
import threading
import time

import torch
import torch.nn as nn

TOTAL = 1009  # a prime
GENERATED = 61  # code objects freed within microseconds after one run
LINGERING = 13  # the same, freed after 0.25 s: a recorder that a loaded machine holds up has read them by then
DEEP = 220  # frames of recursion, more than a recorder needs to keep

keep = []
stay = []  # code that is kept
rows = {}
lock = threading.Lock()
made = 0
dropped = 0


def size():
    """Unique sizes: the bytes of a row identify its tensors."""
    global made
    with lock:
        made += 1
        return 1000 + 24 * made + made * made % 17


def name_of(code):
    """The qualified name if code objects have it: from 3.11 on."""
    return getattr(code, "co_qualname", code.co_name)


def note(tensor, module="", held=True):
    """Notes a tensor with the caller's line; held=False: it is freed on return."""
    global dropped
    nbytes = tensor.numel() * tensor.element_size()
    if not held:
        with lock:
            dropped += 1
        return None
    frame = sys._getframe(1)
    key = (frame.f_code.co_filename, frame.f_lineno, name_of(frame.f_code), module)
    with lock:
        row = rows.setdefault(key, [0, 0])
        row[0] += 1
        row[1] += nbytes
        keep.append(tensor)
    return tensor


new = functools.partial(torch.empty, dtype=torch.uint8)


# ---- plain places ---------------------------------------------------------------------------------------

def in_loop(n):
    for _ in range(n):
        note(new(size()))
        note(new(size()), held=False)
        new(0)  # no memory, so no block


def on_adjacent_lines():
    note(new(size()))
    note(new(size())); note(new(size()))

    note(new(size()))


def far_down():
    # A line table with large steps: more than 255 lines or 127 bytes between two entries have another encoding.
    text = "def spread(note, new, size):\n" + "\n" * 700 + "    note(new(size()))\n" + \
        "    x = [" + "0, " * 400 + "]\n" + "    note(new(size()))\n" + "\n" * 70000 + "    note(new(size()))\n"
    scope = {}
    exec(compile(text, os.path.join(os.getcwd(), "spread_out.py"), "exec"), scope)
    scope["spread"](note, new, size)
    stay.append(scope)


def in_comprehensions(n):
    [note(new(size())) for _ in range(n)]
    {i: note(new(size())) for i in range(n)}
    {id(note(new(size()))) for _ in range(n)}
    [[note(new(size())) for _ in range(3)] for _ in range(3)]
    list(note(new(size())) for _ in range(n))


def in_lambdas(n):
    make = lambda: note(new(size()))
    for _ in range(n):
        make()
    list(map(lambda _: note(new(size())), range(n)))
    sorted(range(n), key=lambda _: (note(new(size())), 0)[1])


def in_closures(n):
    count = 0

    def closure():
        nonlocal count
        count += 1
        note(new(size()))

        def inner():
            return note(new(size())), count
        return inner
    for _ in range(n):
        closure()()


def decorated(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        note(new(size()))
        return function(*args, **kwargs)
    return wrapper


@decorated
def in_decorated():
    note(new(size()))


def in_try():
    try:
        note(new(size()))
        raise ValueError
    except ValueError:
        note(new(size()))
    finally:
        note(new(size()))
    with torch.no_grad():
        note(new(size()))


class Descriptor:
    def __get__(self, instance, owner):
        return note(new(size()))


class Special:
    value = Descriptor()

    def __init__(self):
        note(new(size()))

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return note(new(size()))

    def __iter__(self):
        yield note(new(size()))

    def __call__(self):
        return note(new(size()))

    def __del__(self):
        note(new(size()))

    @property
    def prop(self):
        return note(new(size()))

    @classmethod
    def of_class(cls):
        return note(new(size()))

    @staticmethod
    def static():
        return note(new(size()))


def in_special_methods():
    s = Special()
    s.value, s.missing, list(s), s(), s.prop, Special.of_class(), Special.static()
    del s


def in_class_body():
    class Holder:
        weights = note(new(size()))
        more = [note(new(size())) for _ in range(2)]

        class Inner:
            weights = note(new(size()))


# ---- short-lived frames ----------------------------------------------------------------------------------

def generator(n):
    for _ in range(n):
        yield note(new(size()))


def delegating(n):
    yield from generator(n)
    received = yield
    note(received)


def in_generators(n):
    list(generator(n))
    d = delegating(n)
    for _ in range(n + 1):
        next(d)
    try:
        d.send(new(size()))  # allocated on this line, noted by the generator: see below
    except StopIteration:
        pass
    move_last(sys._getframe(), in_generators.__code__.co_firstlineno + 6)


def move_last(frame, line):
    """Corrects the last note: another frame made the allocation."""
    tensor = keep[-1]
    where = next(k for k, row in rows.items() if k[2].endswith("delegating"))
    rows[where][0] -= 1
    rows[where][1] -= tensor.numel()
    if not rows[where][0]:
        del rows[where]
    row = rows.setdefault((frame.f_code.co_filename, line, name_of(frame.f_code), ""), [0, 0])
    row[0] += 1
    row[1] += tensor.numel()


async def coroutine(i):
    note(new(size()))
    await asyncio.sleep(0.001 * (i % 3))
    note(new(size()))


async def async_generator(n):
    for _ in range(n):
        await asyncio.sleep(0)
        yield note(new(size()))


class AsyncContext:
    async def __aenter__(self):
        return note(new(size()))

    async def __aexit__(self, *exc):
        note(new(size()))


async def async_main(n):
    await asyncio.gather(*[coroutine(i) for i in range(n)])
    async for _ in async_generator(n):
        pass
    [x async for x in async_generator(3)]
    async with AsyncContext():
        pass


def recursion(depth):
    if depth == 0:
        return note(new(size()))
    return recursion(depth - 1)


def in_threads(n):
    def body():
        for _ in range(n):
            note(new(size()))
    threads = [threading.Thread(target=body) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()


def in_generated_code(n, pause):
    """Code objects that run once and are freed, so that the next one mostly gets the same address. Not all of them can be read
    from outside in time. Their tensors may be charged to the calling line here, but never to other code at that address."""
    addresses = set()
    for i in range(n):
        name = "%s_%d" % ("lingering" if pause else "generated", i)
        text = "\n" * i + "def %s(note, new, size):\n" % name + "\n" * (i % 7) + "    note(new(size()))\n"
        scope = {}
        code = compile(text, os.path.join(os.getcwd(), name + ".py"), "exec")
        exec(code, scope)
        function = scope.pop(name)
        addresses.add(id(function.__code__))
        function(note, new, size)
        if pause:
            time.sleep(pause)
        del code, function, scope
    return len(addresses)


# ---- names outside ASCII: Latin-1, two bytes per character, four ------------------------------------------

FOREIGN = (("größe", "größe_ändern"), ("模块_модуль", "функция_関数"), ("tensor_🔥", "𠀋_四"))


def in_foreign_names(folder):
    for i, (file, function) in enumerate(FOREIGN):
        path = os.path.join(folder, file + ".py")
        with open(path, "w", encoding="utf-8") as f:
            f.write("# %s\ndef %s(note, new, size):\n    note(new(size()))\n" % (file, function))
        spec = importlib.util.spec_from_file_location("foreign_%d" % i, path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        getattr(module, function)(note, new, size)
        stay.append(module)


# ---- modules ----------------------------------------------------------------------------------------------

class Leaf(nn.Module):
    def __init__(self, name):
        super().__init__()
        self.path = name

    def forward(self, n):
        for _ in range(n):
            note(new(size()), self.path)
        return self.helper()

    def helper(self):
        return note(new(size()), self.path)


class Captures(Leaf):
    """`self` is in a cell here, because an inner function uses it."""

    def forward(self, n):
        def inner():
            return note(new(size()), self.path)
        note(new(size()), self.path)
        [inner() for _ in range(n)]
        [note(new(size()), self.path) for _ in range(n)]
        return inner()


class Hooked(Leaf):
    def forward(self, n):
        return note(new(size()), self.path)


class Recursive(Leaf):
    """Calls itself: the same module twice in a stack."""

    def forward(self, n):
        note(new(size()), self.path)
        if n:
            self(n - 1)


class Branch(nn.Module):
    def __init__(self, name):
        super().__init__()
        self.path = name
        self.leaf = Leaf(name + ".leaf")
        self.captures = Captures(name + ".captures")
        self.hooked = Hooked(name + ".hooked")
        self.recursive = Recursive(name + ".recursive")
        self.hooked.register_forward_pre_hook(self.before)
        self.hooked.register_forward_hook(self.after)

    def before(self, module, args):
        note(new(size()), module.path)

    def after(self, module, args, output):
        note(new(size()), module.path)

    def forward(self, n):
        note(new(size()), self.path)
        self.leaf(n)
        self.captures(n)
        self.hooked(n)
        self.recursive(n)
        note(new(size()), self.path)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = Branch("first")
        self.layers = nn.ModuleList([Branch("layers.%d" % i) for i in range(3)])
        self.blocks = nn.ModuleDict({"größe": Branch("blocks.größe")})

    def forward(self, n):
        note(new(size()))
        self.first(n)
        for layer in self.layers:
            layer(n)
        self.blocks["größe"](n)


def fill(count):
    for _ in range(count):
        note(new(size()))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("expected", help="file for what a recording must show")
    p.add_argument("folder", help="an existing folder for generated sources")
    args = p.parse_args()
    torch.set_num_threads(1)
    model = Model()
    print("ready", flush=True)
    if not sys.stdin.readline():
        return
    in_loop(13)
    on_adjacent_lines()
    far_down()
    in_comprehensions(5)
    in_lambdas(5)
    in_closures(5)
    in_decorated()
    in_try()
    in_special_methods()
    in_class_body()
    in_generators(7)
    asyncio.run(async_main(7))
    for depth in (0, 1, 100, 126, 127, 128, 129, DEEP):
        recursion(depth)
    in_threads(29)
    in_generated_code(GENERATED, 0)
    reused = LINGERING - in_generated_code(LINGERING, 0.25)
    in_foreign_names(args.folder)
    model(3)
    model.eval()
    model(2)
    fill(TOTAL - len(keep))

    assert len(keep) == TOTAL and len({t.numel() for t in keep}) == TOTAL
    assert reused > 0, "no two code objects had the same address: the test tests nothing"
    answer = {"rows": [{"file": k[0], "line": k[1], "function": k[2], "module": k[3], "count": v[0], "bytes": v[1]}
                       for k, v in sorted(rows.items())],
              "count": TOTAL, "bytes": sum(t.numel() for t in keep),
              "allocs": TOTAL + dropped, "frees": dropped,
              "fleeting": "generated_", "fleeting_caller": name_of(in_generated_code.__code__)}
    with open(args.expected, "w", encoding="utf-8") as f:
        json.dump(answer, f)
    print("done", flush=True)
    sys.stdin.readline()


if __name__ == "__main__":
    main()

# -*- coding: utf-8 -*-
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
Threads that stand still in many kinds of Python stacks, with the interpreter's own view of them.

Prints lines of tab-separated fields, names as the hex of their UTF-8:

    version MAJOR MINOR MICRO, modules ADDRESS, stdlib HEX
    thread IDENT NATIVE HEX-NAME, then its frames, innermost first: frame HEX-NAME HEX-FILE LINE SELF; SELF: the address of a
    plain first local named self, 0 if deleted, otherwise "-"
    empty ADDRESS       a thread state without frames
    sub HEX-NAME LINE   a subinterpreter's thread, and its innermost frame
    ready

Then it waits for a byte of input: "r" starts threads that run without rest (then prints "running"), "q" or the end of input ends
it.
"""
import _thread
import functools
import os
import sys
import threading
import time

gate = _thread.allocate_lock()
gate.acquire()


# A thread's innermost function has one line, so the thread is on that line at every instruction.
def blocked(*args, **kwargs): gate.acquire()
def sleeping(): time.sleep(100000)


def nested(a=1, b=2):
    x = [i for i in range(10)]

    def inner(c):
        return inner2(
            c,
            x,
        )

    def inner2(c,
               d):
        if c:
            sleeping()
        return d

    return (inner(a)
            + [b])


def deep(n):
    if n:
        return deep(n - 1) + 1
    return blocked()


def through_c(n):
    """Each level passes through C code, with an interpreter's shim frame from 3.12 on."""
    if n % 3 == 1:
        return list(map(through_c, [n - 1]))
    if n % 3 == 2:
        return sorted([n, n - 1], key=lambda k:
                      through_c(n - 1))
    if n:
        return functools.partial(through_c, n - 1)()
    blocked()


def generator(n):
    for i in range(n):
        got = yield i
        if i == n - 1:
            yield from inner_generator(
                got)


def inner_generator(x):
    yield blocked(
        x)


def generators():
    outer = (x * 2 for x in generator(3))
    return sum(outer)


class Awaitable(object):
    def __await__(self):
        yield 1
        blocked()


async def coroutine(n):
    if n:
        return await coroutine(n - 1)
    await Awaitable()


async def agen():
    yield 1
    await coroutine(2)
    yield 2


async def over_agen():
    return [
        x
        async for x in agen()
    ]


def coroutines():
    c = over_agen()
    c.send(None)
    c.send(None)


def asyncs():
    import asyncio

    async def task():
        await asyncio.sleep(0)
        sleeping()

    async def main():
        await asyncio.gather(
            task(),
        )

    getattr(asyncio, "run", None)(main())


class Meta(type):
    def __call__(cls, *args):
        return super().__call__(*args)


class Thing(metaclass=Meta):
    def __init__(self, n):
        self.n = n
        self.go()

    def go(self):
        with self as s:
            return s

    def __enter__(self):
        return self.value + 1

    def __exit__(self, *exc):
        pass

    @property
    def value(self):
        try:
            raise ValueError(
                self.n)
        except ValueError as e:
            return self(e)
        finally:
            self.n = 0

    def __call__(self, e):
        def hidden():
            return self.captured(e)
        return hidden()

    def captured(self, *args, **kwargs):
        f = lambda: (self,
                     blocked(
                         *args))
        return f()


def things():
    Thing(3)


def évaluer_größe():
    class Ключ:
        def 値(self): blocked()
    Ключ().値()


def compiled():
    names = {"blocked": blocked}
    text = "\n" * 700 + "def far():\n" + "    x = 1\n" * 300 + "    return blocked(x,\n" + "\n" * 300 + " x)\n"
    exec(compile(text, u"<généré \u5024 \U0001f40d>", "exec"), names)
    exec("\n\neval('far()')\n", names)


def deleted(self=1):
    del self
    blocked()


CASES = [nested, functools.partial(deep, 300), functools.partial(through_c, 60), generators, coroutines, asyncs,
         things, évaluer_größe, compiled, deleted]

SUB = """
import time
def waits(): time.sleep(100000)
waits()
"""


def start_sub():
    """A subinterpreter in its own thread; the module's name depends on the version."""
    for name in ("_interpreters", "_xxsubinterpreters"):
        try:
            sub = __import__(name)
            break
        except ImportError:
            pass
    else:
        return False
    interp = sub.create()
    threading.Thread(target=lambda: sub.run_string(interp, SUB), daemon=True).start()
    return True


def empty_state():
    """A thread state that never runs anything."""
    try:
        import ctypes
    except ImportError:
        return 0
    api = ctypes.pythonapi
    for f in api.PyInterpreterState_Main, api.PyThreadState_New:
        f.restype = ctypes.c_void_p
    api.PyThreadState_New.argtypes = [ctypes.c_void_p]
    return api.PyThreadState_New(api.PyInterpreterState_Main())


def hexed(text):
    return text.encode().hex() or "-"


def self_of(frame):
    code = frame.f_code
    if code.co_varnames[:1] != ("self",) or "self" in code.co_cellvars:
        return "-"
    return "%d" % id(frame.f_locals["self"]) if "self" in frame.f_locals else "0"


def tell_thread(out, thread, frame, line=None):
    out.append("thread\t%d\t%d\t%s" % (thread.ident, getattr(thread, "native_id", 0), hexed(thread.name)))
    while frame:
        code = frame.f_code
        name = getattr(code, "co_qualname", code.co_name)
        out.append("frame\t%s\t%s\t%d\t%s" % (hexed(name), hexed(code.co_filename), line or frame.f_lineno,
                                              self_of(frame)))
        line = None
        frame = frame.f_back


def settled(threads):
    frames = sys._current_frames()
    for t in threads:
        if t.ident not in frames or frames[t.ident].f_code.co_name not in ("blocked", "sleeping"):
            return False
    return True


def hold(threads, empty, sub):
    line = hold.__code__.co_firstlineno + 19
    out = ["version\t%d\t%d\t%d" % sys.version_info[:3], "modules\t%d" % id(sys.modules),
           "stdlib\t%s" % hexed(os.path.dirname(os.__file__))]
    frames = sys._current_frames()
    for t in threads:
        tell_thread(out, t, frames[t.ident])
    del frames
    tell_thread(out, threading.main_thread(), sys._getframe(), line)
    if empty:
        out.append("empty\t%d" % empty)
    if sub:
        out.append("sub\t%s\t3" % hexed("waits"))
    out.append("ready")
    text = "\n".join(out) + "\n"
    sys.stdout.buffer.write(text.encode())
    sys.stdout.buffer.flush()
    del text, out

    return os.read(0, 1)


def churn(n=0):
    while True:
        for k in range(5 + n % 60):
            exec("def f(n): return n and f(n - 1)\nf(%d)" % k, {})
        n += 1


def yielding():
    """A generator's frame is linked to its caller's only while it runs."""
    def numbers():
        for i in range(50):
            yield i

    while True:
        for i in numbers():
            sum(j for j in numbers())


def short_lived():
    while True:
        t = threading.Thread(target=len, args=((),))
        t.start()
        t.join()


def main():
    threads = []
    for case in CASES:
        t = threading.Thread(target=case, name=getattr(case, "__name__", "partial"), daemon=True)
        t.start()
        threads.append(t)
    sub = start_sub()
    while not settled(threads):
        time.sleep(0.01)
    time.sleep(0.3 if sub else 0)
    if hold(threads, empty_state(), sub) == b"r":
        for target in (churn, churn, yielding, short_lived):
            threading.Thread(target=target, daemon=True).start()
        sys.stdout.buffer.write(b"running\n")
        sys.stdout.buffer.flush()
        os.read(0, 2)
        while os.read(0, 1) not in (b"q", b""):
            pass
    os._exit(0)


main()

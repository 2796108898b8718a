#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
Prints line tables of this interpreter, with the lines that it reads from them:

    python3.N gen_linetables.py > linetables-3.N.txt

A block per code object: "code NAME FIRSTLINENO", "table HEX" (co_lnotab or co_linetable), then "START END LINE" for each range
of bytecode offsets, LINE 0 if there is none, then "end".
"""
import dis
import sys
import textwrap
import types

SOURCES = []


def source(text):
    SOURCES.append(textwrap.dedent(text))


source('''
    """Calls over several lines, the shapes of everyday code."""
    import os

    def calls(a,
              b=2,
              *args,
              key=None):
        x = max(
            a,
            b,
            len(
                "abc"
            ),
        )
        y = [
            i * x
            for i in range(10)
            if i
        ]
        return dict(
            x=x,
            y=(y,
               y[0]),
            key=key,
        )

    def backwards(f):
        return (f
                (1)
                [2]
                .attr
                +
                f(
                    3
                )
                )

    def loops(n):
        total = 0
        for i in range(n):
            while i:
                i -= 1
                if i % 2:
                    continue
                total += i
            else:
                total += 1
        return total

    def tries(f):
        try:
            f()
        except (ValueError,
                TypeError) as e:
            return e
        except KeyError:
            raise
        else:
            f(1)
        finally:
            f(2)
        with open(os.devnull) as a, \\
                open(os.devnull) as b:
            return a, b

    def comprehensions(n):
        a = {k: v for k, v in zip(range(n),
                                  range(n))}
        b = {
            x
            for y in a
            for x in (y,
                      y)
        }
        c = (lambda q: q +
             1)
        return list(
            c(x) for x in b
        )

    def generator(n):
        for i in range(n):
            got = yield (
                i,
                i + 1,
            )
            yield from (got,
                        i)

    async def coroutine(n):
        async with n as m:
            await m
        async for x in n:
            await x(
                1,
            )
        return [y async for y in n]

    @staticmethod
    @property
    def decorated(a=1,
                  b=lambda:
                  3):
        def inner():
            nonlocal a
            a += 1
            return a
        return inner

    class Thing(object,
                metaclass=type):
        attribute = 1

        def method(self):
            assert self, (
                "message"
            )
            del self.attribute
            return super().method()

    if __name__ == "__main__":
        calls(1)
    elif os.name:
        loops(
            2
        )
''')

# Lines further apart than the largest step of an entry.
for gap in (100, 126, 127, 128, 129, 254, 255, 256, 300, 511, 1000, 40000):
    source("def gap%d(f):\n    a = f(1)\n%s    b = f(\n        2)\n    return a, b\n" % (gap, "\n" * gap))
    source("def back%d(f):\n    return f(1,%s 2\n)(f(3))\n" % (gap, "\n" * gap))

# More bytecode on one line than an entry can cover.
for n in (62, 63, 64, 65, 127, 128, 129, 300):
    source("def long%d(f):\n    x = (%s)\n    return x\n" % (n, " + ".join(["f"] * n)))
for n in (20, 64, 130):
    source("def lists%d(f):\n    x = [%s]\n\n\n    y = f(%s\n)\n    return x, y\n"
           % (n, ", ".join("f(%d)" % i for i in range(n)), "\n, ".join("f" for i in range(n))))

# A column over 255, and jumps over much code.
source("def wide(f):\n    return f(" + " " * 300 + "f, f(\n1))\n")
source("def jump(f):\n    while f():\n        if f(1):\n            break\n" +
       "".join("        f(%d,\n          f)\n" % i for i in range(100)) + "    return f\n")


def ranges(code):
    if hasattr(code, "co_lines"):
        for start, end, line in code.co_lines():
            yield start, end, line or 0
        return
    starts = list(dis.findlinestarts(code))
    for (start, line), nxt in zip(starts, starts[1:] + [(len(code.co_code), 0)]):
        yield start, nxt[0], line


def dump(code):
    table = code.co_linetable if hasattr(code, "co_linetable") else code.co_lnotab
    print("code", code.co_name.replace(" ", "_"), code.co_firstlineno)
    print("table", table.hex())
    merged = []
    for start, end, line in ranges(code):
        if merged and merged[-1][1:] == [start, line]:
            merged[-1][1] = end
        elif start < end:
            merged.append([start, end, line])
    for r in merged:
        print(*r)
    print("end")
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            dump(const)


print("python %d.%d.%d" % sys.version_info[:3])
for text in SOURCES:
    dump(compile(text, "made.py", "exec"))

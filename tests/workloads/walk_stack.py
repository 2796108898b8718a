# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""One thread in a stack of many kinds of frames, for an image of it (tests/tools/walk_image.c). Prints the addresses of
the objects whose _wrapped_call_impl is on it, innermost first, then "ready", and sleeps."""
import functools
import sys
import time


class Module(object):
    def _wrapped_call_impl(self, *args):
        return self.forward(*args)

    __call__ = _wrapped_call_impl


class Captured(Module):
    """A closure captures self, which is in a cell then."""

    def _wrapped_call_impl(self, *args):
        def inner():
            return self.forward(*args)

        return inner()

    __call__ = _wrapped_call_impl


class Inner(Module):
    def forward(self):
        print("%d %d ready" % (id(self), id(outer)))
        sys.stdout.flush()
        time.sleep(600)


# Before 3.11, captured arguments are in another place.
class Outer(Captured if sys.version_info >= (3, 11) else Module):
    def forward(self, n):
        return deep(n)


def deep(n):
    if n:
        return deep(n - 1)
    return sorted([1, 2], key=functools.partial(by, Inner()))


def by(module, k):
    return list(generator(module))


def generator(module):
    yield [module() for _ in range(1)]


outer = Outer()
list(map(outer, [3]))

# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
Every kind of holder, each with objects of a class that stands in for torch.Tensor. Prints the addresses of the classes, and of each object
with the name of its place, one tab-separated line each. It ends when its input does.
"""
import collections
import functools
import sys
import threading
import types


class TensorBase:
    pass


class Tensor(TensorBase):
    pass


class Module:
    pass


HOLDS = []


def some(name, n=3):
    """Objects that a place of this name holds. Without a list of their own, they are found in this place only."""
    made = [Tensor() for _ in range(n)]
    HOLDS.extend((id(t), name) for t in made)
    return made


def one(name):
    return some(name, 1)[0]


def main():
    print("types", id(TensorBase), id(Tensor), id(Module), sep="\t")
    for address, name in HOLDS:
        print("hold", address, name, sep="\t")
    print("ready", flush=True)
    sys.stdin.read()


a_list, a_tuple = some("global a_list[*]"), tuple(some("global a_tuple[*]"))
long_list = some("global long_list[*]", 20000)
a_set, frozen = set(some("global a_set[*]")), frozenset(some("global frozen[*]"))
big_set = set(some("global big_set[*]", 20000))
by_word, by_number = {"x": one("global by_word['x']")}, dict(enumerate(some("global by_number[*]")))
grown = {str(i): t for i, t in enumerate(some("global grown[*]", 5000))}
default = collections.defaultdict(list, k=some("global default['k'][*]"))
ordered = collections.OrderedDict(x=one("global ordered['x']"))
queue, long_queue = collections.deque(some("global queue[*]")), collections.deque(some("global long_queue[*]", 5000))
long_queue.rotate(70)
alone = one("global alone")


class Session:
    opened = some("global Session.opened[*]")

    @functools.lru_cache(maxsize=64)
    def load(self, i):
        return one("global Session.load's cache[*]")

    def __init__(self):
        self.loss, self.number = one("global session.loss"), 7
        self.bound = self.method

    def method(self):
        return self


session = Session()
for number in range(3):
    session.load(number)


@functools.lru_cache(maxsize=None)
def read(i, j):
    return one("global read's cache[*]")


for number in range(3):
    read(number, "x")


@functools.lru_cache(maxsize=None)
def seen(t):
    return 0


for thing in some("global seen's cache[*][*]"):
    seen(thing)
del thing


def closure(kept):
    return lambda: kept


closed = closure(some("global closed's cell kept[*]"))
part = functools.partial(print, *some("global part.args[*]"), end=one("global part.keywords['end']"))
nested_part = functools.partial(closure(some("global nested_part.func's cell kept[*]")))


def with_defaults(x=some("global with_defaults's defaults[*][*]"), *, key=some("global with_defaults's defaults['key'][*]")):
    return x, key


def with_attributes():
    pass


with_attributes.kept = some("global with_attributes.kept[*]")
space = types.SimpleNamespace(out=some("global space.out[*]"))
proxy = types.MappingProxyType({"a": one("global proxy['a']")})
method = Session.method.__get__(types.SimpleNamespace(held=one("global method.__self__.held")))
local = threading.local()
local.kept = some("global local.kept[*]")
Pair = collections.namedtuple("Pair", "t i")
pairs = [Pair(t, 0) for t in some("global pairs[*][*]")]
other = types.ModuleType("other")
other.__file__ = "/srv/job/other.py"
other.results = some("global other.results[*]")
sys.modules["other"] = other

if __name__ == "__main__":
    main()

# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
Every kind of holder, each with objects of a class that stands in for torch.Tensor. Prints the addresses of the classes, and of each object
with the name of its place, one tab-separated line each. It ends when its input does.
"""
import asyncio
import collections
import concurrent.futures
import contextvars
import functools
import itertools
import queue as queues
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


def line(f):
    """Name and place of a function, as it ends a variable's name."""
    name = f.__qualname__ if sys.version_info >= (3, 11) else f.__name__
    return " in %s (holders.py:%d)" % (name, f.__code__.co_firstlineno)


deep, deep_later = ({"a": {"b": {"c": some("global %s['a']['b']['c'][*]" % name)}}} for name in ("deep", "deep_later"))


class Call(threading.Thread):
    """Runs a function that has a shorter way to a container than its global variable."""

    def __init__(self, of):
        super().__init__(daemon=True)
        self.of, self.entered, self.leave = of, threading.Event(), threading.Event()
        self.start()
        self.entered.wait()

    def run(self):
        kept = globals()[self.of]["a"]["b"]["c"]
        self.entered.set()
        self.leave.wait()
        kept.reverse()


def main():
    before = Call("deep")
    print("types", id(TensorBase), id(Tensor), id(Module), sep="\t")
    for address, name in HOLDS:
        print("hold", address, name, sep="\t")
    try:
        fail(some("local handled exception's traceback: kept[*]" + line(fail)))
    except ValueError:
        print("ready", flush=True)
        sys.stdin.readline()
        before.leave.set()
        before.join()
        before = Call("deep_later")
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



class Slots:
    __slots__ = ("left", "_right")

    def __init__(self, left, right):
        self.left, self._right = left, right


class More(Slots):
    __slots__ = ("further", "__dict__")


slots = [Slots(t, one("global slots[*]._right")) for t in some("global slots[*].left")]
more = More(one("global more.left"), 0)
more.further, more.attr = one("global more.further"), one("global more.attr")


class Named(dict):
    pass


named = Named(x=one("global named['x']"))
named.extra = some("global named.extra[*]")
simple = queues.SimpleQueue()
for thing in some("global simple[*]", 30):
    simple.put(thing)
del thing
future = concurrent.futures.Future()
future.set_result(one("global future._result"))
loop = asyncio.new_event_loop()
answer = loop.create_future()
answer.set_result(some("global answer[*]"))
iterator, chain = iter(some("global iterator[*]")), itertools.chain(some("global chain[*][*]"), [1])
mapped, cycle = map(float, some("global mapped[*][*]")), itertools.cycle(some("global cycle[*]"))
next(cycle)
tee = itertools.tee(iter(some("global tee[*][*]", 10)))
for number in range(10):
    next(tee[0])
push = some("global push[*]").append


def generate(kept):
    for number in range(len(kept)):
        yield number


def closing(inner):
    def generate_more():
        yield len(inner)

    return generate_more()


generator = generate(some("local kept[*]" + line(generate)))
next(generator)
if sys.version_info >= (3, 11):  # before, variables of functions around it are no local ones
    shared = closing(some("local inner[*] in closing.<locals>.generate_more (holders.py:%d)" % (closing.__code__.co_firstlineno + 1)))
    next(shared)
ended = generate([Tensor()])
list(ended)


async def wait_for(kept):
    await asyncio.sleep(1000)
    return kept


coroutine = wait_for(some("local kept[*]" + line(wait_for)))


def fail(kept):
    raise ValueError(kept and 1)


def call(kept):
    given = kept.pop()
    fail(given)


try:
    call([some("global error's traceback: given[*]" + line(call))])
except ValueError as e:
    error = e
raised = ValueError(*some("global raised[*]"))
errors = []
try:
    fail([])
except ValueError as e:
    errors.append(e)
errors[0].kept = one("global errors[*].kept")
try:
    fail(some("global sys.last_exc's traceback: kept[*]" + line(fail)))
except ValueError as e:
    sys.last_exc = e
variable = contextvars.ContextVar("variable", default=one("global variable's default"))
variable.set(some("local contextvar variable[*]"))
contexts = [contextvars.ContextVar("number%d" % i) for i in range(40)]
for number, thing in enumerate(contexts):
    thing.set(one("local contextvar number%d" % number))
del thing
if __name__ == "__main__":
    main()

# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
Objects of all layouts; prints their addresses and content, one tab-separated line each.

Texts are printed as hex of UTF-8. After "ready" it obeys lines on its standard input: "churn" makes it change the dicts of the
"pair" lines until the input ends.
"""
import collections
import os
import sys
import threading

KEEP = []
MASK = (1 << 64) - 1


def keep(obj):
    KEEP.append(obj)
    return obj


def emit(*fields):
    sys.stdout.write("\t".join(str(f) for f in fields) + "\n")


def text(s):
    return s.encode("utf-8").hex() or "-"


def expected(s):
    """The text that a reader returns for s: no surrogates, no NUL, at most 4096 bytes of whole characters."""
    s = "".join("\ufffd" if c == "\0" or 0xD800 <= ord(c) <= 0xDFFF else c for c in s)
    out = b""
    for c in s:
        b = c.encode("utf-8")
        if len(out) + len(b) > 4096:
            break
        out += b
    return out.hex() or "-"


class Text(str):
    pass


def strings():
    for s in (
        "", "a", "plain ascii", "x" * 4095, "x" * 4096, "x" * 5000, "h\xe9llo \xff", "\xe9" * 3000, "\x80",
        "\u4f60\u597d", "\u4f60" * 2000, "a\u0416" * 300, "\U0001f600 face", "\U0001f600" * 1500, "lone \ud800 half",
        "\udfff\U00010000", "nul\0inside", "\U0010ffff", Text("subclass"), Text("sub\u4f60class"), Text("\xe9"), Text(""),
        "x" * 255 + "\xe9" * 2, "y" * 4095 + "\xe9",
    ):
        s = keep(s if isinstance(s, Text) else "".join([s[:1], s[1:]]))
        emit("str", id(s), expected(s))
    for obj in (17, b"bytes", None, [], strings, str):
        emit("notstr", id(keep(obj)))


def fold(d):
    h = 14695981039346656037
    for k, v in d.items():
        h = ((h * 1099511628211) & MASK) ^ id(k)
        h = ((h * 1099511628211) & MASK) ^ id(v)
    return h


def emit_dict(d, gets=()):
    keep(d)
    keep(list(d.items()))
    emit("dict", id(d), len(d), "%x" % fold(d))
    for k in gets:
        emit("get", id(d), text(k), id(d[k]) if k in d else 0)


class Dict(dict):
    pass


def with_holes():
    d = {"k%d" % i: object() for i in range(1000)}
    for i in range(0, 1000, 3):
        del d["k%d" % i]
    return d


def dicts():
    emit_dict({}, ["a"])
    emit_dict({"a": 1, "b": [2], "\xe9t\xe9": 3, "\u4f60": 4, "\U0001f600": 5}, ["a", "b", "\xe9t\xe9", "\u4f60", "\U0001f600", "c"])
    emit_dict({i: object() for i in range(5)}, ["a"])
    emit_dict({"k": 1, 2: 3, None: object(), "last": object(), (1, 2): 5}, ["last", "k", "none"])
    for n in (5, 6, 40, 60, 85, 86, 170, 171, 256, 257, 300, 5000, 43690, 43691, 65537, 70000):
        emit_dict({"k%d" % i: object() for i in range(n)}, ["k0", "k%d" % (n - 1), "k%d" % n])
    emit_dict({i * 7: object() for i in range(70000)})
    emit_dict(with_holes(), ["k0", "k1", "k999", "k998"])
    d = with_holes()
    d["k0"] = "again"
    emit_dict(d, ["k0"])
    d = {"a": 1}
    del d["a"]
    emit_dict(d, ["a"])
    d = {"a": 1}
    d.clear()
    emit_dict(d, ["a"])
    emit_dict(collections.OrderedDict((("one", object()), ("two", object()))), ["two", "three"])
    emit_dict(collections.defaultdict(list, x=object()), ["x"])
    emit_dict(Dict(x=object(), y=object()), ["y"])
    emit_dict({Text("key"): object(), "other": object()}, ["key", "other"])
    emit_dict({"x" * 4096: object(), "x" * 4097: object()}, ["x" * 4096])
    emit_dict(dict(os.environ))
    emit_dict(dict.fromkeys(range(3)))
    for obj in (17, "str", None, [], (), strings, dict):
        emit("notdict", id(keep(obj)))


class Plain(object):
    pass


class Base(object):
    def __init__(self):
        self.training = True
        self.first = object()
        self.second = object()


class Derived(Base):
    def __init__(self):
        super().__init__()
        self.third = object()


class Many(object):
    def __init__(self, n=40):
        for i in range(n):
            setattr(self, "a%d" % i, object())


class Many300(Many):
    pass


class Slots(object):
    __slots__ = ("slot", "__dict__", "__weakref__")


class NoDict(object):
    __slots__ = ("slot",)


class Int(int):
    pass


class Tuple(tuple):
    pass


class Bytes(bytes):
    pass


class Exc(Exception):
    pass


class ListSub(list):
    pass


class Meta(type):
    pass


class WithMeta(metaclass=Meta):
    pass


class Uneven(object):
    def __init__(self, names):
        for name in names:
            setattr(self, name, object())


def emit_attrs(obj, present, absent=()):
    keep(obj)
    for name in present:
        emit("attr", id(obj), name, id(getattr(obj, name)))
    for name in absent:
        emit("attr", id(obj), name, 0)


def materialise(obj):
    """Creates the __dict__ and keeps it."""
    d = obj.__dict__
    emit_dict(d)
    return obj


def instances():
    for make in (lambda o: o, materialise):
        emit_attrs(make(Base()), ["training", "first", "second"], ["third", "__init__", "x"])
        emit_attrs(make(Derived()), ["training", "third"], ["fourth"])
        emit_attrs(make(Plain()), [], ["x"])
        many = Many()
        emit_attrs(make(many), ["a0", "a29", "a30", "a39"], ["a40"])
        emit_attrs(make(Many(30)), ["a0", "a29"], ["a30"])
        emit_attrs(make(Many(29)), ["a0", "a28"], ["a29"])
        emit_attrs(make(Many300(300)), ["a0", "a299"], ["a300"])
        emit_attrs(make(Many300(300)), ["a0", "a299"], ["a300"])
        for names in ("abc", "cba", "bd", "", "edcba"):
            emit_attrs(make(Uneven(names)), names, set("abcde") - set(names))
        o = Derived()
        del o.first
        emit_attrs(make(o), ["training", "second", "third"], ["first"])
        o = Derived()
        del o.first
        o.first = object()
        emit_attrs(make(o), ["first", "second"])
        o = Derived()
        if make is materialise:
            keep(o.__dict__)
        o.late = object()
        del o.training
        emit_attrs(make(o), ["late", "first"], ["training"])
        o = Slots()
        o.slot, o.free = object(), object()
        emit_attrs(make(o), ["free"], ["slot"])
        for var in (Int(10**50), Int(-(10**50)), Int(0), Int(5), Int(-5), Int(2**30), Tuple(), Tuple((1, 2, 3)), Bytes(b"abcde")):
            var.x, var.y = object(), object()
            emit_attrs(make(var), ["x", "y"], ["z"])
        e = Exc("x")
        e.x = object()
        emit_attrs(make(e), ["x"], ["args"])
        v = ListSub([1, 2])
        v.x = object()
        emit_attrs(make(v), ["x"], ["y"])
        w = WithMeta()
        w.x = object()
        emit_attrs(make(w), ["x"], ["y"])
    o = Base()
    o.__dict__ = {"swapped": object()}
    emit_attrs(o, ["swapped"], ["first"])
    o = Base()
    o.__dict__.clear()
    emit_attrs(o, [], ["first"])
    o = materialise(Base())
    d = keep(o.__dict__)
    del o.__dict__
    emit_dict(d)
    emit_attrs(o, [], ["first"])
    o = Base()
    d = keep(o.__dict__)
    emit_dict(d)
    keep(d)
    del o  # the dict outlives its object
    emit_dict(d, ["first", "second"])
    emit_dict(vars(Derived()), ["first", "third", "fourth"])
    emit_attrs(NoDict(), [], ["slot"])
    emit_attrs(object(), [], ["x"])
    emit_attrs(5, [], ["x"])
    emit_attrs(strings, [], ["x"])
    instances.x = object()
    emit_attrs(instances, ["x"], ["y"])


class Mixin(object):
    pass


class Module(object):
    """Has the class's name, but is not a module."""


class Two(Mixin, Derived):
    pass


def types():
    for t, name in ((Base, "Base"), (Derived, "Derived"), (type(Base()), "Base"), (int, "int"), (collections.OrderedDict, "collections.OrderedDict"),
                    (type("T\xe9st", (), {}), "T\xe9st"), (type("x" * 2000, (), {}), "x" * 2000), (Meta, "Meta"), (WithMeta, "WithMeta")):
        emit("tname", id(keep(t)), text(name))
    for obj in (Base(), 5, "x", None, Base, WithMeta):
        emit("type", id(keep(obj)), id(type(obj)))
    for t, name, module, yes in (
        (Derived, "Base", __name__, 1), (Derived, "Base", "other", 0), (Derived, "object", "-", 1), (Two, "Base", __name__, 1),
        (Two, "Mixin", __name__, 1), (Two, "Plain", __name__, 0), (Module, "Module", "torch.nn.modules.module", 0),
        (Module, "Module", __name__, 1), (int, "object", "-", 1), (bool, "int", "-", 1),
    ):
        emit("isa", id(t), name, module, yes)
    Base.marker = keep(object())
    emit("tattr", id(Base), "marker", id(Base.marker))
    emit("tattr", id(Base), "__init__", id(Base.__dict__["__init__"]))
    emit("tattr", id(Base), "nothing", 0)
    emit("tattr", id(Derived), "marker", 0)


def codes():
    def nested(a, b=lambda x: x):
        if a:
            return b
        return [c for c in b]

    long_name = "f" * 300
    scope = {}
    exec("def %s(): pass" % long_name, scope)
    unicode_file = compile("def f():\n  return 1\n", "/tmp/\u4f60\xe9.py", "exec")
    big = compile("x = 1\n" * 3000, "big.py", "exec")
    for f in (strings, nested, Derived.__init__, scope[long_name]):
        emit("func", id(keep(f)), id(f.__code__))
    for c in (strings.__code__, nested.__code__, Derived.__init__.__code__, scope[long_name].__code__, unicode_file, big):
        keep(c)
        name = getattr(c, "co_qualname", c.co_name)[:255]
        table = keep(c.co_linetable if sys.version_info >= (3, 10) else c.co_lnotab)
        emit("code", id(c), text(name), text(c.co_filename), c.co_firstlineno, table.hex() or "-")
    for obj in (strings, "x", 5):
        emit("notcode", id(keep(obj)))


def modules():
    for name in ("os", "sys", "collections", "__main__"):
        emit("module", text(name), id(sys.modules[name]))
    emit("module", text("no.such.module"), 0)
    sub = type("Lazy", (type(os),), {})("lazy")
    sub.x = keep(object())
    sys.modules["lazy"] = sub
    emit("module", text("lazy"), id(sub))
    emit("mattr", id(sub), "x", id(sub.x))
    emit("mattr", id(os), "path", id(os.path))
    emit("mattr", id(os), "nothing_there", 0)


KEYS = ["k%d" % i for i in range(400)]
VALUES = [object() for _ in KEYS]
CHURN_DICT = dict(zip(KEYS, VALUES))
CHURN_OBJ = Plain()
for _k, _v in zip(KEYS[:20], VALUES):
    setattr(CHURN_OBJ, _k, _v)


def churn():
    n = 0
    while True:
        i = (n * 7919) % len(KEYS)
        CHURN_DICT.pop(KEYS[i], None)
        CHURN_DICT[KEYS[(i * 31) % len(KEYS)]] = VALUES[(i * 31) % len(KEYS)]
        if n % 97 == 0:
            for k in KEYS[: n % 400]:
                CHURN_DICT.pop(k, None)
        if n % 1009 == 0:
            CHURN_DICT.clear()
            CHURN_DICT.update(zip(KEYS, VALUES))
        name = KEYS[n % 40]
        if hasattr(CHURN_OBJ, name) and n % 3:
            delattr(CHURN_OBJ, name)
        else:
            setattr(CHURN_OBJ, name, VALUES[n % 40])
        n += 1


def main():
    for part in (strings, dicts, instances, types, codes, modules):
        part()
    for k, v in zip(KEYS, VALUES):
        emit("pair", id(k), id(v))
    emit("churn", id(CHURN_DICT), id(CHURN_OBJ))
    emit("ready")
    sys.stdout.flush()
    for line in sys.stdin:
        if line.strip() == "churn":
            threading.Thread(target=churn, daemon=True).start()
            emit("churning")
            sys.stdout.flush()
    os._exit(0)


main()

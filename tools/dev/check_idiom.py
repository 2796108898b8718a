#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Finds C in user/ that an experienced reader has to read twice (docs/internals/STYLE.md, "Code").

usage: check_idiom.py [--count] [ROOM | FILE]...

Each line of output is FILE:LINE and one of:

  choices   a statement with two or more `?:`
  errors    a chain of `if (!err)`: return early or go to one label
  calls     a declaration in which more than one declarator calls a function
  one       a name that ends in 1 for "index + 1": say NAME_no
  c++       a variable or function called new or delete, which clang-format takes for C++

Exit status 1 if there is any.
"""
import collections
import pathlib
import re
import sys

# A chain: two `if (!err)` of the same variable this close to each other.
CHAIN_LINES = 6
# Names that end in 1 for another reason: of the system, of the number itself, of a formula.
ENDS_IN_1 = {"epoll_create1", "config1", "log1", "expm1", "sha1", "utf8_1", "int1", "uint1"}
DECLARATION = re.compile(r"\s*(?:static |const |unsigned |struct \w+|enum \w+|union \w+|[a-z_0-9]+_t\b|int\b|long\b|"
                         r"char\b|bool\b|double\b|float\b|void\b|FILE\b|DIR\b|pid_t\b)[\w\s*]*?[\s*](\w+)(?:\[[^\]]*\])?\s*=[^=]")
CALL = re.compile(r"\b(?!sizeof\b|if\b|for\b|while\b|switch\b|return\b)[a-z_]\w*\s*\((?!\s*\*)")


def blank(match):
    return re.sub(r"[^\n]", " ", match.group(0))


def code_of(path):
    """The text of a file with comments, strings and preprocessor lines blank."""
    text = re.sub(r"/\*.*?\*/|//[^\n]*|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])+'", blank, path.read_text(), flags=re.S)
    return re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", blank, text, flags=re.M)


def statements(text):
    """Yields (line, text) of what lies between semicolons outside of parentheses, and braces."""
    start, depth = 0, 0
    for i, c in enumerate(text):
        if c == "(":
            depth += 1
        elif c == ")":
            depth -= 1
        elif c in "{}" or (c == ";" and depth <= 0):
            depth = 0
            piece = text[start:i]
            yield text.count("\n", 0, start + len(piece) - len(piece.lstrip())) + 1, piece.strip()
            start = i + 1


def declarators(piece):
    """The parts of a declaration between its commas outside of brackets."""
    parts, depth, start = [], 0, 0
    for i, c in enumerate(piece):
        depth += (c in "([") - (c in ")]")
        if c == "," and depth == 0:
            parts.append(piece[start:i])
            start = i + 1
    return [*parts, piece[start:]]


def findings(path):
    text = code_of(path)
    for line, piece in statements(text):
        if piece.count("?") > 1:
            yield line, "choices"
        if DECLARATION.match(piece) and sum("=" in d and bool(CALL.search(d.split("=", 1)[1])) for d in declarators(piece)) > 1:
            yield line, "calls"
    last = {}
    for number, line in enumerate(text.split("\n"), 1):
        if line.startswith("}"):
            last = {}
        chain = re.search(r"\bif \(!(err|out|ret|rc)\b", line)
        if chain:
            if number - last.get(chain[1], -99) <= CHAIN_LINES:
                yield number, "errors"
            last[chain[1]] = number
        for name in re.findall(r"\b[a-z_]*[a-z]1\b", line):
            if name not in ENDS_IN_1:
                yield number, f"one: {name}"
        if re.search(r"\b(?:new|delete)\b", line):
            yield number, "c++"


def main(args):
    counts = args[:1] == ["--count"]
    args = args[counts:]
    root = pathlib.Path(__file__).resolve().parents[2] / "user"
    paths = [p for a in args or [root] for q in [pathlib.Path(a) if pathlib.Path(a).exists() else root / a]
             for p in ([q] if q.is_file() else sorted([*q.rglob("*.c"), *q.rglob("*.h")]))]
    found = [(p, line, what) for p in paths for line, what in findings(p.resolve())]
    if counts:
        table = collections.Counter((p.resolve().relative_to(root).parts[0], what.split(":")[0]) for p, _, what in found)
        for (room, what), n in sorted(table.items()):
            print(f"{room:10} {what:8} {n}")
    else:
        for p, line, what in found:
            print(f"{p.resolve().relative_to(root.parent)}:{line}: {what}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

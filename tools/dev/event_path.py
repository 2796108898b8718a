#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
Draws the way of one record of the kernel side from the ring through user/capture to the capture's sink, as the code has it: each
call that passes the record, or the event made of it, with its file. Marks calls into a file that the way has left before (a header
and its source count as one file). Exits with 1 if there is such a call.

    tools/dev/event_path.py [RECORD [ROOT]]     RECORD: a name of enum mt_rec_type, MT_REC_REPORT by default; ROOT: another tree

The C code is read with regular expressions. Calls through pointers are resolved by what the code passes or assigns: a callback by the
functions passed as arguments, the next stage by the order in which open_..._stage() connect the stages.
"""
import functools
import pathlib
import re
import sys

FOLDER = "user/capture"
RING = "user/capture/kernel/bpf_ring.c"
START = "bpf_ring__consume"
# A store keeps the record; the function that takes it out again and passes it on comes next on the way.
STORES = {
    "session__enqueue": ("decoder__record", "session__record"),  # the queue: session__round() takes it out
    "attach_state__hold": ("attach_state__emit",),  # until the state at attach is known
}
# These answer from a table and return at once: the record does not go on from there.
LOOKUPS = {
    "queue__push": "appends to the queue", "queue__push_early": "appends to the queue",
    "code_cache__gone": "notes the end of a code object", "code_cache__known": "table of code objects",
    "symbolizer__codes": "returns a pointer", "symbolizer__number": "counts what the dictionary had no room for",
    "autograd__node": "which autograd node the thread runs", "decoder__thread": "table of threads", "session__thread": "table of threads",
    "decoder__stack": "table of stacks", "decoder__mark_stack": "table of stacks", "decoder__join_native": "adds native frames to a stack",
    "state_seam__contains": "was the event before the state at attach?", "state_seam__emitted": "notes what was passed on",
}
POINTER = re.compile(r"(?:const )?(?:void|uint8_t|struct mt_\w+|struct event) \*(\w+)")
# For ends of code objects alone; called before a record without a feed, which it does not get.
OTHERS = {"deal_to_all", "read_group_records"}
KEYWORDS = {"if", "while", "for", "switch", "return", "sizeof", "memcpy"}


class Function:
    def __init__(self, name, file, head, params, body):
        self.name, self.file, self.params, self.body = name, file, params, body
        self.returns_event = "struct event *" in head
        self.unit = file.split(".")[0]
        carried = POINTER.findall(params) + re.findall(r"struct (?:event|mt_\w+) (\w+)\b", params + body) + POINTER.findall(body)
        self.carried = {name for name in carried if name not in ("ctx", "at")}


def read_functions(paths):
    functions = {}
    for path in paths:
        text = re.sub(r"/\*.*?\*/|//[^\n]*", "", path.read_text(encoding="utf-8"), flags=re.S)
        text = re.sub(r'"(?:[^"\\\n]|\\.)*"', '""', text)
        for found in re.finditer(r"^(?!typedef|return|else)\w[\w \t*]*?\b(\w+)\(([^;{}]*)\)\n\{(.*?)^\}", text, re.M | re.S):
            name = found[1]
            key = name if "static" not in found[0].split("(")[0] or path.suffix == ".h" else (path.name, name)
            functions[key] = Function(name, path.name, found[0].split("(")[0], " ".join(found[2].split()), found[3])
    return functions


def split_arguments(text, start):
    """The arguments of a call whose parenthesis opens at start."""
    depth, begin, arguments = 0, start + 1, []
    for i in range(start, len(text)):
        depth += (text[i] in "([{") - (text[i] in ")]}")
        if not depth or (depth == 1 and text[i] == ","):
            arguments.append(text[begin:i].strip())
            begin = i + 1
        if not depth:
            return arguments
    return arguments


@functools.cache
def calls_in(body, record):
    """(callee as written, arguments) in order, without the cases of other records."""
    labels, fresh, calls = set(), False, []
    for piece in re.split(r"(\bcase \w+:|\bdefault:)", body):
        if piece.startswith(("case", "default")):
            labels = {piece} if fresh else labels | {piece}
            fresh = False
            continue
        if piece.strip():
            fresh = True
        if any("MT_REC_" in label for label in labels) and "case %s:" % record not in labels:
            continue
        for call in re.finditer(r"((?:[\w\]\[]+(?:->|\.))*)(\w+)\(", piece):
            if call[2] not in KEYWORDS:
                calls.append((call[1] + call[2], split_arguments(piece, call.end() - 1)))
    return calls


def connect_stages(functions):
    """Unit -> the function that gets its events, from how open_..._stage() of session_attach.c connect the stages."""
    opens = [functions["session_attach.c", name] for name in ("open_attach_stage", "open_census_stage")]
    last = re.search(r"send_to\(session->attach, (\w+)__sink\(", opens[0].body)[1]
    following, head = {last: None}, (last + ".c", "on_event")
    for function in opens:
        stage = re.search(r"->next = (\w+)__sink\(", function.body)[1]
        handler = (stage + ".c", "on_event")
        following[stage], head = head, handler
    following["decoder"] = following["decode_ctx"] = head
    return following


class Way:
    def __init__(self, functions, record):
        self.functions, self.record = functions, record
        self.following = connect_stages(functions)
        self.units, self.returns, self.seen = [], 0, set()

    def find(self, name, file):
        return self.functions.get((file, name)) or self.functions.get(name)

    def passed_to(self, name, done=()):
        """Functions that callers pass as arguments to this one, also through a parameter of their own."""
        found = []
        for caller in self.functions.values():
            for callee, arguments in calls_in(caller.body, self.record):
                if callee != name:
                    continue
                for argument in arguments:
                    if self.find(argument, caller.file):
                        found.append(self.find(argument, caller.file))
                    elif argument == "fn" and re.search(r"\bfn\b", caller.params) and caller.name not in done:
                        found += self.passed_to(caller.name, (*done, name))
        return found

    def targets(self, function, callee):
        name = re.split(r"->|\.", callee)[-1]
        if callee == name and self.find(name, function.file):
            return [self.find(name, function.file)]
        if name == "fn":
            of_file = [f for f in self.functions.values() if f.file == function.file]
            return list({f.name: f for g in of_file for f in self.passed_to(g.name) if f.file != function.file}.values())
        if name == "event" and callee != name:
            following = self.functions.get(self.following.get(function.unit))
            return [following] if following else ["the capture's sink"]
        return []

    def carries(self, argument, function):
        """Is an argument the record or event? One that a function returns is, too: event_at(s, i)."""
        called = self.find(argument.split("(")[0], function.file) if "(" in argument else None
        name = argument[1:].split("->")[0] if argument.startswith("&") else argument
        return name in function.carried or bool(called and called.returns_event)

    def go(self, function, depth):
        if function == "the capture's sink":
            print("%s%s" % ("  " * depth, function))
            return
        if function in self.seen:
            return  # another branch that comes to the same function
        again = function.unit in self.units and self.units[-1] != function.unit
        self.returns += again
        print("%s%-18s %s%s" % ("  " * depth, function.file, function.name, "    <- returns to a file it has left" if again else ""))
        self.units.append(function.unit)
        self.seen.add(function)
        for callee, arguments in calls_in(function.body, self.record):
            if callee in LOOKUPS or callee in OTHERS or not any(self.carries(a, function) for a in arguments):
                continue
            for target in self.targets(function, callee):
                if isinstance(target, Function) and target.name in OTHERS:
                    continue
                # Coming back from a call is no step of the way: it goes on from this file.
                if self.units[-1] != function.unit:
                    self.units.append(function.unit)
                self.go(target, depth + 1)
        for name in STORES.get(function.name, ()):
            if name in self.functions:
                self.go(self.functions[name], depth + 1)


def main():
    record = sys.argv[1] if len(sys.argv) > 1 else "MT_REC_REPORT"
    root = pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else pathlib.Path(__file__).resolve().parents[2]
    way = Way(read_functions([root / RING, *sorted((root / FOLDER).rglob("*.[ch]"))]), record)
    way.go(way.functions[START], 0)
    print("%d files, %d returns to a file that was left" % (len(set(way.units)), way.returns))
    return bool(way.returns)


if __name__ == "__main__":
    sys.exit(main())

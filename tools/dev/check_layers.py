#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
Checks the layers of user/ (docs/internals/STYLE.md, "Folders"). Prints each violation and exits with 1 if there is one.

    tools/dev/check_layers.py             checks includes
    tools/dev/check_layers.py OBJECTS     also checks calls of compiled functions; OBJECTS: the objects of user/,
    .output/obj/user
    tools/dev/check_layers.py --lower     lowers the budgets of rooms.txt to what there is now

* user/ has main.c and rooms. A room includes and calls only rooms of lower floors, which docs/internals/STYLE.md lists; within a
room, INSIDE has the floors of its folders.
* Other rooms include only a room's doors: the headers in its own folder. The headers in its folders are private.
* No header includes itself through others.
* The prefix of a function in a header (before "__") is the name of its file or of a type that the header declares, and folders
do not share a prefix.
* Each function that is not static is used by another file of user/, tests/ or tools/ (with OBJECTS, of a whole build).
* No room has more lines, and there are no more circles of files that call each other, than tools/dev/rooms.txt allows.
* Each .c and .h file named in a comment of user/, bpf/ or tools/ is in the repository or is known to belong to others.
"""
import collections
import pathlib
import re
import subprocess
import sys

# Rooms of user/, by floor.
FLOORS = (
    "base",
    "record",
    "inspect model",
    "capture report",
    "export watch estimate",
    "live serve",
    "cmd",
)
# Folders of rooms, by floor within the room. A room's own folder has its doors, and may have code of its lowest floor.
INSIDE = {
    "base": ("assets", "log"),
    "record": ("cond stream", "snapshot", "mtr", "folder"),
    "inspect": ("process", "python nvml native", "torch", "census hostmem"),
    "capture": ("kernel cost", "ending probes", "decode", "session", "follow launch", "save"),
    "model": ("heap", "words open"),
    "report": ("advice dump", "recording", "ranks", "leaks diff", "findings"),
    "export": ("formats", "page tables", "run"),
    "watch": ("targets",),
    "estimate": ("replay store", "runs"),
    "live": ("rows", "screen", "view"),
    "serve": ("server mcp", "web push fetch", "broker"),
}
FLOOR = {name: i for i, line in enumerate(FLOORS) for name in line.split()}
STOREY = {"%s/%s" % (room, name): i + 1 for room, floors in INSIDE.items() for i, line in enumerate(floors) for name in line.split()}
BUDGETS = pathlib.Path(__file__).with_name("rooms.txt")
LEFT_LEG = "capture"  # works without what only needs a file:
RIGHT_LEG = frozenset(("model", "report", "export"))
# Other projects' files that comments may name: all in these folders, and these.
FOREIGN_FOLDERS = ("Include/", "Objects/", "Python/", "arch/", "c10/", "elf/", "gperftools/", "include/uapi/", "kernel/", "ldso/", "linux/", "malloc/", "torch/csrc/")
FOREIGN = frozenset("""
    cmocka.h stdalign.h stdbool.h stddef.h stdint.h methodobject.h
    cublasLt.h cuda.h cudaTypedefs.h cuda_runtime_api.h cudnn_adv.h cudnn_cnn.h cudnn_graph.h cudnn_ops.h library_types.h nccl.h nvml.h
""".split())
COMMENTS = {".c": r"/\*.*?\*/|//[^\n]*", ".h": r"/\*.*?\*/|//[^\n]*", ".py": r'#[^\n]*|""".*?"""', ".sh": r"#[^\n]*"}
ROOT = pathlib.Path(__file__).resolve().parents[2]
USER = ROOT / "user"


def folder_of(path):
    return path.parent.relative_to(USER).as_posix()


def room_of(folder):
    return folder.split("/")[0]


def check_folders(sources):
    """Every file has a room, and every folder of a room is in INSIDE."""
    for f in sources:
        folder = folder_of(f)
        if folder == "." and f.name != "main.c":
            yield "%s: only main.c lies in user/ itself" % f.relative_to(ROOT)
        elif folder != "." and (room_of(folder) not in FLOOR or folder != room_of(folder) and folder not in STOREY):
            yield "%s: user/%s is no room, or no folder of one, in check_layers.py" % (f.relative_to(ROOT), folder)


def check_documented_floors():
    """The table of docs/internals/STYLE.md has the same floors."""
    rows = re.findall(r"^\| \d+ \| (`.*) \|$", (ROOT / "docs/internals/STYLE.md").read_text(encoding="utf-8"), re.M)
    documented = tuple(" ".join(re.findall(r"`([^`]+)`", row)) for row in rows)
    if documented != FLOORS:
        yield "docs/internals/STYLE.md: its floors differ from those of check_layers.py"


def is_lower(folder, other):
    """True if code of the folder may use that of the other one."""
    room, to = room_of(folder), room_of(other)
    if folder in (".", other):
        return True
    if room != to:
        return FLOOR[to] < FLOOR[room] and (room != LEFT_LEG or to not in RIGHT_LEG)
    return STOREY.get(other, 0) < STOREY.get(folder, 0)


def check_doors(entered):
    """Only headers in a room's own folder are included from other rooms, and each of them is. entered: header -> rooms that include it."""
    for header in sorted(p.relative_to(USER).as_posix() for p in USER.rglob("*.h")):
        rooms, folder = entered.get(header, set()) - {room_of(header)}, header.rsplit("/", 1)[0]
        if folder not in FLOOR and rooms:
            yield "user/%s: private to %s, but included from %s" % (header, room_of(header), ", ".join(sorted(rooms)))
        elif folder in FLOOR and folder != "cmd" and not rooms:
            yield "user/%s: no other room includes it: it belongs into a folder of its room" % header


def check_includes(sources):
    includes, entered = {}, collections.defaultdict(set)
    for f in sources:
        here = folder_of(f)
        for number, line in enumerate(f.read_text(encoding="utf-8").splitlines(), 1):
            found = re.match(r'#include "([\w/.-]+)"', line)
            if not found or not (USER / found[1]).is_file():
                continue
            includes.setdefault(f.relative_to(USER).as_posix(), []).append(found[1])
            to = folder_of(USER / found[1])
            entered[found[1]].add(room_of(here))
            # A door may have types of its room in it.
            if not (f.suffix == ".h" and here == room_of(to)) and to != room_of(here) and not is_lower(here, to):
                yield "%s:%d: %s includes %s, which is on no lower floor" % (f.relative_to(ROOT), number, here, to)
    yield from check_doors(entered)
    yield from find_circles(includes, "include")


def find_circles(edges, what):
    """The path of a cycle in a graph of names."""
    done, path = set(), []

    def visit(name):
        if name in path:
            return " -> ".join(path[path.index(name):] + [name])
        if name in done:
            return None
        path.append(name)
        for to in sorted(edges.get(name, ())):
            circle = visit(to)
            if circle:
                return circle
        path.pop()
        done.add(name)
        return None

    for name in sorted(edges):
        circle = visit(name)
        if circle:
            yield "circle of %ss: %s" % (what, circle)
            return


def budgets():
    """What rooms.txt allows: name -> number."""
    rows = [line.split() for line in BUDGETS.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]
    return {name: int(number) for name, number in rows}


def lines_of_rooms(sources):
    lines = collections.Counter()
    for f in sources:
        lines[room_of(folder_of(f))] += f.read_text(encoding="utf-8").count("\n")
    return {room: n for room, n in lines.items() if room != "."}


def check_budgets(found):
    allowed = budgets()
    for name, n in sorted(found.items()):
        if n > allowed.get(name, 0):
            yield "%s: %d, more than the %d of tools/dev/rooms.txt: delete something, or raise the number and say why in the commit" % (
                name, n, allowed.get(name, 0))


def lower_budgets(sources):
    """Keeps comments and order."""
    found, out = lines_of_rooms(sources), []
    for line in BUDGETS.read_text(encoding="utf-8").splitlines():
        name, *rest = line.split()
        out.append("%s %d" % (name, min(found[name], int(rest[0]))) if name in found else line)
    BUDGETS.write_text("\n".join(out) + "\n", encoding="utf-8")


def circles(edges):
    """Groups of names that reach each other (Tarjan)."""
    number, low, stack, out = {}, {}, [], []

    def visit(name):
        number[name] = low[name] = len(number)
        stack.append(name)
        for to in sorted(edges.get(name, ())):
            if to not in number:
                visit(to)
                low[name] = min(low[name], low[to])
            elif to in stack:
                low[name] = min(low[name], number[to])
        if low[name] == number[name]:
            group = stack[stack.index(name):]
            del stack[-len(group):]
            if len(group) > 1:
                out.append(sorted(group))

    for name in sorted(edges):
        if name not in number:
            visit(name)
    return out


def check_calls(objects):
    """Calls between objects, by defined and undefined symbols."""
    # Ignore objects whose source is gone.
    files = sorted(f for f in objects.rglob("*.o") if (USER / f.relative_to(objects)).with_suffix(".c").exists())
    listing = subprocess.run(["nm", "-A", *map(str, files)], check=True, capture_output=True, text=True).stdout
    defined, used = {}, collections.defaultdict(set)
    file_of, uses = {}, collections.defaultdict(set)
    for line in listing.splitlines():
        name, rest = line.rsplit(":", 1)
        path = pathlib.Path(name).relative_to(objects).with_suffix(".c")
        folder = path.parent.as_posix()
        *_, kind, symbol = rest.split()
        if kind in "TDBRC":
            defined[symbol], file_of[symbol] = folder, path.as_posix()
        elif kind == "U":
            used[folder].add(symbol)
            uses[path.as_posix()].add(symbol)
    groups = circles({f: {file_of[s] for s in symbols if s in file_of} for f, symbols in uses.items()})
    for too_many in check_budgets({"circles": len(groups)}):
        yield too_many + "".join("\n    " + " ".join(g) for g in groups)
    edges = collections.defaultdict(set)
    for folder, symbols in sorted(used.items()):
        for symbol in sorted(symbols & defined.keys()):
            to = defined[symbol]
            if to == folder or folder == ".":
                continue
            edges[folder].add(to)
            if not is_lower(folder, to):
                yield "%s uses %s() of %s, which is on no lower floor" % (folder, symbol, to)
    yield from find_circles(edges, "call")


def check_uses(objects):
    """Functions that no other file uses, of user/, tests/ or tools/. Only of a build that has them all."""
    sources = [f.relative_to(ROOT) for folder in ("user", "tests/unit") for f in (ROOT / folder).rglob("*.c")]
    if not all((objects.parent / f).with_suffix(".o").exists() for f in sources):
        return
    files = sorted(f for f in objects.parent.rglob("*.o") if (ROOT / f.relative_to(objects.parent)).with_suffix(".c").exists())
    listing = subprocess.run(["nm", "-A", *map(str, files)], check=True, capture_output=True, text=True).stdout
    symbols = [(line.rsplit(":", 1)[0], *line.split()[-2:]) for line in listing.splitlines()]
    used = {symbol for _, kind, symbol in symbols if kind == "U"}
    for name, kind, symbol in symbols:
        if kind == "T" and symbol != "main" and symbol not in used and pathlib.Path(name).is_relative_to(objects):
            yield "%s(): no file but its own uses it: make it static, or delete it" % symbol


def leads_to(prefix, path):
    """True if the prefix names this file: by its name, its folder's or room's name and its own, or a part of that which ends at "_"."""
    names = (path.stem, path.parent.name + "_" + path.stem, room_of(folder_of(path)) + "_" + path.stem)
    return any(name == prefix or name.startswith(prefix + "_") or prefix.startswith(name + "_") for name in names)


def check_prefixes(sources):
    """A reader finds a function's file by the function's name."""
    texts = {f: re.sub(r"/\*.*?\*/|//[^\n]*", "", f.read_text(encoding="utf-8"), flags=re.S) for f in sources}
    defined = {}
    for f, text in texts.items():
        if f.suffix == ".c":
            for found in re.finditer(r"^(?!static|return|else|typedef)\w[\w\s*]*?\b(\w+)\((?=[^;{]*\)\s*\{)", text, re.M):
                defined[found[1]] = f
    folders = collections.defaultdict(set)
    for f in [f for f in sources if f.suffix == ".h"]:
        types = set(re.findall(r"^(?:struct|enum) (\w+)(?: \{|;)", texts[f], re.M))
        for found in re.finditer(r"^(?!static|return|typedef|extern)\w[\w\s*]*?\b(\w+)\(", texts[f], re.M):
            name, at = found[1], defined.get(found[1])
            prefix = name.split("__")[0]
            if not at:
                continue  # a macro, or generated for another file
            whole = {at.stem, at.parent.name + "_" + at.stem, room_of(folder_of(at)) + "_" + at.stem}
            if not (name in whole if prefix == name else prefix in types or leads_to(prefix, f) or leads_to(prefix, at)):
                yield "%s: %s() leads to no file and no type of this header" % (f.relative_to(ROOT), name)
            folders[prefix].add(folder_of(f))
    for prefix, where in sorted(folders.items()):
        if len(where) > 1 and not any(all(w.startswith(outer) for w in where) for outer in where):
            yield "the prefix %s__ is in several folders: %s" % (prefix, ", ".join(sorted(where)))


def listed(*folders):
    """The repository's files in these folders, as paths from its root."""
    done = subprocess.run(["git", "-C", str(ROOT), "ls-files", "--", *folders], check=True, capture_output=True, text=True)
    return done.stdout.splitlines()


def check_named_files(commented):
    """Files named in a comment exist: by the end of their path, such as capture/probes.h or probes.h."""
    ends = set()
    for name in listed():
        parts = name.split("/")
        ends |= {"/".join(parts[i:]) for i in range(len(parts))}
    for f in commented:
        text = (ROOT / f).read_text(encoding="utf-8", errors="replace")
        for comment in re.finditer(COMMENTS[pathlib.Path(f).suffix], text, re.S):
            for found in re.finditer(r"(?<![\w/.*\"-])[\w./-]*\w\.[ch]\b(?![\w(*-])", comment[0]):
                name = found[0]
                if name in ends or name in FOREIGN or name.startswith(FOREIGN_FOLDERS):
                    continue
                line = text.count("\n", 0, comment.start() + found.start()) + 1
                yield "%s:%d: a comment names %s, which is not here" % (f, line, name)


def main():
    sources = sorted(USER.rglob("*.[ch]"))
    if sys.argv[1:] == ["--lower"]:
        lower_budgets(sources)
        return 0
    if any(arg.startswith("-") for arg in sys.argv[1:]):
        print(__doc__.strip())
        return 0 if set(sys.argv[1:]) <= {"-h", "--help"} else 2
    commented = [f for f in listed("user", "bpf", "tools") if pathlib.Path(f).suffix in COMMENTS and (ROOT / f).is_file()]
    violations = [*check_folders(sources), *check_documented_floors(), *check_includes(sources), *check_prefixes(sources), *check_budgets(lines_of_rooms(sources)),
                  *check_named_files(commented)]
    for objects in sys.argv[1:]:
        violations += [*check_calls(pathlib.Path(objects)), *check_uses(pathlib.Path(objects))]
    for v in violations:
        print(v)
    print("%d files in %d folders, %d violations" % (len(sources), len({folder_of(f) for f in sources}) - 1, len(violations)))
    return bool(violations)


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
Compares the A64 decoder (user/inspect/process/insn_a64.h) with binutils, on libraries for AArch64 or on random words.

    tools/dev/a64.py FILE...           every instruction of the .text of each file
    tools/dev/a64.py --random N        N random words
    tools/dev/a64.py --sites FILE...   the site of each exported function, by class

Checks each instruction: is it decoded, its kind, branch target, and that every general register that it writes is among those that
the decoder names. Needs aarch64-linux-gnu-objdump. Exits with 1 if something differs.
"""
import collections
import os
import random
import re
import subprocess
import sys
import tempfile

REPO = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TOOL = os.path.join(REPO, os.environ.get("OUTPUT", ".output"), "tests", "tools", "a64_insns")
PREFIX = "aarch64-linux-gnu-"
KINDS = ["plain", "nop", "landing", "hint", "adr", "literal", "exclusive", "system", "opaque", "b", "b_if", "bl", "br", "blr", "ret",
         "br_signed", "trap"]
SP = 31
REGISTER = re.compile(r"^([wx])(\d+)$")
# Instructions whose first operand is only read.
READ_ONLY = re.compile(r"^(st(?!x|lx)\w*|cmp|cmn|tst|ccmp|ccmn|cb\w*|tb\w*|br|blr|ret|bra\w*|blra\w*|prf\w*|msr\w*|dc|ic|at|tlbi|sys|cfp|dvp|cpp|cosp|"
                       r"rmif|setf\w+|stg\w*|st2g|stz\w*|hint|wfet|gcsss1|gcspushm|trcit|tlbip|sysp)$")
ATOMIC = re.compile(r"^(ld(add|clr|eor|set|smax|smin|umax|umin)(a|l|al)?[bh]?|swp(a|l|al)?[bh]?)$")


def number(text):
    text = text.strip()
    if text in ("sp", "wsp"):
        return SP
    if text == "lr":
        return 30
    m = REGISTER.match(text)
    return int(m.group(2)) if m else None


def operands(text):
    """Operands of an instruction, with memory operands in one piece."""
    text = re.sub(r"\s*//.*", "", text)
    return [o.strip() for o in re.split(r",(?![^\[{]*[\]}])", text) if o.strip()]


def written(name, ops):
    """Numbers of the general registers that an instruction writes."""
    out = set()
    first = number(ops[0]) if ops else None
    if name in ("bl", "blr", "blraa", "blrab", "blraaz", "blrabz"):
        out.add(30)
    elif re.match(r"^(pac|aut)i?[ab]?(z|sp)$|^(pac|aut)i[ab](z|sp)$|^xpaclri$", name):
        out.add(30)
    elif re.match(r"^(pac|aut)i[ab]1716$", name):
        out.add(17)
    elif name == "chkfeat":
        out.add(16)
    elif ATOMIC.match(name):
        out.add(number(ops[1]))
    elif name.startswith("casp"):
        out |= {number(ops[0]), number(ops[1])}
    elif re.match(r"^(cpy|set)", name) and "]!" in "".join(ops):
        out |= {number(re.sub(r"[\[\]!]", "", o)) for o in ops if o.endswith("!")}
    elif re.match(r"^(ldp|ldnp|ldpsw|ldxp|ldaxp|ldiapp)$", name):
        out |= {number(ops[0]), number(ops[1])}
    elif not READ_ONLY.match(name) and first is not None:
        out.add(first)
    for i, op in enumerate(ops):
        m = re.match(r"^\[(\w+)", op)
        if m and (op.endswith("]!") or (op.endswith("]") and i + 1 < len(ops))):
            out.add(number(m.group(1)))  # the base of a pre- or post-indexed access
    out.discard(None)
    return out


def of_vectors(ops):
    """Whether the first operand is an SVE register: adr exists for those, too."""
    return bool(ops) and ops[0][0] == "z"


def kind_of(name, ops):
    """Kinds that the decoder may name."""
    if name in ("b", "bl", "br", "blr", "ret"):
        return {name}
    if name.startswith("b.") or name in ("cbz", "cbnz", "tbz", "tbnz"):
        return {"b_if"}
    if name in ("adr", "adrp", "nop") and not of_vectors(ops):
        return {name[:3]}
    if re.match(r"^(braa|brab|blraa|blrab|retaa|retab)z?$", name):
        return {"br_signed"}
    if name in ("svc", "hvc", "smc", "brk", "hlt", "udf", "eret", "eretaa", "eretab", "drps", "tcancel", "dcps1", "dcps2", "dcps3"):
        return {"trap"}
    if name == "bti" or re.match(r"^paci[ab](z|sp)$", name):
        return {"landing"}
    if re.match(r"^(st|ld)a?l?x[rp]", name):
        return {"exclusive"}
    if re.match(r"^(ldr|ldrsw|prfm)$", name) and "[" not in "".join(ops):
        return {"literal"}
    if re.match(r"^casp", name):
        return {"exclusive"}
    if re.match(r"^(msr|mrs|dmb|dsb|isb|dc|ic|at|tlbi|sys|sysl|clrex|sb|ssbb|pssbb|cfinv|axflag|xaflag|wfet|wfit|cfp|dvp|cpp|tstart|ttest|tcommit|"
                r"brb|smstart|smstop)$", name):
        return {"system", "hint"}
    return {"plain", "hint", "opaque"}


def disassemble(path, raw):
    args = [PREFIX + "objdump", "-z"]
    args += ["-D", "-b", "binary", "-m", "aarch64"] if raw else ["-d", "-j", ".text"]
    lines = subprocess.Popen([*args, path], stdout=subprocess.PIPE, text=True, errors="replace")
    for line in lines.stdout:
        parts = line.rstrip("\n").split("\t")
        if len(parts) < 3 or not parts[0].endswith(":"):
            continue
        word = parts[1].strip()
        if len(word) == 8:
            yield int(parts[0].strip()[:-1], 16), int(word, 16), parts[2].strip(), "\t".join(parts[3:]).split("//")[0].strip()
    if lines.wait():
        sys.exit("%s: objdump failed" % path)


def decoded(path, raw):
    if raw:
        data, at = open(path, "rb").read(), 0
    else:
        headers = subprocess.run([PREFIX + "objdump", "-h", "-j", ".text", path], capture_output=True, text=True, check=True).stdout
        size, at, offset = re.search(r" \.text +(\w+) +(\w+) +\w+ +(\w+)", headers).groups()
        at = int(at, 16)
        with open(path, "rb") as f:
            f.seek(int(offset, 16))
            data = f.read(int(size, 16))
    with tempfile.TemporaryFile() as f:
        f.write(data)
        f.seek(0)
        lines = subprocess.Popen([TOOL, "%x" % at], stdin=f, stdout=subprocess.PIPE, text=True)
        for line in lines.stdout:
            yield line.split()
        if lines.wait():
            sys.exit("a64_insns failed")


def compare(path, raw):
    """Number of instructions and of differences; prints the first of each sort."""
    wrong, seen, n, more = 0, collections.Counter(), 0, collections.Counter()
    ours = decoded(path, raw)
    row = next(ours, None)
    for at, word, name, text in disassemble(path, raw):
        while row and int(row[0], 16) < at:
            row = next(ours, None)
        if not row or int(row[0], 16) != at:
            sys.exit("%s: no line for %x" % (path, at))
        if int(row[1], 16) != word:
            sys.exit("%s: another word at %x" % (path, at))
        n += 1
        if name.startswith(".") or "undefined" in text or name.startswith("bc."):
            continue  # bc.cond: no kernel knows this branch, so the decoder refuses it
        kind, ops = int(row[2]), operands(text)
        why = None
        if kind < 0:
            why = "not decoded"
        elif KINDS[kind] not in kind_of(name, ops):
            why = "kind " + KINDS[kind]
        else:
            missing = [r for r in written(name, ops) if not int(row[4], 16) >> r & 1]
            target = re.search(r"(?:^|, )(?:0x)?([0-9a-f]+)(?: <.*>)?$", text)
            if missing:
                why = "does not name the written registers %s" % missing
            elif row[3] != "-" and not (target and int(target.group(1), 16) == int(row[3], 16) % (1 << 64)):
                why = "target " + row[3]
            elif kind == 0:
                extra = [r for r in range(32) if int(row[4], 16) >> r & 1 and r not in written(name, ops)]
                more[name] += bool(extra)
        if why:
            wrong += 1
            seen[name, why.split()[0]] += 1
            if seen[name, why.split()[0]] <= 2:
                print("%s: %x: %08x %s %s: %s" % (os.path.basename(path), at, word, name, text, why))
    print("%s: %d instructions, %d differ%s" % (
        os.path.basename(path), n, wrong,
        "; named more registers than are written: " + ", ".join("%s %d" % m for m in more.most_common(8) if m[1]) if any(more.values()) else ""))
    return wrong


def functions(path):
    """(name, code) of each exported function."""
    symbols = subprocess.run([PREFIX + "readelf", "--dyn-syms", "-W", path], capture_output=True, text=True, check=True).stdout
    headers = subprocess.run([PREFIX + "readelf", "-lW", path], capture_output=True, text=True, check=True).stdout
    loads = [tuple(int(v, 16) for v in m) for m in re.findall(r"LOAD +(0x\w+) (0x\w+) 0x\w+ (0x\w+)", headers)]
    with open(path, "rb") as f:
        for m in re.finditer(r"^ *\d+: (\w+) +(\w+) FUNC +\w+ +\w+ +\d+ (\S+)", symbols, re.M):
            at, size = int(m.group(1), 16), int(m.group(2), 0)
            for offset, start, length in loads:
                if size and start <= at < start + length and size < 1 << 18:
                    f.seek(offset + at - start)
                    yield m.group(3), f.read(size)


def sites(path):
    names, lines = [], []
    for name, code in functions(path):
        names.append(name)
        lines.append("ff " + code.hex())
    out = subprocess.run([TOOL, "--sites"], input="\n".join(lines) + "\n", capture_output=True, text=True, check=True).stdout.splitlines()
    classes = collections.Counter(re.sub(r".*class (\d+),.*", r"class \1", line) for line in out)
    print("%s: %d functions, all arguments read: %s" % (os.path.basename(path), len(names), dict(classes)))
    return 0


def main():
    args = sys.argv[1:]
    if not args or args[0] in ("-h", "--help"):
        sys.exit(__doc__.strip())
    if args[0] == "--sites":
        return any([sites(p) for p in args[1:]])
    if args[0] != "--random":
        return any([compare(p, False) for p in args])
    with tempfile.NamedTemporaryFile(suffix=".bin") as f:
        f.write(random.randbytes(4 * int(args[1])))
        f.flush()
        return compare(f.name, True) > 0


sys.exit(main())

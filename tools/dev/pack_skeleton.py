#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
Compresses the object in a skeleton of `bpftool gen skeleton`: reads the header from standard input and writes one whose
NAME__elf_bytes() unpacks the object (user/base/assets.h).

    bpftool gen skeleton FILE.bpf.o name NAME | tools/dev/pack_skeleton.py NAME FILE.bpf.o
"""
import re
import sys

import packed


def main():
    name, path = sys.argv[1:]
    text = sys.stdin.read()
    with open(path, "rb") as f:
        array, initializer = packed.as_c("object", f.read())
    body = "{\n\t%s\n\tstatic struct packed object = %s;\n\n\t*sz = object.full;\n\treturn packed__unpack(&object);\n}" % (array, initializer)
    text, count = re.subn(r"(%s__elf_bytes\(size_t \*sz\)\n)\{.*?\n\}" % name, lambda m: m[1] + body, text, flags=re.S)
    if count != 1:
        sys.exit("pack_skeleton.py: no function %s__elf_bytes() in the skeleton" % name)
    print('#include "base/assets.h"')
    sys.stdout.write(text)


main()

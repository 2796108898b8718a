#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
Writes entries.def: the first CUDA version of each form of a driver function's name.

A development tool outside of the build, as gen_calls.py is:

    tools/dryrun/gen/gen_entries.py ENVIRONMENT ... >tools/dryrun/gen/entries.def

cudaTypedefs.h of PyTorch's CUDA wheels has a type PFN_NAME_vVERSION for each form of a function, where VERSION is the form's
first version. The forms are called NAME, NAME_v2, NAME_v3 and so on in that order.
"""
import os
import re
import sys

from gen_calls import include_folders

FORM = re.compile(r"\(CUDAAPI \*PFN_(cu[A-Z]\w*?)_v(\d{4,5})\)\(")
MOST = 4  # forms, as in struct entry of entry.c


def forms(path):
    with open(path, encoding="utf-8") as f:
        for name, version in FORM.findall(f.read()):
            yield name, int(version)


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__.strip())
    known = {}
    for environment in sys.argv[1:]:
        paths = [os.path.join(f, "cudaTypedefs.h") for f in include_folders(os.path.realpath(environment))]
        paths = [p for p in paths if os.path.exists(p)]
        if not paths:
            sys.exit("gen_entries: no cudaTypedefs.h in %s" % environment)
        for path in paths:
            for name, version in forms(path):
                known.setdefault(name, set()).add(version)
    print("""/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Driver functions and the versions of CUDA that brought their forms, the first form first; sorted by name. Written by
 * gen_entries.py; do not edit.
 */""")
    for name in sorted(known):
        if len(known[name]) > MOST:
            sys.exit("gen_entries: %s has %d forms" % (name, len(known[name])))
        print("ENTRY(%s, %s)" % (name, ", ".join(map(str, sorted(known[name])))))


if __name__ == "__main__":
    main()

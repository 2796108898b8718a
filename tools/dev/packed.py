# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Writes compressed bytes as C: struct packed of user/base/assets.h. The generators in this folder call it. Equal input gives equal output."""
import gzip


def as_c(name, data):
    """The definition of an array NAME_data, and the initializer of the struct packed that has it."""
    packed = gzip.compress(data, compresslevel=9, mtime=0)
    lines = ",\n".join(",".join(map(str, packed[at:at + 24])) for at in range(0, len(packed), 24))
    return ("static const unsigned char %s_data[] = {\n%s\n};\n" % (name, lines),
            "{ .data = %s_data, .size = sizeof(%s_data), .full = %d }" % (name, name, len(data)))

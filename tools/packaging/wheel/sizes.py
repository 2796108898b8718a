# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Sizes as the command line of memtrace-bpf takes and prints them."""
import re


def parse_size(size):
    """Bytes of 2147483648, "2G" or "2 GiB". Raises ValueError."""
    if isinstance(size, int) and not isinstance(size, bool) and size > 0:
        return size
    found = re.match(r"\s*(\d+(?:\.\d+)?)\s*(B|[KMGTPE]|[KMGTPE]iB|)\s*\Z", size) if isinstance(size, str) else None
    number = int(float(found.group(1)) * 1024 ** " KMGTPE".index(found.group(2).replace("B", "")[:1] or " ")) if found else 0
    if not number:
        raise ValueError("%r is not a size; try '2 GiB'" % (size,))
    return number


def in_units(size):
    """Bytes for people, as in memtrace-bpf's own tables."""
    if abs(size) < 1024:
        return "%d B" % size
    unit, value = "", float(size)
    for unit in "KMGTPE":
        value /= 1024
        if abs(value) < 1023.995 or unit == "E":
            break
    return "%.*f %siB" % (1 if unit == "K" or abs(value) >= 999.995 else 2, value, unit)

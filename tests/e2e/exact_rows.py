# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Compares a report with what the workload exact.py did. Also for machines without anything else of the tests."""
import os

KEYS = ("file", "line", "function", "module")


def by_key(rows):
    table = {}
    for row in rows:
        entry = table.setdefault(tuple(row.get(k) for k in KEYS), [0, 0])
        entry[0] += row["count"]
        entry[1] += row["bytes"]
    return table


def difference(got, expected):
    text = []
    for key in sorted(set(got) | set(expected), key=repr):
        if got.get(key) != expected.get(key):
            text.append("%s: got %s, expected %s (count, bytes)" % (key, got.get(key), expected.get(key)))
    return text


def settle_fleeting(got, expected):
    """Tensors of code freed within microseconds: named rightly, or charged to the calling line. Unnamed ones are expected there;
    a wrong name is expected nowhere."""
    rows, moved = by_key(expected["rows"]), [0, 0]
    for key in [k for k in rows if os.path.basename(k[0]).startswith(expected["fleeting"])]:
        if key not in got:
            count, size = rows.pop(key)
            moved = [moved[0] + count, moved[1] + size]
    if moved[0]:
        caller = [k for k in got if k[2] == expected["fleeting_caller"]]
        if len(caller) == 1:
            rows[caller[0]] = moved
    return rows


def judge(doc, expected):
    """What is wrong in a report by line, as texts. expected: what the workload exact.py wrote."""
    cpu = next(d for d in doc["devices"] if d["device"] == "cpu")
    rows = doc["rows"]
    figures = {
        "lost": (doc["capture"]["lost"], 0),
        "complete": (doc["capture"]["complete"], True),
        "allocations": (cpu["allocs"], expected["allocs"]),
        "frees": (cpu["frees"], expected["frees"]),
        "bytes alive at the end": (cpu["allocated"], expected["bytes"]),
        "sum of the rows": (sum(r["bytes"] for r in rows), expected["bytes"]),
        "blocks in the rows": (sum(r["count"] for r in rows), expected["count"]),
    }
    wrong = ["%s: %s, expected %s" % (what, got, wanted) for what, (got, wanted) in figures.items() if got != wanted]
    other = difference(by_key(rows), settle_fleeting(by_key(rows), expected))
    if other:
        wrong.append("%d of %d rows differ" % (len(other), len(expected["rows"])))
    failed = {k: v for k, v in doc["capture"]["stacks"].get("failed", {}).items() if v}
    if failed:
        wrong.append("stacks that could not be read: %s" % failed)
    return wrong + other[:20]

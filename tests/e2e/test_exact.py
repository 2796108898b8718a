#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Every block, byte, line, function and module of a target with a known answer: nothing is missing or extra."""
import os

from harness import check, device, equal, finish, read_json, record, report, run, scratch, workload

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
        check(len(caller) == 1, "code that is gone is charged to %s", caller)
        rows[caller[0]] = moved
    return rows


def exact(role):
    folder = scratch("exact-" + role)
    os.mkdir(folder)
    recording, expected_file = os.path.join(folder, "exact.mtr"), os.path.join(folder, "expected.json")
    target = workload("exact.py", expected_file, folder, role=role, cwd=folder)
    target.wait_line("^ready", 120)
    recorder = record(target.popen.pid, recording)
    target.send()
    target.wait_line("^done", 60)
    finish(recorder)
    target.send()
    check(target.wait(30) == 0, "the target failed: %s", target.stderr()[-500:])

    expected = read_json(expected_file)
    doc = report(recording)
    cpu = device(doc)
    equal(doc["capture"]["lost"], 0, "lost")
    equal(doc["capture"]["complete"], True, "complete")
    equal(cpu["allocs"], expected["allocs"], "allocations")
    equal(cpu["frees"], expected["frees"], "frees")
    equal(cpu["allocated"], expected["bytes"], "bytes alive at the end")
    equal(sum(r["bytes"] for r in doc["rows"]), expected["bytes"], "sum of the rows")
    equal(sum(r["count"] for r in doc["rows"]), expected["count"], "blocks in the rows")
    wrong = difference(by_key(doc["rows"]), settle_fleeting(by_key(doc["rows"]), expected))
    check(not wrong, "%d of %d rows differ:\n    %s", len(wrong), len(expected["rows"]), "\n    ".join(wrong[:20]))
    failed = {k: v for k, v in doc["capture"]["stacks"].get("failed", {}).items() if v}
    check(not failed, "stacks that could not be read: %s", failed)


def test_torch_main():
    exact("main")


def test_torch_newest():
    exact("newest")


def test_torch_old():
    exact("old")


def test_torch_oldest():
    exact("oldest")


if __name__ == "__main__":
    run(globals())

#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
The history of `make bench`: docs/internals/bench/.

    tools/dev/bench_history.py add        keep the last run (.output/bench.json), and write README.md there
    tools/dev/bench_history.py table      write README.md from the kept results
    tools/dev/bench_history.py compare    the newest result against the one before on the same machine: what moved beyond both
                                          intervals. Exit 1: something got worse. --run: the last run against the newest result
"""
import argparse
import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from bench import history  # noqa: E402

OUT = os.path.abspath(os.environ.get("OUTPUT", os.path.join(history.REPO, ".output")))


def last_run():
    path = os.path.join(OUT, "bench.json")
    try:
        with open(path, encoding="utf-8") as f:
            return json.load(f)
    except OSError as e:
        sys.exit("bench: no run to look at: %s. Run make bench first" % e)


def compare(kept, after):
    """Exit status of the comparison of a result with the newest kept one of another commit and the same machine."""
    before = [e for e in history.like(kept, after) if e["commit"] != after["commit"]] if after else []
    if not before:
        sys.exit("bench: nothing to compare with: %s has no other result of this machine" % history.FOLDER)
    lines, worse = history.compare(before[-1], after)
    print("%s (%s) -> %s (%s)" % (before[-1]["commit"], before[-1]["measured"], after["commit"], after["measured"]))
    print("\n".join(lines) or "no figure moved beyond both intervals")
    return 1 if worse else 0


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("action", choices=("add", "table", "compare"))
    p.add_argument("--run", action="store_true")
    args = p.parse_args()
    if args.action == "compare":
        kept = history.load()
        return compare(kept, history.entry(last_run()) if args.run else kept[-1] if kept else None)
    if args.action == "add":
        try:
            print(history.add(last_run()))
        except ValueError as e:
            sys.exit("bench: %s" % e)
    history.write_table()
    return 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
Runs operations that must not harm a traced process many times: killed tracers, exceptions, forks, reloaded libraries, debuggers,
losses, another user's processes and files. Scenarios: tests/e2e/chaos.py, chaos_around.py and chaos_tenant.py.

    tools/dev/chaos.py [--scale 1] [--only NAME]...

Prints a table and writes it as Markdown to .output/chaos.md for docs/internals/SAFETY.md. Exits with 1 if a process was harmed.
"""
import argparse
import os
import platform
import statistics
import sys
import time
import traceback

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "tests", "e2e"))
import chaos  # noqa: E402
import chaos_around as around  # noqa: E402
import chaos_tenant as tenant  # noqa: E402
import harness  # noqa: E402

OFTEN = (
    (chaos.kills, 1000), (chaos.crashes, 100), (chaos.run_kills, 50), (around.little_memory, 30), (around.oom_killed, 20), (chaos.torch_kills, 20),
    (chaos.exceptions, 1000), (around.torch_exceptions, 1000), (around.return_probes, 1), (around.torch_return_probes, 1),
    (chaos.forks, 500), (chaos.vforks, 500), (chaos.spawns, 500), (around.execs, 500), (chaos.threads, 200),
    (chaos.reloads, 200), (chaos.cuda_loads, 200), (chaos.signals, 10), (chaos.seccomp, 50), (around.bystanders, 500), (around.many_files, 5000),
    (around.stopped, 20), (around.gdb, 10), (around.strace, 10), (around.tracers, 5), (around.other_uprobe, 20),
    (around.replaced, 20), (around.contained, 10), (around.on_fuse, 5), (around.reused_pids, 60),
    (around.nop5_avoided, 50), (around.nop5_refused, 1), (around.nop5_harm, 1), (chaos.overload, 100),
    (tenant.swapped_code, 5), (tenant.pointed_code, 5), (tenant.typed, 2), (tenant.planted_programs, 1), (tenant.sparse_files, 2),
    (tenant.stalled_files, 2), (tenant.linked_devices, 2), (tenant.crowds, 1), (tenant.hostile_hosts, 1), (tenant.bombs, 1),
)
COLUMNS = ("what", "times", "crashes", "wrong results", "calls counted", "counted wrongly", "code restored, ms: median, most", "")


def cells(row, last=None):
    restored = ""
    if row.restored:
        restored = "%.0f, %.0f" % (1e3 * statistics.median(row.restored), 1e3 * max(row.restored))
    return (row.name, "{:,}".format(int(row.count)), str(len(row.crashes)), str(len(row.wrong)),
            "{:,}".format(row.counted) if row.counted else "", str(len(row.inexact)), restored, last or "; ".join(row.notes))


def run(scenario, n):
    """The scenario's row; an exception is a problem of its own."""
    try:
        return scenario(n)
    except harness.Skip as e:
        row = chaos.Row(scenario.__name__)
        row.notes.append("skipped: %s" % e)
    except Exception as e:  # the other scenarios must run all the same
        row = chaos.Row(scenario.__name__)
        row.crashes.append("ended early: %s" % e)
        if not isinstance(e, harness.Failure):
            traceback.print_exc()
    finally:
        harness.stop_all()
    return row


def machine():
    return "kernel %s, %d cores" % (platform.release(), os.cpu_count())


def markdown(rows, took):
    lines = ["| %s |" % " | ".join(COLUMNS), "|---|" + "---:|" * (len(COLUMNS) - 2) + "---|"]
    lines += ["| %s |" % " | ".join(cells(row, row.summary)) for row in rows]
    return "\n".join(lines) + "\n\n`make chaos`: %s, %.0f minutes.\n" % (machine(), took / 60)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--scale", type=float, default=1.0, help="so many times as often")
    p.add_argument("--only", action="append", choices=[s.__name__ for s, _ in OFTEN])
    args = p.parse_args()
    rows, begin = [], time.monotonic()
    print(machine())
    for scenario, n in OFTEN:
        if args.only and scenario.__name__ not in args.only:
            continue
        started = time.monotonic()
        row = run(scenario, max(1, round(n * args.scale)))
        rows.append(row)
        words = ["%s %s" % (c, name) for name, c in zip(COLUMNS[1:], cells(row)[1:]) if c]
        print("%-60s %5.0f s  %s" % (row.name, time.monotonic() - started, " · ".join(words)), flush=True)
        for problem in row.problems()[:5]:
            print("    %s" % problem, flush=True)
    text = markdown(rows, time.monotonic() - begin)
    if not args.only:
        with open(os.path.join(harness.OUT, "chaos.md"), "w", encoding="utf-8") as f:
            f.write(text)
    harmed = sum(len(row.problems()) for row in rows)
    print("\n%d scenarios, %.0f s: %s" % (len(rows), time.monotonic() - begin, "%d problems" % harmed if harmed else "no harm"))
    return 1 if harmed else 0


if __name__ == "__main__":
    sys.exit(main())

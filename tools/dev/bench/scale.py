# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Costs that grow with the data: `report` of long recordings, and `record` with very many live blocks."""
import os
import re
import subprocess
import time

import harness
import truth
from bench import stats
from bench.common import attach, memory, rounds as rounds_in, spread

MAKE = os.path.join(harness.OUT, "tests", "tools", "make_events")
LIVE = 1000000


def one_report(path):
    """(seconds, CPU seconds, peak memory in bytes) of a text report."""
    begin = time.monotonic()
    p = subprocess.Popen([harness.TOOL, "report", path], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    said = p.stderr.read()
    p.stderr.close()
    _, status, used = os.wait4(p.pid, 0)
    p.returncode = os.waitstatus_to_exitcode(status)
    harness.check(p.returncode == 0, "report: %s", said[-500:])
    return time.monotonic() - begin, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024


def bench_report(args):
    out = {}
    for events in (10**6, 10**7, *([int(args.events)] if args.events else ())):
        path = harness.scratch("events.mtr")
        subprocess.run([MAKE, path, str(events)], check=True)
        found = [one_report(path) for _ in (rounds_in(args, "report of %d" % events) if events <= 10**7 else range(1))]
        out[str(events)] = {"events": events, "bytes": os.path.getsize(path), "seconds": spread([f[0] for f in found]),
                            "cpu_ns": spread([1e9 * f[1] / events for f in found]), "rss": max(f[2] for f in found)}
        os.unlink(path)
    return out


def show_report(doc):
    print("\n`report` of a made-up recording of training, 100,000 live blocks\n")
    print("| events | file, MiB | seconds | CPU ns an event, median (95 % interval) | the least | memory at most, MiB |\n|---|---|---|---|---|---|")
    for d in doc.values():
        c = d["cpu_ns"]
        print("| {:,} | {:.1f} | {:.2f} | {} | {:.0f} | {:.1f} |".format(
            d["events"], d["bytes"] / 2**20, d["seconds"]["median"], stats.text(c, 0), min(c["values"]), d["rss"] / 2**20))


def anonymous(pid):
    with open("/proc/%d/status" % pid, encoding="utf-8") as f:
        return int(re.search(r"RssAnon:\s+(\d+) kB", f.read())[1]) * 1024


def one_memory(python, device, before):
    command = [python, os.path.join(harness.WORKLOADS, "many_blocks.py"), "--device", device, "--blocks", str(LIVE)]
    env = truth.dry_run() if device == "cuda" else None
    p = harness.spawn(command + ["--before", str(LIVE if before else 0)], env=env)
    p.wait_line("^ready", 300)
    path = harness.scratch("memory.mtr")
    tracer = attach("recorded", p.popen.pid, path)
    time.sleep(3)
    attached = memory(tracer.pid)["VmRSS"]
    p.send("\n")
    p.wait_line("^live", 300)
    time.sleep(8 if before else 3)  # the census runs meanwhile
    last = memory(tracer.pid)
    anon = anonymous(tracer.pid)
    harness.finish(tracer)
    p.stop()
    return {"attached": attached, "live": last["VmRSS"], "anonymous": anon, "most": last["VmHWM"],
            "report": one_report(harness.own(path) or path)[2]}


def bench_memory(args, python):
    return {"%s, %s" % (device, "there before" if before else "made while attached"): one_memory(python, device, before)
            for device, before in (("cpu", False), ("cuda", False), ("cuda", True))}


def show_memory(doc):
    print("\nMemory of `record` beside a million live blocks, each a tensor that Python holds, MiB\n")
    print("| | attached | a million live | of it anonymous | at most | `report`, at most |\n|---|---|---|---|---|---|")
    for name, d in doc.items():
        print("| %s | %s |" % (name, " | ".join("%.0f" % (d[k] / 2**20) for k in ("attached", "live", "anonymous", "most", "report"))))

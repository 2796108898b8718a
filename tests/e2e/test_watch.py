#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Conditions on recordings (`report --fail-if`) and on running processes (`watch`): what holds, what does not, and who is to blame."""
import json
import os
import re

import harness
from harness import check, equal, python, run, scratch, spawn, tool

LEAK = os.path.join(harness.WORKLOADS, "leak.py")
with open(LEAK, encoding="utf-8") as _f:
    LINES = {m[1]: number for number, text in enumerate(_f, 1) for m in [re.search(r"# LEAK (\w+)$", text)] if m}
STEP = 16384  # bytes that `list` keeps of each

_recording = None


def recording():
    """Thirty steps that leak on a GPU that is not there."""
    global _recording
    if not _recording:
        path = scratch("fail.mtr")
        p = spawn([harness.TOOL, "run", "--dry-run-cuda", "-q", "-f", "-o", path, "--", python(), LEAK, "list", "--steps", "30", "--device",
                   "cuda"], root=True)
        equal(p.wait(90), 0, "exit code of run: %s" % p.stderr()[-500:])
        harness.own(path)
        _recording = path
    return _recording


def fail_if(*conditions, options=(), files=None):
    args = [a for c in conditions for a in ("--fail-if", c)]
    return tool("report", *args, *options, *(files or [recording()]))


def test_fail_if_to_the_byte():
    """Growth of a leak of so many bytes a step holds at just that, and not at a byte more; the line is named."""
    grown = 10 * STEP
    code, out, err = fail_if("growth>=%d/10steps" % grown)
    equal(code, 4, "exit code: %s" % err)
    check("Max mem" in out, "the report is not there: %s", out[:300])
    check("leak.py:%d" % LINES["list"] in err, "the line of the leak is not named: %s", err)
    code, _, err = fail_if("growth>%d/10steps" % grown, "ooms>0", "lost>0")
    equal((code, err), (0, ""), "exit code and words where nothing holds")
    doc = harness.report(recording())
    peak = harness.device(doc, "cuda:0")["peak_allocated"]
    equal(fail_if("peak>%d" % peak)[0], 0, "exit code at the peak")
    code, _, err = fail_if("peak>%d" % (peak - 1), options=("--at", "end"))
    equal(code, 4, "exit code a byte below the peak: %s" % err)
    check("largest at the peak" in err and "leak.py:" in err, "who is to blame for the peak, from a report of the end: %s", err)


def test_fail_if_in_json():
    code, out, err = fail_if("leaks>0", "peak<1T and growth>1M/10steps", options=("--format", "json"))
    equal(code, 4, "exit code: %s" % err)
    leaks, growth = json.loads(out)["failed"]
    equal((leaks["condition"], leaks["holds"], leaks["value"], leaks["limit"], leaks["device"]), ("leaks>0", True, 1, 0, "cuda:0"), "leaks")
    blame = leaks["blame"][0]
    equal((os.path.basename(blame["file"]), blame["line"]), ("leak.py", LINES["list"]), "who is to blame")
    equal((growth["holds"], growth["value"], growth["limit"], growth["blame"]), (False, 10 * STEP, 1 << 20, []), "what does not hold")


def test_fail_if_cannot_be_judged():
    """What is not known is an error with its reason, not false; what is no condition is refused with its place."""
    for condition, words in (("growth>1/1000steps", "of 1,000 steps so far"), ("rss>1", "watch"), ("alocated>1", "no such figure 'alocated'")):
        code, _, err = fail_if(condition)
        equal(code, 1 if "growth" in condition else 64, "exit code of %s: %s" % (condition, err))
        check(words in err, "%s: no '%s' in: %s", condition, words, err)
    code, out, err = fail_if("growth>1/1000steps or peak>0", options=("--format", "json"))
    equal(code, 4, "exit code where the rest settles it: %s" % err)
    code, out, err = fail_if("fragmentation>1%", options=("--device", "cpu", "--format", "json"))
    equal((code, json.loads(out)["failed"][0]["holds"]), (1, None), "of the CPU: %s" % err)


if __name__ == "__main__":
    run(globals())

#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# run: cpu=70
"""`estimate` of a script compared with PyTorch's own counters in it, and with separate dry runs."""
import glob
import json
import os
import re

from harness import OUT, WORKLOADS, Skip, check, equal, nightly, python, run, scratch, tool

MIB = 1 << 20
JOB = os.path.join(WORKLOADS, "estimate_job.py")
CONTEXT = 512 * MIB  # the default
GRANULE = 2 * MIB
PARAMETERS = 2 * 512 * 2048 * 4
ALLOCATED = ("weights", "gradients", "optimizer_state", "activations", "inputs", "temporary", "other")


def estimate(*options, job=(), expect=0, form="json", script=JOB):
    """The answer, the script's output, and all of standard error."""
    if not os.path.exists(os.path.join(OUT, "dryrun", "libcuda.so.1")):
        raise Skip("the dry run's libraries are not built")
    code, out, err = tool("estimate", "--format", form, *options, "--", python(), "-u", script, *job, root=True, seconds=300)
    equal(code, expect, "exit of estimate; it said %s" % err[-1500:])
    said = [json.loads(line) for line in err.splitlines() if line.startswith('{"step"')]
    return json.loads(out) if form == "json" else out, said, err


def dry_run(vram, steps):
    """Without estimate: True if the script runs to its end."""
    code, _, err = tool("run", "--dry-run-cuda", "--no-trace", "--vram", "%dM" % (vram // MIB), "--", python(), JOB, "--steps", str(steps),
                        seconds=120)
    check(code == 0 or "OutOfMemoryError" in err, "a dry run with %d MiB: %s", vram // MIB, err[-800:])
    return code == 0


def alive(word):
    """Processes with this word in their command line."""
    found = []
    for path in glob.glob("/proc/[0-9]*/cmdline"):
        try:
            with open(path, "rb") as f:
                if word.encode() in f.read():
                    found.append(path)
        except OSError:
            pass
    return found


def adds_up(doc, device):
    parts = device["parts"]
    equal(sum(parts[k] for k in ALLOCATED), device["peak_allocated"], "parts of what is allocated")
    equal(device["peak_allocated"] + parts["cached"], device["peak_reserved"], "allocated and cached")
    equal(sum(parts.values()), device["needs"], "all parts")
    equal(doc["on"]["vram"] - device["needs"], device["left"], "what is left")
    equal(sum(r["bytes"] for r in doc["report"]["rows"]), device["peak_allocated"], "rows of lines")


def test_fits():
    saved, kept = scratch("saved-by-the-script"), scratch("kept.mtr")
    doc, said, err = estimate("--vram", "2G", "-o", kept, job=("--saved", saved, "--workers", "1", "--steps", "1000000"))
    equal((doc["verdict"], doc["lower_bound"], doc["overflow"]), ("fits", False, None), "verdict")
    device, ran = doc["devices"][0], doc["run"]
    equal((ran["end"], ran["at_end"]), ("repeated", False), "how the run ended")
    first, last = ran["equal"]["first"], ran["equal"]["last"]
    equal((ran["steps"], last - first), (last, 2), "steps that were equal")
    # PyTorch's counters in that step, to the byte. Steps have two backward passes each.
    own = {s["step"]: s for s in said}
    equal((device["peak_allocated"], device["peak_reserved"]), (own[last]["allocated"], own[last]["reserved"]), "peaks")
    equal({own[s]["now"] for s in range(first, last + 1)}, {own[last]["now"]}, "what PyTorch had at the ends of equal steps")
    adds_up(doc, device)
    equal((device["parts"]["weights"], device["parts"]["optimizer_state"], device["parts"]["context"]),
          (PARAMETERS, 2 * PARAMETERS, CONTEXT), "weights, optimizer's state, context")
    check(not os.path.exists(saved), "the script was run to its end")
    check(not alive(saved), "processes that were left: %s; %s", alive(saved), err[-500:])
    equal(device["growth"]["verdict"], "unknown", "growth in a few steps")
    check(doc["advice"] is not None and "smallest" in doc, "keys: %s", sorted(doc))
    # The kept recording has the same figures.
    os.chmod(kept, 0o600)
    code, out, err = tool("report", "--format", "json", kept)
    equal(code, 0, "report of the recording: %s" % err)
    equal((json.loads(out)["allocated"], json.loads(out)["capture"]["steps"]), (device["peak_allocated"], last), "report of the recording")
    code, _, err = tool("estimate", "-o", kept, "--", "true")
    check(code == 1 and "exist" in err, "an output that is there: %d, %s", code, err)


@nightly("long")
def test_other_settings():
    """The recording has requested sizes: a replay under other settings equals a dry run with them."""
    kept, conf = scratch("other.mtr"), "expandable_segments:True,roundup_power2_divisions:4"
    sizes = ("--width", "500", "--batch", "1990")
    estimate("--vram", "2G", "--steps", "3", "-o", kept, job=("--steps", "1000000", *sizes))
    os.chmod(kept, 0o600)
    code, out, err = tool("replay", "--python", python("main"), "--format", "json", "--alloc-conf", conf, kept, root=True)
    equal(code, 0, "replay of the recording: %s" % err)
    doc = json.loads(out)
    equal((doc["recording"]["requested_sizes"], doc["own_settings"]["equal"]), (True, True), "what was asked for; its own settings")
    code, out, err = tool("run", "--dry-run-cuda", "--no-trace", "--vram", "2G", "--", "env", "PYTORCH_CUDA_ALLOC_CONF=" + conf, python(), JOB,
                          "--steps", "3", *sizes, seconds=120)
    equal(code, 0, "a dry run with other settings: %s" % err[-800:])
    own = [json.loads(line) for line in out.splitlines() if line.startswith('{"step"')]
    then = next(t for t in doc["tries"] if t["alloc_conf"] == conf)
    equal((then["peak_allocated"], then["peak_reserved"]), tuple(max(s[k] for s in own) for k in ("allocated", "reserved")),
          "peaks with %s" % conf)
    check(then["peak_allocated"] != doc["recording"]["peak_allocated"], "the settings make no difference here")


def test_grows():
    """A job that keeps memory in each step is stopped, and growth is the first thing said."""
    doc, _, _ = estimate("--vram", "2G", "--no-search", job=("--leak", "4", "--steps", "1000000"))
    equal((doc["verdict"], doc["lower_bound"], doc["run"]["end"], doc["run"]["steps"]), ("fits", True, "grows", 64), "verdict")
    g = doc["devices"][0]["growth"]
    equal((g["verdict"], g["bytes_per_step"], g["confidence"], os.path.basename(g["file"])),
          ("grows", 4 * MIB, "high", os.path.basename(JOB)), "growth")
    equal(doc["advice"][0]["kind"], "growth", "the first advice")
    # A run until memory is full: as many steps as were said, within 5 %.
    code, out, err = tool("run", "--dry-run-cuda", "--no-trace", "--vram", "2G", "--", python(), "-u", JOB, "--leak", "4", "--steps", "1000000",
                          seconds=120)
    check(code == 1 and "OutOfMemoryError" in err, "a run until memory is full: %d, %s", code, err[-800:])
    last, told = len(out.splitlines()), 64 + g["full"]["steps"]
    check(abs(told - last) < 0.05 * last, "said to be full after step %d, was after %d", told, last)


@nightly("long")
def test_short_script_names_the_holder():
    """Growth is the first thing said of a script of 30 steps, which ends long before a reading every 10 s."""
    script, path = os.path.join(WORKLOADS, "tiny.py"), scratch("tiny.mtr")
    doc, _, _ = estimate("-o", path, script=script)
    with open(script, encoding="utf-8") as f:
        line = next(i for i, text in enumerate(f, 1) if "# the leak" in text)
    g = doc["devices"][0]["growth"]
    equal((doc["run"]["end"], doc["run"]["steps"]), ("ended", 30), "end")
    equal((g["verdict"], g["bytes_per_step"], g["confidence"], g["line"], g["function"]), ("grows", 4 * MIB, "medium", line, "main"), "growth")
    equal(g["held_by"].split(" (")[0], "local keep[*] in main", "holder")
    equal(doc["advice"][0]["kind"], "growth", "the first advice")
    check("keep[*]" in doc["advice"][0]["text"], "the first advice is %r", doc["advice"][0]["text"])
    out, _, _ = estimate(form="text", script=script)
    lines = out.splitlines()
    check(re.fullmatch(r"fits, but memory grows 4\.00 MiB per step: enough for about [0-9,]+ more steps", lines[0]), "the first line: %s", lines[0])
    growth = " ".join(part.strip() for part in lines[2:4])
    for part in ("+4.00 MiB/step", "tiny.py:%d (main)" % line, "held by keep[*] in main", "confidence medium"):
        check(part in growth, "%r is not in %r", part, growth)
    code, out, _ = tool("report", "--advice", path, root=True)
    equal(code, 0, "exit of report")
    said = [text for text in out.splitlines() if text.startswith("Growth") or "stop the leak" in text]
    equal(len(said), 2, "growth and advice in\n%s" % out)
    check("held by keep[*] in main" in said[0] and "keep[*]" in said[1], "report says %r", said)


@nightly("long")
def test_does_not_fit():
    """The line, and the smallest memory: enough for a dry run, while one granule less is not."""
    doc, _, err = estimate("--vram", "544M", expect=4)
    equal(doc["verdict"], "does_not_fit", "verdict")
    over = doc["overflow"]
    frames = re.findall(r'File "[^"]*estimate_job\.py", line (\d+)', err[:err.rindex("OutOfMemoryError")])
    equal((os.path.basename(over["file"]), over["line"]), ("estimate_job.py", int(frames[-1])), "the line that overflows")
    check(over["phase"] in ("forward", "backward", "optimizer") and over["asked"] > 0, "what overflows: %s", over)
    device = doc["devices"][0]
    adds_up(doc, device)
    check(device["left"] < 0 and not doc["lower_bound"], "what is left: %s", device)
    smallest = doc["smallest"]
    check(smallest["vram"] and smallest["less_refused"], "the smallest: %s", smallest)
    check(544 * MIB < smallest["vram"] <= device["needs"] + GRANULE, "the smallest: %s of %s", smallest, device["needs"])
    equal((dry_run(smallest["vram"], 8), dry_run(smallest["vram"] - GRANULE, 8)), (True, False), "dry runs by themselves")


def test_refused_and_caught():
    """A script that requests less after a refusal fits, and the output says so. It is stopped after the given number of steps."""
    out, said, _ = estimate("--device", "4090", "--vram", "1G", "--steps", "2", "--top", "3", job=("--steps", "1000000", "--greedy", "4096", "--lookups", "8000"),
                            form="text")
    check(out.startswith("fits: "), "the answer: %s", out[:300])
    check(re.search(r"\d+ requests? for memory (was|were) refused, and the script continued", out), "the answer: %s", out[:500])
    check("2 optimizer steps" in out and "What overflows" in out and "not run" in out, "the answer: %s", out)
    check(len(said) >= 2, "what the script printed: %s", said)
    check("RTX 4090" in out and "capability 8.9" in out, "the device: %s", out[:500])
    check("\033[" not in out, "colours: %r", out[:200])


def test_script_fails():
    """The script's own error is shown, without an estimate."""
    out, said, err = estimate("--vram", "2G", "--no-search", job=("--fail",), expect=2, form="text")
    check("ValueError: this script is wrong" in err and "no estimate" in err and "exit status 1" in err, "what was said: %s", err[-800:])
    check(out.startswith("not known: ") and "a lower bound: it failed" in out, "the answer: %s", out[:400])
    equal(len(said), 1, "steps that it made")


def test_bounds():
    """Scripts that take too much time or memory, here before PyTorch is loaded."""
    hold = "import time\nx = bytearray(64 << 20)\nfor i in range(0, len(x), 4096): x[i] = 1\ntime.sleep(120)"
    for options, words in ((("--max-time", "1s"), "--max-time"), (("--max-host-memory", "32M"), "--max-host-memory")):
        code, out, err = tool("estimate", *options, "--", python(), "-c", hold, root=True, seconds=60)
        equal((code, out), (2, ""), "%s: exit, output; %s" % (options, err))
        check("stopped" in err and words in err, "what was said: %s", err)
    check(not alive("bytearray(64 << 20)"), "left behind: %s", alive("bytearray(64 << 20)"))


def test_usage():
    for options in (("--device", "toaster"), ("--sm", "9.9"), ("--vram", "1M"), ("--vram", "9T"), ("--format", "xml"), ("--rank", "-1"),
                    ("--min-vram", "--no-search"), ("--devices", "65"), ("--max-time", "0"), ("--tracer", "strace"), ("-o", "-"),
                    ("--vram", "256M")):
        code, out, err = tool("estimate", *options, "--", "true")
        equal((code, out), (64, ""), "exit of %s, output; it said %s" % (options, err))
    check("h100" in tool("estimate", "--device", "toaster", "--", "true")[2], "devices that are known are not said")
    code, _, err = tool("estimate", "--", "/nowhere/at/all", root=True)
    check(code == 127 and "/nowhere/at/all" in err, "no such command: %d, %s", code, err)


if __name__ == "__main__":
    run(globals())

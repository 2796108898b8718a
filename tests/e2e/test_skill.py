#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# run: cpu=80 long
"""SKILL.md, which tells agents what to run and what to conclude: its commands and tables, followed to the letter, give the planted
fault of four jobs."""
import json
import os
import re
import shlex

import harness
import test_gpu_holders as gpu_holders
from harness import REPO, check, equal, python, run, scratch, tool

SKILL = os.path.join(REPO, "docs", "skill", "memtrace-bpf", "SKILL.md")
FAULTS = os.path.join(harness.WORKLOADS, "faults", "faults.py")
NOT_KNOWN = "(not known)"


def text():
    with open(SKILL, encoding="utf-8") as f:
        return f.read()


def tables():
    """{the first column's heading: {its cell: cells}} of all tables. A cell with two names has a row for each."""
    found, heading = {}, None
    for line in text().splitlines():
        cells = [c.strip() for c in line.strip("|").split("|")] if line.startswith("|") else None
        if not cells:
            heading = None
        elif heading is None:
            heading = cells[0]
            found[heading] = {}
        elif set(cells[0]) != {"-"}:
            for name in re.findall(r"`([^`]+)`", cells[0]) or [cells[0]]:
                found[heading][name] = cells[1:]
    return found


TABLES = tables()


def command_of(case, **words):
    """The words of a case's command, with the job's own in place of PID, FILE, ... Each has to be there."""
    command = re.search(r"`([^`]+)`", TABLES["case"][case][-1])[1]
    for name, word in words.items():
        check(re.search(r"\b%s\b" % name, command), "no %s in the command of %s: %s", name, case, command)
        command = re.sub(r"\b%s\b" % name, lambda _, word=word: word, command)
    return shlex.split(command)


def follow(case, env=None, **words):
    """Runs the command of a case. Returns the conclusion from its exit status, and its output."""
    command = command_of(case, **words)
    root = command[0] == "sudo"
    command = command[1:] if root else command
    equal(command[0], "memtrace-bpf", "program of the case " + case)
    code, out, err = tool(*command[1:], root=root, seconds=180, env=env)
    check(str(code) in TABLES["status"], "exit status %d of %s: %s", code, command, err)
    check(command[1] != "run" or code == 0, "exit status %d of the job: %s %s", code, out, err)
    return TABLES["status"][str(code)][0], json.loads(out) if "json" in command else out


def fill(template, found):
    """A sentence of the table with the values of the keys that it names."""
    return re.sub(r"`([a-z_]+)`", lambda m: m[0] if m[1] not in found else NOT_KNOWN if found[m[1]] is None else str(found[m[1]]), template)


def judge(document):
    """Section 3: (conclusions about symptoms, that about the cause or about no fault, what to do)."""
    symptoms = []
    for finding in document["findings"]:
        if not finding["fault"]:
            continue
        conclude, do = TABLES["code"].get(finding["code"], TABLES["code"]["another code"])
        if do != "go on to the next fault":
            return symptoms, fill(conclude, finding), fill(do, finding)
        symptoms.append(fill(conclude, finding))
    if symptoms:
        return symptoms, None, "case `oom`, then case `device`"
    return symptoms, TABLES["growth_known"]["true" if document["growth_known"] else "false"][0], None


def started(program, vram="2G", steps="60", env=None):
    """The recording of a program of faults.py, by the case no-gpu."""
    path = scratch(program + ".mtr")
    command = " ".join(shlex.quote(w) for w in (python(), FAULTS, program, "--device", "cuda", "--pause", "0", "--steps", steps))
    follow("no-gpu", SIZE=vram, FILE=path, COMMAND=command, env=env)
    return path


def line_in(text, file, function):
    check(re.search(r"%s:\d+ \(%s\)" % (re.escape(file), re.escape(function)), text), "%s (%s) is not in: %s", file, function, text)


def test_leak():
    """The line, the holder, and the rate; then the lines at the peak."""
    path = started("in_dict")
    said, document = follow("file", FILE=path)
    check("found a fault" in said, "status: %s", said)
    symptoms, cause, do = judge(document)
    equal(symptoms, [], "symptoms")
    line_in(cause, "job.py", "Job.predict")
    # 64 rows of 256 floats.
    check(" allocates 65536.0 bytes more in each step, and local seen[*] in in_dict " in cause, "cause: %s", cause)
    check(do.startswith("empty local seen[*]"), "remedy: %s", do)
    _, peak = follow("peak", FILE=path)
    check(any(r["function"] == "Job.predict" for r in peak["rows"]), "lines at the peak: %s", peak["rows"][:3])


def test_fragmentation():
    """The symptom is the failed request, the cause are the pieces; with the remedy the job runs."""
    path = started("pieces", steps="2")
    symptoms, cause, do = judge(follow("file", FILE=path)[1])
    equal(len(symptoms), 1, "symptoms: %s" % symptoms)
    check(symptoms[0].startswith("a request of %d bytes failed at" % (400 << 20)), "symptom: %s", symptoms)
    line_in(symptoms[0], "faults.py", "pieces")
    check(cause.startswith("enough memory was cached, but in pieces"), "cause: %s", cause)
    (oom,) = [d["out_of_memory"][0] for d in follow("oom", FILE=path)[1]["devices"] if d["device"] == "cuda:0"]
    check("piece" in json.dumps(oom["why"]), "why the request found no place: %s", oom)
    name, value = re.search(r"set `([A-Z_]+)=([^`]+)`", do).groups()
    mended = follow("file", FILE=started("pieces", steps="2", env={**os.environ, name: value}))[1]
    equal([f["code"] for f in mended["findings"] if f["fault"]], [], "faults with the remedy")


def test_batch_that_grows():
    """It is not called a leak. Between it and the leak, the line that grew is named."""
    path = started("growing_inputs")
    symptoms, cause, do = judge(follow("file", FILE=path)[1])
    equal(symptoms, [], "symptoms")
    check(cause.startswith("nothing leaks: ") and do.startswith("limit the batch"), "cause: %s; %s", cause, do)
    line_in(cause, "job.py", "Job.loss")
    few = judge(follow("file", FILE=started("in_dict", steps="5"))[1])
    check(few[1].startswith("not known"), "after 5 steps: %s", few)
    _, changed = follow("change", OLD=scratch("in_dict.mtr"), NEW=path)
    check("Job.loss" in json.dumps(changed["rows"]), "rows of diff: %s", changed["rows"][:3])


def test_other_process():
    """A device that another process holds: whose it is, and that nothing is to be ended without asking."""
    p, dead = gpu_holders.holder(), gpu_holders.dead_pid()
    env = gpu_holders.machine("process 0 %d 60G" % p.pid, "process 0 %d 1G" % dead, name="skill-machine")
    (device,) = [d for d in follow("device", env=env)[1]["devices"] if d["device"] == 0]
    rows = sorted((h for h in device["holders"] if h["bytes"]), key=lambda h: -h["bytes"])
    said = [fill(TABLES["left_over"]["true" if h["left_over"] else "false"][0], h) for h in rows]
    equal([h["pid"] for h in rows], [p.pid, dead], "holders")
    check("(PID %d, user root) holds 64424509440 bytes, and nothing says that it is left over" % p.pid in said[0], "the holder: %s", said)
    check("holds 1073741824 bytes and is probably left over: the driver lists it" in said[1] and "do not run it yourself" in said[1], "the dead one: %s", said)
    p.stop()


def test_process():
    """A process that runs, and its host memory."""
    job = harness.spawn_job([python(), FAULTS, "in_dict", "--pause", "0.02"])
    job.wait_line("step 3")
    _, cause, _ = judge(follow("process", PID=str(job.pid))[1])
    line_in(cause, "job.py", "Job.predict")
    _, document = follow("rss", PID=str(job.pid))
    check("devices" in document or "rss" in json.dumps(document), "host memory: %s", str(document)[:300])
    job.stop()


def test_complete():
    """Each fault has a row; keys and options exist; the file is short, and has what readers of skills need."""
    with open(os.path.join(REPO, "docs", "reference", "diagnose.md"), encoding="utf-8") as f:
        reference = f.read()
    rows = [r for r in re.findall(r"^\| (`.*?) \| (.*?) \|$", reference.partition("| code | meaning |")[2], re.M) if not r[1].startswith(("saving", "about the recording"))]
    equal(sorted(c for codes, _ in rows for c in re.findall(r"`(\w+)`", codes)), sorted(set(TABLES["code"]) - {"another code"}), "codes of faults")
    keys = set(re.findall(r"`(\w+)`", reference.partition("| key of a finding |")[2].partition("| code |")[0]))
    used = {k for conclude, do in TABLES["code"].values() for k in re.findall(r"(?<!case )`([a-z_]+)`", conclude + do)}
    check(used <= keys, "keys that a finding does not have: %s", used - keys)
    for case in TABLES["case"]:
        words = command_of(case)
        words = words[1:] if words[0] == "sudo" else words
        if words[0] == "memtrace-bpf":
            known = tool("help", words[1], "--all")[1] + tool("help", "--all")[1]
            options = [w for w in words[2:] if w.startswith("-") and w != "--"]
            check(options and all(re.search(r"(?<![\w-])%s(?![\w-])" % re.escape(o), known) for o in options), "options of %s: %s", case, options)
    front = text().split("---\n")[1]
    check(re.search(r"^name: memtrace-bpf$", front, re.M) and len(front) < 1024 and len(text().splitlines()) <= 120, "front matter, or %d lines", len(text().splitlines()))


if __name__ == "__main__":
    run(globals())

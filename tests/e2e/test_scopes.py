#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# run: cpu=60
"""Scopes: the figures of the functions that --scope names are those that torch.cuda reports of them."""
import csv
import glob
import json
import os
import pickle
import subprocess
import sys

import parquet
import truth

from harness import REPO, WORKLOADS, Skip, check, compiled, equal, finish, nightly, own, python, record, run, scratch, spawn, spawn_job, tool

LOOP = os.path.join(WORKLOADS, "rl_loop.py")
ROUNDS = 4
NAMES = ("rollout", "Policy.train", "rl_loop.py:sync")
_made = {}


def recording(phases=False):
    """A recording of the loop on the dry run, and the figures that the loop printed. phases: the loop names its phases itself."""
    if phases not in _made:
        path = scratch("phases.mtr" if phases else "rl.mtr")
        code, out, err = tool("run", "--dry-run-cuda", "-q", "-f", "-o", path, "--", python(), LOOP, "cuda", str(ROUNDS), root=True, seconds=300,
                              env={**os.environ, **({"RL_PHASES": "1"} if phases else {})})
        equal(code, 0, "exit code of run (%s)" % err)
        own(path)
        _made[phases] = path, json.loads([line for line in out.splitlines() if line.startswith("[{")][0])
    return _made[phases]


def document(path, *options):
    code, out, err = tool("report", "--json", *options, path, seconds=120)
    equal(code, 0, "report (%s)" % err)
    return json.loads(out)


def options_for(names):
    return [o for name in names for o in ("--scope", name)]


def runs_of(doc, name):
    """The figures of cuda:0 in all runs of the scope, in their order."""
    scopes = doc["scopes"]["scopes"]
    runs = [r for r in doc["scopes"]["runs"] if scopes[r["scope"]]["name"] == name]
    equal([r["number"] for r in runs], list(range(1, len(runs) + 1)), "numbers of the runs of " + name)
    return [{**d, "ended": r["ended"]} for r in runs for d in r["devices"] if d["device"] == "cuda:0"]


def test_equal_to_torch():
    """Peaks and reserved peaks of all runs, to the byte, and the memory at begin and end."""
    path, told = recording()
    doc = document(path, *options_for(NAMES))
    equal([f["found"] for f in doc["scopes"]["functions"]], [True] * 3, "functions that were found")
    for name in NAMES:
        wanted = [t for t in told if t["scope"] == name.split(":")[-1].split(".")[-1]]
        equal(len(wanted), ROUNDS, "runs of %s in the job" % name)
        runs = runs_of(doc, name)
        equal([(r["start"], r["peak_allocated"], r["peak_reserved"]) for r in runs], [(w["start"], w["peak"], w["reserved"]) for w in wanted], name)
        equal([r["end"] for r in runs], [w["end"] for w in wanted], "memory at the end of " + name)
    kept = [r["kept"] for r in runs_of(doc, "rollout")]
    equal(kept, [(n + 2) * 64 * 256 * 4 for n in range(ROUNDS)], "bytes that each rollout keeps")


def test_named_equal_to_torch():
    """Phases that the job names itself: start, peak, reserved peak and end of each run, to the byte, without an option."""
    path, told = recording(phases=True)
    doc = document(path)
    equal({(s["name"], s["source"], s["inside"]) for s in doc["scopes"]["scopes"]}, {("rl " + n, "phase", None) for n in ("rollout", "train", "sync")}, "phases")
    for name in ("rollout", "train", "sync"):
        wanted = [t for t in told if t["scope"] == name]
        runs = runs_of(doc, "rl " + name)
        equal([tuple(r[k] for k in ("start", "peak_allocated", "peak_reserved", "end")) for r in runs],
              [tuple(w[k] for k in ("start", "peak", "reserved", "end")) for w in wanted], name)
        at = document(path, "--at", "scope:rl %s#2" % name)
        equal((at["allocated"], sum(r["bytes"] for r in at["rows"])), (wanted[1]["peak"],) * 2, "rows at the peak of the second run")
    peak = max(t["peak"] for t in told if t["scope"] == "rollout")
    kept = document(path, "--at", "end", "--filter", 'scope:"rl rollout"')
    equal({r["function"] for r in kept["rows"]}, {"Policy.rollout"} if kept["rows"] else set(), "lines in rollout")
    for limit, status in ((peak - 1, 4), (peak, 0)):
        code, _, err = tool("report", "--fail-if", 'scope:"rl rollout" peak>%d' % limit, path)
        equal(code, status, "exit of a limit of %d (%s)" % (limit, err))


def ranges_recorded(name, device, role="main"):
    """Attaches to ranges.py by its PID. Returns the recording and what the job said of its ranges."""
    env = truth.dry_run() if device == "cuda" else dict(os.environ, PYTHONUNBUFFERED="1")
    job = (spawn_job if role == "main" else spawn)([python(role), os.path.join(WORKLOADS, "ranges.py"), device, str(ROUNDS)], env=env)
    job.wait_line("^ready", 300)
    path = scratch(name)
    recorder = record(job.pid, path)
    job.send()
    job.wait_line(r"^\[\{", 120)
    finish(recorder)
    job.send()
    job.wait()
    own(path)
    return path, json.loads([line for line in job.stdout().splitlines() if line.startswith("[{")][0])


# Each range of ranges.py, with the one around it.
RANGES = {("step", "nvtx", None), ("prefetch", "nvtx", None), ("collate é", "record_function", "prefetch"), ("forward", "record_function", "step"),
          ("loss", "nvtx", "forward"), ("backward", "nvtx", "step"), ("checkpoint", "record_function", None), ("write", "nvtx", "checkpoint"),
          ("validate", "record_function", None)}


def ranges_of(doc):
    scopes = doc["scopes"]["scopes"]
    return {(s["name"], s["source"], None if s["inside"] is None else scopes[s["inside"]]["name"]) for s in scopes}


def test_ranges_equal_to_torch():
    """An unchanged job with NVTX ranges and record_function, attached by its PID: each run of each range has torch.cuda's figures, to the byte."""
    path, told = ranges_recorded("ranges.mtr", "cuda")
    doc = document(path)
    equal(ranges_of(doc), RANGES, "ranges")
    equal((doc["scopes"]["runs_left_out"], sum(s["open_at_end"] for s in doc["scopes"]["scopes"])), (0, 0), "runs left out, and open at the end")
    for name, _, _ in RANGES:
        wanted = [tuple(t[k] for k in ("start", "peak", "reserved", "end")) for t in told if t["name"] == name]
        equal(len(wanted), ROUNDS, "runs of %s in the job" % name)
        equal([tuple(r[k] for k in ("start", "peak_allocated", "peak_reserved", "end")) for r in runs_of(doc, name)], wanted, name)
        at = document(path, "--at", "scope:%s#2" % name)
        equal((at["allocated"], sum(r["bytes"] for r in at["rows"])), (wanted[1][1],) * 2, "rows at the peak of the second " + name)
    rows = {r["scope"]: r["bytes"] for r in document(path, "--by", "scope", "--at", "end")["rows"]}
    equal(rows["prefetch > collate é"], ROUNDS << 16, "bytes of the loader's ranges at the end: %s" % rows)
    counters = doc["capture"]["counters"]
    equal((counters["records.scope"], counters.get("lost.scope", 0)), (ROUNDS * (4 + 2 * 5 + 2), 0), "records of ranges")


@nightly("versions")
def test_ranges_of_versions():
    """The same with other PyTorchs: NVTX is in libnvToolsExt up to 2.4, and std::string has another ABI up to 2.6."""
    for role in ("newest", "middle", "cu12", "old"):
        path, told = ranges_recorded("ranges-%s.mtr" % role, "cpu", role)
        doc = document(path, "--device", "cpu")
        equal(ranges_of(doc), RANGES, "ranges in " + role)
        took = {s["name"]: [d["peak_allocated"] - d["start"] for d in s["devices"] if d["device"] == "cpu"] for s in doc["scopes"]["scopes"]}
        equal((took["validate"], took["checkpoint"]), ([300 * ROUNDS << 10], [700 << 10]), "bytes from start to peak in " + role)
        equal({s["name"]: s["runs"] for s in doc["scopes"]["scopes"]}, {t["name"]: ROUNDS for t in told}, "runs in " + role)
    # PyTorch 1.13 has no end of record_function that can be probed, and this build has no NVTX.
    path, told = ranges_recorded("ranges-debian.mtr", "cpu", "debian")
    check("scopes" not in document(path) and all(t["source"] == "record_function" for t in told), "scopes of PyTorch 1.13")


def test_begun_before():
    """A scope from before the recording has no figures for each step: it is in the first ones, too. Those inside it have."""
    doc = document(os.path.join(REPO, "tests", "data", "recordings", "v7-attached.mtr"))["scopes"]
    equal({s["name"]: (s["began_before"], s["per_step"] is None) for s in doc["scopes"]}, {"job": (1, True), "pause": (0, False)}, "scopes")


USDT_JOB = """
import ctypes, sys
c10, probes = (ctypes.CDLL(path) for path in sys.argv[1:3])
new, delete = c10._ZN3c1025ProfiledCPUMemoryReporter3NewEPvm, c10._ZN3c1025ProfiledCPUMemoryReporter6DeleteEPv
new.argtypes, delete.argtypes = [ctypes.c_void_p] * 2 + [ctypes.c_size_t], [ctypes.c_void_p] * 2
class Step(ctypes.Structure):
    _fields_ = [("number", ctypes.c_uint64), ("name", ctypes.c_char_p)]
print("ready", flush=True)
sys.stdin.readline()
watched = probes.watched()
for i in range(3):
    probes.begin(b"rollout")
    new(None, 0x10000 + 0x1000 * i, 1000)
    probes.begin_step(ctypes.byref(Step(i, b"generate")))
    new(None, 0x20000, 500)
    probes.end()
    delete(None, 0x20000)
    probes.save(i)
    probes.end()
    new(None, 0x30000, 70)
    probes.saved()
    delete(None, 0x30000)
probes.begin_far()
probes.end()
probes.begin(bytes((1, 2, 3)))
probes.end()
probes.begin(None)
probes.end()
print("watched %d" % watched, flush=True)
sys.stdin.readline()
print("after it %d" % probes.watched(), flush=True)
sys.stdin.readline()
"""


def stand_in():
    """A library with the names of PyTorch's hooks."""
    path = scratch("libc10.so")
    if not os.path.exists(path):
        subprocess.run(["gcc", "-O2", "-shared", "-fPIC", "-o", path, os.path.join(REPO, "tests", "kernels", "c10.c")], check=True)
    return path


def test_usdt():
    """Scopes of USDT probes that --scope names, in a process that runs already: names, nesting, pairs that overlap, peaks, and the semaphore."""
    if os.uname().machine != "x86_64":
        raise Skip("USDT probes are read on x86-64 only")
    job = spawn([sys.executable, "-c", USDT_JOB, stand_in(), compiled("usdt_scopes")])
    job.wait_line("^ready", 60)
    path = scratch("usdt.mtr")
    pairs = ("step__begin,step__end", "save__begin,save__end", "alone__begin,alone__end", "none__begin,none__end")
    recorder = record(job.pid, path, *[o for pair in pairs for o in ("--scope", "usdt:trainer:" + pair)])
    job.send()
    said = job.wait_line("^watched", 60).split()
    check(int(said[1]) > 0, "the semaphore while recorded: %s", said)
    finish(recorder)
    job.send()
    job.wait_line("^after it 0$", 60)
    job.send()
    equal(job.wait(), 0, "exit code of the job")
    err = recorder.stderr()
    check("usdt:trainer:alone__begin,alone__end: not recorded in " in err and "only one of the two probes" in err, "a begin without an end: %s", err)
    check("usdt:trainer:none__begin,none__end: no file of the process has these probes" in err, "probes that nobody has: %s", err)
    check("step__begin" not in err and "save__begin" not in err, "probes that there are: %s", err)
    own(path)
    doc = document(path)
    scopes = doc["scopes"]["scopes"]
    equal({(s["path"], s["source"], s["runs"]) for s in scopes},
          {("rollout", "usdt", 3), ("rollout > generate", "usdt", 3), ("rollout > trainer:save__begin", "usdt", 3), ("far name", "usdt", 1),
           ("trainer:step__begin", "usdt", 2)}, "scopes")
    equal(sum(s["open_at_end"] for s in scopes), 0, "open at the end")
    peaks = {s["path"]: [d["peak_allocated"] for d in s["devices"] if d["device"] == "cpu"] for s in scopes}
    equal([peaks[p] for p in ("rollout", "rollout > generate", "rollout > trainer:save__begin")], [[3500], [3500], [3070]], "peaks")
    counters = doc["capture"]["counters"]
    equal((counters["records.scope"], counters.get("lost.scope", 0)), (24, 0), "records of scopes")


PYTHON_JOB = """
import ctypes, gc, sys
c10 = ctypes.CDLL(sys.argv[1])
def new(addr, size):
    c10._ZN3c1025ProfiledCPUMemoryReporter3NewEPvm(None, ctypes.c_void_p(addr), ctypes.c_size_t(size))
sys.new = new
sys.path.insert(0, sys.argv[2])
gc.disable()
print("ready", flush=True)
sys.stdin.readline()
import outer_module
gc.collect()
print("done", flush=True)
sys.stdin.readline()
"""


def has_probes(path):
    if not os.path.exists(path):
        return False
    with open(path, "rb") as f:
        return b"import__find__load__start" in f.read()


def test_usdt_of_python():
    """The probes of Python itself, of a Python built --with-dtrace, as Debian's: imports have their modules' names, and are nested."""
    binary = next((p for p in (sys.executable, "/usr/bin/python3") if has_probes(p)), None)
    if not binary or os.uname().machine != "x86_64":
        raise Skip("no Python here is built --with-dtrace")
    folder = scratch("usdt-modules")
    os.mkdir(folder)
    for name, text in (("outer_module", "import inner_module, sys\nsys.new(0x1000, 300)\n"), ("inner_module", "import sys\nsys.new(0x2000, 40)\n")):
        with open(os.path.join(folder, name + ".py"), "w") as f:
            f.write(text)
    job = spawn([binary, "-B", "-c", PYTHON_JOB, stand_in(), folder])
    job.wait_line("^ready", 60)
    path = scratch("usdt-python.mtr")
    recorder = record(job.pid, path, "--scope", "usdt:python:import__find__load__start,import__find__load__done", "--scope", "usdt:python:gc__start,gc__done")
    job.send()
    job.wait_line("^done", 60)
    finish(recorder)
    job.send()
    equal(job.wait(), 0, "exit code of the job")
    own(path)
    scopes = {s["path"]: s for s in document(path)["scopes"]["scopes"] if "_module" in s["path"] or "gc" in s["path"]}
    equal({p: (s["runs"], [d["peak_allocated"] for d in s["devices"] if d["device"] == "cpu"]) for p, s in scopes.items()},
          {"outer_module": (1, [340]), "outer_module > inner_module": (1, [40]), "python:gc__start": (1, [340])}, "imports and a collection")


def test_usdt_words():
    for wrong in ("usdt:", "usdt:a", "usdt:a:b", "usdt:a:b,", "usdt::b,c", "usdt:a:,c", "usdt:a:b,b", "usdt:a:b,c,d", "usdt:a:b:c,d", "usdt:a:b c,d",
                  "usdt:a:%s,c" % ("b" * 64)):
        code, _, err = tool("record", "-p", "1", "--scope", wrong)
        check(code == 64 and "is not usdt:PROVIDER:BEGIN,END" in err, "%s: exit %d, %s", wrong, code, err)
    code, _, err = tool("record", "-p", "1", *[o for n in range(9) for o in ("--scope", "usdt:a:b,c%d" % n)])
    check(code == 64 and "more than 8 pairs" in err, "nine pairs: exit %d, %s", code, err)
    code, _, err = tool("report", "--scope", "usdt:a:b,c", os.path.join(REPO, "tests", "data", "recordings", "v7-attached.mtr"))
    check(code == 64 and "give this option to record" in err, "at report: exit %d, %s", code, err)


def test_nested_and_recursive():
    """A function inside another is a scope inside its scope; a recursive call belongs to the outer one."""
    path, _ = recording()
    doc = document(path, *options_for(("train", "loss_of")))["scopes"]
    names = {s["name"]: s for s in doc["scopes"]}
    equal(set(names), {"train", "loss_of"}, "paths")
    equal((names["train"]["runs"], names["loss_of"]["runs"]), (ROUNDS, 2 * ROUNDS), "runs")
    equal(doc["scopes"][names["loss_of"]["inside"]]["name"], "train", "the scope around loss_of")
    peaks = {n: [d["peak_allocated"] for d in s["devices"] if d["device"] == "cuda:0"][0] for n, s in names.items()}
    check(peaks["train"] >= peaks["loss_of"], "the peak of train is below that of loss_of in it: %s", peaks)


def test_at_scope():
    """--at scope:NAME is the moment of its highest peak, --at scope:NAME#N that of one run; the rows add up to that peak."""
    path, _ = recording()
    for name in ("rollout", "sync"):
        peaks = [r["peak_allocated"] for r in runs_of(document(path, "--scope", name), name)]
        for which, peak in [("", max(peaks))] + [("#%d" % (i + 1), p) for i, p in enumerate(peaks)]:
            doc = document(path, "--at", "scope:" + name + which)
            equal((doc["allocated"], sum(r["bytes"] for r in doc["rows"])), (peak, peak), "bytes at scope:%s%s" % (name, which))
    code, _, err = tool("report", "--at", "scope:rollout#9", path)
    check(code == 2 and "'rollout' ran 4 times" in err, "run 9 of 4: exit %d, %s", code, err)
    code, _, err = tool("report", "--at", "scope:rolout", path)
    check(code == 2 and "there is no scope 'rolout'" in err, "a function that does not exist: exit %d, %s", code, err)
    with open(path, "rb") as f:
        code, _, err = tool("report", "--at", "scope:rollout", "-", stdin=f)
    check(code == 64 and "must be a file" in err, "standard input: exit %d, %s", code, err)


def test_lines_at_the_peak():
    """--scopes: the largest lines at the peak of each scope's highest run. With the others they add up to it."""
    path, _ = recording()
    doc = document(path, "--scopes", *options_for(("rollout", "sync", "loss_of")))["scopes"]
    for scope in doc["scopes"]:
        for device in scope["devices"]:
            lines = device["lines"]
            equal(sum(line["bytes"] for line in lines) + device["other_lines"], device["peak_allocated"], "lines of %s on %s" % (scope["name"], device["device"]))
            if device["device"] == "cuda:0":
                at = document(path, "--at", "scope:" + scope["name"], "--top", "0")["rows"]
                largest = {}
                for r in at:
                    largest[r["file"], r["line"]] = largest.get((r["file"], r["line"]), 0) + r["bytes"]
                equal([line["bytes"] for line in lines], sorted(largest.values(), reverse=True)[:5], "the largest lines of " + scope["name"])
    check("lines" not in document(path, "--scope", "rollout")["scopes"]["scopes"][0]["devices"][0], "lines without --scopes")
    # The loop has two steps in each round, of which the last step ends before sync.
    per_step = {s["name"]: s["per_step"]["runs"] for s in doc["scopes"] if s["source"] == "function"}
    equal(per_step, {"rollout": 0.5, "sync": (ROUNDS - 1) / 2 / ROUNDS, "loss_of": 1}, "runs in a step")
    equal([r["step"] for r in doc["runs"] if doc["scopes"][r["scope"]]["name"] == "rollout"], [0, 2, 4, 6], "steps of the rollouts")
    with open(path, "rb") as f:
        code, out, err = tool("report", "--scopes", "--scope", "rollout", "-", stdin=f)
    check(code == 0 and "rollout" in out and "other lines" not in out, "standard input (%s): %s", err, out)


def test_by_scope():
    """--by scope: rows by the innermost scope that allocated the memory. They add up, and those inside a function are what --filter keeps."""
    path, _ = recording()
    names = options_for(("rollout", "Policy.train", "loss_of", "sync"))
    for at in ("peak", "end", "scope:rollout#2"):
        doc = document(path, *names, "--by", "scope", "--at", at)
        rows = {r["scope"]: r["bytes"] for r in doc["rows"]}
        check(set(rows) <= {None, "rollout", "Policy.train", "Policy.train > loss_of", "sync"}, "scopes at %s: %s", at, rows)
        equal(sum(rows.values()), doc["allocated"], "sum of the scopes at %s" % at)
        split = document(path, *names, "--by", "role,scope", "--at", at)["rows"]
        equal({s: sum(r["bytes"] for r in split if r["scope"] == s) for s in rows}, rows, "scopes, also by role, at %s" % at)
    # Two rounds of samples, and the engine's weights; the model's are from outside.
    rows = {r["scope"]: r["bytes"] for r in document(path, *names, "--by", "scope", "--at", "scope:sync#3")["rows"]}
    weights = sum((n + 511) // 512 * 512 for n in (4 * 256 * 512, 4 * 512, 4 * 512 * 64, 4 * 64))
    equal((rows[None], rows["sync"]), (weights, 2 * weights), "weights of the model and of the engine, old and new")
    equal(rows["rollout"], 4 * 64 * 256 * 4, "samples of the third round")
    # On the GPU a thread of autograd allocates the gradients, while the function waits that called it.
    train = [r for r in document(path, *names, "--by", "scope,role", "--at", "scope:Policy.train")["rows"] if r["category"] == "gradient"]
    equal([(r["scope"], r["bytes"]) for r in train], [("Policy.train", weights)], "gradients at the peak of train")
    kept = sum(r["bytes"] for r in document(path, "--scope", "rollout", "--at", "scope:rollout#4", "--filter", "scope:rollout")["rows"])
    rows = {r["scope"]: r["bytes"] for r in document(path, "--scope", "rollout", "--by", "scope", "--at", "scope:rollout#4")["rows"]}
    equal(rows["rollout"], kept, "bytes of rollout, by --by and by --filter")
    code, out, err = tool("report", *names, "--by", "scope", "--no-overview", path)
    check(code == 0 and "Policy.train > loss_of" in out and "outside of scopes" in out, "text (%s): %s", err, out)
    code, out, _ = tool("report", *names, "--by", "scope", "--format", "csv", path)
    table = list(csv.DictReader(out.splitlines()))
    equal(sum(int(r["bytes"]) for r in table), document(path)["allocated"], "sum of the CSV")
    check("Policy.train > loss_of" in {r["scope"] for r in table}, "scopes in CSV: %s", table)


def test_filter():
    """--filter scope:NAME keeps what was allocated in the function or below it; the rest is filtered out, and the sum stays."""
    path, _ = recording()
    at = ("--at", "scope:rollout#4")
    everything = document(path, *at)["allocated"]
    inside = document(path, *at, "--filter", "scope:rollout")
    outside = document(path, *at, "--filter", "-scope:rollout")
    bytes_in, bytes_out = (sum(r["bytes"] for r in d["rows"]) for d in (inside, outside))
    equal({r["function"] for r in inside["rows"]}, {"Policy.rollout"}, "functions in rollout")
    check("Policy.rollout" not in {r["function"] for r in outside["rows"]}, "rollout outside of rollout")
    equal((bytes_in + bytes_out, inside["rows_filtered_out"]["bytes"]), (everything, bytes_out), "bytes in and outside")
    # loss_of() and what it calls are below train(), whose own lines are the optimizer's.
    nested = document(path, "--at", "scope:loss_of", "--filter", "scope:Policy.train scope:rl_loop.py:loss_of")
    check(nested["rows"] and all(r["function"] == "Policy.loss_of" for r in nested["rows"]), "rows in loss_of: %s", nested["rows"])
    code, _, err = tool("report", "--filter", "scope:train.py:", path)
    check(code == 64 and "no name of a scope" in err, "a name that is none: exit %d, %s", code, err)


def test_fail_if():
    """Conditions on a function: the limit is its highest peak, to the byte, and the lines to blame are those at that peak."""
    path, told = recording()
    peak = max(t["peak"] for t in told if t["scope"] == "rollout")
    for condition, status in (("peak>%d" % (peak - 1), 4), ("peak>%d" % peak, 0), ("peak_reserved>1G", 0), ("peak>1G or peak<=%d" % peak, 4)):
        code, _, err = tool("report", "--fail-if", "scope:rollout " + condition, path)
        equal(code, status, "exit for %s (%s)" % (condition, err))
    doc = json.loads(tool("report", "--json", "--fail-if", "scope:Policy.rollout peak>%d" % (peak - 1), path)[1])
    failed = doc["failed"][0]
    equal((failed["device"], failed["figure"], failed["value"]), ("cuda:0", "peak", peak), "the condition that holds")
    at_peak = [r["bytes"] for r in json.loads(tool("report", "--json", "--at", "scope:rollout", path)[1])["rows"] if r["function"] == "Policy.rollout"]
    check(sum(at_peak) and sum(b["bytes"] for b in failed["blame"] if b["function"] == "Policy.rollout") == sum(at_peak),
          "lines of rollout: %s, blamed: %s", at_peak, failed["blame"])
    code, _, err = tool("report", "--fail-if", "scope:nobody peak>1G", path)
    check(code == 1 and "has this function on its stack" in err, "a function without allocations: exit %d, %s", code, err)
    many = [o for i in range(12) for o in ("--scope", "f%d" % i)]
    code, _, err = tool("report", *many, "--fail-if", "scope:rollout peak>1G", path)
    check(code == 64 and "more than 12 functions" in err, "13 functions: exit %d, %s", code, err)
    code, _, err = tool("report", *many, "--at", "scope:rollout", path)
    check(code == 64 and "more than 12 functions" in err, "12 functions and that of --at: exit %d, %s", code, err)
    code, _, err = tool("report", *many[2:], "--scope", "rollout", "--scope", "rollout", "--at", "scope:rollout", path)
    equal(code, 0, "12 functions, of which one is named again (%s)" % err)
    for wrong in ("scope:rollout", "scope:", "scope: peak>1G", "scope:train.py: peak>1G", "scope:rollout allocated>1G", "scope:rollout growth>1G/10steps",
                  "scope:rollout peak>"):
        code, _, err = tool("report", "--fail-if", wrong, path)
        check(code == 64 and "--fail-if" in err, "%s: exit %d, %s", wrong, code, err)


def cpu_recording():
    """A recording of two rounds on the CPU, with the names of two functions in it."""
    path = scratch("named.mtr")
    if not os.path.exists(path):
        code, _, err = tool("run", "-q", "--scope", "rollout", "--scope", "rl_loop.py:sync", "-o", path, "--", python(), LOOP, "cpu", "2", root=True, seconds=300)
        equal(code, 0, "exit code of run (%s)" % err)
        own(path)
    return path


def test_recorded():
    """run --scope writes the names into the recording, and each report of it has them."""
    path = cpu_recording()
    doc = document(path, "--scope", "train")["scopes"]
    equal({s["name"]: s["runs"] for s in doc["scopes"]}, {"rollout": 2, "rl_loop.py:sync": 2, "train": 2}, "runs of the scopes")
    code, _, err = tool("run", "--scope", "rl_loop.py:", "-o", path, "--", python(), LOOP)
    check(code == 64 and "--scope" in err, "a name that is none: exit %d, %s", code, err)


def test_two_recordings():
    """diff and compare have the scopes of both: their figures are those of report, and rows by scope add up to the change."""
    path, _ = recording()
    cpu = cpu_recording()
    names = options_for(("rollout", "Policy.train", "loss_of"))
    own = {p: {s["path"]: (s, d) for s in document(p, *names, "--device", "cpu")["scopes"]["scopes"] for d in s["devices"] if d["device"] == "cpu"} for p in (path, cpu)}
    code, out, err = tool("diff", "--json", "--by", "scope", *names, "--device", "cpu", path, cpu, seconds=120)
    equal(code, 0, "diff (%s)" % err)
    doc = json.loads(out)
    equal((doc["adds_up"], sum(r["change"] for r in doc["rows"])), (True, doc["change"]), "changes of the rows by scope")
    check({r["scope"] for r in doc["rows"]} > {None, "rollout"}, "scopes of the rows: %s", doc["rows"])
    only_new = [s for s in doc["scopes"] if s["scope"] == "rl_loop.py:sync"]
    equal([(s["old"], s["new"]["runs"]) for s in only_new], [(None, 2)], "the function that only the new recording names")
    equal({s["scope"] for s in doc["scopes"]} - {"rl_loop.py:sync"}, {"rollout", "Policy.train", "Policy.train > loss_of"}, "scopes in diff")
    code, out, err = tool("compare", "--json", *names, "--device", "cpu", path, cpu, seconds=120)
    equal(code, 0, "compare (%s)" % err)
    captures = [{s["scope"]: s for s in c["scopes"]} for c in json.loads(out)["captures"]]
    check("rl_loop.py:sync" not in captures[0] and "rl_loop.py:sync" in captures[1], "scopes in compare: %s", captures)
    for scope in (s for s in doc["scopes"] if s not in only_new):
        for side, p, capture in (("old", path, captures[0]), ("new", cpu, captures[1])):
            whole, device = own[p][scope["scope"]]
            wanted = (whole["runs"], whole["median_time"], device["peak_allocated"], device["median_kept"])
            for got in (scope[side], capture[scope["scope"]]):
                equal((got["runs"], got["median_time"], got["peak_allocated"], got["median_kept"]), wanted, "%s of %s" % (scope["scope"], side))
        equal(captures[0][scope["scope"]]["against_first"], {"peak_allocated": 1, "median_time": 1} if scope["old"]["peak_allocated"] else
              {"peak_allocated": None, "median_time": 1}, "the first against itself")
    for command in (["diff"], ["compare"], ["compare", "--format", "markdown"]):
        code, out, err = tool(*command, *names, "--device", "cpu", path, cpu)
        check(code == 0 and "Scope" in out and "Policy.train " in out, "%s (%s): %s", command, err, out)
        code, out, _ = tool(*command, path, path)
        check(code == 0 and "Scope" not in out, "%s without scopes: %s", command, out)


def test_together():
    """report of several processes has the scopes of each, and adds nothing up."""
    path, _ = recording()
    cpu = cpu_recording()
    names = options_for(("rollout", "Policy.train"))
    code, out, err = tool("report", "--together", "--json", *names, "--device", "cpu", path, cpu, seconds=120)
    equal(code, 0, "report --together (%s)" % err)
    doc = json.loads(out)
    order = [r["recording"] for r in doc["recordings"]]
    equal(sorted(order), ["named", "rl"], "recordings")
    for p, name in ((path, "rl"), (cpu, "named")):
        alone = {s["path"]: (s["runs"], d["peak_allocated"]) for s in document(p, *names, "--device", "cpu")["scopes"]["scopes"]
                 for d in s["devices"] if d["device"] == "cpu"}
        here = {s["scope"]: s["recordings"][order.index(name)] for s in doc["scopes"]}
        equal({s: (c["runs"], c["peak_allocated"]) for s, c in here.items() if c}, alone, "scopes of %s" % name)
    check({s["scope"] for s in doc["scopes"] if None in s["recordings"]} == {"rl_loop.py:sync"}, "scopes that one lacks: %s", doc["scopes"])
    code, out, err = tool("report", "--together", "--scopes", *names, path, cpu)
    lines = [line.split() for line in out.splitlines()]
    check(code == 0 and [line[-1:] for line in lines].count(["rollout"]) == 1 and "Location" not in out, "text (%s): %s", err, out)
    at = [i for i, line in enumerate(lines) if line[-1:] == ["rollout"]][0]
    equal({lines[at][-2], lines[at + 1][-1]}, {"rl", "named"}, "recordings below each other: %s" % out)


def exported(form, *options):
    path, _ = recording()
    out = scratch("scopes." + form)
    code, _, err = tool("export", form, "-f", "-o", out, *options, path, seconds=120)
    equal(code, 0, "export %s (%s)" % (form, err))
    return out


def test_exports():
    """Perfetto, Parquet, the page and a snapshot of PyTorch have the runs that report has."""
    path, _ = recording()
    names = options_for(("rollout", "Policy.train", "loss_of", "sync"))
    doc = document(path, *names)["scopes"]
    runs = [(doc["scopes"][r["scope"]]["path"], r["number"], r["begin"], r["end"], {d["device"]: d for d in r["devices"]}) for r in doc["runs"]]

    with open(exported("perfetto", *names)) as f:
        spans = [e for e in json.load(f)["traceEvents"] if e.get("cat") == "scope"]
    got = sorted((e["ts"], -e["dur"], e["name"], e["args"]["run"], e["args"].get("cuda:0 peak")) for e in spans)
    wanted = sorted((round(b * 1e6, 3), -round((e - b) * 1e6, 3), p.split(" > ")[-1], n, d["cuda:0"]["peak_allocated"]) for p, n, b, e, d in runs)
    equal([g[2:] for g in got], [w[2:] for w in wanted], "spans of Perfetto")
    check(all(abs(g[0] - w[0]) < 0.002 and abs(g[1] - w[1]) < 0.002 for g, w in zip(got, wanted)), "times of the spans: %s, %s", got, wanted)
    equal(len({e["tid"] for e in spans}), 1, "threads with scopes")

    lake = exported("parquet", *names)
    rows = [r for name in glob.glob(os.path.join(lake, "scopes", "*", "*", "*.parquet")) for r in parquet.read(name) if r["device"] == "cuda:0"]
    equal([(r["scope"], r["run"], r["begin_ns"], r["end_ns"], r["peak_allocated"], r["kept"], r["source"]) for r in rows],
          [(p, n, round(b * 1e9), round(e * 1e9), d["cuda:0"]["peak_allocated"], d["cuda:0"]["kept"], "function") for p, n, b, e, d in runs], "rows of Parquet")

    with open(exported("html", *names)) as f:
        text = f.read()
    head = json.loads(text[text.index(">", text.index('id="head"')) + 1:].split("</script>")[0])["scopes"]
    equal(sorted((head["names"][s], n, b, e, peak) for s, row, b, e, n, peak in head["runs"]),
          sorted((p, n, b, e, d["cuda:0"]["peak_allocated"]) for p, n, b, e, d in runs), "runs of the page")
    equal({row for s, row, *_ in head["runs"] if " > " in head["names"][s]}, {1}, "rows of nested scopes")

    with open(exported("snapshot", *names, "--at", "scope:sync#3"), "rb") as f:
        snapshot = pickle.load(f)
    blocks = [b for s in snapshot["segments"] for b in s["blocks"] if b["state"] == "active_allocated"]
    live = {r["scope"]: r["bytes"] for r in document(path, *names, "--by", "scope", "--at", "scope:sync#3")["rows"]}
    equal({s: sum(b["size"] for b in blocks if b.get("scope") == s) for s in live}, live, "blocks of the snapshot by scope")
    entries = [e for e in snapshot["device_traces"][0] if e["action"] in ("alloc", "free_completed")]
    check(all(e.get("user_metadata") == e.get("scope") for e in entries), "texts of the entries")
    equal({e.get("scope") for e in entries}, set(live), "scopes of the entries")
    named = json.loads(tool("report", "--json", exported("snapshot", *names))[1])["rows"]
    check(not any(r.get("name", "").startswith("Policy") for r in named), "a scope is read back as a name: %s", named)


def test_snapshot():
    """A snapshot of PyTorch has the same frames, so it has scopes, too."""
    doc = document(os.path.join(REPO, "tests", "data", "guide", "torch-2.15.pickle.gz"), "--scope", "train_step")
    runs = [s["runs"] for s in doc["scopes"]["scopes"]]
    check(runs and runs[0] >= 1, "runs of train_step in a snapshot: %s", doc["scopes"]["scopes"])
    top = max(d["peak_allocated"] for s in doc["scopes"]["scopes"] for d in s["devices"])
    check(top <= doc["devices"][0]["peak_allocated"], "a scope's peak is above the device's")


def test_text():
    path, _ = recording()
    code, out, err = tool("report", "--scopes", *options_for(("train", "loss_of", "nobody")), path)
    equal(code, 0, "report --scopes (%s)" % err)
    lines = out.splitlines()
    head = [i for i, line in enumerate(lines) if line.startswith("Runs ")]
    check(len(head) == 1 and lines[head[0]].rstrip().endswith("Scope"), "no table of scopes: %s", out)
    check(lines[head[0] + 1].split()[0] == "4" and "  train" in lines[head[0] + 1], "line of train: %s", lines[head[0] + 1])
    inner = [line for line in lines if line.split()[:1] == ["8"] and "    loss_of (peak" in line]
    equal(len(inner), 1, "lines of loss_of, indented below train: %s" % out)
    check("nobody: no allocation has this function on its stack" in out, "a function without allocations: %s", out)
    check("Location" not in out, "--scopes prints rows: %s", out)
    equal([n.split()[-2:] for n in lines if n.endswith("other lines")], [["other", "lines"]] * 2, "sums of other lines")
    code, out, _ = tool("report", "--by", "scope", os.path.join(REPO, "tests", "data", "recordings", "v6-started.mtr"))
    check(code == 0 and "No scopes: name a Python function" in out, "--by scope without a scope: %s", out)
    for wrong in (["--scope", "train.py:"], ["--scope", ""], ["--scopes", "--by", "module"], ["--scopes", "--format", "csv"]):
        code, _, err = tool("report", *wrong, path)
        check(code == 64 and "--scope" in err, "%s: exit %d, %s", wrong, code, err)


run(globals())

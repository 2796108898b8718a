#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# run: long
"""Things that are reused: addresses of code, memory that PyTorch reports twice, children with the parent's memory, two tracers of
one process."""
import json
import os
import signal
import sys
import time

import chaos
import harness
import mtr_reader
from hard import Content, exactly, interrupted
from harness import check, equal, finish, nightly, record, run, scratch, spawn, spawn_job, workload


# ---- numbers of threads -----------------------------------------------------------------------------------

THREADS = r"""
import ctypes, os, sys, threading, time
libc, hooks = ctypes.CDLL(None), ctypes.CDLL(sys.argv[1])
new = hooks._ZN3c1025ProfiledCPUMemoryReporter3NewEPvm
new.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
def work(name, address):
    libc.prctl(15, name, 0, 0, 0)  # PR_SET_NAME
    new(None, address, 4096)
    print(name.decode(), threading.get_native_id(), flush=True)
    time.sleep(0.2)  # its name is read
def run(name, address):
    t = threading.Thread(target=work, args=(name, address))
    t.start()
    t.join()
    return t.native_id
print("ready", flush=True)
sys.stdin.readline()
first = run(b"first", 0x500000000000)
sys.stdin.readline()
for i in range(50):
    with open("/proc/sys/kernel/ns_last_pid", "w") as f:
        f.write(str(first - 1))
    if run(b"second", 0x500000001000 + 4096 * i) == first:
        break
print("done", flush=True)
sys.stdin.readline()
"""


def test_thread_numbers():
    """A new thread with the id of an ended one is another thread, with its own name."""
    if not harness.IS_ROOT:
        raise harness.Skip("needs root, to choose numbers of threads")
    target = spawn([sys.executable, "-c", THREADS, chaos.hooks()])
    target.wait_line("^ready", 30)
    path = scratch("threads.mtr")
    recorder = record(target.popen.pid, path)
    target.send()
    first = int(target.wait_line("^first", 30).split()[1])
    time.sleep(2.5)  # names are read once per second
    target.send()
    target.wait_line("^done", 120)
    second = [int(line.split()[1]) for _, line in list(target.out) if line.startswith("second")]
    finish(recorder)
    target.stop()
    if first not in second:
        raise harness.Skip("no thread got number %d again: others start too many processes" % first)
    content = Content(path)
    names = {content.recording.strings[name] for _, name in content.recording.threads if name}
    check({"first", "second"} <= names, "threads are called %s", names)


@nightly("long")
def test_classes_of_nodes():
    """A Function's class at the address of a freed one: its allocations in backward are its own."""
    target = workload("classes.py")
    target.wait_line("^ready", 120)
    path = scratch("classes.mtr")
    recorder = record(target.popen.pid, path)
    for name in ("First", "Second"):
        for _ in range(3):
            target.out.clear()
            target.send()
            second = target.wait_line("^%s " % name, 60)
            time.sleep(0.4)  # time to read its name
    finish(recorder)
    target.stop()
    content = Content(path)
    r = content.recording
    names = [r.strings[r.nodes[e["node"]][0]] for e in content.events if e["kind"] == mtr_reader.ALLOC and e.get("node")]
    ran = [n for i, n in enumerate(names) if n != (names[i - 1] if i else "")]
    check("FirstBackward" in ran, "backward ran in %s", ran)
    if "again" not in second:
        raise harness.Skip("the class lies elsewhere: nothing is tested")
    # Before the name is read again, either of the two may have run.
    check(ran[ran.index("FirstBackward"):] in (["FirstBackward", "PyNode", "SecondBackward"], ["FirstBackward", "SecondBackward"]),
          "backward ran in %s", ran)


def test_main_thread_ended():
    """For a process whose main thread has ended while others run, a message says why it cannot be recorded."""
    target = spawn([sys.executable, "-c", "import ctypes, threading, time; threading.Thread(target=time.sleep, args=(60,)).start(); "
                    "print('ready', flush=True); ctypes.CDLL(None).pthread_exit(None)"])
    target.wait_line("^ready", 30)
    harness.until(lambda: harness.state_of(target.popen.pid) == "Z", "the main thread's end")
    code, _, err = harness.tool("record", "-p", str(target.popen.pid), "-o", scratch("none.mtr"), root=True)
    check(code == 2 and "main thread has ended" in err, "%s: %s", code, err)
    target.signal(signal.SIGKILL)


# ---- reused addresses --------------------------------------------------------------------------------------

def reuse(name, stops, *options, role="main", seconds="2.5", args=()):
    target = workload(name, scratch(name + ".json"), "--seconds", seconds, *args, role=role)
    target.wait_line("^ready", 120)
    path = scratch(name + ".mtr")
    recorder = record(target.popen.pid, path, *options)
    target.send()
    interrupted(recorder, stops, 0.3)
    done = target.wait_line("^done", 60).split()
    finish(recorder, 60)
    check(int(done[2]) * 3 < int(done[1]), "%s calls at %s addresses: the test tests nothing", done[1], done[2])
    truth = {row[0]: row[1:] for row in harness.read_json(scratch(name + ".json"))}
    return Content(path), truth


def code_names(content, truth):
    """(right, unnamed, wrong) numbers of frames of generated code."""
    right = unnamed = 0
    wrong = []
    for e in content.events:
        if e["kind"] != mtr_reader.ALLOC or not e["stack"]:
            continue
        expected = truth[e["size"]]
        frames = [f[0] for f in content.frames(e)[1:3]]  # the two generated frames after new()
        for got, want in zip(frames, (tuple(expected[:2]), tuple(expected[3:]))):
            if got is None:
                unnamed += 1
            elif got[:2] == want:
                right += 1
            else:
                wrong.append((e["size"], got, want))
        for f in content.frames(e)[3:]:
            if f[0] and f[0][0].startswith(("inner_", "outer_", "filled_", "other_")):
                wrong.append((e["size"], f[0], "not generated"))
    return right, unnamed, wrong


def code_reuse(role, stops, *options):
    content, truth = reuse("code_reuse.py", stops, *options, role=role)
    right, unnamed, wrong = code_names(content, truth)
    check(not wrong, "%d of %d frames have a wrong name, as: %s", len(wrong), right + unnamed + len(wrong), wrong[:3])
    if not content.lost:
        equal(content.count[mtr_reader.ALLOC], len(truth), "allocations")
        check(right > 1000, "only %d frames have a name, %d have none", right, unnamed)
    check(unnamed == 0 or content.fact("counter.frames_gone") > 0, "unnamed frames are not counted")
    return content


def test_code_reuse():
    code_reuse("main", 0)


@nightly("long")
def test_code_reuse_interrupted():
    code_reuse("main", 3)


def test_code_reuse_with_losses():
    content = code_reuse("main", 2, "--ring-size", "64K")
    check(content.fact("counter.lost.code_gone") > 0, "no record about a freed code object was lost")


@nightly("versions")
def test_code_reuse_newest():
    code_reuse("newest", 1)


@nightly("versions")
def test_code_reuse_old():
    code_reuse("old", 1)


# ---- memory that PyTorch reports twice ------------------------------------------------------------------

def twice_told(role):
    target = workload("twice_told.py", role=role)
    target.wait_line("^ready", 120)
    path = scratch("twice-%s.mtr" % role)
    recorder = record(target.popen.pid, path)
    target.send()
    truth = json.loads(target.wait_line("^{", 120))
    finish(recorder)
    content = Content(path)
    check(content.fact("counter.hits.report") > 900, "PyTorch reported nothing twice: %d hits", content.fact("counter.hits.report"))
    exactly(content, truth)


def test_twice_told():
    twice_told("main")


@nightly("versions")
def test_twice_told_newest():
    twice_told("newest")


@nightly("versions")
def test_twice_told_old():
    twice_told("old")


# ---- children -------------------------------------------------------------------------------------------

def test_children():
    target = workload("children.py")
    target.wait_line("^ready", 120)
    path = scratch("children.mtr")
    recorder = record(target.popen.pid, path)
    target.send()
    truth = json.loads(target.wait_line("^{", 120))
    with_threads = {int(t) for t in os.listdir("/proc/%d/task" % target.popen.pid)}
    finish(recorder)
    target.send()
    equal(target.wait(30), 0, "the target's exit code (%s)" % target.stderr()[-300:])
    equal(set(truth["codes"]), {42}, "exit codes of the forked children")
    equal(set(truth["programs"]), {0}, "exit codes of the programs")
    equal(set(truth["sums"]), {2016000.0}, "sums of what the workers loaded")

    content = Content(path)
    check(not content.errors, "%d contradictions, as: %s", len(content.errors), content.errors[:3])
    equal(len(content.live), truth["count"], "blocks alive")
    equal(sum(e["size"] for e in content.live.values()), truth["bytes"], "bytes alive")
    lines = [content.frames(e)[0][0] for e in content.events if e["kind"] == mtr_reader.ALLOC]
    equal(sum(f[1] == truth["line"] for f in lines), truth["made"], "tensors made by the parent on its line")
    check(not any(f[2] == "child" for f in lines), "tensors of a child are in the recording")
    check({t[0] for t in content.recording.threads[1:]} <= with_threads, "threads of others: %s", content.recording.threads)


# ---- two tracers ----------------------------------------------------------------------------------------

@nightly("long")
def test_two_tracers():
    target = workload("churn.py", "--seconds", "5", "--rate", "30000")
    target.wait_line("^ready", 120)
    paths = [scratch("both-%d.mtr" % i) for i in range(3)]
    recorders = [record(target.popen.pid, p) for p in paths]
    target.send()
    harness.until_recorded(paths[2], lambda doc: harness.device(doc)["allocs"] > 10000, "allocations of the third recorder")
    recorders[2].signal(signal.SIGKILL)
    recorders[2].wait(10)
    truth = json.loads(target.wait_line("^{", 60))
    for r in recorders[:2]:
        finish(r)
    contents = [Content(p) for p in paths]
    for content in contents[:2]:
        exactly(content, truth)

    def said(content, events):  # except names of tensors, which each recorder's census adds
        return [(e["kind"], e["addr"], e["size"], content.frames(e)) for e in events if e["kind"] < mtr_reader.TENSOR]
    check(said(contents[0], contents[0].events) == said(contents[1], contents[1].events) or
          sorted(said(contents[0], contents[0].events), key=repr) == sorted(said(contents[1], contents[1].events), key=repr),
          "the two recordings differ")
    check(contents[2].count[mtr_reader.ALLOC] > 10000 and not contents[2].recording.complete, "the killed one: %s", contents[2].count)
    check(not contents[2].errors, "the killed one: %s", contents[2].errors[:3])


CODE_THAT_COMES_AND_GOES = """
import sys, torch
print("ready", flush=True)
sys.stdin.readline()
for turn in range(6):
    for i in range(10000):
        exec(compile("x = %d" % i, "made.py", "exec"), {})
    torch.ones(16)
print("done", flush=True)
sys.stdin.readline()
"""


def test_ends_of_code_that_no_stack_has():
    """After very many code objects each end is recorded; the recorder notices that and resets the table."""
    target = spawn_job([harness.python(), "-c", CODE_THAT_COMES_AND_GOES])
    target.wait_line("^ready", 120)
    path = scratch("strange.mtr")
    recorder = spawn(["env", "MEMTRACE_BENCH=seen", harness.TOOL, "record", "-p", str(target.popen.pid), "-o", path, "-f"], root=True)
    recorder.wait_line(harness.ATTACHED, 60, stream="err")
    target.send()
    target.wait_line("^done", 120)
    finish(recorder, 60)
    target.stop()
    harness.own(path)
    count = harness.report(path)["capture"]["counters"]
    check(count["hits.code_gone"] >= 60000, "ends: %s", count)
    check(16384 <= count["records.code_gone"] < 50000, "records of ends: %s", count)
    check(count["frames_gone"] < 20, "frames without a name: %s", count)


if __name__ == "__main__":
    run(globals())

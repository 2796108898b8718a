#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# run: cpu=60
"""Phases that a job names itself: the wheel's module memtrace_bpf.phases, memtrace_phase.h, and what a recording has of them.
test_scopes.py compares their memory with torch.cuda's."""
import asyncio
import importlib.util
import json
import os
import struct
import subprocess
import sys
import threading

from harness import REPO, WORKLOADS, Skip, check, compiled_program, equal, finish, own, python, record, run, scratch, spawn, spawn_job, tool

WHEEL = os.path.join(REPO, "tools", "packaging", "wheel")
HEADER = os.path.join(REPO, "tools", "inprocess", "memtrace_phase.h")
KIB = 1 << 10
WHAT = {1: "begin", 2: "end", 3: "suspend", 4: "resume"}


def module():
    """The module, with memory of its own."""
    spec = importlib.util.spec_from_file_location("phases_under_test", os.path.join(WHEEL, "phases.py"))
    m = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(m)
    return m


def records(m):
    """All records, read as docs/reference/phases.md says."""
    fd = m._page.fd  # pylint: disable=protected-access
    magic, version, size, room, pid = struct.unpack("8sIIII", os.pread(fd, 24, 0))
    equal((magic, version, size, pid), (b"MTPHASE\0", 1, 128, os.getpid()), "head")
    found = []
    for slot in range(room):
        number, time, scope, around, tid, what, _, name, again = struct.unpack("QQQQIHH80sQ", os.pread(fd, 128, 128 * (1 + slot)))
        if number:
            equal(again, number, "both numbers")
            found.append({"number": number, "time": time, "scope": scope, "around": around, "tid": tid, "what": WHAT[what],
                          "name": name.rstrip(b"\0").decode()})
    return sorted(found, key=lambda r: r["number"])


def told(m):
    return ["%s %s" % (r["what"], r["name"]) for r in records(m)]


def test_with():
    """Nested phases, an object that is used twice and inside of itself, and exceptions."""
    m = module()
    a = m.phase("a")
    with a, m.phase("b"):
        with a:
            pass
    try:
        with a:
            raise ValueError
    except ValueError:
        pass
    equal(told(m), ["begin a", "begin b", "begin a", "end a", "end b", "end a", "begin a", "end a"], "records")
    r = records(m)
    equal([x["around"] for x in r if x["what"] == "begin"], [0, r[0]["number"], r[1]["number"], 0], "phases around")
    equal([x["scope"] for x in r], [1, 2, 3, 3, 2, 1, 7, 7], "phases")
    equal({x["tid"] for x in r}, {threading.get_native_id()}, "threads")
    check(all(x["time"] <= y["time"] for x, y in zip(r, r[1:])), "times: %s", r)


def test_names():
    m = module()
    for name in ("x" * 100, "é" * 60, "", "日本" * 30, 17):
        with m.phase(name):
            pass
    names = [r["name"] for r in records(m) if r["what"] == "begin"]
    equal(names, ["x" * 80, "é" * 40, "", ("日本" * 30)[:26], "17"], "names, cut to 80 bytes")


def test_functions():
    m = module()

    @m.phase("f")
    def f(n):
        return n if not n else f(n - 1)

    equal((f(1), f.__name__), (0, "f"), "result and name of a function")
    equal(told(m), ["begin f", "begin f", "end f", "end f"], "records")


def test_generators():
    """Suspended between two values: what runs then is not inside. Values, exceptions and the result go through."""
    m = module()

    @m.phase("g")
    def g():
        with m.phase("in g"):
            try:
                got = yield 1
            except KeyError:
                got = "caught"
            yield got
        return "result"

    def outer():
        return (yield from g())

    it = outer()
    equal(next(it), 1, "first value")
    with m.phase("between"):
        pass
    equal(it.throw(KeyError()), "caught", "an exception that is thrown in")
    try:
        next(it)
        check(False, "the generator has no end")
    except StopIteration as e:
        equal(e.value, "result", "result")
    left = g()
    next(left)
    left.close()
    want = ["begin g", "begin in g", "suspend in g", "suspend g", "begin between", "end between", "resume g", "resume in g",
            "suspend in g", "suspend g", "resume g", "resume in g", "end in g", "end g"]
    equal(told(m), want + ["begin g", "begin in g", "suspend in g", "suspend g", "resume g", "resume in g", "end in g", "end g"], "records")
    equal([r["around"] for r in records(m) if r["name"] == "between"][0], 0, "phase around one between two values")


def test_coroutines():
    """Two tasks on one thread: each is suspended while the other runs. An asynchronous generator is, too."""
    m = module()

    @m.phase("a")
    async def a():
        await asyncio.sleep(0)
        return 5

    @m.phase("items")
    async def items():
        for i in range(2):
            await asyncio.sleep(0)
            yield i

    async def b():
        with m.phase("b"):
            await asyncio.sleep(0)

    async def both():
        equal((await asyncio.gather(a(), b()))[0], 5, "result of a coroutine")

    async def take():
        got = []
        async for i in items():
            with m.phase("use"):
                got.append(i)
        equal(got, [0, 1], "values of an asynchronous generator")
        async with m.phase("async with"):
            pass

    asyncio.run(both())
    equal(told(m), ["begin a", "suspend a", "begin b", "resume a", "end a", "end b"], "records of two tasks")
    equal([r["around"] for r in records(m) if r["what"] == "begin"], [0, 0], "tasks are not inside each other")
    before = len(told(m))
    asyncio.run(take())
    want = ["begin items", "suspend items", "resume items", "suspend items", "begin use", "end use", "resume items", "suspend items",
            "resume items", "suspend items", "begin use", "end use", "resume items", "end items", "begin async with", "end async with"]
    equal(told(m)[before:], want, "records of an asynchronous generator")


def test_threads_and_overrun():
    """Each record has a number of its own, and the memory has the last ones."""
    m = module()

    def many():
        for _ in range(500):
            with m.phase("t"):
                pass

    threads = [threading.Thread(target=many) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    r = records(m)
    equal([x["number"] for x in r], list(range(4000 - 1024 + 1, 4001)), "numbers of the last records")


def test_fork():
    """A forked process has memory of its own, at the same descriptor; its parent's phase does not end there."""
    m = module()
    with m.phase("parent"):
        read, write = os.pipe()
        pid = os.fork()
        if not pid:
            status = 1
            try:
                with m.phase("child"):
                    pass
                os.write(write, json.dumps(records(m)).encode())
                status = 0
            finally:
                os._exit(status)
        equal(os.waitpid(pid, 0)[1], 0, "end of the child")
        child = json.loads(os.read(read, 65536))
        os.close(read)
        os.close(write)
    equal([(r["what"], r["name"], r["tid"], r["around"]) for r in child], [("begin", "child", pid, 0), ("end", "child", pid, 0)], "records of the child")
    equal(told(m), ["begin parent", "end parent"], "records of the parent")


def test_old_python():
    """The syntax is that of Python 3.8, and nothing but the standard library is needed."""
    path = os.path.join(WHEEL, "phases.py")
    with open(path, encoding="utf-8") as f:
        compile(__import__("ast").parse(f.read(), path, feature_version=(3, 8)), path, "exec")


def test_no_memory():
    """Without memory a warning says so, once, and phases go on without being written."""
    code = ("import sys, os; sys.path.insert(0, %r); import warnings, resource; warnings.simplefilter('always')\n"
            "resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100)); import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
            "from phases import phase\n"
            "for _ in range(3):\n with phase('a'): pass\n" % WHEEL)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    equal((done.returncode, done.stdout), (0, ""), "a job without memory for phases (%s)" % done.stderr)
    equal(done.stderr.count("no memory for phases"), 1, "warnings: %s" % done.stderr)


def test_recorded():
    """Attached in the middle of a phase: it is there by its name, without a start. All others have what they took."""
    job = spawn_job([python(), os.path.join(WORKLOADS, "phased.py"), WHEEL])
    job.wait_line("^ready", 120)
    path = scratch("phased.mtr")
    recorder = record(job.pid, path)
    job.send()
    job.wait_line("^done", 60)
    finish(recorder)
    job.send()
    job.wait()
    own(path)
    code, out, err = tool("report", "--json", "--scopes", path)
    equal(code, 0, "report (%s)" % err)
    doc = json.loads(out)["scopes"]
    scopes, runs = doc["scopes"], {}
    for r in doc["runs"]:
        of = [d for d in r["devices"] if d["device"] == "cpu"]
        runs.setdefault(scopes[r["scope"]]["name"], []).append((r, of[0] if of else None))
    equal({s["source"] for s in scopes}, {"phase"}, "sources")
    equal(doc["runs_left_out"], 0, "runs left out")
    equal(sorted(runs), sorted(["outer", "inner", "in thread", "generate", "decode", "score", "batches", "consume", "train", "fork"]), "phases")
    outer = runs["outer"][0]
    equal((outer[0]["began_before"], outer[1]["start"], outer[1]["kept"], outer[0]["ended"]), (True, None, None, True), "the phase of the attach")
    took = {name: [(d["peak_allocated"] - d["start"]) // KIB for _, d in r if d and d["start"] is not None] for name, r in runs.items()}
    # The 7 KiB that score took while generate was suspended are there when that goes on; the 4000 are not.
    want = {"outer": [], "inner": [200], "in thread": [50], "generate": [317], "decode": [17], "score": [4000], "batches": [40], "consume": [5000] * 2,
            "train": [3, 2, 1], "fork": []}
    equal(took, {**want, "fork": took["fork"]}, "KiB from start to peak")
    names = {i: s["name"] for i, s in enumerate(scopes)}
    inside = {(s["name"], names.get(s["inside"])) for s in scopes}
    equal(inside, {("outer", None), ("inner", "outer"), ("in thread", None), ("generate", None), ("decode", "generate"), ("score", None),
                   ("batches", None), ("consume", None), ("train", None), ("train", "train"), ("fork", None)}, "phases in phases")
    equal(runs["generate"][0][1]["kept"], None, "what a suspended phase kept")
    code, out, _ = tool("report", "--scopes", path)
    check("1 run began before the recording" in out, "text: %s", out)
    code, out, _ = tool("report", path)
    check("12 named scopes, 13 runs" in out, "the report without --scopes: %s", out)


def test_c_header():
    """The C header in a process without Python, recorded, and its cost."""
    path = scratch("phased-c.mtr")
    p = spawn([compiled_program("phased")])
    p.wait_line("^ready", 30)
    recorder = record(p.pid, path, "-v")
    recorder.wait_line("host memory: [0-9]+ mappings", 60, stream="err")
    p.send()
    p.wait_line("^done", 30)
    finish(recorder)
    p.send()
    own(path)
    code, out, err = tool("report", "--json", "--device", "host", path)
    equal(code, 0, "report (%s)" % err)
    doc = json.loads(out)["scopes"]
    names = [s["name"] for s in doc["scopes"]]
    equal({s["name"]: 0 for s in doc["scopes"]}.keys(), {"load", "serve"}, "phases")
    equal(sum(s["runs"] for s in doc["scopes"] if s["name"] == "serve"), 3, "runs of serve")
    equal([(s["runs"], names[s["inside"]] if s["inside"] is not None else None) for s in doc["scopes"] if s["name"] == "serve"], [(1, "load"), (2, None)],
          "serve in load, and on another thread")


def test_header_compiles():
    """As C and as C++, with all warnings, in two files of one program."""
    source = scratch("two.c")
    with open(source, "w", encoding="utf-8") as f:
        f.write('#include "%s"\nint main(void) { struct memtrace_phase p = memtrace_phase_begin("x"); memtrace_phase_end(&p); return 0; }\n' % HEADER)
    other = scratch("other.c")
    with open(other, "w", encoding="utf-8") as f:
        f.write('#include "%s"\nvoid other(void);\nvoid other(void) { struct memtrace_phase p = memtrace_phase_begin("y"); memtrace_phase_end(&p); }\n' % HEADER)
    tried = 0
    for compiler, options in (("cc", ["-std=c99"]), ("cc", ["-std=gnu11", "-O2"]), ("c++", ["-x", "c++", "-std=c++11"]), ("clang", ["-std=c11"])):
        try:
            done = subprocess.run([compiler, *options, "-Wall", "-Wextra", "-Werror", "-o", scratch("two"), source, other], capture_output=True, text=True, check=False)
        except FileNotFoundError:
            continue
        equal(done.returncode, 0, "%s %s: %s" % (compiler, options, done.stderr))
        equal(subprocess.run([scratch("two")], check=False).returncode, 0, "the program")
        tried += 1
    if not tried:
        raise Skip("no C compiler")


run(globals())

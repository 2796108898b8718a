#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# run: cpu=60
"""Phases that a job names itself: the wheel's module memtrace_bpf.phases, memtrace_phase.h, and what a recording has of them.
test_scopes.py compares their memory with torch.cuda's."""
import asyncio
import contextlib
import importlib.util
import json
import os
import re
import struct
import subprocess
import sys
import threading
import types

import harness
from harness import REPO, WORKLOADS, Skip, check, compiled_program, equal, finish, nightly, own, python, record, run, scratch, spawn, spawn_job, tool

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
    fd = m._fd  # pylint: disable=protected-access
    magic, version, size, room, pid = struct.unpack("8sIIII", os.pread(fd, 24, 0))
    equal((magic, version, size, pid), (b"MTPHASE\0", 1, 128, os.getpid()), "head")
    found = []
    for slot in range(room):
        number, time, other, tid, what, name, again = struct.unpack("QQQIHxx80s8xQ", os.pread(fd, 128, 128 * (1 + slot)))
        if number:
            equal((again, number % room), (number, slot), "both numbers, and the place")
            scope, around = (number, other) if WHAT[what] == "begin" else (other, None)
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


def test_shared_object():
    """One object on two threads: each ends its own run. A run that ended is not around others, also when its object runs elsewhere."""
    m = module()
    a, entered, go = m.phase("a"), threading.Event(), threading.Event()

    def other():
        with a:
            entered.set()
            go.wait()

    with a:
        with m.phase("b"):
            pass
    t = threading.Thread(target=other)
    t.start()
    entered.wait()
    with m.phase("c"), a:
        pass
    go.set()
    t.join()
    r = records(m)
    equal([(x["what"], x["name"]) for x in r[4:]], [("begin", "a"), ("begin", "c"), ("begin", "a"), ("end", "a"), ("end", "c"), ("end", "a")], "records")
    equal([x["around"] for x in r if x["what"] == "begin"], [0, 1, 0, 0, 6], "phases around")
    equal([x["scope"] for x in r if x["what"] == "end"], [2, 1, 7, 6, 5], "ends")
    equal([x["tid"] == threading.get_native_id() for x in r[4:]], [False, True, True, True, True, False], "threads")


def test_cost():
    """A phase costs a small multiple of a with statement (about 4), in processor time; docs/reference/phases.md has more."""
    done = subprocess.run([sys.executable, os.path.join(WORKLOADS, "phase_cost.py"), WHEEL, "9"], capture_output=True, text=True, check=False)
    equal(done.returncode, 0, "phase_cost.py (%s)" % done.stderr)
    took = {line[:32].strip(): float(line[32:].split()[0]) for line in done.stdout.splitlines()[1:]}
    check(took["phase"] < 7 * took["a new object with a name"], "a phase costs too much: %s", took)


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
    equal([(r["what"], r["name"], r["tid"], r["around"]) for r in child], [("begin", "child", pid, 0), ("end", "child", pid, None)], "records of the child")
    equal(told(m), ["begin parent", "end parent"], "records of the parent")


class Control:
    """What a Trainer of transformers decides at the end of a step."""
    should_evaluate = should_save = False


def stand_in(names):
    """Modules in place of libraries, each with an empty class or value. Call the result to remove them."""
    before = {m: sys.modules.get(m) for m in names}
    for name, content in names.items():
        sys.modules[name] = types.ModuleType(name)
        for key, value in content.items():
            setattr(sys.modules[name], key, value)

    def remove():
        for name, old in before.items():
            if old is None:
                del sys.modules[name]
            else:
                sys.modules[name] = old
    return remove


def test_trainer_callback():
    """transformers.Trainer: the events of a run with accumulation, evaluation and saving, in its order; and one that is ended early."""
    m, control = module(), Control()
    remove = stand_in({"transformers": {"TrainerCallback": type("TrainerCallback", (), {})}})
    try:
        c = m.trainer_callback()
    finally:
        remove()
    for last in (False, True):
        c.on_step_begin(None, None, control)
        control.should_evaluate = control.should_save = last
        c.on_step_end(None, None, control)
    c.on_evaluate(None, None, control)
    control.should_evaluate = False
    c.on_save(None, None, control)
    control.should_save = False
    c.on_step_begin(None, None, control)
    c.on_train_end(None, None, control)
    step = ["begin train step", "end train step"]
    equal(told(m), step * 2 + ["begin evaluate", "end evaluate", "begin save", "end save"] + step, "records")


def test_trainer_phases():
    """What the training loop starts and what is called by hand, each once; a callback that is there is used."""
    m, control = module(), Control()
    remove = stand_in({"transformers": {"TrainerCallback": type("TrainerCallback", (), {})}})

    class Trainer:
        def __init__(self, callbacks):
            self.callback_handler = types.SimpleNamespace(callbacks=callbacks)

        def add_callback(self, callback):
            self.callback_handler.callbacks.append(callback)

        def evaluate(self):
            self.callback_handler.callbacks[0].on_evaluate(None, None, control)
            return 5

        def _save_checkpoint(self):
            self.callback_handler.callbacks[0].on_save(None, None, control)

        def train(self):
            c, = self.callback_handler.callbacks
            c.on_step_begin(None, None, control)
            control.should_evaluate = control.should_save = True
            c.on_step_end(None, None, control)
            self.evaluate()
            self._save_checkpoint()
            control.should_evaluate = control.should_save = False
            c.on_train_end(None, None, control)

    try:
        for callbacks in ([], [m.trainer_callback()]):
            trainer = m.trainer_phases(Trainer(callbacks))
            equal(trainer.evaluate(), 5, "result of evaluate()")
            trainer.train()
    finally:
        remove()
    once = ["begin evaluate", "end evaluate", "begin train step", "end train step", "begin evaluate", "end evaluate", "begin save", "end save"]
    equal(told(m), once * 2, "records")


def test_lightning_callback():
    for library in ("lightning.pytorch", "pytorch_lightning"):
        m, base = module(), type("Callback", (), {})
        names = {"lightning": {}, "lightning.pytorch": {}, "pytorch_lightning": {}}
        names[library]["Callback"] = base
        remove = stand_in(names)
        try:
            c = m.lightning_callback()
        finally:
            remove()
        check(isinstance(c, base), "no callback of %s", library)
        c.on_train_batch_start("trainer", "module", "batch", 0)
        c.on_train_batch_end("trainer", "module", "outputs", "batch", 0)
        c.on_validation_start("trainer", "module")
        c.on_exception("trainer", "module", ValueError())
        c.on_validation_end("trainer", "module")
        equal(told(m), ["begin train step", "end train step", "begin validate", "end validate"], library)


def test_other_libraries():
    """Accelerate, TRL and Ray Train: methods that they lack are left out, and an exception ends what is open."""
    m = module()

    class Accelerator:
        @contextlib.contextmanager
        def accumulate(self, *_):
            yield

        def backward(self, loss):
            return loss

    a = m.accelerate_phases(Accelerator())
    with a.accumulate("model"):
        equal(a.backward(3), 3, "result of backward")
    equal(told(m), ["begin accumulate", "begin backward", "end backward", "end accumulate"], "records of Accelerate")
    m = module()
    own = types.SimpleNamespace(memtrace_steps_only=False)
    trainer = types.SimpleNamespace(_generate_and_score_completions=lambda x: x + 1, vllm_generation=types.SimpleNamespace(sync_weights=lambda: None),
                                    callback_handler=types.SimpleNamespace(callbacks=[own]))
    equal(m.trl_phases(trainer)._generate_and_score_completions(1), 2, "result of a rollout")  # pylint: disable=protected-access
    trainer.vllm_generation.sync_weights()
    equal(told(m), ["begin rollout", "end rollout", "begin weight sync", "end weight sync"], "records of TRL")
    m, train = module(), types.ModuleType("ray.train")
    train.report = original = lambda metrics: metrics
    remove = stand_in({"ray": {"train": train}})
    sys.modules["ray.train"] = train

    @m.ray_train_loop
    def loop(config):
        equal(sys.modules["ray.train"].report(config), config, "result of report")
        raise KeyError

    try:
        loop(5)
    except KeyError:
        pass
    finally:
        remove()
        del sys.modules["ray.train"]
    check(train.report is original, "ray.train.report stays replaced")
    equal(told(m), ["begin round", "end round", "begin report", "end report", "begin round", "end round"], "records of Ray Train")


@nightly("zoo")
def test_real_libraries():
    """The same in the libraries themselves."""
    step = ["begin train step", "end train step"]
    after = ["begin evaluate", "end evaluate", "begin save", "end save"]
    batch = ["begin accumulate", "begin backward", "end backward", "end accumulate"]
    for library, want in (("transformers", (step * 2 + after) * 2 + after[:2] + (step * 2 + after) * 2 + ["begin predict", "end predict"]), ("lightning", (step * 2 + ["begin validate", "end validate"]) * 2),
                          ("accelerate", batch * 2 + ["begin save", "end save"]), ("trl", None)):
        done = subprocess.run([python("zoo"), os.path.join(WORKLOADS, "zoo", "phased.py"), WHEEL, library], capture_output=True, text=True, check=False)
        equal(done.returncode, 0, "%s: %s" % (library, done.stderr[-2000:]))
        got = json.loads(done.stdout.splitlines()[-1])
        if want:
            equal(got, want, library)
        else:
            equal([t for t in got if "rollout" in t], ["begin rollout", "end rollout"] * got.count("begin rollout"), "rollouts of TRL")
            check(got.count("begin rollout") and got.count("begin train step") == 2 and got.count("begin loss") >= 2, "phases of TRL: %s", got)


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
    done = subprocess.run([sys.executable, "-B", "-c", code], capture_output=True, text=True, check=False)  # -B: no cut .pyc is left
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
    equal([runs[n][0][1]["kept"] for n in ("in thread", "inner", "consume")], [50 * KIB, 0, 0], "bytes kept, also by a thread that has ended")
    equal(runs["generate"][0][1]["kept"], None, "what a suspended phase kept")
    code, out, _ = tool("report", "--scopes", path)
    check("1 run began before the recording" in out, "text: %s", out)
    code, out, _ = tool("report", path)
    check("12 named scopes, 13 runs" in out, "the report without --scopes: %s", out)


def test_in_namespaces():
    """A job with PIDs and a clock of its own, as in a container: its phases have their threads and their times."""
    if not harness.IS_ROOT:
        raise Skip("needs root for namespaces")
    command = ["unshare", "--pid", "--fork", "--mount-proc", "--time", "--monotonic", "100000"]
    if subprocess.run([*command, "true"], check=False, stderr=subprocess.DEVNULL).returncode:
        raise Skip("no PID or time namespaces here")
    job = spawn([*command, python(), os.path.join(WORKLOADS, "phased.py"), WHEEL])
    job.wait_line("^ready", 120)
    pid = harness.children_of(job.pid)[0]
    path = scratch("namespaces.mtr")
    recorder = record(pid, path)
    job.send()
    job.wait_line("^done", 60)
    finish(recorder)
    job.send()
    own(path)
    code, out, err = tool("report", "--json", path)
    equal(code, 0, "report (%s)" % err)
    doc = json.loads(out)
    names = [s["name"] for s in doc["scopes"]["scopes"]]
    inner = [r for r in doc["scopes"]["runs"] if names[r["scope"]] == "inner"]
    check(len(inner) == 1 and 0 < inner[0]["begin"] < inner[0]["end"] < doc["capture"]["duration"], "times: %s", inner)
    level = [d for d in inner[0]["devices"] if d["device"] == "cpu"][0]
    equal((level["peak_allocated"] - level["start"], level["kept"]), (200 * KIB, 0), "memory of a phase")
    code, out, _ = tool("export", "csv", "-o", "-", path)
    check(re.search(r"^\d+,[0-9.]+,scope,.*,%d,.*,inner," % pid, out, re.M), "no thread %d of the phase: %s", pid, [x for x in out.splitlines() if ",scope," in x])


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

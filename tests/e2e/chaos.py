# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
Actions that must neither harm a target nor falsify a recording, as functions with a number of repetitions: test_chaos.py does
each a few times, tools/dev/chaos.py often. Each returns a Row: the number done, and the failures.

The target is tests/programs/storm.cc, which counts its calls of each hook and checks its own results. PyTorch jobs, whose
results must equal those of an untraced run, complete it.
"""
import contextlib
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import code_bytes
import harness
import test_harm
from harness import IS_ROOT, TOOL, Failure, Skip, check, finish, own, record, report, scratch, spawn, tool

PROGRAMS = os.path.join(harness.REPO, "tests", "programs")
HOOKS = "libc10.so"  # file name given to hooks.cc
DEVICES = 64  # devices in storm.cc: threads that run one after the other have one each
# The target's counts, and the recording's counters that must be equal.
COUNTERS = {"report": "hits.report", "oom": "hits.oom", "cpu_new": "hits.cpu_new", "cpu_delete": "hits.cpu_delete",
            "edge": "hits.autograd_edge", "run": "autograd.run", "cuda": "hits.cuda_call"}


class Row:
    """A row of the table: repetitions of an action, and its results."""

    def __init__(self, name, count=0):
        self.name, self.count = name, count
        self.crashes, self.wrong, self.inexact = [], [], []
        self.restored = []  # s, one per tracer
        self.attached = 0  # tracers that had attached when they were killed
        self.counted = 0  # hits compared with the target's counts
        self.notes = []
        self.summary = ""  # in place of long notes, for the table

    def problems(self):
        return self.crashes + self.wrong + self.inexact

    def verify(self):
        check(not self.problems(), "%d crashes, %d wrong results, %d wrong counts; the first: %s", len(self.crashes),
              len(self.wrong), len(self.inexact), " | ".join(self.problems()[:3]))
        return self

    def target_lives(self, target, after):
        if target.alive():
            return True
        self.crashes.append("the target ended (%s) after %s: %s" % (target.popen.returncode, after, target.stderr()[-200:]))
        return False


# ---- the target -------------------------------------------------------------------------------------------

def compiled(source, name, *options):
    """A program of tests/programs, compiled once per run; the name may have a folder."""
    path = scratch(name)
    if not os.path.exists(path):
        compiler = "c++" if source.endswith(".cc") else "cc"
        if not shutil.which(compiler):
            raise Skip("no C++ compiler" if compiler == "c++" else "no C compiler")
        standard = "-std=c++17" if compiler == "c++" else "-std=gnu11"
        os.makedirs(os.path.dirname(path), exist_ok=True)
        done = subprocess.run([compiler, standard, "-O2", "-Wall", "-Wextra", *options, "-o", path,
                               os.path.join(PROGRAMS, source), "-ldl", "-lpthread"], capture_output=True, text=True, check=False)
        check(done.returncode == 0, "%s: %s", source, done.stderr)
    return path


def hooks(folder="", *options):
    """The library with the hooks; variants by compiler options, each in its own folder, because the file name is fixed."""
    return compiled("hooks.cc", os.path.join(folder, HOOKS), "-shared", "-fPIC", "-fvisibility=hidden", *options)


def cuda_library():
    return compiled("cuda_fake.c", "libcudart.so", "-shared", "-fPIC", "-Wl,-Bsymbolic")


class Storm:
    """storm.cc with the hooks, in its own process."""

    def __init__(self, library=None, prefix=(), **kwargs):
        self.process = spawn([*prefix, compiled("storm.cc", "storm"), library or hooks()], **kwargs)
        self.process.wait_line("^ready", 30)
        self.pid = self.process.popen.pid
        self.seen = 0
        self.code_of = None

    def alive(self):
        return self.process.alive()

    def begin(self, command):
        self.process.send(command + "\n")

    def answer(self, seconds=120):
        """The next answer not read yet."""
        self.seen += 1
        limit = time.monotonic() + seconds
        while True:
            lines = [line for _, line in list(self.process.out) if line.startswith("{")]
            if len(lines) >= self.seen:
                return json.loads(lines[self.seen - 1])
            check(self.alive(), "the target ended (%s): %s", self.process.popen.poll(), self.process.stderr()[-300:])
            check(time.monotonic() < limit, "the target does not answer within %.0f s", seconds)
            time.sleep(0.005)

    def ask(self, command, seconds=120):
        self.begin(command)
        return self.answer(seconds)

    def rest(self):
        """Ends "flood N 0"."""
        self.begin("count")
        self.answer()
        self.answer()

    def code(self):
        if not IS_ROOT:
            raise Skip("needs root, to look at the target's code")
        if not self.code_of:
            self.code_of = code_bytes.Code(self.pid, [HOOKS])
        return self.code_of

    def end(self, row):
        """Ends the storm and checks that all its results were right."""
        last = self.ask("count")
        if last["wrong"] or last["bad"]:
            row.wrong.append("the target says of itself: %s; %s" % (last, self.process.stderr()[-300:]))
        self.process.popen.stdin.close()
        code = self.process.wait(30)
        if code and not (last["wrong"] or last["bad"]):
            row.crashes.append("the target's exit code: %s" % code)
        return last


# ---- checks of recordings ---------------------------------------------------------------------------------

def unaccounted(doc):
    """Hits that were neither recorded, filtered nor lost, by kind."""
    counters, devices = doc["capture"]["counters"], doc["devices"]
    cpu = [d for d in devices if d["device"] == "cpu"]
    others = [d for d in devices if d["device"] != "cpu"]
    recorded = {"cpu_new": sum(d["allocs"] for d in cpu), "cpu_delete": sum(d["frees"] for d in cpu),
                "report": sum(d["allocs"] + d["frees"] for d in others), "oom": sum(d["ooms"] for d in others)}
    left = {}
    for kind, n in recorded.items():
        hits, lost, filtered = (counters.get("%s.%s" % (what, kind), 0) for what in ("hits", "lost", "filtered"))
        if hits != n + lost + filtered:
            left[kind] = "%d hits, %d recorded, %d lost, %d filtered" % (hits, n, lost, filtered)
    return left


def compare(row, doc, before, after, what, drift=True):
    """Hits equal the target's calls, nothing is lost, and totals agree after every event."""
    counters = doc["capture"]["counters"]
    for name, key in COUNTERS.items():
        called, hits = after[name] - before[name], counters.get(key, 0)
        row.counted += called
        if hits != called:
            row.inexact.append("%s: %d hits of %s, called %d times" % (what, hits, name, called))
    for kind, words in unaccounted(doc).items():
        row.inexact.append("%s: %s: %s" % (what, kind, words))
    if doc["capture"]["lost"]:
        row.inexact.append("%s: %d lost" % (what, doc["capture"]["lost"]))
    if drift and any(d["drift"] for d in doc["devices"]):
        row.inexact.append("%s: totals differ" % what)


class Watched:
    """Records a storm's actions within `with`, then compares."""

    def __init__(self, row, storm, *options, drift=True, name=""):
        self.row, self.storm, self.options, self.drift = row, storm, options, drift
        self.path = scratch("%s.mtr" % (name or row.name.replace(" ", "-").replace("/", "-")))

    def __enter__(self):
        self.before = self.storm.ask("count")
        self.recorder = record(self.storm.pid, self.path, *self.options)
        return self

    def __exit__(self, kind, value, trace):
        if kind:
            return
        self.after = self.storm.ask("count")
        finish(self.recorder)
        self.doc = report(self.path)
        compare(self.row, self.doc, self.before, self.after, self.row.name, self.drift)


def simple(name, count, *commands, drift=True, beside=1, before=()):
    """A scenario of commands to a recorded storm, with a thread that runs at full speed meanwhile."""
    row = Row(name, count)
    storm = Storm()
    for command in before:
        storm.ask(command)
    with Watched(row, storm, drift=drift):
        for command in ("beside %d" % beside, *commands, "calm"):
            storm.ask(command, 300)
    row.last = storm.end(row)
    return row


def exceptions(n):
    """Each of the six hooks throws; one also passes on an inner hook's exception."""
    row = simple("C++ exceptions through each probed function", n, "throw %d" % n, "flood 2 2000")
    if row.last["caught"] != 7 * n:
        row.wrong.append("%d exceptions were caught, not %d" % (row.last["caught"], 7 * n))
    return row


def forks(n):
    return simple("forks, of children that allocate", n, "fork %d" % n)


def vforks(n):
    return simple("vforks, of children that allocate", n, "vfork %d" % n)


def spawns(n):
    return simple("execs, by posix_spawn", n, "spawn %d" % n)


def threads(n):
    return simple("threads at once", n, "threads %d" % n, drift=False)  # more threads than devices with totals


def reloads(n):
    return simple("dlclose and dlopen of the library with the hooks", n, "reload %d" % n, beside=0)  # no thread is in the library


def cuda_loads(n):
    """A library loaded during the recording, unloaded and loaded again. Only calls after its discovery count."""
    row = Row("dlopen and dlclose of a library with CUDA's calls", n)
    storm = Storm()
    with Watched(row, storm) as w:
        for command in ("beside 1", "load %s %d" % (cuda_library(), n), "calm"):
            storm.ask(command, 300)
    called = w.after["cuda"]
    counted = sum(v for k, v in w.doc["capture"]["counters"].items() if k.startswith("calls.cuda"))
    if counted != called:
        row.inexact.append("%d calls of CUDA's, %d recorded: %s" % (called, counted, w.doc["capture"]["counters"]))
    storm.end(row)
    return row


def signals(seconds):
    row = simple("signals at a high rate, to a handler that allocates", 0, "signals %g" % seconds)
    row.count = row.last["signals"]
    return row


def seccomp(n):
    """Functions called under the filter have return probes, which make a system call that the filter lacks."""
    return simple("seccomp: strict in children, then a filter", n, *["strict"] * n, "filter", "flood 2 2000", "throw 10", "cuda 100",
                  before=["hold " + cuda_library()])


# ---- killed tracers ---------------------------------------------------------------------------------------

def no_core():
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def wait_restored(code, what, seconds=5):
    """Seconds until the code is restored."""
    begin = time.monotonic()
    while code.differing():
        check(time.monotonic() - begin < seconds, "the code still differs %.0f s after %s", seconds, what)
        time.sleep(0.0005)
    return time.monotonic() - begin


def readable(row, path, what):
    """A recording cut anywhere: its content is right, and it reports missing parts."""
    own(path)
    code, out, err = tool("report", "--format", "json", path)
    if code:
        row.inexact.append("%s: the recording cannot be read: %d, %s" % (what, code, err[-200:]))
        return
    doc = json.loads(out)
    if any(d["drift"] for d in doc["devices"]) and not doc["capture"]["lost"]:
        row.inexact.append("%s: drift %s, and nothing lost" % (what, [d["drift"] for d in doc["devices"]]))
    row.counted += doc["capture"]["events"]


def until_attached(tracer):
    """The tracer's output until it has attached, and the duration; it may end before."""
    begin, said = time.monotonic(), b""
    while b"attached to" not in said:
        line = tracer.stderr.readline()
        if not line:
            break
        said += line
    return said, time.monotonic() - begin


def end_tracers(row, target, pid, code, n, numbers, every):
    """Attaches n times and ends the tracer by a signal at a random moment: half of them before it has attached, half during the
    capture. Only sometimes waits for the probes' removal in between."""
    rnd = random.Random(n)
    path = scratch("ended-%d.mtr" % pid)
    takes = 0.2  # s to attach
    for i in range(n):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        tracer = subprocess.Popen([TOOL, "record", "-p", str(pid), "-o", path], stdin=subprocess.DEVNULL,
                                  stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, preexec_fn=no_core)
        said = b""
        if i % 2:
            said, took = until_attached(tracer)
            takes += (took - takes) / 4
        time.sleep(rnd.uniform(0, 0.1 if i % 2 else takes))
        number = rnd.choice(numbers)
        tracer.send_signal(number)
        killed = time.monotonic()
        said += tracer.communicate(timeout=30)[1]
        if tracer.returncode != -number:
            row.inexact.append("the tracer ended with %s before it was ended: %s" % (tracer.returncode, said[-200:]))
        row.count += 1
        row.attached += b"attached to" in said
        if not row.target_lives(target, "%s, cycle %d" % (signal.Signals(number).name, i)):
            return
        if i % every == every - 1:
            wait_restored(code, signal.Signals(number).name)
            if b"attached to" in said:
                row.restored.append(time.monotonic() - killed)
                readable(row, path, "cycle %d" % i)
    row.notes = ["%d of them attached by then" % row.attached]


def tracer_ended(row, n, numbers, every=5):
    """Kills the tracer of a storm at full rate; afterwards the target must be traceable as usual."""
    storm = Storm()
    code = storm.code()
    storm.begin("flood 1 0")
    end_tracers(row, storm.process, storm.pid, code, n, numbers, every)
    if not storm.alive():
        return
    wait_restored(code, "the last tracer's end")
    storm.rest()
    with Watched(row, storm, name="after-%d" % storm.pid):
        storm.ask("flood 2 5000")
    storm.end(row)


def kills(n):
    """Two targets at a time, because most of the time is waiting."""
    row = Row("attach, kill -9 of the tracer")
    hooks(), compiled("storm.cc", "storm")
    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(tracer_ended, row, part, [signal.SIGKILL]) for part in ((n + 1) // 2, n // 2)]:
            done.result()
    return row


def crashes(n):
    row = Row("attach, crash of the tracer (SIGSEGV, SIGABRT)")
    tracer_ended(row, n, [signal.SIGSEGV, signal.SIGABRT])
    return row


COMMAND = """
import ctypes
lib = ctypes.CDLL("%s")
new = lib._ZN3c1025ProfiledCPUMemoryReporter3NewEPvm
new.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
lib.hooks_sum.restype = ctypes.c_uint64
for i in range(60000):
    new(None, 16 * (i + 1), 64)
print(lib.hooks_sum())
"""


def run_kills(n):
    """Kills the recorder of a command from `run`, which is sometimes held before its first allocation: the command never begins,
    or runs to its end."""
    row = Row("run, kill -9 of the tracer", n)
    rnd = random.Random(n)
    command = [sys.executable, "-S", "-c", COMMAND % hooks()]
    expected = subprocess.run(command, capture_output=True, check=True).stdout
    began = 0
    for i in range(n):
        tracer = subprocess.Popen([TOOL, "run", "-o", scratch("run.mtr"), "-f", "--", *command], stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        time.sleep(rnd.uniform(0, 1))
        tracer.kill()
        try:
            said = tracer.communicate(timeout=60)[0]  # until the last process that has the pipe ends
        except subprocess.TimeoutExpired:
            row.crashes.append("cycle %d: the command stands still" % i)
            break
        began += bool(said)
        if said not in (b"", expected):
            row.wrong.append("cycle %d: %r instead of %r" % (i, said, expected))
    row.notes.append("%d of the commands had begun, and did all they had to" % began)
    return row


def torch_kills(n):
    """The same for a training job, whose parameters and losses must equal those of an undisturbed one."""
    row = Row("attach, kill -9 of the tracer of a training job")
    target = test_harm.train("chaos.json")
    code = code_bytes.Code(target.popen.pid, [name for name in harness.CODE if name != "libtorch_cpu.so"])  # not the largest one
    end_tracers(row, target, target.popen.pid, code, n, [signal.SIGKILL], 5)
    if target.alive():
        test_harm.wait_clean(target.popen.pid, "the last tracer's end")
        target.signal(signal.SIGTERM)
        try:
            test_harm.compare_with_untraced(test_harm.result(target, "chaos.json"))
        except Failure as e:
            row.wrong.append(str(e))
    return row



# ---- lost records -----------------------------------------------------------------------------------------

def figures_after_losses(row, doc):
    """Nothing is allocated at the end: totals reported as exact are 0, and peaks are marked correctly."""
    exact = 0
    for d in doc["devices"]:
        if d["device"] != "cpu" and d["allocated_is"] == "exact":
            exact += 1
            if d["allocated"]:
                row.wrong.append("%s: exactly %d bytes at the end, where there are none" % (d["device"], d["allocated"]))
        known = "exact" if d["before_attach_known"] else "since_attach"
        words = ("not_exact" if d["device"] == "cpu" else "lower_bound") if doc["capture"]["lost"] else known
        if d["peak_is"] != words:
            row.wrong.append("%s: with %d lost the peak is %s" % (d["device"], doc["capture"]["lost"], d["peak_is"]))
    return exact


def stand_still(recorder):
    """Sends SIGSTOP and waits until no thread runs."""
    recorder.signal(signal.SIGSTOP)
    limit = time.monotonic() + 10
    for task in os.listdir("/proc/%d/task" % recorder.pid):
        while True:
            with open("/proc/%d/task/%s/stat" % (recorder.pid, task), encoding="utf-8", errors="replace") as f:
                if f.read().rpartition(")")[2].split()[0] == "T":
                    break
            check(time.monotonic() < limit, "the recorder does not stand still 10 s after SIGSTOP")
            time.sleep(0.001)


def wait_drained(pid):
    """Waits until this process's recorder has read everything: a round without new output."""
    limit, before = time.monotonic() + 60, None
    while time.monotonic() < limit:
        code, out, err = tool("ctl", "--format", "json", "-p", str(pid), "status", root=not IS_ROOT)
        check(code == 0, "ctl status ended with %d: %s", code, err)
        (now,) = [(p["captured"], p["lost"]) for p in json.loads(out)["processes"]]
        if now == before:
            return
        before = now
    raise Failure("the recorder still finds something after 60 s")


def flooded(storm, recorder, threads, rounds):
    """Produces more records than any ring holds while nothing reads it, then for every device a few that fit. So there are
    losses, and each total is exact again, at any speed."""
    stand_still(recorder)
    storm.ask("flood %d %d" % (threads, rounds))
    recorder.signal(signal.SIGCONT)
    wait_drained(storm.pid)
    return storm.ask("flood %d 1" % DEVICES)


def overload(n):
    """Rings from 64 KiB, a reader stopped for up to half a second or, in every fourth run, until the end, 1 to 4 threads: every
    hit is accounted for."""
    row = Row("overload: small rings, stalled consumer")
    rnd = random.Random(4)
    storm = Storm()
    lossy = exact = 0
    path = scratch("overload.mtr")
    for i in range(n):
        before = storm.ask("count")
        ring = rnd.choice(("64K", "256K", "1M"))
        threads, rounds = i % 4 + 1, rnd.randrange(5000, 50000)
        recorder = record(storm.pid, path, "--ring-size", "64K" if i % 4 == 0 else ring)
        if i % 4 == 0:
            after = flooded(storm, recorder, threads, rounds)
        else:
            storm.begin("flood %d %d" % (threads, rounds))
            for _ in range(rnd.randrange(3)):
                time.sleep(rnd.uniform(0, 0.05))
                recorder.signal(signal.SIGSTOP)
                time.sleep(rnd.uniform(0, 0.5))
                recorder.signal(signal.SIGCONT)
            after = storm.answer()
        finish(recorder)
        doc = report(path)
        lost, counters = doc["capture"]["lost"], doc["capture"]["counters"]
        lossy += lost > 0
        for name, key in COUNTERS.items():
            hits, called = counters.get(key, 0), after[name] - before[name]
            if hits != called:
                row.inexact.append("run %d: %d hits of %s, called %d times" % (i, hits, name, called))
            row.counted += called
        row.inexact += ["run %d: %s: %s" % (i, kind, words) for kind, words in unaccounted(doc).items()]
        if lost != sum(n for key, n in counters.items() if key.startswith("lost.")):
            row.inexact.append("run %d: %d lost in all, of %s" % (i, lost, counters))
        again = figures_after_losses(row, doc)
        exact += again
        if i % 4 == 0:
            check(lost, "run %d: %d rounds of %d threads into 64 KiB, and nothing was lost: the test tests nothing", i, rounds, threads)
            harness.equal(again, DEVICES, "devices whose totals are exact after what came last")
        row.count += 1
    storm.end(row)
    row.notes.append("%d of them lost events" % lossy)
    return row

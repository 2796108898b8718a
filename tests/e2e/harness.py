# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
Shared by the end-to-end tests. Python 3.11, standard library only.

A test is a function test_*; a file calls run(globals()) and can be run by itself. Each test prints one line, PASS, FAIL or SKIP
with its time. Exit: 0 passed, 1 something failed, 77 all skipped. Processes are started only by spawn(), and each is ended by
its PID in all cases.
"""
import atexit
import contextlib
import glob
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback

import code_bytes
import forked

HERE = os.path.dirname(os.path.abspath(__file__))
REPO = os.path.dirname(os.path.dirname(HERE))
OUT = os.path.abspath(os.environ.get("OUTPUT", os.path.join(REPO, ".output")))
TOOL = os.path.join(OUT, "memtrace-bpf")
WORKLOADS = os.path.join(REPO, "tests", "workloads")
PROGRAMS = os.path.join(REPO, "tests", "programs")
IS_ROOT = os.geteuid() == 0
# Keep byte code of imports next to the environments: otherwise most of a short job's time is compiling PyTorch's Python code.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
os.environ["PYTHONPYCACHEPREFIX"] = os.path.join(os.environ.get("MEMTRACE_VENVS", os.path.expanduser("~/.cache/memtrace-bpf")), "pycache")
# All processes of this file's tests have this in their environment, so they are found whoever their parent is by now.
MARK = "MEMTRACE_TESTS=%d-%d" % (os.getpid(), time.time_ns())
os.environ.update([MARK.split("=")])
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (os.path.join(HERE, "start"), os.environ.get("PYTHONPATH"))))


class Skip(Exception):
    """The test cannot run here; the text says why."""


class Failure(Exception):
    pass


UNACCOUNTED = "hits of probes left no record"


def without_processes(err):
    """A message without its list of processes, which has those of other tests."""
    return re.sub(r"(?m)^Processes with PyTorch: .*\n", "", err)


def accounted(err):
    """Fails if a capture says that its counters do not add up."""
    check(UNACCOUNTED not in err, "counters do not add up: %s", [line for line in err.splitlines() if UNACCOUNTED in line])


def adds_up(counters):
    """Fails if hits are in no other count. Code objects: programs of a process group go on counting them."""
    for key, hits in counters.items():
        kind = key.partition("hits.")[2]
        others = [counters.get("%s.%s" % (what, kind), 0) for what in ("records", "filtered", "lost")]
        if kind and kind != "code_gone":
            check(hits == sum(others), "%s: %d hits, but %s were recorded, filtered, lost", kind, hits, others)


class NotInRing(Exception):
    """The test needs what `make check` does without: another ring runs it."""


# The ring that tests/run.py runs, and of nightly the group. No ring: all tests of the file.
RING, _, GROUP = os.environ.get("MEMTRACE_RING", "").partition("=")


def nightly(group):
    """A test that `make check` and `make test` leave to the night: to `make night-GROUP`."""
    def mark(function):
        function.nightly = group
        return function
    return mark


def check(condition, message, *args):
    if not condition:
        raise Failure(message % args if args else message)


def equal(got, expected, what):
    if isinstance(got, list) and isinstance(expected, list) and len(got) + len(expected) > 8:
        # Of long lists, what only one of them has.
        only = [x for x in got if x not in expected], [x for x in expected if x not in got]
        got, expected, what = (only[0], only[1], what + ", only in one") if any(only) else (got, expected, what)
    check(got == expected, "%s: got %r, expected %r", what, got, expected)


def until(condition, what, seconds=60):
    """Waits until condition() is true; what: in words. Returns its value. It looks less often the longer it waits, because many
    conditions start a program."""
    begin = time.monotonic()
    while True:
        got = condition()
        if got:
            return got
        waited = time.monotonic() - begin
        check(waited < seconds, "not within %d s: %s", seconds, what)
        time.sleep(min(0.05 + waited / 20, 0.25))


# ---- files ------------------------------------------------------------------------------------------------

_scratch = None


def scratch(name=""):
    """A path in a folder that is removed at the end."""
    global _scratch
    if _scratch is None:
        _scratch = tempfile.mkdtemp(prefix="memtrace-e2e-")
        os.chmod(_scratch, 0o755)
        atexit.register(shutil.rmtree, _scratch, ignore_errors=True)
    return os.path.join(_scratch, name) if name else _scratch


def made(name, *options, by="make_recording"):
    """A made-up recording, the same everywhere, or a folder of them, by a program of tests/tools: its path. name: in the scratch
    folder, or a full path. What it has in it is in tests/unit/synthetic.h, which unit tests use, too."""
    path = scratch(name)
    subprocess.run([os.path.join(OUT, "tests", "tools", by), path, *options], check=True, timeout=120)
    return path


def read_json(path):
    with open(path, encoding="utf-8") as f:
        return json.load(f)


# ---- processes --------------------------------------------------------------------------------------------

_running = []


AS_NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")  # for root: a command's prefix


def not_in_check():
    """Leaves the rest of the test to ring 2: it takes too long for `make check`, or needs what that does without."""
    if RING == "check":
        raise NotInRing


def sudo(command):
    """The command with root privileges."""
    not_in_check()
    if IS_ROOT:
        return command
    if not shutil.which("sudo"):
        raise Skip("needs root, and there is no sudo")
    return ["sudo", "-n", *command]


def children_of(pid):
    """Processes that any thread of the process started and that run still."""
    found = []
    for children in glob.glob("/proc/%d/task/*/children" % pid):
        with contextlib.suppress(OSError), open(children, encoding="ascii") as f:
            found += [int(n) for n in f.read().split()]
    return found


def state_of(pid):
    """The kernel's letter for the state of a process: R, S, D, T (stopped), Z."""
    with open("/proc/%d/stat" % pid, encoding="ascii", errors="replace") as f:
        return f.read().rsplit(")", 1)[1].split()[0]


class Process:
    """A child whose output is collected line by line; root=True: through sudo if needed; kept=True: also for the following tests;
    session=True: in a session of its own, as a user's shell starts it. When it ends, its children get a parent of another session."""

    def __init__(self, command, root=False, stdout=None, stdin=subprocess.PIPE, env=None, cwd=None, kept=False, popen=subprocess.Popen, session=False):
        self.root = root and not IS_ROOT
        self.kept = kept
        self.command = sudo(command) if root else command
        self.out, self.err = [], []
        self.lock = threading.Condition()
        self.popen = popen(self.command, stdin=stdin, stdout=stdout or subprocess.PIPE, stderr=subprocess.PIPE, env=env, cwd=cwd, **({"start_new_session": True} if session else {}))
        self.started = time.monotonic()
        self.readers = []
        for stream, lines in ((self.popen.stdout, self.out), (self.popen.stderr, self.err)):
            if stream is not None:
                t = threading.Thread(target=self._read, args=(stream, lines), daemon=True)
                t.start()
                self.readers.append(t)
        _running.append(self)

    def _read(self, stream, lines):
        with stream:
            for raw in iter(stream.readline, b""):
                with self.lock:
                    lines.append((time.monotonic(), raw.decode("utf-8", "replace")))
                    self.lock.notify_all()
        with self.lock:
            self.lock.notify_all()

    @property
    def pid(self):
        """PID of the program, not of sudo."""
        if not self.root:
            return self.popen.pid
        limit = time.monotonic() + 10
        while time.monotonic() < limit and self.alive():
            found = children_of(self.popen.pid)
            if found:
                return children_of(found[0])[0] if children_of(found[0]) else found[0]
            time.sleep(0.02)
        raise Failure("sudo started nothing: %s" % self.stderr())

    def alive(self):
        return self.popen.poll() is None

    def stdout(self):
        with self.lock:
            return "".join(text for _, text in self.out)

    def stderr(self):
        with self.lock:
            return "".join(text for _, text in self.err)

    def wait_line(self, pattern, seconds=60, stream="out"):
        """The first matching line; fails if the process ends or the time is over."""
        limit = time.monotonic() + seconds
        lines = self.out if stream == "out" else self.err
        seen = 0
        with self.lock:
            while True:
                for when, text in lines[seen:]:
                    if re.search(pattern, text):
                        return text
                seen = len(lines)
                left = limit - time.monotonic()
                ended = self.popen.poll() is not None and not any(t.is_alive() for t in self.readers)
                if ended and seen == len(lines):
                    break
                if left <= 0:
                    break
                self.lock.wait(min(left, 0.2))
        raise Failure("no line with %r on std%s of %s within %.0f s (exit %s); stdout: %s stderr: %s" % (
            pattern, stream, self.name(), seconds, self.popen.poll(), self.tail(self.stdout()), self.tail(self.stderr())))

    @staticmethod
    def tail(text):
        return repr(text[-1500:])

    def name(self):
        return " ".join(os.path.basename(a) if "/" in a else a for a in self.command[:6])

    def send(self, text="\n"):
        with contextlib.suppress(BrokenPipeError):
            self.popen.stdin.write(text.encode())
            self.popen.stdin.flush()

    def signal(self, number):
        if self.root:
            subprocess.run(sudo(["kill", "-%d" % number, str(self.pid)]), check=False)
        else:
            self.popen.send_signal(number)

    def wait(self, seconds=60):
        try:
            code = self.popen.wait(seconds)
        except subprocess.TimeoutExpired:
            raise Failure("%s did not end within %.0f s; stderr: %s" % (
                self.name(), seconds, self.tail(self.stderr()))) from None
        for t in self.readers:
            t.join(5)
        accounted(self.stderr())
        return code

    def stop(self):
        """Ends the process by its PID, in any state."""
        if self.popen.poll() is None:
            with contextlib.suppress(Exception):
                self.signal(signal.SIGKILL)
            with contextlib.suppress(Exception):
                self.popen.kill()
            with contextlib.suppress(Exception):
                self.popen.wait(10)
        if self.popen.stdin:
            with contextlib.suppress(Exception):
                self.popen.stdin.close()
        if self in _running:
            _running.remove(self)


def spawn(command, **kwargs):
    return Process(command, **kwargs)


def spawn_job(command, **kwargs):
    """spawn() for a Python job that imports torch, when a test attaches to it later: it has the import behind it from the start. Not
    for a test of how a process starts, of memory that processes share, or of captures that find processes themselves."""
    return Process(command, popen=forked.Popen, **kwargs)


class pipe:
    """A pipe for a child's stdout, whose reader can be closed."""

    def __init__(self):
        self.read, self.write = os.pipe()

    def started(self):
        os.close(self.write)

    def hang_up(self):
        os.read(self.read, 1)
        os.close(self.read)


def stop_all(kept=True):
    for p in list(_running):
        if kept or not p.kept:
            p.stop()


@atexit.register
def stop_orphans():
    """Ends what the tests' processes started and left behind, such as workers of a job that was killed."""
    stop_all()
    for path in glob.glob("/proc/[0-9]*"):
        pid = int(os.path.basename(path))
        with contextlib.suppress(OSError):
            fd = os.pidfd_open(pid)  # the same process when its environment is read and when it is ended
            try:
                with open(path + "/environ", "rb") as f:
                    ours = MARK.encode() in f.read().split(b"\0")
                if ours and pid != os.getpid():
                    signal.pidfd_send_signal(fd, signal.SIGKILL)
            finally:
                os.close(fd)


undo_on_signal = []  # functions that undo a test's changes to the machine


def on_signal(number, _frame):
    stop_orphans()
    for undo in reversed(undo_on_signal):
        undo()
    os._exit(128 + number)


# ---- the tool ---------------------------------------------------------------------------------------------

def tool(*args, root=False, seconds=60, stdin=subprocess.DEVNULL, text=True, prefix=(), cwd=None, env=None):
    """Runs the tool: (exit code, stdout, stderr)."""
    command = [*prefix, TOOL, *args]
    try:
        done = subprocess.run(sudo(command) if root else command, stdin=stdin, capture_output=True,
                              timeout=seconds, cwd=cwd, check=False, env=env)
    except subprocess.TimeoutExpired:
        raise Failure("%s did not end within %d s" % (" ".join(args), seconds)) from None
    err = done.stderr.decode("utf-8", "replace")
    accounted(err)
    return done.returncode, done.stdout.decode("utf-8", "replace") if text else done.stdout, err


def record(pid, output, *options, wait=True):
    """Starts `record`; returns once it has attached."""
    p = spawn([TOOL, "record", "-p", str(pid), "-o", output, "-f", *options], root=True)
    if wait:
        p.wait_line(ATTACHED, 30, stream="err")
    return p


def settle(recorder):
    """Returns when the recorder has read all events so far and the names in them. A job that ends at once takes its code with it: on
    a busy machine the recorder would find no name to read."""
    code, _, err = tool("ctl", "-p", str(recorder.pid), "mark", "settled", root=True)
    check(code == 0, "ctl mark, which reads all events first: %d, %s", code, err)


def resident(pid):
    """Resident bytes of a process."""
    with open("/proc/%d/statm" % pid, encoding="ascii") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def cpu_seconds(pid):
    """CPU time of a process so far; 0: it has ended."""
    try:
        with open("/proc/%d/stat" % pid, encoding="utf-8", errors="replace") as f:
            return sum(int(n) for n in f.read().rpartition(")")[2].split()[11:13]) / os.sysconf("SC_CLK_TCK")
    except OSError:
        return 0


def hold_up(recorder, pid, seconds):
    """Stops the recorder until the process has used this much CPU time, or has ended."""
    until, limit = cpu_seconds(pid) + seconds, time.monotonic() + 20
    recorder.signal(signal.SIGSTOP)
    while 0 < cpu_seconds(pid) < until and time.monotonic() < limit:
        time.sleep(0.01)
    recorder.signal(signal.SIGCONT)


ATTACHED = r"(?i)\b(attached|recording)\b"


def interrupt(p, seconds=30):
    """Sends SIGINT; returns the exit code."""
    p.signal(signal.SIGINT)
    return p.wait(seconds)


def finish(p, seconds=30):
    code = interrupt(p, seconds)
    check(code == 0, "%s ended with %s: %s", p.name(), code, p.tail(p.stderr()))


def own(path):
    """Makes a recording written by root readable."""
    if not IS_ROOT and not os.access(path, os.R_OK):
        subprocess.run(sudo(["chown", str(os.getuid()), path]), check=True)


def report(path, *options, at="end", by="line", expect=0):
    own(path)
    code, out, err = tool("report", "--format", "json", "--at", at, "--by", by, *options, path, seconds=180)
    check(code == expect, "report of %s ended with %d: %s", path, code, err[-1000:])
    doc = json.loads(out)
    capture = doc.get("capture", {})
    # A recorder that was killed leaves counters that are up to a second old.
    if capture.get("complete") and "counters" in capture:
        adds_up(capture["counters"])
    return doc


def until_recorded(path, good, what, *options, seconds=60):
    """Waits until good(report of a recording under way, as JSON); where the report has not what good() looks for, it goes on."""
    def look():
        code, out, _ = tool("report", "--format", "json", *options, path)
        with contextlib.suppress(Failure, LookupError, TypeError):
            return code == 0 and good(json.loads(out))
        return False

    own(path)
    until(look, what, seconds)


def device(doc, name="cpu"):
    for d in doc["devices"]:
        if d["device"] == name:
            return d
    raise Failure("no device %s in the report: %s" % (name, doc["devices"]))


# ---- targets ----------------------------------------------------------------------------------------------

VERSIONS = ("newest", "middle", "old", "oldest", "cu12")  # roles of the night; a test with one is @nightly


def python(role="main"):
    """The interpreter of that role with torch: see tools/deps.sh. "debian" is the distribution's own, for the CPU."""
    not_in_check()
    # Left out here, it would run in no ring.
    check(RING != "test" or role not in VERSIONS, "PyTorch %s is for the night: mark the test @nightly", role)
    return installed("python", role, step="torch test versions")


def installed(*what, step):
    """What `tools/deps.sh WHAT` names: an interpreter, a program or a folder. Skips if it is not here; step: the one that gets it."""
    done = subprocess.run([os.path.join(REPO, "tools", "deps.sh"), *what], capture_output=True, text=True, check=False)
    if done.returncode or not done.stdout.strip():
        raise Skip("no %s: %s" % (" ".join(what), done.stderr.strip() or "run tools/deps.sh " + step))
    return done.stdout.strip()


def workload(name, *args, role="main", cwd=None, start=spawn_job):
    env = dict(os.environ, PYTHONUTF8="1", PYTHONUNBUFFERED="1")
    return start([python(role), os.path.join(WORKLOADS, name), *args], env=env, cwd=cwd)


TINY = ("--batch", "2", "--context", "32", "--width", "32", "--layers", "2", "--heads", "2")
_training = []


def training():
    """A training job past its first step, shared by the tests of a file, because `import torch` takes most of a job's time. A
    test that ends it or needs a fresh one starts its own. It pauses after each step and so leaves the cores to the test."""
    if not _training or not _training[-1].alive():
        job = workload("train_gpt.py", "--seconds", "600", "--pause", "0.05", *TINY)
        job.kept = True
        job.wait_line("^step 20 ", 120)
        _training.append(job)
    return _training[-1]


def compiled(name, as_name="", options=()):
    """A program of tests/programs as a library; as_name: another file name."""
    return compile_c(name, scratch((as_name or name) + ".so"), "-shared", "-fPIC", *options)


def compiled_program(name):
    return compile_c(name, scratch(name))


def compile_c(name, path, *options):
    if not os.path.exists(path):
        if not shutil.which("cc"):
            raise Skip("no C compiler")
        done = subprocess.run(["cc", "-std=gnu11", "-O2", "-Wall", "-Wextra", "-o", path, os.path.join(PROGRAMS, name + ".c"), *options,
                               "-ldl", "-lpthread"], capture_output=True, text=True, check=False)
        check(done.returncode == 0, "%s.c: %s", name, done.stderr)
    return path


CODE = ("libc10.so", "libpython", "libtorch_python.so", "libtorch_cpu.so", "python3")


def patched_bytes(pid, names=CODE):
    """Number of code bytes that differ from the target's files because of probes."""
    if IS_ROOT:
        return code_bytes.differing(pid, names)
    done = subprocess.run(sudo([sys.executable, code_bytes.__file__, str(pid), *names]), capture_output=True, text=True, check=False)
    check(done.returncode == 0, "cannot compare the target's code: %s", done.stderr[-500:])
    return int(done.stdout)


# ---- running ----------------------------------------------------------------------------------------------

def in_ring(group):
    """Whether the ring has a test of this group of the night; None: of no group."""
    return (group is not None) == (RING == "nightly") and GROUP in ("", group)


def run(namespace):
    signal.signal(signal.SIGTERM, on_signal)
    signal.signal(signal.SIGINT, on_signal)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup, the tests' processes would ignore it
    wanted = sys.argv[1:]
    tests = [(n, f) for n, f in namespace.items() if n.startswith("test_") and callable(f)]
    if RING:
        tests = [(n, f) for n, f in tests if in_ring(getattr(f, "nightly", None))]
    if wanted:
        tests = [t for t in tests if t[0] in wanted]
        if len(tests) != len(wanted):
            sys.exit("no such test: %s" % " ".join(set(wanted) - {t[0] for t in tests}))
    file = os.path.splitext(os.path.basename(sys.argv[0]))[0]
    failed = skipped = 0
    if not os.access(TOOL, os.X_OK):
        print("FAIL %s: %s is not there: run make" % (file, TOOL))
        sys.exit(1)
    for name, function in tests:
        begin = time.monotonic()
        why = detail = ""
        try:
            function()
            verdict = "PASS"
        except NotInRing:
            continue
        except Skip as e:
            verdict, why = "SKIP", str(e)
            skipped += 1
        except Failure as e:
            verdict, why = "FAIL", str(e)
            failed += 1
        except Exception as e:  # a failing test must not stop the others
            verdict, why, detail = "FAIL", "%s: %s" % (type(e).__name__, e), traceback.format_exc()
            failed += 1
        finally:
            stop_all(kept=False)
        print("%s %s.%s (%.1f s)%s" % (verdict, file, name, time.monotonic() - begin, ": " + why if why else ""), flush=True)
        if detail:
            sys.stderr.write(detail)
    if failed:
        sys.exit(1)
    sys.exit(77 if skipped == len(tests) else 0)

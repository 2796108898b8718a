# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
The pytest plugin of memtrace-bpf: limits of a test's memory, and what each test leaves behind. It works with pytest 6 and newer and
pytest-xdist. Without --memtrace it only counts the tests with a limit, and imports nothing else.

pytest runs below `memtrace-bpf run --wait`, which the plugin starts. Each test is a window of that recording, begun and ended as
`memtrace-bpf ctl` does; `report`, `export` and `dump` say what was in it. The plugin itself has no figures of its own.
"""
import gc
import glob
import inspect
import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import types

import pytest

from memtrace_bpf.sizes import in_units, parse_size

HERE = os.path.dirname(os.path.abspath(__file__))
PROGRAM = os.path.join(HERE, "bin", "memtrace-bpf")
# Tells the process that the plugin starts where its recordings are. It is removed from the environment at once.
STARTED = "MEMTRACE_PYTEST"
GPU, HOST = "limit_gpu_memory", "limit_host_memory"
MARKS = {
    GPU: "limit_gpu_memory(size): fail the test if more than size is allocated on a GPU while it runs, such as '2 GiB' (with --memtrace)",
    HOST: "limit_host_memory(size): fail the test if its tensors in host memory take more than size, such as '1 GiB' (with --memtrace)",
}
LINES = 10  # lines of code in a failure
TESTS = 30  # tests in the table at the end
ANSWERS = 10  # seconds until the recorder has answered
ATTACHES = 60  # seconds until the recorder has attached to a process that has imported PyTorch
NO_TENSOR = "there is no tensor yet"  # what `dump` says of a process without one
SEARCHED = 20000  # objects that are looked at for the tensors of a fixture
_started = None  # what the plugin has put into the environment


class Failure(Exception):
    """The recorder or a command of memtrace-bpf gave no answer; the text says which and why."""


# ---- the recorder around pytest ----

def recorder(folder, options):
    """The words before the command that is to be recorded, and the variables that it needs."""
    words = [PROGRAM, "run", "-q", "--wait", "--keep", "2", "-f", "-o", folder + "/"]
    if options["recorder"] == "inside":
        words.append("--inside")
    if options["dry_run"]:
        words += ["--dry-run-cuda", "--vram", options["dry_run"]]
    variables = {STARTED: json.dumps({"runtime": os.environ.get("XDG_RUNTIME_DIR"), "folder": folder})}
    if os.geteuid():
        variables["XDG_RUNTIME_DIR"] = folder  # the socket of `ctl`
    return words + ["--"], variables


def wanted(config, known=None):
    """The options of the command line and of pytest.ini; None: nothing is recorded."""
    option = known or config.option
    leaks = getattr(option, "memtrace_leaks", False)
    dry_run = getattr(option, "memtrace_dry_run", None)
    if not (getattr(option, "memtrace", False) or leaks or dry_run or config.getini("memtrace")):
        return None
    return {"leaks": leaks, "dry_run": dry_run, "recorder": option.memtrace_recorder}


def own_command(config):
    """The command that began this process, if it is pytest's own; otherwise it cannot be started again."""
    with open("/proc/self/cmdline", "rb") as f:
        command = [os.fsdecode(word) for word in f.read().split(b"\0")[:-1]]
    arguments = [str(a) for a in config.invocation_params.args]
    if not sys.executable or command[len(command) - len(arguments):] != arguments:
        raise pytest.UsageError("--memtrace: a program called pytest.main(), which cannot be started again. Start pytest by its own command.")
    return [sys.executable] + command[1:]


def start_again(config, options):
    """Runs pytest below the recorder and ends this process with its exit status."""
    command = own_command(config)
    folder = tempfile.mkdtemp(prefix="memtrace-pytest-")
    words, variables = recorder(folder, options)
    sys.stdout.flush()
    sys.stderr.flush()
    # A key that interrupts goes to the whole group, so pytest itself ends on it.
    for number in (signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    status = 1
    try:
        child = subprocess.Popen(words + command, env=dict(os.environ, **variables), preexec_fn=_default_signals)
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda n, _: child.send_signal(n))
        status = child.wait()
    except OSError as e:
        sys.stderr.write("memtrace-bpf: cannot execute %s: %s\n" % (PROGRAM, e.strerror))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    os._exit(status if status >= 0 else 128 - status)


def _default_signals():
    for number in (signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)


def take_over():
    """Notes what the plugin has put into the environment, and removes it, so that tests and their processes see their own."""
    global _started
    if STARTED not in os.environ:
        return
    _started = json.loads(os.environ.pop(STARTED))
    _started["socket"] = os.environ.get("XDG_RUNTIME_DIR")
    if _started["runtime"] is None:
        os.environ.pop("XDG_RUNTIME_DIR", None)
    else:
        os.environ["XDG_RUNTIME_DIR"] = _started["runtime"]


def lines_of(*words):
    """The lines that a command of memtrace-bpf prints."""
    env = dict(os.environ)
    if _started and _started["socket"]:
        env["XDG_RUNTIME_DIR"] = _started["socket"]
    with tempfile.TemporaryFile() as errors:
        try:
            process = subprocess.Popen([PROGRAM, *words], env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors)
        except OSError as e:
            raise Failure("cannot execute %s: %s" % (PROGRAM, e.strerror)) from None
        with process:
            yield from process.stdout
        if process.returncode:
            errors.seek(0)
            raise Failure("memtrace-bpf %s failed: %s" % (words[0], errors.read(4096).decode("utf-8", "replace").strip()))


def document_of(*words):
    """The JSON that a command of memtrace-bpf prints."""
    return json.loads(b"".join(lines_of(*words)))


def ask(action):
    """The answer of the recorder of this process to an action, as `memtrace-bpf ctl` asks for it, without the cost of a process."""
    folder = os.path.join(_started["socket"], "memtrace-bpf") if os.geteuid() else "/run/memtrace-bpf"
    error = "no capture of PID %d runs here" % os.getpid()
    for path in glob.glob(os.path.join(glob.escape(folder), "%d.*.sock" % os.getpid())):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
            s.settimeout(ANSWERS)
            try:
                s.connect(path)
                s.send(action.encode())
                answer = json.loads(s.recv(1 << 16))
            except (OSError, ValueError) as e:
                error = "the recorder does not answer: %s" % e
                continue
        processes = answer.get("processes") or [{}]
        if answer.get("ok"):
            return processes[0]
        error = "memtrace-bpf ctl %s failed: %s" % (action, processes[0].get("error") or answer.get("error") or "no process is recorded")
    raise Failure(error)


def wait_for_recorder():
    """Imports PyTorch, if nothing has, and waits until the recorder has attached."""
    import torch  # noqa: F401  The recorder attaches to it.
    end = time.monotonic() + ATTACHES
    while "pid" not in ask("status"):
        if time.monotonic() > end:
            raise Failure("the recorder did not attach within %d s" % ATTACHES)
        time.sleep(0.01)


# ---- what a window has ----

def report(path, *options):
    return document_of("report", "--json", *options, path)


def peaks(path):
    """The highest allocated bytes of each device in the window, and the number of lost events."""
    document = report(path, "--top", "1")
    return {d["device"]: d["peak_allocated"] for d in document["devices"] if d["peak_allocated"] is not None}, document["capture"]["lost"]


def live_at_start(path, device):
    return sum(event["size"] for event, _ in block_events(path) if event["event"] == "block" and event["device"] == device)


def is_gpu(device):
    return device.startswith("cuda:")


def short(config, path):
    """The path from pytest's root on, if it is below it."""
    inside = os.path.relpath(path, str(getattr(config, "rootpath", None) or config.rootdir)) if os.path.isabs(path) else path
    return path if inside.startswith("..") else inside


def place(config, row):
    if not row.get("file"):
        return row.get("holder") or row.get("function") or "line not known"
    return "%s:%d (%s)" % (short(config, row["file"]), row["line"], row["function"])


def lines_at_peak(config, path, device):
    """Rows of the lines that hold the most at the device's peak."""
    document = report(path, "--device", device, "--at", "peak")
    sums = {}
    for row in document["rows"]:
        size, blocks = sums.get(place(config, row), (0, 0))
        sums[place(config, row)] = size + row["bytes"], blocks + row["count"]
    rest = document["allocated"] - sum(size for size, _ in sums.values())
    rows = sorted(sums.items(), key=lambda r: (-r[1][0], r[0]))
    table = [(in_units(size), str(blocks), line) for line, (size, blocks) in rows[:LINES]]
    if rows[LINES:]:
        table.append((in_units(sum(r[1][0] for r in rows[LINES:])), str(sum(r[1][1] for r in rows[LINES:])), "+ %d more lines" % len(rows[LINES:])))
    if rest > 0:
        table.append((in_units(rest), "", "line not known"))
    return columns([("Size", "Blocks", "Line")] + table, "rrl")


def columns(rows, sides):
    """Lines of a table. Names come from the tests' code: their control characters are not printed."""
    rows = [["".join(c if c.isprintable() else "?" for c in cell) for cell in row] for row in rows]
    widths = [max(len(row[i]) for row in rows) for i in range(len(sides))]
    return ["  ".join(cell.rjust(w) if side == "r" else cell.ljust(w) for cell, w, side in zip(row, widths, sides)).rstrip() for row in rows]


# ---- limits ----

def limits(item):
    """{mark: bytes} of the nearest mark of each kind. Raises ValueError."""
    found = {}
    for name in MARKS:
        mark = item.get_closest_marker(name)
        if mark:
            if len(mark.args) != 1 or mark.kwargs:
                raise ValueError("%s takes one size, such as '2 GiB'" % name)
            found[name] = parse_size(mark.args[0])
    return found


def exceeded(config, path, bounds):
    """The peak of each device, and a text for each that is over its limit."""
    by_device, lost = peaks(path)
    texts = []
    for device, peak in sorted(by_device.items()):
        bound = bounds.get(GPU if is_gpu(device) else HOST if device == "cpu" else None)
        if bound is None or peak <= bound:
            continue
        texts.append("%s peaked at %s, %s over the limit of %s; %s were allocated when the test began\n%s"
                     % (device, in_units(peak), in_units(peak - bound), in_units(bound), in_units(live_at_start(path, device)),
                        "\n".join(lines_at_peak(config, path, device))))
    if bounds and lost and not texts:
        texts.append("the peak is not known: %d events were lost" % lost)
    return by_device, texts


# ---- what tests leave behind ----

def block_events(path):
    """(event, stack) of each block in a window: those that were live when it began ("block"), allocations and frees, in their order.
    stack: its frames, or []. Other events are left out."""
    stacks = {}
    for line in lines_of("export", "ndjson", path, "-o", "-"):
        kind = line.partition(b'"event":"')[2].partition(b'"')[0]
        if kind == b"stack":
            stack = json.loads(line)
            stacks[stack["stack"]] = stack["frames"]
        elif kind in (b"block", b"alloc", b"free"):
            event = json.loads(line)
            if "address" in event:
                yield event, stacks.get(event.get("stack"), [])


class Kept:
    """The blocks that the tests so far have left behind."""

    def __init__(self):
        self.live = {}  # (device, address): entry of a block that a test has left behind
        self.entries = []  # the same, and those that were freed since

    def _freed(self, key, test):
        if key in self.live:
            self.live.pop(key)["freed"] = test

    def window(self, path, test, made):
        """Follows the test's blocks through one of its windows. made: {(device, address): (event, stack)} of those that are live."""
        began, known = set(), None
        for event, stack in block_events(path):
            key = event["device"], int(event["address"], 16)
            if event["event"] == "block":
                began.add(key)
                continue
            if known is None:
                known = self._check(began, test, made)
            if event["event"] == "free":
                made.pop(key, None)
                self._freed(key, test)
            else:
                self._freed(key, test)
                made[key] = event, stack
        if known is None:
            self._check(began, test, made)

    def _check(self, began, test, made):
        """Forgets blocks that were freed between two windows."""
        for key in [k for k in made if k not in began]:
            del made[key]
        for key in [k for k in self.live if k not in began]:
            self._freed(key, test)
        return True

    def add(self, test, made, holders, line):
        for key, (event, stack) in made.items():
            entry = {"test": test, "device": key[0], "bytes": event["size"], "line": line(event, stack), "holder": holders.get(key), "freed": None}
            self.live[key] = entry
            self.entries.append(entry)


def holders_of(blocks, fixtures):
    """{(device, address): name} of what holds the blocks. Fixtures come first: memtrace-bpf cannot know that pytest has them."""
    try:
        document = dump()
    except Failure as e:
        if NO_TENSOR not in str(e):
            raise
        document = {"models": [], "rows": [], "reading": {"complete": True}}
    models = {}
    for model in document["models"]:
        models.setdefault(model["class"], []).append(model["held_by"])
    names = dict.fromkeys(blocks, "no tensor of Python's" if document["reading"]["complete"] else None)
    for row in document["rows"]:
        key = row["device"], row.get("address")
        name = row.get("name")
        if key in blocks:
            if name and row["module_root"]:
                held_by = models.get(row["module_root"], [])
                name = "%s of %s" % (name, held_by[0] if len(held_by) == 1 and held_by[0] else "a " + row["module_root"])
            names[key] = name or None
    for fixture in fixtures:
        for key in tensors_of(fixture) & blocks:
            names[key] = "fixture %s (scope %s)" % (fixture.argname, scope_of(fixture))
    return names


def dump():
    """The tensors of this process, read from outside."""
    if not os.geteuid() or not os.path.exists("/proc/sys/kernel/yama/ptrace_scope"):
        return document_of("dump", "--json", "-p", str(os.getpid()))
    # Yama lets a process read its children only. PR_SET_PTRACER, any process of this user; and none again.
    import ctypes
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(0x59616D61, ctypes.c_ulong(-1 % 2 ** (8 * ctypes.sizeof(ctypes.c_ulong))), 0, 0, 0)
    try:
        return document_of("dump", "--json", "-p", str(os.getpid()))
    finally:
        libc.prctl(0x59616D61, ctypes.c_ulong(0), 0, 0, 0)


def scope_of(fixture):
    return str(getattr(fixture.scope, "value", fixture.scope))


NOT_SEARCHED = (type, types.ModuleType, types.BuiltinFunctionType, types.CodeType, str, bytes, int, float)


def tensors_of(fixture):
    """{(device, address)} of the tensors that a fixture's value or its unfinished generator leads to."""
    import torch
    found, seen = set(), {}  # seen holds the objects, so that no other one gets the same id
    todo = [(getattr(fixture, "cached_result", None) or (None,))[0]]
    for finalizer in getattr(fixture, "_finalizers", ()):
        todo += [a.gi_frame.f_locals for a in getattr(finalizer, "args", ()) if isinstance(a, types.GeneratorType) and a.gi_frame]
    while todo and len(seen) < SEARCHED:
        one = todo.pop()
        kind = type(one)
        if id(one) in seen or issubclass(kind, NOT_SEARCHED) or str(kind.__module__).startswith(("_pytest.", "pluggy")):
            continue
        seen[id(one)] = one
        if issubclass(kind, torch.Tensor):
            found.add(address_of(one, getattr(torch._C, "_is_cow_tensor", None)))
            if one.is_leaf:
                todo.append(one.grad)
        elif issubclass(kind, types.FunctionType):
            todo += [one.__closure__, one.__defaults__, one.__kwdefaults__, one.__dict__]
            continue
        todo += gc.get_referents(one)
    return found


def address_of(tensor, is_lazy_copy):
    """(device, address) of a tensor's storage; (None, 0): it has none that can be read without a copy."""
    try:
        if is_lazy_copy and is_lazy_copy(tensor):
            return None, 0
        storage = tensor.untyped_storage() if hasattr(tensor, "untyped_storage") else tensor.storage()
        return str(tensor.device), storage.data_ptr()
    except (RuntimeError, NotImplementedError):
        return None, 0


def fixture_in(stack, fixtures):
    """The name of the fixture whose function allocated a block, or ""."""
    for frame in stack:
        for name, code in fixtures.items():
            if frame.get("file") == code.co_filename and frame.get("function", "").rpartition(".")[2] == code.co_name:
                return name
    return ""


def count(number, noun):
    return "%d %s%s" % (number, noun, "" if number == 1 else "s")


def table_of_kept(entries):
    """Lines of the table: which test keeps what."""
    failed, tests = [], {}
    for e in entries:
        if "sys.last_" in (e["holder"] or ""):
            failed.append(e)
        else:
            tests.setdefault(e["test"], {}).setdefault((e["device"], e["line"], e["holder"], e["freed"]), []).append(e["bytes"])
    order = sorted(tests, key=lambda t: (-sum(sum(sizes) for sizes in tests[t].values()), t))
    rows, where = [("Size", "Blocks", "Device", "Line", "Held by", "Until")], {}
    for test in order[:TESTS]:
        where[len(rows)] = test
        for (device, line, holder, freed), sizes in sorted(tests[test].items(), key=lambda r: (-sum(r[1]), r[0][1])):
            rows.append((in_units(sum(sizes)), str(len(sizes)), device, line, holder or "not known", freed or "the end"))
    lines = []
    for i, text in enumerate(columns(rows, "rrllll")):
        if i in where:
            lines.append("%s left %s" % (where[i], in_units(sum(sum(sizes) for sizes in tests[where[i]].values()))))
        lines.append("  " + text)
    if not tests:
        lines = ["No test left tensors behind."]
    if order[TESTS:]:
        lines.append("+ %s" % count(len(order[TESTS:]), "more test"))
    if failed:
        lines.append("%s more %s held by the tracebacks of failed tests (sys.last_traceback), until pytest runs the next one."
                     % (in_units(sum(e["bytes"] for e in failed)), "are" if len(failed) > 1 else "is"))
    return lines


# ---- plugin ----

def pytest_addoption(parser):
    group = parser.getgroup("memtrace", "memory of tests (memtrace-bpf)")
    group.addoption("--memtrace", action="store_true", help="Record the tests' memory and check the marks limit_gpu_memory and limit_host_memory.")
    group.addoption("--memtrace-leaks", action="store_true", help="Also print which tensors each test leaves behind, with line and holder.")
    group.addoption("--memtrace-dry-run", metavar="SIZE", help="Run the tests on a simulated GPU with this memory, such as 24G. It computes nothing.")
    group.addoption("--memtrace-recorder", choices=("inside", "kernel"), default="inside",
                    help="Who records: a library in the process, without root (inside), or the kernel's probes, as root (kernel).")
    parser.addini("memtrace", "As --memtrace.", type="bool", default=False)


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_load_initial_conftests(early_config):
    # Before pytest redirects output: a command that is started now has the terminal.
    take_over()
    known = early_config.known_args_namespace
    options = wanted(early_config, known)
    distributed = getattr(known, "numprocesses", None) or getattr(known, "tx", None)
    if options and not _started and not distributed and not known.help and not known.version:
        start_again(early_config, options)
    yield


def pytest_configure(config):
    for text in MARKS.values():
        config.addinivalue_line("markers", text)
    options = wanted(config)
    if options:
        config.pluginmanager.register(Recorded(config, options), "memtrace-recorded")
    elif not hasattr(config, "workerinput"):
        config.pluginmanager.register(Unchecked(), "memtrace-unchecked")


class Unchecked:
    """Without --memtrace: says that limits were not checked."""

    def __init__(self):
        self.tests = 0

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items):
        self.tests = sum(any(item.get_closest_marker(name) for name in MARKS) for item in items)

    def pytest_terminal_summary(self, terminalreporter):
        if self.tests:
            terminalreporter.write_line("memtrace: limits of %s were not checked; pytest --memtrace checks them" % count(self.tests, "test"))


class Recorded:
    """With --memtrace: a window of the recording for each test."""

    def __init__(self, config, options):
        self.config, self.options = config, options
        self.ready = self.open = False
        self.folder = None  # of the recordings of xdist's workers
        self.fixtures, self.functions = [], {}  # those that are set up; {name: code} of all
        self.kept = Kept()
        self.peaks, self.problems = {}, []  # {test: {device: bytes}}; sentences
        self.made = {}
        self.collected = {"peaks": {}, "kept": [], "problems": []}  # of all processes

    # -- windows --

    def begin(self):
        """Begins a window."""
        if not self.ready:
            if not _started:
                raise Failure("pytest does not run below the recorder. Load the plugin on the command line: -p memtrace_bpf.pytest_plugin")
            wait_for_recorder()
            self.ready = True
        ask("start")
        self.open = True

    def end(self):
        """Ends the window. Returns its file."""
        self.open = False
        return ask("stop")["file"]

    def problem(self, test, e):
        self.problems.append("%s: %s" % (test, e))

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item):
        item.memtrace = state = {"limits": {}, "error": None}
        self.made = {}
        try:
            self.begin()
        except (Failure, ImportError) as e:
            state["error"] = str(e)
            self.problem(item.nodeid, e)
        try:
            state["limits"] = limits(item)
        except ValueError as e:
            state["error"], state["limits"] = str(e), {"": 0}
        yield
        try:
            self.after(item, state)
        except Failure as e:
            self.problem(item.nodeid, e)

    def after(self, item, state):
        """The test and its fixtures are over."""
        if self.open:
            path = self.end()
            if self.options["leaks"]:
                self.kept.window(path, item.nodeid, self.made)
        if self.made and self.ready:
            # A window of its own for what only the garbage collector frees: most tests need none.
            self.begin()
            gc.collect()
            self.kept.window(self.end(), item.nodeid, self.made)
        if self.made:
            holders = {}
            try:
                holders = holders_of(set(self.made), self.fixtures)
            finally:
                self.kept.add(item.nodeid, self.made, holders, self.line)

    def line(self, event, stack):
        """Where a block was allocated, and in which fixture."""
        fixture = fixture_in(stack, self.functions)
        text = place(self.config, event)
        return text.replace(" (%s)" % fixture, "") + ", fixture " + fixture if fixture else text

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item):
        # A plugin that repeats a test that failed does it within one protocol.
        if not self.open and not item.memtrace["error"]:
            try:
                self.begin()
            except Failure as e:
                item.memtrace["error"] = str(e)
        yield

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item):
        outcome = yield
        state = item.memtrace
        error = state["error"]
        if not error:
            try:
                error = self.check(item, state)
            except Failure as e:
                error = str(e)
                self.problem(item.nodeid, e)
        if not error or not state["limits"]:
            return
        if outcome.excinfo is None:
            fail(outcome, error)
        else:
            item.add_report_section("call", "memtrace", error)

    def check(self, item, state):
        """Ends the window of setup and call. Returns what is wrong with the test's peaks, or ""."""
        path = self.end()
        by_device, texts = exceeded(self.config, path, state["limits"])
        self.peaks[item.nodeid] = by_device
        item.user_properties += [("memtrace_peak_" + device, peak) for device, peak in sorted(by_device.items())]
        if self.options["leaks"]:
            self.kept.window(path, item.nodeid, self.made)
            self.begin()
        return "\n\n".join(texts)

    # -- fixtures --

    @pytest.hookimpl(hookwrapper=True)
    def pytest_fixture_setup(self, fixturedef):
        self.fixtures.append(fixturedef)
        code = getattr(inspect.unwrap(fixturedef.func), "__code__", None)
        if code:
            self.functions[fixturedef.argname] = code
        yield

    def pytest_fixture_post_finalizer(self, fixturedef):
        if fixturedef in self.fixtures:
            self.fixtures.remove(fixturedef)

    # -- xdist --

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_setupnodes(self, specs):
        """Starts each worker below a recorder of its own."""
        self.folder = tempfile.mkdtemp(prefix="memtrace-pytest-")
        for number, spec in enumerate(specs):
            if not spec.popen:
                raise pytest.UsageError("--memtrace records workers of this machine only, not %s" % spec)
            folder = os.path.join(self.folder, "w%d" % number)
            os.mkdir(folder, 0o700)
            words, variables = recorder(folder, self.options)
            python = shlex.split(spec.python) if spec.python else [sys.executable]
            spec.python = " ".join(shlex.quote(w) for w in ["env"] + ["%s=%s" % v for v in variables.items()] + words + python)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node, error):
        found = getattr(node, "workeroutput", {}).get("memtrace")
        if found:
            self.collect(found)
        else:
            self.collected["problems"].append("worker %s ended early: what its tests left behind is not known" % node.gateway.id)

    def collect(self, found):
        self.collected["peaks"].update(found["peaks"])
        self.collected["kept"] += found["kept"]
        self.collected["problems"] += found["problems"]

    # -- the end --

    def pytest_sessionfinish(self):
        found = {"peaks": self.peaks, "kept": self.kept.entries, "problems": self.problems}
        if hasattr(self.config, "workeroutput"):
            self.config.workeroutput["memtrace"] = found
        else:
            self.collect(found)

    def pytest_unconfigure(self):
        if self.folder:
            shutil.rmtree(self.folder, ignore_errors=True)

    def pytest_terminal_summary(self, terminalreporter):
        found = self.collected
        if any(found["peaks"].values()):
            terminalreporter.section("highest peaks of tests (memtrace)")
            for line in table_of_peaks(found["peaks"]):
                terminalreporter.write_line(line)
        if self.options["leaks"]:
            terminalreporter.section("memory that tests left behind (memtrace)")
            for line in table_of_kept(found["kept"]):
                terminalreporter.write_line(line)
        for problem in found["problems"][:TESTS]:
            terminalreporter.write_line("memtrace: " + problem, yellow=True)


def table_of_peaks(by_test):
    by_test = {test: found for test, found in by_test.items() if found}
    devices = sorted({d for found in by_test.values() for d in found}, key=lambda d: (not is_gpu(d), d))
    tests = sorted(by_test, key=lambda t: ([-by_test[t].get(d, 0) for d in devices], t))
    rows = [tuple(devices) + ("Test",)] + [tuple(in_units(by_test[t].get(d, 0)) for d in devices) + (t,) for t in tests[:LINES]]
    lines = columns(rows, "r" * len(devices) + "l")
    return lines + ["+ " + count(len(tests) - LINES, "more test")] if tests[LINES:] else lines


def fail(outcome, text):
    """Makes a test that passed a failed one."""
    try:
        pytest.fail("memtrace: " + text, pytrace=False)
    except BaseException as e:
        if hasattr(outcome, "force_exception"):
            outcome.force_exception(e)
        else:
            outcome._excinfo = sys.exc_info()  # pluggy before 1.1

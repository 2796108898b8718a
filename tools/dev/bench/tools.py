# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""The compared tools: how each attaches to a running target and detaches. missing() names what a tool needs and lacks here."""
import contextlib
import os
import re
import shutil
import signal
import subprocess
import time

import harness
import truth
from bench.common import attach, cpu_seconds, memory, wait_idle


class Target:
    """A training job (tests/workloads/step.py) that takes commands."""

    count = 0

    def __init__(self, python, device, options=(), more=None):
        Target.count += 1
        self.times = harness.scratch("step-%d.jsonl" % Target.count)
        env = truth.dry_run() if device == "cuda" else dict(os.environ, PYTHONUNBUFFERED="1")
        self.process = harness.spawn([python, os.path.join(harness.WORKLOADS, "step.py"), "--times", self.times, "--device", device,
                                      *options], env={**env, **(more or {})})
        self.process.wait_line("^ready", 120)
        self.pid = self.process.popen.pid

    def tell(self, command, seconds=180):
        self.process.out.clear()
        self.process.send(command + "\n")
        words = " ".join(command.split()[:2])
        return [int(x) for x in self.process.wait_line("^did " + words, seconds).split()[len(words.split()) + 1:]]

    def sites(self):
        """[(path, symbol or offset)] of the probe sites of a recording that training passes."""
        code, out, err = harness.tool("check", "-p", str(self.pid), "--explain", root=True)
        harness.check(code == 0, "check: %s", err)
        found = re.findall(r"^ok +(report|cpu new|cpu delete|autograd edge|autograd node|module call) +(/.*?)\+(0x[0-9a-f]+): "
                           r".*?, (\S+)$", out, re.M)
        # `check` shortens long names: an ambiguous name is found by its address.
        return [(part, path, offset) for part, path, offset, _ in found]

    @contextlib.contextmanager
    def paused(self):
        """Stops the target, to leave the cores to others."""
        self.process.signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.process.signal(signal.SIGCONT)

    def stop(self):
        self.process.stop()


def tree(pid):
    """The process and all its descendants."""
    result = [pid]
    for child in harness.children_of(pid):
        result += tree(child)
    return result


class Tool:
    name = ""
    since = None  # start time, if long before the tool reported it
    fresh = False  # true: the tool changes the target permanently, so each window needs a new process
    gpu_only = False
    long = False  # true: only measured with --long
    records = {}  # table column: content

    def missing(self):
        return ""

    def start(self, target):
        raise NotImplementedError

    def ready(self):
        """Returns when the tool's one-time work after attach is done."""

    def stop(self, target):
        """{"events": ..., "bytes": ...}, as far as known."""
        raise NotImplementedError

    def root_pid(self):
        return None

    def cpu(self):
        """CPU time of the tool's own processes in s; None: it has none."""
        return sum(cpu_seconds(p) for p in tree(self.root_pid())) if self.root_pid() else None

    def rss(self):
        total = 0
        for p in tree(self.root_pid()) if self.root_pid() else ():
            with contextlib.suppress(OSError):
                total += memory(p)["VmHWM"]
        return total or None


AGAIN = "untraced again"
LIMITED = "--cost 1%"
TRAPS = "empty probes"
ALL_TRAPS = "empty probes, also of backward"


class Nothing(Tool):
    """No tool, measured as one: how far the untraced job differs from itself."""

    name = AGAIN
    records = dict.fromkeys(("lines", "modules", "backward", "frees", "before", "memory"), "no")

    def start(self, target):
        pass

    def stop(self, target):
        return {"events": None}


class Ours(Tool):
    state = "recorded"

    def __init__(self, name, *options):
        self.name, self.options = name, options
        self.records = {"lines": "yes", "modules": "no" if "--no-modules" in options else "yes",
                        "backward": "no" if "--no-autograd" in options else "to lines of forward", "frees": "yes",
                        "before": "totals, blocks, names", "memory": "CPU, CUDA"}

    def start(self, target):
        self.path = harness.scratch("ours.mtr")
        self.process = attach(self.state, target.pid, self.path, *self.options)

    def root_pid(self):
        return self.process.pid

    def ready(self):
        wait_idle(self.cpu)

    def stop(self, target):
        harness.finish(self.process)
        capture = harness.report(self.path)["capture"]
        return {"events": capture["events"], "lost": capture["lost"], "bytes": os.path.getsize(self.path)}


class Limited(Ours):
    """With --cost: measured once the recorder has dropped what it will drop."""

    long = True

    def ready(self):
        super().ready()
        time.sleep(12)


class Empty(Ours):
    """The same probes, which only count: the cost of the kernel's traps."""

    state = "empty"

    def __init__(self, name, *options):
        super().__init__(name, *options)
        self.records = {"lines": "no", "modules": "no", "backward": "no", "frees": "counted", "before": "no", "memory": "CPU, CUDA"}

    def stop(self, target):
        harness.finish(self.process)  # the probes are hit, and make no records: a report's counters do not add up
        return {"events": None}


class InProcess(Tool):
    """PyTorch's own recorder, started and stopped by the job."""

    def __init__(self, name, command, **more):
        self.name, self.command = name, command
        self.__dict__.update(more)

    def start(self, target):
        target.tell(self.command + " on")
        self.before = memory(target.pid)["VmRSS"]

    def stop(self, target):
        grown = memory(target.pid)["VmRSS"] - self.before
        return {"events": target.tell(self.command + " off")[0], "bytes": grown}


HISTORY = {"lines": "yes", "modules": "no", "backward": "no", "frees": "yes", "before": "no", "memory": "CUDA"}
PROFILER = {"lines": "yes", "modules": "as Python calls", "backward": "operators, by number", "frees": "yes", "before": "no",
            "memory": "CPU, CUDA"}


class Memray(Tool):
    name = "memray"
    fresh = long = True
    records = {"lines": "yes", "modules": "no", "backward": "no", "frees": "yes", "before": "no", "memory": "malloc, mmap"}

    def __init__(self, python):
        self.python = python

    def missing(self):
        return "" if self.python and shutil.which("gdb") else "not installed: tools/deps.sh bench"

    def command(self, *args):
        done = subprocess.run(harness.sudo([self.python, "-m", "memray", *args]), capture_output=True, text=True, timeout=120, check=False)
        harness.check(done.returncode == 0, "memray %s: %s", args[0], (done.stdout + done.stderr)[-500:])
        return done.stdout

    def start(self, target):
        self.path = harness.scratch("memray.bin")
        self.command("attach", "-f", "-o", self.path, str(target.pid))

    def stop(self, target):
        self.command("detach", str(target.pid))
        harness.own(self.path)
        done = subprocess.run([self.python, "-c", "import memray, sys; "
                               "print(memray.FileReader(sys.argv[1]).metadata.total_allocations)", self.path],
                              capture_output=True, text=True, check=False)
        harness.check(done.returncode == 0, "memray's file: %s", done.stderr[-500:])
        return {"events": int(done.stdout), "bytes": os.path.getsize(self.path)}


class Bpftrace(Tool):
    long = True

    def __init__(self, name, action, parts=None, env=()):
        self.name, self.action, self.parts, self.env = name, action, parts, env
        stacks = "native, one frame" if "ustack" in action else "no"
        self.records = {"lines": stacks, "modules": "no", "backward": "no", "frees": "yes" if "ustack" in action else "count",
                        "before": "no", "memory": "CPU, CUDA"}

    def missing(self):
        return "" if shutil.which("bpftrace") else "not installed: tools/deps.sh bench"

    def script(self, sites):
        # The library of the allocators is last: when its code is patched, all code is.
        sites = sorted((s for s in sites if not self.parts or s[0] in self.parts), key=lambda s: "libc10.so" in s[1])
        return "\n".join("uprobe:%s:%s { %s }" % (path, offset, self.action) for _, path, offset in sites)

    def start(self, target):
        sites = target.sites()
        self.path = harness.scratch("bpftrace.txt")
        with contextlib.suppress(OSError):
            os.unlink(self.path)
        expected = len([s for s in sites if "libc10.so" in s[1]])
        self.process = harness.spawn(["env", *self.env, "bash", "-c", 'ulimit -l unlimited; exec "$@"', "-", "bpftrace", "-o", self.path,
                                      "-p", str(target.pid), "-e", self.script(sites)], root=True)
        begin = self.since = time.monotonic()
        while harness.patched_bytes(target.pid, ("libc10.so",)) < expected:
            self.since = time.monotonic()
            harness.check(self.process.alive() and self.since < begin + 30, "bpftrace: %s", self.process.stderr()[-500:])

    def root_pid(self):
        return self.process.pid

    def stop(self, target):
        self.process.signal(signal.SIGINT)
        self.process.wait(60)
        harness.own(self.path)
        with open(self.path, encoding="utf-8", errors="replace") as f:
            text = f.read()
        hits = sum(int(n) for n in re.findall(r"^@hits(?:\[.*\])?: (\d+)", text, re.M))
        printed = len(re.findall(r"^hit ", text, re.M))
        return {"events": hits, "bytes": len(text) if printed else None, "printed": printed}


class Heaptrack(Tool):
    name = "heaptrack"
    fresh = long = True
    records = {"lines": "native, by unwinding", "modules": "no", "backward": "no", "frees": "yes", "before": "no", "memory": "malloc"}

    def missing(self):
        return "" if shutil.which("heaptrack") and shutil.which("gdb") else "not installed: tools/deps.sh bench"

    def start(self, target):
        self.path = harness.scratch("heaptrack")
        self.process = harness.spawn(["heaptrack", "-o", self.path, "-p", str(target.pid)], root=True)
        self.process.wait_line("injection finished", 120)

    def root_pid(self):
        return self.process.pid

    def stop(self, target):
        """memray warns that detaching may crash the target: end the target instead."""
        target.stop()
        self.process.wait(120)
        path = next(self.path + end for end in (".zst", ".gz") if os.path.exists(self.path + end))
        harness.own(path)
        done = subprocess.run(["heaptrack_print", "-f", path, "--print-peaks=0", "--print-allocators=0", "--print-temporary=0"],
                              capture_output=True, text=True, timeout=300, check=False)
        m = re.search(r"calls to allocation functions: (\d+)", done.stdout)
        return {"events": int(m[1]) if m else None, "bytes": os.path.getsize(path)}


PRINT = '@hits = count(); printf("hit %d %p %d%s\\n", tid, arg0, arg1, ustack);'
ALLOCATIONS = ("report", "cpu new", "cpu delete")
NO_NAMES = ("BPFTRACE_NO_USER_SYMBOLS=1",)


def all_tools(memray_python):
    """Our tool first. bpftrace prints addresses without names: with names it lost 97 of 100 hits here."""
    return [Nothing(), Empty(TRAPS, "--no-autograd"), Empty(ALL_TRAPS), Ours("all"), Ours("no backward", "--no-autograd"), Ours("no backward or modules", "--no-autograd", "--no-modules"),
            InProcess("PyTorch's recorder", "history", gpu_only=True, records=HISTORY),
            InProcess("torch.profiler", "profiler", fresh=True, long=True, records=PROFILER), Memray(memray_python),
            Bpftrace("bpftrace count", "@hits = count();"), Bpftrace("bpftrace stacks", PRINT, env=NO_NAMES),
            Bpftrace("bpftrace stacks, allocations", PRINT, ALLOCATIONS, NO_NAMES), Heaptrack()]

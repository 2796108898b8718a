#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# run: cpu=30
"""`ps --machine`: its lines add up to MemTotal, and say who has the machine's memory: tmpfs, page cache, slab, huge pages."""
import json
import mmap
import os
import re
import resource
import shutil
import signal
import sys
import tempfile

import harness
import test_errors
from harness import Skip, check, equal, run, scratch, spawn, tool

MIB = 1 << 20
LOAD = 200 * MIB
HUGE = "/proc/sys/vm/nr_hugepages"
# Lines and the names of /proc/meminfo whose sum they are.
SAME = {"processes": ("AnonPages",), "page_cache": ("Cached", "Buffers", "-Shmem"), "shared_memory": ("Shmem",), "slab": ("Slab",),
        "page_tables": ("PageTables", "SecPageTables"), "huge_pages": ("Hugetlb",)}


def ledger(*args, **kw):
    kw.setdefault("root", True)
    code, out, err = tool("ps", "--machine", "--json", *args, **kw)
    equal(code, 0, "ps --machine: %s" % err)
    return json.loads(out)


def line(document, name):
    return next(x for x in document["ledger"] if x["line"] == name)


def meminfo():
    with open("/proc/meminfo", encoding="ascii") as f:
        return {k: int(v.split()[0]) * 1024 for k, v in (x.split(":") for x in f)}


def check_sums(document):
    equal(sum(x["bytes"] for x in document["ledger"]), document["total"], "sum of the lines, and MemTotal")
    for x in document["ledger"]:
        if x["parts"]:
            equal(sum(x["parts"].values()), x["bytes"], "parts of " + x["line"])


def read_ledger(*args):
    """A ledger that agrees with what /proc/meminfo says before and after it, to 1 % of the machine. Other processes may take and free
    memory between two of the three readings: then all are read again."""
    for _ in range(10):
        before, document, after = meminfo(), ledger(*args), meminfo()
        check_sums(document)
        differ = differences(document, before, after)
        if not differ:
            return document
    raise harness.Failure("ten ledgers differ from /proc/meminfo, the last one in: %s" % differ)


def differences(document, *readings):
    """Lines that are outside of the readings of /proc/meminfo."""
    slack, found = document["total"] // 100, []
    for name, fields in SAME.items():
        figures = [sum(-m.get(f[1:], 0) if f[0] == "-" else m.get(f, 0) for f in fields) for m in readings]
        if not min(figures) - slack <= line(document, name)["bytes"] <= max(figures) + slack:
            found.append("%s: %s, meminfo: %s" % (name, line(document, name), figures))
    if abs(line(document, "not_explained")["bytes"]) > slack * 2:
        found.append("not explained: %s" % document["ledger"])
    return found


def fill(path, size=LOAD):
    block = os.urandom(MIB)
    with open(path, "wb") as f:
        for _ in range(size // MIB):
            f.write(block)


def test_page_cache_of_a_file():
    """Weights that nobody has open are found by their path, with the pages that are not on the disk yet."""
    folder = scratch("weights")
    os.mkdir(folder)
    path = os.path.join(folder, "model-00001.safetensors")
    fill(path)
    document = read_ledger("--files", folder)
    found = document["files"][0]
    equal((found["path"], found["cached"], found["size"], found["checkpoint"], found["pid"]), (path, LOAD, LOAD, True, None), "the file")
    with open(path, "rb") as f:
        os.fsync(f.fileno())
        equal(ledger("--files", path)["files"][0]["dirty"], 0, "dirty after fsync()")
        os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        check(not [x for x in ledger("--files", path)["files"] if x["path"] == path], "a file without pages in memory is listed")


def test_folder_with_many_files():
    """A folder with more files, or deeper, than a look reads is not said to be read whole."""
    many, deep = scratch("many"), scratch("deep")
    os.mkdir(many)
    for i in range(4100):
        with open(os.path.join(many, str(i)), "wb"):
            pass
    os.makedirs(os.path.join(deep, "1/2/3/4/5"))
    for path in (many, deep):
        check("too many" in "".join(ledger("--files", path)["missing"]), "a part of %s is missing", path)


def test_files_of_processes():
    """Open and mapped files, also deleted ones, with the PID. They are weights, which come before the libraries of other tests."""
    opened, mapped = scratch("opened.safetensors"), scratch("mapped.safetensors")
    fill(opened)
    fill(mapped)
    code = ("import mmap, os, sys\nf = open(sys.argv[1], 'rb'); os.unlink(sys.argv[1])\nwith open(sys.argv[2], 'rb') as g:\n"
            " m = mmap.mmap(g.fileno(), 0, prot=mmap.PROT_READ)\nprint('ready', flush=True); sys.stdin.read()")
    job = spawn([sys.executable, "-c", code, opened, mapped])
    job.wait_line("ready")
    document = read_ledger()
    found = {x["path"]: x for x in document["files"]}
    for path, deleted in ((opened, True), (mapped, False)):
        check(path in found, "%s is not in %s", path, found)
        equal((found[path]["pid"], found[path]["cached"], found[path]["deleted"]), (job.pid, LOAD, deleted), path)
    job.stop()


def test_tmpfs():
    with tempfile.NamedTemporaryFile(dir="/dev/shm") as f:
        fill(f.name)
        document = read_ledger()
        check(line(document, "shared_memory")["parts"]["tmpfs"] >= LOAD, "tmpfs: %s", line(document, "shared_memory"))
        check(next(x for x in document["tmpfs"] if x["path"] == "/dev/shm")["used"] >= LOAD, "mounts: %s", document["tmpfs"])
        found = next(x for x in document["shared_files"] if x["path"] == f.name)
        equal((found["cached"], found["pid"]), (LOAD, os.getpid()), "the file in /dev/shm")


def test_mount_with_a_space():
    """The kernel writes spaces of mount points as \\040."""
    folder = scratch("a disk")
    os.mkdir(folder)
    inside = 'mount -t tmpfs -o size=256m none "$0" && head -c %d /dev/zero >"$0/file" && exec "$@"' % LOAD
    mounts = ledger(prefix=("unshare", "--mount", "sh", "-c", inside, folder))["tmpfs"]
    equal([x["used"] for x in mounts if x["path"] == folder], [LOAD], "mounts")


def test_slab():
    """It grows with the number of files. Other tests may remove theirs meanwhile: then once more."""
    def grown():
        folder = scratch("names")
        before = read_ledger()
        os.mkdir(folder)
        for i in range(60000):
            os.close(os.open(os.path.join(folder, "%d" % i), os.O_CREAT | os.O_WRONLY, 0o600))
        after = read_ledger()
        shutil.rmtree(folder)
        return line(after, "slab")["bytes"] - line(before, "slab")["bytes"]

    harness.until(lambda: grown() > 20 * MIB, "a slab that grows by 20 MiB for 60,000 files")


def test_huge_pages():
    if os.geteuid():
        raise Skip("needs root")
    with open(HUGE, encoding="ascii") as f:
        old = f.read()
    try:
        with open(HUGE, "w", encoding="ascii") as f:
            f.write("%d" % (int(old) + 32))
        with open(HUGE, encoding="ascii") as f:
            got = int(f.read())
        if got < int(old) + 32:
            raise Skip("this machine has no 32 free huge pages")
        size = meminfo()["Hugepagesize"]
        with mmap.mmap(-1, 8 * size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x40000) as used:  # MAP_HUGETLB
            used[0] = 1
            parts = line(read_ledger(), "huge_pages")["parts"]
            check(parts["used"] >= size and parts["reserved"] >= 7 * size and parts["free"] >= 16 * size, "huge pages: %s", parts)
    finally:
        with open(HUGE, "w", encoding="ascii") as f:
            f.write(old)


def test_processes():
    job = spawn([sys.executable, "-c", "import sys\nheld = b'x' * (1200 << 20)\nprint('ready', flush=True); sys.stdin.read()"])
    job.wait_line("ready")
    document = read_ledger()
    found = next(x for x in document["processes"] if x["pid"] == job.pid)
    check(found["private"] > 1200 * MIB and found["command"].startswith(os.path.basename(sys.executable)), "the process: %s", found)
    job.stop()


def test_as_nobody():
    """A user sees the whole ledger, and which files are missing."""
    code, out, err = test_errors.as_nobody("ps", "--machine", "--json")
    equal(code, 0, "ps --machine as nobody: %s" % err)
    document = json.loads(out)
    check_sums(document)
    check(document["processes"], "no processes")
    check([x for x in document["missing"] if "not permitted; run it with sudo" in x], "missing: %s", document["missing"])


def test_root_of_a_container():
    """It lists the descriptors of processes, and may not read them: sudo would not help."""
    with open("/proc/self/status", encoding="ascii") as f:
        own = next(int(line.split()[1], 16) for line in f if line.startswith("CapEff:"))
    if harness.IS_ROOT and not own >> 19 & 1:
        raise Skip("this is such a container, and all of its processes may be searched")
    missing = ledger(prefix=("setpriv", "--bounding-set=-sys_ptrace", "--inh-caps=-sys_ptrace"))["missing"]
    check([x for x in missing if "not permitted; run it on the host" in x], "missing: %s", missing)


def test_text():
    for columns in (40, 60, 80, 120, 200):
        code, out, err = tool("ps", "--machine", root=True, env={**os.environ, "COLUMNS": str(columns)})
        equal(code, 0, "ps --machine: %s" % err)
        equal([x for x in out.splitlines() if len(x) > columns], [], "lines wider than %d columns" % columns)
        for word in ("memory of this machine", "processes", "page cache", "free", "all", "Processes with most private memory"):
            check(word in out, "%d columns, no %s: %s", columns, word, out)
    code, out, err = tool("ps", "--machine", "--watch", "--count", "2", "--interval", "100ms", "--json", root=True)
    equal(code, 0, "ps --machine --watch: %s" % err)
    for document in map(json.loads, out.splitlines()):
        check_sums(document)
    equal(len(out.splitlines()), 2, "ledgers")


def test_unified_memory():
    """A GPU without memory of its own: CUDA's figures from the helper, and why they are below MemAvailable."""
    dryrun = os.path.join(harness.OUT, "dryrun")
    if not os.path.exists(os.path.join(dryrun, "libcuda.so.1")):
        raise Skip("the dry run's libraries are not built")
    machine = scratch("gb10")
    with open(machine, "w", encoding="ascii") as f:
        f.write("no_memory\n")
    total = meminfo()["MemTotal"] * 9 // 10 >> 21 << 21
    env = {**os.environ, "LD_LIBRARY_PATH": dryrun, "MEMTRACE_DRYRUN_NVML": machine, "MEMTRACE_DRYRUN_DEVICES": "1", "MEMTRACE_DRYRUN_VRAM": "%d" % total,
           "MEMTRACE_DRYRUN_CONTEXT": "%d" % (total - (64 << 20))}
    unified = ledger(env=env)["unified"]
    check(len(unified) == 1 and unified[0]["total"] == total and unified[0]["free"] <= 64 << 20, "CUDA's figures: %s", unified)
    _, out, _ = tool("ps", "--machine", root=True, env={**env, "COLUMNS": "80"})
    check("CUDA on " in out and "less than the kernel could make available" in " ".join(out.split()), "text: %s", out)
    # A GPU with memory of its own is not asked: that would take a context.
    equal(ledger(env={k: v for k, v in env.items() if k != "MEMTRACE_DRYRUN_NVML"})["unified"], [], "unified memory of another GPU")


def recording(folder, *args, env=None):
    recorder = spawn([harness.TOOL, "watch", "--machine", "--every", "100ms", "-o", folder, *args], root=True, env=env)
    recorder.wait_line("watching")
    return recorder


def report(folder, *args):
    code, out, err = tool("report", *args, folder, root=True)
    equal(code, 0, "report of a machine: %s" % err)
    return json.loads(out) if args else out


def log(folder):
    with open(os.path.join(folder, "machine.log"), encoding="utf-8") as f:
        return f.read()


def looks(folder):
    try:
        return json.loads(tool("report", "--json", folder, root=True)[1])["looks"]
    except ValueError:
        return 0


def test_recorder_is_killed():
    """After kill -9, and a cut as after a power loss, the report says what grew, and another recorder goes on."""
    folder = scratch("machine")
    recorder = recording(folder)
    harness.until(lambda: looks(folder) > 3, "looks in the recording")
    check(report(folder, "--json")["running"], "the recorder is not seen")
    job = spawn([sys.executable, "-c", "import sys\nheld = b'x' * (1500 << 20)\nprint('ready', flush=True); sys.stdin.read()"])
    job.wait_line("ready")
    now = looks(folder)
    harness.until(lambda: looks(folder) > now + 3 and '[%d,' % job.pid in log(folder), "looks after the growth, and the process in them")
    os.kill(recorder.pid, signal.SIGKILL)
    recorder.wait()
    job.stop()
    path = os.path.join(folder, "machine.log")
    os.truncate(path, os.path.getsize(path) - 7)
    document = report(folder, "--json")
    equal((document["running"], document["damaged"], len(document["breaks"])), (False, 1, 1), "the recording")
    gap = document["breaks"][0]
    equal((gap["next"], gap["restarted"]), (None, False), "the break")
    # Not the sum of all processes: those of other tests may shrink meanwhile.
    grown = [x["after"] - (x["before"] or 0) for x in gap["changes"] if x["kind"] == "process"]
    check(max(grown, default=0) > 1000 * MIB, "growth of a process: %s", gap["changes"])
    out = report(folder)
    check("breaks off at" in out and "the recorder was killed, or the machine was reset" in out and "processes" in out, "text: %s", out)
    recorder = recording(folder)
    harness.until(lambda: looks(folder) > document["looks"] + 2, "looks of the next recorder")
    code, _, err = tool("watch", "--machine", "-o", folder, root=True)
    check(code == 1 and "another watch --machine writes there" in err, "a second recorder: %d %s", code, err)
    harness.finish(recorder)
    check(not report(folder, "--json")["running"], "it was stopped")


def test_end_is_no_break():
    folder = scratch("machine-end")
    recorder = recording(folder)
    harness.until(lambda: looks(folder) >= 5, "looks in the recording")
    harness.finish(recorder)
    document = report(folder, "--json")
    equal((document["breaks"], document["damaged"], document["starts"]), ([], 0, 1), "the recording")
    check("before its end" in report(folder), "%s", document)


def test_short_list():
    """A list that is short because a process in it has ended does not make the others' memory growth."""
    folder = scratch("machine-short")
    os.mkdir(folder)
    base = {"every": 10**9, "boot": "b", "total": 16 << 30, "available": 8 << 30, "large": 0, "swap": 0, "lines": {}, "gpus": []}
    for every, before in (({}, None), ({"all": True}, 0)):
        with open(os.path.join(folder, "machine.log"), "w", encoding="ascii") as f:
            for second, top in ((1, [[10, "a", 900 * MIB]]), (2, [[10, "a", 900 * MIB], [11, "b", 800 * MIB]])):
                f.write(json.dumps({**base, **every, "time": second * 10**9, "uptime": second * 10**9, "top": top}) + "\n")
        changes = {x["name"]: x["before"] for x in report(folder, "--json")["breaks"][0]["changes"]}
        equal(changes, {"PID 10 a": 900 * MIB, "PID 11 b": before}, "a process that only the second list has")
        equal("PID 11" in report(folder), before is not None, "the table has what grew")


def test_disk_is_full_for_a_while():
    """Looks that could not be written are counted, and the recorder fails."""
    folder = scratch("machine-full")
    recorder = spawn(["sh", "-c", 'trap "" XFSZ; exec "$@"', "sh", harness.TOOL, "watch", "--machine", "--every", "100ms", "-o", folder], root=True)
    harness.until(lambda: looks(folder) > 1, "looks in the recording")
    limits = resource.prlimit(recorder.pid, resource.RLIMIT_FSIZE, (1, resource.RLIM_INFINITY))
    recorder.wait_line("looks are missing from here on", stream="err")
    resource.prlimit(recorder.pid, resource.RLIMIT_FSIZE, limits)
    now = looks(folder)
    harness.until(lambda: looks(folder) > now + 1, "looks after the failure")
    recorder.signal(signal.SIGINT)
    equal(recorder.wait(), 1, "exit code")
    check("could not be written" in recorder.stderr(), "the end: %s", recorder.stderr())


def test_rules():
    """Rules about the machine fire once and run --exec; figures of processes are refused, and these figures elsewhere."""
    marks, folder = scratch("marks"), scratch("machine-rules")
    watch = recording(folder, "--rule", "machine_free<100% and machine_available>1M", "--rule", "machine_cache>99%", "--exec",
                      "echo $MEMTRACE_EVENT $MEMTRACE_RULE >>" + marks, "--format", "json")
    watch.wait_line('"fired"')
    now = looks(folder)
    harness.until(lambda: os.path.exists(marks) and os.path.getsize(marks) and looks(folder) > now + 3, "what --exec writes, and looks after it")
    harness.finish(watch)
    events = [json.loads(x) for x in watch.stdout().splitlines()]
    equal([(x["event"], x.get("rule")) for x in events], [("watching", None), ("fired", "machine_free<100% and machine_available>1M")], "events")
    with open(marks, encoding="ascii") as f:
        equal(f.read(), "fired machine_free<100% and machine_available>1M\n", "--exec")
    for args, text in ((("watch", "--machine", "--rule", "rss>1G"), "rss is a figure of a process"), (("watch", "--all", "--rule", "machine_free<1G"), "is for watch --machine"),
                       (("watch", "--machine"), "--machine needs a folder"), (("watch", "--machine", "--all", "-o", "x"), "--machine watches no process")):
        code, out, err = tool(*args, root=True)
        check(code == 64 and text in err, "%s: %d %s", args, code, err)


def judged(name, rule, expected, env=None):
    """Watches with a rule until standard output or the recording has the expected text, and for three more looks. Returns the exit
    code, the events and the messages."""
    folder = scratch("machine-" + name)
    watch = recording(folder, "--exec", "echo $MEMTRACE_EVENT >>" + scratch("unknown"), "--format", "json", "--rule", rule, env=env)
    harness.until(lambda: expected in watch.stdout() + log(folder), "%s in the events or the recording" % expected)
    now = looks(folder)
    harness.until(lambda: looks(folder) > now + 3, "looks after it")
    return harness.interrupt(watch), [json.loads(x) for x in watch.stdout().splitlines()][1:], watch.stderr()


def test_rules_that_cannot_be_judged():
    """A rule about GPUs fails if the driver's library is missing, unless another figure decides. With the library, it is judged."""
    code, events, err = judged("without", "free<1%", '"unknown"')
    equal([(x["event"], x["rule"]) for x in events], [("unknown", "free<1%")], "events, once")
    check(re.search("^rule 'free<1%' cannot be judged: free is not known: .*libnvidia-ml", events[0]["text"]), "text: %s", events)
    check(code == 1 and "--rule 'free<1%' was never judged: free is not known" in err, "exit code %d: %s", code, err)
    check(not os.path.exists(scratch("unknown")), "--exec ran for what is not known")
    code, events, err = judged("either", "free<1% or machine_free<100%", '"fired"')
    equal((code, [x["event"] for x in events]), (0, ["fired"]), "a rule that the machine decides: %s" % err)
    dryrun = os.path.join(harness.OUT, "dryrun")
    if not os.path.exists(os.path.join(dryrun, "libnvidia-ml.so.1")):
        raise Skip("the dry run's libraries are not built")
    for name, lines, wait_for, expected in (("driver", "", '"gpus":[[', (0, [])), ("mig", "mig 0 1\n", '"gpu:0"', (1, [("unknown", "gpu:0")]))):
        with open(scratch(name), "w", encoding="ascii") as f:
            f.write(lines)
        code, events, err = judged(name, "free<1%", wait_for, {**os.environ, "LD_LIBRARY_PATH": dryrun, "MEMTRACE_DRYRUN_NVML": scratch(name)})
        equal((code, [(x["event"], x["device"]) for x in events]), expected, "with a driver: %s" % err)


def test_usage():
    code, _, err = tool("ps", "--files", "/")
    check(code == 64 and "--files is for --machine" in err, "%d %s", code, err)


if __name__ == "__main__":
    run(globals())

#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
Runs the built program on other kernels under emulation, and on this one: golden results must be equal (golden.py). Each kernel runs
twice: normally, and with the programs filtering by process (MEMTRACE_BENCH=filter), which 6.6 to 6.9 need.

    tests/kernels/run.py [KERNEL ...]     image files; default: those of tools/deps.sh kernels, and the running kernel
    tests/kernels/run.py --arm64 [KERNEL ...]     the same for aarch64, without the running kernel: tools/deps.sh kernels-arm64
    tests/kernels/run.py --arm64 --quick KERNEL   counts, lines and stacks of one capture and of backward, once: about a minute
    tests/kernels/run.py --torch KERNEL ...       records PyTorch on aarch64: tools/deps.sh torch-arm64
    tests/kernels/run.py --many [KERNEL]     hosts with many CPUs: kernel memory, idle CPU time, storms, and the golden job (many.py)

    tests/kernels/run.py --stall MIB [KERNEL ...]    the longest time in which a reading keeps a process of MIB from changing its mappings

    tests/kernels/run.py [--arm64] --consoles LOG ...     the table of consoles of earlier runs

With MATRIX=1 in the environment the results go to tests/data/matrix/kernels.json, too.

KERNEL_ARGS in the environment is added to the kernels' command line: KERNEL_ARGS=lockdown=confidentiality. A kernel may refuse the
programs only then.

Each machine is qemu without acceleration, with a file system in memory: an interpreter, the program and their dependencies. On
aarch64 they are those of tools/deps.sh arm64, and the program is that of make ARCH=aarch64.
Consoles are in .output/kernels/. Prints a table; 1: a kernel's result is wrong.
"""
import datetime
import gzip
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import time

HERE = os.path.dirname(os.path.abspath(__file__))
REPO = os.path.dirname(os.path.dirname(HERE))
SECONDS = 900
MANY = ((2, 2), (2, 192), (64, 64))  # CPUs and possible CPUs of run_many()
MEMORY = {"one": 24, "group": 32}  # MiB, at most
LEFT_OUT = {"test", "tests", "idlelib", "tkinter", "ensurepip", "site-packages", "dist-packages", "lib2to3", "pydoc_data", "turtledemo", "config-3.11-x86_64-linux-gnu", "config-3.11-aarch64-linux-gnu"}


class Machine:
    """What emulated machines have of this one: its interpreter and its libraries."""
    out = os.path.join(REPO, os.environ.get("OUTPUT", ".output"))
    root = ""  # folder in front of the paths of files
    python = os.path.realpath(sys.executable)
    stdlib = {sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")}
    compiler = ["gcc"]
    list_libraries = ["ldd"]
    images = "kernel-images"
    qemu = ["qemu-system-x86_64", "-accel", "tcg", "-cpu", "max"]
    console = "ttyS0"
    memory = 2048  # MiB
    arch = "x86_64"
    prepared_by = "tools/deps.sh kernels"

    def __init__(self):
        self.tool = os.path.join(self.out, "memtrace-bpf")
        self.dir = os.path.join(self.out, "kernels")

    def libraries(self, path):
        done = subprocess.run([*self.list_libraries, path], capture_output=True, text=True, check=False)
        return [found.removeprefix(self.root) for found in re.findall(r"(/\S+) \(0x", done.stdout)]


class Arm64(Machine):
    out = os.path.join(REPO, os.environ.get("OUTPUT", ".output-aarch64"))
    images = "kernel-images-arm64"
    # QEMU's other algorithm for signed pointers makes the kernel nearly three times as slow.
    qemu = ["qemu-system-aarch64", "-M", "virt", "-cpu", "max,pauth-impdef=on"]
    console = "ttyAMA0"
    arch = "aarch64"
    prepared_by = "tools/deps.sh kernels-arm64"

    def __init__(self):
        self.root = deps("arm64-root")[0]
        self.python = os.path.realpath(self.root + "/usr/bin/python3")
        self.stdlib = {os.path.join(self.root, "usr/lib", os.path.basename(self.python))}
        self.compiler = ["aarch64-linux-gnu-gcc", "--sysroot=" + self.root]
        self.list_libraries = ["qemu-aarch64-static", "-L", self.root, self.root + "/lib/ld-linux-aarch64.so.1", "--list"]
        super().__init__()


def deps(what):
    return subprocess.run([os.path.join(REPO, "tools", "deps.sh"), what], capture_output=True, text=True, check=True).stdout.split()


class Cpio:
    """An initramfs archive ("newc")."""

    def __init__(self, out):
        self.out = out
        self.n = 0
        self.known = set()

    def entry(self, name, mode, data=b""):
        name = name.lstrip("/")
        if not name or name in self.known:
            return
        self.known.add(name)
        if os.path.dirname(name):
            self.entry(os.path.dirname(name), 0o040755)
        self.n += 1
        fields = (self.n, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name) + 1, 0)
        head = b"070701" + b"".join(b"%08x" % f for f in fields) + name.encode() + b"\0"
        self.out.write(head + b"\0" * (-len(head) % 4) + data + b"\0" * (-len(data) % 4))

    def file(self, path, name=None):
        """Adds a file under the path `name`, resolving links."""
        with open(path, "rb") as f:
            self.entry(name or path, 0o100755 if os.access(path, os.X_OK) else 0o100644, f.read())

    def close(self):
        self.entry("TRAILER!!!", 0)


def put_python(cpio, machine):
    """Adds the interpreter at its path."""
    def put(path):
        cpio.file(path, path[len(machine.root):])

    def put_libraries(path):
        for needed in machine.libraries(path):
            cpio.file(machine.root + needed, needed)

    put(machine.python)
    put_libraries(machine.python)
    for top in machine.stdlib:
        for folder, folders, files in os.walk(top):
            folders[:] = [d for d in folders if d not in LEFT_OUT]
            for name in files:
                path = os.path.join(folder, name)
                if not os.path.exists(path):
                    continue  # a link out of the folder
                put(path)
                if name.endswith(".so"):
                    put_libraries(path)
    return machine.python[len(machine.root):]


def put_tree(cpio, top, name, left_out=()):
    for folder, folders, files in os.walk(top):
        inside = os.path.relpath(folder, top)
        folders[:] = [d for d in folders if os.path.normpath(os.path.join(inside, d)) not in left_out]
        for file in files:
            cpio.file(os.path.join(folder, file), os.path.normpath(os.path.join(name, inside, file)))


def put_init(cpio, name, python):
    with open(os.path.join(HERE, name), "rb") as f:
        cpio.entry("init", 0o100755, b"#!" + python.encode() + b"\n" + f.read())


def put_tool(cpio, machine):
    cpio.file(machine.tool, "/memtrace-bpf")
    for needed in machine.libraries(machine.tool):
        cpio.file(machine.root + needed, needed)


def make_torch_image(path, machine):
    """PyTorch and what exact.py needs. Not compressed: the emulated machine would take a minute to unpack it."""
    torch = deps("arm64-torch")[0]
    with open(path, "wb") as f:
        cpio = Cpio(f)
        for name in ("dev", "proc", "sys", "tmp"):
            cpio.entry(name, 0o040755)
        python = put_python(cpio, machine)
        put_tool(cpio, machine)
        put_tree(cpio, torch, "/torch", {"torch/include", "bin"})
        for name in ("libgcc_s.so.1", "libstdc++.so.6", "librt.so.1", "libdl.so.2", "libpthread.so.0"):
            cpio.file(machine.root + "/lib/aarch64-linux-gnu/" + name, "/lib/aarch64-linux-gnu/" + name)
        cpio.file(os.path.join(REPO, "tests", "e2e", "exact_rows.py"), "/kernels/exact_rows.py")
        cpio.file(os.path.join(REPO, "tests", "workloads", "exact.py"), "/kernels/exact.py")
        put_init(cpio, "init_torch.py", python)
        cpio.close()


def put_storm(cpio, machine):
    """tests/programs/storm.cc, its hooks, and many.py."""
    for name, source, options in (("storm", "storm.cc", ()), ("hooks/libc10.so", "hooks.cc", ("-shared", "-fPIC", "-fvisibility=hidden"))):
        path = os.path.join(machine.dir, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        subprocess.run(["c++", "-std=c++17", "-O2", *options, "-o", path, os.path.join(REPO, "tests", "programs", source), "-ldl", "-lpthread"], check=True)
        cpio.file(path, "/" + name)
        for needed in machine.libraries(path):
            cpio.file(needed)
    cpio.file(os.path.join(HERE, "many.py"), "/kernels/many.py")


def put_stall(cpio, machine):
    """tests/programs/map_stall.c, and stall.py."""
    path = os.path.join(machine.dir, "map_stall")
    subprocess.run([*machine.compiler, "-O2", "-o", path, os.path.join(REPO, "tests", "programs", "map_stall.c"), "-lpthread"], check=True)
    cpio.file(path, "/map_stall")
    for needed in machine.libraries(path):
        cpio.file(machine.root + needed, needed)
    cpio.file(os.path.join(HERE, "stall.py"), "/kernels/stall.py")


def make_image(path, library, machine, many=False):
    with gzip.open(path, "wb", compresslevel=1) as f:
        cpio = Cpio(f)
        for name in ("dev", "proc", "sys", "tmp"):
            cpio.entry(name, 0o040755)
        python = put_python(cpio, machine)
        put_tool(cpio, machine)
        cpio.file(library, "/libc10.so")
        for name in ("golden.py", "killed.py", "target.py"):
            cpio.file(os.path.join(HERE, name), "/kernels/" + name)
        cpio.file(os.path.join(REPO, "tests", "e2e", "code_bytes.py"), "/e2e/code_bytes.py")
        put_stall(cpio, machine)
        if many:
            put_storm(cpio, machine)
        put_init(cpio, "init.py", python)
        cpio.close()


def boot(kernel, image, log, machine, more="", cpus=2):
    command = [*machine.qemu, "-smp", str(cpus), "-m", str(machine.memory), "-nographic", "-no-reboot", "-kernel", kernel, "-initrd", image,
               "-append", "console=" + machine.console + " panic=-1 quiet loglevel=3 " + os.environ.get("KERNEL_ARGS", "") + more]
    with open(log, "wb") as f:
        try:
            subprocess.run(command, stdin=subprocess.DEVNULL, stdout=f, stderr=subprocess.STDOUT, timeout=SECONDS, check=False)
        except subprocess.TimeoutExpired:
            f.write(b"\nnot through after %d s\n" % SECONDS)


def here(library, log, machine):
    with open(log, "wb") as f:
        f.write(b"KERNEL %s\n" % os.uname().release.encode())
        f.write(subprocess.run([machine.tool, "check"], capture_output=True, check=False).stdout)
        for bench in ("", "filter"):
            f.write(b"WAY %s\n" % ("the programs'" if bench else "the kernel's").encode())
            f.flush()
            subprocess.run([sys.executable, os.path.join(HERE, "golden.py"), machine.tool, library, machine.dir], stdin=subprocess.DEVNULL, stdout=f, stderr=subprocess.STDOUT,
                           timeout=SECONDS, check=False, env={**os.environ, "MEMTRACE_BENCH": bench})


NO_LINES = "lines of host memory"


def lacks(text):
    """The features that `check` does not find in this kernel."""
    found = re.search(r"BPF features +not in this kernel: (.*?)\. ", text)
    host = [NO_LINES] if re.search(r"^ ?HOST no lines", text, re.M) else []
    return ", ".join(([found[1]] if found else []) + re.findall(r"^- +(uprobe\.\w+) +not in this kernel", text, re.M) + host) or "nothing"


def read(log):
    """Kernel release, what it lacks; for each run its name, the refusal, the result, what an event costs."""
    with open(log, encoding="utf-8", errors="replace") as f:
        text = f.read()
    release = re.search(r"KERNEL (\S+)", text)
    ways = []
    for part in re.split(r"^ ?WAY ", text, flags=re.M)[1:]:
        refused = re.search(r"^ ?REFUSED (.*)", part, re.M)
        result = re.search(r"^ ?RESULT (\{.*\})", part, re.M)
        cost = re.search(r"^ ?COST (\d+)", part, re.M)
        ways.append((part.split("\n")[0].strip(), refused[1] if refused else None, json.loads(result[1]) if result else None, cost[1] if cost else "?"))
    if re.search(r"^ ?ENDINGS begin", text, re.M) and not re.search(r"^ ?ENDINGS right", text, re.M):
        ways = []  # killed.py failed
    return (release[1] if release else "?"), lacks(text), ways or [("?", None, None, "?")]


def note(machine, log, emulated, release, multi, way, said, right):
    """A cell of docs/reference/SUPPORT.md."""
    sys.path.insert(0, os.path.join(REPO, "tools", "dev"))
    import matrix  # noqa: PLC0415
    result = "passed" if said == "the same" else said if right else "failed: " + said
    matrix.add("kernels", {"kernel": release if emulated else matrix.running_kernel(), "arch": machine.arch, "how": "emulated" if emulated else "as it is", "multi": multi,
                           "filter": way, "args": os.environ.get("KERNEL_ARGS", "") if emulated else "", "result": result,
                           "date": datetime.date.fromtimestamp(os.path.getmtime(log)).isoformat()})


def judge(golden, refused, result, quick, lacking):
    """The result in words, and whether it is right. quick: the run has a part of the golden results."""
    if refused:
        return "refused: " + refused, "KERNEL_ARGS" in os.environ
    if result is None:
        return "FAILED", False
    if NO_LINES in lacking and result.pop("bytes of maps", None) == []:
        golden = {k: v for k, v in golden.items() if k != "bytes of maps"}
    other = ["%s: %s, not %s" % (k, result.get(k), golden[k]) for k in (result if quick else golden) if result.get(k) != golden.get(k)]
    return ("DIFFERS: " + ", ".join(other), False) if other else ("the same", True)


def run_torch(kernels):
    machine = Arm64()
    machine.memory = 4096
    os.makedirs(machine.dir, exist_ok=True)
    image = os.path.join(machine.dir, "torch.cpio")
    make_torch_image(image, machine)
    status = 0
    print("| kernel | PyTorch | rows | result | seconds |\n|---|---|---|---|---|")
    for kernel in kernels:
        log = os.path.join(machine.dir, "torch-" + os.path.basename(kernel) + ".log")
        begin = time.monotonic()
        boot(kernel, image, log, machine)
        release, _, ways = read(log)
        result = ways[0][2] or {}
        right = result.get("wrong") == []
        status |= not right
        said = "every line, module and byte" if right else "; ".join(result.get("wrong", ["FAILED"])) + ", see " + os.path.relpath(log, REPO)
        print("| %s | %s | %s | %s | %.0f |" % (release, result.get("torch"), result.get("rows"), said, time.monotonic() - begin), flush=True)
    os.unlink(image)
    sys.exit(status)


def mib(n):
    return "%.1f" % (n / (1 << 20))


def run_many(kernels):
    """Kernel memory is of the recorder's control group: all that the kernel keeps for its processes."""
    machine = Machine()
    machine.memory = 4096
    _, image = prepare(machine, many=True)
    golden = json.load(open(os.path.join(HERE, "golden.json"), encoding="utf-8"))
    status, storms = 0, []
    print("| kernel | CPUs | possible | kernel memory, MiB: one process | after a storm | a group | after a storm | idle, % of a core: one process | a group | golden job | seconds |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|---|---:|")
    for cpus, possible in MANY:
        log = os.path.join(machine.dir, "many-%d-%d.log" % (cpus, possible))
        begin = time.monotonic()
        boot(kernels[0], image, log, machine, " golden=quick maxcpus=%d" % cpus, possible)
        release, _, ways = read(log)
        with open(log, encoding="utf-8", errors="replace") as f:
            found = re.search(r"^ ?MANY (\{.*\})", f.read(), re.M)
        result = json.loads(found[1]) if found else None
        said, right = judge(golden, *ways[0][1:3], True, "")
        if not result:
            print("| %s | %d | %d | FAILED, see %s |" % (release, cpus, possible, os.path.relpath(log, REPO)), flush=True)
            status = 1
            continue
        one, group = result["one"], result["group"]
        counted = [r for r in result["storms"] if r["hits"] != r["calls"] or r["lost"]]
        over = [k for k, limit in MEMORY.items() if result[k]["kernel"] > limit << 20]
        status |= not right or bool(counted) or bool(over) or result["possible"] != "0-%d" % (possible - 1)
        print("| %s | %d | %s | %s | %s | %s | %s | %.2f | %.2f | %s | %.0f |" % (
            release, result["cpus"], result["possible"], mib(one["kernel"]), mib(one["kernel_after_storm"]), mib(group["kernel"]),
            mib(group["kernel_after_storm"]), 100 * one["idle_share"], 100 * group["idle_share"], said, time.monotonic() - begin), flush=True)
        storms += [(result["cpus"], row) for row in result["storms"]]
    print("\n| CPUs | threads | calls of hooks | recorded | lost | an event, ns |\n|---:|---:|---:|---:|---:|---:|")
    for cpus, row in storms:
        print("| %d | %d | %d | %d | %d | %d |" % (cpus, row["threads"], row["calls"], row["hits"], row["lost"], row["event_ns"]))
    sys.exit(status)


def stall_of(log):
    """What stall.py found; None: nothing."""
    with open(log, encoding="utf-8", errors="replace") as f:
        found = re.search(r"^ ?STALL (\{.*\})", f.read(), re.M)
    return json.loads(found[1]) if found else None


LOADS = ("without", "busy", "with")  # stall.py's
TIMES = 5  # the longest call during readings, of the longest without; with smaps it is 10 to 15 times as long


def run_stall(mib, kernels):
    """The emulator is slow, and other work of this machine shows: the two figures compare with each other."""
    machine = Machine()
    machine.memory = int(mib) + 2048
    _, image = prepare(machine)
    status = 0
    print("| kernel | one mapping, MiB | longest call, ms: no reading | another process computes | readings | above 2 ms: no reading | another process computes | readings | a reading, s |\n|---|---:|---:|---:|---:|---:|---:|---:|---:|")
    for kernel in kernels or [k for k in deps(machine.images) if "-5.10." in k or "-6.1." in k]:
        log = os.path.join(machine.dir, "stall-" + os.path.basename(kernel) + ".log")
        boot(kernel, image, log, machine, " only-stall stall=" + mib)
        release, found = read(log)[0], stall_of(log)
        status |= not found or found["with"]["worst"] > TIMES * max(found["without"]["worst"], found["busy"]["worst"])
        print("| %s | %s | %s |" % (release, mib, "FAILED, see " + log if not found else " | ".join(
            ["%.1f" % (found[k]["worst"] / 1000) for k in LOADS] + ["%d of %d" % (found[k]["above"], found[k]["rounds"]) for k in LOADS] + ["%.1f" % found["seconds"]])), flush=True)
    sys.exit(status)


def prepare(machine, many=False):
    """What each kernel gets: the library with the hooks, and the file system."""
    if not shutil.which(machine.qemu[0]):
        sys.exit("%s is not here: run %s" % (machine.qemu[0], machine.prepared_by))
    os.makedirs(machine.dir, exist_ok=True)
    library = os.path.join(machine.dir, "libc10.so")
    subprocess.run([*machine.compiler, "-O2", "-shared", "-fPIC", "-o", library, os.path.join(HERE, "c10.c")], check=True)
    image = os.path.join(machine.dir, "image.gz")
    make_image(image, library, machine, many)
    return library, image


def main():
    kernels = sys.argv[1:]
    if kernels[:1] == ["--torch"]:
        run_torch(kernels[1:])
    if kernels[:1] == ["--many"]:
        run_many(kernels[1:] or [k for k in deps("kernel-images") if "/linux-image-6.12-" in k])
    if kernels[:1] == ["--stall"]:
        run_stall(kernels[1], kernels[2:])
    arm64 = kernels[:1] == ["--arm64"]
    machine = Arm64() if arm64 else Machine()
    kernels = kernels[arm64:]
    quick = kernels[:1] == ["--quick"]
    kernels = kernels[quick:]
    consoles = kernels[1:] if kernels[:1] == ["--consoles"] else []
    image = library = None
    if not consoles:
        kernels = kernels or deps(machine.images)
        library, image = prepare(machine)
        kernels = kernels if arm64 else ["", *kernels]
    golden = json.load(open(os.path.join(HERE, "golden.json"), encoding="utf-8"))
    status = 0
    print("| kernel | how | lacks | filter | result | an event, ns | seconds |\n|---|---|---|---|---|---|---|")
    for kernel in consoles or kernels:
        log = kernel if consoles else os.path.join(machine.dir, (os.path.basename(kernel) or "here") + ".log")
        begin = time.monotonic()
        if consoles:
            kernel = "" if os.path.basename(log) == "here.log" else log
        elif kernel:
            boot(kernel, image, log, machine, " golden=quick" if quick else "")
        else:
            here(library, log, machine)
        release, lacking, ways = read(log)
        seconds = "" if consoles else "%.0f" % (time.monotonic() - begin)
        for way, refused, result, cost in ways:
            said, right = judge(golden, refused, result, quick, lacking)
            if os.environ.get("MATRIX"):
                note(machine, log, bool(kernel), release, "no" if "uprobe.multi" in lacking else "yes", way, said, right)
            if not right:
                status = 1
                said += ", see " + os.path.relpath(log, REPO)
            print("| %s | %s | %s | %s | %s | %s | %s |" % (release, "emulated" if kernel else "this machine", lacking, way, said, cost, seconds), flush=True)
            seconds = ""
    sys.exit(status)


main()

#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
docs/reference/SUPPORT.md: which kernels, machines, C libraries, CPythons, PyTorchs and CUDAs were tested, with dates.

    tools/dev/matrix.py                   writes the page from tests/data/matrix/
    tools/dev/matrix.py --check           compares it; 1: it differs
    tools/dev/matrix.py interpreters      tests every CPython that is here: the golden job of tests/kernels
    tools/dev/matrix.py pytorch           tests every PyTorch that is here: a training job on the CPU, and one with dry-run CUDA
    tools/dev/matrix.py snapshots         compares PyTorch's snapshots with recordings, on every PyTorch that is here: tests/e2e/test_snapshot_table.py
    tools/dev/matrix.py night TARGET...   runs `make TARGET` for each and adds its result: make nightly
    tools/dev/matrix.py add TABLE CELL    adds a cell, a JSON object: {"suite": "trixie", ...}

The tests write what they saw into tests/data/matrix/TABLE.json, one cell a line; tests/kernels/run.py and tools/dev/distros.sh do so
when MATRIX=1 is in the environment. A cell that is tested again replaces the old one. `make matrix` runs the fast ones, `make
matrix-full` all.
"""
import datetime
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import textwrap
import time

REPO = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
DATA = os.path.join(REPO, "tests", "data", "matrix")
PAGE = os.path.join(REPO, "docs", "reference", "SUPPORT.md")
OUT = os.path.join(REPO, os.environ.get("OUTPUT", ".output"))
TOOL = os.path.join(OUT, "memtrace-bpf")
ROLES = ("main", "newest", "middle", "old", "oldest", "cu12")

# A table: the fields that name a cell, and its columns: heading and field. Each cell has also `result` ("passed", "equal", "refused: WHY" or
# "failed: WHAT") and `date`.
TABLES = {
    "kernels": (("arch", "kernel", "args", "filter"),
                (("kernel", "kernel"), ("machine", "arch"), ("arguments", "args"), ("how", "how"), ("uprobe.multi", "multi"), ("filter", "filter"))),
    "interpreters": (("python", "arch", "libc"), (("CPython", "python"), ("machine", "arch"), ("C library", "libc"), ("kernel", "kernel"))),
    "pytorch": (("torch", "python", "arch", "job"),
                (("PyTorch", "torch"), ("CPython", "python"), ("machine", "arch"), ("C library", "libc"), ("CUDA of the package", "cuda"), ("job", "job"))),
    "snapshots": (("torch", "allocator", "history", "written"),
                  (("PyTorch", "torch"), ("history", "history"), ("allocator", "allocator"), ("written by", "written"), ("jobs", "jobs"), ("lines", "lines"))),
    "python": (("torch", "python", "arch"),
               (("PyTorch", "torch"), ("CPython", "python"), ("machine", "arch"), ("C library", "libc"), ("CUDA of the package", "cuda"),
                ("names of tensors", "names"))),
    "systems": (("suite",), (("Debian", "suite"), ("C library", "libc"), ("gcc", "gcc"), ("clang", "clang"), ("libbpf", "libbpf"), ("CPython", "python"),
                             ("PyTorch of Debian", "torch"), ("BPF token", "token"))),
    "night": (("target",), (("target", "target"), ("what", "what"), ("counts", "counts"))),
}
TITLES = {
    "kernels": ("Kernels and machines", "make test-kernels",
                "The golden job of `tests/kernels`: 250 allocations by five threads, modules, autograd nodes, forks and killed recorders. Every count, line "
                "and stack must be the same on each kernel."),
    "interpreters": ("CPython", "make matrix", "The same job on each interpreter, without PyTorch."),
    "pytorch": ("PyTorch and CUDA", "make matrix",
                "A training job from its first allocation: no event lost, lines, modules and roles. Dry-run CUDA is PyTorch's own CUDA code and allocator "
                "over a CUDA that computes nothing. `make test` runs more on the same versions."),
    "snapshots": ("PyTorch's snapshots", "tools/dev/matrix.py snapshots",
                  "Jobs on the dry run that write a memory snapshot while they are recorded. The report of the snapshot has the same bytes as that of the "
                  "recording: allocated, reserved, their peaks, what was allocated in all, the numbers of allocations, frees and failed requests, and each "
                  "line at the peak and at the end. A history of the state and the list of memory_snapshot() have no trace, and PyTorch 2.1 keeps one entry with PyTorch 2.0's call: "
                  "their end is compared."),
    "python": ("CPython and PyTorch", "tools/dev/matrix_python.py", "Environments that are made for this: a recorded job's lines, and `dump`'s names."),
    "systems": ("Systems", "make distros",
                "The README's first command in a fresh chroot of each Debian suite, with compiler warnings as errors; then a job on the suite's own PyTorch, as "
                "root and as a user with a BPF token."),
    "night": ("Nightly targets", "make nightly", "Everything that `make test` does not run. A target installs what it needs, and runs by itself, too."),
}
# Refused with a message that names the reason. The test that shows it.
REFUSED = (
    ("gVisor, from inside and from the host", "test_guests.py"),
    ("virtual machines (Kata Containers, qemu, Firecracker), from the host", "test_guests.py"),
    ("kernels without BTF, without uprobes, without BPF", "test_guests.py"),
    ("user namespaces without a BPF token; libbpf before 1.4 in one", "test_token.py"),
    ("processes outside of the user namespace", "test_token.py"),
)


def load(table):
    path = os.path.join(DATA, table + ".json")
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as f:
        text = f.read()
    return json.loads(text) if text.startswith("[") else [json.loads(line) for line in text.splitlines()]


def number(text):
    """Sorts 3.9 before 3.10."""
    return [(0, int(p), "") if p.isdigit() else (1, 0, p) for p in text.replace("-", ".").replace("+", ".").split(".")]


def save(table, cells):
    os.makedirs(DATA, exist_ok=True)
    cells.sort(key=lambda c: [number(str(c.get(k, ""))) for k in TABLES[table][0]])
    with open(os.path.join(DATA, table + ".json"), "w", encoding="utf-8") as f:
        f.write("[\n" + ",\n".join(json.dumps(c, sort_keys=True) for c in cells) + "\n]\n")


def add(table, cell):
    """Adds a cell, of today if it has no date, in place of an older one with the same name."""
    name = [cell.get(k) for k in TABLES[table][0]]
    cells = [c for c in load(table) if [c.get(k) for k in TABLES[table][0]] != name]
    save(table, [*cells, {"date": datetime.date.today().isoformat(), **cell}])


def wrapped(text):
    return textwrap.wrap(text, 100, break_long_words=False, break_on_hyphens=False)


def page():
    text = ["# What was tested", "",
            *wrapped("This page is generated: `make matrix` runs the fast tests and writes it, `make matrix-full` runs all of them. A row was tested "
                     "as a whole, on the day it names. Rows say *refused* where memtrace-bpf does not work and says why."), ""]
    for table, (name, columns) in TABLES.items():
        cells = sorted(load(table), key=lambda c: [number(str(c.get(k, ""))) for k in name])
        if not cells:
            continue
        title, command, what = TITLES[table]
        columns = [c for c in columns if any(cell.get(c[1]) for cell in cells)]
        text += ["## " + title, "", *wrapped(what), "", "`%s`" % command, "",
                 "| " + " | ".join([c[0] for c in columns] + ["result", "date"]) + " |", "|---" * (len(columns) + 2) + "|"]
        for cell in cells:
            text.append("| " + " | ".join(str(cell.get(k) or "").replace("|", "\\|") for k in [c[1] for c in columns] + ["result", "date"]) + " |")
        text.append("")
    text += ["## Refused by name", "", "These cannot be traced. memtrace-bpf says so in one line, and what to do.", "", "| what | test |", "|---|---|"]
    text += ["| %s | `tests/e2e/%s` |" % row for row in REFUSED]
    text += ["", "## Not tested", "",
             *wrapped("A real GPU and its driver, distributions other than Debian, kernels before 5.10, s390x, ppc64 and RISC-V."), ""]
    return "\n".join(text)


# ---- the night ----------------------------------------------------------------------------------------------------

def night(targets):
    """Runs each target, with its output in a file. Returns how many failed."""
    bad, logs = 0, os.path.join(OUT, "test-logs")
    os.makedirs(logs, exist_ok=True)
    env = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")}
    what = dict(line.split(None, 1) for line in output("make", "-s", "-C", REPO, "help").splitlines())
    for target in targets:
        path, began = os.path.join(logs, "night-%s.log" % target.removeprefix("night-")), time.monotonic()
        with open(path, "w+", encoding="utf-8", errors="replace") as log:
            code = subprocess.run(["make", "-C", REPO, target], stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, check=False, env=env).returncode
            log.seek(0)
            counts = re.findall(r"^\d+ passed, \d+ failed.*", log.read(), re.M)
        result = "failed: exit code %d" % code if code else "passed"
        bad += code != 0
        print("%s: %s, %s%s (%d min, %s)" % (target, result, "".join(c + ", " for c in counts[-1:]), datetime.date.today(), (time.monotonic() - began) / 60, path), flush=True)
        add("night", {"target": target, "what": re.sub(r"[:(] ?(docs/|[^()]*\)$).*", "", what[target]).strip(), "counts": counts[-1] if counts else "", "result": result})
    return bad


# ---- what is here -------------------------------------------------------------------------------------------------

def output(*command, seconds=600):
    return subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=True).stdout.strip()


def running_kernel():
    """Its version, without what its builder added."""
    return re.match(r"[\d.]+", os.uname().release)[0]


def common():
    return {"arch": platform.machine(), "libc": " ".join(platform.libc_ver()), "kernel": running_kernel()}


def without_classes(value):
    """"Inner.forward:44" as "forward:44", in each text of a list."""
    return [re.sub(r"\w+\.(\w+:)", r"\1", v) if isinstance(v, str) else v for v in value] if isinstance(value, list) else value


def interpreters():
    """The golden job, by each interpreter; the target is that interpreter, too."""
    here = os.path.join(REPO, "tests", "kernels")
    with open(os.path.join(here, "golden.json"), encoding="utf-8") as f:
        golden = json.load(f)
    bad = 0
    with tempfile.TemporaryDirectory() as folder:
        library = os.path.join(folder, "libc10.so")
        subprocess.run(["gcc", "-O2", "-shared", "-fPIC", "-o", library, os.path.join(here, "c10.c")], check=True)
        for python in output(os.path.join(REPO, "tools", "deps.sh"), "pythons").split(":"):
            version = output(python, "-c", "import platform; print(platform.python_version())")
            done = subprocess.run([python, os.path.join(here, "golden.py"), TOOL, library, folder], capture_output=True, text=True, timeout=600, check=False,
                                  stdin=subprocess.DEVNULL)
            said = [t for t in done.stdout.split("\n") if t.startswith(("RESULT ", "REFUSED "))]
            word, _, rest = (said or ["RESULT {}"])[-1].partition(" ")
            got = json.loads(rest) if word == "RESULT" else {}
            short = tuple(int(n) for n in version.split(".")[:2]) < (3, 11)  # no qualified names of functions
            differ = [k for k in golden if got.get(k) != (without_classes(golden[k]) if short else golden[k])]
            result = "refused: " + rest if word == "REFUSED" else "passed" if not differ else "failed: " + ", ".join(differ)
            bad += result.startswith("failed")
            if result.startswith("failed"):
                print(done.stdout[-2000:], done.stderr[-2000:], file=sys.stderr)
            print("CPython %s: %s" % (version, result), flush=True)
            add("interpreters", {"python": version, **common(), "result": result})
    return bad


def judge(doc, device):
    """What a recording of the job lacks; "": nothing."""
    rows = [r for r in doc["rows"] if r.get("file") and r["file"].endswith("/model.py")]
    lacks = [what for what, there in (
        ("memory of %s" % device, any(d["device"] == device and d["allocs"] > 100 for d in doc["devices"])),
        ("lines", len(rows) > 3), ("modules", any((r.get("module") or "").startswith("blocks.") for r in rows)),
        ("roles", {"parameter", "optimizer_state"} <= {r.get("category") for r in doc["rows"]}),
        ("every event", not doc["capture"]["lost"])) if not there]
    return ", ".join(lacks)


def pytorch():
    bad = 0
    job = os.path.join(REPO, "tests", "workloads", "train_gpt.py")
    for role in ROLES:
        python = output(os.path.join(REPO, "tools", "deps.sh"), "python", role)
        version, torch, cuda = output(python, "-W", "ignore", "-c",
                                      "import platform, torch; print(platform.python_version(), torch.__version__, torch.version.cuda)").split()
        for name, device, options in (("CPU", "cpu", ()), ("dry-run CUDA", "cuda:0", ("--dry-run-cuda",))):
            with tempfile.TemporaryDirectory() as folder:
                path = os.path.join(folder, "x.mtr")
                done = subprocess.run([TOOL, "run", *options, "-o", path, "--", python, "-W", "ignore", job, "--steps", "4", "--pause", "0.5", "--device", device.split(":")[0]],
                                      capture_output=True, text=True, timeout=600, check=False, stdin=subprocess.DEVNULL)
                if done.returncode == 3:
                    result = "refused: " + done.stderr.strip().split("\n")[-1].removeprefix("memtrace-bpf: ")
                elif "is built for CUDA 11;" in done.stderr:
                    result = "refused: " + re.search(r"dry run: (.*)", done.stderr)[1]
                elif done.returncode:
                    result = "failed: exit code %d" % done.returncode
                    print(done.stderr[-3000:], file=sys.stderr)
                else:
                    doc = json.loads(output(TOOL, "report", "--format", "json", "--by", "line", path))
                    lacks = judge(doc, device)
                    result = "failed: no " + lacks if lacks else "passed"
            bad += result.startswith("failed")
            print("PyTorch %s, CPython %s, %s: %s" % (torch, version, name, result), flush=True)
            add("pytorch", {"python": version, "torch": torch, "cuda": "" if cuda == "None" else cuda, "job": name, **common(), "result": result})
    return bad


def main():
    what = sys.argv[1:] or ["write"]
    if what == ["--check"]:
        with open(PAGE, encoding="utf-8") as f:
            if f.read() != page():
                sys.exit("docs/reference/SUPPORT.md is not that of tests/data/matrix/: run tools/dev/matrix.py")
        return
    bad = 0
    if what[0] == "add" and len(what) == 3 and what[1] in TABLES:
        add(what[1], json.loads(what[2]))
    elif what == ["interpreters"]:
        bad = interpreters()
    elif what[0] == "night" and len(what) > 1:
        bad = night(what[1:])
    elif what == ["snapshots"]:
        bad = subprocess.run([sys.executable, os.path.join(REPO, "tests", "e2e", "test_snapshot_table.py")], check=False,
                             env={**os.environ, "MATRIX": "1"}).returncode
    elif what == ["pytorch"]:
        bad = pytorch()
    elif what != ["write"]:
        sys.exit(__doc__.strip())
    with open(PAGE, "w", encoding="utf-8") as f:
        f.write(page())
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()

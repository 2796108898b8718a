# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
The examples of README and guide. A fenced block of the language "console" has commands ("$ ...") and what they print:

* On saved recordings (tests/data/guide) the output is compared to the byte. tools/dev/guide.py writes it anew.
* Behind a comment <!-- live --> the commands run on one training job, whose PID stands for the example's, behind <!-- live service -->
  on a service without PyTorch, behind <!-- live gpu --> with a GPU that the workers of a killed server hold. Numbers differ each time: each line of the example must come, with other numbers, in this order.

A comment <!-- lines 1-4, 9, /Peak/+3 --> before a block says which lines of the output the example shows: by number, or so many from
the first match of an expression on. "..." stands for the others.
"""
import json
import os
import re
import shutil
import signal
import subprocess

import harness
from harness import OUT, REPO, TOOL, check

DATA = os.path.join(REPO, "tests", "data", "guide")
JOB = os.path.join(harness.WORKLOADS, "guide", "train.py")
SERVICE = os.path.join(harness.WORKLOADS, "guide", "service.py")
SERVER = os.path.join(harness.WORKLOADS, "guide", "serve.py")
COLUMNS = "100"
EXAMPLE_PID = "4242"
BLOCK = re.compile(r"((?:^<!-- (?:live(?: service| gpu)?|lines [^\n]+) -->\n)*)^```console\n(.*?)^```$", re.M | re.S)
PRELOAD = " ".join(os.path.join(OUT, "dryrun", n) for n in ("libcuda.so.1", "libnvidia-ml.so.1"))


def documents():
    guide = os.path.join(REPO, "docs", "guide")
    return [os.path.join(REPO, "README.md")] + sorted(os.path.join(guide, n) for n in os.listdir(guide) if n.endswith(".md"))


class Example:
    """A block: commands with the output that the document shows of each."""

    def __init__(self, path, match):
        self.path, self.match = path, match
        notes = match[1]
        self.live = "<!-- live" in notes
        self.service = "<!-- live service" in notes
        self.gpu = "<!-- live gpu" in notes
        found = re.search(r"lines ([^\n]+) -->", notes)
        self.lines = found[1] if found else ""
        self.steps = []
        for line in match[2].splitlines():
            if line.startswith("$ "):
                self.steps.append([line[2:], []])
            else:
                check(self.steps, "%s: a console block begins with '$ ': %s", path, line)
                self.steps[-1][1].append(line)

    def __str__(self):
        return "%s: %s" % (os.path.relpath(self.path, REPO), "; ".join(command for command, _ in self.steps))

    def chosen(self, output):
        """The lines of an output that the example shows."""
        lines = [line.rstrip() for line in output.splitlines()]
        if not self.lines:
            return lines
        shown, last = [], 0
        for part in self.lines.split(", "):
            if part.startswith("/"):
                pattern, _, count = part[1:].rpartition("/+")
                first = next((i for i, line in enumerate(lines, 1) if re.search(pattern, line)), len(lines) + 1)
                end = first + int(count) - 1
            else:
                first, _, end = part.partition("-")
            if int(first) > last + 1:
                shown.append("...")
            last = min(int(end or first), len(lines))
            shown += lines[int(first) - 1:last]
        return shown + ["..."] * (last < len(lines))


def examples(path):
    with open(path, encoding="utf-8") as f:
        return [Example(path, m) for m in BLOCK.finditer(f.read())]


def folder():
    """A folder to run examples in: the job and the recordings."""
    there = harness.scratch("guide")
    shutil.copytree(DATA, there, dirs_exist_ok=True)
    shutil.copy(JOB, there)
    shutil.copy(SERVICE, there)
    shutil.copy(SERVER, there)
    os.chmod(there, 0o777)
    return there


def start_job(cwd, *options, vram="8G"):
    """A training job on a CUDA device without a GPU, past its first steps."""
    job = harness.spawn([harness.python(), "train.py", *options], cwd=cwd, kept=True,
                        env=dict(os.environ, LD_PRELOAD=PRELOAD, MEMTRACE_DRYRUN_VRAM=vram, PYTHONUNBUFFERED="1"))
    job.wait_line("^step 10", 120)
    return job


def start_service(cwd):
    """A service that has handled its burst."""
    service = harness.spawn([harness.python(), "service.py"], cwd=cwd, kept=True)
    service.wait_line("^ready", 120)
    return service


def start_gpu(cwd, job):
    """A GPU that the workers of a killed server hold, and a job. Its driver is the dry run's: the variables for it."""
    server = harness.spawn([harness.python(), "serve.py"], cwd=cwd, kept=True, session=True, env=dict(os.environ, LD_PRELOAD=PRELOAD))
    workers = harness.until(lambda: len(x := re.findall(r"worker (\d+)", server.stdout())) == 3 and x, "three workers", 120)
    os.kill(server.pid, signal.SIGKILL)
    server.popen.wait(60)
    # On a busy machine there may be no time for all processes in one look.
    used = harness.until(lambda: (x := uses()) and all(x.get(int(pid)) for pid in (*workers, job)) and x, "the figures of the processes")
    machine = os.path.join(cwd, ".machine")
    with open(machine, "w", encoding="ascii") as f:
        f.write("".join("process 0 %s %d\n" % (pid, used[int(pid)]) for pid in (*workers, job)) + "reserved 0 450M\n")
    return {"LD_LIBRARY_PATH": os.path.join(OUT, "dryrun"), "MEMTRACE_DRYRUN_NVML": machine}


def uses():
    """Driver-reported use of processes with PyTorch."""
    return {p["pid"]: p["used"] for p in json.loads(harness.tool("ps", "--json", root=True)[1])["processes"]}


def execute(command, cwd, pid=0, more=None):
    """Runs a command of an example with the shell: (exit status, output and messages). more: variables of its environment."""
    bin_folder = os.path.join(cwd, ".bin")
    if not os.path.isdir(bin_folder):
        os.mkdir(bin_folder)
        os.symlink(TOOL, os.path.join(bin_folder, "memtrace-bpf"))
        for name, command_line in ("python", harness.python()), ("sudo", " ".join(harness.sudo(["env", "PATH=$PATH", "$MEMTRACE_EXAMPLE"]))):
            with open(os.path.join(bin_folder, name), "w", encoding="utf-8") as f:
                f.write("#!/bin/sh\nexec %s \"$@\"\n" % command_line)
            os.chmod(os.path.join(bin_folder, name), 0o755)
    if pid:
        command = re.sub(r"\b%s\b" % EXAMPLE_PID, str(pid), command)
    env = dict(os.environ, PATH="%s:%s" % (bin_folder, os.environ["PATH"]), COLUMNS=COLUMNS, LC_ALL="C.UTF-8", TZ="UTC")
    env["MEMTRACE_EXAMPLE"] = " ".join("%s=%s" % item for item in (more or {}).items())
    done = subprocess.run(["bash", "-c", command], cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, timeout=120, check=False)
    output = done.stdout.decode("utf-8", "replace")
    return done.returncode, re.sub(r"\b%d\b" % pid, EXAMPLE_PID, output) if pid else output


def masked(line):
    """A line without what differs from run to run: numbers, units, states of processes, bars, spaces."""
    line = re.sub(r"\b(running|sleeping|uninterruptible)\b(?=  )", "STATE", line)
    line = re.sub(r"\d[\d,.:]*( ?(B|KiB|MiB|GiB|ns|us|ms|s|m|h|min|%)\b)?( \d\d ?s)?", "N", line)
    return re.sub(r"[\s▏▎▍▌▋▊▉█-]+", " ", line).strip()


def differences(example, command, shown, output):
    """What is wrong with an output, as text; "" if nothing is."""
    if not example.live:
        if shown == example.chosen(output):
            return ""
        return "%s prints something else now: see what changed, then run tools/dev/guide.py\n%s" % (command, "\n".join(example.chosen(output)))
    rest = [masked(line) for line in output.splitlines()]
    for line in shown:
        if line == "...":
            continue
        if masked(line) not in rest:
            return "%s prints no line like '%s':\n%s" % (command, line, output)
        rest = rest[rest.index(masked(line)) + 1:]
    return ""

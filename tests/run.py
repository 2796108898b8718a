#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
Runs tests, one line each, and ends with "N passed, N failed[, N skipped]". Details go to .output/test-logs/. Exits with 1 when
something failed, or when what matters most could not be run.

    tests/run.py                             ring 2, what CI runs: `make test`
    tests/run.py --ring check                ring 1: no root, no PyTorch, no network: `make check`
    tests/run.py --ring nightly              what only ring 3 has of these tests: `make nightly`
    tests/run.py --ring nightly=fleet        a group of them: `make night-fleet`
    tests/run.py unit fuzz                   all unit tests, all fuzzers on their corpora; unit/model, unit/model/test_rows: fewer
    tests/run.py http test_exact ...         what serve answers, and this file: all tests of each, of any ring
    tests/run.py --stress 5 test_exact ...   5 rounds of them, next to 6 busy processes
    tests/run.py --first-failure unit ...    in this order, and no more once one fails

tests/README.md has the rings, and the words of a file's header.
"""
import argparse
import collections
import fcntl
import glob
import os
import re
import signal
import subprocess
import sys
import time

REPO = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
OUT = os.environ.setdefault("OUTPUT", ".output")
LOGS = os.path.join(OUT, "test-logs")
COSTS = os.path.join(LOGS, "cpu.txt")
CORES = os.cpu_count() or 1
# Two at a time for each core, because a file waits for more than half of its time. While cores are idle all the same, up to three.
AT_ONCE = int(os.environ.get("MEMTRACE_TESTS_AT_ONCE", 2 * CORES))
AT_MOST = int(os.environ.get("MEMTRACE_TESTS_AT_ONCE", 3 * CORES))
SPARE_KIB = 4 << 20  # memory that has to be available for one more than AT_ONCE
MAIN_PATH = "test_exact.test_torch_main"  # a run that skips this one has proved nothing
GROUPS = ("versions", "programs", "pages", "fleet", "long", "hosts", "zoo")  # of ring 3
WORDS = ("check", *("nightly=" + group for group in GROUPS), "long", "alone", "probes-all", "reads-code")
UNIT_SECONDS, FILE_SECONDS, GRACE = 300, 900, 10  # a job that is not over then gets SIGTERM, and SIGKILL GRACE later
# Budgets in seconds of CPU time of files whose header names none: 2.5 times what the dearest of them take. Files of ring 1 have
# CHECK_CPU there, and those of ring 3 or named on the command line, which run whole, at least WHOLE_CPU.
UNIT_CPU, FILE_CPU, CHECK_CPU, WHOLE_CPU = 12, 60, 30, 300
DEAREST = 20
BUSY = 6  # busy processes next to the tests under --stress


class Job:
    """A file of tests or a unit program: its header, and what it did."""

    def __init__(self, name, command, path, is_unit):
        self.name, self.command, self.path, self.is_unit = name, command, path, is_unit
        self.words, self.budget = header(path, UNIT_CPU if is_unit else FILE_CPU)
        self.log = log_of(name)
        self.ring = self.process = None
        self.cpu = 0.0
        self.lines = []

    def start(self):
        env = dict(os.environ, **({"MEMTRACE_RING": self.ring} if self.ring else {}))
        if self.is_unit:
            # They import PyTorch as those of e2e do: see harness.py.
            env["PYTHONPYCACHEPREFIX"] = os.path.join(os.environ.get("MEMTRACE_VENVS", os.path.expanduser("~/.cache/memtrace-bpf")), "pycache")
            env["PYTHONPATH"] = os.pathsep.join(filter(None, (os.path.join(REPO, "tests", "e2e", "start"), env.get("PYTHONPATH"))))
        else:
            env["PYTHONDONTWRITEBYTECODE"] = "1"
        with open(self.log, "wb") as log:
            # A unit test that fails leaves its processes behind: they are in its group. Files of end-to-end tests end theirs.
            self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, env=env,
                                            process_group=0 if self.is_unit else None)
        self.began = time.monotonic()
        self.limit = UNIT_SECONDS if self.is_unit else FILE_SECONDS
        self.late = 0  # signals that it got

    def stop_if_late(self):
        if time.monotonic() - self.began > self.limit + self.late * GRACE:
            os.kill(self.process.pid, signal.SIGKILL if self.late else signal.SIGTERM)
            self.late += 1

    def how(self):
        """How it ended, for a message."""
        return "not over after %d s" % self.limit if self.late else "exit %d" % self.process.returncode

    def ended(self):
        """True once it has ended; its CPU time is that of all its descendants that somebody waited for."""
        if not os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            self.stop_if_late()
            return False
        if self.is_unit:
            os.killpg(self.process.pid, signal.SIGKILL)
        _, status, usage = os.wait4(self.process.pid, 0)
        self.process.returncode = os.waitstatus_to_exitcode(status)
        self.cpu = usage.ru_utime + usage.ru_stime
        self.seconds = time.monotonic() - self.began
        with open(self.log, encoding="utf-8", errors="replace") as f:
            text = f.read()
        self.lines = unit_lines(self, text) if self.is_unit else file_lines(self, text)
        if self.cpu > self.budget:
            self.lines.append("FAIL %s: it took %.0f s of CPU, and its budget is %d s (the header's cpu=N)" % (self.name, self.cpu, self.budget))
        return True


def log_of(name):
    return os.path.join(LOGS, name.replace("/", "-") + ".log")


def header(path, cpu):
    """The words of a file's line "run: WORD...", and its budget of CPU seconds."""
    words = set()
    with open(path, encoding="utf-8") as f:
        for line in [f.readline() for _ in range(6)]:
            found = re.match(r"(?:#|/\*) run: ([-a-z0-9= ]+)", line)
            for word in found.group(1).split() if found else ():
                if re.fullmatch(r"cpu=[0-9]+", word):
                    cpu = int(word[4:])
                elif word in WORDS:
                    words.add(word)
                else:
                    sys.exit("%s: unknown word in its header: %s" % (path, word))
    return words, cpu


def unit_lines(job, text):
    """One line for a unit program, with its failed tests below: cmocka's output."""
    ok = len(re.findall(r"^\[       OK \]", text, re.M))
    bad = sorted(set(re.findall(r"^\[  FAILED  \] ([^0-9\s].*)", text, re.M)))
    skip = sorted(set(re.findall(r"^\[  SKIPPED \] ([^0-9\s].*)", text, re.M)))
    code = job.process.returncode
    job.ok = ok
    lines = []
    if code == 77:
        skip = skip or [""]
    elif code:
        # Each failing test is named when it fails and once more at the end. A crash names none: its reason is in the last lines.
        why = [line for line in text.splitlines() if re.search(r"^\[  (FAILED|ERROR)|error:|Error|ERROR", line)][:8]
        why += [] if bad else text.splitlines()[-5:]
        lines += ["FAIL %s%s: %s, see %s" % (job.name, "." + name if name else "", job.how(), job.log) for name in bad or [""]]
        lines += ["     " + line[:300] for line in why]
    else:
        job.ok = ok or (0 if skip else 1)
        if job.ok:
            lines.append("PASS %s (%.1f s): %d tests" % (job.name, job.seconds, job.ok))
    said = " ".join(re.findall(r"(?im)^skip.*", text)[:3])
    lines += ["SKIP %s%s: %s" % (job.name, "." + name if name else "", said) for name in skip]
    return lines


def file_lines(job, text):
    """Its own lines. A file that dies fails as a whole, because some of its tests did not run."""
    lines = [line for line in text.splitlines() if re.match(r"(PASS|FAIL|SKIP) ", line)]
    expected = (0, 1) if any(line.startswith("FAIL ") for line in lines) else (0, 77)
    if job.process.returncode not in expected:
        lines.append("FAIL %s: %s before its end, see %s" % (job.name, job.how(), job.log))
        lines += ["     " + line for line in text.splitlines()[-5:]]
    return lines


def find():
    """All jobs, by name."""
    jobs = collections.OrderedDict()
    for path in sorted(glob.glob("tests/e2e/test_*.py") + glob.glob("tests/e2e/http_*.py")):
        name = os.path.basename(path)[:-3]
        jobs[name] = Job(name, [sys.executable, path], path, False)
    for path in sorted(glob.glob("tests/unit/**/test_*.c", recursive=True)):
        program = os.path.join(OUT, path[:-2])
        if os.access(program, os.X_OK):
            name = path[len("tests/"):-2]
            jobs[name] = Job(name, [program], path, True)
    for path in sorted(glob.glob("tests/fuzz/fuzz_*.c")):
        program = os.path.join(OUT, path[:-2])
        if os.access(program, os.X_OK):
            name = path[len("tests/"):-2]
            corpus = os.path.join("tests", "fuzz", "corpus", name[len("fuzz/fuzz_"):])
            jobs[name] = Job(name, [program, *filter(os.path.isdir, [corpus])], path, True)
    return jobs


def groups_of(job):
    """The groups of ring 3 that have the file or some of its tests. Unit tests on every PyTorch run again."""
    with open(job.path, encoding="utf-8") as f:
        text = f.read()
    of_tests = set(re.findall(r'^@nightly\("(.*)"\)', text, re.M))
    if not of_tests <= set(GROUPS):
        sys.exit("%s: @nightly of an unknown group: %s" % (job.path, " ".join(sorted(of_tests - set(GROUPS)))))
    found = {word[len("nightly="):] for word in job.words if word.startswith("nightly=")} | of_tests
    return found | ({"versions"} if 'getenv("MEMTRACE_TORCH_PYTHONS")' in text else set())


def runs_whole(job):
    if not job.is_unit:
        job.budget = max(job.budget, WHOLE_CPU)


def of_ring(jobs, ring):
    """Those of a ring, or of a group of ring 3. A file of ring 2 may have single tests for the night: harness.nightly."""
    chosen = []
    ring_, _, group = ring.partition("=")
    for job in jobs.values():
        is_nightly, groups = any(word.startswith("nightly=") for word in job.words), groups_of(job)
        if ring_ == "nightly":
            is_in = group in groups if group else groups
        else:
            is_in = not is_nightly and (ring == "test" or job.is_unit or "check" in job.words)
        if is_in:
            job.ring = None if is_nightly else ring
            if ring == "check" and not job.is_unit:
                job.budget = min(job.budget, CHECK_CPU)
            elif ring_ == "nightly":
                runs_whole(job)
            chosen.append(job)
    return chosen


def named(jobs, names):
    """Those that the command line names."""
    chosen = []
    for name in names:
        if name in jobs:
            found = [jobs[name]]
        elif name == "http":
            found = [job for job in jobs.values() if job.name.startswith("http_")]
        else:
            found = [job for job in jobs.values() if job.name.startswith(name + "/")]
        if not found:
            sys.exit("no such test: %s (a file of tests/e2e without .py, http, unit, unit/FOLDER, unit/FOLDER/test_NAME, fuzz)" % name)
        chosen += [job for job in found if job not in chosen]
    for job in chosen:
        runs_whole(job)
    return chosen


def disturbs(a, b):
    """A capture of several processes has probes in every process that maps the same PyTorch. A test that reads a process's code sees
    them."""
    return "probes-all" in a.words and "reads-code" in b.words


class Idle:
    """Tells whether an eighth of the cores' time was idle since the last look, and one more file has enough memory."""

    def __init__(self):
        self.ticks = self.idle = 0
        self.since = 0.0

    def now(self):
        if time.monotonic() - self.since < 2:
            return False
        with open("/proc/stat", encoding="ascii") as f:
            cpu = [int(n) for n in f.readline().split()[1:9]]
        with open("/proc/meminfo", encoding="ascii") as f:
            available = int(re.search(r"MemAvailable: *(\d+)", f.read()).group(1))
        ticks, idle = sum(cpu) - self.ticks, cpu[3] - self.idle
        known = self.ticks > 0
        self.ticks, self.idle, self.since = sum(cpu), cpu[3], time.monotonic()
        return known and available > SPARE_KIB and idle * 8 >= ticks


def run_together(waiting, show, first_failure=False):
    """Runs jobs beside each other; show() gets each one that has ended. first_failure: up to the first that fails."""
    waiting, running, idle, over = list(waiting), [], Idle(), False
    while waiting or running:
        most = max(AT_ONCE, min(AT_MOST, len(running) + 1)) if idle.now() else AT_ONCE
        for job in list(waiting):
            if len(running) >= most:
                break
            if not any(disturbs(job, other) or disturbs(other, job) for other in running):
                job.start()
                running.append(job)
                waiting.remove(job)
        for job in list(running):
            if job.ended():
                running.remove(job)
                if not over:
                    show(job)
                if first_failure and any(line.startswith("FAIL ") for line in job.lines):
                    waiting, over = [], True
                    for other in running:
                        other.limit = 0
        time.sleep(0.02)


def order(jobs):
    """Long files first, because the last one to end decides the time. Unit programs fill the gaps."""
    return sorted(jobs, key=lambda job: ("long" not in job.words, job.is_unit, job.name))


class Sums:
    def __init__(self):
        self.passed = self.failed = self.skipped = 0
        self.failures, self.skips = [], []

    def show(self, job):
        for line in job.lines:
            print(line, flush=True)
            verdict = line.split(" ", 1)[0]
            if verdict == "PASS":
                self.passed += job.ok if job.is_unit else 1
            elif verdict == "FAIL":
                self.failed += 1
                self.failures.append(line)
            elif verdict == "SKIP":
                self.skipped += 1
                self.skips.append(line)


def dearest(jobs):
    ran = sorted((job for job in jobs if job.process), key=lambda job: -job.cpu)
    lines = ["  %6.1f s of %3d s  %s" % (job.cpu, job.budget, job.name) for job in ran]
    with open(COSTS, "w", encoding="utf-8") as f:
        f.write("\n".join(lines) + "\n")
    print("%d s of CPU; the %d dearest files, with their budgets (all are in %s):" % (sum(job.cpu for job in ran), min(DEAREST, len(ran)), COSTS))
    print("\n".join(lines[:DEAREST]))


def stress(jobs, rounds):
    """Runs all jobs so often beside busy processes, which end with this one. Each round has its logs."""
    sums = Sums()
    busy = [subprocess.Popen([sys.executable, "-c", "import os\nwhile os.getppid() == %d: pass" % os.getpid()]) for _ in range(BUSY)]
    try:
        for i in range(rounds):
            for job in jobs:
                job.log = log_of("%s.%d" % (job.name, i + 1))
            run(jobs, sums)
            if len(jobs) > 1:
                print("round %d: %d passed, %d failed so far" % (i + 1, sums.passed, sums.failed), flush=True)
    finally:
        for p in busy:
            p.kill()
            p.wait()
    return sums


def lock():
    """One run at a time in an output folder: a file that holds the lock until it is closed."""
    os.makedirs(LOGS, exist_ok=True)
    held = open(os.path.join(LOGS, ".lock"), "w", encoding="ascii")
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print("another run is under way in %s: waiting for it" % OUT, file=sys.stderr)
        fcntl.flock(held, fcntl.LOCK_EX)
    return held


def interpreters(ring):
    """Names the interpreters for the unit tests that look into live ones, unless the caller has."""
    def ask(*args):
        return subprocess.run(["tools/deps.sh", *args], capture_output=True, text=True, check=False).stdout.strip()
    if "MEMTRACE_PYTHONS" not in os.environ:
        os.environ["MEMTRACE_PYTHONS"] = ask("pythons")
    if "MEMTRACE_TORCH_PYTHONS" not in os.environ:
        roles = {"check": (), "test": ("main",)}.get(ring, ("main", "newest", "old"))
        found = [ask("python", role) for role in roles]
        os.environ["MEMTRACE_TORCH_PYTHONS"] = ":".join(filter(None, found))


def run(chosen, sums):
    run_together(order(job for job in chosen if "alone" not in job.words), sums.show)
    for job in chosen:
        if "alone" in job.words:
            run_together([job], sums.show)
    return sums


def run_to_failure(chosen):
    sums = Sums()
    alone = [job for job in chosen if "alone" in job.words]
    for jobs in ([job for job in chosen if job not in alone], *([job] for job in alone)):
        if not sums.failed:
            run_together(jobs, sums.show, first_failure=True)
    return sums


def conclude(sums):
    """Prints the end of the output. The exit status."""
    status = 1 if sums.failed or not sums.passed else 0
    if any(line.startswith("SKIP %s " % MAIN_PATH) for line in sums.skips):
        print("the main path, %s, was skipped: nothing is proved" % MAIN_PATH)
        status = 1
    if sums.failures:
        print("failed (logs are in %s):" % LOGS)
    for line in sums.failures:
        print("  %.300s" % line)
    print("%d passed, %d failed%s" % (sums.passed, sums.failed, ", %d skipped" % sums.skipped if sums.skipped else ""))
    return status


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ring", choices=("check", "test", "nightly", *WORDS[1:len(GROUPS) + 1]), default="test")
    parser.add_argument("--stress", type=int, metavar="N", default=0)
    parser.add_argument("--first-failure", action="store_true")
    parser.add_argument("names", nargs="*")
    args = parser.parse_args()
    os.chdir(REPO)
    with lock():
        interpreters("nightly" if args.names else args.ring)
        jobs = find()
        chosen = named(jobs, args.names) if args.names else of_ring(jobs, args.ring)
        if args.first_failure:
            sums = run_to_failure(chosen)
        else:
            sums = stress(chosen, args.stress) if args.stress else run(chosen, Sums())
        if len(chosen) > 1:
            dearest(chosen)
        sys.exit(conclude(sums))


if __name__ == "__main__":
    main()

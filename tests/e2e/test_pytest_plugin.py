#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# run: nightly=programs long cpu=400 reads-code
"""The wheel's pytest plugin: limits of memory by test, and what each test leaves behind, alone and with pytest-xdist."""
import os
import re
import shutil
import subprocess
import xml.etree.ElementTree as ElementTree

import harness
from harness import WORKLOADS, check, equal, installed, run, scratch
from test_inside import nobody
from wheel import package

SUITE = os.path.join(WORKLOADS, "pytest_suite")


def line(name, text):
    """file:line of the only line of the suite's file with this text."""
    with open(os.path.join(SUITE, name), encoding="utf-8") as f:
        (number,) = [i for i, l in enumerate(f, 1) if text in l]
    return "%s:%d" % (name, number)


# Test, bytes, blocks, line, holder, and the test that frees it; None: the end of its scope.
KEPT = [("test_fixture", "3.81 MiB", 1, line("conftest.py", "(1000000") + ", fixture leaky", "global conftest.CACHE[*]", "the end"),
        ("test_session_fixture", "352.7 KiB", 2, line("conftest.py", "Linear(") + ", fixture model", "fixture model (scope session)", None),
        ("test_module_fixture", "273.4 KiB", 1, line("conftest.py", "(70000") + ", fixture buffer", "fixture buffer (scope module)", None),
        ("test_class_attribute", "214.8 KiB", 1, line("test_kept.py", "(55000") + " (test_class_attribute)", "global test_kept.Registry.shared['first']", "the end"),
        ("test_closure", "171.9 KiB", 1, line("test_kept.py", "(44000") + " (make_hook)", "global test_kept.hooks[*]'s cell tensor", "test_kept.py::test_frees")]


def suite(*args, role="pytest", plugin=("-p", "memtrace_bpf.pytest_plugin"), user=(), where=package, files=SUITE, **variables):
    """Runs the suite: (exit code, output)."""
    env = dict(os.environ, PYTHONPATH=where(), PYTHONDONTWRITEBYTECODE="1", COLUMNS="240", **variables)
    env.pop("XDG_RUNTIME_DIR", None)
    command = [*user, installed("python", role, step="pytest"), "-m", "pytest", "-p", "no:cacheprovider", *plugin, *args]
    done = subprocess.run(command, cwd=files, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300,
                          check=False)
    return done.returncode, done.stdout


def outcomes(text):
    """{test: outcome} of pytest -rA."""
    return {name.split("::")[-1]: outcome for outcome, name in re.findall(r"^(PASSED|FAILED|ERROR|XFAIL) (\S+)", text, re.M)}


def kept(text):
    """The table: (test, size, blocks, line, holder, until)."""
    rows, test = [], None
    for line in text.partition("memory that tests left behind")[2].splitlines():
        found = re.match(r"(\S+) left ", line)
        cells = re.split(r" {2,}", line.strip())
        if found:
            test = found.group(1).split("::")[-1]
        elif test and line.startswith("  ") and len(cells) == 6:
            rows.append((test, cells[0], int(cells[1]), cells[3], cells[4], cells[5]))
    return rows


def same(rows, what):
    equal([r[:5] for r in rows], [r[:5] for r in KEPT], what)
    check(all(not k[5] or r[5] == k[5] for r, k in zip(rows, KEPT)), "%s: until %s", what, [r[5] for r in rows])


def test_limits():
    """On the dry run, peaks equal torch.cuda.max_memory_allocated() to the byte, and a byte over the limit fails the test."""
    told, junit = scratch("told"), scratch("junit.xml")
    code, text = suite("-rA", "--memtrace-dry-run", "2G", "--junitxml", junit, "test_limits.py", TOLD=told)
    equal(code, 1, "exit: " + text[-3000:])
    equal(outcomes(text), {"test_gpu_under": "PASSED", "test_gpu_over": "FAILED", "test_exactly": "PASSED", "test_one_byte_over": "FAILED",
                           "test_expected_over": "XFAIL", "test_fails_itself_over": "FAILED", "test_no_size": "FAILED"}, "outcomes")
    peaks = {}
    for case in ElementTree.parse(junit).iter("testcase"):
        for found in case.iter("property"):
            peaks.setdefault(case.get("name"), {})[found.get("name")] = int(found.get("value"))
    with open(told, encoding="utf-8") as f:
        torch = dict(line.split() for line in f)
    equal({n: p.get("memtrace_peak_cuda:0", 0) for n, p in peaks.items()}, {n: int(torch[n]) for n in peaks}, "peaks by test")
    check(len(peaks) == 6 and peaks["test_gpu_over"]["memtrace_peak_cuda:0"] > 8 << 20, "peaks: %s", peaks)
    equal(peaks["test_exactly"]["memtrace_peak_cpu"], 4000000, "host memory at the peak")
    over = text.partition("___ test_gpu_over ___")[2].partition("\n___")[0]
    peak = peaks["test_gpu_over"]["memtrace_peak_cuda:0"] / (1 << 20)
    check("cuda:0 peaked at %.2f MiB, %.2f MiB over the limit of 8.00 MiB; 0 B were allocated" % (peak, peak - 8) in over, "the failure: %s", over)
    check(re.search(r"MiB +\d+  %s \(test_gpu_over\)" % line("test_limits.py", "backward()"), over), "lines at the peak: %s", over)
    check("1 B over the limit of 3.81 MiB" in text, "one byte over: %s", text)
    failed = text.partition("___ test_fails_itself_over ___")[2].partition("\n___")[0]
    check("assert 1000000 == 1" in failed and "Captured memtrace" in failed and "over the limit of 1.00 MiB" in failed, "both failures: %s", failed)
    check("'12 apples' is not a size" in text, "a mark without a size: %s", text)


def test_what_tests_keep():
    """A user without privileges: the table names line, fixture and holder of each tensor that stayed, and until when."""
    user, folder = nobody()
    files, where = os.path.join(folder, "suite"), os.path.join(folder, "package")
    shutil.copytree(SUITE, files)
    shutil.copytree(package(), where, ignore=lambda *_: ["bin"])
    shutil.copytree(os.path.join(package(), "memtrace_bpf", "bin"), os.path.join(where, "memtrace_bpf", "bin"), symlinks=True)
    code, text = suite("--memtrace-leaks", "-rA", "test_kept.py", user=user, where=lambda: where, files=files)
    equal(code, 1, "exit: " + text[-3000:])
    same(kept(text), "what tests keep")
    check("2.97 MiB more is held by the tracebacks of failed tests" in text, "a failed test's variables: %s", text[-3000:])
    equal({n for n, o in outcomes(text).items() if o != "PASSED"}, {"test_fails", "test_broken_fixture"}, "tests that fail")
    check("memtrace:" not in text, "problems: %s", text[-3000:])


def test_parallel():
    """With two workers the limits hold, and the table is the same."""
    code, text = suite("-n", "2", "--dist", "loadfile", "-rA", "--memtrace-leaks", "--memtrace-dry-run", "2G", "test_kept.py", "test_limits.py")
    equal(code, 1, "exit: " + text[-3000:])
    check({"test_gpu_over", "test_one_byte_over", "test_fails"} <= {n for n, o in outcomes(text).items() if o == "FAILED"}, "outcomes: %s", outcomes(text))
    rows = [r for r in kept(text) if r[0] in {k[0] for k in KEPT} and r[4] != "no tensor of Python's"]  # the model's test has a workspace of cuBLAS
    equal(len(rows), len(KEPT), "rows of the table: " + text[-3000:])
    equal([r[0] for r in rows if r[4].startswith("fixture ")], ["test_session_fixture", "test_module_fixture"], "held by fixtures")
    check(("test_exactly", "4.71 MiB", 1, line("test_limits.py", "1234567") + " (test_exactly)", "global test_limits.kept[*]", "the end") in kept(text), "GPU memory: %s", kept(text))


def test_oldest_and_kernel():
    """The oldest pytest, and the kernel's probes as recorder: the same table."""
    code, text = suite("--memtrace-leaks", "--memtrace-recorder", "kernel", "test_kept.py", role="pytest-oldest", user=harness.sudo([]))
    check("pytest-6." in text, "the version: %s", text[:300])
    equal(code, 1, "exit: " + text[-3000:])
    same(kept(text), "what tests keep")


def test_not_asked():
    """Without --memtrace nothing is started, and pytest says that limits were not checked."""
    code, text = suite("-q", "-k", "exactly or one_byte or clean", "test_limits.py", where=lambda: package(False), files=SUITE)
    check("limits of 2 tests were not checked; pytest --memtrace checks them" in text, "exit %d: %s", code, text)


def test_recorder_ends():
    """A limit is not taken as kept if the recorder has ended."""
    code, text = suite("--memtrace", "-rA", "test_recorder_ends.py")
    equal(outcomes(text), {"test_ends_the_recorder": "PASSED", "test_after": "FAILED"}, "exit %d: %s" % (code, text))
    check("the recorder does not answer" in text, "the reason: %s", text)


def test_usage():
    """What cannot be recorded is an error: a program that calls pytest.main(), and a plugin that is loaded too late."""
    python = installed("python", "pytest", step="pytest")
    env = dict(os.environ, PYTHONPATH=package(), PYTHONDONTWRITEBYTECODE="1")
    for program, text in (("pytest.main(['-p', 'memtrace_bpf.pytest_plugin', '--memtrace', 'test_kept.py'])", "cannot be started again"),):
        done = subprocess.run([python, "-c", "import pytest; " + program], cwd=SUITE, env=env, capture_output=True, text=True, timeout=100, check=False)
        check(text in done.stderr + done.stdout, "%s: %s %s", program, done.stdout, done.stderr)
    code, text = suite("--memtrace", "--tx", "ssh=nobody@nowhere", "--dist", "load", "test_kept.py")
    check(code and "workers of this machine only" in text, "exit %d: %s", code, text)
    code, text = suite("--memtrace-dry-run", "1K", "test_kept.py")
    check(code == 64 and "--vram" in text, "exit %d: %s", code, text)


if __name__ == "__main__":
    run(globals())

#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# run: check
"""tests/run.py with made-up tests: what it counts, its last line and its exit code."""
import os
import shutil
import subprocess

from harness import REPO, check, equal, run, scratch, state_of, until

# A file of made-up tests. Each counts its runs in a file, and fails in those whose numbers it is given.
TEST = """# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
%s
import sys
for name, fails in %r.items():
    if sys.argv[1:] not in ([], [name]):
        continue
    with open(__file__ + "." + name, "a+") as f:
        f.write("x")
        f.seek(0)
        bad = len(f.read()) in fails
    print("FAIL %s.%%s (0.1 s): a reason" %% name if bad else "PASS %s.%%s (0.1 s)" %% name, flush=True)
"""


def tree(name, files):
    """A project with run.py and these tests: file -> (words of its header, test -> numbers of the runs in which it fails)."""
    top = scratch(name)
    for folder in ("tests/e2e", "tools"):
        os.makedirs(os.path.join(top, folder))
    shutil.copy(os.path.join(REPO, "tests", "run.py"), os.path.join(top, "tests", "run.py"))
    with open(os.path.join(top, "tools", "deps.sh"), "w", encoding="utf-8") as f:
        f.write("#!/bin/sh\n")
    os.chmod(f.name, 0o755)
    for file, (words, tests) in files.items():
        with open(os.path.join(top, "tests", "e2e", file + ".py"), "w", encoding="utf-8") as f:
            f.write(TEST % ("# run: " + words if words else "", tests, file, file))
    return top


def append(top, file, text):
    with open(os.path.join(top, "tests", "e2e", file + ".py"), "a", encoding="utf-8") as f:
        f.write(text)


def run_tests(top, *names, **more):
    env = dict(os.environ, OUTPUT=os.path.join(top, "out"), MEMTRACE_PYTHONS="", MEMTRACE_TORCH_PYTHONS="", **more)
    done = subprocess.run(["tests/run.py", *names], cwd=top, env=env, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout.splitlines()


def test_all_pass():
    code, said = run_tests(tree("pass", {"test_a": ("", {"one": ()}), "test_b": ("long", {"two": ()}), "test_c": ("alone", {"three": ()})}),
                           "test_a", "test_b", "test_c")
    equal((code, said[-1]), (0, "3 passed, 0 failed"), "exit code and last line")


def test_no_second_run():
    """A failed test that would pass the next time has failed, next to others and by itself."""
    for name, words, others in (("beside", "", ["test_b"]), ("alone", "alone", ["test_b"]), ("single", "", [])):
        top = tree(name, {"test_a": (words, {"one": (1,), "two": ()}), "test_b": ("", {"three": ()})})
        code, said = run_tests(top, "test_a", *others)
        equal((code, said[-1]), (1, "%d passed, 1 failed" % (1 + len(others))), "exit code and last line, " + name)
        check(said[-3].startswith("failed (logs are in ") and said[-2] == "  FAIL test_a.one (0.1 s): a reason", "the end, %s:\n%s",
              name, "\n".join(said))
        check(os.path.getsize(os.path.join(top, "tests", "e2e", "test_a.py.one")) == 1, "%s ran again", name)


def test_rings():
    """Each ring has its files, and a single test of the night is not in its file's ring."""
    top = tree("rings", {"test_a": ("check", {"one": ()}), "test_b": ("long", {"two": ()}), "test_c": ("nightly=fleet", {"three": ()})})
    for ring, files in (("check", ["test_a"]), ("test", ["test_a", "test_b"]), ("nightly", ["test_c"]), ("nightly=fleet", ["test_c"])):
        code, said = run_tests(top, "--ring", ring)
        ran = sorted(line.split()[1].split(".")[0] for line in said if line.startswith("PASS "))
        equal((code, ran, said[-1]), (0, files, "%d passed, 0 failed" % len(files)), "ring " + ring)
    append(top, "test_b", '@nightly("fleets")\ndef test_of_no_ring():\n    pass\n')
    equal(run_tests(top, "--ring", "test")[0], 1, "exit code with a group that is none")


def test_groups():
    """A file, or a file with single tests of the group; an unknown group is an error."""
    top = tree("groups", {"test_a": ("", {"one": ()}), "test_b": ("nightly=fleet", {"two": ()}), "test_c": ("nightly=pages", {"three": ()})})
    append(top, "test_a", '"""\n@nightly("fleet")\n"""\n')
    for ring, ran in (("nightly=fleet", ["test_a", "test_b"]), ("nightly=pages", ["test_c"]), ("nightly", ["test_a", "test_b", "test_c"])):
        code, said = run_tests(top, "--ring", ring)
        equal((code, sorted(line.split()[1].split(".")[0] for line in said if line.startswith("PASS "))), (0, ran), "files of " + ring)
    equal(run_tests(top, "--ring", "nightly=flet")[0], 2, "exit code of an unknown group")


def test_budget():
    """A file above its budget of CPU time fails, though its tests pass."""
    code, said = run_tests(tree("budget", {"test_a": ("cpu=0", {"one": ()})}), "--ring", "test")
    equal((code, said[-1]), (1, "1 passed, 1 failed"), "exit code and last line")
    check("its budget is 0 s" in said[-2], "the reason:\n%s", "\n".join(said))


def test_unknown_word():
    code, said = run_tests(tree("word", {"test_a": ("chek", {"one": ()})}))
    equal((code, said), (1, []), "exit code and output")


def test_a_file_that_dies():
    """A file that ends before its end has failed, and the last lines of its output are shown."""
    top = tree("dies", {"test_a": ("", {"one": ()})})
    append(top, "test_a", 'sys.stderr.write("the last words\\n")\nsys.stdout.flush()\nimport os\nos.abort()\n')
    code, said = run_tests(top, "test_a")
    equal((code, said[-1]), (1, "1 passed, 1 failed"), "exit code and last line")
    check(any("the last words" in line for line in said), "the last words:\n%s", "\n".join(said))


def test_a_test_that_never_ends():
    """It ignores SIGTERM, too. The run goes on, and says why it ended the test."""
    top = tree("endless", {"test_a": ("", {"one": ()}), "test_b": ("", {"two": ()})})
    append(top, "test_a", "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nwhile True:\n    signal.pause()\n")
    limits = "UNIT_SECONDS, FILE_SECONDS, GRACE = "
    runner = os.path.join(top, "tests", "run.py")
    with open(runner, "r+", encoding="utf-8") as f:
        text = f.read()
        check(limits + "300, 900, 10 " in text, "other limits")
        f.seek(0)
        f.write(text.replace(limits + "300, 900, 10 ", limits + "9, 9, 0.1 "))
        f.truncate()
    code, said = run_tests(top, "test_a", "test_b")
    equal((code, said[-1]), (1, "2 passed, 1 failed"), "exit code and last line")
    check("FAIL test_a: not over after 9 s before its end" in said[-2], "the reason:\n%s", "\n".join(said))


def test_a_unit_test_leaves_no_process():
    """A unit test that fails does not end what it started."""
    top = tree("orphan", {})
    for path, text in (("tests/unit/a/test_a.c", "/* no words */\n"), ("out/tests/unit/a/test_a", '#!/bin/sh\nsleep 300 >&- 2>&- &\necho $! >"$0.pid"\nexit 1\n')):
        path = os.path.join(top, path)
        os.makedirs(os.path.dirname(path))
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
        os.chmod(path, 0o755)
    code, said = run_tests(top, "unit/a")
    equal((code, said[-1]), (1, "0 passed, 1 failed"), "exit code and last line")
    with open(path + ".pid", encoding="ascii") as f:
        pid = int(f.read())
    until(lambda: not os.path.exists("/proc/%d" % pid) or state_of(pid) == "Z", "PID %d has ended" % pid)


def test_first_failure():
    """Files run in the order given. Once one fails, no other begins, and those that run end and do not count."""
    top = tree("first-failure", {"test_a": ("", {"one": ()}), "test_b": ("", {"two": (1,)}), "test_c": ("long", {"three": ()}), "test_d": ("alone", {"four": ()})})
    append(top, "test_c", "import signal\nif not sys.argv[1:]:\n    signal.pause()\n")
    for order, last in ((("test_c", "test_b", "test_a", "test_d"), "0 passed, 1 failed"), (("test_a", "test_d"), "2 passed, 0 failed")):
        code, said = run_tests(top, "--first-failure", *order, MEMTRACE_TESTS_AT_ONCE="2")
        equal((code, said[-1]), ("1 failed" in last, last), "exit code and last line, " + " ".join(order))


def test_stress():
    """Each test runs so often, and one failure among the runs counts."""
    code, said = run_tests(tree("stress", {"test_a": ("", {"one": (3,)})}), "--stress", "4", "test_a")
    equal((code, said[-1]), (1, "3 passed, 1 failed"), "exit code and last line")


if __name__ == "__main__":
    run(globals())

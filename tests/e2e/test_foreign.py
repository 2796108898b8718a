#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# run: nightly=programs long
"""Other projects' programs read exports of a real job: speedscope's schema and page, and a browser."""
import os
import shutil
import signal
import subprocess
import sys

import harness
from harness import Skip, check, equal, installed, own, record, run, scratch, tool, workload


def readers():
    """A folder with the scripts of tests/foreign and their node_modules."""
    if not shutil.which("node"):
        raise Skip("node is not here")
    packages, folder = installed("foreign", step="pages"), scratch("foreign")
    if not os.path.exists(folder):
        os.mkdir(folder)
        os.symlink(os.path.join(packages, "node_modules"), os.path.join(folder, "node_modules"))
        source = os.path.join(harness.REPO, "tests", "foreign")
        for name in os.listdir(source):
            if name.endswith((".mjs", ".json")):
                shutil.copy(os.path.join(source, name), folder)
    return folder


def export(name, suffix):
    """Exports of one recording for all tests."""
    recording, path = scratch("foreign.mtr"), scratch("foreign" + suffix)
    if not os.path.exists(recording):
        target = workload("train_gpt.py", "--every", "5", "--batch", "4", "--width", "64")
        target.wait_line("^step 10 ", 120)
        equal(record(target.popen.pid, recording, "-d", "3s").wait(30), 0, "record")
        target.signal(signal.SIGTERM)
        target.wait(30)
        own(recording)
    code, _, err = tool("export", name, recording, "-o", path, "-f")
    equal(code, 0, "export %s: %s" % (name, err))
    return path


def node(script, *args):
    done = subprocess.run(["node", os.path.join(readers(), script), *args], capture_output=True, text=True, timeout=180, check=False)
    if done.returncode == 77:
        raise Skip(done.stderr.strip() or done.stdout.strip())
    check(done.returncode == 0, "%s: exit code %d: %s %s", script, done.returncode, done.stdout[-600:], done.stderr[-1200:])


def test_formats_agree():
    recording = os.path.splitext(export("folded", ".txt"))[0] + ".mtr"
    done = subprocess.run([sys.executable, os.path.join(harness.HERE, "check_exports.py"), "--program", harness.TOOL, "--foreign",
                           scratch("none"), recording], capture_output=True, text=True, timeout=120, check=False)
    check(done.returncode == 0, "check_exports.py: %s %s", done.stdout[-600:], done.stderr[-1200:])


def test_speedscope():
    readers()
    node("check_speedscope.mjs", export("speedscope", ".speedscope.json"), export("folded", ".collapsedstack.txt"))


def test_flamegraph_in_a_browser():
    readers()
    node("check_flamegraph.mjs", export("flamegraph", ".html"))


if __name__ == "__main__":
    run(globals())

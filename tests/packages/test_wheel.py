#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""The wheel in fresh environments of each CPython that is here, and in Debian systems that have nothing but Python."""
import os
import shutil
import signal
import subprocess

import packages
from packages import Skip, check, equal, harness, listing, run, scratch

VERSIONS = ("3.8", "3.9", "3.10", "3.11", "3.12", "3.13", "3.14", "3.15")
# A user's environment: the harness keeps byte code of imports in a folder of its own.
CLEAN = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
_environments = {}


def interpreters():
    """{"3.8": path}"""
    found = {}
    for path in packages.execute(os.path.join(harness.REPO, "tools", "deps.sh"), "pythons").strip().split(":"):
        if path:
            found[packages.execute(path, "-c", "import sys; print('%d.%d' % sys.version_info[:2] + getattr(sys, 'abiflags', ''))").strip()] = path
    return found


def environment(version):
    """(folder of a new environment with the wheel, what was in it before)."""
    if version not in _environments:
        python = interpreters().get(version)
        if not python:
            raise Skip("no CPython %s here" % version)
        folder = scratch("env-" + version)
        packages.execute(python, "-m", "venv", folder, env=CLEAN)
        before = files(folder)
        packages.execute(os.path.join(folder, "bin", "pip"), "install", "--no-index", "--disable-pip-version-check", packages.package("*.whl"), env=CLEAN)
        _environments[version] = folder, before
    return _environments[version]


def any_environment():
    for version in reversed(VERSIONS):
        if version in interpreters():
            return environment(version)[0]
    raise Skip("no CPython here")


def files(folder):
    """Byte code that pip makes of itself while it runs does not count."""
    return {f for f in listing(folder) if not f.endswith(".pyc") or "memtrace" in f}


def program(folder):
    """The program itself, which the scripts execute."""
    package = packages.execute(os.path.join(folder, "bin", "python"), "-c", "import memtrace_bpf; print(memtrace_bpf.__path__[0])", env=CLEAN)
    return os.path.join(package.strip(), "bin", "memtrace-bpf")


def outcome(*command):
    done = subprocess.run(command, env=CLEAN, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
    return done.returncode, done.stdout, done.stderr


def installs_and_removes(version):
    folder, before = environment(version)
    script, python = os.path.join(folder, "bin", "memtrace-bpf"), os.path.join(folder, "bin", "python")
    path = program(folder)
    for args in (["version"], ["help", "record", "--all"], ["report", "there is no such file.mtr"], ["record", "--top"], []):
        direct = outcome(path, *args)
        equal(outcome(script, *args), direct, "memtrace-bpf " + " ".join(args))
        equal(outcome(python, "-m", "memtrace_bpf", *args), direct, "python -m memtrace_bpf " + " ".join(args))
    said = packages.execute(script, "help", env=CLEAN)
    check(os.path.dirname(os.path.dirname(path)) + "/share/doc/memtrace-bpf" in said, "help does not name the guide's folder: %s", said[-300:])
    packages.execute(os.path.join(folder, "bin", "pip"), "uninstall", "-y", "--disable-pip-version-check", "memtrace-bpf", env=CLEAN)
    del _environments[version]
    packages.no_leftover(before, files(folder))
    shutil.rmtree(folder)


MODULES = """
import glob, importlib.metadata, memtrace_bpf, os
folder = os.path.dirname(memtrace_bpf.__file__)
for path in glob.glob(folder + "/*.py"):
    compile(open(path, encoding="utf-8").read(), path, "exec")
import memtrace_bpf.estimate_change
plugins = importlib.metadata.entry_points()
plugins = plugins.select(group="pytest11") if hasattr(plugins, "select") else plugins["pytest11"]
print([p.value for p in plugins if p.name == "memtrace"], os.path.exists(folder + "/share/doc/memtrace-bpf/skill/memtrace-bpf/SKILL.md"))
"""


def test_modules():
    """All modules compile, pytest finds the plugin, and the skill is there."""
    for version in VERSIONS:
        if version in interpreters():
            said = packages.execute(os.path.join(environment(version)[0], "bin", "python"), "-c", MODULES, env=CLEAN)
            equal(said.strip(), "['memtrace_bpf.pytest_plugin'] True", "CPython " + version)


def waiting_recorder(path, target):
    """A recorder that waits for the target to import PyTorch."""
    p = harness.spawn([path, "record", "-p", str(target.pid), "--wait-for", "torch", "-o", scratch("none.mtr")])
    p.wait_line("waiting for `import torch`", 20, "err")
    return p


def closed_pipe(path):
    read, write = os.pipe()
    os.close(read)
    p = subprocess.Popen([path, "help", "record", "--all"], stdout=write, stderr=subprocess.DEVNULL)
    os.close(write)
    return p.wait()


def test_signals():
    """A signal and a closed pipe end the program as if it had been started directly."""
    folder = any_environment()
    script, direct = os.path.join(folder, "bin", "memtrace-bpf"), program(folder)
    equal(closed_pipe(script), closed_pipe(direct), "exit with a closed pipe")
    if not harness.IS_ROOT:
        return
    target = harness.spawn([harness.python("main"), "-c", "import time; time.sleep(60)"])
    exits = []
    for path in (direct, script):
        p = waiting_recorder(path, target)
        os.kill(p.pid, signal.SIGTERM)
        exits.append(p.wait(20))
    equal(exits[1], exits[0], "exit after SIGTERM")


def test_environment_of_c_locale():
    """The program has the caller's environment: Python changes its own in the C locale."""
    folder = any_environment()
    job = scratch("job.py")
    with open(job, "w", encoding="utf-8") as f:
        f.write("import os\nprint('LC_CTYPE is', open('/proc/self/environ').read().count('LC_CTYPE='))\n")
    env = {k: v for k, v in os.environ.items() if not k.startswith("LC_") and k != "LANG"}
    said = packages.execute(os.path.join(folder, "bin", "memtrace-bpf"), "run", "--inside", "-o", scratch("c.mtr"), "--", harness.python("main"), job, env=env, expect=None)
    check("LC_CTYPE is 0" in said, "%s", said)


def as_sudo(folder):
    """The command line of `sudo $(which memtrace-bpf)`: nothing of the environment is kept."""
    return ["env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", os.path.join(folder, "bin", "memtrace-bpf")]


def test_records_with_sudo():
    """Root records a PyTorch process with the program of an environment that is not active, and reports it."""
    if not harness.IS_ROOT:
        raise Skip("needs root")
    folder, recording = any_environment(), scratch("sudo.mtr")
    job = harness.training()
    packages.execute(*as_sudo(folder), "record", "-p", str(job.pid), "-d", "2s", "-o", recording)
    said = packages.execute(*as_sudo(folder), "report", recording)
    check("peak" in said and ".py:" in said, "%s", said)


def test_finds_its_libraries():
    """The dry run, the recorder inside and the replayer are found in the package."""
    folder, recording = any_environment(), scratch("dry.mtr")
    script, job = os.path.join(folder, "bin", "memtrace-bpf"), os.path.join(harness.WORKLOADS, "train_gpt.py")
    said = packages.execute(script, "estimate", "--vram", "2G", "-o", recording, "--", harness.python("main"), job, "--device", "cuda", "--steps", "3")
    check("dry run" in said, "%s", said)
    packages.execute(script, "replay", recording)
    packages.execute(script, "run", "--inside", "-o", scratch("inside.mtr"), "--", harness.python("main"), job, "--steps", "2")


def installs_in_bare_system(suite):
    """`pip install WHEEL && memtrace-bpf version` in a Debian system with its Python and nothing else."""
    with packages.system(suite) as root:
        try:
            packages.inside(root, "sh", "-c", "apt-get update -q -o Acquire::Check-Valid-Until=false && apt-get install -y -q --no-install-recommends python3-venv", seconds=600)
        except packages.Failure as e:
            raise Skip("apt: %s" % e) from e
        path = packages.package("*.whl")
        shutil.copy(path, os.path.join(root, "tmp"))
        packages.inside(root, "python3", "-m", "venv", "/opt/env")
        packages.inside(root, "/opt/env/bin/pip", "install", "--no-index", "/tmp/" + os.path.basename(path))
        packages.version_of(packages.inside(root, "/opt/env/bin/memtrace-bpf", "version"))
        packages.inside(root, "/opt/env/bin/memtrace-bpf", "check")
        print("     %s: %s" % (suite, packages.inside(root, "python3", "--version").strip()), flush=True)


for _suite in packages.SUITES:
    globals()["test_bare_" + _suite] = lambda suite=_suite: installs_in_bare_system(suite)

for _version in VERSIONS:
    globals()["test_python_" + _version.replace(".", "_")] = lambda version=_version: installs_and_removes(version)

run(globals())

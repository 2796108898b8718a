#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""A recording replayed through PyTorch's allocator: under its own settings the reserved memory equals the recorded one after each
event; under others it equals a dry run with these settings."""
import csv
import functools
import json
import os
import shlex
import shutil
import struct
import subprocess
import sys
import tempfile

import mtr_reader
from harness import IS_ROOT, REPO, TOOL, WORKLOADS, Failure, Skip, check, equal, nightly, python, run, scratch, spawn, tool

MIB = 1 << 20
SYSTEM_PYTHON = "/usr/bin/python3"
GUIDE = os.path.join(REPO, "tests", "data", "guide")
CUDA = 1
SMALL = 540 * MIB  # bytes of a device too small for the job under all settings
CONTEXT = 64 * MIB
OTHERS = ("expandable_segments:True", "max_split_size_mb:20", "roundup_power2_divisions:4",
          "expandable_segments:True,roundup_power2_divisions:8")


def job(name, *args, vram="80G", parts="streams,empty,graph"):
    """Recorded in a dry run: paths of the recording and of the job's own data."""
    path, truth = scratch(name + ".mtr"), scratch(name + ".json")
    env = dict(os.environ, MEMTRACE_DRYRUN_CONTEXT=str(CONTEXT))
    for key in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"):
        env.pop(key, None)
    p = spawn([TOOL, "run", "--dry-run-cuda", "--vram", str(vram), "--requested", "-f", "-o", path, "--", python("main"),
               os.path.join(WORKLOADS, "replayed.py"), truth, "--parts", parts, *args], root=True, env=env)
    code = p.wait(300)
    check(code == 0, "the job ended with %s: %s", code, p.tail(p.stderr()))
    with open(truth, encoding="utf-8") as f:
        return path, json.load(f)


@functools.lru_cache(maxsize=None)
def recorded():
    return job("replayed", *(word for conf in OTHERS for word in ("--conf", conf)))


def replay(path, *options, expect=0):
    if "--python" not in options:
        options += ("--python", python("main"))
    code, out, err = tool("replay", *options, "--format", "json", path)
    check(code == expect, "replay %s ended with %d: %s", " ".join(options), code, err[-800:])
    return json.loads(out) if not code else err


def curve(path, *options):
    file = scratch("curve.csv")
    if os.path.exists(file):
        os.unlink(file)
    replay(path, "--curve", file, *options)
    with open(file, encoding="ascii") as f:
        return [int(row["reserved"]) for row in csv.DictReader(f)]


def events_before_oom(path):
    n = 0
    with open(path, "rb") as f:
        for e in mtr_reader.Recording(f).events():
            kind = mtr_reader.KINDS[e["kind"]]
            if kind == "oom":
                return n
            n += e["type"] == CUDA and kind in ("alloc", "free")
    raise Failure("no out of memory in " + path)


def test_own_settings():
    path, truth = recorded()
    own = replay(path)["own_settings"]
    equal((own["known"], own["equal"], own["first_difference"], own["largest_difference"]), (True, True, None, 0), "its own settings")
    check(own["events_compared"] > 500, "%d events are too few to say anything", own["events_compared"])
    equal(curve(path), [reserved for _, reserved in truth[""]], "reserved under its own settings")
    check(replay(path)["recording"]["pools"] > 2, "two streams and a private pool are not told apart")


def test_other_settings():
    path, truth = recorded()
    for conf in OTHERS:
        equal(curve(path, "--alloc-conf", conf), [reserved for _, reserved in truth[conf]], "reserved under " + conf)
    peaks = [max(reserved for _, reserved in points) for points in truth.values()]
    equal(len(set(peaks)), len(peaks), "settings with a peak of their own")


def test_search():
    path, truth = recorded()
    doc = replay(path, "--search")
    peak = {t["alloc_conf"]: t["peak_reserved"] for t in doc["tries"]}
    equal(peak["expandable_segments:True"], max(reserved for _, reserved in truth["expandable_segments:True"]), "peak, expandable")
    best = doc["recommended"]
    equal(peak[best], min(peak.values()), "the peak of what is recommended")
    check(peak[best] < peak[""], "%s gains nothing and is recommended", best)
    check([t["costs"] for t in doc["tries"] if t["alloc_conf"] == best][0], "nothing is said of what %s costs", best)


def test_less_memory():
    """A dry run with less memory equals a replay of one with enough."""
    path, _ = recorded()
    less, _ = job("less", "--oom", vram=SMALL)
    there = replay(less)
    equal(there["own_settings"]["equal"], True, "its own settings, where memory runs out")
    oom = replay(less, "--vram", str(SMALL))["tries"][0]["oom"]
    equal((there["vram"], there["tries"][0]["oom"]), (SMALL, oom), "the recording's own device, without --vram")
    unlimited = replay(less, "--vram", "none")
    equal((unlimited["vram"], unlimited["tries"][0]["oom"]), (None, None), "--vram none")
    predicted = replay(path, "--vram", str(SMALL))["tries"][0]
    check(predicted["oom"], "it fits %d MiB", SMALL // MIB)
    keys = ("asked", "allocated", "reserved", "where")
    equal([predicted["oom"][k] for k in keys], [oom[k] for k in keys], "out of memory as predicted, and as it was")
    equal(predicted["events"], events_before_oom(less), "allocations and frees until then")
    check("replayed.py" in predicted["oom"]["where"], "it is said to be at %s", predicted["oom"]["where"])
    smallest = replay(path, "--smallest")["tries"][0]["smallest_vram"]
    equal([bool(replay(path, "--vram", str(v))["tries"][0]["oom"]) for v in (smallest, smallest - 2 * MIB)], [False, True],
          "out of memory with the smallest that fits, and with 2 MiB less")


def test_refused():
    path, _ = recorded()
    check("foo" in replay(path, "--alloc-conf", "foo:1", expect=1), "settings that PyTorch does not know")
    check("torch" in replay(path, "--python", "/bin/true", expect=2).lower(), "an interpreter that is none")
    replay(path, "--device", "cuda:3", expect=2)
    replay(os.devnull, expect=2)
    for options in (["--vram", "1"], ["--search", "--alloc-conf", ""], ["--device", "cpu"], ["--smallest", "--vram", "1G"]):
        equal(tool("replay", *options, path)[0], 64, "exit with " + " ".join(options))


def test_files():
    """A folder's recordings, and files that cannot be read: the same messages as those of other commands."""
    job = os.path.join(GUIDE, "job")
    with open(os.path.join(GUIDE, "base.mtr"), "rb") as f, open(scratch("short.mtr"), "wb") as short:
        short.write(f.read(3000))
    for path in (job, job + "#99", scratch("not-there.mtr"), scratch("short.mtr"), GUIDE, __file__):
        code, out, err = tool("export", "folded", path, "-o", "-")
        check(code and not out, "%s can be exported", path)
        equal(tool("replay", path), (code, out, err), "replay of " + path)
    check("stops at byte" in tool("replay", scratch("short.mtr"))[2], "the reason is missing")
    check(replay(job + "#rank-2")["recording"]["events"] > 0, "nothing was replayed")


def test_a_failed_curve_leaves_no_file():
    """The next try with the same name works, and -f replaces a curve."""
    base, file = os.path.join(GUIDE, "base.mtr"), scratch("again.csv")
    check(tool("replay", base, "--python", "/no/python", "--curve", file)[0], "an interpreter that is not there was used")
    check(not os.path.exists(file), "an empty curve stays")
    replay(base, "--curve", file)
    with open(file, encoding="ascii") as f:
        whole = f.read()
    check(whole.startswith("event,seconds,") and whole.count("\n") > 10, "the curve: %r", whole[:80])
    check("it exists; -f replaces it" in replay(base, "--curve", file, expect=1), "an old curve is not named")
    replay(base, "--curve", file, "-f")
    equal(tool("replay", base, "-f")[0], 64, "-f without a curve")


@nightly("versions")
def test_other_versions():
    """The allocators of other PyTorch versions, too, also of another version than recorded."""
    path, _ = recorded()
    for role in ("newest", "cu12", "old"):
        doc = replay(path, "--python", python(role))
        check(doc["allocator"]["torch"] != doc["recording"]["torch"], "torch of %s is the recorded one", role)
        check(doc["tries"][0]["peak_reserved"] > doc["recording"]["peak_allocated"], "%s: %s", role, doc["tries"][0])
        check(replay(path, "--python", python(role), "--alloc-conf", "expandable_segments:True")["tries"][1]["peak_reserved"] <
              doc["tries"][0]["peak_reserved"], "%s: expandable segments do nothing", role)


def saying(name, **facts):
    """The recording with other facts appended: later ones replace earlier ones."""
    path, out = recorded()[0], scratch(name)
    with open(path, "rb") as f:
        data = f.read()
    at = 16
    while struct.unpack_from("<I", data, at)[0] != 4:
        at += 24 + struct.unpack_from("<3I", data, at)[2]

    def varint(n):
        return bytes([n]) if n < 128 else bytes([n & 127 | 128]) + varint(n >> 7)

    payload = varint(len(facts))
    for word in (w for pair in facts.items() for w in pair):
        payload += varint(len(word.encode())) + word.encode()
    head = struct.pack("<5I", 1, 0, len(payload), len(payload), mtr_reader.crc32c(payload))
    with open(out, "wb") as f:
        f.write(data[:at] + head + struct.pack("<I", mtr_reader.crc32c(head)) + payload + data[at:])
    return out


def system_python():
    """The version of the system's Python."""
    done = subprocess.run([SYSTEM_PYTHON, "-c", "import sys; print(*sys.version_info[:2])"], check=True, capture_output=True, text=True)
    return tuple(int(n) for n in done.stdout.split())


def bundle(name):
    """A folder like a clone: owned by this user, with a program that leaves a file. Its path, the program's, the file's."""
    folder = scratch(name)  # name, if absolute
    os.mkdir(folder)
    program, ran = os.path.join(folder, "python"), os.path.join(folder, "ran")
    with open(program, "w", encoding="ascii") as f:
        f.write("#!/bin/sh\n: > %s\n" % ran)
    os.chmod(program, 0o755)
    return folder, program, ran


def test_nothing_runs_because_it_is_ours():
    """A recording next to a program: both belong to the user who unpacked them, which is no consent to run the program."""
    folder, program, ran = bundle("cloned")
    for named in ("/proc/self/cwd/python", "//proc/self/cwd/python", "/dev/fd/../cwd/python", program):
        path = saying("cloned.mtr", torch_lib="", cmdline=json.dumps([named, "train.py"]))
        code, _, err = tool("replay", path, cwd=folder)
        equal(code, 3, "exit of a replay that names %s: %s" % (named, err))
        check(not os.path.exists(ran), "%s was run", named)
    # With a working PyTorch, if it is loaded.
    lib = os.path.dirname(os.path.dirname(subprocess.run([python("main"), "-c", "import torch; print(torch.__file__)"], check=True,
                                                         capture_output=True, text=True).stdout.strip()))
    os.symlink(lib, os.path.join(folder, "site"))
    for named in ("/proc/self/cwd/site/torch/lib", os.path.join(folder, "site/torch/lib")):
        code, _, err = tool("replay", saying("library.mtr", torch_lib=named), cwd=folder)
        equal(code, 3, "exit of a replay that names %s: %s" % (named, err))
        check(named in err, "the library is not named: %s", err)


def test_nothing_runs_because_it_came_along():
    """Everything that root unpacks belongs to root: programs in the recording's folder or the current folder are not used because
    a recording names them."""
    with place_of_packages() as top:
        os.chmod(top, 0o755)
        folder, program, ran = bundle(os.path.join(top, "cloned"))
        os.mkdir(os.path.join(folder, "bin"))
        deeper = shutil.copy(program, os.path.join(folder, "bin/python3.12"))
        site = os.path.join(folder, "site")
        os.mkdir(site)
        shutil.copy("/usr/bin/env", os.path.join(site, "libc10_cuda.so"))
        for facts in ({"cmdline": json.dumps([program, "train.py"]), "torch_lib": ""}, {"cmdline": json.dumps([deeper, "train.py"]), "torch_lib": ""},
                      {"cmdline": "[]", "exe": program, "torch_lib": ""}, {"torch_lib": site}):
            path = saying("along.mtr", **facts)
            mine = shutil.copy(path, folder)
            os.symlink(path, os.path.join(folder, "link.mtr"))
            for recording, cwd in ((mine, "/"), (path, folder), ("cloned/along.mtr", top), (os.path.join(folder, "link.mtr"), "/")):
                code, _, err = tool("replay", recording, cwd=cwd)
                equal(code, 3, "exit of a replay in %s of %s with %s: %s" % (cwd, recording, facts, err))
                check("--python" in err and "replay: runs" not in err, "what is said of %s: %s", facts, err)
                check(not os.path.exists(ran), "%s was run", facts)
            os.unlink(os.path.join(folder, "link.mtr"))
        # Control: named by the user, it runs.
        tool("replay", "--python", program, mine)
        check(os.path.exists(ran), "programs cannot be run from %s: this has tried nothing", top)


def place_of_packages():
    """A folder below one that packages fill, removed at the end."""
    if not IS_ROOT:
        raise Skip("needs root, to make a folder of root's")
    try:
        return tempfile.TemporaryDirectory(dir="/usr/local/lib")
    except OSError as e:
        raise Skip("no folder in /usr/local/lib: %s" % e) from e


def test_nothing_runs_because_root_owns_it():
    """A clone of root's with a recording in one folder and a program in another, or an environment of Python's own interpreter."""
    if not IS_ROOT:
        raise Skip("needs root, whose folder it is")
    with tempfile.TemporaryDirectory(dir="/run") as top:
        os.chmod(top, 0o755)
        tools, program, ran = bundle(os.path.join(top, "tools"))
        folder = os.path.join(top, "recordings")
        os.mkdir(folder)
        environment = os.path.join(top, "environment")
        site = os.path.join(environment, "lib/python%d.%d/site-packages" % system_python())
        os.makedirs(site)
        os.mkdir(os.path.join(environment, "bin"))
        os.symlink(SYSTEM_PYTHON, os.path.join(environment, "bin/python3"))
        with open(os.path.join(environment, "pyvenv.cfg"), "w", encoding="ascii") as f:
            f.write("home = /usr/bin\n")
        with open(os.path.join(site, "evil.pth"), "w", encoding="ascii") as f:
            f.write("import os; open(%r, 'w')\n" % ran)
        os.symlink("environment", os.path.join(top, "other"))
        for named in (program, os.path.join(environment, "bin/python3"), os.path.join(top, "other/bin/python3")):
            path = shutil.copy(saying("rooted.mtr", torch_lib="", cmdline=json.dumps([named, "train.py"])), folder)
            for cwd in (folder, top, tools, "/"):
                code, _, err = tool("replay", path, cwd=cwd)
                equal(code, 3, "exit of a replay in %s of a recording that names %s: %s" % (cwd, named, err))
                check("replay --python %s %s" % (named, path) in err, "what to type: %s", err)
                check(not os.path.exists(ran), "%s was run", named)
            # Control: named by the user, it runs.
            tool("replay", "--python", named, path)
            check(os.path.exists(ran), "%s does not run at all: this has tried nothing", named)
            os.unlink(ran)
        # Started as "python", a job does not say which one: the command has that around its PyTorch.
        os.symlink("python3", os.path.join(environment, "bin/python"))
        os.makedirs(os.path.join(site, "torch/lib"))
        path = shutil.copy(saying("rooted.mtr", torch_lib=os.path.join(site, "torch/lib"), exe=SYSTEM_PYTHON, cmdline='["python", "train.py"]'), folder)
        err = tool("replay", path)[2]
        check("replay --python %s %s" % (os.path.join(environment, "bin/python"), path) in err, "what to type: %s", err)


def test_only_python_is_run():
    """A recording cannot choose other programs of packages as interpreters, which would do their own work."""
    with place_of_packages() as top:
        os.chmod(top, 0o755)
        folder, program, ran = bundle(os.path.join(top, "sbin"))
        reset, link = os.path.join(folder, "factory-reset"), os.path.join(folder, "python3")
        os.rename(program, reset)
        os.symlink("factory-reset", link)
        for named in (reset, link):
            code, _, err = tool("replay", saying("no-python.mtr", torch_lib="", cmdline=json.dumps([named, "train.py"])))
            equal(code, 2, "exit of a replay that names %s: %s" % (named, err))
            check(not os.path.exists(ran), "%s was run", named)


EXCHANGE = """
import os, sys
folder = sys.argv[1]
os.chdir(folder)
print("ready", flush=True)
os.set_blocking(0, False)
while True:
    try:
        if os.read(0, 1) == b"":
            break
    except BlockingIOError:
        pass
    for to in ("/usr/bin", folder + "/evil"):
        os.symlink(to, "next")
        os.rename("next", "link")
"""


def test_a_link_that_is_exchanged():
    """A link that another user changes all the time: the program at one of its targets is never run."""
    if not IS_ROOT or not shutil.which("setpriv"):
        raise Skip("needs root, to have another user's process")
    folder = scratch("exchanged")
    os.mkdir(folder)
    _, program, ran = bundle("exchanged/evil")
    os.rename(program, os.path.join(folder, "evil/python3"))
    os.chown(folder, 65534, 65534)
    os.chmod(os.path.join(folder, "evil"), 0o777)
    path = saying("exchanged.mtr", torch_lib="", cmdline=json.dumps([os.path.join(folder, "link/python3"), "train.py"]))
    other = subprocess.Popen(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", sys.executable, "-c", EXCHANGE, folder],
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        equal(other.stdout.readline(), "ready\n", "the other user's process")
        for _ in range(40):
            code, _, err = tool("replay", path)
            check(code in (2, 3) and "replay: runs" not in err, "the interpreter was run (%d): %s", code, err)
    finally:
        other.communicate(timeout=30)
    equal(other.returncode, 0, "the other user's process")
    check(not os.path.exists(ran), "the other user's program was run")


def test_a_link_of_another_user():
    """A link whose owner could change it after the check is not followed."""
    if not IS_ROOT:
        raise Skip("needs root, to make a folder of another user's")
    folder = scratch("theirs")
    os.mkdir(folder)
    os.symlink("/usr/bin", os.path.join(folder, "link"))
    os.chown(folder, 65534, 65534)
    path = saying("theirs.mtr", torch_lib="", cmdline=json.dumps([os.path.join(folder, "link/python3"), "train.py"]))
    code, _, err = tool("replay", path)
    equal(code, 3, "exit: %s" % err)
    check("replay: runs" not in err, "the interpreter was run: %s", err)


def test_the_command_that_is_offered():
    """A refusal because others can change the program offers a command to use it anyway; that command works for all names."""
    folder, _, _ = bundle("it's a folder")
    named = os.path.join(folder, "my python")
    os.symlink(python("main"), named)
    path = saying("offered.mtr", torch_lib="", cmdline=json.dumps([named, "train.py"]))
    own = shutil.copy(path, os.path.join(folder, "run 1.mtr"))
    code, _, err = tool("replay", "--alloc-conf", "", own)
    equal(code, 3, "exit: %s" % err)
    with open(named + ".sh", "w", encoding="ascii") as f:
        f.write("#!/bin/sh\nexec %s \"$@\"\n" % python("main"))
    os.chmod(named + ".sh", 0o755)
    os.replace(named + ".sh", named)
    offered = shlex.split(err.rpartition("memtrace-bpf replay ")[2])
    equal(offered, ["--python", named, "--alloc-conf", "", own], "the arguments that are offered")
    code, out, err = tool("replay", *offered)
    check(code == 0 and out, "what was offered ended with %d: %s", code, err)


def test_what_runs_is_said_first():
    """Root's own interpreter may run, after a message that the recording named it."""
    interpreter = "/usr/bin/python3"
    path = saying("system.mtr", torch_lib="", cmdline=json.dumps([interpreter, "train.py"]))
    code, _, err = tool("replay", path)
    equal(code, 2, "exit, of an interpreter without PyTorch: %s" % err)
    check("replay: runs %s, which the recording names" % interpreter in err.splitlines()[0], "it does not say so first: %s", err)


if __name__ == "__main__":
    run(globals())

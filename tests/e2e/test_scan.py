#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# run: alone
"""Files that other people choose: behind links of a process, in folders of recordings, in file systems that do not answer. None of
them acts on a device, and none holds up memtrace-bpf or its figures of others."""
import contextlib
import ctypes
import json
import os
import re
import shutil
import signal
import subprocess
import sys

import chaos
import harness
import server
import test_gpu_holders
from harness import IS_ROOT, PROGRAMS, REPO, TOOL, Skip, check, equal, run, scratch, spawn, tool, until

IN_OPEN = 0x20
MAPS = """
import mmap, sys
kept = []
for path in sys.argv[1:]:
    with open(path, "rb") as f:
        kept.append(mmap.mmap(f.fileno(), 4096, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_EXEC))
print("ready", flush=True)
sys.stdin.read()
"""


class Opens:
    """Counts the opens of a file (inotify). A handle that opens nothing does not count."""

    def __init__(self, path):
        libc = ctypes.CDLL(None, use_errno=True)
        self.fd = libc.inotify_init1(os.O_NONBLOCK)
        check(self.fd >= 0 and libc.inotify_add_watch(self.fd, path.encode(), IN_OPEN) >= 0, "inotify: %s", os.strerror(ctypes.get_errno()))

    def seen(self):
        try:
            return len(os.read(self.fd, 65536)) > 0
        except BlockingIOError:
            return False


def test_no_device_behind_a_link():
    """`check` reads torch/version.py of a target. The target made it a link to a special file, which is never opened."""
    folder, special = scratch("linked/torch"), scratch("special")
    os.makedirs(os.path.join(folder, "lib"))
    library = os.path.join(folder, "lib", chaos.HOOKS)
    shutil.copy(chaos.hooks(), library)
    os.mkfifo(special)
    os.symlink(special, os.path.join(folder, "version.py"))
    storm, opens = chaos.Storm(library), Opens(special)
    code, out, err = tool("check", "-p", str(storm.pid), root=True)
    check("libc10" in out + err or "torch" in (out + err).lower(), "check does not know PyTorch: %s%s", out, err)
    check(not opens.seen(), "the special file was opened (check: exit code %d)", code)
    os.close(os.open(special, os.O_RDONLY | os.O_NONBLOCK))
    check(opens.seen(), "inotify does not show opens here")


def indexed(name, *files):
    """A folder of recordings whose index names these files, each of a process of its own."""
    folder = scratch(name)
    os.makedirs(folder)
    entries = [{"file": file, "kind": "process", "pid": i + 1, "host": "h", "from": 0, "to": 1, "events": 0, "lost": 0, "bytes": 0, "devices": []}
               for i, file in enumerate(files)]
    with open(os.path.join(folder, "index.json"), "w", encoding="ascii") as f:
        json.dump({"memtrace_folder": 1, "version": "0", "recordings": entries, "gaps": []}, f)
    return folder


def mcp_report(folder, recording):
    question = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "report", "arguments": {"recording": recording}}}
    done = subprocess.run([TOOL, "mcp", "--folder", folder], input=json.dumps(question).encode() + b"\n", capture_output=True, check=False, timeout=60)
    return json.loads(done.stdout)["result"]


def test_special_files_of_a_folder():
    """A FIFO and a link in a folder of recordings: each reader says so and ends, without opening either."""
    recording = os.path.join(REPO, "tests", "data", "guide", "base.mtr")
    target = scratch("elsewhere.mtr")
    shutil.copy(recording, target)
    for name, make, said in (("fifo", os.mkfifo, "not a file"), ("link", lambda path: os.symlink(target, path), "symbolic link")):
        folder = indexed("of-" + name, "good.mtr", "bad.mtr")
        shutil.copy(recording, os.path.join(folder, "good.mtr"))
        bad = os.path.join(folder, "bad.mtr")
        make(bad)
        opens = Opens(bad)
        for command in (("report", folder), ("report", bad), ("leaks", folder), ("diff", folder), ("compare", folder),
                        ("export", "parquet", "-o", scratch("tables-" + name), "-f", folder), ("export", "csv", "-o", "-", folder + "#bad.mtr")):
            code, _, err = tool(*command)
            check(code not in (0, None) and said in err and "bad.mtr" in err, "%s: exit code %d: %s", command, code, err)
        answer = mcp_report(scratch(), os.path.basename(folder))
        check(answer["isError"] and said in answer["content"][0]["text"], "mcp: %s", answer)
        check(not opens.seen(), "%s was opened", bad)
        code, out, err = tool("report", folder + "#good.mtr")
        equal(code, 0, "exit code of a report of the other file: %s" % err)
    folder = indexed("of-folders", "rolled")
    with open(os.path.join(folder, "index.json"), "r+", encoding="ascii") as f:
        text = f.read().replace('"process"', '"rolling"')
        f.seek(0)
        f.write(text)
    os.symlink(indexed("elsewhere", "a.mtr"), os.path.join(folder, "rolled"))
    shutil.copy(recording, scratch("elsewhere/a.mtr"))
    code, out, err = tool("report", folder)
    check(code, "a folder behind a link was reported: %s%s", out, err)


class Stalled:
    """A process of another user that maps PyTorch's library from its own file system, which never answers a read. at: another folder
    for that file system."""

    def __init__(self, name, *options, library=chaos.HOOKS, more=(), at=None):
        if not IS_ROOT or not os.path.exists("/dev/fuse"):
            raise Skip("needs root and /dev/fuse")
        if not at:
            at = scratch("fuse-" + name)
            os.makedirs(at)
            os.chmod(at, 0o755)
        os.makedirs(scratch("of-fuse"), exist_ok=True)
        source = shutil.copy(chaos.hooks(), scratch("of-fuse/" + library))
        self.process = spawn([sys.executable, os.path.join(PROGRAMS, "fuse_mount.py"), "stall", *options, source, at, "/usr/bin/env", "python3", "-c",
                              MAPS, os.path.join(at, library), *more])
        self.process.wait_line("^ready", 30)
        self.pid, self.server = harness.children_of(self.process.popen.pid)

    def asked(self):
        return any(line.startswith("asked") for _, line in list(self.process.out))

    def stop(self):
        if self.process.popen.poll() is not None:
            return
        os.kill(self.server, signal.SIGKILL)
        os.kill(self.pid, signal.SIGKILL)
        self.process.wait(30)


def test_watch_all_beside_a_file_system_that_never_answers():
    """Others are found, and the command ends. A file that only its owner can open is not read at all."""
    for name, options in (("closed", ()), ("shared", ("open",)), ("figures", ())):
        watched = name == "figures"
        stalled = Stalled(name, *options, **{"library": "libc10_cuda.so", "more": [chaos.hooks()]} if watched else {})
        try:
            storm = chaos.Storm()
            watch = spawn([TOOL, "watch", "--all"], root=True)
            watch.wait_line("watching PID %d " % storm.pid, 60)
            if watched:
                watch.wait_line("watching PID %d " % stalled.pid, 60)
            if options:
                watch.wait_line("PID %d .* is left out" % stalled.pid, 60, stream="err")
            equal(stalled.asked(), bool(options), "the file system was asked")
            watch.signal(signal.SIGINT)
            equal(watch.wait(30), 0, "exit code of watch")
            check(not any(t.is_alive() for t in watch.readers), "a process that cannot be ended holds the output of watch open")
            storm.process.stop()
        finally:
            stalled.stop()


def test_serve_beside_a_process_that_cannot_be_read():
    """The figures of a target lie in a file system that never answers. Health says that searches are stale; then the process is left
    out, and the figures of others go on."""
    stalled = Stalled("cuda", library="libc10_cuda.so")
    try:
        storm = chaos.Storm()
        s = server.Server("--target", "stalled=fuse-cuda/libc10_cuda", "--target", "storm=%d" % storm.pid)
        status = lambda: s.get("/api/health").expect().json["status"]
        until(stalled.asked, "the process is read")
        until(lambda: status() == "stale", "health is stale")
        age = re.search(r"^memtrace_serve_scan_age_seconds (.*)$", s.get("/metrics").expect().body.decode(), re.M)
        check(age and float(age[1]) > 5, "age of the last search: %s", age and age[1])
        s.process.wait_line("PID %d does not let itself be read" % stalled.pid, 60, stream="err")
        until(lambda: status() == "ok", "health is ok again")
        check(s.get("/api/health").expect().json["scan_age_s"] < 10, "age of the last search")
        pids = lambda: [p["pid"] for p in s.get("/api/targets").expect().json["processes"]]
        until(lambda: stalled.pid not in pids() and storm.pid in pids(), "the targets are those that can be read")
        samples = lambda: s.get("/api/targets/%d/history" % storm.pid).expect().json["samples"]
        before = samples()[-1]["time"]
        until(lambda: samples()[-1]["time"] > before, "the figures of the other process go on")
        check('memtrace_serve_left_out{what="processes"} 1' in s.get("/metrics").expect().body.decode(), "the process is counted")
        storm.process.stop()
    finally:
        stalled.stop()
    s.stop()


def test_serve_ends_while_a_process_cannot_be_read():
    """The kernel keeps the process that looks in a read, also after SIGKILL. A signal ends serve all the same."""
    stalled = Stalled("end", library="libc10_cuda.so")
    try:
        s = server.Server("--target", "stalled=fuse-end/libc10_cuda")
        until(stalled.asked, "the process is read")
        s.process.signal(signal.SIGTERM)
        equal(s.process.wait(60), 0, "exit code of serve")
    finally:
        stalled.stop()


def test_ps_beside_a_container_that_cannot_be_read():
    """A container has its name in a file below its own root, which may be of a file system that never answers. Its process is listed
    without the name, and others with all."""
    identity = "%064x" % (os.getpid() << 202)
    stalled = Stalled("container", "open", library=".containerenv", more=[chaos.hooks()], at="/run")
    try:
        with test_gpu_holders.grouped(stalled.pid, "libpod-%s.scope" % identity):
            other = spawn([sys.executable, "-c", "print('ready', flush=True); input()", "another"])
            other.wait_line("^ready")
            env = test_gpu_holders.machine("process 0 %d 4G" % stalled.pid, "process 0 %d 2G" % other.pid)
            code, out, err = tool("ps", "--device", "--json", root=True, env=env)
            equal(code, 0, "ps --device: %s" % err)
            document = json.loads(out)
            (device,) = document["devices"]
            test_gpu_holders.adds_up(device)
            h, o = (test_gpu_holders.row(device, pid) for pid in (stalled.pid, other.pid))
            check(stalled.asked(), "the file system was not asked")
            equal((document["unanswered"], h["unanswered"], h["container"], h["command"], h["user"], h["bytes"]),
                  (1, True, identity[:12], "[python3]", "nobody", 4 << 30), "the container's process")
            check(not o["unanswered"] and o["command"].endswith("another"), "the other process: %s", o)
            _, out, _ = tool("ps", "--device", root=True, env=env)
            check("1 process did not answer within half a second" in out, "text: %s", out)
            code, out, err = tool("ps", "--json", root=True)
            equal(code, 0, "ps: %s" % err)
            equal([p["container"] for p in json.loads(out)["processes"] if p["pid"] == stalled.pid], [identity[:12]], "ps: %s" % out)
            stalled.stop()
    finally:
        stalled.stop()


def test_ps_beside_a_user_whose_processes_cannot_be_read():
    """After two silent processes of a user, only the kernel is asked about the user's other ones. Other users' are read."""
    with contextlib.ExitStack() as stack:
        pids = []
        for i in range(2):
            stalled = Stalled("user-%d" % i, "open", library=".containerenv", more=[chaos.hooks()], at="/run")
            stack.callback(stalled.stop)
            stack.enter_context(test_gpu_holders.grouped(stalled.pid, "libpod-%064x.scope" % (os.getpid() << 202 | i + 1)))
            stack.callback(stalled.stop)
            pids.append(stalled.pid)
        for user in ("65534", "0"):
            other = spawn(["setpriv", "--reuid", user, sys.executable, "-c", "print('ready', flush=True); input()", "another"])
            other.wait_line("^ready")
            pids.append(other.pid)
        env = test_gpu_holders.machine(*("process 0 %d 1G" % pid for pid in pids))
        code, out, err = tool("ps", "--device", "--json", root=True, env=env)
        equal(code, 0, "ps --device: %s" % err)
        (device,) = json.loads(out)["devices"]
        rows = [test_gpu_holders.row(device, pid) for pid in pids]
        equal([r["unanswered"] for r in rows], [True, True, True, False], "rows: %s" % rows)
        check(rows[3]["command"].endswith("another"), "the other user's process: %s", rows[3])


if __name__ == "__main__":
    run(globals())

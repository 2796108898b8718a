#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# run: long
"""Errors name the failed action, the object, the reason and a remedy, with the right exit code, and leave no files."""
import json
import os
import re
import shlex
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

import harness
import test_manual
from harness import (Skip, check, device, equal, finish, interrupt, own, record, report, run, scratch, spawn, sudo,
                     tool, training, workload)

FULL = "memtrace-bpf: standard output: cannot write: the disk is full (no space left on device); free some space, or write elsewhere\n"
OK, FAILED, UNUSABLE, NOT_PERMITTED, USAGE = 0, 1, 2, 3, 64


def refused(done, code, *words):
    """The exit code, and words that the message must have; it has at most a few lines."""
    got, out, err = done
    check(got == code, "exit code %d, expected %d; stderr: %r", got, code, err[-800:])
    for word in words:
        check(word.lower() in err.lower(), "%r is not in the message %r", word, err[-800:])
    if code != USAGE:
        lines = err.strip().splitlines()
        check(1 <= len(lines) <= 4, "%d lines of message: %r", len(lines), err[-800:])
        check(all(x.startswith("memtrace-bpf: ") for x in lines), "a line that does not say who speaks: %r", err)
    check(out == "", "a refusal wrote to standard output: %r", out[:200])


def ended_pid():
    p = subprocess.Popen(["true"])
    p.wait()
    return p.pid


def sleeper():
    return spawn(["sleep", "120"])


def test_usage():
    refused(tool(), USAGE)
    refused(tool("no-such-command"), USAGE, "no-such-command")
    for command in ("record", "report", "export"):
        refused(tool(command), USAGE)
        refused(tool(command, "--no-such-option"), USAGE, "no-such-option")
    refused(tool("-p", "abc"), USAGE, "abc")
    for bad in ("0", "-1", "1x", "4294967297", "99999999999999999999"):
        refused(tool("record", "-p", bad), USAGE)
        refused(tool("check", "-p", bad), USAGE)
        refused(tool("dump", "-p", bad), USAGE)
    for bad in ("0", "-5s", "10x", "s", "1e400s"):
        refused(tool("record", "-p", "1", "-d", bad), USAGE)
    refused(tool("record", "-p", "1", "--max-size", "12Q"), USAGE)
    refused(tool("record", "-p", "1", "--max-events", "0"), USAGE)
    refused(tool("record", "-p", "1", "--steps", "-3"), USAGE)
    refused(tool("export", "no-such-format", "x.mtr"), USAGE, "no-such-format")
    refused(tool("report", "--at", "noon", "x.mtr"), USAGE, "noon")
    refused(tool("report", "--by", "colour", "x.mtr"), USAGE, "colour")
    refused(tool("report", "--format", "xml", "x.mtr"), USAGE, "xml")
    refused(tool("dump"), USAGE, "-p")
    refused(tool("dump", "-p", "1", "--by", "colour"), USAGE, "colour")
    refused(tool("dump", "-p", "1", "--format", "xml"), USAGE, "xml")


def test_no_option_is_ignored():
    """An option without a meaning here is an error that says where it has one."""
    guide = os.path.join(harness.REPO, "tests", "data", "guide")
    base, job = os.path.join(guide, "base.mtr"), os.path.join(guide, "job")
    refused(tool("report", job, "--columns", "size"), USAGE, "--columns", "add --apart")
    equal(tool("report", job, "--columns", "size", "--apart")[0], OK, "columns of reports apart")
    refused(tool("report", job, "--together", "--apart"), USAGE, "--apart cannot be combined with --together")
    refused(tool("report", job, "--apart", "--side-by-side"), USAGE, "--apart cannot be combined with")
    refused(tool("report", base, "--tree", "--by", "line"), USAGE, "only with --by module")
    refused(tool("report", base, "--csv", "raw"), USAGE, "--csv is for the format csv")
    refused(tool("diff", base, base, "--csv", "raw"), USAGE, "--csv is for the format csv")
    refused(tool("diff", base, base, "--format", "flamegraph", "--top", "2"), USAGE, "--top")
    for name in ("csv", "ndjson", "timeline", "perfetto", "tensorboard"):
        refused(tool("export", name, base, "--at", "peak", "-o", scratch("x")), USAGE, "--at", name)
    for name in ("html", "perfetto", "ndjson", "parquet"):
        refused(tool("export", name, base, "--csv", "raw", "-o", scratch("x")), USAGE, "--csv is for the format csv")
    check(not os.path.exists(scratch("x")), "a refused export wrote a file")
    for command, more in (("dump", "--children"), ("leaks", ""), ("check", ""), ("ctl", "")):
        refused(tool(command, "-p", "1", "-p", "2"), USAGE, "-p 1 and -p 2 cannot be combined", more)
    equal(tool("check", "-p", str(os.getpid()), "-p", str(os.getpid()))[0] == USAGE, False, "the same PID twice")
    for option, value in (("--capture", "2steps"), ("--cost", "1%"), ("--max-captures", "3"), ("--cooldown", "1s"), ("--max-size", "1G")):
        refused(tool("watch", "-p", "1", option, value), USAGE, option, "-o FOLDER")


def test_help_and_version():
    """All common ways to request them, for every command; `run` passes on its command's options."""
    equal(tool("-h"), tool("--help"), "-h and --help")
    equal(tool("help"), tool("--help"), "help and --help")
    equal(tool("help", "live"), tool("-p", "1", "--help"), "help live")
    for command in test_manual.COMMANDS:
        code, out, err = tool(command, "--help")
        equal((code, err), (OK, ""), "code and stderr of %s --help" % command)
        check("memtrace-bpf " + command in out and len(out) > 100, "thin help: %r", out)
        equal(tool(command, "-h"), (code, out, err), "%s -h" % command)
        equal(tool("help", command), (code, out, err), "help %s" % command)
        equal(tool(command, "--version"), tool("--version"), "%s --version" % command)
    code, out, _ = tool("--version")
    check(code == OK and out.startswith("memtrace-bpf"), "version: %r", out)
    equal(tool("version"), tool("--version"), "version and --version")
    code, out, err = tool("run", "--no-trace", "--", "echo", "-h", "--version", "--no-such")
    equal((code, out), (OK, "-h --version --no-such\n"), "run of a command with such options: %s" % err)
    refused(tool("help", "reprot"), USAGE, "reprot", "report")


def test_suggestions():
    """Typing errors get a suggestion, in at most two lines that name where options are listed."""
    for args, words in ((("reprot", "x.mtr"), "did you mean report?"), (("expotr",), "did you mean export?"), (("hlep",), "did you mean help?"),
                        (("no-such.mtr",), "memtrace-bpf report no-such.mtr"), (("1234",), "memtrace-bpf -p 1234"),
                        (("/etc/hostname",), "memtrace-bpf report /etc/hostname"), ((__file__, "--epochs", "1 2"), "; use memtrace-bpf run -- python %s --epochs '1 2'\n" % __file__), (("nothing-like-it",), "unknown command 'nothing-like-it'"),
                        (("report", "--filtre", "x", "y"), "'--filtre'; did you mean --filter?"), (("report", "--fliter=x", "y"), "--filter?"),
                        (("-p", "1", "--topp", "3"), "did you mean --top?"), (("record", "-p", "1", "--log-levle", "debug"), "--log-level?"),
                        (("run", "--vrma", "8G", "--", "true"), "did you mean --vram?"), (("check", "foo"), "-p PID"),
                        (("record", "-p"), "-p needs a value: -p PID\n"), (("report", "x.mtr", "--at"), "--at needs a value: --at="),
                        (("record", "--formt", "json"), "did you mean --format? It is for "), (("record", "--formt", "json"), "; record has --log-format"),
                        (("record", "--top", "5"), "unknown option '--top': it is for "), (("record", "--durtaion", "5s"), "did you mean --duration?\n"),
                        (("record", "--no-modles"), "did you mean --no-modules?\n"), (("report", "--tpo", "5"), "did you mean --top?\n"),
                        (("report", "--colmuns", "size"), "did you mean --columns?\n"), (("report", "--by", "mdoule"), "did you mean module?\n"),
                        (("estimate", "--min-varm", "--", "x"), "did you mean --min-vram?\n"), (("estimate", "--alloc-cnof=x", "--", "x"), "--alloc-conf?\n"),
                        (("leaks", "--setps", "5"), "did you mean --steps?\n"), (("diff", "--tp", "3"), "did you mean --top?\n"),
                        (("dump", "--byy", "holder"), "did you mean --by?\n"), (("export", "--outptu=x", "html"), "did you mean --output?\n"),
                        (("watch", "--coldown", "5s"), "did you mean --cooldown?\n"), (("serve", "--lisetn", "x"), "did you mean --listen?\n"),
                        (("replay", "--serach", "x"), "did you mean --search?\n"), (("compare", "--formta", "json"), "did you mean --format?\n"),
                        (("check", "--explian"), "did you mean --explain?\n"), (("ctl", "--pdi", "1"), "did you mean --pid?\n"),
                        (("run", "--insdie", "x"), "did you mean --inside?\n"),
                        (("export", "flamegrap", "x.mtr"), "did you mean flamegraph?"),
                        (("record", "out.mtr"), "-o FILE")):
        code, out, err = tool(*args)
        equal((code, out), (USAGE, ""), "%s: exit and output" % (args,))
        check(words in err and err.startswith("memtrace-bpf"), "%s: the message is %r", args, err)
        lines = harness.without_processes(err).splitlines()
        check(len(lines) <= 2 and "Try" not in "".join(lines) and harness.TOOL not in "".join(lines), "%s: its form: %r", args, err)
        check(len(lines) == 1 or re.fullmatch(r"See `memtrace-bpf help( \w+)?`\.", lines[1]), "%s: the last line: %r", args, err)
    for args in (("report", "--completely-different", "x"), ("report", "-z", "x"), ("report", "--top"), ("report", "--b", "line", "x")):
        code, _, err = tool(*args)
        check(code == USAGE and "did you mean" not in err and err.endswith("See `memtrace-bpf help report`.\n"), "%s: %d, %r", args, code, err)


def check_ending_capture():
    """A capture that ends while all are listed is left out; asked for alone, it does not answer."""
    path = "/run/memtrace-bpf/%d.%d.sock" % (ended_pid(), os.getpid())
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as ending:
        ending.bind(path)
        try:
            ending.listen()
            threading.Thread(target=lambda: [ending.accept()[0].close() for _ in range(2)], daemon=True).start()
            code, _, err = tool("ctl", "status", root=True)
            equal((code, err), (OK, ""), "status while a capture ends")
            refused(tool("ctl", "-p", str(os.getpid()), "status", root=True), FAILED, "does not answer")
        finally:
            os.unlink(path)


def test_ctl():
    """A wrong action is wrong without a capture, too; a waiting capture names what it waits for; without a capture here, others
    are listed."""
    refused(tool("ctl", "stauts", root=True), USAGE, "'stauts'", "did you mean status?")
    refused(tool("ctl", "stat", root=True), USAGE, "did you mean status?")
    refused(tool("ctl", "-p", "1", "dance", root=True), USAGE, "unknown action 'dance'")
    pid = str(ended_pid())
    refused(tool("ctl", "-p", pid, "status", root=True), UNUSABLE, "no capture of PID " + pid, "record" if harness.IS_ROOT else "sudo")
    if harness.IS_ROOT and shutil.which("setpriv"):
        refused(as_nobody("ctl", "-p", pid, "status"), UNUSABLE, "no capture of yours", "sudo memtrace-bpf ctl")
    recorder = spawn([harness.TOOL, "record", "--name", "no-such-job-%s" % pid, "--follow", "-o", scratch("ctl") + "/"], root=True)
    recorder.wait_line("waiting for", 20, stream="err")
    code, out, err = tool("ctl", "-p", str(recorder.pid), "status", root=True)
    equal((code, err), (OK, ""), "status of a capture that waits")
    check("waits for a process that matches 'no-such-job-%s'" % pid in out, "what it says: %r", out)
    code, out, _ = tool("ctl", "-p", str(recorder.pid), "--format", "json", "status", root=True)
    check('"processes":[]' in out and '"waiting_for":"a process' in out, "as JSON: %r", out)
    other = spawn([harness.TOOL, "record", "--name", "no-such-job-%s" % pid, "--follow", "-o", scratch("ctl2") + "/"], root=True)
    other.wait_line("waiting for", 20, stream="err")
    code, out, err = tool("ctl", "status", root=True)
    equal((code, err), (OK, ""), "status where two captures run")
    check(out.count("waits for a process that matches 'no-such-job-%s'" % pid) == 2, "what it says of two: %r", out)
    code, out, err = tool("ctl", "status", "--json", root=True)
    equal((code, err), (OK, ""), "status as JSON where two captures run")
    check({recorder.pid, other.pid} <= {json.loads(line)["capturer"] for line in out.splitlines()}, "no line for each capture: %r", out)
    if harness.IS_ROOT:
        check_ending_capture()
    code, _, err = tool("ctl", "save", root=True)
    equal(code, USAGE, "exit code of save where two captures run")
    check("-p %d: several processes, captured by PID" % recorder.pid in err, "which captures there are: %r", err)
    for p in (recorder, other):
        finish(p)
        check("nothing was written: no recorded process allocated a tensor" in p.stderr(), "what is said at the end: %r", p.stderr())
    check(not os.path.exists(scratch("ctl")), "an empty folder stays")


def test_containers_choose():
    """A PID is already chosen: a container besides it would be ignored."""
    for command in ((), ("record",), ("watch",)):
        for where in ("--container", "--pod"):
            refused(tool(*command, "-p", "1", where, "x"), USAGE, "-p and %s cannot be combined" % where, "--name or --all")


def test_no_such_pid():
    pid = ended_pid()
    for command in (("record", "-o", scratch("none.mtr")), (), ("check",)):
        code, _, err = tool(*command, "-p", str(pid), root=True)
        equal(code, UNUSABLE, "exit code of %s" % (command,))
        check(str(pid) in err, "the PID is not in %r", err)
    check(not os.path.exists(scratch("none.mtr")), "an output was left behind")
    refused(tool("record", "-p", str(pid), "-o", scratch("none.mtr"), root=True), UNUSABLE, "no process", str(pid))
    refused(tool("dump", "-p", str(pid), root=True), UNUSABLE, "no process", str(pid))


def test_not_python():
    p = sleeper()
    refused(tool("record", "-p", str(p.popen.pid), "--wait-for", "torch", "-o", scratch("sleep.mtr"), root=True), UNUSABLE, "python", str(p.popen.pid))
    check(not os.path.exists(scratch("sleep.mtr")), "an output was left behind")
    refused(tool("dump", "-p", str(p.popen.pid), root=True), UNUSABLE, "python", str(p.popen.pid))
    check(p.alive(), "the process that was looked at ended")


def as_nobody(*args, cwd="/"):
    """tool() as nobody, from a copy that nobody can run."""
    if not shutil.which("setpriv"):
        raise Skip("setpriv is not here")
    copy = scratch("as-nobody")
    binary = os.path.join(copy, "memtrace-bpf")
    if not os.path.exists(copy):
        os.mkdir(copy)
        os.chmod(copy, 0o755)
        shutil.copy(harness.TOOL, copy)
        os.chmod(binary, 0o755)
    env = {k: v for k, v in os.environ.items() if k != "XDG_RUNTIME_DIR"}
    done = subprocess.run([*sudo(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]), binary, *args], capture_output=True,
                          text=True, timeout=30, check=False, cwd=cwd, env=env)
    return done.returncode, done.stdout, done.stderr


def test_not_permitted():
    """As nobody on another user's process: the message names exactly what is missing."""
    target = training()
    pid, output = str(target.popen.pid), "/tmp/none-%d.mtr" % os.getpid()
    refused(as_nobody("record", "-p", pid, "-o", output), NOT_PERMITTED, "sudo")
    check(not os.path.exists(output), "an output was left behind")
    done = as_nobody("dump", "-p", pid)
    refused(done, NOT_PERMITTED, "another user's", "sudo", "CAP_SYS_PTRACE")
    check("BPF" not in done[2] and "PERFMON" not in done[2], "dump asks for what it does not need: %s", done[2])
    code, _, err = as_nobody("check")
    equal(code, NOT_PERMITTED, "exit code of check as nobody (%r)" % err[-300:])
    done = as_nobody("run", "-o", output, "--", "true")
    refused(done, NOT_PERMITTED, "--inside", "sudo")
    check(target.alive(), "the target ended")


def test_python_without_torch():
    target = spawn([sys.executable, os.path.join(harness.WORKLOADS, "plain.py")])
    target.wait_line("^ready")
    refused(tool("dump", "-p", str(target.popen.pid), root=True), UNUSABLE, "torch is not imported", str(target.popen.pid))
    recorder = spawn([harness.TOOL, "record", "-p", str(target.popen.pid), "--wait-for", "torch", "-o", scratch("plain.mtr")], root=True)
    recorder.wait_line("waiting.*import torch", 10, stream="err")
    equal(interrupt(recorder), OK, "exit code after Ctrl-C while waiting")
    check(not os.path.exists(scratch("plain.mtr")), "an empty recording was left behind")
    with open(scratch("precious.mtr"), "w", encoding="ascii") as f:
        f.write("precious")
    recorder = spawn([harness.TOOL, "record", "-p", str(target.popen.pid), "--wait-for", "torch", "-o", scratch("precious.mtr"), "-f"],
                     root=True)
    recorder.wait_line("waiting.*import torch", 10, stream="err")
    equal(interrupt(recorder), OK, "exit code after Ctrl-C while waiting, with -f")
    with open(scratch("precious.mtr"), encoding="ascii") as f:
        equal(f.read(), "precious", "the file that a capture that never began was to replace")
    recorder = spawn([harness.TOOL, "record", "-p", str(target.popen.pid), "--wait-for", "torch", "-o", scratch("plain.mtr")], root=True)
    recorder.wait_line("waiting.*import torch", 10, stream="err")
    target.signal(signal.SIGKILL)
    equal(recorder.wait(10), UNUSABLE, "exit code when the target ends before importing torch")
    check("without importing torch" in recorder.stderr(), "message: %r", recorder.stderr())


def test_late_import():
    target = workload("late_import.py", start=spawn)
    target.wait_line("^ready")
    path = scratch("late.mtr")
    recorder = record(target.popen.pid, path, "--wait-for", "torch", wait=False)
    recorder.wait_line("waiting.*import torch", 10, stream="err")
    target.send()
    recorder.wait_line("attached to PID", 60, stream="err")
    target.wait_line("^imported", 60)

    def of_job(doc):
        return [r for r in doc["rows"] if r["file"] and r["file"].endswith("late_import.py")]

    harness.until_recorded(path, lambda doc: sum(r["count"] for r in of_job(doc)) >= 20, "20 blocks of the late importer", "--at", "end")
    finish(recorder)
    rows = of_job(report(path))
    equal({(r["function"], r["bytes"] // r["count"]) for r in rows}, {("main", 4096)}, "its rows")


def test_wait_counts_as_duration():
    target = workload("late_import.py", start=spawn)
    target.wait_line("^ready")
    recorder = record(target.popen.pid, scratch("never.mtr"), "--wait-for", "torch", "-d", "1s", wait=False)
    equal(recorder.wait(20), 2, "exit code")
    check("has not imported torch within the duration" in recorder.stderr(), "message: %r", recorder.stderr())
    target.stop()


def test_silence_is_said():
    os.mkdir(scratch("silent"))
    target = workload("exact.py", scratch("silent/e.json"), scratch("silent"), cwd=scratch("silent"))
    target.wait_line("^ready", 120)
    recorder = record(target.popen.pid, scratch("silent.mtr"))
    begin = time.monotonic()
    recorder.wait_line("no event for 5 s", 9, stream="err")
    check(time.monotonic() - begin > 4, "said so before the time")
    target.send()
    target.wait_line("^done", 60)
    finish(recorder)
    check(device(report(scratch("silent.mtr")))["allocs"] > 1000, "nothing came after the silence")


def test_end_is_said():
    """The start of a capture says when it will end, and the suggested next command fits."""
    pid = str(training().popen.pid)
    for n, (options, until, command) in enumerate(((("-d", "300ms"), "0.30 s have passed", "report"),
                                                   (("--until", "peak>1 and allocated>1"), "peak>1 and allocated>1 holds", "report"),
                                                   (("--every", "300ms", "-d", "100ms", "--windows", "2"), "2 windows are written", "compare"),
                                                   (("--steps", "1", "--skip", "1"), "1 step has passed", "report"))):
        folder = scratch("until-%d" % n)
        code, _, err = tool("record", "-p", pid, "-o", folder + "/", *options, root=True)
        equal(code, OK, "record %s: %s" % (options, err))
        check("attached to PID %s; until %s, Ctrl-C stops earlier" % (pid, until) in err, "%s: when it ends: %s", options, err)
        check("next: memtrace-bpf %s %s" % (command, folder) in err, "%s: what comes next: %s", options, err)
    recorder = record(pid, scratch("until.mtr"), wait=False)
    recorder.wait_line("attached to PID %s; until it exits" % pid, 30, stream="err")
    finish(recorder)


def test_output_exists():
    path = scratch("there.mtr")
    with open(path, "w", encoding="ascii") as f:
        f.write("precious")
    target = training()
    refused(tool("record", "-p", str(target.popen.pid), "-o", path, root=True), FAILED, "exists", "-f", path)
    with open(path, encoding="ascii") as f:
        equal(f.read(), "precious", "the file that was there")
    code, _, err = tool("record", "-p", str(target.popen.pid), "-o", path, "-f", "-d", "500ms", root=True)
    equal(code, OK, "with -f: %s" % err[-300:])
    report(path)
    refused(tool("record", "-p", str(target.popen.pid), "--rolling", "1M", "-o", path, root=True), FAILED, path, "it is a file", "-o FOLDER/")
    refused(tool("record", "-p", str(target.popen.pid), "-o", path + "/x.mtr", root=True), FAILED, path, "a file, not a folder")
    refused(tool("record", "-p", str(target.popen.pid), "-o", scratch("nowhere/x.mtr"), root=True), FAILED, "does not exist; make it first")
    check(target.alive(), "the target ended")


def test_disk_full():
    target = training()
    pid = str(target.popen.pid)
    code, _, err = tool("record", "-p", pid, "-o", "/dev/full", "-f", "-d", "3s", root=True)
    check(code == FAILED and "no space left" in err.lower(), "-o /dev/full: %d, %r", code, err[-400:])
    check("attached" not in err, "attached before it knew that nothing can be written: %r", err)

    mount = scratch("tiny")
    os.mkdir(mount)
    done = subprocess.run(sudo(["mount", "-t", "tmpfs", "-o", "size=128k,mode=777", "tmpfs", mount]), capture_output=True,
                          text=True, check=False)
    if done.returncode:
        raise Skip("cannot mount a tmpfs: " + done.stderr.strip())
    try:
        path = os.path.join(mount, "full.mtr")
        code, _, err = tool("record", "-p", pid, "-o", path, "-d", "60s", root=True, seconds=90)
        check(code == FAILED and "no space left" in err.lower(), "tiny tmpfs: %d, %r", code, err[-400:])
        own(path)
        code, out, err = tool("report", "--format", "json", path)
        check(code == OK and '"complete":false' in out.replace(" ", ""), "report of it: %d, %r", code, err[-400:])
        check("without an end" in err, "does not say that it is cut short: %r", err)
    finally:
        subprocess.run(sudo(["umount", mount]), check=False)
    code, _, err = tool("report", "--format", "json", scratch("nothing-here.mtr"))
    equal(code, UNUSABLE, "report of no file: %r" % err)
    check(target.alive(), "the target ended")


def test_report_to_full_disk():
    target = training()
    path = scratch("small.mtr")
    equal(tool("record", "-p", str(target.popen.pid), "-o", path, "-d", "500ms", root=True)[0], OK, "record")
    own(path)
    with open("/dev/full", "wb") as full:
        for args in (("report", path), ("report", "--format", "json", path), ("export", "folded", "-o", "-", path), ("help",), ("compare", path),
                     ("leaks", path), ("diff", path, path), ("report", "--format", "html", path), ("report", "--json-schema"),
                     ("help", "record", "--all")):
            done = subprocess.run([harness.TOOL, *args], stdout=full, stderr=subprocess.PIPE, text=True, timeout=30, check=False)
            equal((done.returncode, done.stderr), (FAILED, FULL), "%s to a full disk" % (args,))
    for command in ("report", "leaks"):
        equal(tool(command, path, "-o", "/dev/full"), (FAILED, "", FULL.replace("standard output", "/dev/full")), "%s -o to a full disk" % command)


def test_file_size_limit():
    """A file size limit is an error like a full disk, and no partial file stays."""
    path, page = scratch("limit.mtr"), scratch("limit.html")
    equal(tool("record", "-p", str(training().popen.pid), "-o", path, "-d", "500ms", root=True)[0], OK, "record")
    own(path)
    done = subprocess.run(["bash", "-c", 'ulimit -f 16; exec "$@"', "bash", harness.TOOL, "export", "html", path, "-o", page], capture_output=True,
                          text=True, timeout=60, check=False)
    refused((done.returncode, done.stdout, done.stderr), FAILED, page, "cannot write", "ulimit -f")
    check(not os.path.exists(page), "half a page was left behind")
    done = subprocess.run(["bash", "-c", 'ulimit -f 16; exec "$@"', "bash", harness.TOOL, "run", "--no-trace", "--", "bash", "-c", "trap -p XFSZ; dd if=/dev/zero of=%s" % page],
                          capture_output=True, text=True, timeout=60, check=False)
    equal((done.returncode, done.stdout), (128 + signal.SIGXFSZ, ""), "what a command of run has for this signal: %s" % done.stderr)


def test_closed_standard_files():
    """With standard error closed no message goes into an output file; closed standard output is an error."""
    target = training()
    path, page = scratch("closed.mtr"), scratch("closed.txt")

    def closed(files, *args, root=False):
        command = ["sh", "-c", '"$@" ' + files, "sh", harness.TOOL, *args]
        return subprocess.run(sudo(command) if root else command, capture_output=True, timeout=60, check=False).returncode

    equal(closed("2>&- </dev/null", "record", "-p", str(target.popen.pid), "-o", path, "-d", "500ms", root=True), OK, "record")
    own(path)
    check(report(path)["capture"]["complete"], "a recording made with standard error closed is not whole")
    with open(path, "rb") as f:
        data = f.read()
    with open(path, "wb") as f:
        f.write(data[:-4])  # damaged, so that there is a warning
    for files in ("2>&-", ">&- 2>&-", "<&- >&- 2>&-"):
        equal(closed(files, "export", "folded", "-f", "-o", page, path), OK, "export with %s" % files)
        with open(page, encoding="utf-8") as f:
            lines = f.read().splitlines()
        check(lines and all(x.startswith("cpu;") for x in lines), "with %s the export is %r", files, lines[:2])
    equal(closed(">&-", "report", path), FAILED, "report with standard output closed")
    equal(closed("<&-", "report", "-"), UNUSABLE, "report of a standard input that is closed")


def test_not_a_recording():
    for path, code in (("/etc/passwd", UNUSABLE), ("/dev/null", UNUSABLE), (scratch("absent.mtr"), UNUSABLE), ("/tmp", UNUSABLE)):
        refused(tool("report", path), code, path)
        refused(tool("export", "folded", "-o", "-", path), code, path)
        refused(tool("diff", path), code, path)
    refused(tool("diff", small_recording()), USAGE, "no second recording given")


def small_recording(_made=[]):
    if not _made:
        path = scratch("small-cpu.mtr")
        equal(tool("record", "-p", str(training().popen.pid), "-o", path, "-d", "500ms", root=True)[0], OK, "record")
        own(path)
        _made.append(path)
    return _made[0]


def test_what_is_not_there():
    """Requests for data that a recording lacks: exit code 2 or a warning, with the available data."""
    path = small_recording()
    duration = report(path)["capture"]["duration"]
    for at in ("999", "1h"):
        code, out, err = tool("report", "--at", at, "--format", "json", path)
        equal((code, json.loads(out)["time"]), (OK, duration), "--at %s: %s" % (at, err))
        check("is after its end; showing its end, at" in err, "--at %s: what is said: %s", at, err)
    equal(tool("report", "--at", "999", "--format", "csv", path)[1], tool("report", "--at", "end", "--format", "csv", path)[1], "rows after the end")
    code, out, err = tool("diff", "--at", "999,end", path, path)
    check(code == OK and "is after its end" in err and "999" not in out, "diff: %s%s", out, err)
    check("\nAt 0." in tool("report", "--at", "0.1", path)[1] and "is after" not in tool("report", "--at", "0.1", path)[2], "a time within it: %s", out)
    for filter_, words in (("module:no_such", "modules here: "), ("module:blocks.0.mpl.up", "did you mean blocks.0.mlp.up"), ("phase:data", "phases here: "),
                           ("class:Conv", "classes here: "), ("no-such-word", "--by module")):
        code, out, err = tool("report", "--filter", filter_, path)
        check(code == OK and "filtered row" in out, "--filter %s: %d: %s", filter_, code, out)
        check("nothing matches '%s'" % filter_ in err and words in err, "--filter %s: what is said: %s", filter_, err)
    for filter_ in ("module:blocks", "-module:no_such"):
        equal(tool("report", "--filter", filter_, path)[2], "", "a filter that keeps something")
    refused(tool("report", "--by", "segment", path), UNUSABLE, "try --by line")
    check("cuda" not in tool("report", "--by", "segment", path)[2], "a device is suggested that is not there")
    refused(tool("export", "snapshot", path, "-o", scratch("no.pickle")), UNUSABLE, path, "needs CUDA events")
    refused(tool("export", "folded", "--at", "oom", path, "-o", "-"), UNUSABLE, "no out-of-memory")
    refused(tool("leaks", "--steps", "5", path), USAGE, "a number of steps needs a running process", "lists each step")
    equal(tool("leaks", "--steps", path)[0], OK, "leaks --steps FILE")


def test_an_export_fails_once():
    """Formats that read a recording twice give the error of the first reading, and write nothing."""
    guide = os.path.join(harness.REPO, "tests", "data", "guide")
    with open(os.path.join(guide, "base.mtr"), "rb") as f, open(scratch("short.mtr"), "wb") as short:
        short.write(f.read(3000))
    for name in ("csv", "ndjson", "timeline", "perfetto", "tensorboard", "snapshot", "html"):
        code, out, err = tool("export", name, scratch("short.mtr"), "-o", "-")
        equal((code, out), (UNUSABLE, ""), "code and output of " + name)
        check("stops at byte" in err and err.count("\n") == 1, "%s: %r", name, err)
    for name in ("snapshot", "parquet"):
        code, _, err = tool("export", name, os.path.join(guide, "oom.mtr"), "--at", "mark:x", "-o", scratch("no-mark"))
        check(code == UNUSABLE and "no mark 'x'" in err and err.count("\n") == 1, "%s: %d, %r", name, code, err)
        check(not os.path.exists(scratch("no-mark")), "%s left its output", name)


def test_no_room_for_a_copy_of_standard_input():
    # Two writes of 64 KiB: the second one is cut at the limit, without an error of its own.
    with open(os.path.join(harness.REPO, "tests", "data", "guide", "oom.mtr"), "rb") as f:
        data = f.read()
    done = subprocess.run(["sh", "-c", "ulimit -f %d; trap '' XFSZ; exec \"$0\" replay -" % (100 << 10 >> 9), harness.TOOL], input=data,
                          capture_output=True, timeout=60, check=False)
    refused((done.returncode, done.stdout.decode(), done.stderr.decode()), FAILED, "cannot copy standard input", "File too large", "TMPDIR")


def test_folder_without_index():
    folder = scratch("plain folder")
    os.mkdir(folder)
    refused(tool("report", folder), UNUSABLE, folder, "without a recording")
    for name in ("a", "b"):
        shutil.copy(small_recording(), os.path.join(folder, name + ".mtr"))
    for command in (("report",), ("compare",), ("leaks",), ("diff",), ("export", "html")):
        refused(tool(*command, folder), UNUSABLE, "without an index.json", "its 2 recordings: '%s'/*.mtr" % folder)


def test_parts_to_choose_from():
    """A list of a rolling folder's parts has their files, because all their names are FOLDER#N."""
    folder = scratch("rolling")
    os.mkdir(folder)
    parts = []
    for n in (3, 4):
        parts.append({"file": "segment-%06d.mtr" % n, "kind": "segment", "name": "rolling#%d" % n, "pid": 1, "comm": "python", "from": n, "to": n + 1,
                      "begin": "2026-11-28T09:00:00.000Z", "end": "2026-11-28T09:00:01.000Z", "began": "start", "ended": "size",
                      "events": 1, "lost": 0, "bytes": 1, "devices": []})
        shutil.copy(os.path.join(harness.REPO, "tests", "data", "guide", "base.mtr"), os.path.join(folder, parts[-1]["file"]))
    with open(os.path.join(folder, "index.json"), "w", encoding="ascii") as f:
        json.dump({"memtrace_folder": 1, "version": "0", "recordings": parts, "gaps": []}, f)
    refused(tool("export", "html", folder + "#99"), USAGE, "unknown name", folder + "#3  segment-000003.mtr", folder + "#4  segment-000004.mtr")


def test_next_can_be_pasted():
    """The command that comes next is quoted for a shell."""
    path = scratch("it's a 語.mtr")
    code, _, err = tool("record", "-p", str(training().popen.pid), "-o", path, "-d", "300ms", root=True)
    equal(code, OK, "record: %s" % err)
    own(path)
    offered = shlex.split(re.search(r"next: (.*)", err)[1])
    equal(offered, ["memtrace-bpf", "report", path], "the command")


def test_truncated_recording():
    """A recording cut anywhere opens or is refused with a reason; no crash, and it never looks complete. test_mtr_damage.c cuts and
    damages at every byte below the commands."""
    with open(os.path.join(harness.REPO, "tests", "data", "recordings", "v6-attached.mtr"), "rb") as f:
        data = f.read()
    cut, blocks = scratch("cut.mtr"), [(0, 16)]  # kind and end
    while blocks[-1][1] < len(data):
        kind, _, stored = struct.unpack_from("<3I", data, blocks[-1][1])
        blocks.append((kind, blocks[-1][1] + 24 + stored))
    events = min(end for kind, end in blocks if kind == 3)  # of events
    for _, end in blocks[:-1]:
        for at in (end - 11, end, end + 4):
            with open(cut, "wb") as f:
                f.write(data[:at])
            if at < events:
                refused(tool("report", cut), UNUSABLE, "cut.mtr", *(["nothing of a recording can be read"] if at >= 16 else []))
                continue
            code, out, err = tool("report", "--format", "json", cut)
            equal((code, json.loads(out)["capture"]["complete"]), (OK, False), "cut at %d of %d: exit code, complete" % (at, len(data)))
            check("stops at byte" in err and "without an end" in err, "cut at %d: %r", at, err)
    for at in range(8, len(data), len(data) // 16):
        damaged = bytearray(data)
        damaged[at] ^= 0x5a
        with open(cut, "wb") as f:
            f.write(damaged)
        code, out, err = tool("report", "--format", "json", cut)
        check(code in (OK, UNUSABLE), "byte %d changed: exit code %d, %r", at, code, err[-300:])
        check("damaged" in err if at >= 16 else err, "a changed byte went unnoticed at %d of %d: %r", at, len(data), err)


if __name__ == "__main__":
    run(globals())

#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Logs: --log-level, --log-file, --log-format and MEMTRACE_LOG, of several commands; a log that cannot be written has no other
effect. docs/reference/log.md."""
import json
import os
import re
import subprocess

import harness
import server
from harness import IS_ROOT, TOOL, Skip, check, equal, finish, record, report, run, scratch, tool

EVERY = {"time", "level", "command", "pid", "part", "message"}
HOSTILE = 'a\n{"level":"error"}\x1b[31m"\\\u202e.mtr'
_job = []


def job():
    if not _job:
        _job.append(server.Job("--pause", "0.01", kept=True).ready())
    return _job[0]


def lines(path):
    """Lines of a JSON log: each is an object with all common fields."""
    harness.own(path)
    with open(path, encoding="utf-8") as f:
        text = f.read()
    check(text.endswith("\n") and "\x1b" not in text, "the log: %r", text[-300:])
    found = [json.loads(line) for line in text.splitlines()]
    for o in found:
        check(EVERY <= set(o) and re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", o["time"]), "a line: %s", o)
    return found


def events(found, name):
    return [o for o in found if o.get("event") == name]


def with_env(*args, **env):
    done = subprocess.run([TOOL, *args], env=dict(os.environ, **env), capture_output=True, timeout=60, check=False)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def test_record():
    path, log = scratch("logged.mtr"), scratch("record.log")
    p = record(job().pid, path, "--log-file", log, "--log-format=json", "--log-level", "debug")
    finish(p)
    found = lines(log)
    equal({o["command"] for o in found} | {o["pid"] for o in found}, {"record", p.pid}, "who says it")
    check("capture" in {o["part"] for o in found if o["level"] == "debug"}, "no part says details: %s", found)
    (attached,), (recorded,) = events(found, "attached"), events(found, "recorded")
    equal(attached["target"], job().pid, "target")
    doc = report(path)
    equal((recorded["path"], recorded["events"], recorded["lost"], recorded["reason"]),
          (path, doc["capture"]["events"], doc["capture"]["lost"], "signal"), "what it says of the recording")
    check(0 <= os.path.getsize(path) - recorded["bytes"] < 4096, "%d bytes of %d", recorded["bytes"], os.path.getsize(path))
    # Messages on standard error have the same words as the log.
    for o in (attached, recorded):
        check("memtrace-bpf: %s\n" % o["message"] in p.stderr(), "%r is not in %r", o["message"], p.stderr())
    equal(os.stat(log).st_mode & 0o777, 0o600, "the log's mode")


def test_files_and_names():
    """Appends in both formats; hostile names are harmless; levels from the environment and from options, which take precedence."""
    log, path = scratch("both.log"), scratch(HOSTILE)
    code, _, err = tool("--log-file", log, "report", path)
    check(code == 2 or code == 1, "report of what is not there: %d", code)
    equal(with_env("report", path, MEMTRACE_LOG="error,format=json,file=" + log)[0], code, "the same as JSON")
    equal(with_env("report", "--log-level=error", path, MEMTRACE_LOG="nonsense=,file=" + log)[2].count(": ignored"), 1, "a warning of a wrong part")
    harness.own(log)
    with open(log, encoding="utf-8") as f:
        text, said = f.read().rstrip("\n").split("\n")
    check(re.match(r"\S+Z error report\[\d+\] \w+: ", text), "as text: %r", text)
    said = json.loads(said)
    equal((said["level"], said["command"]), ("error", "report"), "level and command")
    check("\u202e" not in said["message"] + err and "\\x1b[31m" in said["message"] and err.count("\n") == 1, "the name: %r, %r", said, err)
    # Without a file, JSON replaces the text on standard error.
    code, _, err = tool("report", "--log-format", "json", path)
    equal([json.loads(line)["level"] for line in err.splitlines()], ["error"], "standard error")
    for wrong in (("--log-level", "loud"), ("--log-level="), ("--log-format", "xml"), ("--log-file=")):
        wrong = (wrong,) if isinstance(wrong, str) else wrong
        equal([tool("report", *wrong, path)[0], tool(*wrong, "report", path)[0]], [64, 64], "exit codes of report with %s" % (wrong,))


def test_every_command():
    commands = re.findall(r"(?m)^  ([a-z]+) +\S", tool("help")[1].partition("Look at a job:\n")[2].partition("Options of")[0])
    check(len(commands) >= 12 and "record" in commands, "help lists %s", commands)
    for command in set(commands) - {"help", "version"}:
        code, out, err = tool(command, "--log-format", "json", "--log-level", "loud")
        equal((code, out, "--log-level: 'loud' is not a level" in err), (64, "", True), "%s with a wrong level: %r" % (command, err))


def test_output_in_a_folder_of_another_user():
    """leaks gives up its rights when it attaches, and still writes the file of -o."""
    if not IS_ROOT:
        raise Skip("needs root to give a folder away")
    folder = scratch("of-nobody")
    os.makedirs(folder)
    os.chown(folder, 65534, 65534)
    path = os.path.join(folder, "leaks.txt")
    code, out, err = tool("leaks", "-p", str(job().pid), "-d", "1s", "-o", path, root=True)
    equal((code, out, os.listdir(folder)), (0, "", ["leaks.txt"]), "leaks -o: %s" % err)
    with open(path, encoding="utf-8") as f:
        check(len(f.read()) > 20, "an empty file")


def test_not_to_be_had():
    """A full disk, a link, a folder: one message, and everything else is unchanged."""
    path = scratch("whole.mtr")
    first = os.path.join(harness.WORKLOADS, "first.py")
    code, out, err = with_env("run", "-f", "-v", "-o", path, "--", harness.python(), first, MEMTRACE_LOG="debug,file=/dev/full")
    equal((code, err.count("cannot write the log")), (0, 1), "exit code, and how often it says so: %s" % err[-500:])
    check(json.loads(out.splitlines()[-1])["made"] and report(path)["capture"]["events"] > 0, "the command, or its recording: %r", out[-300:])
    link, target = scratch("link.log"), scratch("target.log")
    os.symlink(target, link)
    for bad in (link, os.path.dirname(link)):
        code, _, err = tool("export", "folded", "-f", "-o", scratch("x.folded"), "--log-file", bad, path)
        check(code == 0 and "warning: no log: %s: " % bad in err, "%s: %d %s", bad, code, err)
    check(not os.path.exists(target), "it was written through the link")


def test_command_has_nothing_of_it():
    """The log is no descriptor of the run command, and its environment is unchanged."""
    program = "import os; print(sorted(os.readlink('/proc/self/fd/' + f) for f in os.listdir('/proc/self/fd') if int(f) > 2 and os.path.exists(" \
              "'/proc/self/fd/' + f)), os.environ.get('MEMTRACE_LOG'))"
    log = scratch("run.log")
    code, out, err = tool("run", "--no-trace", "--log-file", log, "--log-level", "debug", "--", harness.python(), "-c", program)
    equal((code, out.strip()), (0, "[] None"), "what the command has of the log: %s" % err)
    with open(log, encoding="utf-8") as f:
        check("has ended with exit code 0" in f.read(), "the log says nothing of its end")


def test_serve():
    """All of its processes, also those without access to files, and the recorder; each line names its process."""
    if not IS_ROOT:
        raise Skip("needs root, as serve drops its rights")
    log = scratch("serve.log")
    s = server.Server("--target", "my_model=%d" % job().pid, "--log-file", log, "--log-format", "json", "--log-level", "debug")
    traced = s.post("/api/trace/memory", {"model_name": "my_model", "duration_s": 0.5}).expect().json
    pids = set(s.processes())
    check(not any(os.path.realpath("/proc/%d/fd/%s" % (pid, fd)) == log for pid in pids - {s.process.pid}
                          for fd in os.listdir("/proc/%d/fd" % pid)), "another process than the first one has the log open")
    s.stop()
    found = lines(log)
    (listening,) = events(found, "listening")
    equal((listening["pid"], listening["url"]), (s.process.pid, s.url), "who listens, and where")
    web = [o for o in found if o.get("process") == "web"]
    check(web and {o["pid"] for o in web} <= pids - {s.process.pid}, "what speaks HTTP says: %s", web)
    own = [o for o in events(found, "recorded") if o["command"] == "serve"]
    equal([(o["trace"], o["target"]) for o in own], [(traced["trace_id"], job().pid)], "traces")
    recorder = [o for o in found if o["command"] == "record"]
    check(events(recorder, "attached") and events(recorder, "recorded"), "the recorder says: %s", recorder)
    equal(events(recorder, "recorded")[0]["events"], own[0]["events"], "events, as both say")


if __name__ == "__main__":
    run(globals())

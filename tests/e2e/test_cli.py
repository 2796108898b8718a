#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# run: check
"""Help, version and suggestions. After a change of the help: `MEMTRACE_UPDATE=1 python3 tests/e2e/test_cli.py` and read the diff."""
import os
import re
import shlex
import shutil
import subprocess

import harness
from harness import REPO, check, equal, run, scratch, tool

COMMANDS = ("live", "record", "run", "ps", "diagnose", "estimate", "report", "leaks", "diff", "compare", "export", "import", "replay", "watch", "serve", "fetch", "dump", "ctl", "check", "mcp")
GOLDEN = os.path.join(REPO, "tests", "data", "golden", "help")
OK, UNUSABLE, USAGE = 0, 2, 64
# Arguments with which an option's value is parsed and nothing else happens.
ARGUMENTS = {"live": ("-p", "0"), "record": ("-p", "0"), "watch": ("-p", "0"), "dump": ("-p", "0"), "ctl": ("dance",), "check": ("x",), "mcp": ("x",), "serve": ("--listen", ""), "fetch": (),
             "run": (), "estimate": (), "export": ("no-format",), "leaks": (), "ps": ("x",), "diagnose": (), "diff": (), "compare": (), "replay": (), "report": ()}


def options(command):
    """{option: value's name or None} of the options that the complete help describes."""
    found = {}
    code, out, err = tool("help", *([command] if command else []), "--all")
    equal((code, err), (OK, ""), "help %s --all" % command)
    # A line that only names options has a comma or nothing after the first.
    for line in re.findall(r"^  (?:-\w, )?(--[a-z-]+(?:[= [].*)?)$", out.split("\nMore options, which")[0], re.M):
        name, value = re.match(r"(--[a-z-]+)(?:\[?=(\S+))?", line).groups()
        found[name] = value.rstrip("]") if value else None
    check(len(found) >= 2, "help %s --all has %s", command, found)
    return found


def in_command(command, *args):
    return tool(*([] if command == "live" else [command]), *args)


def test_help():
    """The help is short, narrow and as the golden says."""
    wrong = []
    for command in (*COMMANDS, ""):
        code, out, err = tool("help", *([command] if command else []))
        equal((code, err), (OK, ""), "help %s" % command)
        out = re.sub(r"(?m)^Guide:  /.*/docs/guide$", "Guide:  .../docs/guide", out)
        lines = out.splitlines()
        check(len(lines) <= (40 if command else 45), "help %s has %d lines", command, len(lines))
        for text in (lines, tool("help", command, "--all")[1].splitlines() if command else ()):
            wide = [line for line in text if len(line) > 80]
            check(not wide, "help %s: a line wider than 80 columns: %r", command, wide)
        check("Examples" in out and (not command or lines[-1].startswith("Exit status: ")), "help %s has no examples, or no line with exit codes", command)
        path = os.path.join(GOLDEN, (command or "memtrace-bpf") + ".txt")
        if os.environ.get("MEMTRACE_UPDATE"):
            os.makedirs(GOLDEN, exist_ok=True)
            with open(path, "w", encoding="ascii") as f:
                f.write(out)
        with open(path, encoding="ascii") as f:
            if f.read() != out:
                wrong.append(command)
    equal(wrong, [], "commands whose help differs from %s" % GOLDEN)


def test_short_help_names_all():
    for command in COMMANDS:
        short = tool("help", command)[1]
        missing = [o for o in options(command) if not re.search(r"%s\b" % re.escape(o), short)]
        equal(missing, [], "options that help %s does not name" % command)


def test_common_options():
    """Options of several commands are described once, by `help --all`, and work in front of the command and after it."""
    common = options("")
    equal(sorted(common), ["--color", "--csv", "--json", "--json-schema", "--log-file", "--log-format", "--log-level", "--max-memory", "--quiet", "--verbose"], "common options")
    described = [(o, c) for c in COMMANDS for o in options(c) if o in common and (o, c) != ("--verbose", "check")]
    equal(described, [], "common options in the help of a command")
    path, log = scratch("common.mtr"), scratch("common.log")
    shutil.copy(os.path.join(REPO, "tests", "data", "recording-v3.bin"), path)
    plain = tool("leaks", path)
    for args in (("-q", "leaks", path), ("leaks", "-q", path), ("leaks", path, "--quiet")):
        equal(tool(*args)[:2], plain[:2], "%s" % (args,))
    equal(tool("-q", "--log-file", log, "leaks", scratch("none.mtr"))[0], UNUSABLE, "a recording that is not there")
    check(os.path.getsize(log) > 0, "--log-file in front of the command wrote nothing")
    for args in (("-v", "--no-such"), ("--log-level", "debug", "-q")):
        equal(tool(*args)[0], USAGE, "%s" % (args,))


def test_shared_options():
    """What `run` and the live view have from `record` is named there, described by `help record --all`, and accepted."""
    of_record = options("record")
    for command in ("run", "live"):
        for text in (tool("help", command)[1], tool("help", command, "--all")[1]):
            named = re.search(r"\nMore options, which `memtrace-bpf help record --all` describes:\n((?:  --.*\n)+)", text)
            check(named, "help %s names no options of record", command)
            shared = re.findall(r"--[a-z-]+", named[1])
            equal((len(shared) >= 8, set(shared) - set(of_record), set(shared) & set(options(command))), (True, set(), set()), "options of record in help %s" % command)
        for option in shared:
            err = in_command(command, option + "=1" if of_record[option] else option, "--no-such-option")[2]
            check("'--no-such-option'" in err, "%s %s: %r", command, option, err)


def test_whole_names():
    """The beginning of an option's name is not the option: the answer has the names."""
    for args, words in ((("report", "--js", "x"), "unknown option '--js'; write the whole name: --json, --json-schema"), (("report", "--filt=x", "y"), "unknown option '--filt'; did you mean --filter?"),
                        (("diff", "--f", "x"), "unknown option '--f'; write the whole name: --format, --force"), (("-p", "1", "--dur", "5s"), "unknown option '--dur'; did you mean --duration?")):
        code, out, err = tool(*args)
        equal((code, out, words in err), (USAGE, "", True), "%s: %r" % (args, err))


def test_json():
    """--json is --format json in each command that has it."""
    path = scratch("json.mtr")
    shutil.copy(os.path.join(REPO, "tests", "data", "recording-v3.bin"), path)
    with_json = [c for c in COMMANDS if "json" in (options(c).get("--format") or "").split("|")]
    check(len(with_json) >= 12, "commands with JSON: %s", with_json)
    for command in with_json:
        err = in_command(command, "--json", "--no-such-option")[2]
        check("'--no-such-option'" in err, "%s --json: %r", command, err)
    for command, files in (("report", [path]), ("leaks", [path]), ("diff", [path, path]), ("compare", [path, path]), ("diagnose", [path])):
        equal(tool(command, "--json", *files), tool(command, "--format", "json", *files), "%s --json" % command)
    for command in set(COMMANDS) - set(with_json):
        code, _, err = in_command(command, "--json")
        equal((code, "--json" in err), (USAGE, True), "%s --json: %r" % (command, err))


def test_export_order():
    """export FILE writes a page; the format may be first or last."""
    folder = scratch("order")
    os.makedirs(folder)
    shutil.copy(os.path.join(REPO, "tests", "data", "recording-v3.bin"), os.path.join(folder, "run.mtr"))
    made = {}
    for args in (("html", "run.mtr"), ("run.mtr",), ("run.mtr", "html"), ("csv", "run.mtr"), ("run.mtr", "csv"), ("./run.mtr", "csv")):
        code, out, err = tool("export", *args, "-o", "-", cwd=folder)
        equal((code, len(out) > 100), (OK, True), "export %s: %s" % (args, err))
        made[args] = out
    pages = {args for args, out in made.items() if out.startswith("<!DOCTYPE html>") and 'id="data"' in out}
    equal(pages, {("html", "run.mtr"), ("run.mtr",), ("run.mtr", "html")}, "pages")
    check(len({out for args, out in made.items() if args not in pages}) == 1, "csv first and last differ")
    code, _, err = tool("export", "run.mtr", cwd=folder)
    check(code == OK and os.path.exists(os.path.join(folder, "memtrace-html-run.html")), "the page: %d %s %s", code, err, os.listdir(folder))


def test_output():
    """-o of report and leaks: the same text in a file, which is not replaced without -f and not left behind after an error."""
    path, out_path = scratch("output.mtr"), scratch("output.txt")
    shutil.copy(os.path.join(REPO, "tests", "data", "recording-v3.bin"), path)
    for command in ("report", "leaks"):
        _, text, _ = tool(command, path)
        equal(tool(command, path, "-o", out_path), (OK, "", ""), "%s -o" % command)
        with open(out_path, encoding="utf-8") as f:
            equal(f.read(), text, "the file of %s" % command)
        code, out, err = tool(command, path, "-o", out_path)
        equal((code, out, "-f replaces it" in err), (1, "", True), "%s to a file that exists: %r" % (command, err))
        equal(tool(command, path, "--json", "-f", "-o", out_path)[0], OK, "%s -f" % command)
        with open(out_path, encoding="utf-8") as f:
            equal(f.read(), tool(command, path, "--json")[1], "the file of %s --json" % command)
        os.remove(out_path)
        equal(tool(command, path, "-o", "-")[1], text, "%s -o -" % command)
        code, _, err = tool(command, scratch("none.mtr"), "-o", out_path)
        equal((code != OK, os.path.exists(out_path)), (True, False), "%s of a file that is not there: %r" % (command, err))
        code, _, err = tool(command, path, "-o", scratch("again.mtr"))
        equal((code, "makes no recording" in err), (USAGE, True), "%s -o again.mtr: %r" % (command, err))


def test_values():
    """An enumeration in the help is what the parser accepts; a wrong value gets the list or a suggestion."""
    tried = 0
    for command in COMMANDS:
        for option, value in options(command).items():
            words = [w for w in (value or "").split("|") if re.fullmatch(r"[a-z0-9.]+", w)]
            if len(words) < 2:
                continue
            tried += 1
            for word in words:
                err = in_command(command, option + "=" + word, *ARGUMENTS[command])[2]
                check("unknown value" not in err and option + ":" not in err, "%s %s=%s: %s", command, option, word, err)
            code, out, err = in_command(command, option + "=zzzzzz", *ARGUMENTS[command])
            equal((code, out), (USAGE, ""), "%s %s=zzzzzz" % (command, option))
            missing = [w for w in words if w not in err]
            check(option in err and "'zzzzzz'" in err and not missing, "%s: %s are not in %r", command, missing, err)
    check(tried > 20, "only %d enumerations", tried)
    refused = in_command("report", "--by", "modul", "x.mtr")
    check("did you mean module?" in refused[2], "a value with a typing error: %r", refused)


def test_version():
    code, out, err = tool("version")
    equal((code, err), (OK, ""), "version")
    lines = out.splitlines()
    check(re.fullmatch(r"memtrace-bpf \d+\.\d+\.\d+ \((git [0-9a-f]{10}, )?built \d{4}-\d\d-\d\d\)", lines[0]), "first line: %r", lines[0])
    check(re.fullmatch(r"recordings \(\.mtr\): writes version (\d+), reads 1 to \1", lines[1]), "second line: %r", lines[1])
    check(re.fullmatch(r"libbpf \d+\.\d+; with(out)? serve(, without HTTPS)?(; static)?", lines[2]) and len(lines) == 3, "third line: %r", lines[2:])
    for command in COMMANDS[1:]:
        equal(tool(command, "--version"), (OK, out, ""), "%s --version" % command)
        equal(tool(command, "-V"), (OK, out, ""), "%s -V" % command)


def test_build_date():
    """SOURCE_DATE_EPOCH sets the date, so that a build can be repeated. Uses make without building anything."""
    folder = scratch("output")
    for epoch, date in (("0", "1970-01-01"), ("1700000000", "2023-11-14")):
        done = subprocess.run(["make", "-s", "OUTPUT=" + folder, "help"], cwd=REPO, env={**os.environ, "SOURCE_DATE_EPOCH": epoch},
                              capture_output=True, text=True, check=False)
        equal(done.returncode, 0, "make help: %s" % done.stderr)
        with open(os.path.join(folder, "gen", "in_this_build.h"), encoding="ascii") as f:
            check('built %s"' % date in f.read(), "no date %s in in_this_build.h", date)
    shutil.rmtree(folder)


def test_recording_without_command():
    """`memtrace-bpf run.mtr` is a report of it; a PID is only suggested, as attaching is not harmless."""
    path = scratch("run.mtr")
    shutil.copy(os.path.join(REPO, "tests", "data", "recording-v3.bin"), path)
    equal(tool(path), tool("report", path), "report of a file without a command")
    equal(tool(path, "--by", "module"), tool("report", "--by", "module", path), "with an option")
    code, out, err = tool("1234")
    equal((code, out, err), (USAGE, "", "memtrace-bpf: unknown command '1234'; what is wrong with that process: memtrace-bpf diagnose -p 1234; the live view: memtrace-bpf -p 1234\n"), "a PID")
    code, _, err = tool("leaks", "987654321")
    check(code != OK and "memtrace-bpf diagnose -p 987654321" in err, "a PID where a file belongs: %r", err)
    code, out, err = tool("no-such.mtr")
    check(code == USAGE and "memtrace-bpf report no-such.mtr" in err, "a file that is not there: %r", err)


def test_wrong_inputs():
    """Wrong inputs and their answers, from a file of blocks "$ memtrace-bpf ARGUMENTS [exit code]". Each answer names the thing, the
    cause and the next step."""
    path = os.path.join(REPO, "tests", "data", "golden", "wrong-inputs.txt")
    folder, recording = scratch("wrong"), os.path.join(REPO, "tests", "data", "recording-v3.bin")
    for name in ("empty", "two"):
        os.makedirs(os.path.join(folder, name))
    for name in ("run.mtr", "two/a.mtr", "two/b.mtr"):
        shutil.copy(recording, os.path.join(folder, name))
    with open(recording, "rb") as f, open(os.path.join(folder, "cut.mtr"), "wb") as cut:
        cut.write(f.read(20))
    with open(os.path.join(folder, "text.mtr"), "w", encoding="ascii") as f:
        f.write("hello\n")
    with open(path, encoding="utf-8") as f:
        expected = f.read()
    inputs = re.findall(r"^\$ memtrace-bpf (.*?)(?: \[\d+\])?$", expected, re.M)
    got = ""
    for line in inputs:
        # In a search path with a folder that the user may not read, a command that is not found is one that may not be run.
        code, out, err = tool(*shlex.split(line), cwd=folder, env={**os.environ, "PATH": "/usr/bin:/bin"})
        err = harness.without_processes(err)
        equal(out, "", "standard output of %s" % line)
        check(all(x.startswith(("memtrace-bpf", "See `memtrace-bpf help")) for x in err.splitlines()) and len(err.splitlines()) in (1, 2), "%s: %r", line, err)
        got += "$ memtrace-bpf %s [%d]\n%s\n" % (line, code, err)
    if os.environ.get("MEMTRACE_UPDATE"):
        with open(path, "w", encoding="utf-8") as f:
            f.write(got)
        expected = got
    check(len(inputs) > 80, "only %d inputs", len(inputs))
    wrong = [a for a, b in zip(got.split("\n\n"), expected.split("\n\n")) if a != b]
    check(got == expected, "%s", "; ".join(wrong) or "the file has another form")


def test_language():
    """Messages stay in one language; the last line of an error does not depend on the C library's translation."""
    for language in ("de_DE.UTF-8", "C", "C.UTF-8"):
        done = subprocess.run([harness.TOOL, "report"], env={**os.environ, "LC_ALL": language, "LANGUAGE": "de"}, capture_output=True, text=True, check=False)
        equal(done.stderr.splitlines()[-1], "See `memtrace-bpf help report`.", "last line with LC_ALL=%s" % language)


if __name__ == "__main__":
    run(globals())

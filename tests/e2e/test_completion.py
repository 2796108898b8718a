#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# run: check
"""Completion in real shells: bash and zsh on a terminal, fish by its own `complete -C`."""
import fcntl
import os
import pty
import re
import select
import shutil
import struct
import subprocess
import sys
import termios
import time

import harness
import test_cli
from harness import REPO, Skip, check, equal, run, scratch, tool

SCRIPTS = os.path.join(REPO, "tools", "packaging", "completion")
START = {
    "bash": ["bash", "--norc", "--noprofile", "-i"],
    "zsh": ["zsh", "-f", "-i"],
}
SETUP = {
    "bash": "PS1='READY> '; bind 'set enable-bracketed-paste off'; bind 'set bell-style none'; bind 'set page-completions off'; bind 'set completion-query-items 0';"
            " source %s/memtrace-bpf.bash\n" % SCRIPTS,
    "zsh": "PS1='READY> '; unsetopt beep zle_bracketed_paste; setopt no_list_beep; LISTMAX=0; autoload -Uz compinit; compinit -u -D; source %s/_memtrace-bpf\n" % SCRIPTS,
}


class Shell:
    """An interactive shell on a terminal of its own, with the program in its PATH."""

    def __init__(self, name):
        if not shutil.which(name):
            raise Skip("%s is not here: tools/deps.sh test" % name)
        folder = scratch("shell")
        os.makedirs(os.path.join(folder, "sub"), exist_ok=True)
        for file in ("old.mtr", "notes.txt"):
            with open(os.path.join(folder, file), "w", encoding="ascii"):
                pass
        env = {**os.environ, "PATH": os.path.dirname(harness.TOOL) + ":" + os.environ["PATH"], "TERM": "dumb", "HISTFILE": "", "HOME": folder}
        self.pid, self.fd = pty.fork()
        if not self.pid:
            os.chdir(folder)
            os.execvpe(START[name][0], START[name], env)
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", 100, 200, 0, 0))
        self.send(SETUP[name])
        self.until(r"READY> $")

    def send(self, text):
        os.write(self.fd, text.encode())

    def until(self, pattern, seconds=20):
        """Reads until the output matches."""
        text, end = "", time.monotonic() + seconds
        while not re.search(pattern, text):
            check(time.monotonic() < end and select.select([self.fd], [], [], end - time.monotonic())[0], "no %r in %r", pattern, text)
            text += re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]|\r", "", os.read(self.fd, 65536).decode("utf-8", "replace"))
        return text

    def completed(self, typed):
        """The words of the command line after one Tab."""
        self.send(typed + "\t")
        self.send("\x01printf '<%s>' \x05; echo; echo END\n")
        text = self.until(r"\nEND\n.*READY> $")
        return re.findall(r"<([^<>%]*)>", text.split("\n", 1)[1])

    def listed(self, typed, last):
        """The text that two Tabs list; last: it ends with."""
        self.send(typed + "\t\t")
        text = self.until(last)
        self.send("\x15\n")
        self.until(r"READY> $")
        return text

    def close(self):
        os.close(self.fd)
        os.waitpid(self.pid, 0)


# What is typed, and the words after a Tab.
COMPLETED = (
    ("memtrace-bpf repo", ["memtrace-bpf", "report"]),
    ("memtrace-bpf help lea", ["memtrace-bpf", "help", "leaks"]),
    ("memtrace-bpf report --by=mod", ["memtrace-bpf", "report", "--by=module"]),
    ("memtrace-bpf report --by mod", ["memtrace-bpf", "report", "--by", "module"]),
    ("memtrace-bpf report --device cp", ["memtrace-bpf", "report", "--device", "cpu"]),
    ("memtrace-bpf report --device=cuda:0", ["memtrace-bpf", "report", "--device=cuda:0"]),
    ("memtrace-bpf report ol", ["memtrace-bpf", "report", "old.mtr"]),
    ("memtrace-bpf ol", ["memtrace-bpf", "old.mtr"]),
    ("memtrace-bpf export perf", ["memtrace-bpf", "export", "perfetto"]),
    ("memtrace-bpf export html -o no", ["memtrace-bpf", "export", "html", "-o", "notes.txt"]),
    ("memtrace-bpf export html --output=no", ["memtrace-bpf", "export", "html", "--output=notes.txt"]),
    ("memtrace-bpf export ol", ["memtrace-bpf", "export", "old.mtr"]),
    ("memtrace-bpf export old.mtr perf", ["memtrace-bpf", "export", "old.mtr", "perfetto"]),
    ("memtrace-bpf -q --log-level debug repo", ["memtrace-bpf", "-q", "--log-level", "debug", "report"]),
    ("memtrace-bpf leaks --log-fo", ["memtrace-bpf", "leaks", "--log-format="]),
    ("memtrace-bpf ctl stat", ["memtrace-bpf", "ctl", "status"]),
    ("memtrace-bpf estimate --device l40", ["memtrace-bpf", "estimate", "--device", "l40s"]),
    ("memtrace-bpf watch -o su", ["memtrace-bpf", "watch", "-o", "sub/"]),
    ("memtrace-bpf run --inside -- ls no", ["memtrace-bpf", "run", "--inside", "--", "ls", "notes.txt"]),
    ("memtrace-bpf record -p 1 --dur", ["memtrace-bpf", "record", "-p", "1", "--duration="]),
)


def try_shell(name):
    shell = Shell(name)
    sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", "completion-job"])
    try:
        for typed, words in COMPLETED:
            got = [w.strip(" ") for w in shell.completed(typed)]
            # zsh removes the "/" of a folder when the word ends.
            equal([w.rstrip("/") for w in got if w], [w.rstrip("/") for w in words], "%s: %r and a Tab" % (name, typed))
        equal(shell.completed("memtrace-bpf -p %d" % sleeper.pid)[:3], ["memtrace-bpf", "-p", str(sleeper.pid)], "%s: a PID" % name)
        for command in ("report", "leaks"):
            options = test_cli.options(command)
            text = shell.listed("memtrace-bpf %s --" % command, r"%s(.|\n)*READY> memtrace" % max(options))
            missing = [o for o in options if o not in text]
            equal(missing, [], "%s: options of %s that two Tabs do not list: %r" % (name, command, text))
    finally:
        sleeper.kill()
        sleeper.wait()
        shell.close()


def test_bash():
    try_shell("bash")


def test_zsh():
    try_shell("zsh")


def test_fish():
    if not shutil.which("fish"):
        raise Skip("fish is not here: tools/deps.sh test")
    folder = scratch("fish")
    os.makedirs(os.path.join(folder, "sub"), exist_ok=True)
    for file in ("old.mtr", "notes.txt"):
        with open(os.path.join(folder, file), "w", encoding="ascii"):
            pass
    env = {**os.environ, "PATH": os.path.dirname(harness.TOOL) + ":" + os.environ["PATH"], "HOME": folder, "XDG_CONFIG_HOME": folder}
    sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", "completion-job"])
    lines = [typed for typed, _ in COMPLETED] + ["memtrace-bpf -p %d" % sleeper.pid, "memtrace-bpf report --", "memtrace-bpf leaks --"]
    script = "source %s/memtrace-bpf.fish\n" % SCRIPTS + "".join("echo '# %s'; complete -C '%s'\n" % (line, line) for line in lines)
    try:
        done = subprocess.run(["fish", "--no-config", "-c", script], cwd=folder, env=env, capture_output=True, text=True, timeout=60, check=False)
    finally:
        sleeper.kill()
        sleeper.wait()
    answers = {part.split("\n", 1)[0]: part.split("\n")[1:] for part in done.stdout.split("# ")[1:]}
    for typed, words in COMPLETED:
        got = [line.split("\t")[0] for line in answers[typed] if line]
        equal(got, [words[-1]], "fish: %r (%s)" % (typed, done.stderr))
    check("completion-job" in answers["memtrace-bpf -p %d" % sleeper.pid][0], "the PID's description: %s", answers["memtrace-bpf -p %d" % sleeper.pid])
    for command in ("report", "leaks"):
        text = "\n".join(answers["memtrace-bpf %s --" % command])
        missing = [o for o in test_cli.options(command) if o not in text]
        equal(missing, [], "fish: options of %s that are not listed" % command)


def test_all_options():
    """Every option of the help and every enumeration is in the completion; so are the options of all commands, and those of record
    that run and the live view have."""
    common, of_record = test_cli.options(""), test_cli.options("record")
    for command in test_cli.COMMANDS:
        words = [] if command == "live" else [command]
        offered = [line.split("\t")[0] for line in tool("--complete", *words, "--")[1].splitlines()]
        given = test_cli.options(command)
        names = [o.rstrip("=") for o in offered if o != "--help"]
        equal(sorted(set(names)), sorted(names), "an option of %s that is offered twice" % command)
        more = set(names) - set(given)
        equal((set(given) - set(names), {"--log-level", "--quiet"} - set(names)), (set(), set()), "options of %s that are not offered" % command)
        check(more <= set(common) | (set(of_record) if command in ("run", "live") else set()), "options of %s that no help describes: %s", command, more)
        for option, value in {**given, **{o: {**common, **of_record}[o] for o in more}}.items():
            values = [w for w in (value or "").split("|") if re.fullmatch(r"[a-z0-9.]+", w)]
            if len(values) > 1:
                equal(tool("--complete", *words, option, "")[1].split(), values, "values of %s %s" % (command, option))
    formats = [line.split("\t")[0] for line in tool("--complete", "export", "")[1].splitlines()]
    check(len(formats) >= 12 and "pprof" in formats, "formats: %s", formats)


if __name__ == "__main__":
    run(globals())

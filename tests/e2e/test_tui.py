#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# run: long reads-code cpu=60
"""The live view on a terminal: the screen, keys, and the terminal's state after all ways to end."""
import atexit
import contextlib
import json
import os
import re
import shutil
import signal
import sys
import time

import harness
from harness import OUT, TOOL, WORKLOADS, Skip, check, equal, python, run, scratch, spawn_job
from terminal import Terminal

# ---- tests of the terminal checks -----------------------------------------------------------------------------------

DRAWS = r"""
import curses, locale, sys
locale.setlocale(locale.LC_ALL, "")
def main(w):
    curses.curs_set(0)
    curses.mousemask(curses.ALL_MOUSE_EVENTS)
    w.timeout(100)  # a signal of a new size that comes just before the read does not end it
    while True:
        h, l = w.getmaxyx()
        w.erase()
        w.box()
        w.addstr(1, 2, "size %dx%d" % (l, h), curses.A_BOLD)
        w.addstr(2, 2, "x" * 30)
        w.refresh()
        k = w.getch()
        if k == ord("q"):
            return
        if k == ord("!"):
            import os
            os.write(1, b"\033]0;title\007\033[1;1Hraw")
curses.wrapper(main)
"""


def draws(**kwargs):
    python = "/usr/bin/python3" if os.access("/usr/bin/python3", os.X_OK) else sys.executable
    t = Terminal([python, "-c", DRAWS], **kwargs)
    t.wait("size|Error")
    if "_curses" in t.text():
        raise Skip("no curses in this python")
    return t


def test_terminal():
    """No findings for a correct program, all findings for a wrong one."""
    t = draws()
    t.wait(r"^\S\s+size 80x24 ")
    t.wait("^└─")  # the last line: the screen may come in several pieces
    check("x" * 30 in t.rows()[2] and t.cell(4, 1).bold and t.rows()[0][1:3] == "──", "the screen:\n%s", t.text())
    s = t.state()
    check(s["alternate"] and not s["cursor"] and s["mouse"] and s["keypad"], "while it draws: %s", s)
    t.resize(100, 30)
    t.wait(r"^\S\s+size 100x30 ")
    t.wait("^└─")
    equal(t.unexpected(), [], "unexpected output")
    t.send("q")
    equal((t.end(), t.differences()), (0, []), "exit code, and what is left changed")
    t = draws()
    t.send("!")
    t.wait("^raw")
    check(t.unexpected(), "a title was not seen in %r", t.raw()[-200:])
    os.kill(t.pid, signal.SIGKILL)
    equal(t.end(), 128 + signal.SIGKILL, "exit code")
    left = " ".join(d.split(":")[0] for d in t.differences())
    equal(left, "termios alternate cursor mouse keys keypad attributes", "what a program that was killed leaves")


# ---- the job -------------------------------------------------------------------------------------------------------

_job = None
UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
HOSTILE_ARGUMENT = "\x1b]0;owned\x07\x1b[2J\u202e"


def job():
    """The workload in the dry run; one process for all tests while it runs."""
    global _job
    if _job is None or not _job.alive():
        if not harness.IS_ROOT:
            raise Skip("signals to the program itself: needs root")
        env = dict(os.environ, PYTHONUNBUFFERED="1", PYTHONUTF8="1", MEMTRACE_DRYRUN_DEVICES="2", MEMTRACE_DRYRUN_VRAM="2G",
                   LD_PRELOAD=" ".join(os.path.join(OUT, "dryrun", n) for n in ("libcuda.so.1", "libnvidia-ml.so.1")))
        # By its short name, so that the head of the screen has space for the argument in any folder.
        _job = spawn_job([python(), "watched.py", HOSTILE_ARGUMENT], env=env, cwd=WORKLOADS)
        harness._running.remove(_job)  # kept for later tests
        atexit.register(_job.stop)
        harness.undo_on_signal.append(_job.stop)
        _job.wait_line("^step 20$", 120)
    return _job


def paused():
    """PyTorch's figures of the job, which pauses."""
    p = job()
    said = len(p.stdout())
    p.send("pause\n")
    limit = time.monotonic() + 20
    while "figures" not in p.stdout()[said:]:
        check(time.monotonic() < limit and p.alive(), "the job does not answer: %s", p.tail(p.stderr()))
        time.sleep(0.02)
    return json.loads(re.search("figures (.*)", p.stdout()[said:])[1])


def go():
    job().send("go\n")


def view(*options, interval="300ms", pid=None, **kwargs):
    kwargs.setdefault("cwd", scratch())
    t = Terminal([TOOL, "-p", str(pid or job().popen.pid), "-i", interval, *options], **kwargs)
    t.wait(r"^(allocated|live) ", 30)
    return t


def size(text):
    number, unit = re.fullmatch(r"([0-9.]+)\s+([KMGT]?i?B)", text).groups()
    return float(number) * UNITS[unit], 0.051 * UNITS[unit] if "." in number else 0.51 * UNITS[unit]


def shown(t, what):
    """A size in the head in bytes, and its rounding error."""
    found = re.search(r"\b%s\s+([0-9.]+ [KMG]?i?B)" % what, t.text())
    return size(found[1]) if found else None


def wait_size(t, what, bytes_, seconds=20):
    def there(_):
        s = shown(t, what)
        return s and abs(s[0] - bytes_) <= s[1]
    t.wait_for(there, "%s %d B" % (what, bytes_), seconds)


def steps(t):
    return int(re.search(r"^step ([0-9,]+)", t.text(), re.M)[1].replace(",", ""))


def table(t):
    """Its rows, from below the titles to the first empty row."""
    rows = t.rows()
    top = next((i for i, r in enumerate(rows) if re.match(r"\s+LIVE\b", r)), None)
    found = []
    for row in rows[top + 1:] if top is not None else ():
        if not re.match(r"\s*[0-9.]+ [KMG]?i?B", row):
            break
        found.append(row)
    return found


def column(t, number):
    """Sizes of a column of the table: live, or at the peak."""
    words = [re.match(r"\s*(\S+ \S*B)\s+\S+\s+(\S+ \S*B|0)\s", r) for r in table(t)]
    return [0 if w[number + 1] == "0" else size(w[number + 1])[0] for w in words if w]


def select_line(t):
    """Selects a row of a line by mouse. Rows change places while the job runs: a click that met another row is repeated."""
    line = re.compile(r"(watched|gpt)\.py:\d+ ")
    limit = time.monotonic() + 20
    while True:
        t.click(next(r for r in table(t)[1:] if line.search(r))[-12:], r"%LIVE .* LINE$")
        with contextlib.suppress(harness.Failure):
            t.wait_for(lambda _: any(line.search(row) and all(c.bg == "cyan" for c in t.cells(y)) for y, row in enumerate(t.rows())),
                       "a selected row of a line", 1)
            return
        check(time.monotonic() < limit, "no click selects a row of a line:\n%s", t.text())


# ---- the screen -----------------------------------------------------------------------------------------------------

def test_figures_at_all_sizes():
    """The head has PyTorch's figures, and the table's rows add up to them, at each size; a too small terminal gets a message."""
    has = paused()
    t = view(columns=200, lines=60)
    for columns, lines in ((200, 60), (80, 24), (160, 50), (40, 10), (100, 30), (80, 24)):
        t.resize(columns, lines)
        if columns < 80:
            t.wait(r"^ PID \d+  \S.*  cuda:0  ")
            t.wait_for(lambda _: shown(t, "allocated") or re.search("(?i)small|larger", t.text()), "something at %dx%d" % (columns, lines))
            continue
        t.wait_for(lambda _, n=lines: t.row_of("q Quit") == n - 1 and re.match(r" (memtrace-bpf  )?PID \d+ ", t.rows()[0]), "the view at %dx%d" % (columns, lines))
        for what in ("allocated", "reserved"):
            wait_size(t, what, has[what])
        check(all(c.reverse for c in t.cells(0)), "%dx%d: the head does not reach the edge:\n%s", columns, lines, t.text())
        if lines == 60:
            rows = [size(re.match(r"\s*([0-9.]+ [KMG]?i?B)", r)[1]) for r in table(t)]
            check(abs(sum(r[0] for r in rows) - has["allocated"]) <= sum(r[1] for r in rows), "rows add up to %d of %d:\n%s",
                  sum(r[0] for r in rows), has["allocated"], t.text())
    t.send("g")
    t.wait(r"cuda:1 \(2 of")
    wait_size(t, "allocated", has["other"])
    t.send("q")
    equal((t.end(), t.differences()), (0, []), "exit code, and what is left changed")
    check(b" events, 0 lost" in t.raw(), "no summary:\n%s", t.text())


def test_views_and_keys():
    go()
    t = view(columns=120, lines=40)
    t.wait(r"watched\.py:\d+ \(keep\)")
    for key, what in (("2", r"%LIVE .* MODULE$"), ("3", "%LIVE .* ROLE$"), ("4", "%LIVE .* MODULE, WITH ALL INSIDE$"), ("5", r"(?i)\bSIZE\b.*"),
                      ("0", r"^( 1\. |Nothing )"), ("BTAB", r"(?i)\bSIZE\b.*"),
                      ("1", r"%LIVE .* LINE$"), ("TAB", r"%LIVE .* MODULE$"), ("BTAB", r"%LIVE .* LINE$"), ("M", r"%LIVE .* MODULE$"),
                      ("1", r"%LIVE .* LINE$"), ("?", "next view, the one before"), ("END", "unresolved  share of stacks"), ("F1", r"%LIVE .* LINE$"), ("ENTER", r"(?i)stack"),
                      ("ESC", r"%LIVE .* LINE$"), ("l", r"%LIVE .* FUNCTION$"), ("l", r"%LIVE .* LINE$")):
        t.press(key, what)
    check(t.state()["mouse"], "no reports of the mouse")
    t.click("2 Modules", r"%LIVE .* MODULE$")
    t.click("1 Lines", r"%LIVE .* LINE$")
    select_line(t)
    t.click("Enter Detail", "STACK 1 of")
    t.click("Esc Back", r"%LIVE .* LINE$")
    t.press("y", "this key does nothing: . lists all keys")
    # A filter while typing and in force; an invalid one has no effect.
    t.press("/", "(?i)filter")
    t.send("line:watched.py", "ENTER")
    t.wait_for(lambda _: table(t) and all("watched.py" in r or "filter leaves out" in r for r in table(t)), "only lines of watched.py")
    equal(len([r for r in table(t) if "filter leaves out" in r]), 1, "rows for what the filter leaves out:\n%s" % t.text())
    t.press("/", "(?i)filter")
    t.send("\x15", "size:>no", "ENTER")
    t.wait("(?i)size")
    # A message that is wider than the screen has two lines.
    t.resize(80, 40)
    t.send("\x15", "foo:bar", "ENTER")
    t.wait(r"^unknown field 'foo'; use line, .*\n.*source, block, scope, text$")
    t.resize(120, 40)
    t.press("ESC", "Tab View")
    # Alt with a letter, and an unknown sequence, do nothing; arrows come in two forms.
    t.send("\x1bx")
    t.press("\x1b[B", "Tab View")
    t.press("/", "(?i)filter")
    t.send("\x15", "ENTER")
    t.wait(r"gpt\.py:\d+ \(")
    # Paused: the table stays, the head is updated.
    t.send("SPACE")
    t.wait("PAUSED|Resume")
    still, step = table(t), steps(t)
    t.wait_for(lambda _: steps(t) > step + 20, "steps that go on")
    equal(table(t), still, "the table while paused")
    t.send("SPACE")
    t.wait_for(lambda _: table(t) != still, "a table that goes on")
    # Commands report their result.
    t.press("m", "name: mark 1_")
    t.press("ENTER", "marked: mark 1")
    t.wait("▲")
    t.wait("mark 1 ┊|┊ mark 1")
    t.press("w", r"saved memtrace-\d+-\w+\.mtr: ")
    t.press("e", r"wrote memtrace-html-\d+-\w+\.html")
    t.press("L", "(?i)attached to PID")
    t.press("ESC", "Tab View")
    paused()
    for key, place in (("t", 0), ("p", 1)):
        t.send(key)
        t.wait_for(lambda _, at=place: len(table(t)) > 3 and sorted(column(t, at), reverse=True) == column(t, at), "sorted by '%s'" % key)
    equal(t.unexpected(), [], "what no screen needs")
    check("owned" in t.rows()[0] and "\\x1b" in t.rows()[0], "the command line:\n%s", t.rows()[0])
    t.press("2", r"%LIVE .* MODULE$")
    t.press("END", r"x07\\x1b\[2J")
    t.send("CTRL-C")
    equal((t.end(), t.differences()), (0, []), "exit code, and what is left changed")


# ---- the terminal's state -------------------------------------------------------------------------------------------

ENDINGS = {
    "SIGINT": (signal.SIGINT, 0),
    "SIGTERM": (signal.SIGTERM, 0),
    "SIGHUP": (signal.SIGHUP, 0),
    "SIGSEGV": (signal.SIGSEGV, 128 + signal.SIGSEGV),
    "SIGABRT": (signal.SIGABRT, 128 + signal.SIGABRT),
    "SIGKILL": (signal.SIGKILL, 128 + signal.SIGKILL),
}


def gone(pid):
    """True if the process has ended; a zombie has ended."""
    try:
        with open("/proc/%d/stat" % pid, encoding="utf-8", errors="replace") as f:
            return f.read().rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return True


def wait_gone(pid, what, seconds=20):
    limit = time.monotonic() + seconds
    while not gone(pid):
        check(time.monotonic() < limit, "%s: PID %d is still there", what, pid)
        time.sleep(0.05)


def test_restored_however_it_ends():
    paused()
    views = {name: view() for name in ENDINGS}
    for name, t in views.items():
        s = t.state()
        check(s["alternate"] and not s["cursor"], "%s: no screen is up: %s", name, s)
    for name, (number, code) in ENDINGS.items():
        t = views[name]
        os.kill(t.pid, number)
        equal(t.end(), code, "exit code after " + name)
        t.drained()
        if name != "SIGKILL":
            equal(t.differences(), [], "what is left changed after " + name)
        if code == 0:
            check(b" events, 0 lost" in t.raw(), "no summary after %s:\n%s", name, t.text())
    check(job().alive(), "the job ended")
    go()  # a probe left by a killed process is removed at the next hit
    limit = time.monotonic() + 10
    while harness.patched_bytes(job().popen.pid):
        check(time.monotonic() < limit, "%d bytes of the job's code still differ", harness.patched_bytes(job().popen.pid))
        time.sleep(0.1)


def test_stopped_and_continued():
    """Under a shell with job control: Ctrl-Z restores the terminal, fg the screen."""
    if not shutil.which("bash"):
        raise Skip("no bash")
    go()
    t = Terminal(["bash", "--norc", "--noprofile", "-i"], env={"PS1": "ready> ", "HISTFILE": None})
    t.wait("^ready>$")
    t.send("stty -g >%s\n" % harness.scratch("before"))
    t.send("%s -p %d -i 300ms\n" % (TOOL, job().popen.pid))
    t.wait("^(allocated|live) ", 30)
    for _ in range(2):
        t.send("CTRL-Z")
        t.wait(r"Stopped[^\n]*\n(?:.*\n)*ready>$")
        s = t.state()
        check(not s["alternate"] and s["cursor"] and not s["keypad"], "stopped, and left: %s", s)
        t.send("stty -g >%s\n" % harness.scratch("stopped"))
        t.wait_for(lambda _: os.path.exists(harness.scratch("stopped")) and os.path.getsize(harness.scratch("stopped")), "stty")
        with open(harness.scratch("before"), encoding="ascii") as a, open(harness.scratch("stopped"), encoding="ascii") as b:
            equal(b.read(), a.read(), "stty -g while stopped")
        os.unlink(harness.scratch("stopped"))
        t.send("fg\n")
        t.wait_for(lambda _: t.state()["alternate"] and t.row_of("q Quit") == 23, "the screen again")
    t.send("q")
    t.wait(r"allocator's totals\n(?:.*\n)*ready>$")
    check(b" events, 0 lost" in t.raw(), "no summary:\n%s", t.text())
    t.send("exit\n")
    equal((t.end(), t.differences()), (0, []), "exit code, and what is left changed")


def test_stop_is_not_lost():
    """Curses ignores SIGTSTP while it draws, and the kernel discards an ignored signal that was not read yet: not if the program
    has an action of its own."""
    go()
    t = view()
    with open("/proc/%d/status" % t.pid, encoding="ascii", errors="replace") as f:
        status = dict(line.split(":", 1) for line in f)
    stop = 1 << (signal.SIGTSTP - 1)
    for mask, expected in (("SigCgt", stop), ("SigIgn", 0), ("SigBlk", stop)):
        equal(int(status[mask], 16) & stop, expected, "SIGTSTP in %s" % mask)
    t.send("q")
    equal((t.end(), t.differences()), (0, []), "exit code, and what is left changed")


def test_continued_by_kill():
    """Without a shell that does it."""
    go()
    t = view()
    t.send("CTRL-Z")
    t.wait_for(lambda _: harness.state_of(t.pid) == "T", "it has stopped")
    os.kill(t.pid, signal.SIGCONT)
    t.wait_for(lambda _: t.state()["alternate"] and t.row_of("q Quit") == 23, "the screen again")
    t.send("q")
    equal((t.end(), t.differences()), (0, []), "exit code, and what is left changed")


def cpu_seconds(pid):
    with open("/proc/%d/stat" % pid, encoding="utf-8", errors="replace") as f:
        fields = f.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_closed_terminal():
    go()
    t = view()
    t.hang_up()
    wait_gone(t.pid, "after the terminal was closed", 20)
    check(job().alive(), "the job ended")


# ---- other terminals ----------------------------------------------------------------------------------------------

def test_other_terminals():
    go()
    pid = str(job().popen.pid)
    plain = {"TERM=dumb": Terminal([TOOL, "-p", pid, "-i", "300ms"], term="dumb"),
             "an unknown TERM": Terminal([TOOL, "-p", pid, "-i", "300ms"], term="no-such-terminal")}
    grey, ascii_, colour = view("--no-mouse", env={"NO_COLOR": "1"}), view(locale="C"), view()
    vt100 = view(term="vt100")
    unknown_xterm = view(term="xterm-that-this-host-does-not-know")  # has the built-in description
    for what, t in plain.items():
        t.wait_for(lambda _, t=t: t.raw().count(b" events/s") > 1, "two blocks of text with " + what, 30)
        t.send("CTRL-C")
        equal((t.end(), t.differences()), (0, []), "exit code with " + what)
        check(what != "TERM=dumb" or b"\x1b" not in t.raw(), "%s: an escape sequence in %r", what, t.raw()[:300])
        check(b" events, 0 lost" in t.raw(), "%s: no summary:\n%s", what, t.text())
    for t in (grey, ascii_, colour, vt100, unknown_xterm):
        t.wait(r"watched\.py:\d+ \(keep\)")
    equal(grey.colours(), set(), "colours with NO_COLOR")
    equal(grey.state()["mouse"], [], "reports of the mouse with --no-mouse")
    check(colour.colours() and unknown_xterm.colours(), "no colours without NO_COLOR")
    check(not re.search("[^\n -~]", ascii_.text()), "not ASCII:\n%s", ascii_.text())
    for t in (grey, ascii_, colour, vt100, unknown_xterm):
        check(t.row_of(r"s ago .* now") > 3, "no graph:\n%s", t.text())
        t.send("q")
        equal((t.end(), t.differences(), t.unexpected()), (0, [], []), "exit code, what is left changed, what no screen needs")


def test_quiet_cost():
    """A view of an idle job uses almost no CPU once it is attached: a loose bound; docs/internals/OVERHEAD.md has figures."""
    paused()
    t = view(interval="1s")

    def is_quiet():
        before, begin = cpu_seconds(t.pid), time.monotonic()
        time.sleep(2)
        return cpu_seconds(t.pid) - before < 0.15 * (time.monotonic() - begin)

    harness.until(is_quiet, "two seconds in which the view takes less than 15 % of a core")
    t.send("q")
    equal(t.end(), 0, "exit code")


def test_target_ends():
    """The last picture stays and can be used until q."""
    go()
    t = view()
    t.wait(r"watched\.py:\d+ \(keep\)")
    wait_size(t, "allocated", paused()["allocated"])
    ends = job()
    ends.send("end\n")
    equal(ends.wait(60), 0, "exit code of the job")
    t.wait(r"PID \d+ ENDED.*\n(?:.*\n)*PID \d+ has ended")
    t.press("2", r"%LIVE .* MODULE$")
    t.resize(100, 30)
    t.wait_for(lambda _: t.row_of("q Quit") == 29, "the footer")
    t.send("1")
    t.wait(r"watched\.py:\d+ \(")
    t.send("q")
    equal((t.end(), t.differences()), (0, []), "exit code, and what is left changed")
    check(b" events, 0 lost" in t.raw(), "no summary:\n%s", t.text())


if __name__ == "__main__":
    run(globals())

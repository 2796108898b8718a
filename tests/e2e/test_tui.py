#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""The live view on a terminal: what is on the screen, what keys do, and how the terminal is left, however the view ends."""
import os
import signal
import sys

from harness import Skip, check, equal, run
from terminal import Terminal

# ---- what looks at the screen is looked at itself -----------------------------------------------------------------

DRAWS = r"""
import curses, locale, sys
locale.setlocale(locale.LC_ALL, "")
def main(w):
    curses.curs_set(0)
    curses.mousemask(curses.ALL_MOUSE_EVENTS)
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
    """Of a program that does as it should nothing is found, of one that does not everything."""
    t = draws()
    t.wait(r"^\S\s+size 80x24 ")
    check("x" * 30 in t.rows()[2] and t.cell(4, 1).bold and t.rows()[0][1:3] == "──", "the screen:\n%s", t.text())
    s = t.state()
    check(s["alternate"] and not s["cursor"] and s["mouse"] and s["keypad"], "while it draws: %s", s)
    t.resize(100, 30)
    t.wait(r"^\S\s+size 100x30 ")
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


if __name__ == "__main__":
    run(globals())

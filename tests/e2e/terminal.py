# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""A program on a pseudo-terminal of a given size, whose screen pyte interprets, with functions to look at it. Nothing here sleeps
for a fixed time: wait() returns when the screen matches, or fails and prints the screen."""
import codecs
import contextlib
import copy
import fcntl
import html
import os
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import termios
import threading
import time

import harness
from harness import Failure, Skip

try:
    import pyte
except ImportError:  # Debian's package works with any python3: it is pure Python
    sys.path.append("/usr/lib/python3/dist-packages")
    try:
        import pyte
    except ImportError:
        pyte = None

KEYS = {"UP": "\033OA", "DOWN": "\033OB", "RIGHT": "\033OC", "LEFT": "\033OD", "HOME": "\033OH", "END": "\033OF",
        "PGUP": "\033[5~", "PGDN": "\033[6~", "ENTER": "\r", "ESC": "\033", "TAB": "\t", "BTAB": "\033[Z", "BACKSPACE": "\x7f",
        "F1": "\033OP", "F10": "\033[21~", "CTRL-C": "\x03", "CTRL-L": "\x0c", "CTRL-Z": "\x1a", "CTRL-\\": "\x1c", "SPACE": " "}
MOUSE = (9, 1000, 1001, 1002, 1003, 1005, 1006, 1015)
ALTERNATE = (47, 1047, 1049)
BRACKETED, KEYPAD = 2004, "keypad"
# Sequences that ncurses programs send besides text. Any others come from displayed data.
EXPECTED = re.compile(r"\x1b(?:\[[?>!]?[0-9;]*[ -/]?[@-~]|[()][0-9A-B]|[78=>cDEHMZ]|\]104\x07)")


def _screen_class():
    """pyte's screen plus xterm's alternate screen and repeated characters."""

    class Screen(pyte.Screen):
        def __init__(self, columns, lines, reply):
            self.private, self.main, self.last, self.reply = set(), None, " ", reply
            super().__init__(columns, lines)

        def write_process_input(self, data):
            self.reply(data)

        def reset(self):
            super().reset()
            self.private, self.main = set(), None

        def set_mode(self, *modes, **kwargs):
            if kwargs.get("private"):
                if set(modes) & set(ALTERNATE) and self.main is None:
                    self.main = (self.buffer, copy.copy(self.cursor))
                    self.buffer = copy.copy(self.buffer)
                    self.buffer.clear()
                self.private |= set(modes)
            super().set_mode(*modes, **kwargs)

        def reset_mode(self, *modes, **kwargs):
            if kwargs.get("private"):
                if set(modes) & set(ALTERNATE) and self.main is not None:
                    hidden = self.cursor.hidden
                    (self.buffer, self.cursor), self.main = self.main, None
                    self.cursor.hidden = hidden
                    self.cursor.x, self.cursor.y = min(self.cursor.x, self.columns), min(self.cursor.y, self.lines - 1)
                    self.dirty.update(range(self.lines))
                self.private -= set(modes)
            super().reset_mode(*modes, **kwargs)

        def draw(self, data):
            if data:
                self.last = data[-1]
            super().draw(data)

        def repeat(self, count=1, **_):
            self.draw(self.last * min(count or 1, self.columns * self.lines))

        def scroll_up(self, count=1, **_):
            self._scroll(count, False)

        def scroll_down(self, count=1, **_):
            self._scroll(count, True)

        def _scroll(self, count, down):
            top, bottom = self.margins or pyte.screens.Margins(0, self.lines - 1)
            kept = copy.copy(self.cursor)
            for _ in range(min(count or 1, self.lines)):
                self.cursor.y = top if down else bottom
                (self.reverse_index if down else self.index)()
            self.cursor = kept

        def back_tab(self, count=1, **_):
            for _ in range(count or 1):
                self.cursor.x = max([t for t in self.tabstops if t < self.cursor.x], default=0)

        def window(self, *_, **__):
            """Saving and restoring the title: ignored."""

        def keypad_on(self):
            self.private.add(KEYPAD)

        def keypad_off(self):
            self.private.discard(KEYPAD)

    class Stream(pyte.Stream):
        csi = dict(pyte.Stream.csi, b="repeat", S="scroll_up", T="scroll_down", Z="back_tab", t="window")
        escape = dict(pyte.Stream.escape, **{"=": "keypad_on", ">": "keypad_off"})
        events = pyte.Stream.events | {"repeat", "scroll_up", "scroll_down", "back_tab", "window", "keypad_on", "keypad_off"}

    return Screen, Stream


class Terminal:
    """Starts a command on its own terminal. A thread reads its output and updates the screen. env: added to the test's
    environment, without NO_COLOR and locale; None removes a variable."""

    def __init__(self, command, columns=80, lines=24, term="xterm-256color", locale="C.UTF-8", env=None, cwd=None, root=False):
        if pyte is None:
            raise Skip("no pyte: apt-get install python3-pyte")
        self.columns, self.lines = columns, lines
        self.master, self.slave = os.openpty()
        self._size(columns, lines)
        self.before = termios.tcgetattr(self.slave)
        self.kept = False
        screen, stream = _screen_class()
        self.screen = screen(columns, lines, self._reply)
        self.stream = stream(self.screen)
        self.stream.use_utf8 = False  # makes pyte honour character sets
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self.output = []  # (seconds since the start, bytes)
        self.typed = []   # (seconds since the start, keys)
        self.changed = threading.Condition()
        self.wake = os.pipe()
        self.command = harness.sudo(command) if root else command
        self.started = time.monotonic()
        self.popen = subprocess.Popen(self.command, stdin=self.slave, stdout=self.slave, stderr=self.slave, cwd=cwd, close_fds=True,
                                      start_new_session=True, env=self._environment(term, locale, env or {}),
                                      preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        harness._running.append(self)

    @staticmethod
    def _environment(term, locale, more):
        env = {k: v for k, v in os.environ.items() if not k.startswith("LC_") and k not in ("NO_COLOR", "LANGUAGE", "COLUMNS", "LINES")}
        env.update(TERM=term, LANG=locale, LC_ALL=locale)
        for name, value in more.items():
            if value is None:
                env.pop(name, None)
            else:
                env[name] = value
        return env

    def _size(self, columns, lines):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def _reply(self, data):
        with contextlib.suppress(OSError):
            os.write(self.master, data.encode())

    def _read(self):
        while True:
            ready = select.select([self.master, self.wake[0]], [], [])[0]
            if self.wake[0] in ready:
                return
            try:
                data = os.read(self.master, 65536)
            except OSError:
                data = b""
            with self.changed:
                if data:
                    self.output.append((time.monotonic() - self.started, data))
                    self.stream.feed(self.decoder.decode(data))
                self.changed.notify_all()
            if not data:
                return

    # ---- the screen -------------------------------------------------------------------------------------------

    def rows(self):
        """The screen's rows, without trailing blanks."""
        with self.changed:
            return [row.rstrip() for row in self.screen.display]

    def text(self):
        return "\n".join(self.rows()).rstrip("\n") + "\n"

    def cell(self, column, row):
        """One cell: data, fg, bg, bold, reverse ... as in pyte."""
        with self.changed:
            return self.screen.buffer[row][column]

    def row_of(self, pattern):
        """The number of the first row that matches, or -1."""
        return next((i for i, row in enumerate(self.rows()) if re.search(pattern, row)), -1)

    def cells(self, row):
        with self.changed:
            return [self.screen.buffer[row][x] for x in range(self.screen.columns)]

    def colours(self):
        """Colours in use on the screen."""
        with self.changed:
            return {c for y in range(self.screen.lines) for x in range(self.screen.columns)
                    for c in (self.screen.buffer[y][x].fg, self.screen.buffer[y][x].bg)} - {"default"}

    def wait_for(self, predicate, what, seconds=20):
        """Waits until predicate(self) is true after some output; returns its value."""
        limit = time.monotonic() + seconds
        with self.changed:
            while True:
                found = predicate(self)
                if found:
                    return found
                ended = self.popen.poll() is not None and not select.select([self.master], [], [], 0)[0]
                if ended and not predicate(self):
                    break
                left = limit - time.monotonic()
                if left <= 0:
                    break
                self.changed.wait(min(left, 0.1))
            raise Failure("%s: not seen within %.0f s (exit %s); the screen:\n%s" % (what, seconds, self.popen.poll(), self.text()))

    def wait(self, pattern, seconds=20):
        """Waits until the screen matches (a regular expression over all rows, "$" at their ends); returns the match."""
        expression = re.compile(pattern, re.M)
        return self.wait_for(lambda t: expression.search(t.text()), "%r" % pattern, seconds)

    def wait_gone(self, pattern, seconds=20):
        expression = re.compile(pattern, re.M)
        self.wait_for(lambda t: not expression.search(t.text()), "without %r" % pattern, seconds)

    def raw(self):
        """All output bytes."""
        with self.changed:
            return b"".join(data for _, data in self.output)

    def unexpected(self):
        """Control characters and sequences in the output that ncurses never sends."""
        text = EXPECTED.sub("", self.raw().decode("utf-8", "replace"))
        return re.findall(r"[\x00-\x06\x0b\x10-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069].{0,16}", text)

    # ---- input -----------------------------------------------------------------------------------------------

    def send(self, *keys):
        """Sends keys by names of KEYS, or text."""
        data = "".join(KEYS.get(k, k) for k in keys)
        self.typed.append((time.monotonic() - self.started, keys))
        os.write(self.master, data.encode())

    def press(self, key, pattern, seconds=20):
        """Sends a key and waits for its effect."""
        self.send(key)
        return self.wait(pattern, seconds)

    def click(self, text, pattern, seconds=20):
        """Presses the left mouse button on the text and waits for the effect."""
        y, row = next((y, r) for y, r in enumerate(self.rows()) if text in r)
        at = (row.index(text) + 1, y + 1)
        self.send("\033[<0;%d;%dM\033[<0;%d;%dm" % (at + at) if 1006 in self.state()["mouse"] else "\033[M %c%c" % (32 + at[0], 32 + at[1]))
        return self.wait(pattern, seconds)

    def resize(self, columns, lines):
        """Resizes the terminal: the kernel sends SIGWINCH to the program."""
        with self.changed:
            self.screen.resize(lines, columns)
            self.screen.cursor.y = min(self.screen.cursor.y, lines - 1)
            self.screen.cursor.x = min(self.screen.cursor.x, columns - 1)
            self.columns, self.lines = columns, lines
        self._size(columns, lines)

    def hang_up(self):
        """Closes the terminal, like its window: the program's reads and writes fail from now on."""
        self._stop_reading()
        os.close(self.master)
        self.master = -1

    # ---- terminal state --------------------------------------------------------------------------------------

    def state(self):
        """Settings that a program may leave changed."""
        with self.changed:
            s = self.screen
            return {"termios": termios.tcgetattr(self.slave), "alternate": bool(s.private & set(ALTERNATE)), "cursor": not s.cursor.hidden,
                    "mouse": sorted(s.private & set(MOUSE)), "bracketed": BRACKETED in s.private, "keys": 1 in s.private,
                    "keypad": KEYPAD in s.private, "wrap": pyte.modes.DECAWM in s.mode, "insert": pyte.modes.IRM in s.mode,
                    "margins": s.margins, "charset": (s.charset, s.g0_charset == pyte.charsets.LAT1_MAP),
                    "attributes": s.cursor.attrs._replace(data=" ") == pyte.screens.Char(" ")}

    @staticmethod
    def untouched(termios_before):
        return {"termios": termios_before, "alternate": False, "cursor": True, "mouse": [], "bracketed": False, "keys": False,
                "keypad": False, "wrap": True, "insert": False, "margins": None, "charset": (0, True), "attributes": True}

    def differences(self):
        """Settings that changed since the program began, in words; empty: none."""
        now, was = self.state(), self.untouched(self.before)
        if now["margins"] == (0, self.lines - 1):
            now["margins"] = None
        return ["%s: %s, was %s" % (k, now[k], was[k]) for k in was if now[k] != was[k]]

    # ---- the process ------------------------------------------------------------------------------------------

    @property
    def pid(self):
        return self.popen.pid

    def alive(self):
        return self.popen.poll() is None

    def end(self, seconds=20):
        """Waits for the program's end with all output read: the exit code as in a shell."""
        try:
            code = self.popen.wait(seconds)
        except subprocess.TimeoutExpired:
            raise Failure("%s did not end within %.0f s; the screen:\n%s" % (" ".join(self.command[:4]), seconds, self.text())) from None
        if self.master >= 0:
            self.drained()
        return code if code >= 0 else 128 - code

    def drained(self):
        """Waits until all output so far is on the screen."""
        limit = time.monotonic() + 5
        quiet = 0
        while quiet < 2 and time.monotonic() < limit:
            quiet = 0 if select.select([self.master], [], [], 0.02)[0] else quiet + 1
        with self.changed:
            pass

    def _stop_reading(self):
        if self.reader.is_alive():
            os.write(self.wake[1], b"x")
            self.reader.join(5)

    def stop(self):
        """Ends the program and its children by PID."""
        for pid in [*harness.children_of(self.popen.pid), self.popen.pid]:
            if self.popen.poll() is None or pid != self.popen.pid:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(Exception):
            self.popen.wait(10)
        self._stop_reading()
        for fd in (self.master, self.slave, *self.wake):
            if fd >= 0:
                with contextlib.suppress(OSError):
                    os.close(fd)
        self.master = -1
        if self in harness._running:
            harness._running.remove(self)

    # ---- pictures ---------------------------------------------------------------------------------------------

    def as_html(self, size=16):
        """The screen as an HTML page."""
        names = {"black": "#1e1e1e", "red": "#f14c4c", "green": "#23d18b", "brown": "#e5e510", "blue": "#3b8eea", "magenta": "#d670d6",
                 "cyan": "#29b8db", "white": "#e5e5e5"}

        def colour(name, default):
            if name == "default":
                return default
            if re.fullmatch("[0-9a-f]{6}", name):
                return "#" + name
            return names.get(name.replace("bright", ""), default)

        out = []
        for y in range(self.lines):
            line = []
            for c in self.cells(y):
                fg, bg = colour(c.fg, "#d4d4d4"), colour(c.bg, "#1e1e1e")
                if c.reverse:
                    fg, bg = bg, fg
                style = "color:%s;background:%s%s%s" % (fg, bg, ";font-weight:bold" if c.bold else "",
                                                        ";text-decoration:underline" if c.underscore else "")
                line.append('<b style="%s">%s</b>' % (style, html.escape(c.data)))
            out.append("<div>%s</div>" % "".join(line))
        return """<!doctype html><meta charset=utf-8><style>body{margin:0;background:#1e1e1e;padding:12px}
div{font:%dpx/%dpx 'DejaVu Sans Mono',monospace;white-space:pre;height:%dpx}
b{font-weight:normal;display:inline-block;width:%.3fpx;height:%dpx;overflow:visible;vertical-align:top}</style>%s""" % (
            size, size + 3, size + 3, size * 0.602, size + 3, "".join(out))

    def screenshot(self, path):
        """Saves the screen as text or, if the name ends in .png, as a picture made by a browser."""
        if not path.endswith(".png"):
            with open(path, "w", encoding="utf-8") as f:
                f.write(self.text())
            return
        browser = os.environ.get("CHROMIUM") or shutil.which("chromium")
        if not browser:
            raise Skip("no chromium for a picture")
        page = path[:-4] + ".html"
        with open(page, "w", encoding="utf-8") as f:
            f.write(self.as_html())
        size = "%d,%d" % (int(self.columns * 16 * 0.602) + 24, self.lines * 19 + 24)
        subprocess.run(["nice", "-n", "5", browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--window-size=" + size,
                        "--screenshot=" + path, "file://" + os.path.abspath(page)], capture_output=True, check=True, timeout=60)
        os.unlink(page)

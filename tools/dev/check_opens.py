#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
Checks that files are opened by io__open_regular(). Prints each other call that opens a file, and exits with 1 if there is
one.

    tools/dev/check_opens.py [SOURCE...]      default: user/, tools/inprocess, tools/token

A path that a target, a recording, a folder or the network chooses may lead to a device, and opening one may act on it. These calls
pass, because they open no such file:

* with O_PATH, O_DIRECTORY or O_TMPFILE, and opendir()
* with O_CREAT and O_EXCL: a new file
* of a name that stands in the call: open("/dev/null", ...)

Files that make other calls are listed in ALLOWED, each with its reason.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PLACES = "user", "tools/inprocess", "tools/token"
PROC = "names below /proc that it makes"
OWN = "its own descriptor again"
USER = "a file that the user named"
ALLOWED = {
    "tools/token/token.c": PROC,
    "user/capture/probes/probes_inside.c": PROC,
    "user/capture/probes/probes_kernel.c": OWN,
    "user/cmd/check.c": "files of /proc and /sys that it lists",
    "user/cmd/estimate.c": USER,
    "user/capture/ending/scene.c": PROC,
    "user/estimate/runs/estimate.c": "files of its own folder",
    "user/estimate/runs/run.c": "files of its own folder",
    "user/estimate/store/tcp_store.c": "files of /proc that it lists",
    "user/serve/fetch/hosts.c": USER,
    "user/capture/follow/shares.c": PROC,
    "user/record/folder/json_items.c": USER,
    "user/record/folder/machine_log.c": "its own folder, without links, and with a check",
    "user/base/io.c": "the one way to open files, and names of /proc and /sys that callers make",
    "user/base/outfile.c": "its own new file again, for writing",
    "user/base/passed_files.c": USER,
    "user/base/log/log.c": USER,
    "user/serve/mcp/mcp.c": "only looks (O_PATH)",
    "user/inspect/process/descendants.c": PROC,
    "user/inspect/process/proc.c": PROC,
    "user/inspect/process/seccomp.c": PROC,
    "user/serve/broker/users.c": "files of /proc that it lists",
    "user/serve/broker/jobs.c": OWN,
    "user/serve/broker/store.c": "its own folder, without links, and with a check",
    "user/serve/broker/trace.c": OWN,
    "user/serve/server/sandbox.c": "its terminal",
    "user/serve/server/secret.c": USER,
}
CALL = re.compile(r"(?<![\w.>])(?:(?:open|openat|open64|openat64|openat2|creat|fopen|fopen64|freopen|gzopen|json_load_file)\(|syscall\(SYS_open\w*)")
HARMLESS = re.compile(r"\bO_PATH\b|\bO_DIRECTORY\b|\bO_TMPFILE\b|\bO_CREAT\s*\|\s*O_EXCL\b")
NAMED = re.compile(r'^(?:(?:open|creat|fopen|freopen)(?:64)?\(|openat(?:64)?\([^,"]*,)\s*"[^"]*"')


def without_comments(text):
    return re.sub(r"/\*.*?\*/|//[^\n]*", lambda m: re.sub(r"[^\n]", " ", m.group()), text, flags=re.S)


def call_at(text, start):
    """The text of a call, up to its closing bracket."""
    depth = 0
    for i in range(text.index("(", start), len(text)):
        depth += (text[i] == "(") - (text[i] == ")")
        if not depth:
            return text[start:i + 1]
    return text[start:]


def opens(path):
    """Lines and texts of the calls that may open a file of somebody else's choice."""
    text = without_comments(path.read_text(encoding="utf-8"))
    for m in CALL.finditer(text):
        call = call_at(text, m.start())
        if not HARMLESS.search(call) and not NAMED.match(call):
            yield text.count("\n", 0, m.start()) + 1, " ".join(call.split())


def main(args):
    sources = [pathlib.Path(a).resolve() for a in args] or sorted(f for place in PLACES for f in (ROOT / place).rglob("*.c"))
    bad, needed = 0, set()
    for f in sources:
        name = f.relative_to(ROOT).as_posix() if f.is_relative_to(ROOT) else str(f)
        for line, call in opens(f):
            needed.add(name)
            if name not in ALLOWED:
                print("%s:%d: %s: use io__open_regular(), or list the file in tools/dev/check_opens.py with the reason" % (name, line, call))
                bad = 1
    for name in sorted(set(ALLOWED) - needed if not args else ()):
        print("tools/dev/check_opens.py: %s opens no file of its own: take it off the list" % name)
        bad = 1
    return bad


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

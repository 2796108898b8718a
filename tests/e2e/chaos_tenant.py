# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
Scenarios for chaos.py with a hostile tenant: another user of the machine, whose processes, files and hosts try to harm others while
root runs memtrace-bpf. Next to each attack runs a bystander, a process of root that is not recorded (tests/programs/bystander.c). It
checks every byte of its code, its results and its rate. Each attack has to be held: a byte or a result that differs, a rate of less
than a tenth, a command that runs or types as root, or a memtrace-bpf that does not end, is a failure.
"""
import contextlib
import json
import os
import shutil
import signal
import statistics
import struct
import subprocess
import threading
import time

import chaos
import harness
import mtr_writer
import server
import test_crowd
import test_fetch_hostile
import test_other_user
import test_others
import test_replay
import test_scan
from chaos import Row, Storm, compiled
from harness import AS_NOBODY, IS_ROOT, TOOL, WORKLOADS, Failure, Skip, check, scratch, spawn, tool, until

PYTHON = "/usr/bin/python3"  # one that others can run
SLOWER = 10  # a rate divided by this is harm; the machine may be busy
SCAN_SECONDS = 10  # CPU time of a scan, where a process brings large files
PATIENCE = 60  # s until memtrace-bpf ends or finds a process, whatever the tenant does
MOST_MEMORY = 700 << 20  # bytes, for small files


def name_of(what):
    """A name for processes of this run."""
    return "tenant-%s-%d" % (what, os.getpid())


class Bystander:
    """A process of root that is not recorded, within `with`. After each attack the row gets what it says."""

    def __init__(self, row):
        if not IS_ROOT or not shutil.which("setpriv"):
            raise Skip("needs root, to be two users")
        self.row = row
        self.code = test_others.shared_object("bystander/work.so", test_others.WORK)
        self.process = spawn([compiled("bystander.c", "bystander-program", "-rdynamic"), self.code])
        self.process.wait_line("^ready", 30)
        self.seen, self.most_changed, self.share = 0, 0, 1

    def ask(self):
        self.seen += 1
        self.process.send()
        limit = time.monotonic() + PATIENCE
        while len(self.process.out) <= self.seen:
            check(self.process.alive() and time.monotonic() < limit, "the bystander does not answer: %s", self.process.stderr()[-300:])
            time.sleep(0.005)
        return json.loads(self.process.out[self.seen][1])

    def measured(self):
        """What it has seen since the last question, and a rate: the next one if it has measured none since."""
        now = self.ask()
        while not now["rate"]:
            later = self.ask()
            now = {k: max(now[k], later[k]) for k in now}
        return now

    def __enter__(self):
        self.before = statistics.median(self.measured()["rate"] for _ in range(9))
        return self

    def look(self, what):
        """After an attack: the bystander's code, results and rate."""
        now = self.measured()
        self.row.count += 1
        if now["most_changed"] or now["wrong"]:
            self.row.wrong.append("%s: %d bytes of a bystander's code changed, %d of its results were wrong" % (what, now["most_changed"], now["wrong"]))
        if now["rate"] * SLOWER < self.before:
            self.row.wrong.append("%s: a bystander made %d calls a second of CPU time, %d before" % (what, now["rate"], self.before))
        share = min(1, now["rate"] / self.before)
        self.most_changed, self.share = max(self.most_changed, now["most_changed"]), min(self.share, share)
        self.row.notes.append("%s: %d bytes, %.0f %% of the rate" % (what, now["most_changed"], 100 * share))
        self.row.summary = "of the bystander %d bytes changed, and its rate was at least %.0f %%" % (self.most_changed, 100 * self.share)

    def __exit__(self, kind, value, trace):
        if not kind:
            self.row.target_lives(self.process, "the attacks")
        self.process.stop()


@contextlib.contextmanager
def attack(name):
    row = Row(name)
    with Bystander(row) as bystander:
        yield row, bystander


def harmed(row, what, ok, words):
    if not ok:
        row.wrong.append("%s: %s" % (what, words))


def run_form(row, what, options, seconds=4):
    """Runs a form of memtrace-bpf for some seconds."""
    p = spawn([TOOL, *options], root=True)
    limit = time.monotonic() + seconds
    while p.alive() and time.monotonic() < limit:
        time.sleep(0.05)
    code = harness.interrupt(p, PATIENCE)
    harmed(row, what, code in (0, 2, 3), "exit code %d: %s" % (code, p.stderr()[-300:]))


def forms(word, pid, folder):
    """The forms of memtrace-bpf that have probes in several processes."""
    where = scratch(folder)
    os.makedirs(where, exist_ok=True)
    return (("record --name", ("record", "--name", word, "-o", where + "/name/")),
            ("record --children", ("record", "-p", str(pid), "--children", "-o", where + "/children/")),
            ("watch --on-kill", ("watch", "--name", word, "--on-kill", "-o", where + "/watch/")),
            ("record --all", ("record", "--all", "-o", where + "/all/")))


# ---- code of others ----------------------------------------------------------------------------------------

def mapping(word, arguments):
    """A process of another user with a child for each of these arguments of tenant_maps.c. Their command lines have the word."""
    program = scratch(word)
    if not os.path.exists(program):
        shutil.copy(compiled("tenant_maps.c", "tenant-maps"), program)
    lines = "".join("%s %s <&3 &\n" % (program, " ".join(each)) for each in arguments)
    p = spawn([*AS_NOBODY, "sh", "-c", "exec 3<&0\n%swait" % lines])
    until(lambda: not p.alive() or p.stdout().count("ready") == len(arguments), "the tenant's processes start", 30)
    check(p.alive(), "the tenant's processes do not start: %s", p.stderr()[-300:])
    return p


def swapping(word, other):
    """Processes that map the other file over their own library, each at another moment and in another way."""
    moments = [(2, 0, "map"), (2, 100, "map"), (4, 0, "map"), (4, 50, "move"), (6, 0, "map"), (6, 100, "map"), (8, 0, "move"), (10, 50, "map"), (0, 0, "back")]
    return mapping(word, [(test_others.shared_object("%s-%d/torch/lib/libc10.so" % (word, i), test_others.TORCH), other, str(events), str(ms), how)
                          for i, (events, ms, how) in enumerate(moments)])


def swapped_code(n):
    """Another file comes to the addresses where the recorder has just read PyTorch's names."""
    with attack("a tenant maps another file over its PyTorch while it is looked at") as (row, bystander):
        for i in range(n):
            for k in range(4):
                word = name_of("maps%d%d" % (i, k))
                tenant = swapping(word, bystander.code)
                form, options = forms(word, tenant.popen.pid, "swapped-%d" % i)[k]
                run_form(row, form, options)
                swapped = tenant.stdout().count("swapped")
                harmed(row, form, swapped, "no process was looked at: this has tried nothing")
                tenant.popen.stdin.close()
                tenant.wait(30)
                bystander.look("%s, %d swapped" % (form, swapped))
    return row


def pointed_code(n):
    """A Python's own objects lead the recorder to a function of the bystander's."""
    with attack("a tenant's Python points to a function of others") as (row, bystander):
        for i in range(n):
            for k in range(4):
                word = name_of("points%d%d" % (i, k))
                script = shutil.copy(os.path.join(WORKLOADS, "points.py"), scratch(word + ".py"))
                tenant = spawn([*AS_NOBODY, PYTHON, script, bystander.code, "work"])
                tenant.wait_line("^ready", 60)
                form, options = forms(word, tenant.popen.pid, "pointed-%d" % i)[k]
                run_form(row, form, options)
                bystander.look(form)
                tenant.popen.stdin.close()
                tenant.wait(30)
    return row


# ---- the terminal and the shell ----------------------------------------------------------------------------

def typed(n):
    """The command of another user tries to type into root's terminal, and to use root's open files."""
    with attack("a command of another user types into root's terminal") as (row, bystander):
        folder, typist = test_other_user.place("tenant-types-%d" % time.monotonic_ns())
        behind_sudo = dict(os.environ, SUDO_UID="65534", SUDO_GID="65534")
        for _ in range(n):
            for what, options, env in (("run --user", ("run", "--user", "nobody", "--no-trace"), None),
                                       ("run --inside", ("run", "--user", "nobody", "--inside", "-f", "-o", os.path.join(folder, "run.mtr")), None),
                                       ("run behind sudo", ("run", "--no-trace"), behind_sudo),
                                       ("estimate", ("estimate", "--user", "nobody"), None)):
                text = test_other_user.on_a_terminal(TOOL, *options, "--", typist, env=env)
                harmed(row, what, "to read: nothing" in text, "root's shell has input: %s" % text[-200:])
                harmed(row, what, "uid 65534" in text, "it was not tried: %s" % text[-200:])
                bystander.look(what)
    return row


def planted_programs(n):
    """Recordings that name a program next to them, in every way that a clone or an archive can bring."""
    with attack("a recording brings a program along, and root replays it") as (row, bystander):
        for i in range(n):
            top = scratch("clone-%d" % i)
            ran = scratch("clone-ran-%d" % i)
            for folder in ("rec", "tools", "usr/bin", "rec/bin"):
                os.makedirs(os.path.join(top, folder))
            program = os.path.join(top, "tools/python3")
            with open(program, "w", encoding="ascii") as f:
                f.write("#!/bin/sh\n: >%s\n" % ran)
            os.chmod(program, 0o755)
            linked = os.path.join(top, "rec/bin/python3")
            os.symlink("../../tools/python3", linked)
            shutil.copy(program, os.path.join(top, "usr/bin/python3"))
            for named in (program, linked, os.path.join(top, "usr/bin/python3"), "/usr/../" + program, "/usr/bin/../../" + program, "/proc/self/root" + program,
                          "/dev/fd/../root" + program):
                path = shutil.copy(test_replay.saying("planted.mtr", cmdline=json.dumps([named, "train.py"]), torch_lib=""), os.path.join(top, "rec/run.mtr"))
                for recording, cwd in ((path, "/"), ("run.mtr", os.path.dirname(path)), (path, top)):
                    tool("replay", recording, cwd=cwd, root=True)
                    harmed(row, "replay", not os.path.exists(ran), "%s was run" % named)
                    with contextlib.suppress(FileNotFoundError):
                        os.unlink(ran)
            tool("replay", "--python", program, path, root=True)
            harmed(row, "replay", os.path.exists(ran), "the program does not run when the user names it: this has tried nothing")
            bystander.look("replay")
    return row


# ---- files that hold up a scan -----------------------------------------------------------------------------

def limited(what, row, *args, cpu=SCAN_SECONDS, memory=MOST_MEMORY, release=None):
    """Runs memtrace-bpf; more CPU time or memory than this is harm. release: lets one end that cannot be killed."""
    p = subprocess.Popen([TOOL, *args], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    over = []

    def end():
        over.append(PATIENCE)
        os.kill(p.pid, signal.SIGKILL)
        if release:
            release()

    timer = threading.Timer(PATIENCE, end)
    timer.start()
    err = p.stderr.read().decode(errors="replace")
    _, status, used = os.wait4(p.pid, 0)
    p.returncode = os.waitstatus_to_exitcode(status)
    timer.cancel()
    took = used.ru_utime + used.ru_stime
    harmed(row, what, not over, "not over, or its output still open, after %d s" % PATIENCE)
    harmed(row, what, over or p.returncode >= 0, "signal %d: %s" % (-p.returncode, err[-200:]))
    harmed(row, what, took < cpu, "%.1f s of CPU time" % took)
    harmed(row, what, used.ru_maxrss << 10 < memory, "%d MiB of memory" % (used.ru_maxrss >> 10))
    return took


def sparse_elf(path, symbols=16 << 20, names=(256 << 20) - 4096):
    """An ELF file with millions of symbols that takes a few KiB on disk."""
    at, text = 0x10000, 0x10000 + symbols * 24
    size = text + names + 4096
    head = b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 64, 0x2000, 0, 64, 56, 2, 64, 3, 0)
    segments = struct.pack("<IIQQQQQQ", 1, 5, 0, 0, 0, size, size, 4096) + struct.pack("<IIQQQQQQ", 2, 6, 0x1000, 0x1000, 0x1000, 64, 64, 8)
    dynamic = b"".join(struct.pack("<QQ", *d) for d in ((6, at), (5, text), (10, names), (0, 0)))
    sections = bytes(64) + struct.pack("<IIQQQQIIQQ", 0, 11, 2, at, at, symbols * 24, 2, 0, 8, 24) + struct.pack("<IIQQQQIIQQ", 0, 3, 2, text, text, names, 0, 0, 1, 0)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as f:
        f.write(head + segments)
        f.seek(0x1000)
        f.write(dynamic)
        f.seek(0x2000)
        f.write(sections)
        f.truncate(size)
    return path


def sparse_files(n):
    """Files of a few KiB that name millions of symbols, in several processes."""
    with attack("a tenant maps sparse files with millions of symbols") as (row, bystander):
        files = [sparse_elf(scratch("sparse-%d/libc10.so" % i)) for i in range(8)]
        tenant = mapping(name_of("holds"), [(f, f, "0", "0", "map") for f in files])
        for _ in range(n):
            took = limited("watch --all", row, "watch", "--all", "--rule", "rss>1T", "-d", "1s")
            bystander.look("watch --all (%.1f s of CPU time)" % took)
        tenant.popen.stdin.close()
        tenant.wait(30)
    return row


def is_listed(s, pid, seconds):
    limit = time.monotonic() + seconds
    while time.monotonic() < limit:
        if pid in {p["pid"] for p in s.get("/api/targets").expect().json["processes"]}:
            return True
        time.sleep(0.2)
    return False


def stalled_files(n):
    """A file system of the tenant's does not answer: scans go on, and new processes of others are found."""
    with attack("a tenant's file system does not answer") as (row, bystander):
        for i in range(n):
            stalled = test_scan.Stalled("tenant-%d" % i, "open")
            try:
                limited("watch --all", row, "watch", "--all", "--rule", "rss>1T", "-d", "1s", release=stalled.stop)
                bystander.look("watch --all")
                if not stalled.process.alive():
                    continue
                s = server.Server("--all")
                job = Storm()
                harmed(row, "serve --all", is_listed(s, job.pid, PATIENCE), "a job that came later is not known after %d s" % PATIENCE)
                bystander.look("serve --all")
                job.end(row)
                stalled.stop()
                s.stop()
            finally:
                if stalled.process.alive():
                    stalled.stop()
    return row


def linked_devices(n):
    """What a library's folder names leads to a special file: it is not opened."""
    with attack("a tenant's version.py leads to a special file") as (row, bystander):
        for i in range(n):
            folder, special = scratch("links-%d/torch" % i), scratch("special-%d" % i)
            os.makedirs(os.path.join(folder, "lib"))
            library = shutil.copy(chaos.hooks(), os.path.join(folder, "lib"))
            os.mkfifo(special)
            os.symlink(special, os.path.join(folder, "version.py"))
            os.chmod(special, 0o666)
            opens = test_scan.Opens(special)
            storm = Storm(library, prefix=AS_NOBODY)
            for what, args in (("check", ("check", "-p", str(storm.pid))), ("record", ("record", "-p", str(storm.pid), "-f", "-d", "1s", "-o", scratch("links.mtr"))),
                               ("dump", ("dump", "-p", str(storm.pid)))):
                tool(*args, root=True, seconds=PATIENCE)
                harmed(row, what, not opens.seen(), "the special file was opened")
                bystander.look(what)
            storm.end(row)
    return row


# ---- places ------------------------------------------------------------------------------------------------

def crowds(_n):
    """More processes of the tenant's than there are places, in each table."""
    with attack("a tenant's processes take all places") as (row, bystander):
        for what, test in (("followed", test_crowd.test_a_crowd_leaves_places_to_other_users), ("recorded", test_crowd.test_recordings_are_shared_among_users),
                           ("watched", test_crowd.test_watch_leaves_places_to_other_users)):
            try:
                test()
            except Failure as e:
                row.wrong.append("%s: %s" % (what, e))
            bystander.look(what)
    return row


# ---- what comes from elsewhere -----------------------------------------------------------------------------

def hostile_hosts(n):
    """fetch from a host that sends a byte at a time, an error or a list without an end."""
    drips = test_fetch_hostile.drips
    modes = (("trickle", {"RECORDING": drips(200)}), ("error", {"RECORDING": drips(500)}),
             ("list", {"GET /api/targets": (200, b'{"processes":[' + b"{}," * 5500000 + b"{}]}")}))
    with attack("a hostile host holds up fetch") as (row, bystander):
        for i in range(n):
            for mode, answers in modes:
                host = test_fetch_hostile.host(**answers)
                limited("fetch, " + mode, row, "fetch", "--http", "--timeout", "2s", "--lead", "1s", "-d", "1s", "-o", scratch("fetched-%s-%d/" % (mode, i)),
                        "127.0.0.1:%d" % host.port, memory=256 << 20)
                host.close()
                bystander.look("fetch, " + mode)
    return row


def bombs(n):
    """Small recordings and folders that would take much memory or time, or hold up readers."""
    with attack("recordings and folders that are bombs") as (row, bystander):
        bomb, trap, index = scratch("bomb.mtr"), test_scan.indexed("trap", "r0.mtr"), test_scan.indexed("index")
        w = mtr_writer.Writer(bomb, {"pid": "1"})
        for _ in range(60):
            w.block(140000, compress=True)
        w.close()
        os.mkfifo(os.path.join(trap, "r0.mtr"))
        with open(os.path.join(index, "index.json"), "w", encoding="ascii") as f:
            f.write('{"memtrace_folder":1,"recordings":[' + "{}," * 4000000 + "{}]}")
        for _ in range(n):
            for what, args in (("report of a bomb", ("report", bomb)), ("export of a bomb", ("export", "parquet", bomb, "-f", "-o", scratch("bomb.parquet"))),
                               ("report of a FIFO", ("report", trap)), ("leaks of a FIFO", ("leaks", trap)), ("report of a long index", ("report", index))):
                limited(what, row, *args)
                bystander.look(what)
    return row

# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
Step figures of a job while `memtrace-bpf record --figures` records it: for TensorBoard, W&B and MLflow. No root, no dependency.

    python -m memtrace_bpf.figures tensorboard --logdir runs/ -p PID
    python -m memtrace_bpf.figures wandb --project NAME -p PID
    python -m memtrace_bpf.figures mlflow --experiment NAME -p PID

The job itself can add them to what it logs: wandb.log({"loss": loss, **memtrace_bpf.figures.latest()}).
docs/reference/figures.md describes the figures and the socket.
"""
import argparse
import errno
import importlib.util
import json
import os
import re
import select
import signal
import socket
import stat
import struct
import sys
import time

MESSAGE = 65536  # bytes of a message at most
LOOK_EVERY = 1.0  # seconds between two searches for recorders
AT_ONCE = 4096  # messages that a call reads at most
RECORDERS = 64  # recorders that are read at the same time
DEVICES, SCOPES = 64, 64  # of a step
NAME = 128  # characters of a name
KEYS = 8192  # processes, and scopes of processes without steps
MIB = 1 << 20


def folders():
    """The folders of sockets: of root's recorders, and of the user's own."""
    found = ["/run/memtrace-bpf-figures"]
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    if runtime.startswith("/"):
        found.append(os.path.join(runtime, "memtrace-bpf-figures"))
    return found


class Step:
    """A step that has ended. Figures are bytes. number: the job's own number of the step if the optimizer counts them, otherwise
    counted in the recording. by: "optimizer", or "call" of the model in a job without an optimizer. whole: False for a step that was
    under way when the recorder attached; its peak may have been higher. In a job without steps, by is "scope": number is that of a run
    of the only one in scopes."""
    __slots__ = ("pid", "rank", "by", "number", "time", "seconds", "whole", "lost", "devices", "host", "scopes")

    def values(self, prefix="memtrace/"):
        """{name: value} for a logger: MiB, exact to the byte, because 1/1048576 has an exact double."""
        found = {prefix + "step": self.number}
        if self.by == "scope":
            found = {"%sscope/%s/run" % (prefix, plain_path(self.scopes[0]["scope"])): self.number}
        if self.whole and self.seconds is not None:
            found[prefix + "step_seconds"] = self.seconds
        for d in shown(self.devices):
            at = "%s%s/" % (prefix, plain(d["device"]))
            found[at + "peak_MiB"] = d["peak_allocated"] / MIB
            found[at + "allocated_MiB"] = d["allocated"] / MIB
            if "reserved" in d:
                found[at + "reserved_MiB"] = d["reserved"] / MIB
            if "growth_per_step" in d:
                found[at + "growth_MiB_per_step"] = d["growth_per_step"] / MIB
        if self.host is not None:
            found[prefix + "host/resident_MiB"] = self.host / MIB
        for s in self.scopes:
            for d in shown(s["devices"]):
                at = "%sscope/%s/%s/" % (prefix, plain_path(s["scope"]), plain(d["device"]))
                found[at + "peak_MiB"] = d["peak_allocated"] / MIB
                if "peak_reserved" in d:
                    found[at + "reserved_MiB"] = d["peak_reserved"] / MIB
                if "kept" in d:
                    found[at + "kept_MiB"] = d["kept"] / MIB
        return found


def shown(devices):
    """Without the CPU of a job on a GPU that has only scalars there."""
    return [d for d in devices if d["device"] != "cpu" or d["peak_allocated"] >= MIB or len(devices) == 1]


def plain(name):
    """A name that every logger accepts: cuda:0 is cuda_0."""
    return re.sub(r"[^A-Za-z0-9_.-]", "_", name)


def plain_path(scope):
    return plain(scope.replace(" > ", "."))


def is_axis(name):
    """The first of a step's values: its number, or that of the run."""
    return name.endswith(("/step", "/run"))


# ---- what a recorder sends is checked, whoever it is ----


class Damaged(Exception):
    """A message that is none."""


def number(o, key, default=None, kinds=(int,), most=1 << 63):
    value = o.get(key, default)
    if value is default and key not in o:
        if default is None:
            raise Damaged(key)
        return default
    if isinstance(value, bool) or not isinstance(value, kinds) or not 0 <= value < most:
        raise Damaged(key)
    return value


def name_of(o, key, most=NAME):
    value = o.get(key)
    if not isinstance(value, str) or not value or len(value) > most:
        raise Damaged(key)
    return value


def list_of(o, key, most):
    value = o.get(key, [])
    if not isinstance(value, list) or len(value) > most or not all(isinstance(v, dict) for v in value):
        raise Damaged(key)
    return value


def device_of(o, needed, known):
    found = {"device": name_of(o, "device")}
    for key in needed:
        found[key] = number(o, key)
    for key in known:
        if key in o:
            found[key] = number(o, key)
    return found


def step_of(o):
    step = Step()
    step.pid, step.rank, step.number = number(o, "pid"), None, number(o, "job_step" if "job_step" in o else "step")
    step.by = name_of(o, "by")
    start, end = (number(o, key, kinds=(int, float)) for key in ("start", "end"))
    step.seconds = end - start if end >= start else None
    step.time = float(number(o, "time", default=time.time(), kinds=(int, float), most=1 << 40))
    step.whole, step.lost = o.get("whole") is True, number(o, "lost", default=0)
    step.devices = []
    for d in list_of(o, "devices", DEVICES):
        device = device_of(d, ("allocated", "peak_allocated"), ("reserved",))
        growth = d.get("growth_per_step")
        if growth is not None:
            if isinstance(growth, bool) or not isinstance(growth, (int, float)) or not abs(growth) < 1 << 63:
                raise Damaged("growth_per_step")
            device["growth_per_step"] = growth
        step.devices.append(device)
    host = o.get("host", {})
    if not isinstance(host, dict):
        raise Damaged("host")
    step.host = number(host, "resident") if "resident" in host else None
    step.scopes = [scope_of(s) for s in list_of(o, "scopes", SCOPES)]
    return step


def scope_of(o):
    return {"scope": name_of(o, "scope", 1024), "runs": number(o, "runs"),
            "devices": [device_of(d, ("peak_allocated",), ("kept", "peak_reserved", "end")) for d in list_of(o, "devices", DEVICES)]}


def run_of(o):
    """The last runs of a scope, in a job without steps."""
    step = Step()
    step.pid, step.rank, step.number, step.by = number(o, "pid"), None, number(o, "run"), "scope"
    step.time = float(number(o, "time", default=time.time(), kinds=(int, float), most=1 << 40))
    step.seconds, step.whole, step.lost, step.devices, step.host, step.scopes = None, True, 0, [], None, [scope_of(o)]
    return step


def parsed(text):
    """The object of a message. Raises Damaged."""
    def no_constant(word):
        raise ValueError(word)
    try:
        o = json.loads(text.decode("utf-8"), parse_constant=no_constant)
    except (ValueError, RecursionError):
        raise Damaged("JSON") from None
    if not isinstance(o, dict):
        raise Damaged("object")
    return o


# ---- recorders ----


class Recorder:
    """A connection to a recorder."""

    def __init__(self, path, trusted):
        self.path, self.you, self.ranks, self.offsets = path, None, {}, {}
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
        try:
            # Waits in the queue if programs of other users are before us; with settimeout() it would fail at once.
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", 1, 0))
            self.socket.connect(path)
            uid = struct.unpack("3i", self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[1]
            if trusted and uid not in (0, os.getuid()):
                raise OSError(errno.EPERM, "the recorder is another user's")
            self.socket.setblocking(False)
        except OSError:
            self.socket.close()
            raise

    def message(self):
        """The next message; b"": there is none yet; None: the recorder has ended."""
        try:
            text = self.socket.recv(MESSAGE + 1)
        except (BlockingIOError, InterruptedError):
            return b""
        except OSError:
            return None
        return text or None


class Reader:
    """The steps of recorded processes. pid: a process as `ps` shows it, "self": this process, None: all of this user's processes.
    folder: only this folder of sockets, whoever owns it; for a container that has the host's folder mounted."""

    def __init__(self, pid="self", folder=None):
        self.pid, self.folder, self.made_by = pid, folder, os.getpid()
        self.recorders, self.looked = {}, None
        self.readers = {}  # by PID: path of the recorder whose steps count
        self.last = {}  # by PID, or PID and scope: number of the last step or run
        self.damaged = 0  # messages that were none
        self.ends = {}  # by PID: reason why the last recording ended

    def close(self):
        for r in self.recorders.values():
            r.socket.close()
        self.recorders = {}

    def _look(self):
        """Connects to recorders that are new."""
        self.looked = time.monotonic()
        for folder in [self.folder] if self.folder else folders():
            try:
                st = os.stat(folder)
                if not self.folder and (st.st_uid not in (0, os.getuid()) or st.st_mode & (stat.S_IWGRP | stat.S_IWOTH)):
                    continue
                names = os.listdir(folder)
            except OSError:
                continue
            for name in sorted(names)[:1024]:
                path = os.path.join(folder, name)
                if not name.endswith(".sock") or path in self.recorders or len(self.recorders) >= RECORDERS:
                    continue
                try:
                    self.recorders[path] = Recorder(path, not self.folder)
                except OSError:
                    pass  # it has ended, or its processes are another user's

    def read(self, seconds=0):
        """The steps that ended since the last call. Waits until there is one, at most `seconds`. Without a recorder a call costs about a
        microsecond, and once a second a look into a folder."""
        if os.getpid() != self.made_by:  # a forked process shares the sockets, and would take messages from its parent
            self.__init__(self.pid, self.folder)
        until = None
        while True:
            if self.looked is None or time.monotonic() - self.looked >= LOOK_EVERY:
                self._look()
            found = [step for r in list(self.recorders.values()) for step in self._steps(r)] if self.recorders else []
            if found or not seconds:
                return found
            now = time.monotonic()
            until = now + seconds if until is None else until
            if now >= until:
                return found
            wait = max(0, min(until - now, self.looked + LOOK_EVERY - now))
            if self.recorders:
                select.select([r.socket for r in self.recorders.values()], [], [], wait)
            else:
                time.sleep(wait)

    def _steps(self, r):
        found = []
        for _ in range(AT_ONCE):
            text = r.message()
            if text == b"":
                break
            if text is None:
                self._drop(r)
                break
            try:
                step = self._take(r, text) if len(text) <= MESSAGE else None
            except Damaged:
                self.damaged += 1
                continue
            if step:
                found.append(step)
        return found

    def _drop(self, r):
        r.socket.close()
        self.recorders.pop(r.path, None)
        self.readers = {pid: path for pid, path in self.readers.items() if path != r.path}

    def _take(self, r, text):
        """The step of a message; None: it is about something else, or another recorder has it, too."""
        o = parsed(text)
        kind = o.get("kind")
        if kind == "hello":
            r.you = number(o, "you")
        if kind not in ("process", "step", "scope", "end"):
            return None
        pid = number(o, "pid")
        if self.pid is not None and pid != (r.you if self.pid == "self" else self.pid):
            return None
        if self.readers.setdefault(pid, r.path) != r.path or len(self.readers) > 4096:
            return None
        if kind == "process":
            r.ranks[pid] = number(o, "rank", default=-1)
            return None
        if kind == "end":
            self.ends[pid] = str(o.get("reason"))[:NAME]
            return None
        step = run_of(o) if kind == "scope" else step_of(o)
        key = (pid, step.scopes[0]["scope"]) if kind == "scope" else pid
        if len(self.last) > KEYS:
            raise Damaged("too many scopes")
        rank = r.ranks.get(pid, -1)
        step.rank = rank if rank >= 0 else None
        last = self.last.get(key, 0)
        if "job_step" not in o:
            # Another recorder counts from 1 again. Its steps follow those that were read before.
            offset = r.offsets.setdefault(key, last + 1 - step.number if step.number <= last else 0)
            step.number += offset
        elif step.number <= last:
            return None
        self.last[key] = step.number
        return step


_own = []


def latest():
    """{name: value} of the last step of this process, for the dictionary that the job logs. {}: nothing records it, or no step has
    ended. Never waits."""
    if not _own:
        _own.extend((Reader(), {}))
    steps = _own[0].read()
    if steps and steps[-1].by == "scope":
        for step in steps:  # one for each scope
            _own[1].update(step.values())
    elif steps:
        _own[1] = steps[-1].values()
    elif not _own[0].recorders:
        _own[1] = {}
    return dict(_own[1])


# ---- TensorBoard ----


def _table():
    for n in range(256):
        for _ in range(8):
            n = n >> 1 ^ (0x82f63b78 if n & 1 else 0)
        yield n


CRC = tuple(_table())


def masked_crc(data):
    crc = 0xffffffff
    for byte in data:
        crc = crc >> 8 ^ CRC[(crc ^ byte) & 255]
    crc ^= 0xffffffff
    return ((crc >> 15 | crc << 17) + 0xa282ead8) & 0xffffffff


def varint(n):
    out = b""
    while n > 127:
        out += bytes((n & 127 | 128,))
        n >>= 7
    return out + bytes((n,))


def field(no, data):
    return varint(no << 3 | 2) + varint(len(data)) + data


class TensorBoard:
    """An event file in the folder logdir. TensorBoard's charts have floats of 32 bits. If that is not exact for a size, what is missing
    is a value of its own: NAME_rest_bytes next to NAME_MiB."""

    def __init__(self, logdir):
        os.makedirs(logdir, exist_ok=True)
        name = "events.out.tfevents.%010d.%s.%d.memtrace" % (time.time(), plain(socket.gethostname()), os.getpid())
        self.path = os.path.join(logdir, name)
        self.file = open(self.path, "xb")
        self._event(time.time(), 0, field(3, b"brain.Event:2"))

    def _event(self, when, step, rest):
        data = struct.pack("<Bd", 0x09, when) + b"\x10" + varint(step) + rest
        length = struct.pack("<Q", len(data))
        self.file.write(length + struct.pack("<I", masked_crc(length)) + data + struct.pack("<I", masked_crc(data)))
        self.file.flush()

    def log(self, values, step, when):
        summary = b""
        for tag, value in values.items():
            if is_axis(tag):
                continue
            short = struct.pack("<f", value)
            rest = (value - struct.unpack("<f", short)[0]) * MIB if tag.endswith("_MiB") else 0
            for name, data in ((tag, short), (tag[:-3] + "rest_bytes", struct.pack("<f", rest)))[:2 if rest else 1]:
                summary += field(1, field(1, name.encode()) + b"\x15" + data)
        self._event(when, step, field(5, summary))

    def close(self):
        self.file.close()


# ---- clients of others, in the environment of the job ----


class Wandb:
    """A run of W&B: one that the caller has, or a new one of these arguments of wandb.init()."""

    def __init__(self, run=None, **arguments):
        self.made = run is None
        if self.made:
            import wandb
            run = wandb.init(**arguments)
        self.run, self.axes = run, set()

    def log(self, values, step, when):
        axis = next(filter(is_axis, values))
        if axis not in self.axes:
            self.axes.add(axis)
            self.run.define_metric(axis)
            self.run.define_metric(axis.rpartition("/")[0] + "/*", step_metric=axis)
        self.run.log(values)

    def close(self):
        if self.made:
            self.run.finish()


class MLflow:
    """A run of MLflow: the one with this ID, or a new one in the experiment."""

    def __init__(self, run_id=None, experiment=None, tracking_uri=None, run_name=None):
        from mlflow.entities import Metric
        from mlflow.tracking import MlflowClient
        self.metric, self.client, self.made = Metric, MlflowClient(tracking_uri=tracking_uri), run_id is None
        if self.made:
            experiment = experiment or "Default"
            known = self.client.get_experiment_by_name(experiment)
            of = known.experiment_id if known else self.client.create_experiment(experiment)
            run_id = self.client.create_run(of, run_name=run_name).info.run_id
        self.run_id = run_id

    def log(self, values, step, when):
        metrics = [self.metric(name, float(value), int(when * 1000), step) for name, value in values.items() if not is_axis(name)]
        for i in range(0, len(metrics), 1000):  # as many as a request may have
            self.client.log_batch(self.run_id, metrics=metrics[i:i + 1000])

    def close(self):
        if self.made:
            self.client.set_terminated(self.run_id)


# ---- python -m memtrace_bpf.figures ----


def started(pid):
    """When the process started, in ticks since boot; None: there is no such process."""
    try:
        with open("/proc/%d/stat" % pid, "rb") as f:
            words = f.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if words[0] in b"ZX" else int(words[19])


def prefix_of(args, step):
    if args.pid is not None:
        return "memtrace/"
    return "memtrace/rank_%d/" % step.rank if step.rank is not None else "memtrace/pid_%d/" % step.pid


def say(text):
    print("memtrace_bpf.figures: " + text, flush=True)


def publish(args, make):
    """Writes steps until the process has ended, or a signal. Returns the number of steps."""
    reader, log, written = Reader(args.pid, args.folder), None, 0
    began = started(args.pid) if args.pid is not None else None
    if args.pid is not None and began is None:
        sys.exit("memtrace_bpf.figures: no process has the PID %d" % args.pid)
    stop = []
    for s in (signal.SIGINT, signal.SIGTERM):
        signal.signal(s, lambda *_: stop.append(True))
    over, known = False, None
    while True:
        # The last look comes after the process's end: the recorder sends the last steps before it ends itself.
        steps = reader.read(1)
        if known != set(reader.recorders):
            known = set(reader.recorders)
            say("reads %d recorders" % len(known) if len(known) > 1 else "reads a recorder" if known else "waits for a recorder")
        for step in steps:
            try:
                log = log or make()
                log.log(step.values(prefix_of(args, step)), step.number, step.time)
            except Exception as e:  # of a client of others: its server does not answer, or refuses
                sys.exit("memtrace_bpf.figures: %s took no figures after %d steps: %s: %s" % (args.kind, written, type(e).__name__, e))
            written += 1
        if over and not steps and (not reader.recorders or stop):
            break
        over = over or bool(stop) or (began is not None and started(args.pid) != began)
    if log:
        log.close()
    return reader, written


def main():
    parser = argparse.ArgumentParser(prog="python -m memtrace_bpf.figures", description="Write the step figures of a job that memtrace-bpf records with "
                                     "--figures to TensorBoard, W&B or MLflow, until the job ends.")
    kinds = parser.add_subparsers(dest="kind", required=True, metavar="tensorboard|wandb|mlflow")
    for kind, options in (("tensorboard", ("logdir",)), ("wandb", ("project", "entity", "group", "name", "run-id")),
                          ("mlflow", ("experiment", "tracking-uri", "run-name", "run-id"))):
        p = kinds.add_parser(kind)
        p.add_argument("-p", "--pid", type=int, help="this process; without it all recorded processes of this user, until Ctrl-C")
        p.add_argument("--folder", help="folder of the recorder's sockets, if it is mounted at another place")
        for option in options:
            p.add_argument("--" + option, required=option == "logdir")
    args = parser.parse_args()
    if args.kind != "tensorboard" and not importlib.util.find_spec(args.kind):
        sys.exit("memtrace_bpf.figures: this Python has no %s. Use the one of the job: %s" % (args.kind, sys.executable))
    if args.kind == "tensorboard":
        def make():
            return TensorBoard(args.logdir)
    elif args.kind == "wandb":
        def make():
            return Wandb(project=args.project, entity=args.entity, group=args.group, name=args.name, id=args.run_id,
                         resume="allow" if args.run_id else None, job_type="memory")
    else:
        def make():
            return MLflow(args.run_id, args.experiment, args.tracking_uri, args.run_name)
    reader, written = publish(args, make)
    if reader.damaged:
        print("memtrace_bpf.figures: %d messages could not be read; do both have the same version?" % reader.damaged, file=sys.stderr)
    if not written:
        sys.exit("memtrace_bpf.figures: no step was recorded. Start a recorder: sudo memtrace-bpf record --figures -p PID")
    say("%d steps written" % written)


if __name__ == "__main__":
    main()

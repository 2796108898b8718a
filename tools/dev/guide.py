#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
Writes the output of the examples on saved recordings into README and guide (see tests/e2e/examples.py).

    tools/dev/guide.py            runs the examples; writes those whose output changed
    tools/dev/guide.py --live     also writes the output of the examples on a running job. Needs root
    tools/dev/guide.py --record [leak|oom|pair|job|upgrade ...]
                                  makes the recordings of tests/data/guide, or these. Needs root
"""
import argparse
import gzip
import os
import pickle
import shutil
import struct
import sys

REPO = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(REPO, "tests", "e2e"))
sys.argv, ARGUMENTS = sys.argv[:1], sys.argv[1:]

import examples  # noqa: E402
import harness  # noqa: E402
import mtr_reader  # noqa: E402
from mtr_writer import text, varint, zstd  # noqa: E402

# In a mount namespace of its own, so that recordings show no path of this machine.
PRIVATE = "mount -t tmpfs none /srv && mount -t tmpfs none /opt && mkdir /srv/job /opt/venv && mount --bind %s /srv/job" \
    " && mount --bind %s /opt/venv && cd /srv/job && %s"
RANKS = "for r in 0 1 2 3; do RANK=$r LOCAL_RANK=$r WORLD_SIZE=4 /opt/venv/bin/python train.py --keep --layers 1 --batch 4 --steps 48 & done; wait"


# Prints the version of PyTorch, runs the job, and writes the history of its memory.
SNAPSHOT = "import runpy, sys, torch; print('.'.join(torch.__version__.split('.')[:2])); torch.cuda.memory._record_memory_history();" \
    " sys.argv[1:] = ['--steps', '3']; runpy.run_path('/srv/job/train.py', run_name='__main__'); torch.cuda.memory._dump_snapshot('%s')"


def private(command, role="main", **env):
    venv = os.path.dirname(os.path.dirname(harness.python(role)))
    there = PRIVATE % (os.path.dirname(examples.JOB), venv, command)
    return harness.spawn(["unshare", "-m", "sh", "-c", there], env=dict(os.environ, **env))


def job(*options, vram):
    p = private("exec /opt/venv/bin/python train.py %s" % " ".join(options), LD_PRELOAD=examples.PRELOAD, MEMTRACE_DRYRUN_VRAM=vram)
    p.wait_line("^step 10", 120)
    return p


def record(*args):
    code, _, err = harness.tool("record", "-f", *args)
    harness.check(code == 0, "record %s: %s", args, err)


def home_of_python(role="main"):
    return os.path.dirname(os.path.dirname(os.path.realpath(harness.python(role))))


def without_this_machine(text):
    """A path of the interpreter, as if it lay in /opt/python."""
    return text.replace(home_of_python(), "/opt/python")


def scrub(path):
    """Takes paths and the control group of this machine out of a recording's facts and strings."""
    with open(path, "rb") as f:
        out, r = [f.read(16)], None
        f.seek(0)
        r = mtr_reader.Recording(f)
        while header := f.read(24):
            kind, flags, stored, raw, _, _ = struct.unpack("<6I", header)
            payload = f.read(stored)
            c = mtr_reader.Cursor(mtr_reader.unzstd(payload, raw) if flags & 1 else payload)
            if kind == 1:
                facts = [(c.text(), c.text()) for _ in range(c.varint())]
                facts = [(k, without_this_machine(v)) for k, v in facts if k != "cgroup"]
                data = varint(len(facts)) + b"".join(text(k) + text(v) for k, v in facts)
            elif kind == 2:
                data = b""
                while c.at < len(c.data):
                    start, strings = c.at, len(r.strings)
                    r.section(c)
                    new = r.strings[strings:]
                    data += varint(1) + varint(strings) + varint(len(new)) + b"".join(text(without_this_machine(s)) for s in new) if new \
                        else c.data[start:c.at]
            else:
                out += [header, payload]
                continue
            stored = zstd(data)
            head = struct.pack("<5I", kind, 1, len(stored), len(data), mtr_reader.crc32c(stored))
            out += [head, struct.pack("<I", mtr_reader.crc32c(head)), stored]
    with open(path, "wb") as f:
        f.write(b"".join(out))


def make_leak(to):
    p = job("--keep", "--pause", "0.05", vram="8G")
    record("-p", str(p.pid), "-d", "3s", "-o", os.path.join(to, "leak.mtr"))
    p.stop()


def make_oom(to):
    p = job("--keep", "--pause", "0.01", vram="3G")
    record("-p", str(p.pid), "--on-oom", "--window", "4s", "-o", os.path.join(to, "oom.mtr"))
    p.wait(60)


def make_pair(to):
    run = "exec %s run --dry-run-cuda --vram 8G -f -q -o %s --skip 1 --steps 4 -- /opt/venv/bin/python train.py --steps 6"
    for name, option in ("base", ""), ("checkpoint", " --checkpoint"):
        code = private(run % (harness.TOOL, os.path.join(to, name + ".mtr")) + option).wait(120)
        harness.check(code == 0, "%s ended with %s", name, code)


def make_job(to):
    shutil.rmtree(os.path.join(to, "job"), ignore_errors=True)
    run = "exec %s run --dry-run-cuda --vram 8G --devices 4 --children -q -o %s -- bash -c '%s'"
    harness.check(private(run % (harness.TOOL, os.path.join(to, "job/"), RANKS)).wait(300) == 0, "the ranks failed")


def without_paths(o, prefix, texts):
    """A snapshot whose texts have /opt/python instead of a prefix. Equal texts are one, as in PyTorch's own files."""
    if isinstance(o, str):
        return texts.setdefault(o, o.replace(prefix, "/opt/python"))
    if isinstance(o, dict):
        return {texts.setdefault(k, k): without_paths(v, prefix, texts) for k, v in o.items()}
    return type(o)(without_paths(v, prefix, texts) for v in o) if isinstance(o, (list, tuple)) else o


def make_upgrade(to):
    """The snapshots that PyTorch 2.8 and the newest one write of three steps of the job."""
    for role in "middle", "newest":
        path = harness.scratch(role + ".pickle")
        p = private("exec /opt/venv/bin/python -c \"%s\"" % SNAPSHOT % path, role, LD_PRELOAD=examples.PRELOAD, MEMTRACE_DRYRUN_VRAM="8G")
        harness.check(p.wait(300) == 0, "PyTorch of the role %s: %s", role, p.stderr())
        with open(path, "rb") as f:
            doc = without_paths(pickle.load(f), home_of_python(role), {})
        with gzip.GzipFile(os.path.join(to, "torch-%s.pickle.gz" % p.stdout().split()[0]), "wb", 9, mtime=0) as f:
            pickle.dump(doc, f, 4)


RECORDINGS = {"leak": make_leak, "oom": make_oom, "pair": make_pair, "job": make_job, "upgrade": make_upgrade}


def make_recordings(names):
    os.makedirs(examples.DATA, exist_ok=True)
    for name in names or RECORDINGS:
        RECORDINGS[name](examples.DATA)
    for folder, _, files in os.walk(examples.DATA):
        for name in files:
            path = os.path.join(folder, name)
            os.chmod(path, 0o644)
            if name.endswith(".mtr"):
                scrub(path)
            print("%8d  %s" % (os.path.getsize(path), os.path.relpath(path, examples.DATA)))


def update(live):
    cwd, job, service, gpu = examples.folder(), 0, 0, None
    if live:
        job = examples.start_job(cwd, "--keep", "--pause", "0.1").pid
        service = examples.start_service(cwd).pid
        gpu = examples.start_gpu(cwd, job)
    for path in examples.documents():
        with open(path, encoding="utf-8") as f:
            text = f.read()
        new = text
        for example in examples.examples(path):
            if example.live and not live:
                continue
            body = ""
            for command, _ in example.steps:
                code, output = examples.execute(command, cwd, service if example.service else job, gpu if example.gpu else None)
                print("%d  %s" % (code, command))
                body += "$ %s\n" % command + "".join(line + "\n" for line in example.chosen(output))
            new = new.replace(example.match[0], "%s```console\n%s```" % (example.match[1], body))
        if new != text:
            with open(path, "w", encoding="utf-8") as f:
                f.write(new)
            print("wrote", os.path.relpath(path, REPO))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--live", action="store_true")
    p.add_argument("--record", nargs="*", choices=sorted(RECORDINGS), metavar="NAME")
    args = p.parse_args(ARGUMENTS)
    if args.record is not None:
        make_recordings(args.record)
    update(args.live)
    harness.stop_all()


if __name__ == "__main__":
    main()

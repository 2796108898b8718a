#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
Writes the output of the examples on saved recordings into README and guide (see tests/e2e/examples.py).

    tools/dev/guide.py            runs the examples; writes those whose output changed
    tools/dev/guide.py --live     also writes the output of the examples on a running job. Needs root
    tools/dev/guide.py --record   makes the recordings of tests/data/guide. Needs root
"""
import argparse
import os
import shutil
import sys

REPO = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(REPO, "tests", "e2e"))
sys.argv, ARGUMENTS = sys.argv[:1], sys.argv[1:]

import examples  # noqa: E402
import harness  # noqa: E402

# In a mount namespace of its own, so that recordings show no path of this machine.
PRIVATE = "mount -t tmpfs none /srv && mount -t tmpfs none /opt && mkdir /srv/job /opt/venv && mount --bind %s /srv/job" \
    " && mount --bind %s /opt/venv && cd /srv/job && %s"
RANKS = "for r in 0 1 2 3; do RANK=$r LOCAL_RANK=$r WORLD_SIZE=4 /opt/venv/bin/python train.py --keep --layers 1 --batch 4 --steps 24 & done; wait"


def private(command, **env):
    venv = os.path.dirname(os.path.dirname(harness.python()))
    there = PRIVATE % (os.path.dirname(examples.JOB), venv, command)
    return harness.spawn(["unshare", "-m", "sh", "-c", there], env=dict(os.environ, **env))


def job(*options, vram):
    p = private("exec /opt/venv/bin/python train.py %s" % " ".join(options), LD_PRELOAD=examples.PRELOAD, MEMTRACE_DRYRUN_VRAM=vram)
    p.wait_line("^step 10", 120)
    return p


def record(*args):
    code, _, err = harness.tool("record", "-f", *args)
    harness.check(code == 0, "record %s: %s", args, err)


def make_recordings():
    to = examples.DATA
    shutil.rmtree(to, ignore_errors=True)
    os.makedirs(to)

    p = job("--keep", "--pause", "0.05", vram="8G")
    record("-p", str(p.pid), "-d", "3s", "-o", os.path.join(to, "leak.mtr"))
    p.stop()

    p = job("--keep", "--pause", "0.01", vram="2G")
    record("-p", str(p.pid), "--on-oom", "--window", "1s", "-o", os.path.join(to, "oom.mtr"))
    p.wait(60)

    run = "exec %s run --dry-run-cuda --vram 8G -q -o %s --skip 1 --steps 4 -- /opt/venv/bin/python train.py --steps 6"
    for name, option in ("base", ""), ("checkpoint", " --checkpoint"):
        code = private(run % (harness.TOOL, os.path.join(to, name + ".mtr")) + option).wait(120)
        harness.check(code == 0, "%s ended with %s", name, code)

    run = "exec %s run --dry-run-cuda --vram 8G --devices 4 --children -q -o %s -- bash -c '%s'"
    harness.check(private(run % (harness.TOOL, os.path.join(to, "job/"), RANKS)).wait(180) == 0, "the ranks failed")
    for name in os.listdir(to):
        print("%8d  %s" % (os.path.getsize(os.path.join(to, name)), name))


def update(live):
    cwd, pid = examples.folder(), 0
    if live:
        pid = examples.start_job(cwd, "--keep", "--pause", "0.1").pid
    for path in examples.documents():
        with open(path, encoding="utf-8") as f:
            text = f.read()
        new = text
        for example in examples.examples(path):
            if example.live and not live:
                continue
            body = ""
            for command, _ in example.steps:
                code, output = examples.execute(command, cwd, pid)
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
    p.add_argument("--record", action="store_true")
    args = p.parse_args(ARGUMENTS)
    if args.record:
        make_recordings()
    update(args.live)
    harness.stop_all()


if __name__ == "__main__":
    main()

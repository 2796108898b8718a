#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# run: long probes-all
"""Places in a capture of several processes: one user's processes do not crowd out those of others."""
import os
import re
import shutil

import chaos
import harness
from chaos import Row, Storm, compiled
from harness import AS_NOBODY, TOOL, Skip, check, equal, run, scratch, spawn

WATCHED, RECORDED = 1024, 127  # most processes at a time


def needs_root():
    if not harness.IS_ROOT:
        raise Skip("needs root, to be two users")


def crowd(n, *library, word):
    """n processes of another user with a name of their own."""
    program = scratch("crowd-%s" % word)
    shutil.copy(compiled("crowd.c", "crowd"), program)
    p = spawn([*AS_NOBODY, program, str(n), *library])
    p.wait_line("^ready", 60)
    return p


def disperse(p):
    p.popen.stdin.close()
    equal(p.wait(60), 0, "the crowd's end (%s)" % p.stderr()[-300:])


def job_of(word):
    """A storm of root with its own copy of the library, whose path has the word."""
    library = scratch("%s/%s" % (word, chaos.HOOKS))
    os.makedirs(os.path.dirname(library), exist_ok=True)
    shutil.copy(chaos.hooks(), library)
    return Storm(library)


def begin(word, folder):
    return spawn([TOOL, "record", "--name", word, "--follow", "-o", scratch(folder) + "/"], root=True)


def test_a_crowd_leaves_places_to_other_users():
    """More processes of one user than can be followed: another user's job that comes later is recorded, and the message says who
    is not followed and why."""
    needs_root()
    word = "crowd-tenant-%d" % os.getpid()
    many = crowd(WATCHED + 30, word=word)
    recorder = begin(word, "places")
    recorder.wait_line("more of user 65534 are not followed", 120, stream="err")
    job = job_of(word)
    recorder.wait_line("attached to PID %d" % job.pid, 60, stream="err")
    said = recorder.stderr()
    check(re.search(r"1024 processes are, the most at a time, and 10\d\d of them are of user 65534", said), "not said: %s", said[-800:])
    job.end(Row("job"))
    harness.interrupt(recorder)
    disperse(many)


def test_recordings_are_shared_among_users():
    """More processes of one user with PyTorch than can be recorded: another user's job that comes later is recorded."""
    needs_root()
    word = "crowd-tenant-%d" % os.getpid()
    library = scratch("nobody/libc10.so")
    os.makedirs(os.path.dirname(library), exist_ok=True)
    shutil.copy(chaos.hooks(), library)
    many = crowd(RECORDED + 10, library, word=word)
    recorder = begin(word, "numbers")
    recorder.wait_line("the most at a time", 120, stream="err")
    job = job_of(word)
    recorder.wait_line("attached to PID %d" % job.pid, 60, stream="err")
    job.ask("flood 1 1000")
    job.end(Row("job"))
    said = recorder.stderr()
    check(re.search(r"PID \d+: its recording ends here: user 65534 has 127 of the 127 recordings at a time, and user 0 gets its share", said), "not said: %s", said[-800:])
    harness.interrupt(recorder, 120)
    disperse(many)
    found = [f for f in os.listdir(scratch("numbers")) if str(job.pid) in f]
    check(found, "no recording of the job: %s", os.listdir(scratch("numbers"))[:5])


def test_watch_leaves_places_to_other_users():
    """The same for watch, whose table is smaller."""
    needs_root()
    word = "crowd-tenant-%d" % os.getpid()
    many = crowd(300, word=word)
    watch = spawn([TOOL, "watch", "--name", word, "--rule", "rss>1T", "--format", "json"], root=True)
    watch.wait_line("more of user 65534 are not watched", 60, stream="err")
    job = job_of(word)
    watch.wait_line('"event":"left out".*user 0 gets its share', 60)
    watch.wait_line('"event":"watching","pid":%d,' % job.pid, 60)
    harness.interrupt(watch)
    job.end(Row("job"))
    disperse(many)


if __name__ == "__main__":
    run(globals())

#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# run: long probes-all cpu=90
"""Several selected processes: by name, by PIDs, all; processes that start later, replacements of ended ones, processes in other
namespaces. Each has a recording with exactly its allocations."""
import glob
import json
import os
import re
import shutil
import signal
import subprocess
import time

import chaos
import harness
import mtr_reader
from harness import (IS_ROOT, Failure, Skip, check, equal, finish, nightly, own, python, read_json, report, run, scratch, spawn,
                     spawn_job, sudo, tool)

FIRST = 300007
JOB = os.path.join(harness.WORKLOADS, "named.py")


ENV = dict(os.environ, OMP_NUM_THREADS="1")


def job(title, seed, n, *more, start=spawn):
    return start([python(), JOB, title, str(seed), str(n), *more], env=ENV)


def ready(p):
    return int(p.wait_line("^ready", 120).split()[1])


def go(p, hold=False):
    """The sizes that it allocated."""
    p.send()
    return made_by(p, hold)


def made_by(p, hold=False):
    made = json.loads(p.wait_line("^made", 60)[5:])
    if hold:
        p.send()
    equal(p.wait(60), 0, "exit code of the job (%s)" % p.stderr()[-300:])
    return made


def content(path):
    own(path)
    with open(path, "rb") as f:
        r = mtr_reader.Recording(f)
        events = list(r.events())
    check(r.complete, "%s is not whole", path)
    return r, [e["size"] for e in events if e["kind"] == mtr_reader.ALLOC and e["size"] >= FIRST and not (e["size"] - FIRST) % 100003 % 1013]


def record(*options):
    return spawn([harness.TOOL, "record", *options], root=True)


def recordings(path):
    return {int(re.search(r"\.(\d+)(?:-\d+)?\.mtr$", f)[1]): f for f in glob.glob(path[:-4] + ".*.mtr")}


def check_recordings(path, truth):
    """Each process of truth (PID: sizes) has a recording with exactly these sizes, and there are no others."""
    found = recordings(path)
    equal(sorted(found), sorted(truth), "processes with a recording")
    for pid, made in truth.items():
        r, sizes = content(found[pid])
        equal(int(r.facts["pid"]), pid, "the recording's PID")
        equal(sizes, made, "what PID %d made" % pid)
    return found


def test_name():
    """Two of three jobs match, and a later job is found before its first tensor."""
    a, b, other = (job(title, i, 29 + i, start=spawn_job) for i, title in enumerate(("alpha-one", "alpha-two", "beta"), 1))
    for p in (a, b, other):
        ready(p)
    path = scratch("name.mtr")
    recorder = record("--name", "named.py alpha-(one|two|three)", "-o", path)
    recorder.wait_line("2 processes are traced", 60, stream="err")
    late = job("alpha-three", 4, 33, "now", "hold")
    late_pid = ready(late)
    truth = {late_pid: made_by(late, True)}
    equal(len(go(other)), 32, "what is not meant runs on")
    for p in (a, b):
        truth[p.popen.pid] = go(p)
    equal(recorder.wait(60), 0, "exit code: it ends with the last of them (%s)" % recorder.stderr()[-500:])
    found = check_recordings(path, truth)
    equal(content(found[late_pid])[0].facts["attached_at"], "start", "attached_at of the one that came later")
    equal(content(found[a.popen.pid])[0].facts["attached_at"], "live", "attached_at of one that was there")
    equal(report(found[late_pid])["capture"]["lost"], 0, "events lost")


def test_nobody():
    """Near matches are named, and nothing is left."""
    near = spawn(["sleep", "60"])
    for options, code, words in ((("--name", "^no such program 7$"), 2, "--follow waits"), (("--name", "sleep 60$"), 2, "PID %d" % near.popen.pid),
                                 (("--name", "("), 64, "regular expression"), (("-p", str(near.popen.pid), "-p", "999999999"), 2, "999999999"),
                                 (("--container", "no-such"), 2, "no-such"), (("--name", "x", "--on-oom", "--skip", "3"), 64, "--on-oom"),
                                 (("--name", "x", "--rolling", "1M", "--skip", "3"), 64, "--rolling"),
                                 (("--name", "x", "--rolling", "1M", "-o", "-"), 64, "-o -"),
                                 (("-p", str(near.popen.pid), "--name", "x", "-o", "-"), 64, "-o -")):
        got, _, err = tool("record", *options, root=True, cwd=scratch())
        check(got == code and words in err, "%s: %d, %r", options, got, err)
    check(not glob.glob(scratch("memtrace-*")), "recordings of nothing: %s", glob.glob(scratch("memtrace-*")))


def test_follow():
    """The job ends and starts again: two complete recordings; another job or command line does not match."""
    first = job("follow", 5, 30, "hold", start=spawn_job)
    pid = ready(first)
    path = scratch("follow.mtr")
    recorder = record("-p", str(pid), "--follow", "-o", path)
    recorder.wait_line(harness.ATTACHED, 60, stream="err")
    truth = {pid: go(first, True)}
    recorder.wait_line("waiting for a process with the same command line", 60, stream="err")
    other = job("other", 6, 10, "hold", start=spawn_job)
    second = job("follow", 5, 30, "hold")
    go(other, True)
    again = ready(second)
    recorder.wait_line("attached to PID %d .*first allocation" % again, 30, stream="err")
    truth[again] = go(second, True)
    recorder.wait_line(r"follow\.%d\.mtr: " % again, 60, stream="err")
    finish(recorder)
    check_recordings(path, truth)


def test_all_and_folder():
    """Every job with PyTorch, into a folder with an index; equal names are made unique."""
    folder = scratch("all")
    a = job("all-one", 7, 30)
    ready(a)
    recorder = record("--all", "-o", folder + "/")
    recorder.wait_line("attached to PID %d " % a.popen.pid, 60, stream="err")
    ranks = [spawn([python(), JOB, "all-rank", str(8 + i), "12", "now", "hold"], env=dict(os.environ, RANK="7", WORLD_SIZE="9")) for i in (0, 1)]
    pids = [ready(p) for p in ranks]
    truth = {p.popen.pid: made_by(p, True) for p in ranks}
    truth[a.popen.pid] = go(a)
    for pid in truth:
        recorder.wait_line(r"mtr: [1-9].* events", 60, stream="err")
    limit = time.monotonic() + 30
    while time.monotonic() < limit:
        index = read_json(os.path.join(folder, "index.json")) if IS_ROOT else {"recordings": []}
        if sum(1 for e in index["recordings"] if e.get("end") and e["pid"] in truth) == len(truth):
            break
        time.sleep(0.2)
    finish(recorder)
    if not IS_ROOT:
        subprocess.run(sudo(["chown", "-R", str(os.getuid()), folder]), check=True)
    entries = {e["pid"]: e for e in read_json(os.path.join(folder, "index.json"))["recordings"]}
    for pid, made in truth.items():
        check(pid in entries, "PID %d is not in the index: %s", pid, sorted(entries))
        equal(content(os.path.join(folder, entries[pid]["file"]))[1], made, "what PID %d made" % pid)
        equal(entries[pid]["kind"], "process", "kind")
    equal({entries[p]["file"] for p in pids}, {"rank-7.mtr", "rank-7-2.mtr"}, "files of two that say that they are rank 7")
    equal(entries[a.popen.pid]["file"], "named-%d.mtr" % a.popen.pid, "file of the other")
    equal([entries[p]["rank"] for p in pids], [7, 7], "ranks")
    code, out, err = tool("compare", "--format", "json", folder)
    equal(code, 0, "compare of the folder (%s)" % err[-300:])
    equal(len(json.loads(out)["captures"]), len(entries), "rows of the comparison")


def test_ranks():
    """torchrun's ranks, which synchronize over gloo, by their script's name, started after the capture: a file each, and one
    report of the folder."""
    folder = scratch("ranks")
    recorder = record("--name", "named.py ranks", "--follow", "-o", folder + "/")
    recorder.wait_line("waiting for a process", 60, stream="err")
    p = spawn([python(), "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", JOB, "ranks", "20", "15", "now", "gloo"],
              env=dict(os.environ, OMP_NUM_THREADS="1"))
    equal(p.wait(120), 0, "exit code of torchrun (%s)" % p.stderr()[-500:])
    recorder.wait_line("none is left", 60, stream="err")
    finish(recorder)
    made = sorted((json.loads(line[5:]) for line in p.stdout().splitlines() if line.startswith("made ")), key=lambda sizes: sizes[0])
    for rank in (0, 1):
        r, sizes = content(os.path.join(folder, "rank-%d.mtr" % rank))
        equal(sizes, made[rank], "what rank %d made" % rank)
        equal((r.facts["rank"], r.facts["world_size"]), (str(rank), "2"), "facts of rank %d" % rank)
    code, out, err = tool("report", *(os.path.join(folder, "rank-%d.mtr" % rank) for rank in (0, 1)))
    check(code == 0 and out.startswith("2 recordings of one job, ranks 0-1 of 2"), "not one report: %d, %s%s", code, out[:300], err[-300:])


# A root of its own over a copy-on-write view of this machine's, as in a container, and its own PIDs.
BOX = """
set -e
box=$1 cgroup=$2; shift 2
[ -z "$cgroup" ] || echo 0 >"$cgroup/cgroup.procs"
mount -t tmpfs none "$box"
mkdir "$box/upper" "$box/work" "$box/root"
mount -t overlay none -o "lowerdir=/,upperdir=$box/upper,workdir=$box/work" "$box/root"
mount -t proc none "$box/root/proc"
mount --bind /dev "$box/root/dev"
cp -r "$1" "$box/root/job"; shift
cd "$box/root"
exec chroot . "$@"
"""
CONTAINER = "00ff11ee22dd33cc44bb55aa6699778800ff11ee22dd33cc44bb55aa66997788"
POD = "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0"


def make_cgroup():
    """A control group named like a Kubernetes pod's, to put a process into; "": not possible here."""
    with open("/proc/self/mounts", encoding="utf-8") as f:
        mounts = [line.split() for line in f]
    places = [m[1] for m in mounts if m[2] == "cgroup2"] + [m[1] for m in mounts if m[2] == "cgroup" and "memory" in m[3].split(",")]
    for place in places:
        path = os.path.join(place, "kubepods-memtrace_test-pod" + POD.replace("-", "_") + ".slice")
        inner = os.path.join(path, "cri-containerd-%s.scope" % CONTAINER)
        if subprocess.run(sudo(["mkdir", "-p", inner]), capture_output=True, check=False).returncode == 0 and os.path.exists(
                os.path.join(inner, "cgroup.procs")):
            harness.undo_on_signal.append(lambda: remove_cgroup(inner))
            return inner
    return ""


def remove_cgroup(inner):
    for path in (inner, os.path.dirname(inner)):
        # Its processes may still be ending.
        harness.until(lambda at=path: subprocess.run(sudo(["rmdir", at]), capture_output=True, check=False).returncode == 0, "the end of " + path)


def pid_of(title, comm="python"):
    for d in glob.glob("/proc/[0-9]*"):
        try:
            with open(d + "/cmdline", "rb") as f:
                words = f.read().split(b"\0")
            with open(d + "/comm", encoding="utf-8") as f:
                if title.encode() in words and f.read().startswith(comm):
                    return int(d[6:])
        except OSError:
            pass
    raise Failure("no process %r" % title)


def test_container():
    """Another root, other PIDs and a pod's control group: found by the pod, recorded completely with a forked child, with its
    place."""
    box, path = scratch("box"), scratch("container.mtr")
    os.mkdir(box)
    cgroup = make_cgroup()
    env = dict(os.environ, HOSTNAME="trainer-0", OMP_NUM_THREADS="1")
    env.pop("POD_NAME", None)
    try:
        p = spawn(["unshare", "--mount", "--pid", "--fork", "bash", "-c", BOX, "box", box, cgroup, os.path.dirname(JOB),
                   python(), "/job/named.py", "boxed", "11", "30", "fork", "hold"], root=True, env=env)
        check(ready(p) < 20, "it has no PIDs of its own")
        pid = pid_of("boxed")
        recorder = record(*(["--pod", POD[:8]] if cgroup else ["--name", "named.py boxed"]), "--children", "-o", path)
        recorder.wait_line("1 process is traced", 60, stream="err")
        p.send()
        told = json.loads(p.wait_line("^forked", 60)[7:])
        made = made_by(p, True)
        equal(recorder.wait(60), 0, "exit code (%s)" % recorder.stderr()[-500:])
        found = recordings(path)
        equal(len(found), 2, "recordings of %s" % sorted(found))
        r, sizes = content(found[pid])
        equal(sizes, made, "what it made")
        child, = set(found) - {pid}
        equal(content(found[child])[1], told, "what its child made")
        equal(content(found[child])[0].facts["attached_at"], "fork", "attached_at of the child")
        target = report(found[pid])["target"]
        check(re.match(r"\d", target["torch"]), "PyTorch's version: %s", target["torch"])
        code, text, _ = tool("report", found[pid])
        equal(code, 0, "report")
        if not cgroup:
            raise Skip("no control group can be made here: the rest holds")
        equal({k: target.get(k) for k in ("container", "container_runtime", "pod", "pod_uid")},
              {"container": CONTAINER, "container_runtime": "containerd", "pod": "trainer-0", "pod_uid": POD}, "where it says that it was")
        equal(r.facts["pod.name_from"], "HOSTNAME", "where the pod's name is from")
        check("pod trainer-0" in text and "container " + CONTAINER[:12] in text, "not in the report's head: %s", text[:300])
    finally:
        harness.stop_all()
        if cgroup:
            remove_cgroup(cgroup)


INSIDE = """
job=$1 tool=$2 path=$3; shift 3
mkfifo "$path.in"; exec 4<>"$path.in"
"$@" "$job" inside 12 30 fork <&4 >"$path.out" &
while ! grep -q ready "$path.out"; do sleep 0.1; done
"$tool" record --name 'named.py inside' -o "$path" 2>"$path.err" &
while kill -0 $! && ! grep -q 'is traced' "$path.err"; do sleep 0.1; done
echo >&4
wait
cat "$path.out" "$path.err"
"$tool" check
"""


@nightly("long")
def test_inside():
    """The tool in one PID namespace with the job: the kernel's PIDs differ for both."""
    path = scratch("inside.mtr")
    p = spawn(["unshare", "--pid", "--fork", "--mount-proc", "bash", "-c", INSIDE, "inside", JOB, harness.TOOL, path, python()], root=True)
    equal(p.wait(120), 0, "exit code (%s)" % p.stderr()[-500:])
    out = p.stdout()
    found = recordings(path)
    made, told = (json.loads(re.search("^%s (.*)$" % word, out, re.M)[1]) for word in ("made", "forked"))
    pid = int(re.search(r"^ready (\d+)", out, re.M)[1])
    check(pid < 20 and pid in found and len(found) == 2, "recordings of %s; PID %d: %s", sorted(found), pid, out[-1500:])
    child, = set(found) - {pid}
    r, sizes = content(found[pid])
    equal(sizes, made, "what it made")
    equal(content(found[child])[1], told, "what its child made")
    check(pid in [thread[0] for thread in r.threads], "the main thread's number is not among %s", r.threads)
    check(re.search(r"^-?\s*\S* +PIDs +.*namespace", out, re.M), "check does not say it: %s", out[-1500:])


def links_by_file(pid):
    """{path: number of links} of a tracer's probes; empty if the kernel does not tell."""
    done = subprocess.run(sudo(["sh", "-c", "cat /proc/%d/task/*/fdinfo/*" % pid]), capture_output=True, text=True, check=False)
    found = {}
    for text in done.stdout.split("pos:")[1:]:
        path = re.search(r"^path:\t(.*)$", text, re.M)
        if path and "link_type:\tuprobe_multi" in text:
            found[path[1]] = found.get(path[1], 0) + 1
    return found


@nightly("long")
def test_images():
    """Two processes of each of two images: one set of probes per image, and forked children of all are recorded from the fork on."""
    storms = []
    for image in ("first", "second"):
        library = os.path.join(scratch(image), chaos.HOOKS)
        os.makedirs(scratch(image))
        shutil.copy(chaos.hooks(), library)
        storms += [chaos.Storm(library) for _ in range(2)]
    path = scratch("images.mtr")
    recorder = record("--children", "-o", path, *[word for s in storms for word in ("-p", str(s.pid))])
    for s in storms:
        recorder.wait_line("attached to PID %d" % s.pid, 60, stream="err")
    before = [s.ask("count") for s in storms]
    links = links_by_file(recorder.pid)
    for s in storms:
        s.ask("flood 2 500")
        s.ask("fork 3")
    after = [s.ask("count") for s in storms]
    finish(recorder)
    if links:
        equal(len(links), 2, "files with probes: %s" % links)
        first, second = links.values()
        equal(first, second, "links in the two images' files")
        check(first <= 7, "%d links in a file: more than one set", first)
    docs = {pid: report(f) for pid, f in recordings(path).items()}
    equal(len(docs), 4 * (1 + 3), "recordings")
    row = chaos.Row("images")
    for s, b, a in zip(storms, before, after):
        chaos.compare(row, docs.pop(s.pid), b, a, "PID %d" % s.pid)
        s.end(row)
    row.verify()
    equal({d["capture"]["attached_at"] for d in docs.values()}, {"fork"}, "how children were attached to")


def test_time_namespace():
    """The recorder is in its own time namespace: times count from attach, and a child's from its fork."""
    if not IS_ROOT or subprocess.run(["unshare", "-T", "true"], capture_output=True, check=False).returncode:
        raise Skip("no time namespaces to be had")
    for offset in ("100000", "-1"):
        storm = chaos.Storm()
        path = scratch("time%s.mtr" % offset)
        recorder = spawn(["unshare", "-T", "--monotonic", offset, "--fork", "--kill-child=SIGINT", harness.TOOL, "record", "--children", "-f",
                          "-p", str(storm.pid), "-o", path], root=True)
        recorder.wait_line(harness.ATTACHED, 60, stream="err")
        storm.ask("flood 1 500")  # two threads' events have the ring's order
        storm.ask("fork 2")
        finish_inner(recorder)
        found = recordings(path)
        found[storm.pid] = path if os.path.exists(path) else found[storm.pid]
        equal(len(found), 3, "recordings")
        for pid, f in found.items():
            with open(f, "rb") as file:
                times = [e["time"] for e in mtr_reader.Recording(file).events() if mtr_reader.KINDS[e["kind"]] == "alloc"]
            # In ns: another clock is a second or a day off.
            check(1e3 < times[0] < 2e10 and times == sorted(times), "offset %s: times of PID %d begin with %s",
                  offset, pid, times[:3])
        storm.end(chaos.Row("time"))


def finish_inner(p):
    """unshare does not forward signals."""
    for pid in harness.children_of(p.popen.pid):
        os.kill(pid, signal.SIGINT)
    equal(p.wait(60), 0, "exit code (%s)" % p.stderr()[-300:])


CROWD = """
n=$1; shift
for i in $(seq $n); do sleep 300 & done
"$@"
code=$?
kill $(jobs -p)
exit $code
"""


def crowd(others, name, stopped=False):
    """150 children one after the other, of a process that starts after others without PyTorch. Returns recordings, its PID,
    messages."""
    path = scratch(name)
    p = spawn([harness.TOOL, "run", "--children", "-o", path, "--", "bash", "-c", CROWD, "crowd", str(others), chaos.compiled("storm.cc", "storm"), chaos.hooks()],
              root=True)
    p.wait_line("^ready", 60)
    pid, = [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if command_of(pid)[:1] == [chaos.compiled("storm.cc", "storm")]]
    p.wait_line("PID %d" % pid, 60, stream="err")
    if stopped:
        p.signal(signal.SIGSTOP)
    p.send("fork 150\n")
    done = json.loads(p.wait_line("^{", 120))
    if stopped:
        p.signal(signal.SIGCONT)
    p.popen.stdin.close()
    equal(p.wait(60), 0, "exit code (%s)" % p.stderr()[-500:])
    equal(done["bad"], 0, "children that ended wrongly")
    left_out = sum(map(int, re.findall(r"(\d+) forked processes ended before one of 127 places was free", p.stderr())))
    found = recordings(path)
    check(pid in found and len(found) + left_out == 1 + 150, "%d recordings, %d left out", len(found), left_out)
    return left_out, p.stderr()


def test_crowd():
    """Two hundred processes without PyTorch do not hide a later one with it, nor its children."""
    _, err = crowd(200, "crowd.mtr")
    check("not followed" not in err and "the most at a time" not in err, "somebody found no room: %s", err[-600:])


def test_more_than_there_are_places():
    """Children that start and end while the recorder is stopped: each has a recording or is counted as omitted."""
    left_out, _ = crowd(5, "places.mtr", stopped=True)
    equal(left_out, 1 + 150 - 127, "children that found no place")


def command_of(pid):
    try:
        with open("/proc/%d/cmdline" % pid, "rb") as f:
            return f.read().decode(errors="replace").split("\0")
    except OSError:
        return []


@nightly("long")
def test_launcher():
    """A launcher that is picked by name or PID: the worker that has PyTorch is named."""
    launcher = spawn([python(), "-u", os.path.join(harness.WORKLOADS, "launcher.py")])
    worker = launcher.wait_line("^ready", 120).split()[1]
    for options, words in ((("--name", "[l]auncher.py$"), r"1 of the processes .* \(PID %s\): not recorded; --children" % worker),
                           (("-p", str(launcher.popen.pid)), r"give that PID instead \(-p %s\), or add --children" % worker)):
        recorder = record(*options, "-o", scratch("launcher.mtr"), "-f")
        recorder.wait_line(words, 60, stream="err")
        harness.interrupt(recorder)
    launcher.popen.stdin.close()
    equal(launcher.wait(60), 0, "the launcher's end")


RESERVED = """
import ctypes, mmap, sys, torch
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
assert libc.mmap(None, 8 << 40, 0, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000, -1, 0)
kept = torch.ones(300 << 20)  # 1.2 GiB
print("ready", flush=True)
sys.stdin.read()
"""
BUSY = """
import time, torch
print("ready", flush=True)
while True:
    for _ in range(100):
        torch.empty(16)
    time.sleep(0.001)  # the ring has room for seconds of this
"""


def test_reading_of_one_loses_nothing_of_another():
    """The first process has reserved 8 TiB of addresses, without memory. At the end, its host memory is read while the second one goes
    on allocating."""
    a, b = (spawn_job([python(), "-c", text], env=ENV) for text in (RESERVED, BUSY))
    for p in (a, b):
        p.wait_line("^ready", 120)
    path = scratch("reserved.mtr")
    recorder = record("-p", str(a.pid), "-p", str(b.pid), "--ring-size", "8M", "-o", path)
    recorder.wait_line("2 processes are traced", 60, stream="err")
    harness.settle(recorder)
    harness.interrupt(recorder, 60)
    found = recordings(path)
    equal(sorted(found), sorted([a.pid, b.pid]), "processes with a recording")
    docs = {pid: report(own(file) or file) for pid, file in found.items()}
    for pid, doc in docs.items():
        equal(doc["capture"]["lost"], 0, "lost events of PID %d" % pid)
    check(docs[b.pid]["capture"]["events"] > 1000, "events of the busy process: %s", docs[b.pid]["capture"])
    host = docs[a.pid]["host"]
    check(host["readings"] >= 1 and host["last"]["rss"] > 1 << 30, "host memory of the process with reserved addresses: %s", host)
    for p in (a, b):
        p.stop()


if __name__ == "__main__":
    run(globals())

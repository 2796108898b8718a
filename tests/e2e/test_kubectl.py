#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# run: nightly=fleet long probes-all
"""
The plug-in of kubectl with a fake kubectl, which answers from files and notes how it was called. For one test the fake runs the
real program on a process in a control group like a pod's.
"""
import json
import os
import shutil
import signal
import subprocess
import time

import harness
import test_many
from harness import REPO, Skip, check, equal, run, scratch, spawn

PLUGIN = os.path.join(REPO, "tools", "packaging", "deploy", "kubectl-memtrace_bpf")
USAGE, UNUSABLE = 64, 2
ID = test_many.CONTAINER
SIDECAR = "ab" * 32
# Answers are files in $FAKE: pod, tracers, watch, and output, each with NAME.err and NAME.rc. With REAL the program runs.
KUBECTL = r"""#!/bin/bash
printf '%s\0' "$@" >>"$FAKE/calls"; printf '\n' >>"$FAKE/calls"
answer() { cat "$FAKE/$1" 2>/dev/null; cat "$FAKE/$1.err" >&2 2>/dev/null; exit "$(cat "$FAKE/$1.rc" 2>/dev/null || echo 0)"; }
words=" $* "
case $words in
*" get pod "*) answer pod ;;
*" get pods "*) answer tracers ;;
*" exec "*)
	while [ "$1" != -- ]; do shift; done
	shift
	[ "$1" = memtrace-bpf ] || { echo "not in the image: $1" >&2; exit 127; }
	shift
	[ -z "${REAL-}" ] || exec "$REAL" "$@"
	[ "$1" = watch ] && answer watch
	[ -z "${HOLD-}" ] || { cat "$FAKE/output"; touch "$FAKE/holding"; trap 'exit 130' INT; while :; do sleep 0.05; done; }
	answer output ;;
esac
echo "unexpected: $words" >&2
exit 99
"""
POD = "training\nRunning\nnode-7\ntrainer containerd://%s\nsidecar containerd://%s\n" % (ID, SIDECAR)
TRACERS = "memtrace-bpf-x7x7x \nmemtrace-bpf-old 2026-01-01T00:00:00Z\n"


def watching(*processes):
    """Output of watch, with other events around."""
    events = [{"time": "2026-01-01T00:00:00.000Z", "event": "watching", "pid": pid, "name": name, "container": ID[:12], "text": "watching"}
              for pid, name in processes]
    events.append({"time": "2026-01-01T00:00:01.000Z", "event": "ended", "pid": 1, "name": "x"})
    return "".join(json.dumps(e, separators=(",", ":")) + "\n" for e in events)


ONE = watching((4242, "python train.py --name \"a b\" \\ 'c'"))


class Cluster:
    """A fake cluster; answers are given by name: text, or (text, standard error, exit code)."""

    def __init__(self, name, **answers):
        self.folder = scratch(name)
        os.makedirs(os.path.join(self.folder, "bin"))
        os.makedirs(os.path.join(self.folder, "here"))
        with open(os.path.join(self.folder, "bin", "kubectl"), "w", encoding="utf-8") as f:
            f.write(KUBECTL)
        os.chmod(f.name, 0o755)
        for key, value in {"pod": POD, "tracers": TRACERS, "watch": ONE, "output": "made by memtrace-bpf\n", **answers}.items():
            out, err, code = value if isinstance(value, tuple) else (value, "", 0)
            for suffix, text in (("", out), (".err", err), (".rc", str(code))):
                with open(os.path.join(self.folder, key + suffix), "w", encoding="utf-8") as f:
                    f.write(text)

    def env(self, **more):
        return {**os.environ, "FAKE": self.folder, "PATH": os.path.join(self.folder, "bin") + ":" + os.environ["PATH"], **more}

    def here(self, name=""):
        return os.path.join(self.folder, "here", name)

    def run(self, *args, **env):
        done = subprocess.run([PLUGIN, *args], env=self.env(**env), cwd=self.here(), capture_output=True, text=True, timeout=60, check=False,
                              stdin=subprocess.DEVNULL)
        return done.returncode, done.stdout, done.stderr

    def calls(self):
        """Calls since the last time."""
        path = os.path.join(self.folder, "calls")
        if not os.path.exists(path):
            return []
        with open(path, encoding="utf-8") as f:
            found = [line.split("\0")[:-1] for line in f.read().splitlines()]
        os.unlink(path)
        return found


def executed(call):
    """Namespace, pod and container of an exec, and the command with its options."""
    at = call.index("--")
    equal(call[0], "exec", "call")
    return call[call.index("--namespace") + 1], call[3], call[call.index("-c") + 1], call[at + 1:]


def test_commands():
    c = Cluster("commands")
    for args, command in ((["my-pod"], ["-p", "4242"]), (["live", "my-pod", "--", "--by", "module"], ["-p", "4242", "--by", "module"]),
                          (["dump", "pod/my-pod"], ["dump", "-p", "4242"]), (["check", "my-pod"], ["check", "-p", "4242"]),
                          (["my-pod", "-n", "training", "--", "-d", "3s"], ["-p", "4242", "-d", "3s"]),
                          (["leaks", "my-pod", "--", "--steps", "60", "a b"], ["leaks", "-p", "4242", "--steps", "60", "a b"])):
        equal(c.run(*args), (0, "made by memtrace-bpf\n", ""), "%s" % args)
        get, tracers, watch, last = c.calls()
        equal(get[:3], ["get", "pod", "my-pod"], "the pod")
        equal(tracers[2:4], ["--namespace", "memtrace-bpf"], "the only namespace whose pods get the terminal")
        check("spec.nodeName=node-7,status.phase=Running" in tracers and "app.kubernetes.io/name=memtrace-bpf" in tracers, "%s", tracers)
        where = ("memtrace-bpf", "memtrace-bpf-x7x7x", "memtrace-bpf")
        equal(executed(watch), (*where, ["memtrace-bpf", "watch", "--all", "--container=" + ID, "--container=" + SIDECAR, "-d", "1s",
                                         "--format", "json"]), "search")
        equal(executed(last), (*where, ["memtrace-bpf", *command]), "command")
        check("-t" not in last, "a terminal without a terminal: %s", last)


def test_choice():
    """Options for the choice and for the cluster reach kubectl and memtrace-bpf."""
    c = Cluster("choice")
    code, _, err = c.run("my-pod", "-n", "training", "-c", "trainer", "--process", "train.py .*", "--context=far", "--kubeconfig", "/k",
                         "--memtrace-namespace=tools")
    equal((code, err), (0, ""), "all options")
    calls = c.calls()
    for call in calls:
        equal(call[:2], ["--context=far", "--kubeconfig=/k"], "cluster")
    get, tracers, watch, _ = (call[2:] for call in calls)
    equal(get[3:5], ["--namespace", "training"], "namespace")
    equal(tracers[2:4], ["--namespace", "tools"], "namespace of the DaemonSet")
    equal(executed(watch)[3][2:5], ["--name", "train.py .*", "--container=" + ID], "search")
    equal(c.run("-nx", "my-pod", "-ctrainer", "--pid=4242")[0], 0, "a PID")
    equal(c.calls()[2][-7:-3], ["--name", ".", "--container=" + ID, "-d"], "search for a PID: in the pod, whether it has PyTorch or not")


def test_record():
    c = Cluster("record")
    equal(c.run("record", "my-pod", "-o", "run.mtr", "--", "--steps", "5"),
          (0, "", "kubectl memtrace-bpf: run.mtr: 21 bytes; next: memtrace-bpf report run.mtr\n"), "record")
    equal(c.calls()[-1][-7:], ["memtrace-bpf", "record", "-p", "4242", "-o", "-", "--steps", "5"][-7:], "command")
    with open(c.here("run.mtr"), encoding="utf-8") as f:
        equal(f.read(), "made by memtrace-bpf\n", "content")
    code, _, err = c.run("record", "my-pod", "-o", "run.mtr")
    equal((code, err), (USAGE, "kubectl memtrace-bpf: run.mtr exists; -f replaces it\n"), "a file that exists")
    equal(c.calls(), [], "calls before that error")
    code, _, err = c.run("record", "my-pod", "-f", "-o", "run.mtr")
    check(code == 0 and err.startswith("kubectl memtrace-bpf: recording 30 s; "), "without a length: %s", err)
    equal(c.calls()[-1][-2:], ["-d", "30s"], "length")
    equal(c.run("record", "my-pod", "--", "-d5s")[0], 0, "without a name")
    equal(c.run("record", "my-pod", "-o", "-", "--", "-d5s")[:2], (0, "made by memtrace-bpf\n"), "to standard output")
    equal(sorted(os.listdir(c.here())), ["memtrace-my-pod.mtr", "run.mtr"], "files")


def test_record_fails():
    c = Cluster("record-fails", output=("", "memtrace-bpf: PID 4242: not permitted\n", 3))
    equal(c.run("record", "my-pod", "--", "-d1s"), (3, "", "memtrace-bpf: PID 4242: not permitted\nkubectl memtrace-bpf: nothing was recorded\n"),
          "an error of memtrace-bpf")
    equal(os.listdir(c.here()), [], "files")
    c = Cluster("record-breaks", output=("half", "error: connection lost\n", 1))
    code, _, err = c.run("record", "my-pod", "--", "-d1s")
    check(code == 1 and "memtrace-my-pod.mtr: 4 bytes" in err, "a connection that breaks: %d, %s", code, err)
    equal(os.listdir(c.here()), ["memtrace-my-pod.mtr"], "files")


def test_interrupt():
    """After Ctrl-C there is what came until then."""
    c = Cluster("interrupt", output="whole blocks")
    p = subprocess.Popen([PLUGIN, "record", "my-pod", "--", "-d1h"], env=c.env(HOLD="1"), cwd=c.here(), stderr=subprocess.PIPE, text=True,
                         stdin=subprocess.DEVNULL, start_new_session=True)
    try:
        limit = time.monotonic() + 20
        while not os.path.exists(os.path.join(c.folder, "holding")):
            check(time.monotonic() < limit, "no recording began")
            time.sleep(0.02)
        os.killpg(p.pid, signal.SIGINT)
        _, err = p.communicate(timeout=20)
    finally:
        if p.poll() is None:
            os.killpg(p.pid, signal.SIGKILL)
            p.wait()
    check("stopped" in err and p.returncode == 130, "%d: %s", p.returncode, err)
    with open(c.here("memtrace-my-pod.mtr"), encoding="utf-8") as f:
        equal(f.read(), "whole blocks", "content")


def test_errors():
    """Each is one line, or a list of processes: what failed, and what to do."""
    two = watching((4242, "python train.py --rank 0"), (4243, "python train.py --rank 1"))
    missing = ("", 'Error from server (NotFound): pods "my-pod" not found\n', 1)
    denied = ("", "Error from server (Forbidden): pods is forbidden\n", 1)
    cases = [
        ("no pod", {"pod": missing}, [], "no pod 'my-pod' in this namespace; kubectl get pods -A lists all"),
        ("no pod there", {"pod": missing}, ["-n", "x"], "no pod 'my-pod' in namespace 'x'; kubectl get pods -A lists all"),
        ("waits", {"pod": "training\nPending\n\n"}, [], "pod 'my-pod' is Pending, not running; see kubectl describe pod my-pod -n training"),
        ("container", {}, ["-c", "gpu"], "no running container 'gpu' in pod 'my-pod'; containers of the pod: trainer, sidecar"),
        ("not started", {"pod": "training\nRunning\nnode-7\ntrainer \n"}, [], "no running container '*' in pod 'my-pod'; containers of the pod: trainer"),
        ("no tracer", {"tracers": ""}, [], "no pod of memtrace-bpf runs on node 'node-7' in namespace 'memtrace-bpf'; install the Helm chart there, "
         "let its nodeSelector and tolerations admit the node, or name its namespace with --memtrace-namespace"),
        ("two tracers", {"tracers": "memtrace-bpf-x7x7x \nother \n"}, [], "several pods of namespace 'memtrace-bpf' call themselves memtrace-bpf on node "
         "'node-7': memtrace-bpf-x7x7x, other; the DaemonSet has one a node: remove the others, or name its namespace with --memtrace-namespace"),
        ("no process", {"watch": ("", "memtrace-bpf: there is no process with PyTorch\n", 2)}, [],
         "no process with PyTorch in container '*' of pod 'my-pod'; --process PATTERN chooses by command line"),
        ("no match", {"watch": ("", "none\n", 2)}, ["--process", "x"], "no process of pod 'my-pod' matches 'x'"),
        ("two", {"watch": two}, [], "2 processes of pod 'my-pod' match; choose one with --pid PID or --process PATTERN:\n"
         "kubectl memtrace-bpf:   --pid 4242  python train.py --rank 0\nkubectl memtrace-bpf:   --pid 4243  python train.py --rank 1"),
        ("other PID", {"watch": two}, ["--pid", "1"], "PID 1 is not a process of pod 'my-pod'. Its processes:\n"
         "kubectl memtrace-bpf:   --pid 4242  python train.py --rank 0\nkubectl memtrace-bpf:   --pid 4243  python train.py --rank 1"),
    ]
    for name, answers, args, text in cases:
        c = Cluster("error-" + name.replace(" ", "-"), **answers)
        equal(c.run("my-pod", *args), (UNUSABLE, "", "kubectl memtrace-bpf: %s\n" % text), name)
    for name, answers, code, text in (("pod", {"pod": denied}, 1, "cannot read pod 'my-pod': Error from server (Forbidden)"),
                                      ("tracers", {"tracers": denied}, 1, "--memtrace-namespace NS names another namespace"),
                                      ("watch", {"watch": ("", "memtrace-bpf: no rights\n", 3)}, 3, "memtrace-bpf in pod memtrace-bpf-x7x7x failed: ")):
        got, _, err = Cluster("denied-" + name, **answers).run("my-pod")
        check(got == code and text in err, "%s: %d, %s", name, got, err)


def test_wrong_arguments():
    c = Cluster("usage")
    for args, text in (([], "no pod was given"), (["a", "b"], "two pods: 'a' and 'b'"), (["a", "--pid", "x"], "--pid: 'x' is not a PID"),
                       (["a", "--by", "line"], "unknown option '--by'; options of memtrace-bpf come after --"), (["a", "-n"], "-n: it needs a value"),
                       (["a", "--pid=1", "--process=x"], "cannot be combined"), (["a", "-o", "x.mtr"], "-o is for record"),
                       (["record", "a", "--", "-o", "x"], "-o writes files on the node"),
                       (["record", "a", "--", "--children"], "--children writes files on the node")):
        code, out, err = c.run(*args)
        check((code, out, c.calls()) == (USAGE, "", []) and text in err and err.count("\n") == 1, "%s: %d, %s%s", args, code, out, err)
    code, out, err = c.run("--help")
    check(code == 0 and out.startswith("Usage: kubectl memtrace-bpf") and not err, "--help: %d, %s", code, err)
    check(all(len(line) <= 100 for line in out.splitlines()), "a line of the help is too wide")


def test_old_bash():
    """Nothing that bash 3.2, of macOS, does not know."""
    with open(PLUGIN, encoding="utf-8") as f:
        text = f.read()
    for word in ("mapfile", "readarray", "declare -A", "local -A", "local -n", "&>>", "|&", "${EPOCH", ",,}", "^^}", "@Q}"):
        check(word not in text, "the plug-in has %s", word)


def test_real_process():
    """The real program searches a pod's control group, dumps and records."""
    cgroup = test_many.make_cgroup()
    if not cgroup:
        raise Skip("no control group can be made here")
    c = Cluster("real")
    try:
        p = spawn(["bash", "-c", 'echo $$ >"$0/cgroup.procs" && exec "$@"', cgroup, harness.python(),
                   os.path.join(harness.WORKLOADS, "leak.py"), "list", "--steps", "100000", "--pause", "0.02"], root=True)
        p.wait_line("step 3", 60)
        env = {"REAL": harness.TOOL}
        code, out, err = c.run("check", "my-pod", "-c", "trainer", **env)
        check(code == 0 and "can be attached" in out, "check: %d, %s%s", code, out, err)
        code, _, err = c.run("record", "my-pod", "-o", "run.mtr", "--", "--steps", "20", "-q", **env)
        equal(code, 0, "record: %s" % err)
        doc = harness.report(c.here("run.mtr"))
        check(doc["capture"]["steps"] >= 20 and doc["capture"]["complete"] and doc["target"]["container"].startswith(ID[:12]), "%s", doc["target"])
        code, _, err = c.run("my-pod", "-c", "sidecar", **env)
        check(code == UNUSABLE and "no process with PyTorch in container 'sidecar'" in err, "another container: %d, %s", code, err)
        p.stop()
    finally:
        harness.stop_all(kept=False)
        test_many.remove_cgroup(cgroup)


if __name__ == "__main__":
    if not shutil.which("bash"):
        raise SystemExit(77)
    run(globals())

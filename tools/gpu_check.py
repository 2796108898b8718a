#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
Checks memtrace-bpf's assumptions about GPUs on a machine with a GPU, in at most ten minutes. Prints one Markdown table:
expected, observed, verdict. docs/internals/GPU_CHECK.md explains each row.

Needs Linux on x86-64 and a Python with torch; no compiler and no network. With root and BPF it records with the kernel's probes,
otherwise with `run --inside`. Without a GPU, --dry-run uses the dry run's libraries, and rows that need a GPU say so. Exits with
1 if any row failed or no device can be used.
"""
import argparse
import concurrent.futures
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(os.path.dirname(HERE), "tests", "e2e")]
import code_bytes  # noqa: E402

MIB = 1 << 20
LIMIT = 570  # seconds for all rows
PASS, FAIL, GPU = "pass", "FAIL", "needs a GPU"


def program():
    """Next to this script in a bundle, in the build's folder in a checkout."""
    for path in (os.path.join(HERE, "memtrace-bpf"), os.path.join(os.path.dirname(HERE), ".output", "memtrace-bpf")):
        if os.access(path, os.X_OK):
            return path
    return ""


def mib(n):
    return "%.1f MiB" % (n / MIB)


class Late(Exception):
    """The total time is over."""


class Checks:
    def __init__(self, args, folder):
        self.args, self.folder = args, folder
        self.begin = time.monotonic()
        self.rows, self.details = [], {}
        self.real = False
        self.bpf = ""
        self.plain = {}  # results of jobs without a recording

    # ---- the table ----

    def row(self, number, what, expected, seen, ok):
        """ok: True, False, or a verdict in words."""
        verdict = PASS if ok is True else FAIL if ok is False else ok
        self.rows.append((number, what, expected, seen, verdict))
        print("| " + " | ".join(str(c).replace("|", "/").replace("\n", " ") for c in self.rows[-1]) + " |", flush=True)

    def for_a_gpu(self, number, what, expected, seen, ok):
        """A row that a dry run cannot answer."""
        self.row(number, what, expected, seen if self.real else "-", ok if self.real else GPU)

    # ---- child processes ----

    def left(self):
        left = LIMIT - (time.monotonic() - self.begin)
        if left < 5:
            raise Late()
        return left

    def job(self, *words):
        return [self.args.python, os.path.join(HERE, "gpu_check_job.py"), *[str(w) for w in words]]

    def environment(self, dry=True, **variables):
        env = dict(os.environ, PYTHONUNBUFFERED="1", **variables)
        if self.args.dry_run and dry:
            folder = os.path.join(os.path.dirname(self.args.program), "dryrun")
            env.update(LD_PRELOAD=" ".join(os.path.join(folder, n) for n in ("libcuda.so.1", "libnvidia-ml.so.1")), MEMTRACE_DRYRUN_VRAM="8G")
        return env

    @staticmethod
    def last(text):
        lines = [line for line in text.splitlines() if line.startswith("{")]
        return json.loads(lines[-1]) if lines else None

    def run(self, command, env, limit=120):
        """(exit status, last line of JSON or None, standard error). Without time left, the status is in words."""
        limit = min(limit, self.left())
        p = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace",
                             start_new_session=True)
        try:
            out, error = p.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            os.killpg(p.pid, signal.SIGKILL)  # a job survives its recorder
            p.communicate()
            return "not done after %d s" % limit, None, ""
        return p.returncode, self.last(out), error

    def unrecorded(self, *words, **variables):
        key = (words, tuple(variables.items()))
        if key not in self.plain:
            self.plain[key] = self.run(self.job(*words), self.environment(**variables))
        return self.plain[key]

    def record_options(self):
        dry = ["--dry-run-cuda", "--vram", "8G"] if self.args.dry_run else []
        return dry + ([] if self.bpf else ["--inside"])

    def recorded(self, name, *words, **variables):
        """The same as run() for a job recorded from its start, plus the recording's path. If the command continued without a
        recording, the status is in words."""
        path = os.path.join(self.folder, name + ".mtr")
        command = [self.args.program, "run", "-q", "-f", "-o", path, *self.record_options(), "--", *self.job(*words)]
        code, said, error = self.run(command, self.environment(dry=False, **variables))
        return code if code or os.path.exists(path) else "0, not recorded", said, error, path

    def report(self, path, at="end", by="segment"):
        done = subprocess.run([self.args.program, "report", "--format", "json", "--at", at, "--by", by, path], capture_output=True,
                              text=True, errors="replace", timeout=self.left(), check=False)
        if done.returncode:
            raise ValueError("report ended with %d: %s" % (done.returncode, done.stderr.strip()[-200:]))
        doc = json.loads(done.stdout)
        device = next((d for d in doc["devices"] if d["device"] == "cuda:0"), None)
        if not device:
            raise ValueError("the recording has no cuda:0")
        return doc, device

    def start(self, command, env):
        return subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)

    def wait_ready(self, process, word="ready"):
        """A job that is ready; False: it ended, or no time is left."""
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            def read():
                for line in process.stdout:
                    if line.startswith(word):
                        return True
                return False
            found = pool.submit(read)
            try:
                return found.result(min(120, self.left()))
            except concurrent.futures.TimeoutError:
                process.kill()
                return False

    def finish(self, process):
        """Lets a waiting job continue; its last line of JSON."""
        try:
            out, _ = process.communicate("\n", timeout=min(60, self.left()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            return None
        return self.last(out)

    # ---- A: the machine ----

    def machine(self):
        code, said, error = self.unrecorded("probe")
        if not said:
            sys.exit("no device that %s can use: %s" % (self.args.python, (error.strip().splitlines() or [code])[-1]))
        self.real = "(dry run)" not in said["name"]
        self.details["machine"] = said
        print("%s, %s of it, torch %s, Python %s, driver %s, Linux %s%s\n" % (
            said["name"], mib(said["total"]), said["torch"], said["python"], said["entries"]["driver"], said["kernel"],
            "" if self.real else ". This is not a GPU."))
        code, _, error = self.run([self.args.program, "check"], dict(os.environ))
        self.bpf = code == 0 and not self.args.inside
        print("Recording with %s.\n" % ("the kernel's probes" if self.bpf else "`run --inside`"))
        print("| row | what | expected | seen | verdict |\n|---|---|---|---|---|", flush=True)
        return said

    def check_a(self):
        said = self.details["machine"]
        e, devices = said["entries"], said["nvml"]
        self.row("A1", "pointers of cuGetProcAddress", "exported functions, all", "%d of %d%s" % (
            e["asked"] - len(e["missed"]), e["asked"], "; not: " + ", ".join(e["missed"]) if e["missed"] else ""), not e["missed"] and e["asked"] > 0)
        mine = [(i, d["processes"][str(said["pid"])]) for i, d in enumerate(devices) if str(said["pid"]) in d["processes"]]
        self.row("A2", "NVML lists this process by its PID", "on one GPU", ", ".join("GPU %d: %s" % (i, mib(n)) for i, n in mine) or
                 "no (PID namespaces: %s)" % said["pids"], len(mine) == 1)
        gpu = devices[mine[0][0]] if mine else devices[0] if devices else None
        if gpu:
            total = gpu["total"] - gpu["reserved"]
            self.row("A3", "NVML's total less its reserve, against cudaMemGetInfo's total", "1 % at most apart", "%s, %s%s" % (
                mib(total), mib(said["total"]), "" if gpu["v2"] else " (no v2)"), gpu["mig"] == 1 or abs(total - said["total"]) <= said["total"] / 100)
            self.for_a_gpu("A4", "NVML's list of processes", "p99 below 5 ms", ", ".join(
                "GPU %d: %.0f, %.0f us" % (i, d["p50_us"], d["p99_us"]) for i, d in enumerate(devices)), all(d["p99_us"] < 5000 for d in devices))
            node = said["nodes"].get("/dev/nvidia%d" % gpu["minor"])
            self.for_a_gpu("A5", "the GPU's node", "/dev/nvidia%d, 195:%d" % (gpu["minor"], gpu["minor"]), "%s of %s" % (node, sorted(said["nodes"])),
                           node == [195, gpu["minor"]])
        self.row("A6", "user shadow stacks", "off", "on" if said["shadow_stacks"] else "off", not said["shadow_stacks"])

    # ---- B: what NVML costs the target ----

    def check_b(self):
        if not self.real:
            self.for_a_gpu("B1", "cudaMalloc while NVML is asked at 20 Hz", "p50 at most 20 % longer", "", None)
            return
        alone = self.unrecorded("malloc", self.args.seconds)[1]
        other = self.start(self.job("nvml_loop", self.args.seconds * 3 + 20), self.environment())
        beside = self.run(self.job("malloc", self.args.seconds), self.environment())[1] if self.wait_ready(other) else None
        other.kill()
        other.communicate()
        ok = bool(alone and beside) and beside["p50_us"] <= 1.2 * alone["p50_us"]
        self.row("B1", "cudaMalloc while NVML is asked at 20 Hz", "p50 at most 20 % longer", "%s without, %s with" % tuple(
            "p50 %.1f us, p99 %.1f us" % (x["p50_us"], x["p99_us"]) if x else "no answer" for x in (alone, beside)), ok)

    # ---- C: check, on a process ----

    def check_c(self):
        if not self.bpf:
            code, _, error = self.run([self.args.program, "run", "--no-trace", "--", self.args.python, "-c", ""], dict(os.environ))
            self.row("C1", "the program starts", "exit 0", "exit %s %s" % (code, error.strip()[-200:]), code == 0)
            return
        target = self.start(self.job("libraries"), self.environment())
        try:
            for number, what, word in (("C1", "check -p of a job", "ready"), ("C2", "check -p after torch.linalg.svd", "solved")):
                if not self.wait_ready(target, word):
                    self.row(number, what, "exit 0", "the job did not start", False)
                    return
                self.check_process(number, what, target.pid)
                if number == "C1":
                    target.stdin.write("\n")
                    target.stdin.flush()
        finally:
            self.finish(target)

    def check_process(self, number, what, pid):
        done = subprocess.run([self.args.program, "check", "-p", str(pid), "--explain"], capture_output=True, text=True, errors="replace",
                              timeout=min(60, self.left()), check=False)
        self.details["check " + number] = done.stdout
        bad = [line.strip() for line in done.stdout.splitlines() if "refused" in line or line[:3] in ("no ", "NO ")]
        self.row(number, what, "exit 0, no function refused", "exit %d%s" % (done.returncode, "; " + "; ".join(bad[:5]) if bad else ""),
                 done.returncode == 0 and not bad)

    # ---- D, E: a training job from its start ----

    def exact(self, number, what, said, path, device):
        """Compares PyTorch's counters with the recording, to the byte."""
        known = said["stats"]
        keys = ("peak_allocated", "peak_reserved", "total_allocated", "allocs")
        other = ["%s: %s, PyTorch %s" % (k, device[k], known[k]) for k in keys if device[k] != known[k]]
        self.row(number, "%s: PyTorch's own counters" % what, "equal to the byte", "; ".join(other) or
                 "peak %s, %d allocations, all equal" % (mib(known["peak_allocated"]), known["allocs"]), not other)

    def training(self, letter, what, name, words, counters, **variables):
        code, said, error, path = self.recorded(name, *words, **variables)
        if code != 0 or not said:
            self.row(letter + "1", what, "exit 0", "exit %s: %s" % (code, error.strip()[-300:]), False)
            return None, None
        doc, device = self.report(path)
        capture = doc["capture"]
        self.details[name] = {"counters": capture["counters"], "reconciliation": device.get("reconciliation")}
        self.row(letter + "1", what + ": recording", "drift 0, state exact, none lost", "drift %s, state %s, %s lost" % (
            device["drift"], device["state"], capture["lost"]), (device["drift"], device["state"], capture["lost"]) == (0, "exact", 0))
        self.exact(letter + "2", what, said, path, device)
        seen = {c: capture["counters"].get("calls." + c, 0) for c in counters}
        self.row(letter + "3", what + ": calls seen", "more than 0 each", ", ".join("%s %d" % i for i in seen.items()), all(seen.values()))
        return doc, path

    def check_d(self):
        doc, path = self.training("D", "training", "train", ("train", self.args.steps), ("cudaMalloc",))
        if not doc:
            return
        inner = doc["capture"]["counters"].get("calls_inner", 0)
        self.for_a_gpu("D4", "driver calls that the runtime makes", "more than 0: the probes on the driver are hit", inner, inner > 0)
        moments = ("%.3f" % (doc["capture"]["duration"] * 0.8), "peak", "end")
        below = [self.report(path, at)[1].get("reconciliation") or {} for at in moments]
        known = [r["not_seen"] for r in below if r.get("not_seen") is not None]
        self.row("D5", "driver's figure less what was seen (the context), at %s s, at the peak and at the end" % moments[0],
                 "known, 2 MiB at most apart", ", ".join(mib(n) for n in known) or "no figure of the driver",
                 len(known) == len(moments) and max(known) - min(known) <= 2 * MIB)

    def check_e(self):
        steps = self.args.steps
        doc, _ = self.training("E", "expandable segments", "expandable", ("train", steps), ("cuMemCreate", "cuMemMap"),
                               PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True")
        if doc:
            below = next(d for d in doc["devices"] if d["device"] == "cuda:0").get("reconciliation") or {}
            missing = (below.get("segments") or {}).get("not_known")
            self.row("E4", "expandable segments: bytes in segments that are not known", "0", missing, missing == 0)
        code, said, error, path = self.recorded("async", "train", steps, PYTORCH_CUDA_ALLOC_CONF="backend:cudaMallocAsync")
        if code == 0 and said:
            device = self.report(path, by="line")[1]  # without segments
            got, known = device["peak_allocated"], said["stats"]["peak_allocated"]  # the pool rounds each block
            self.row("E5", "cudaMallocAsync: peak", "PyTorch's, 1 % at most apart", "%s, PyTorch %s" % (mib(got), mib(known)),
                     abs(got - known) <= known / 100)
        else:
            self.row("E5", "cudaMallocAsync: peak", "PyTorch's, 1 % at most apart", "exit %s: %s" % (code, error.strip()[-300:]), False)
        code, said, error, path = self.recorded("graphs", "train", steps, "graphs")
        if code == 0 and said:
            self.exact("E6", "CUDA graphs", said, path, self.report(path)[1])
        else:
            self.row("E6", "CUDA graphs", "exit 0", "exit %s: %s" % (code, error.strip()[-300:]), False)

    # ---- F: attached in the middle, and killed ----

    def check_f(self):
        if not self.bpf:
            self.row("F1", "attach to a running job", "state exact, drift 0", "-", "needs BPF and root")
            self.row("F2", "kill -9 of the recorder", "no byte of code left changed, the job goes on", "-", "needs BPF and root")
            return
        path = os.path.join(self.folder, "attached.mtr")
        target = self.start(self.job("idle"), self.environment())
        try:
            if not self.wait_ready(target):
                self.row("F1", "attach to a running job", "state exact, drift 0", "the job did not start", False)
                return
            code, _, error = self.run([self.args.program, "record", "-q", "-f", "-p", str(target.pid), "-o", path, "-d", "5s"], dict(os.environ), 60)
            device = self.report(path)[1] if code == 0 else {"state": "exit %s: %s" % (code, error.strip()[-200:]), "drift": None}
            self.row("F1", "attach to a running job", "state exact, drift 0", "state %s, drift %s" % (device["state"], device["drift"]),
                     (device["state"], device["drift"]) == ("exact", 0))
            recorder = subprocess.Popen([self.args.program, "record", "-q", "-f", "-p", str(target.pid), "-o", path], stderr=subprocess.DEVNULL)
            time.sleep(3)
            recorder.kill()
            recorder.wait()
            names, limit = ("libc10", "libpython", "libtorch", "libcuda", "python3"), time.monotonic() + min(20, self.left())
            while code_bytes.differing(target.pid, names) and time.monotonic() < limit:
                time.sleep(0.2)
            left = code_bytes.differing(target.pid, names)
            said = self.finish(target)
            self.row("F2", "kill -9 of the recorder", "no byte of code left changed, the job goes on", "%d bytes, %s" % (
                left, "%d steps" % said["steps"] if said else "the job ended"), left == 0 and bool(said))
        finally:
            if target.poll() is None:
                self.finish(target)

    # ---- G: no harm ----

    def check_g(self):
        jobs = (("G1", "200 caught out-of-memory errors with C++ stacks", ("oom", 200), {"TORCH_SHOW_CPP_STACKTRACES": "1"}),
                ("G2", "torch.profiler", ("profiler",), {}), ("G3", "_record_memory_history(stacks=all)", ("history",), {}),
                ("G4", "4 forked DataLoader workers, pinned memory", ("loader",), {}))
        for number, what, words, variables in jobs:
            plain = self.unrecorded(*words, **variables)
            code, said, error, path = self.recorded(number, *words, **variables)
            same = code == plain[0] and bool(said) and said == plain[1]
            self.row(number, what, "exit status and losses as without a recorder", "exit %s, %s" % (
                code, "the same" if same else "without: exit %s; %s" % (plain[0], error.strip()[-200:])), same and code == 0)

    # ---- H: NCCL ----

    def check_h(self):
        if not self.real:
            self.for_a_gpu("H1", "NCCL's memory", "by libnccl, on a known device", "", None)
            return
        code, _, error, path = self.recorded("nccl", "nccl")
        if code != 0:
            self.row("H1", "NCCL's memory", "by libnccl, on a known device", "exit %s: %s" % (code, error.strip()[-200:]), False)
            return
        below = self.report(path)[1].get("reconciliation") or {}
        rows = json.dumps(below.get("others"))
        self.details["nccl"] = below
        self.row("H1", "NCCL's memory", "by libnccl, on a known device", "%s by others, libnccl %s, %s on an unknown device" % (
            mib(below.get("used_others") or 0), "named" if "nccl" in rows else "not named", mib(below.get("unknown_device") or 0)),
            "nccl" in rows and not below.get("unknown_device"))

    # ---- I: what it costs ----

    def check_i(self):
        if not self.real:
            self.for_a_gpu("I1", "steps a second, recorded", "at least 90 %", "", None)
            self.for_a_gpu("I2", "cudaMalloc, recorded", "p50 at most 10 us longer", "", None)
            self.for_a_gpu("I3", "pinned memory of the host (cudaHostAlloc), recorded", "p50 at most 10 us longer", "", None)
            return
        rates = {False: [], True: []}
        for traced in (False, True, False, True):
            said = (self.recorded("rate", "train", 10 * self.args.steps) if traced else
                    self.run(self.job("train", 10 * self.args.steps), self.environment()))[1]
            rates[traced] += [said["rate"]] if said and said["rate"] else []
        plain, traced = (max(rates[k], default=0) for k in (False, True))
        self.row("I1", "steps a second, recorded", "at least 90 %", "%.1f of %.1f" % (traced, plain), plain > 0 and traced >= 0.9 * plain)
        for number, what, job in (("I2", "cudaMalloc, recorded", "malloc"), ("I3", "pinned memory of the host (cudaHostAlloc), recorded", "pinned")):
            alone, recorded = self.unrecorded(job, self.args.seconds)[1], self.recorded(job, job, self.args.seconds)[1]
            self.row(number, what, "p50 at most 10 us longer", "%s without, %s with" % tuple(
                "p50 %.1f us" % x["p50_us"] if x else "no answer" for x in (alone, recorded)),
                bool(alone and recorded) and recorded["p50_us"] <= alone["p50_us"] + 10)

    # ---- J: two processes ----

    def check_j(self):
        what, expected = "out of memory next to another process: what the driver had left", "cudaMemGetInfo's figure, 64 MiB at most apart"
        if not self.real:
            self.for_a_gpu("J1", what, expected, "", None)
            self.visible("J2", "CUDA_VISIBLE_DEVICES unset, 0", None, "0")
            self.for_a_gpu("J3", "CUDA_VISIBLE_DEVICES=UUID", "the driver's figure is known", "", None)
            return
        neighbour = self.start(self.job("hold", 0.6), self.environment())
        path = os.path.join(self.folder, "left.mtr")
        try:
            if not self.wait_ready(neighbour):
                self.row("J1", what, expected, "the other process did not start", False)
                return
            asks = self.start([self.args.program, "run", "-q", "-f", "-o", path, *self.record_options(), "--", *self.job("ask")],
                              self.environment(dry=False))
            ready = self.wait_ready(asks)
            time.sleep(3)
            said = self.finish(asks) if ready else None
        finally:
            self.finish(neighbour)
        ooms = self.report(path)[1].get("out_of_memory") if said else None
        left = ooms[0]["driver_free"] if ooms and ooms[0]["driver_free_counts_others"] else None
        self.row("J1", what, expected, "%s, cudaMemGetInfo %s" % (mib(left) if left is not None else "not known", mib(said["free"]) if said else "-"),
                 left is not None and abs(left - said["free"]) <= 64 * MIB)
        self.visible("J2", "CUDA_VISIBLE_DEVICES unset, 0", None, "0")
        uuids = [d["uuid"] for d in self.details["machine"]["nvml"] if d["uuid"]]
        if uuids:
            self.visible("J3", "CUDA_VISIBLE_DEVICES=UUID", uuids[0])
        else:
            self.row("J3", "CUDA_VISIBLE_DEVICES=UUID", "the driver's figure is known", "NVML says no UUID", False)

    def visible(self, number, what, *values):
        seen = []
        for value in values:
            code, _, _, path = self.recorded("visible", "train", 5, **({} if value is None else {"CUDA_VISIBLE_DEVICES": value}))
            below = (self.report(path)[1].get("reconciliation") or {}) if code == 0 else {}
            seen.append((value or "unset", below.get("used")))
        self.row(number, what, "the driver's figure is known", ", ".join("%s: %s" % (v, mib(n) if n else "not known") for v, n in seen),
                 all(n for _, n in seen))

    # ---- K: the driver's library, late ----

    def check_k(self):
        said = self.unrecorded("late")[1] if self.real else None
        self.for_a_gpu("K1", "from libcuda's mapping to the first memory taken", "longer than the recorder needs (120 ms)",
                       "%.0f ms" % said["ms"] if said else "no answer", bool(said) and said["ms"] > 120)

    def all(self):
        self.machine()
        for letter in "ABCDEFGHIJK":
            if self.args.only and letter not in self.args.only:
                continue
            try:
                self.left()
                getattr(self, "check_" + letter.lower())()
            except Late:
                self.row(letter, "-", "-", "-", "not run: the time was over")
            except (ValueError, KeyError, TypeError, OSError, subprocess.TimeoutExpired) as e:
                self.row(letter, "-", "-", "%s: %s" % (type(e).__name__, str(e)[:300]), False)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--python", default=sys.executable, help="the interpreter that has torch (default: this one)")
    p.add_argument("--program", default=program(), help="memtrace-bpf (default: the one next to this script, or the build's)")
    p.add_argument("--dry-run", action="store_true", help="there is no GPU: check what can be checked without")
    p.add_argument("--inside", action="store_true", help="record with `run --inside` even where the kernel's probes can be used")
    p.add_argument("--only", default="", metavar="LETTERS", help="these rows alone: ADE")
    p.add_argument("--steps", type=int, default=30, help="of training jobs (default 30)")
    p.add_argument("--seconds", type=float, default=5, help="of each timing of cudaMalloc (default 5)")
    p.add_argument("--json", metavar="FILE", help="rows, and all details")
    args = p.parse_args()
    if not args.program:
        p.error("no memtrace-bpf: --program says where it is")
    args.program = os.path.abspath(args.program)
    with tempfile.TemporaryDirectory(prefix="memtrace-gpu-check-") as folder:
        checks = Checks(args, folder)
        checks.all()
    counts = {v: sum(r[4] == v for r in checks.rows) for v in (PASS, FAIL, GPU)}
    print("\n%d passed, %d failed, %d need a GPU, %.0f s" % (counts[PASS], counts[FAIL], counts[GPU], time.monotonic() - checks.begin))
    if args.json:
        with open(args.json, "w", encoding="utf-8") as f:
            json.dump({"real": checks.real, "bpf": checks.bpf, "rows": checks.rows, "details": checks.details}, f, indent=1)
    sys.exit(1 if counts[FAIL] else 0)


if __name__ == "__main__":
    main()

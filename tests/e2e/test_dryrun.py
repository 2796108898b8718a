#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# run: long
"""The dry run's model of CUDA: device memory, streams, captures and entry points, used by PyTorch and directly."""
import glob
import json
import os
import platform
import re
import shutil
import subprocess
import sys

from harness import OUT, REPO, WORKLOADS, Skip, check, equal, nightly, python, run, scratch, spawn

FOLDER = os.path.join(OUT, "dryrun")
PRELOAD = [os.path.join(FOLDER, n) for n in ("libcuda.so.1", "libnvidia-ml.so.1")]
ROLES = ("main", "newest", "cu12")
BACKENDS = {"native": "", "expandable": "expandable_segments:True", "async": "backend:cudaMallocAsync"}
MIB = 1 << 20
TOTAL, CONTEXT = 2048 * MIB, 100 * MIB
GRANULE = 2 * MIB


def by_hand(script, *args, stdin="", **env):
    """JSON output of a script without PyTorch; argv[1] is the library."""
    done = subprocess.run([sys.executable, "-c", script, PRELOAD[0], *args], input=stdin, capture_output=True, text=True, timeout=60,
                          env=dict(os.environ, **env), check=False)
    equal(done.returncode, 0, "exit of the script; it said %r" % done.stderr[-800:])
    return json.loads(done.stdout)


# ---- the environment ------------------------------------------------------------------------------------------------

def test_bad_environment():
    bad = {"VRAM": ("0", "15M", "5T", "80X", "", "-1", "1e9", "99999999999999999999"), "DEVICES": ("0", "65", "2x", "", "-1", " 1"),
           "SM": ("9.9", "8", "", "\033[2J"), "NAME": ("", "x" * 256), "CONTEXT": ("5T", "x"), "HELD": ("", "1G,", ",1G", "1G,x", "5T", ",".join(["1M"] * 65)), "CUDNN_WORKSPACE": ("-1", "32Q"),
           "HOST_INIT": ("", "2", "yes"), "PROCESSORS": ("0", "1025", "1x", "", "-1"), "PACED": ("0", "1000001", "x", ""), "CLOCK": ("-1", "x", "", "0.0001", "1001", "nan", "0x1", "1 "),
           "VALUES": ("a", "a:1", "a:1=", "a:0=1", "a:x=1", ":1=1", "a:1=1x", "a:1=inf", "a:1=1,b", "a:-1=2", "a:1= 1", "a:1=1e99", "a:1=1@", "a:1=1@0", "a:1=@3", "a:1=1@*", "a:1=1@0*", "a:1=1@3**")}
    for name, values in bad.items():
        variable = "MEMTRACE_DRYRUN_" + name
        for value in values:
            done = subprocess.run(["sh", "-c", "echo begun"], capture_output=True, text=True, timeout=60, check=False,
                                  env=dict(os.environ, LD_PRELOAD=" ".join(PRELOAD), **{variable: value}))
            what = "%s=%r" % (variable, value)
            equal((done.returncode, done.stdout), (64, ""), "exit and output with " + what)
            line = "memtrace-bpf: dry run: %s=%s: expected " % (variable, re.sub(r"[^ -~]", "?", value)[:80])
            check(done.stderr.startswith(line) and done.stderr.count("\n") == 1, "%s: the message is %r", what, done.stderr)
    done = subprocess.run(["true"], capture_output=True, text=True, timeout=60, check=False,
                          env=dict(os.environ, LD_PRELOAD=PRELOAD[0], MEMTRACE_DRYRUN_VRAM="1G", MEMTRACE_DRYRUN_CONTEXT="1G"))
    equal(done.returncode, 64, "exit with a context as large as the memory")
    check("MEMTRACE_DRYRUN_CONTEXT=1G" in done.stderr, "the message is %r", done.stderr)


# ---- functions as observers see them --------------------------------------------------------------------------------

def test_no_tail_jumps():
    """A return probe on a function that ends in a tail call would see another result, or none."""
    branch = {"x86_64": r"\tj\w+\s+(.*)", "aarch64": r"\t(?:b|b\.\w+|cbn?z|tbn?z|br)\s+(.*)"}.get(platform.machine())
    if not branch:
        raise Skip("reads the disassembly of x86-64 and AArch64 only")
    if not shutil.which("objdump"):
        raise Skip("no objdump")
    text = subprocess.run(["objdump", "-d", "--no-show-raw-insn", PRELOAD[0]], capture_output=True, text=True, check=True).stdout
    seen, jumps = set(), []
    for part in text.replace("@@Base", "").split("\n\n"):
        name = re.match(r"\s*[0-9a-f]+ <((?:cuMem|cudaMalloc|cudaFree|cudaHost)\w*)>:", part)
        if not name:
            continue
        seen.add(name[1])
        for at in re.findall(branch, part):
            if not re.search(r"<%s(\+0x[0-9a-f]+)?>" % name[1], at):
                jumps.append("%s: %s" % (name[1], at))
    needed = {"cudaMalloc", "cudaFree", "cudaMallocAsync", "cudaFreeAsync", "cudaHostAlloc", "cudaMallocManaged", "cuMemCreate", "cuMemMap",
              "cuMemUnmap", "cuMemRelease", "cuMemAlloc_v2", "cuMemFree_v2"}
    equal(sorted(needed - seen), [], "functions that are not in the disassembly")
    equal(jumps, [], "jumps out of a function")


# ---- entry points ---------------------------------------------------------------------------------------------------

FIND = r"""
import ctypes, json, sys
cuda = ctypes.CDLL(sys.argv[1])
asked, names = json.load(sys.stdin)
def at(name):
    try:
        return ctypes.cast(getattr(cuda, name), ctypes.c_void_p).value
    except AttributeError:
        return None
def ask(name, version):
    function, status = ctypes.c_void_p(), ctypes.c_int(-1)
    code = cuda.cuGetProcAddress_v2(name.encode(), ctypes.byref(function), version, ctypes.c_uint64(0), ctypes.byref(status))
    return [code, status.value, function.value]
print(json.dumps([[ask(*a) for a in asked], {n: at(n) for n in names}]))
"""

# cuda.h's macros keep these names for the first form next to a newer one, which drivers return from its version on (cuda-bindings
# requests both by one name).
KEPT = {"cuCtxGetDevice", "cuCtxSynchronize", "cuStreamGetCtx", "cuLaunchHostFunc", "cuMulticastBindAddr", "cuMulticastBindMem",
        "cuCtxCreate", "cuDeviceGetUuid"}


def headers(role):
    site = os.path.join(os.path.dirname(os.path.dirname(python(role))), "lib", "python3*", "site-packages", "nvidia")
    found = [p for part in ("cu13", "cuda_runtime") for p in glob.glob(os.path.join(site, part, "include", "cuda.h"))]
    check(found, "no cuda.h in the environment %s", role)
    return os.path.dirname(found[0])


def macros(folder):
    """Meanings of the plain names in cuda.h, by the preprocessor; and its version."""
    with open(os.path.join(folder, "cuda.h"), encoding="utf-8") as f:
        names = {n for n in re.findall(r"CUDAAPI\s+(cu[A-Z]\w*)\(", f.read()) if not re.search(r"_v\d$|_pt[ds][sz]$", n)}
    source = "#include <cuda.h>\n@ VERSION CUDA_VERSION\n" + "".join('@ "%s" %s\n' % (n, n) for n in sorted(names))
    done = subprocess.run(["cc", "-E", "-P", "-I", folder, "-x", "c", "-"], input=source, capture_output=True, text=True, check=True)
    return dict(re.findall(r'^@ "(\w+)" (\w+)', done.stdout, re.M)), int(re.search(r"^@ VERSION (\d+)", done.stdout, re.M)[1])


def forms(folder):
    """First versions of each name's forms, from the types declared for them."""
    found = {}
    with open(os.path.join(folder, "cudaTypedefs.h"), encoding="utf-8") as f:
        for name, version in re.findall(r"\*PFN_(cu[A-Z]\w*?)_v(\d+)\)", f.read()):
            found.setdefault(name, set()).add(int(version))
    return {n: sorted(v) for n, v in found.items()}


def entry_points(role):
    if not shutil.which("cc"):
        raise Skip("no C compiler, whose preprocessor reads the headers")
    folder = headers(role)
    plain, version = macros(folder)
    check(len(plain) > 350, "only %d names in cuda.h", len(plain))
    since = forms(folder)
    names = sorted(plain)
    asked = [(n, version) for n in names]
    expected = dict(zip(asked, (plain[n] for n in names)))
    for n, versions in since.items():
        for i, v in enumerate(versions):
            form = "%s_v%d" % (n, i + 1) if i else n
            after = versions[i + 1] - 10 if i + 1 < len(versions) else v
            if n != "cuGraphInstantiate" or after < 12000:
                expected.update({(n, v): form, (n, after): form})
        if n in KEPT:
            expected[n, version] = "%s_v%d" % (n, len(versions)) if len(versions) > 1 else n
        expected[n, versions[0] - 10] = None
    asked = sorted(expected)
    got, own = by_hand(FIND, stdin=json.dumps([asked, sorted({f for f in expected.values() if f})]))
    wrong, missing = [], 0
    for question, (code, status, at) in zip(asked, got):
        form = expected[question]
        if form is None:
            good = (code, status, at) == (500, 2, None)
        elif own[form] is None:  # no wheel declares it, or only under another name
            missing += 1
            good = (code, status, at) == (500, 1, None) and (question[1] != version or form != plain.get(question[0]))
        else:
            good = (code, status, at) == (0, 0, own[form])
        if not good:
            wrong.append((question, form, code, status, [n for n, a in own.items() if a and a == at]))
    equal(wrong, [], "entry points: asked for, expected, result, status and got")
    check(missing < len(asked) / 4, "%d of %d forms are not there", missing, len(asked))


def bindings(role):
    """NVIDIA's own binding, which comes with PyTorch, gets its functions by name."""
    done = subprocess.run([python(role), "-c", r"""
import json
from cuda.bindings import driver as d
def ok(result):
    assert int(result[0]) == 0, result
    return result[1] if len(result) == 2 else result[1:]
ok(d.cuInit(0))
context = ok(d.cuDevicePrimaryCtxRetain(ok(d.cuDeviceGet(1))))
ok(d.cuCtxSetCurrent(context))
stream = ok(d.cuStreamCreate(0))
memory = ok(d.cuMemAlloc(3 << 20))
free, total = ok(d.cuMemGetInfo())
own, green = ok(d.cuStreamGetCtx_v2(stream))
print(json.dumps({"device": int(ok(d.cuCtxGetDevice())), "context": int(ok(d.cuStreamGetCtx(stream))) == int(context) == int(own),
                  "green": int(green), "taken": total - free, "capture": int(ok(d.cuStreamGetCaptureInfo(stream))[0])}))
ok(d.cuCtxSynchronize())
ok(d.cuMemFree(memory))
"""], capture_output=True, text=True, timeout=60, check=False, env=environment("native"))
    equal(done.returncode, 0, "exit of the script; it said %r" % done.stderr[-800:])
    equal(json.loads(done.stdout), {"device": 1, "context": True, "green": 0, "taken": CONTEXT + 2 * GRANULE, "capture": 0},
          "what cuda-bindings was told")


def test_entry_points_main():
    entry_points("main")
    bindings("main")


@nightly("versions")
def test_entry_points_newest():
    entry_points("newest")
    bindings("newest")


@nightly("versions")
def test_entry_points_cu12():
    entry_points("cu12")


# ---- device state ---------------------------------------------------------------------------------------------------

STATE = r"""
import ctypes, json, sys
cuda = ctypes.CDLL(sys.argv[1])
V, size, M = ctypes.c_void_p, ctypes.c_size_t, 1 << 20
block, pooled, host, reserved, handle = V(), V(), V(), ctypes.c_uint64(), ctypes.c_uint64()
def used():
    available, total = size(), size()
    assert cuda.cudaMemGetInfo(ctypes.byref(available), ctypes.byref(total)) == 0
    return (total.value - available.value) // M
props = (ctypes.c_int * 8)(1, 0, 1)  # pinned, on a device
assert cuda.cudaMalloc(ctypes.byref(block), size(64 * M)) == 0
assert cuda.cudaMallocAsync(ctypes.byref(pooled), size(10 * M), None) == 0
assert cuda.cudaMallocHost(ctypes.byref(host), size(4096)) == 0
assert cuda.cuMemAddressReserve(ctypes.byref(reserved), size(2 * M), size(0), ctypes.c_uint64(0), ctypes.c_uint64(0)) == 0
assert cuda.cuMemCreate(ctypes.byref(handle), size(2 * M), props, ctypes.c_uint64(0)) == 0
out = {"before": used()}
out["registered"] = [cuda.cudaHostRegister(at, size(4096), 0) for at in (block, pooled, V(reserved.value), host)]
out["reset"] = [cuda.cudaDeviceReset(), used()]
out["freed"] = [cuda.cudaFree(block), cuda.cudaFreeHost(host), cuda.cudaFreeAsync(pooled, None), cuda.cuMemRelease(handle), used()]
out["all"] = [cuda.cudaMalloc(ctypes.byref(block), size(n * M)) for n in (926, 924)] + [used()]
print(json.dumps(out))
"""


def test_reset():
    """A reset frees a device's memory but not its pools' and cuMemCreate's; a pool gives up free memory when the device is full."""
    got = by_hand(STATE, MEMTRACE_DRYRUN_VRAM="1G", MEMTRACE_DRYRUN_CONTEXT="100M")
    equal(got, {"before": 100 + 64 + 32 + 2, "registered": [1, 1, 1, 712], "reset": [0, 100 + 32 + 2], "freed": [1, 1, 0, 0, 100 + 32],
                "all": [2, 0, 1024]}, "memory of a device")
    got = by_hand(STATE, MEMTRACE_DRYRUN_VRAM="3G", MEMTRACE_DRYRUN_HELD="2G,1M", MEMTRACE_DRYRUN_CONTEXT="100M")
    equal((got["before"], got["all"]), (2048 + 100 + 64 + 32 + 2, [2, 0, 3072]), "memory of a device of which other processes hold 2 GiB")


FORKS = r"""
import ctypes, json, os, signal, sys, threading
cuda = ctypes.CDLL(sys.argv[1])
V, size = ctypes.c_void_p, ctypes.c_size_t
kept, block = V(), V()
assert cuda.cudaEventCreate(ctypes.byref(kept)) == 0 and cuda.cudaMalloc(ctypes.byref(block), size(4096)) == 0
ended = False
def capture():
    stream, status, graph, held = V(), ctypes.c_int(), V(), V()
    cuda.cudaStreamCreate(ctypes.byref(stream))
    while not ended:  # the lock of captures is held while usleep(300) frees an object of the graph
        cuda.cudaStreamBeginCapture(stream, 0)
        cuda.cudaStreamGetCaptureInfo_v2(stream, ctypes.byref(status), None, ctypes.byref(graph), None, None)
        cuda.cudaUserObjectCreate(ctypes.byref(held), V(300), ctypes.CDLL(None).usleep, 1, 1)
        cuda.cudaGraphRetainUserObject(graph, held, 1, 1)
        cuda.cudaStreamSynchronize(stream)
        cuda.cudaStreamEndCapture(stream, ctypes.byref(graph))
def copy():
    memory, data = V(), ctypes.create_string_buffer(4096)
    while not ended:
        cuda.cudaMalloc(ctypes.byref(memory), size(4096))
        cuda.cudaMemcpy(memory, data, size(4096), 1)
        cuda.cudaFree(memory)
threads = [threading.Thread(target=work) for work in (capture, copy)]
for t in threads:
    t.start()
codes = set()
for _ in range(300):
    if codes - {3}:
        break
    pid = os.fork()
    if not pid:
        signal.alarm(10)
        cuda.cudaEventDestroy(kept)
        cuda.cudaMemset(block, 1, size(64))
        cuda.cudaFree(block)
        os._exit(cuda.cudaMalloc(ctypes.byref(block), size(4096)))
    codes.add(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
ended = True
for t in threads:
    t.join()
print(json.dumps(sorted(codes)))
"""


def test_forks():
    """A child finds no lock held, whatever its parent's threads did, and CUDA is not initialized in it."""
    equal(by_hand(FORKS), [3], "exits of the children")


# ---- captures -------------------------------------------------------------------------------------------------------

CAPTURES = r"""
import ctypes, json, sys
cuda = ctypes.CDLL(sys.argv[1])
V = ctypes.c_void_p
stream, joined, other, event, mark, memory, graph = V(), V(), V(), V(), V(), V(), V()
for s in (stream, joined, other):
    assert cuda.cudaStreamCreate(ctypes.byref(s)) == 0
for e in (event, mark):
    assert cuda.cudaEventCreate(ctypes.byref(e)) == 0
assert cuda.cudaMalloc(ctypes.byref(memory), ctypes.c_size_t(4096)) == 0
def work(s):
    return cuda.cudaMemsetAsync(memory, 1, ctypes.c_size_t(64), s)
def status():
    value = ctypes.c_int(-1)
    assert cuda.cudaStreamIsCapturing(stream, ctypes.byref(value)) == 0
    return value.value
waits = {"stream": lambda: cuda.cudaStreamSynchronize(stream), "query": lambda: cuda.cudaStreamQuery(stream),
         "joined": lambda: cuda.cudaStreamSynchronize(joined), "device": cuda.cudaDeviceSynchronize, "event": lambda: cuda.cudaEventQuery(mark),
         "event_wait": lambda: cuda.cudaEventSynchronize(mark), "driver": lambda: cuda.cuStreamSynchronize(stream), "none": lambda: 0}
out = {}
for name, wait in waits.items():
    seen = out[name] = {}
    assert cuda.cudaStreamBeginCapture(stream, 0) == 0
    assert work(stream) == 0 and cuda.cudaEventRecord(mark, stream) == 0 and cuda.cudaStreamWaitEvent(joined, mark, 0) == 0
    seen["before"] = [status(), work(joined)]
    seen["wait"] = wait()
    seen["inside"] = [status(), work(stream), work(joined), cuda.cudaEventRecord(event, stream), cuda.cudaStreamWaitEvent(stream, mark, 0)]
    seen["apart"] = [work(other), cuda.cudaEventRecord(event, other), cuda.cudaStreamSynchronize(other)]
    graph.value = 1
    seen["end"] = [cuda.cudaStreamEndCapture(stream, ctypes.byref(graph)), bool(graph.value)]
    seen["last"] = [cuda.cudaGetLastError(), cuda.cudaGetLastError()]
    seen["after"] = [status(), work(stream), work(joined), cuda.cudaEventQuery(mark), cuda.cudaStreamSynchronize(stream),
                     cuda.cudaStreamSynchronize(joined), cuda.cudaDeviceSynchronize()]
print(json.dumps(out))
"""


def test_invalid_captures():
    """A wait in a capture is refused, then all work in it until the capture ends; work outside of it continues."""
    got = by_hand(CAPTURES)
    refused = {"stream": 900, "query": 900, "joined": 900, "device": 900, "event": 907, "event_wait": 907, "driver": 900, "none": 0}
    for name, code in refused.items():
        bad = 901 if code else 0
        equal(got.pop(name), {"before": [1, 0], "wait": code, "inside": [2 if code else 1, bad, bad, bad, bad], "apart": [0, 0, 0],
                              "end": [bad, not code], "last": [bad, 0], "after": [0] * 7}, "a capture with a wait of the kind " + name)
    equal(got, {}, "other waits")


# ---- PyTorch --------------------------------------------------------------------------------------------------------

def environment(backend):
    env = dict(os.environ, LD_PRELOAD=" ".join(PRELOAD), PYTHONUNBUFFERED="1",
               MEMTRACE_DRYRUN_VRAM="2G", MEMTRACE_DRYRUN_DEVICES="2", MEMTRACE_DRYRUN_NAME="A device that is not there",
               MEMTRACE_DRYRUN_SM="8.6", MEMTRACE_DRYRUN_CONTEXT="100M", PYTORCH_CUDA_ALLOC_CONF=BACKENDS[backend])
    for name in ("CUDA_VISIBLE_DEVICES", "PYTORCH_ALLOC_CONF"):
        env.pop(name, None)
    return env


done_jobs = {}


def do_jobs(*which):
    """All jobs of each combination in one process; these concurrently."""
    begun = []
    for role, backend in which:
        try:
            command = [python(role), "-W", "ignore", os.path.join(WORKLOADS, "cuda_dryrun.py")]
        except Skip as e:
            done_jobs[role, backend] = e
            continue
        begun.append(((role, backend), spawn(command, env=environment(backend), stdin=subprocess.DEVNULL)))
    for key, p in begun:
        code = p.wait(120)
        lines = [json.loads(line) for line in p.stdout().splitlines() if line.startswith("{")]
        done_jobs[key] = code, {line["job"]: line for line in lines}, p.tail(p.stderr())


def result(role, backend, name):
    """The result of one job; the first request runs all, two processes at a time."""
    if (role, backend) not in done_jobs:
        do_jobs(*((role, each) for each in BACKENDS))
    if isinstance(done_jobs[role, backend], Skip):
        raise done_jobs[role, backend]
    code, lines, stderr = done_jobs[role, backend]
    check(name in lines, "the process ended with %s before this job: %s", code, stderr)
    check("error" not in lines[name], "%s", lines[name].get("error"))
    equal(code, 0, "exit of the process")
    return lines[name]["result"]


def check_properties(got, backend):
    equal(got, {"available": True, "count": 2, "name": "A device that is not there", "total": TOTAL, "capability": [8, 6],
                "backend": "cudaMallocAsync" if backend == "async" else "native"}, "what the device is")


def check_memory(got, backend):
    equal(got["total"], TOTAL, "the total")
    for (taken, reserved), size in zip(got["rows"], (0, 1, 30 * MIB, 300 * MIB), strict=True):
        equal(taken, CONTEXT + reserved, "bytes taken with a block of %d, against context and reserved" % size)
        check(size <= reserved < size + 80 * MIB, "%d reserved for a block of %d", reserved, size)
    equal(got["end"], [CONTEXT, 0], "taken and reserved at the end")


def check_train(got, backend):
    parameters = got["parameters"]
    check(parameters <= got["weights"] < parameters + 64 * 512, "%d bytes of parameters took %d", parameters, got["weights"])
    equal(got["states"], 2 * parameters, "state of the optimizer")
    first, second, third = got["peaks"]
    equal(third, second, "peaks of the second and the third step")
    check(first < second, "the first step's peak, %d, is not below the second's, %d", first, second)
    # Parameters, gradients and two states; in addition activations, and PyTorch's cuBLAS workspaces.
    check(4 * parameters < second < 4 * parameters + 32 * MIB, "a peak of %d with %d of parameters", second, parameters)


def check_round_trips(got, backend):
    equal(got, {"wrong": [], "big": 0, "list": [[1.5, -2]], "fresh": 0}, "what came back")


def check_out_of_memory(got, backend):
    equal(got.pop("type"), "OutOfMemoryError", "the exception")
    text = got.pop("text")
    check("out of memory" in text or backend == "async" and text.startswith("Allocation on device"), "its text: %r", text)
    # 30 * 64 MiB besides the context; the 31st does not fit. A pool may also have a chunk of 32 MiB, with cuBLAS workspaces in
    # it.
    held = got.pop("held")
    check(held == 30 or backend == "async" and held == 29, "%d blocks found room", held)
    equal(got, {"after": [1024 * MIB, 3], "left": 0}, "what went on after it")


def check_two_devices(got, backend):
    equal(got, {"gradients": ["cuda:0", "cuda:1"], "here": "cuda:1", "grew": [True, True], "kept": True, "peer": True, "current": 0},
          "two devices")


def check_pinned(got, backend):
    equal(got, {"own": [False, True, True, False], "loader": [True, True], "values": True, "empty": True}, "pinned memory")


def check_streams(got, backend):
    equal(got, {"query": [True, True], "time": True, "left": 0}, "streams")


def check_graphs(got, backend):
    check(backend == "async" or got.pop("pools") >= 2, "no pool of the graph's own")
    equal(got, {"inside": True, "outside": False, "same": True, "value": 1}, "a graph")


def check_failed_capture(got, backend):
    first, _, last = got.pop("errors")
    check("operation not permitted when stream is capturing" in first, "a wait in the capture: %r", first)
    check("operation failed due to a previous error during capture" in last, "the capture's end: %r", last)
    equal(got, {"capturing": False, "after": [1000, 5]}, "after the capture")


for _role in ROLES:
    for _backend in BACKENDS:
        for _job in ("properties", "memory", "train", "round_trips", "out_of_memory", "two_devices", "pinned", "streams", "graphs",
                     "failed_capture"):
            def test(role=_role, backend=_backend, job=_job):
                globals()["check_" + job](result(role, backend, job), backend)
            globals()["test_%s_%s_%s" % (_role, _backend, _job)] = test if _role == "main" else nightly("versions")(test)
del test


# ---- installed ------------------------------------------------------------------------------------------------------

def test_installed():
    """`make install` puts the libraries where the installed tool finds them."""
    if not shutil.which("make"):
        raise Skip("no make")
    root = scratch("root")
    subprocess.run(["make", "-C", REPO, "--no-print-directory", "OUTPUT=" + os.path.relpath(OUT, REPO), "DESTDIR=" + root, "PREFIX=/usr",
                    "install"], capture_output=True, text=True, timeout=300, check=True)
    folder = os.path.join(root, "usr", "lib", "memtrace-bpf", "dryrun")
    env = {n: v for n, v in environment("native").items() if n != "LD_PRELOAD" and not n.startswith("MEMTRACE_DRYRUN_")}
    done = subprocess.run([os.path.join(root, "usr", "bin", "memtrace-bpf"), "run", "--no-trace", "--dry-run-cuda", "--vram", "3G", "--",
                           python(), "-W", "ignore", "-c", r"""
import json, os, sys
sys.path.insert(0, sys.argv[1])
import torch, gpt
model = gpt.GPT(256, 64, 4, 2, 32).cuda()
model(torch.zeros(2, 16, dtype=torch.long, device="cuda")).sum().backward()
with open("/proc/self/maps") as f:
    mapped = {line.split()[-1] for line in f if "/libcuda.so" in line or "/libnvidia-ml.so" in line}
print(json.dumps([torch.cuda.get_device_properties(0).total_memory, torch.cuda.max_memory_allocated() > 0, sorted(mapped)]))
""", WORKLOADS], capture_output=True, text=True, timeout=120, env=env, cwd="/", check=False)
    equal(done.returncode, 0, "exit; it said %r" % done.stderr[-800:])
    expected = sorted(os.path.realpath(os.path.join(folder, n)) for n in ("libcuda.so.1", "libnvidia-ml.so.1"))
    equal(json.loads(done.stdout), [3072 * MIB, True, expected], "memory, whether any was used, and the libraries")


if __name__ == "__main__":
    run(globals())

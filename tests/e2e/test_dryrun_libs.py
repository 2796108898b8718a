#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# run: nightly=versions long
"""The dry run's CUDA libraries: no function is missing, and jobs that use them run and take plausible memory."""
import glob
import json
import os
import re
import shutil
import subprocess
import sys

from harness import OUT, REPO, WORKLOADS, Skip, check, equal, python, run, scratch, spawn_job

FOLDER = os.path.join(OUT, "dryrun")
PRELOAD = [os.path.join(FOLDER, n) for n in ("libcuda.so.1", "libnvidia-ml.so.1")]
ROLES = ("main", "newest", "cu12")
MIB = 1 << 20

# Functions that reach the real library on purpose: they work without a device and without the dry run's handles.
LEFT = (
    (r"__cuda(InitModule|RegisterFatBinary(End)?|UnregisterFatBinary|Register(Function|Var|ManagedVar|HostVar))$", "tables of kernels"),
    (r"cuda(GetErrorName|GetErrorString|RuntimeGetVersion)$", "texts and a number"),
    (r"(cublasLt|cudnn|nccl|cufft|cusolver|cusparse|curand)Get(Version|CudartVersion|Property|ErrorString|ErrorName)$", "texts and numbers"),
    (r"nvrtc", "the compiler needs no device"),
    (r"nvtx", "marks for a profiler"),
    (r"nvshmemx?_|nvshmemid_", "only called for symmetric memory over NVSHMEM, which is not modelled"),
)
OURS = re.compile(r"(__)?(cuda|cublas|cudnn|cufft|cusparse|cusolver|curand|nccl|nvrtc|nvJitLink|cupti|cuFile|nvshmem|nvtx|nvml)")
DRIVER = re.compile(r"cu[A-Z]")


def dynamic(path, *options):
    """Names in a file's dynamic symbol table, without versions."""
    done = subprocess.run(["nm", "-D", *options, path], capture_output=True, text=True, check=False)
    check(done.returncode == 0, "nm of %s: %s", path, done.stderr[-300:])
    return {line.split()[-1].split("@")[0] for line in done.stdout.splitlines() if line.strip()}


def environment(**more):
    """Environment of the dry run; compiled code goes into the test's folder."""
    env = dict(os.environ, LD_PRELOAD=" ".join(PRELOAD), PYTHONUNBUFFERED="1",
               TRITON_LIBCUDA_PATH=FOLDER, MEMTRACE_DRYRUN_LOG=scratch("log"), MASTER_PORT=str(20000 + os.getpid() % 20000))
    for name in ("TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "PYTORCH_KERNEL_CACHE_PATH"):
        env[name] = scratch(name)
        os.makedirs(env[name], exist_ok=True)
    if os.path.exists(env["MEMTRACE_DRYRUN_LOG"]):
        os.unlink(env["MEMTRACE_DRYRUN_LOG"])
    env.update(more)
    return env


def job(role, name, *args, seconds=240, **env):
    """The workload's output, one JSON document per line; and the dry run's log."""
    env = environment(**env)
    p = spawn_job([python(role), "-W", "ignore", os.path.join(WORKLOADS, name), *args], env=env, stdin=subprocess.DEVNULL)
    code = p.wait(seconds)
    check(code == 0, "%s %s ended with %s: %s", name, " ".join(args), code, p.tail(p.stderr()))
    log = ""
    if os.path.exists(env["MEMTRACE_DRYRUN_LOG"]):
        with open(env["MEMTRACE_DRYRUN_LOG"], encoding="utf-8") as f:
            log = f.read()
    return [json.loads(line) for line in p.stdout().splitlines() if line.startswith("{")], log


# ---- names ------------------------------------------------------------------------------------------------------

def every_import_is_answered(role):
    site = glob.glob(os.path.join(os.path.dirname(os.path.dirname(python(role))), "lib", "python3*", "site-packages"))[0]
    answered = dynamic(PRELOAD[0], "--defined-only")
    wanted = set()
    for path in glob.glob(os.path.join(site, "torch", "**", "*.so*"), recursive=True):
        wanted |= {n for n in dynamic(path, "--undefined-only") if OURS.match(n) or DRIVER.match(n)}
    # Other libraries have names with cu..., too: a name is CUDA's if NVIDIA's files have it or torch's files lack it.
    of_others = set()
    for path in glob.glob(os.path.join(site, "torch", "lib", "libtorch*.so")):
        of_others |= dynamic(path, "--defined-only")
    wanted -= of_others
    check(len(wanted) > 500, "only %d names of CUDA's in torch's libraries: are these the right files?", len(wanted))
    missing = sorted(n for n in wanted - answered if not any(re.match(pattern, n) for pattern, _ in LEFT))
    equal(missing, [], "functions of CUDA's that torch's libraries import, and that the dry run does not have")


def test_imports_main():
    every_import_is_answered("main")


def test_imports_newest():
    every_import_is_answered("newest")


def test_imports_cu12():
    every_import_is_answered("cu12")


# ---- jobs -------------------------------------------------------------------------------------------------------

def all_jobs(role):
    lines, log = job(role, "cuda_libraries.py")
    done = {line["job"]: line for line in lines}
    check(len(done) > 25, "only %d jobs: %s", len(done), sorted(done))
    errors = {n: line["error"] for n, line in done.items() if "error" in line}
    equal(errors, {}, "jobs that ended with an error")
    for name, line in done.items():
        check(line["peak"] < 256 * MIB, "%s took %.1f MiB at its peak", name, line["peak"] / MIB)
    result = {n: line["result"] for n, line in done.items()}

    equal(result["conv_transposed"], [2, 8, 17, 17], "shape of the transposed convolution")
    equal(result["lstm"], [4, 10, 64], "shape of the LSTM's output")
    # 2 layers in 2 directions: 4 gates of 32, inputs of 16 and then 64, states of 32, two biases each.
    weights = 4 * 2 * (4 * 32 * (16 + 32 + 2) + 4 * 32 * (64 + 32 + 2))
    equal(result["lstm_weights"], {"same": True, "gaps": 0, "bytes": weights}, "weights of the LSTM")
    equal(result["fft"]["shapes"][0], [64, 513], "shape of the real transform")
    check(result["fft"]["grew"] < 64 * MIB, "the transforms took %d bytes", result["fft"]["grew"])
    check(result["linalg"]["grew"] < 256 * MIB, "the decompositions took %d bytes", result["linalg"]["grew"])
    for name, shapes in result["linalg"]["results"].items():
        check(isinstance(shapes, list), "linalg %s: %s", name, shapes)
    equal(result["linalg"]["results"]["svd"], [[16, 16], [8], [8, 8]], "shapes of the decomposition")
    equal(result["sparse"]["csr"], [[3, 4]], "shape of the sparse product")
    # The product's number of elements depends on values: refused.
    check("not supported" in str(result["sparse"]["both"]), "sparse times sparse: %s", result["sparse"]["both"])
    equal(result["ddp"], {"shape": [4, 32], "values": [3.0, 4.0, 3.0, 4.0]}, "data parallel, alone")
    equal(result["oom"], True, "out of memory")
    for what in ("cuFFT plan: workspace", "cuSOLVER: workspace", "cuDNN recurrent network: reserve", "NCCL communicator: buffers"):
        check("unmodelled %s\n" % what in log, "the log does not say: %s; it says %s", what, log)
    equal(len(log.splitlines()), len(set(log.splitlines())), "lines of the log, each once")


def test_jobs_main():
    all_jobs("main")


def test_jobs_newest():
    all_jobs("newest")


def test_jobs_cu12():
    all_jobs("cu12")


def workspace_enters(role):
    """The peak has the configured cuDNN workspace; without cuDNN none."""
    def peak(size, *options):
        (line,), log = job(role, "resnet18.py", "--batch", "4", "--size", "64", "--width", "16", *options,
                           MEMTRACE_DRYRUN_CUDNN_WORKSPACE=str(size))
        said = re.findall(r"^assumed cudnn_workspace (\d+)$", log, re.M)
        equal(said, [] if "--no-cudnn" in options else [str(size)], "what the log says of the workspace")
        return line["peak"]

    without = peak(64 * MIB, "--no-cudnn")
    for options in ((), ("--benchmark", "--channels-last", "--amp", "bf16")):
        least = peak(0, *options)
        grew = peak(64 * MIB, *options) - least
        check(32 * MIB < grew <= 64 * MIB, "a workspace of 64 MiB made the peak %.1f MiB larger", grew / MIB)
        check(without < least + 32 * MIB, "without cuDNN the peak is %.1f MiB, with no workspace %.1f", without / MIB, least / MIB)


def test_workspace_main():
    workspace_enters("main")


def test_workspace_newest():
    workspace_enters("newest")


def test_workspace_cu12():
    workspace_enters("cu12")


def compiled(role):
    if not shutil.which("cc") and not shutil.which("gcc"):
        raise Skip("no C compiler, which torch.compile needs")
    # In one process: compiler workers are not tested here.
    (line,), _ = job(role, "cuda_libraries.py", "compiled", TORCHINDUCTOR_COMPILE_THREADS="1")
    check("error" not in line, "torch.compile: %s", line.get("error"))
    equal(line["result"], [8, 32], "shape that the compiled module returned")


def test_compiled_main():
    compiled("main")


def test_compiled_cu12():
    compiled("cu12")


# ---- NCCL without peers -------------------------------------------------------------------------------------------

RANKS = r"""
import ctypes, json, struct, sys
cuda = ctypes.CDLL(sys.argv[1])
class Id(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_char * 128)]
V = ctypes.c_void_p
comm, small, large, unique = V(), V(), V(), Id()
assert cuda.ncclGetUniqueId(ctypes.byref(unique)) == 0
assert cuda.ncclCommInitRank(ctypes.byref(comm), 4, unique, 1) == 0
n, rank = ctypes.c_int(), ctypes.c_int()
assert cuda.ncclCommCount(comm, ctypes.byref(n)) == 0 and cuda.ncclCommUserRank(comm, ctypes.byref(rank)) == 0
out = {"ranks": n.value, "rank": rank.value}
assert cuda.cudaMalloc(ctypes.byref(small), ctypes.c_size_t(64)) == 0
assert cuda.cudaMalloc(ctypes.byref(large), ctypes.c_size_t(1024)) == 0
def put(at, data):
    assert cuda.cudaMemcpy(at, data, ctypes.c_size_t(len(data)), 1) == 0
def get(at, size):
    data = ctypes.create_string_buffer(size)
    assert cuda.cudaMemcpy(data, at, ctypes.c_size_t(size), 2) == 0
    return data.raw
def reduce(code, kind, op, *values):
    data = struct.pack("<%d%s" % (len(values), code), *values)
    put(small, data)
    assert cuda.ncclAllReduce(small, small, ctypes.c_size_t(len(values)), kind, op, comm, V()) == 0
    return list(struct.unpack("<%d%s" % (len(values), code), get(small, len(data))))
out["sum"] = reduce("f", 7, 0, 1.5, -2, 0)
out["product"] = reduce("i", 2, 1, 2, -3)
out["largest"] = reduce("q", 4, 2, 5, -6)
out["mean"] = reduce("d", 8, 4, 0.25)
out["half"] = reduce("e", 6, 0, 1.5, -0.125, 6e-8, 65504)
out["bfloat16"] = reduce("H", 9, 0, 0x3fc0, 0xc000)
put(small, struct.pack("<2i", 7, 8))
assert cuda.ncclAllGather(small, large, ctypes.c_size_t(2), 2, comm, V()) == 0
out["gathered"] = list(struct.unpack("<8i", get(large, 32)))
put(large, struct.pack("<4i", 1, 2, 3, 4))
assert cuda.ncclReduceScatter(large, small, ctypes.c_size_t(1), 2, 0, comm, V()) == 0
out["scattered"] = struct.unpack("<i", get(small, 4))[0]
put(small, struct.pack("<i", 9))
assert cuda.ncclBroadcast(small, small, ctypes.c_size_t(1), 2, 0, comm, V()) == 0
out["kept"] = struct.unpack("<i", get(small, 4))[0]
def gather_number(number):
    put(small, struct.pack("<q", number))
    assert cuda.ncclAllGather(small, large, ctypes.c_size_t(1), 4, comm, V()) == 0
def read_numbers(n):
    return [struct.unpack("<q", get(unknown, 8))[0] for _ in range(n)]
unknown = V()
assert cuda.cudaMalloc(ctypes.byref(unknown), ctypes.c_size_t(64)) == 0
gather_number(5)
out["short"] = struct.unpack("<i", get(unknown, 4))[0]
out["numbers"] = read_numbers(2)
gather_number(6)
reduce("i", 2, 0, 1)
out["dropped"] = read_numbers(1)
out["bad_type"] = cuda.ncclAllReduce(small, small, ctypes.c_size_t(1), 99, 0, comm, V())
out["bad_comm"] = cuda.ncclAllReduce(small, small, ctypes.c_size_t(1), 7, 0, ctypes.create_string_buffer(64), V())
assert cuda.ncclCommDestroy(comm) == 0
print(json.dumps(out))
"""


def test_ranks_that_are_not_there():
    done = subprocess.run([sys.executable, "-c", RANKS, PRELOAD[0]], capture_output=True, text=True, timeout=60, check=False)
    equal(done.returncode, 0, "exit of the job; it said %r" % done.stderr[-800:])
    got = json.loads(done.stdout)
    half = got.pop("half")
    equal(half[:2] + [half[3]], [6.0, -0.5, float("inf")], "sums of halves")
    check(abs(half[2] - 4 * 2 ** -24) < 2 ** -26, "a sum of the smallest half: %r", half[2])
    equal(got, {"ranks": 4, "rank": 1, "sum": [6.0, -8.0, 0.0], "product": [16, 81], "largest": [5, -6], "mean": [0.25],
                "bfloat16": [0x40c0, 0xc100], "gathered": [7, 8] * 4, "scattered": 8, "kept": 9,
                "short": 0, "numbers": [5, 0], "dropped": [0], "bad_type": 4, "bad_comm": 4},
          "what the collectives left behind")


def test_table_is_what_the_library_has():
    """Each line of the table has become a function, or a handwritten one replaces it."""
    with open(os.path.join(REPO, "tools", "dryrun", "gen", "calls.def"), encoding="utf-8") as f:
        named = set(re.findall(r"^CALL\(\w+, (\w+),", f.read(), re.M))
    check(len(named) > 2500, "only %d lines in the table", len(named))
    equal(sorted(named - dynamic(PRELOAD[0], "--defined-only")), [], "functions of the table that are not in the library")


if __name__ == "__main__":
    run(globals())

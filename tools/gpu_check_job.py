#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Jobs that tools/gpu_check.py runs on a GPU, one per process: gpu_check_job.py JOB [ARGUMENT...]. They need only torch. The last
line of output is JSON. Jobs that wait for a line on their input print "ready" before that."""
import ctypes
import glob
import json
import os
import statistics
import sys
import time

MIB = 1 << 20
# Driver functions that allocate or free memory: names, and suffixes of their forms.
NAMES = ("cuMemAlloc cuMemFree cuMemAllocPitch cuMemAllocManaged cuMemAllocHost cuMemHostAlloc cuMemFreeHost cuMemHostRegister "
         "cuMemHostUnregister cuMemAllocAsync cuMemFreeAsync cuMemAllocFromPoolAsync cuMemAddressReserve cuMemAddressFree cuMemCreate "
         "cuMemRelease cuMemMap cuMemUnmap cuMemRetainAllocationHandle cuMemImportFromShareableHandle cuIpcOpenMemHandle cuCtxDestroy "
         "cuDevicePrimaryCtxReset").split()
FORMS = ("", "_v2", "_v3", "_v4", "_ptsz", "_v2_ptsz")


def say(**result):
    print(json.dumps(result), flush=True)


def wait():
    print("ready", flush=True)
    sys.stdin.readline()


# ---- the driver and NVML, without PyTorch if possible ----------------------------------------------------------------

def entries():
    """Functions whose pointer from cuGetProcAddress is not the exported function: probes would miss them."""
    cuda = ctypes.CDLL("libcuda.so.1")
    cuda.cuInit(0)
    loader = ctypes.CDLL(None)
    loader.dlsym.restype, loader.dlsym.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_char_p]
    version = ctypes.c_int()
    cuda.cuDriverGetVersion(ctypes.byref(version))
    get = getattr(cuda, "cuGetProcAddress_v2", None) or cuda.cuGetProcAddress
    missed, asked, first = [], 0, {}
    for name in NAMES:
        exported = {name + form: loader.dlsym(cuda._handle, (name + form).encode()) for form in FORMS}
        exported = {n: at for n, at in exported.items() if at}
        for n, at in exported.items():
            first[n] = bytes((ctypes.c_uint8 * 12).from_address(at)).hex(" ")
        for flag, stream in ((1, "legacy"), (2, "per thread")):
            p, status = ctypes.c_void_p(), ctypes.c_int()
            if get(name.encode(), ctypes.byref(p), version.value, ctypes.c_uint64(flag), ctypes.byref(status)) or not p.value:
                continue
            asked += 1
            if p.value not in exported.values():
                missed.append("%s (%s)" % (name, stream))
    return {"driver": version.value, "asked": asked, "missed": missed, "first_bytes": first}


class Process(ctypes.Structure):
    _fields_ = [("pid", ctypes.c_uint), ("used", ctypes.c_ulonglong), ("gi", ctypes.c_uint), ("ci", ctypes.c_uint)]


class Memory(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint)] + [(n, ctypes.c_ulonglong) for n in ("total", "reserved", "free", "used")]


def nvml_devices(times=200):
    nvml = ctypes.CDLL("libnvidia-ml.so.1")
    n, result = ctypes.c_uint(), []
    if nvml.nvmlInit_v2() or nvml.nvmlDeviceGetCount_v2(ctypes.byref(n)):
        return result
    for i in range(n.value):
        device, took, room = ctypes.c_void_p(), [], (Process * 1024)()
        nvml.nvmlDeviceGetHandleByIndex_v2(i, ctypes.byref(device))
        for _ in range(times):
            count = ctypes.c_uint(1024)
            begin = time.perf_counter_ns()
            error = nvml.nvmlDeviceGetComputeRunningProcesses_v3(device, ctypes.byref(count), room)
            took.append((time.perf_counter_ns() - begin) / 1e3)
        memory, mig, pending, minor = Memory(version=ctypes.sizeof(Memory) | 2 << 24), ctypes.c_uint(), ctypes.c_uint(), ctypes.c_uint()
        v2 = nvml.nvmlDeviceGetMemoryInfo_v2(device, ctypes.byref(memory))
        nvml.nvmlDeviceGetMigMode(device, ctypes.byref(mig), ctypes.byref(pending))
        nvml.nvmlDeviceGetMinorNumber(device, ctypes.byref(minor))
        uuid = ctypes.create_string_buffer(96)
        if not hasattr(nvml, "nvmlDeviceGetUUID") or nvml.nvmlDeviceGetUUID(device, uuid, ctypes.c_uint(96)):
            uuid.value = b""
        result.append({"error": error, "p50_us": statistics.median(took), "p99_us": sorted(took)[len(took) * 99 // 100], "v2": v2 == 0,
                       "total": memory.total, "reserved": memory.reserved, "free": memory.free, "mig": mig.value, "minor": minor.value,
                       "uuid": uuid.value.decode("ascii", "replace"),
                       "processes": {p.pid: p.used for p in room[:count.value]} if not error else {}})
    return result


def probe():
    import torch
    torch.zeros(1, device="cuda")
    p = torch.cuda.get_device_properties(0)
    with open("/proc/self/status", encoding="utf-8") as f:
        status = dict(line.rstrip("\n").split(":\t", 1) for line in f if ":\t" in line)
    nodes = {}
    for path in glob.glob("/dev/nvidia[0-9]*"):
        st = os.stat(path)
        nodes[path] = [os.major(st.st_rdev), os.minor(st.st_rdev)]
    say(name=p.name, torch=torch.__version__, python=sys.version.split()[0], kernel=os.uname().release, pid=os.getpid(),
        total=torch.cuda.mem_get_info()[1], count=torch.cuda.device_count(), entries=entries(), nvml=nvml_devices(), nodes=nodes,
        shadow_stacks="shstk" in status.get("x86_Thread_features", ""), seccomp=status.get("Seccomp", ""), pids=status.get("NSpid", ""),
        environment={k: v for k, v in os.environ.items() if "VISIBLE" in k or k.startswith("CUDA_")})


def nvml_loop(seconds):
    """Reads NVML's list of processes at 20 Hz, as a tracer may do."""
    end = time.monotonic() + float(seconds)
    print("ready", flush=True)
    while time.monotonic() < end:
        nvml_devices(1)
        time.sleep(0.05)
    say(done=True)


def malloc(seconds, label="malloc"):
    """Duration of cudaMalloc of 2 MiB in microseconds, with PyTorch's runtime library."""
    timed(seconds, label, "cudaMalloc", "cudaFree")


def pinned(seconds):
    """The same for 2 MiB of pinned host memory."""
    timed(seconds, "pinned", "cudaHostAlloc", "cudaFreeHost")


def timed(seconds, label, take, give):
    import torch
    torch.zeros(1, device="cuda")
    with open("/proc/self/maps", encoding="utf-8") as f:
        loaded = sorted({line.split()[-1] for line in f if "libcudart" in line})
    runtime = ctypes.CDLL(loaded[0] if loaded else None)
    took, end, p = [], time.monotonic() + float(seconds), ctypes.c_void_p()
    while time.monotonic() < end or len(took) < 50:
        begin = time.perf_counter_ns()
        error = getattr(runtime, take)(ctypes.byref(p), ctypes.c_size_t(2 * MIB), ctypes.c_uint(0))  # cudaMalloc ignores the flags
        took.append((time.perf_counter_ns() - begin) / 1e3)
        if error or getattr(runtime, give)(p):
            sys.exit("%s failed: %d" % (take, error))
    say(what=label, n=len(took), p50_us=statistics.median(took), p99_us=sorted(took)[len(took) * 99 // 100])


# ---- training ---------------------------------------------------------------------------------------------------------

def model_of(torch, width=256, layers=4):
    layer = torch.nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0, batch_first=True)
    return torch.nn.Sequential(torch.nn.Linear(64, width), torch.nn.TransformerEncoder(layer, layers), torch.nn.Linear(width, 64)).cuda()


def statistics_of(torch):
    s = torch.cuda.memory_stats()
    return {"peak_allocated": s["allocated_bytes.all.peak"], "peak_reserved": s["reserved_bytes.all.peak"],
            "total_allocated": s["allocated_bytes.all.allocated"], "allocs": s["allocation.all.allocated"], "ooms": s["num_ooms"]}


def train_steps(torch, model, steps, batches=None):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses, begin = [], time.monotonic()
    for i in range(steps):
        x = batches[i].cuda(non_blocking=True) if batches else torch.randn(8, 64, 64, device="cuda")
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item())
        if i == 4:
            begin = time.monotonic()
    return losses, (steps - 5) / (time.monotonic() - begin) if steps > 5 else None


def train(steps, graphs=""):
    import torch
    torch.manual_seed(1)
    model = model_of(torch)
    losses, rate = train_steps(torch, model, int(steps))
    if graphs:
        x = torch.randn(8, 64, 64, device="cuda")
        graph = torch.cuda.CUDAGraph()
        with torch.no_grad(), torch.cuda.graph(graph):
            y = model(x)
        graph.replay()
        losses.append(y.sum().item())
    torch.cuda.synchronize()
    say(losses=losses, rate=rate, stats=statistics_of(torch))


def oom(times):
    import torch
    caught = 0
    for _ in range(int(times)):
        try:
            torch.empty(1 << 45, dtype=torch.uint8, device="cuda")
        except torch.OutOfMemoryError:
            caught += 1
    say(caught=caught, losses=[float(torch.ones(4, device="cuda").sum().item())])


def profiler():
    import torch
    torch.manual_seed(1)
    model = model_of(torch)
    with torch.profiler.profile(activities=list(torch.profiler.supported_activities()), profile_memory=True):
        losses, _ = train_steps(torch, model, 5)
    say(losses=losses)


def history():
    import torch
    torch.manual_seed(1)
    torch.cuda.memory._record_memory_history(stacks="all")
    losses, _ = train_steps(torch, model_of(torch), 5)
    torch.cuda.memory._snapshot()
    say(losses=losses)


def loader():
    import torch
    torch.manual_seed(1)
    data = torch.utils.data.TensorDataset(torch.randn(40, 64, 64))
    batches = [b[0] for b in torch.utils.data.DataLoader(data, batch_size=8, num_workers=4, pin_memory=True, multiprocessing_context="fork")]
    losses, _ = train_steps(torch, model_of(torch), len(batches), batches)
    say(losses=losses)


def nccl():
    import tempfile

    import torch
    with tempfile.TemporaryDirectory() as folder:
        torch.distributed.init_process_group("nccl", init_method="file://%s/store" % folder, rank=0, world_size=1)
        x = torch.ones(1 << 20, device="cuda")
        torch.distributed.all_reduce(x)
        torch.cuda.synchronize()
        say(sum=float(x[0].item()))
        torch.distributed.destroy_process_group()


# ---- two processes ------------------------------------------------------------------------------------------------------

def idle():
    """Allocates from time to time until its input ends: a target to attach to."""
    import select

    import torch
    torch.manual_seed(1)
    model, n = model_of(torch), 0
    torch.linalg.svd(torch.randn(16, 16, device="cuda"))
    print("ready", flush=True)
    while not select.select([sys.stdin], [], [], 0.01)[0]:
        train_steps(torch, model, 1)
        n += 1
    say(steps=n)


def libraries():
    """Prints ready with CUDA's libraries loaded, and solved after an operation has loaded more of them."""
    import torch
    torch.zeros(1, device="cuda")
    wait()
    torch.linalg.svd(torch.randn(16, 16, device="cuda"))
    print("solved", flush=True)
    sys.stdin.readline()
    say(done=True)


def hold(part):
    """Takes a share of the free memory and keeps it until told to end."""
    import torch
    torch.zeros(1, device="cuda")
    size = int(torch.cuda.mem_get_info()[0] * float(part))
    kept = torch.empty(size, dtype=torch.uint8, device="cuda")
    wait()
    say(held=kept.numel())


def ask():
    """Waits, requests more memory than available, and prints how much CUDA had left."""
    import torch
    torch.zeros(64 * MIB, dtype=torch.uint8, device="cuda")
    wait()
    try:
        torch.empty(torch.cuda.mem_get_info()[0] + 512 * MIB, dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError:
        free, total = torch.cuda.mem_get_info()
        say(free=free, total=total)
        time.sleep(2)


def late():
    """Milliseconds from the driver library's mapping to the first allocation."""
    import torch
    begin = time.monotonic()
    ctypes.CDLL("libcuda.so.1")
    torch.zeros(1, device="cuda")
    say(ms=1e3 * (time.monotonic() - begin))


JOBS = {f.__name__: f for f in (probe, nvml_loop, malloc, pinned, libraries, train, oom, profiler, history, loader, nccl, idle, hold, ask, late)}

if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in JOBS:
        sys.exit("expected one of: %s" % " ".join(JOBS))
    JOBS[sys.argv[1]](*sys.argv[2:])

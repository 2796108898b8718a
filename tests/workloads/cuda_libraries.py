# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Small jobs on CUDA, each with another CUDA library: cuda_libraries.py [JOB ...]. Each job prints one JSON line: its name, its
result or error, and the peak of PyTorch's allocator in bytes."""
import json
import os
import sys
import time
import warnings

import torch
import torch.nn.functional as F
from torch import nn

warnings.simplefilter("ignore")
DEVICE = "cuda"


def train(module, *inputs, steps=2):
    """Forward, backward and a step; the result's shape."""
    module = module.to(DEVICE)
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-3)
    for _ in range(steps):
        out = module(*inputs)
        out = out[0] if isinstance(out, tuple) else out
        out.float().sum().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return list(out.shape)


def noise(*shape, **kwargs):
    return torch.randn(*shape, device=DEVICE, **kwargs)


# ---- convolutions --------------------------------------------------------------------------------------------

def conv1d():
    return train(nn.Conv1d(4, 8, 3, padding=1), noise(2, 4, 100))


def conv2d_stack():
    return train(nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8)),
                 noise(4, 3, 32, 32))


def conv2d_benchmark():
    torch.backends.cudnn.benchmark = True
    try:
        return train(nn.Conv2d(3, 8, 3), noise(4, 3, 32, 32))
    finally:
        torch.backends.cudnn.benchmark = False


def conv2d_without_cudnn():
    with torch.backends.cudnn.flags(enabled=False):
        return train(nn.Conv2d(3, 8, 3), noise(4, 3, 32, 32))


def conv3d():
    return train(nn.Conv3d(2, 4, 3), noise(2, 2, 8, 8, 8))


def conv_transposed():
    return train(nn.ConvTranspose2d(4, 8, 3, stride=2), noise(2, 4, 8, 8))


def conv_grouped():
    return train(nn.Conv2d(8, 8, 3, groups=8), noise(2, 8, 16, 16))


def conv_channels_last():
    return train(nn.Sequential(nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8)).to(memory_format=torch.channels_last),
                 noise(2, 8, 16, 16).to(memory_format=torch.channels_last))


def grid_sample():
    theta = torch.eye(2, 3, device=DEVICE).repeat(2, 1, 1).requires_grad_()
    out = F.grid_sample(noise(2, 3, 8, 8, requires_grad=True), F.affine_grid(theta, (2, 3, 8, 8), align_corners=True), align_corners=True)
    out.sum().backward()
    return list(out.shape)


# ---- recurrent networks ----------------------------------------------------------------------------------------

def lstm():
    return train(nn.LSTM(16, 32, 2, batch_first=True, bidirectional=True), noise(4, 10, 16))


def lstm_projected():
    return train(nn.LSTM(16, 32, 2, proj_size=8), noise(10, 4, 16))


def lstm_dropout():
    return train(nn.LSTM(16, 32, 2, dropout=0.5), noise(10, 4, 16))


def gru():
    return train(nn.GRU(16, 32, 2), noise(10, 4, 16))


def rnn_tanh():
    return train(nn.RNN(16, 32, bias=False), noise(10, 4, 16))


def lstm_weights():
    """The weights stay in one piece, each with its own values."""
    module = nn.LSTM(16, 32, 2, bidirectional=True)
    before = [p.detach().clone() for p in module.parameters()]
    module.to(DEVICE).flatten_parameters()
    after = [p.detach().cpu() for p in module.parameters()]
    same = all(torch.equal(a, b) for a, b in zip(before, after) if a.numel() * 4 <= 65536)
    data = sorted((p.data_ptr(), p.numel() * 4) for p in module.parameters())
    return {"same": same, "gaps": sum(a + n != b for (a, n), (b, _) in zip(data, data[1:])),
            "bytes": sum(n for _, n in data)}


def ctc():
    logits = noise(20, 4, 10, requires_grad=True)
    targets = torch.ones(4 * 5, dtype=torch.int32)
    lengths = torch.full((4,), 20, dtype=torch.int32)
    sizes = torch.full((4,), 5, dtype=torch.int32)
    F.ctc_loss(logits.log_softmax(2), targets, lengths, sizes, reduction="sum").backward()
    return list(logits.grad.shape)


# ---- mixed precision, attention ----------------------------------------------------------------------------------

def amp(kind):
    scaler = torch.cuda.amp.GradScaler(enabled=kind is torch.float16)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Flatten(), nn.Linear(8 * 30 * 30, 10)).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        with torch.autocast("cuda", dtype=kind):
            loss = model(noise(4, 3, 32, 32)).sum()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    return str(loss.dtype)


def amp_bf16():
    return amp(torch.bfloat16)


def amp_fp16():
    return amp(torch.float16)


def attention(flash=False, math=False, mem_efficient=False):
    q, k, v = (noise(2, 4, 64, 32, dtype=torch.bfloat16, requires_grad=True) for _ in range(3))
    with torch.backends.cuda.sdp_kernel(enable_flash=flash, enable_math=math, enable_mem_efficient=mem_efficient):
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    out.float().sum().backward()
    return list(q.grad.shape)


def sdpa_flash():
    return attention(flash=True)


def sdpa_efficient():
    return attention(mem_efficient=True)


def sdpa_math():
    return attention(math=True)


def transformer():
    return train(nn.TransformerEncoderLayer(32, 4, 64, batch_first=True), noise(2, 16, 32))


# ---- products -------------------------------------------------------------------------------------------------

def products():
    a, b = noise(8, 16, 32, requires_grad=True), noise(8, 32, 4, requires_grad=True)
    torch.einsum("bij,bjk->bik", a, b).sum().backward()
    torch.addmm(noise(16), noise(8, 32), noise(32, 16))
    F.linear(noise(8, 32, dtype=torch.float16), noise(16, 32, dtype=torch.float16), noise(16, dtype=torch.float16))
    torch.dot(noise(8), noise(8))
    torch.mv(noise(8, 8).double(), noise(8).double())
    torch.bmm(noise(2, 3, 4, dtype=torch.complex64), noise(2, 4, 3, dtype=torch.complex64))
    return list(a.grad.shape)


def embedding():
    class Words(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.out = nn.Embedding(100, 16), nn.Linear(16, 100)

        def forward(self, x):
            return self.out(self.table(x))
    return train(Words(), torch.zeros(4, 8, dtype=torch.long, device=DEVICE))


# ---- Fourier transforms, decompositions, sparse matrices ------------------------------------------------------------

def fft():
    before = torch.cuda.memory_reserved()
    shapes = [list(torch.fft.rfft(noise(64, 1024)).shape), list(torch.fft.fft2(noise(8, 100, 100)).shape),
              list(torch.fft.irfft(noise(4, 513, dtype=torch.complex64)).shape), list(torch.fft.fft(noise(3, 6007)).shape)]
    return {"shapes": shapes, "grew": torch.cuda.memory_reserved() - before}


def several(functions):
    """The result of each: a shape, or a clean error."""
    result = {}
    for name, function in functions.items():
        try:
            out = function()
            result[name] = [list(o.shape) for o in (out if isinstance(out, (tuple, list)) else [out])]
        except (RuntimeError, NotImplementedError) as e:
            result[name] = "%s: %s" % (type(e).__name__, str(e).split("\n")[0])
    return result


def linalg():
    def spd(n=8):
        return noise(n, n)

    before = torch.cuda.memory_reserved()
    result = several({
        "solve": lambda: torch.linalg.solve(spd(), noise(8, 2)),
        "inv": lambda: torch.linalg.inv(spd()),
        "cholesky": lambda: torch.linalg.cholesky(spd()),
        "qr": lambda: torch.linalg.qr(noise(16, 8)),
        "svd": lambda: torch.linalg.svd(noise(16, 8)),
        "svd_batched": lambda: torch.linalg.svd(noise(3, 16, 8)),
        "gesvd": lambda: torch.linalg.svd(noise(16, 8), driver="gesvd"),
        "eigh": lambda: torch.linalg.eigh(spd()),
        "eigh_large": lambda: torch.linalg.eigh(noise(600, 600)),
        "lstsq": lambda: torch.linalg.lstsq(noise(16, 8), noise(16, 2))[0],
        "lu": lambda: torch.linalg.lu_factor(noise(4, 8, 8)),
        "det": lambda: torch.linalg.det(spd()),
        "ldl": lambda: torch.linalg.ldl_factor(spd()),
        "complex": lambda: torch.linalg.qr(noise(16, 8, dtype=torch.complex128)),
    })
    return {"results": result, "grew": torch.cuda.memory_reserved() - before}


def sparse():
    rows = torch.tensor([[0, 1, 2], [2, 0, 1]])

    def csr():
        return torch.sparse_csr_tensor(torch.tensor([0, 1, 2, 3]), torch.tensor([2, 0, 1]), torch.ones(3), (3, 3)).to(DEVICE)

    return several({
        "coo": lambda: torch.sparse.mm(torch.sparse_coo_tensor(rows, torch.ones(3), (3, 3)).to(DEVICE), noise(3, 4)),
        "csr": lambda: csr() @ noise(3, 4),
        "mv": lambda: csr() @ noise(3),
        "both": lambda: csr() @ csr(),
    })


def semi_structured():
    from torch.sparse import to_sparse_semi_structured
    a = torch.tensor([0, 0, 1, 1]).tile((128, 32)).half().to(DEVICE)
    return several({"linear": lambda: F.linear(noise(64, 128, dtype=torch.float16), to_sparse_semi_structured(a))})


# ---- other libraries -----------------------------------------------------------------------------------------

def jiterator():
    """nvrtc compiles without a device."""
    f = torch.cuda.jiterator._create_jit_fn("template <typename T> T twice(T x) { return x + x; }")
    return list(f(noise(8)).shape)


def profiler():
    from torch.profiler import ProfilerActivity, profile
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], profile_memory=True) as p:
        noise(64, 64) @ noise(64, 64)
    return any(e.key == "aten::mm" for e in p.key_averages())


def compiled():
    model = torch.compile(nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32)).to(DEVICE))
    out = model(noise(8, 32))
    out.sum().backward()
    return list(out.shape)


def ddp():
    import torch.distributed as dist
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=os.environ.get("MASTER_PORT", "29531"), RANK="0", WORLD_SIZE="1")
    dist.init_process_group("nccl")
    try:
        value = torch.tensor([3.0, 4.0], device=DEVICE)
        dist.all_reduce(value)
        parts = [torch.zeros(2, device=DEVICE)]
        dist.all_gather(parts, value)
        dist.barrier()
        model = nn.parallel.DistributedDataParallel(nn.Linear(32, 32).to(DEVICE), device_ids=[0])
        return {"shape": train(model, noise(4, 32)), "values": value.tolist() + parts[0].tolist()}
    finally:
        dist.destroy_process_group()


def oom():
    try:
        torch.empty(1 << 50, dtype=torch.uint8, device=DEVICE)
    except torch.cuda.OutOfMemoryError:
        return True
    return False


JOBS = [f for f in (
    products, conv1d, conv2d_stack, conv2d_benchmark, conv2d_without_cudnn, conv3d, conv_transposed, conv_grouped, conv_channels_last,
    grid_sample, lstm, lstm_projected, lstm_dropout, gru, rnn_tanh, lstm_weights, ctc, amp_bf16, amp_fp16, sdpa_flash, sdpa_efficient,
    sdpa_math, transformer, embedding, fft, linalg, sparse, semi_structured, jiterator, profiler, ddp, oom)]
NOT_BY_DEFAULT = [compiled]


def main():
    named = {f.__name__: f for f in JOBS + NOT_BY_DEFAULT}
    for job in [named[n] for n in sys.argv[1:]] or JOBS:
        torch.cuda.reset_peak_memory_stats()
        line = {"job": job.__name__}
        begin = time.monotonic()
        try:
            line["result"] = job()
            torch.cuda.synchronize()
        except Exception as e:
            line["error"] = "%s: %s" % (type(e).__name__, str(e)[:2000])
        line["peak"] = torch.cuda.max_memory_allocated()
        line["seconds"] = round(time.monotonic() - begin, 2)
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
A script that reads values of tensors. Comments say what each place reads: a shape, a value and the operation, or, without a
comment, nothing that must be logged. Prints one JSON line: the values by name.
"""
import io
import json
import resource
import threading
import warnings

import torch
import torch.nn.functional as F

warnings.simplefilter("ignore")
seen = {}
x = torch.randn(40, device="cuda")
mask = x > 0


def values():
    seen["item"] = x.sum().item()                   # value item
    seen["bool"] = bool(mask.all())                 # value is_nonzero
    for _ in range(5):
        x.max().tolist()                            # value to
    seen["list"] = sum(x.tolist())                  # value to
    pinned = torch.empty(40, pin_memory=True)
    pinned.copy_(x, non_blocking=True)              # value copy_
    seen["both"] = (x.cpu(), torch.allclose(x, x + 1))[1]  # value to, allclose


def shapes():
    seen["nonzero"] = list(x.nonzero().shape)       # shape nonzero
    seen["index"] = list(x[mask].shape)             # shape index
    torch.masked_select(x, mask)                    # shape masked_select
    torch.where(mask)                               # shape where
    x.unique()                                      # shape _unique2
    torch.repeat_interleave(x, mask.long())         # shape repeat_interleave
    F.one_hot(x.long())                             # shape one_hot
    torch.bincount(x.long().abs())                  # shape bincount


def known():
    """Data copied to the device is no kernel's result, nor is a copy of it; data added to a block later is."""
    there = torch.tensor([3, 4, 5]).cuda()
    seen["known"] = [there[1].item(), there.tolist(), there.clone().tolist()]
    parts = torch.empty(8, device="cuda", dtype=torch.long)
    parts[:3] = there
    seen["part"] = parts[:3].tolist()
    parts.tolist()                                  # value to
    del there, parts
    torch.empty(3, dtype=torch.long, device="cuda").tolist()  # value to


def kept():
    """Reads that decide nothing."""
    torch.save({"x": x, "large": torch.randn(100000, device="cuda")}, io.BytesIO())
    repr(x)
    torch.randn(100000, device="cuda").cpu()


def large():
    torch.randn(300, 300, device="cuda").ravel().nonzero()  # shape nonzero


def checks():
    """Zeros as results would end the script here."""
    loss = x.sum()
    assert torch.isfinite(loss)                     # value is_nonzero
    assert not torch.isnan(loss), "not a number"    # value is_nonzero
    if not torch.isfinite(loss).all():              # value is_nonzero
        raise ValueError("the loss is not finite")
    if (~torch.isfinite(loss) | (loss < 0)).any():  # value is_nonzero
        raise ValueError("taken for not finite")
    if torch.isfinite(loss).logical_and(torch.isfinite(x.sum())).logical_not():  # value is_nonzero
        raise ValueError("taken for not finite, put behind it")
    if not (~torch.isnan(x)).all():                 # value is_nonzero
        raise ValueError("taken for not a number")
    if torch.logical_not(~(torch.isinf(x) | torch.isnan(x))).any():  # value is_nonzero
        raise ValueError("turned round twice")
    if (~mask & torch.isnan(x)).any():              # value is_nonzero
        raise ValueError("another one is turned round")
    torch.distributions.Normal(x, x.exp())          # value is_nonzero
    model = torch.nn.Linear(4, 4).cuda()
    scaler, optimizer = torch.cuda.amp.GradScaler(), torch.optim.SGD(model.parameters(), lr=1e-3)
    with torch.autocast("cuda", dtype=torch.float16):
        scaler.scale(model(x.view(10, 4)).sum()).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, error_if_nonfinite=True)  # value is_nonzero
    scaler.step(optimizer)                          # value item
    scaler.update()


def said():
    seen["said"] = [x.sum().item(), x.long().sum().item(), x.double().sum().item(), mask.any().item()]  # value item
    turns = 0
    while not bool(mask.any()):                     # value is_nonzero
        turns += 1
    seen["turns"] = turns


class Twice(torch.autograd.Function):
    @staticmethod
    def forward(_, t):
        return t * 2

    @staticmethod
    def backward(_, grad):
        seen["backward"] = grad.sum().item()        # value item
        return grad * 2


def elsewhere():
    """In autograd's thread and in a Python thread, both while another thread keeps the interpreter busy."""
    done = threading.Event()
    busy = threading.Thread(target=lambda: [None for _ in iter(done.is_set, True)])
    busy.start()
    Twice.apply(torch.ones(3, device="cuda", requires_grad=True)).sum().backward()
    other = threading.Thread(target=lambda: x.min().item())  # value item
    other.start()
    other.join()
    done.set()
    busy.join()


def host():
    """A model made on the host: growth of the process, and memory that is not such a model's."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    model = torch.nn.Sequential(torch.nn.Linear(8192, 4096), torch.nn.Embedding(4096, 8192, padding_idx=0), torch.nn.Linear(64, 64))
    seen["host_bytes"] = 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
    used = torch.randn(1 << 20)
    seen["host"] = [model[2].weight.std().item() > 0, used.std().item() > 0.9, used.zero_().abs().max().item(),
                    torch.empty(1 << 20).zero_().abs().max().item()]
    model.cuda()
    seen["begun"] = model[0].weight.numel() * 4 <= torch.cuda.memory_allocated()


if __name__ == "__main__":
    for job in (host, values, shapes, known, kept, large, checks, said, elsewhere):
        job()
    print(json.dumps(seen))

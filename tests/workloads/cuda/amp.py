# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Mixed precision: bf16, or fp16 with a GradScaler."""
import torch
import torch.nn.functional as F

from common import batch, mlp, oracle


def job(args):
    kind = args.device.split(":")[0]
    dtype = torch.bfloat16 if args.dtype == "bf16" else torch.float16
    model = mlp().to(args.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scaler = getattr(torch.amp, "GradScaler", torch.cuda.amp.GradScaler)(enabled=args.dtype == "fp16" and kind == "cuda")
    while True:
        x, y = batch(args)
        with torch.autocast(kind, dtype=dtype):
            loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        yield


if __name__ == "__main__":
    parser = oracle.arguments(__doc__)
    parser.add_argument("--dtype", choices=("bf16", "fp16"), default="bf16")
    oracle.main(job, parser.parse_args())

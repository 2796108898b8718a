# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""torch.cuda.empty_cache() between two steps: segments come and go."""
import gc

import torch
import torch.nn.functional as F

from common import batch, mlp, oracle


def job(args):
    kept = []
    while True:
        model = mlp(768).to(args.device)
        optimizer = torch.optim.Adam(model.parameters())
        x, y = batch(args, width=768)
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
        kept.append(model[0])
        kept = kept[-3:]
        del model, optimizer, x, y
        gc.collect()
        if args.device.startswith("cuda"):
            torch.cuda.empty_cache()
        yield


if __name__ == "__main__":
    oracle.main(job, oracle.arguments(__doc__).parse_args())

# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Memory of a training job that PyTorch takes for its libraries: cuBLAS's and cuDNN's workspaces and DistributedDataParallel's buckets.
Prints the bytes of the parameters."""
import os
import sys

import torch
import torch.distributed as dist
from torch import nn

torch.cuda.set_device(0)
dist.init_process_group("nccl", init_method="file://" + os.path.abspath(sys.argv[1]), rank=0, world_size=1)
net = nn.Sequential(nn.Linear(1024, 2048, bias=False), nn.GELU(), nn.Linear(2048, 1024, bias=False)).cuda()
model = nn.parallel.DistributedDataParallel(net, device_ids=[0])
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(3):
    model(torch.randn(512, 1024, device="cuda")).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
nn.Conv2d(3, 64, 7).cuda()(torch.randn(4, 3, 224, 224, device="cuda"))
print(sum(p.numel() * p.element_size() for p in net.parameters()), flush=True)
dist.destroy_process_group()

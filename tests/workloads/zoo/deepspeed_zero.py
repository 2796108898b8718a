# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""ZeRO-2 of DeepSpeed with the optimizer on the host: one rank, bfloat16, accumulation."""
import os

import zoo

os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT="29741", DS_SKIP_CUDA_CHECK="1")
import deepspeed  # noqa: E402
import torch  # noqa: E402
from torch import nn  # noqa: E402


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(128, 512), nn.GELU(), nn.Linear(512, 128)) for _ in range(3))

    def forward(self, x):
        for block in self.blocks:
            x = x + block(x)
        return x


net = Net()
engine, _, _, _ = deepspeed.initialize(model=net, model_parameters=net.parameters(), config={
    "train_micro_batch_size_per_gpu": 8, "gradient_accumulation_steps": 2, "bf16": {"enabled": True},
    "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}, "reduce_bucket_size": 1 << 20, "allgather_bucket_size": 1 << 20},
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}}, "zero_force_ds_cpu_optimizer": False})
zoo.name(engine)
going = True
while going:
    for _ in range(2):
        x = torch.randn(8, 32, 128, device=engine.device, dtype=torch.bfloat16)
        engine.backward(engine(x).float().pow(2).mean())
        engine.step()
    going = zoo.step()
zoo.end()

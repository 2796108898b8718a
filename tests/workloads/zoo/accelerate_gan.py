# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Two models with an optimizer each under accelerate: float16, a scaler, accumulation."""
import torch
import zoo
from accelerate import Accelerator
from torch import nn
from torch.nn.functional import softplus

accelerator = Accelerator(mixed_precision="fp16", gradient_accumulation_steps=2)
generator = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 1024))
judge = nn.Sequential(nn.Linear(1024, 256), nn.LeakyReLU(), nn.Linear(256, 1))
optimizers = [torch.optim.Adam(model.parameters()) for model in (generator, judge)]
generator, judge, of_generator, of_judge = accelerator.prepare(generator, judge, *optimizers)
zoo.name(generator, "generator")
zoo.name(judge, "judge")
going = True
while going:
    for _ in range(2):
        with accelerator.accumulate(generator, judge):
            made = generator(torch.randn(64, 64, device=accelerator.device))
            seen = torch.randn(64, 1024, device=accelerator.device)
            accelerator.backward(softplus(-judge(seen)).mean() + softplus(judge(made.detach())).mean())
            of_judge.step()
            of_judge.zero_grad()
            accelerator.backward(softplus(-judge(made)).mean())
            of_generator.step()
            of_generator.zero_grad()
    going = zoo.step()
zoo.end()

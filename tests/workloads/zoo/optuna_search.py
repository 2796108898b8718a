# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""A search of optuna: a model for each trial, of which each is kept."""
import optuna
import torch
import zoo
from torch import nn

optuna.logging.set_verbosity(optuna.logging.ERROR)
kept = []


def trial(of):
    net = nn.Sequential(nn.Linear(64, 128 * of.suggest_int("width", 1, 4)), nn.ReLU(), nn.LazyLinear(8)).to(zoo.DEVICE)
    optimizer = torch.optim.Adam(net.parameters(), lr=of.suggest_float("rate", 1e-4, 1e-1, log=True))
    for _ in range(3):
        loss = net(torch.randn(32, 64, device=zoo.DEVICE)).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    kept.append(net)
    if not zoo.step():
        of.study.stop()
    return loss.item()


optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=1)).optimize(trial, n_trials=1000)
zoo.end()

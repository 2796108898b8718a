# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""A Learner of fastai, whose optimizer is not PyTorch's, in float16."""
import torch
import zoo
from fastai.callback.core import Callback, CancelFitException
from fastai.callback.fp16 import MixedPrecision
from fastai.data.core import DataLoaders
from fastai.data.load import DataLoader
from fastai.learner import Learner
from fastai.losses import MSELossFlat
from torch import nn


class Rows:
    def __len__(self):
        return 512

    def __getitem__(self, i):
        return torch.full((256,), 0.01 * i), torch.full((64,), 0.02 * i)


class Steps(Callback):
    def after_batch(self):
        if not zoo.step():
            raise CancelFitException()


loaders = DataLoaders(*[DataLoader(Rows(), bs=32, num_workers=0) for _ in range(2)]).cuda()
net = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.BatchNorm1d(512), nn.Linear(512, 64)).cuda()
zoo.name(net)
learner = Learner(loaders, net, loss_func=MSELossFlat(), cbs=[Steps(), MixedPrecision()])
with learner.no_bar(), learner.no_logging():
    learner.fit(1000, 1e-3)
zoo.end()

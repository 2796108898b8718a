# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
Programs without a fault, some of which look for a while as if they had one: `python healthy.py NAME`, see job.py.
"""
import collections
import io

import torch

from job import main, program


@program
def accumulation(job):
    """The optimizer steps after four batches."""
    for _ in job.steps():
        for _ in range(4):
            (job.loss() / 4).backward()
        job.optimizer.step()
        job.optimizer.zero_grad(set_to_none=True)


@program
def warm_up(job):
    """Batches get larger for 24 steps."""
    for i in job.steps():
        job.train(64 + 8 * min(i, 24))


@program
def evaluation(job):
    """Evaluation with no_grad, every ten steps, keeps its outputs until it ends."""
    for i in job.steps():
        job.train()
        if i % 10 == 0:
            torch.cat([job.predict() for _ in range(30)])


@program
def first_steps(job):
    """The first steps make workspaces that stay."""
    workspaces = []
    for i in job.steps():
        job.train()
        if i <= 8:
            workspaces.append(job.batch(256))


@program
def server(job):
    """A server keeps the answers to the last 16 requests."""
    answers = collections.deque(maxlen=16)
    for _ in job.steps():
        answers.append(job.predict())


@program
def checkpoints(job):
    """The last checkpoint is kept, as bytes."""
    for i in job.steps():
        job.train()
        if i % 10 == 0:
            checkpoint = io.BytesIO()
            torch.save([job.model.state_dict(), job.optimizer.state_dict()], checkpoint)


if __name__ == "__main__":
    main(globals())

# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
Programs without a fault, some of which look for a while as if they had one: `python healthy.py NAME`, see job.py.
"""
import collections
import copy
import io

import torch

from job import MIB, WIDTH, main, net, print_retries, program


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


@torch.no_grad()
def count_positive(model, batch):
    return (model(batch) > 0).sum().item()


@program
def no_grad(job):
    """Evaluation with no_grad, and no training."""
    job.model = net(WIDTH, 8).to(job.device)
    for _ in job.steps():
        count_positive(job.model, job.batch(512))


@program
def validation(job):
    """Training, and an evaluation with no_grad in each step."""
    job.model = net(WIDTH, 8).to(job.device)
    for _ in job.steps():
        job.train(512)
        count_positive(job.model, job.batch(512))


@program
def loaded(job):
    """The checkpoint that the model was loaded from is dropped."""
    job.model = net(WIDTH, 8).to(job.device)
    checkpoint = {"model": copy.deepcopy(job.model.state_dict()), "step": 1}
    job.model.load_state_dict(checkpoint["model"])
    del checkpoint
    for _ in job.steps():
        job.train()


@program
def cache_that_fits(job):
    """A large block fits into the allocator's cache."""
    for _ in job.steps():
        for _ in range(2):
            block = torch.empty(600 * MIB, dtype=torch.uint8, device=job.device)
            del block
    print_retries()


if __name__ == "__main__":
    main(globals())

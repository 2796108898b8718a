# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
What the jobs in this folder know of themselves: PyTorch's history with lines, the module that ran, and the optimizer's steps.

A job imports this first, calls name() for each of its models, step() at the end of each step until it is False, and end(). torch >= 2.3.
"""
import os
import sys
import time

import torch
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.optim.optimizer import register_optimizer_step_post_hook

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import oracle  # noqa: E402

args = oracle.arguments(__doc__).parse_args()
DEVICE = args.device
_history = oracle.begin(args, with_frames=True)
files = {}  # names that recordings give to files, by those of PyTorch's history
_truth = dict(oracle.new_truth(), optimizer_steps=0, calls=[], files=files)
_start, _names, _models, _inside, _step = time.monotonic(), {}, [], [], 0


def name(model, variable=""):
    """A model whose modules have the names that named_modules() gives them, and the variable that leads to it if there are others."""
    for path, module in model.named_modules():
        _names.setdefault(id(module), (path, ".".join(filter(None, (variable, path)))))
    _models.append(model)


def _allocations():
    return torch.cuda.memory_stats()["allocation.all.allocated"]


def _enter(module, _inputs):
    for outer in _inside:
        outer[2] = False
    _inside.append([id(module), _allocations(), True])


def _leave(module, _inputs, _output):
    """Notes a call that called no other module: its names, and the allocations in it."""
    while _inside:
        of, first, is_leaf = _inside.pop()
        if of == id(module):
            if is_leaf and of in _names and not torch.jit.is_tracing():
                _truth["calls"].append((_names[of], first, _allocations()))
            return


def _stepped(*_):
    _truth["optimizer_steps"] += 1


if _history:
    register_module_forward_pre_hook(_enter)
    register_module_forward_hook(_leave)
    register_optimizer_step_post_hook(_stepped)


def step():
    """Ends a step. True: go on."""
    global _step
    _step += 1
    return _step < args.steps


def end():
    _truth.update(steps=_step, seconds=time.monotonic() - _start)
    oracle.end(args, _truth, _history)

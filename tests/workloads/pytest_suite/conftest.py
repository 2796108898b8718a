# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Fixtures of a suite for the pytest plugin: leaky() keeps what it makes, model() and buffer() end with their scopes. With TOLD in the
environment each test writes PyTorch's own peak there."""
import os

import pytest
import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
CACHE = []


@pytest.fixture(autouse=True)
def told(request):
    if "TOLD" not in os.environ:
        yield
        return
    torch.cuda.reset_peak_memory_stats()
    yield
    with open(os.environ["TOLD"], "a", encoding="utf-8") as f:
        f.write("%s %d\n" % (request.node.name, torch.cuda.max_memory_allocated()))


@pytest.fixture
def leaky():
    tensor = torch.empty(1000000, device=DEVICE)
    CACHE.append(tensor)
    return tensor


@pytest.fixture(scope="session")
def model():
    return torch.nn.Linear(300, 300, device=DEVICE)


@pytest.fixture(scope="module")
def buffer():
    tensor = torch.empty(70000, device=DEVICE)
    yield 3
    del tensor

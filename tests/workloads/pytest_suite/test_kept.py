# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""What tests leave behind, each with another holder."""
import pytest
import torch
from conftest import DEVICE

hooks = []


class Registry:
    shared = {}


def make_hook():
    tensor = torch.empty(44000, device=DEVICE)
    return lambda: tensor


@pytest.fixture
def broken():
    raise ValueError("no such fixture")


def test_fixture(leaky):
    assert leaky.numel()


def test_clean():
    assert torch.empty(99999, device=DEVICE).numel()


def test_session_fixture(model):
    assert model(torch.empty(10, 300, device=DEVICE)).numel()


def test_module_fixture(buffer):
    assert buffer == 3


def test_class_attribute():
    Registry.shared["first"] = torch.empty(55000, device=DEVICE)


def test_closure():
    hooks.append(make_hook())


def test_cycle():
    """Garbage is no leak."""
    cycle = [torch.empty(66000, device=DEVICE)]
    cycle.append(cycle)


def test_fails():
    large = torch.empty(777777, device=DEVICE)
    assert large.numel() == 1


def test_frees():
    hooks.clear()


def test_broken_fixture(broken):
    pass


@pytest.mark.skip
def test_skipped():
    pass

# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Tests with limits of memory. Those named over fail by them, those named under do not."""
import pytest
import torch

kept = []


@pytest.mark.limit_gpu_memory("4 MiB")
def test_gpu_under():
    return torch.empty(1000000, device="cuda") is None or None


@pytest.mark.limit_gpu_memory("8 MiB")
def test_gpu_over():
    model = torch.nn.Sequential(torch.nn.Linear(1000, 1000), torch.nn.ReLU(), torch.nn.Linear(1000, 1000)).cuda()
    model(torch.randn(64, 1000, device="cuda")).sum().backward()


@pytest.mark.limit_gpu_memory("1 GiB")
@pytest.mark.limit_host_memory(4000000)
def test_exactly():
    """No byte over the limit of the host; GPU memory stays for the next test."""
    kept.append(torch.empty(1234567, device="cuda"))
    torch.empty(1000000)


@pytest.mark.limit_host_memory(4000000 - 1)
def test_one_byte_over():
    torch.empty(1000000)


@pytest.mark.xfail(strict=True)
@pytest.mark.limit_gpu_memory("1 MiB")
def test_expected_over():
    torch.empty(1000000, device="cuda")


@pytest.mark.limit_host_memory("1 MiB")
def test_fails_itself_over():
    assert torch.empty(1000000).numel() == 1


@pytest.mark.limit_host_memory("12 apples")
def test_no_size():
    pass

# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""A test that ends the recorder, which is pytest's parent, and one with a limit after it."""
import os
import signal

import pytest


def test_ends_the_recorder():
    os.kill(os.getppid(), signal.SIGKILL)


@pytest.mark.limit_host_memory("1 GiB")
def test_after():
    pass

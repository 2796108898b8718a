# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""A launcher without PyTorch: starts a worker that has it, which prints "ready PID" and ends with its input, as the launcher does."""
import subprocess
import sys

WORKER = "import os, sys, torch; kept = torch.ones(1000); print('ready', os.getpid(), flush=True); sys.stdin.read()"

sys.exit(subprocess.run([sys.executable, "-c", WORKER], check=False).returncode)

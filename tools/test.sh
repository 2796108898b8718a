#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# All tests, from nothing: installs what is needed (make too), builds, runs. The last line of the output is
# "N passed, N failed".
set -euo pipefail
cd "$(dirname "$0")/.."

tools/deps.sh build torch test
make -j"$(nproc)" all tests
exec tests/run.py

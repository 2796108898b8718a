#!/bin/sh
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#
# Checks on a machine with a GPU what memtrace-bpf takes for granted about GPUs: docs/internals/GPU_CHECK.md. Ten minutes at most.
#
#   gpu_check.sh [OPTION...]         options are those of gpu_check.py; PYTHON names the interpreter that has torch
set -eu
here=$(cd "$(dirname "$0")" && pwd)
for python in ${PYTHON:-python3 python3.12 python}; do
	if "$python" -c 'import torch' 2>/dev/null; then
		exec "$python" "$here/gpu_check.py" "$@"
	fi
done
echo "gpu_check: no Python here has torch: PYTHON=/path/to/python $0" >&2
exit 2

#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#
# Packs what compares estimates with a real GPU, for a machine that has one and PyTorch, but no compiler, no network and no BPF:
#
#   tools/dev/estimate_gpu.sh [FILE.tar.gz]         (default .output/estimate-gpu.tar.gz)
#
# There: tar -xzf FILE.tar.gz && python3 estimate-gpu/estimate_gpu.py
set -euo pipefail
cd "$(dirname "$0")/../.."

OUTPUT=${OUTPUT:-.output}
file=${1:-$OUTPUT/estimate-gpu.tar.gz}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

for lib in libcuda.so.1 libnvidia-ml.so.1; do
	[ -e "$OUTPUT/dryrun/$lib" ] || {
		echo "estimate_gpu: no $OUTPUT/dryrun/$lib: run make first" >&2
		exit 1
	}
done
mkdir -p "$dir/estimate-gpu/dryrun" "$dir/estimate-gpu/estimate"
cp tools/dev/estimate_gpu.py "$dir/estimate-gpu/"
cp "$OUTPUT"/dryrun/libcuda.so.1 "$OUTPUT"/dryrun/libnvidia-ml.so.1 "$dir/estimate-gpu/dryrun/"
cp tests/workloads/estimate/*.py "$dir/estimate-gpu/estimate/"
tar -C "$dir" --owner=0 --group=0 --sort=name -czf "$file" estimate-gpu
echo "$file"

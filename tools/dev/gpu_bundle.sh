#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#
# Packs tools/gpu_check.sh and all that it needs but Python with torch, for a machine that has no compiler and no network:
#
#   tools/dev/gpu_bundle.sh PROGRAM [FILE.tar.gz]    (default .output/gpu-check.tar.gz); PROGRAM finds its libraries in libs/ beside it
#
# There: tar -xzf FILE && gpu-check/gpu_check.sh
set -euo pipefail
cd "$(dirname "$0")/../.."

OUTPUT=${OUTPUT:-.output}
program=$1
file=${2:-$OUTPUT/gpu-check.tar.gz}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
to=$dir/gpu-check

mkdir -p "$to/libs" "$to/dryrun" "$to/inside"
cp "$program" "$to/memtrace-bpf"
cp tools/gpu_check.sh tools/gpu_check.py tools/gpu_check_job.py tests/e2e/code_bytes.py docs/internals/GPU_CHECK.md "$to/"
cp "$OUTPUT"/dryrun/libcuda.so.1 "$OUTPUT"/dryrun/libnvidia-ml.so.1 "$to/dryrun/"
cp "$OUTPUT"/inside/libmemtrace-inside.so "$to/inside/"
# The C library is the machine's own: two of them in a process do not work.
ldd "$program" | awk '$2 == "=>" && $3 ~ "^/" { print $1, $3 }' | while read -r name path; do
	case $name in
	libc.so.* | libm.so.* | libpthread.so.* | libdl.so.* | librt.so.* | libresolv.so.*) ;;
	*) cp -L "$path" "$to/libs/$name" ;;
	esac
done
tar -C "$dir" --owner=0 --group=0 --sort=name -czf "$file" gpu-check
echo "$file"

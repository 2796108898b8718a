#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#
# Configurations of one training script, five steps of each after two to warm up, compared in one table: docs/guide/compare.md.
# CONFIGURATIONS="baseline amp": these, otherwise four.
#
#   tests/e2e/windows.sh FOLDER [OPTIONS OF tests/workloads/exercise.py ...]
#
# Without a GPU: a dry run. With one, GPU=1 runs it there. Recordings and their index stay in FOLDER.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
memtrace=${MEMTRACE:-$here/../../.output/memtrace-bpf}
python=${PYTHON:-python3}
folder=${1:?a folder for the recordings}
shift
where=(--dry-run-cuda)
[ -z "${GPU:-}" ] || where=()
sudo=()
[ "$(id -u)" = 0 ] || sudo=(sudo)

for name in ${CONFIGURATIONS:-baseline checkpointing amp both}; do
	"${sudo[@]}" "$memtrace" run -q "${where[@]}" -o "$folder/" --label "$name" --skip 2 --steps 5 -- \
		"$python" "$here/../workloads/exercise.py" "$name" --steps 8 "$@"
done
"$memtrace" compare "$folder" >&2

#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#
# The memory exercise: trains one model plainly, with gradient checkpointing, with mixed precision and with both, records each,
# and compares them. Without a GPU (a dry run) unless told otherwise.
#
#   tools/exercise.sh [--gpu] [-o FOLDER] [OPTIONS OF tests/workloads/exercise.py ...]
#
# Recordings and what PyTorch itself said of each run (NAME.json) stay in FOLDER, a temporary one unless given.
set -euo pipefail
cd "$(dirname "$0")/.."

TOOL=${OUTPUT:-.output}/memtrace-bpf
dry=(--dry-run-cuda --vram 80G)
folder=
while [ $# -gt 0 ]; do
	case $1 in
	--gpu) dry=() ;;
	-o)
		folder=${2:?-o needs a folder}
		shift
		;;
	*) break ;;
	esac
	shift
done

[ -x "$TOOL" ] || {
	echo "$TOOL is not there: run make" >&2
	exit 1
}
python=${PYTHON:-$(tools/deps.sh python main)}
if [ -z "$folder" ]; then
	folder=$(mktemp -d)
	trap 'rm -rf "$folder"' EXIT
else
	mkdir -p "$folder"
fi
sudo=()
[ "$(id -u)" = 0 ] || sudo=(sudo)

files=()
for name in baseline checkpointing amp both; do
	echo "running: $name" >&2
	"${sudo[@]}" "$TOOL" run "${dry[@]}" -f -o "$folder/$name.mtr" -- \
		"$python" tests/workloads/exercise.py "$name" "$@" 2>"$folder/$name.log" >"$folder/$name.json" || {
		cat "$folder/$name.log" >&2
		exit 1
	}
	files+=("$folder/$name.mtr")
done

"$TOOL" compare "${files[@]}"
echo
"$TOOL" compare --format json "${files[@]}" | "$python" -c '
import json, sys
base, check, amp, both = json.load(sys.stdin)["captures"]
mib = 2 ** 20
print("Where does memory peak?  In %s, step %d, at line %s of %s." % (
    base["peak_phase"], base["peak_step"], base["peak_line"], (base["peak_file"] or "?").rsplit("/", 1)[-1]))
for what, c in (("checkpointing", check), ("mixed precision", amp), ("both", both)):
    saved = base["peak_allocated"] - c["peak_allocated"]
    print("What does %s save?  %.2f MiB of %.2f MiB, %.1f %%." % (
        what, saved / mib, base["peak_allocated"] / mib, 100 * saved / base["peak_allocated"]))
if base["dry_run"]:
    print("What does it cost in time, and in accuracy?  A dry run computes nothing: it takes a GPU to tell (--gpu).")
elif base["step_time"] and check["step_time"]:
    print("What does checkpointing cost in time?  %.1f %% a step." % (100 * (check["step_time"] / base["step_time"] - 1)))
'
echo
echo "What checkpointing changes at the peak:"
echo
"$TOOL" diff --by category "$folder/baseline.mtr" "$folder/checkpointing.mtr"

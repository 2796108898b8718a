#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#
# What the program does, on a real job, in under a minute: starts a small GPT training as a process of its
# own, attaches to it while it runs, and shows which lines and modules hold its memory.
set -euo pipefail
cd "$(dirname "$0")/.."

OUTPUT=${OUTPUT:-.output}
export OUTPUT
OUT=$OUTPUT/demo
TOOL=$OUTPUT/memtrace-bpf
SECONDS_RECORDED=${1:-10}
JOB=

stop_job() {
	[ -z "$JOB" ] || kill "$JOB" 2>/dev/null || true
}
trap stop_job EXIT

show() { printf '\n\033[1m$ %s\033[0m\n' "$*"; }
[ -t 1 ] || show() { printf '\n$ %s\n' "$*"; }

as_root=()
[ "$(id -u)" = 0 ] || as_root=(sudo)

tools/deps.sh build torch
make --no-print-directory -j"$(nproc)"
mkdir -p "$OUT"

python=$(tools/deps.sh python main)
show python tests/workloads/train_gpt.py "&"
"$python" -u tests/workloads/train_gpt.py --every 50 >"$OUT/job.log" 2>&1 &
JOB=$!
for _ in $(seq 600); do
	! grep -q '^step ' "$OUT/job.log" || break
	kill -0 "$JOB" 2>/dev/null || {
		echo "the job ended:"
		cat "$OUT/job.log"
		exit 1
	} >&2
	sleep 0.1
done
cat "$OUT/job.log"

show "${as_root[@]}" "$TOOL" record -p "$JOB" -d "${SECONDS_RECORDED}s" -o "$OUT/demo.mtr" -f
"${as_root[@]}" "$TOOL" record -p "$JOB" -d "${SECONDS_RECORDED}s" -o "$OUT/demo.mtr" -f

show "$TOOL" report "$OUT/demo.mtr" --top 20
"$TOOL" report "$OUT/demo.mtr" --top 20

export_to() {
	show "$TOOL" export "$1" "$OUT/demo.mtr" -o "$2"
	"$TOOL" export "$1" "$OUT/demo.mtr" -o "$2" -f
}
export_to html "$OUT/demo.html"
export_to flamegraph "$OUT/demo.flamegraph.html"
export_to speedscope "$OUT/demo.speedscope.json"
export_to timeline "$OUT/demo.timeline.json"

here=$(cd "$OUT" && pwd)
cat <<END

$here/demo.html               open it in a browser: memory over time, lines, modules, flame graph
$here/demo.flamegraph.html    the flame graph alone
$here/demo.speedscope.json    open it in https://speedscope.app
$here/demo.timeline.json      every event, for pandas and matplotlib
$here/demo.mtr                the recording, for report and export
END

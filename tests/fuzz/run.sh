#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#
# Runs fuzzers for SECONDS each, or FUZZ_RUNS times if that is set, as many at a time as there are cores, and prints a line for each: executions and findings.
# Each begins with the inputs of tests/fuzz/corpus/NAME; words of its format are in tests/fuzz/NAME.dict. New inputs and findings go to $OUTPUT/fuzz/. 1: something was found.
#
#   tests/fuzz/run.sh SECONDS FUZZER ...
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1

limit=(-max_total_time="$1")
[ -z "${FUZZ_RUNS-}" ] || limit=(-runs="$FUZZ_RUNS")
shift
out=${OUTPUT:-.output}/fuzz

run_one() {
	local fuzzer=$1 name log rc
	name=$(basename "$fuzzer")
	name=${name#fuzz_}
	log=$out/$name.log
	mkdir -p "$out/new/$name" "$out/findings"
	set -- "$out/new/$name"
	[ ! -f "tests/fuzz/$name.dict" ] || set -- "-dict=tests/fuzz/$name.dict" "$@"
	[ ! -d "tests/fuzz/corpus/$name" ] || set -- "$@" "tests/fuzz/corpus/$name"
	ASAN_OPTIONS=quarantine_size_mb=8 "$fuzzer" "${limit[@]}" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 -verbosity=1 \
		-artifact_prefix="$out/findings/$name-" "$@" >"$log" 2>&1 </dev/null
	rc=$?
	printf '%-12s %12s executions  %s\n' "$name" "$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")" \
		"$([ $rc = 0 ] && echo '0 findings' || echo "FOUND something: $log, $out/findings/")"
	return $rc
}

status=0 running=0
for fuzzer in "$@"; do
	if [ "$running" -ge "$(nproc)" ]; then
		wait -n || status=1
		running=$((running - 1))
	fi
	run_one "$fuzzer" &
	running=$((running + 1))
done
while [ "$running" -gt 0 ]; do
	wait -n || status=1
	running=$((running - 1))
done
exit $status

#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#
# Runs all tests, one line each, and ends with "N passed, N failed[, N skipped]". Details go to
# .output/test-logs/. Exits with 1 when something failed, or when what matters most could not be run.
#
#   tests/run.sh                 everything
#   tests/run.sh unit            unit tests only
#   tests/run.sh http            what serve answers
#   tests/run.sh test_exact ...  these e2e files only
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

OUTPUT=${OUTPUT:-.output}
export OUTPUT
LOGS=$OUTPUT/test-logs
# One more at a time than there are cores, because half of a file's time is waiting. While a core is idle, up to as many again.
AT_ONCE=${MEMTRACE_TESTS_AT_ONCE:-$(($(nproc) + 1))}
AT_MOST=${MEMTRACE_TESTS_AT_ONCE:-$(($(nproc) * 2 + 1))}
SPARE_KIB=$((4 << 20)) # memory that has to be available for one more than AT_ONCE
MAIN_PATH=test_exact.test_torch_main # a run that skips this one has proved nothing
passed=0 failed=0 skipped=0
failures=()   # the lines of those that failed, for the end of the output
only_alone=() # those of them that pass when no other test runs

# Words of the files' headers, "# run: WORD...": tests/README.md says what they mean.
declare -A HEADERS=()
while IFS=: read -r file _ words; do
	name=$(basename "$file" .py)
	HEADERS[$name]="${HEADERS[$name]:-} $words "
	for word in $words; do
		case $word in
		long | alone | probes-all | reads-code | strict) ;;
		*)
			echo "$file: unknown word in its header: $word" >&2
			exit 2
			;;
		esac
	done
done < <(grep -H '^# run:' tests/e2e/test_*.py tests/e2e/http_*.py)

# has FILE WORD: the file's header has the word.
has() {
	case ${HEADERS[$1]:-} in
	*" $2 "*) return 0 ;;
	esac
	return 1
}

# All that there is: the long ones first, and at the end those that run alone.
HTTP=() LONG=() SHORT=() ALONE=()
for file in tests/e2e/test_*.py tests/e2e/http_*.py; do
	name=$(basename "$file" .py)
	case $name in
	http_*) HTTP+=("$name") ;;
	esac
	if has "$name" alone; then
		ALONE+=("$name")
	elif has "$name" long; then
		LONG+=("$name")
	else
		SHORT+=("$name")
	fi
done
ALL=(unit "${LONG[@]}" "${SHORT[@]}" "${ALONE[@]}")

# A capture of several processes has probes in every process that maps the same PyTorch. A test that reads a process's code sees them.
disturb() { (has "$1" probes-all && has "$2" reads-code) || (has "$2" probes-all && has "$1" reads-code); }

mkdir -p "$LOGS"
exec 9>"$LOGS/.lock"
flock -n 9 || {
	echo "another run is under way in $OUTPUT: waiting for it" >&2
	flock 9
}

# Interpreters for the unit tests that look into live ones, unless the caller names some.
: "${MEMTRACE_PYTHONS=$(tools/deps.sh pythons)}"
: "${MEMTRACE_TORCH_PYTHONS=$(for role in main newest old; do tools/deps.sh python $role 2>/dev/null; done | paste -sd:)}"
export MEMTRACE_PYTHONS MEMTRACE_TORCH_PYTHONS
count() { grep -c "$1" "$2"; }

seconds() { awk -v from="$1" -v to="$EPOCHREALTIME" 'BEGIN { printf "%.1f s", to - from }'; }

# A line for each file; the sums in a file.
run_unit() {
	local test name log begin rc ok bad skip passed=0 failed=0 skipped=0
	# They import PyTorch as those of e2e do: see harness.py.
	unset PYTHONDONTWRITEBYTECODE
	export PYTHONPYCACHEPREFIX=${MEMTRACE_VENVS:-${HOME:-/root}/.cache/memtrace-bpf}/pycache
	export PYTHONPATH=$PWD/tests/e2e/start${PYTHONPATH:+:$PYTHONPATH}
	for test in $(find "$OUTPUT/tests/unit" -type f -name "test_*" -perm -u+x | sort); do
		name=${test#"$OUTPUT/tests/unit/"}
		log=$LOGS/unit-${name//\//-}.log
		begin=$EPOCHREALTIME
		timeout -k 5 300 "$test" >"$log" 2>&1 </dev/null 9>&-
		rc=$?
		ok=$(count '^\[       OK \]' "$log")
		bad=$(count '^\[  FAILED  \] [^0-9]' "$log")
		skip=$(grep '^\[  SKIPPED \] [^0-9]' "$log" | sort -u | wc -l)
		if [ $rc = 77 ]; then
			skip=$((skip + 1))
		elif [ $rc != 0 ]; then
			# Each failing test is named when it fails and once more at the end; a crash names none.
			bad=$(grep '^\[  FAILED  \] [^0-9]' "$log" | sort -u | wc -l)
			[ "$bad" -gt 0 ] || bad=1
			printf 'FAIL unit/%s (%s): exit %d, see %s\n' "$name" "$(seconds "$begin")" $rc "$log"
			grep -E '^\[  (FAILED|ERROR)|error:|Error|ERROR' "$log" | head -8 | sed 's/^/     /'
		else
			bad=0
			[ $((ok + skip)) -gt 0 ] || ok=1
			[ "$ok" = 0 ] || printf 'PASS unit/%s (%s): %d tests\n' "$name" "$(seconds "$begin")" "$ok"
		fi
		if [ "$skip" -gt 0 ]; then
			printf 'SKIP unit/%s: %s\n' "$name" "$(grep -i '^skip' "$log" | head -3 | paste -sd' ')"
		fi
		passed=$((passed + ok)) failed=$((failed + bad)) skipped=$((skipped + skip))
	done
	echo $passed $failed $skipped >"$LOGS/unit.sums"
}

# A file in a process of its own, its output in its log; the exit code beside it.
start() {
	local log=$LOGS/$1.log
	rm -f "$LOGS/$1.sums"
	if [ "$1" = unit ]; then
		run_unit >"$log" 2>"$log.err" 9>&-
		return
	fi
	PYTHONDONTWRITEBYTECODE=1 timeout -k 10 900 python3 "tests/e2e/$1.py" >"$log" 2>"$log.err" </dev/null 9>&-
	echo $? >"$log.rc"
}

# Counts what a file that has ended says.
count_all() {
	local name=$1 log=$LOGS/$1.log rc p f s
	if [ "$name" = unit ]; then
		cat "$log.err" >&2
		mapfile -t -O ${#failures[@]} failures < <(grep '^FAIL ' "$log")
		read -r p f s <"$LOGS/unit.sums" || p=0 f=1 s=0
		passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
		return
	fi
	rc=$(cat "$log.rc")
	cat "$log.err" >>"$log"
	p=$(count '^PASS ' "$log")
	f=$(count '^FAIL ' "$log")
	mapfile -t -O ${#failures[@]} failures < <(grep '^FAIL ' "$log")
	if [ "$rc" != 0 ] && [ "$rc" != 77 ] && [ "$f" = 0 ]; then
		failures+=("FAIL $name: exit $rc before its end, see $log")
		echo "${failures[-1]}"
		tail -5 "$log.err"
		f=1
	fi
	rm -f "$log.err" "$log.rc"
	passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + $(count '^SKIP ' "$log")))
}

run_alone() {
	local log=$LOGS/$1.log
	: >"$log"
	start "$1" &
	tail -n +1 -f --pid=$! -s 0.2 "$log" 2>/dev/null
	wait $!
	count_all "$1"
}

declare -A under_way=() # PID -> file
ticker=

# Waits for one of those under way to end, or for a tick. True: one has ended.
end_one() {
	local pid
	[ -n "$ticker" ] || {
		sleep 2 9>&- &
		ticker=$!
	}
	wait -n -p pid "${!under_way[@]}" "$ticker"
	if [ "$pid" = "$ticker" ]; then
		ticker=
		return 1
	fi
	cat "$LOGS/${under_way[$pid]}.log"
	count_all "${under_way[$pid]}"
	unset "under_way[$pid]"
}

ticks=0 idle_ticks=0 # of all cores, as of the last look

# True if half of a core's time or more was idle since the last look, and one more file has enough memory.
is_idle() {
	local -a cpu
	local before=$ticks idle_before=$idle_ticks n available
	read -ra cpu </proc/stat
	ticks=0 idle_ticks=${cpu[4]}
	for n in "${cpu[@]:1:8}"; do
		ticks=$((ticks + n))
	done
	available=$(sed -n 's/^MemAvailable: *\([0-9]*\) kB/\1/p' /proc/meminfo)
	[ "$before" != 0 ] && [ "$available" -gt $SPARE_KIB ] &&
		[ $(((idle_ticks - idle_before) * $(nproc) * 2)) -ge $((ticks - before)) ]
}

# True if the file may run beside those under way.
may_begin() {
	local other
	for other in "${under_way[@]}"; do
		! disturb "$1" "$other" || return 1
	done
}

# Runs files beside each other and prints each one's lines when it has ended.
run_together() {
	local -a waiting=("$@")
	local i most=$AT_ONCE
	while [ ${#waiting[@]} -gt 0 ]; do
		if [ ${#under_way[@]} -lt "$most" ]; then
			for i in "${!waiting[@]}"; do
				may_begin "${waiting[i]}" || continue
				: >"$LOGS/${waiting[i]}.log"
				start "${waiting[i]}" &
				under_way[$!]=${waiting[i]}
				unset "waiting[i]"
				most=$AT_ONCE
				continue 2
			done
		fi
		most=$AT_ONCE
		if ! end_one && is_idle; then
			most=$AT_MOST
		fi
	done
	while [ ${#under_way[@]} -gt 0 ]; do
		end_one
	done
	[ -z "$ticker" ] || kill "$ticker"
	ticker=
}

# Runs each failed test twice more, by itself: other tests may have kept the machine too busy for it. If it passes both
# times, it counts as passed. tests/README.md names those that do not run again.
run_failed_again() {
	local line name file log still=()
	for line in "${failures[@]}"; do
		read -r _ name _ <<<"$line"
		file=${name%%.*}
		log=$LOGS/$name.again.log
		if [[ $name = */* || $name != *.* ]] || has "$file" alone || has "$file" strict; then
			still+=("$line")
			continue
		fi
		echo "AGAIN $name: it failed beside other tests"
		if pass_once "$file" "${name#*.}" >"$log" 2>&1 && pass_once "$file" "${name#*.}" >>"$log" 2>&1; then
			only_alone+=("$line")
			passed=$((passed + 1)) failed=$((failed - 1))
		else
			still+=("$line")
			grep '^FAIL ' "$log"
		fi
	done
	failures=("${still[@]}")
}

# True if the test of the file passes.
pass_once() {
	local out
	out=$(PYTHONDONTWRITEBYTECODE=1 timeout -k 10 900 python3 "tests/e2e/$1.py" "$2" 2>&1 </dev/null 9>&-)
	echo "$out"
	grep -q "^PASS $1\.$2 " <<<"$out" && ! grep -q '^FAIL ' <<<"$out"
}

[ $# -gt 0 ] || set -- "${ALL[@]}"
together=() alone=()
for what; do
	if has "$what" alone; then
		alone+=("$what")
	elif [ "$what" = http ]; then
		together+=("${HTTP[@]}")
	else
		together+=("$what")
	fi
done
run_together "${together[@]}"
for what in "${alone[@]}"; do
	run_alone "$what"
done
[ ${#together[@]} -lt 2 ] || run_failed_again

# show TITLE LINE...: the lines, if there are any.
show() {
	[ $# -lt 2 ] || printf '%s\n' "$1"
	shift
	[ $# = 0 ] || printf '  %.300s\n' "$@"
}

status=0
[ $failed = 0 ] || status=1
if grep -hq "^SKIP $MAIN_PATH" "$LOGS"/test_exact.log 2>/dev/null; then
	echo "the main path, $MAIN_PATH, was skipped: nothing is proved"
	status=1
fi
[ $((passed + failed)) -gt 0 ] || status=1
show "failed beside other tests, passed twice alone:" "${only_alone[@]}"
show "failed (logs are in $LOGS):" "${failures[@]}"
if [ $skipped = 0 ]; then
	echo "$passed passed, $failed failed"
else
	echo "$passed passed, $failed failed, $skipped skipped"
fi
exit $status

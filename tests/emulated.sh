#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#
# Runs the unit tests of a cross build under the emulator of programs (make test-emulated), one line each for those that fail, and
# ends with "N passed, N failed, N left out". usage: emulated.sh EMULATOR...; OUTPUT: the folder of the build.
set -u
cd "$(dirname "$0")/.." || exit 1

# These ask the kernel for what the emulator does not pass on: other processes' memory, the files behind mappings, ptrace, filters of
# system calls, children that the test starts as this program. Machines with a kernel of their own run what they test: tests/kernels.
LEFT_OUT="bpf/test_walk capture/test_inside capture/test_seccomp census/test_census lib/test_subprocess nvml/test_gpus process/test_elf
	process/test_proc process/test_ptrace_hold process/test_usdt python/test_pyobj_live python/test_python_ended python/test_python_fake
	python/test_python_live replay/test_replay_plan serve/test_sandbox serve/test_sandbox_terminal torch/test_cuda torch/test_torch"
passed=0 failed=0 left=0

for test in "$OUTPUT"/tests/unit/*/test_* "$OUTPUT"/tests/unit/*/*/test_*; do
	[ -x "$test" ] && [ -f "$test" ] || continue
	name=${test#"$OUTPUT"/tests/unit/}
	case " $(echo $LEFT_OUT) " in
	*" $name "*)
		left=$((left + 1))
		continue
		;;
	esac
	mkdir -p "$OUTPUT/test-logs"
	log=$OUTPUT/test-logs/emulated-${name//\//-}.log
	if timeout 300 "$@" "$test" >"$log" 2>&1; then
		passed=$((passed + 1))
	else
		failed=$((failed + 1))
		echo "FAIL $name, see $log"
	fi
done
echo "$passed passed, $failed failed, $left left out"
[ $failed = 0 ] && [ $passed -gt 50 ]

#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#
# Tests the packages in $OUTPUT/packages. A line for each test; ends with "N passed, N failed[, N skipped]". `make test-packages` makes
# the packages first.
#
#   tests/packages/run.sh                  all
#   tests/packages/run.sh test_deb ...     these files only
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1

export OUTPUT=${OUTPUT:-.output-static}
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if [ $# = 0 ]; then
	mapfile -t all < <(basename -as .py tests/packages/test_*.py)
	set -- "${all[@]}"
fi
broken=0
for name; do
	PYTHONDONTWRITEBYTECODE=1 "tests/packages/$name.py" 2>&1 | tee -a "$log"
	case ${PIPESTATUS[0]} in
	0 | 1 | 77) ;;
	*) broken=$((broken + 1)) ;;
	esac
done
passed=$(grep -c '^PASS ' "$log") failed=$(($(grep -c '^FAIL ' "$log") + broken)) skipped=$(grep -c '^SKIP ' "$log")
echo "$passed passed, $failed failed$([ "$skipped" = 0 ] || echo ", $skipped skipped")"
[ $failed = 0 ]

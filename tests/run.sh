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
# Two at a time, longest first: most of a file's time is spent waiting for a job.
E2E=(test_windows test_dump test_long test_tui test_leaks test_run test_backward test_dryrun_libs test_category test_errors test_truth test_census test_train test_layers
	test_children test_many test_page_data test_page test_attribution test_windows_live test_dryrun test_walk test_foreign test_formats test_calls test_exact test_hostile test_privileges

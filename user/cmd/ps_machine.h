/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* ps --machine: the ledger of the machine's memory, with the largest processes and files. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PS_MACHINE_PATHS 32

struct ps_machine_args {
	const char *paths[PS_MACHINE_PATHS]; /* --files: files and folders in the page cache */
	size_t n_paths;
	bool json, watch;
	uint64_t interval, count; /* --interval in ns; with watch: ledgers, 0: no end */
};

/* Prints the ledgers. Logs errors. Returns the exit code. */
int ps_machine__run(const struct ps_machine_args *args);

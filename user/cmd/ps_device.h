/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* ps --device: the table of each GPU, with all that hold its memory. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cond;

#define PS_DEVICE_CONDS 16

struct ps_device_args {
	const char *device; /* number, or start of a UUID; NULL: all */
	uint64_t idle;	    /* --idle, ns; 0: not given */
	bool orphans;	    /* only processes that are probably left over */
	struct cond *conds[PS_DEVICE_CONDS];
	size_t n_conds;
	bool json, watch;
	uint64_t interval, count; /* --interval in ns; with watch: lists, 0: no end */
};

/* Prints the tables. Logs errors. Returns the exit code. */
int ps_device__run(const struct ps_device_args *args);

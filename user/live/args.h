/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* The live view (memtrace-bpf -p PID) and its options. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "capture/capture_args.h"
#include "live/rows/rows.h"
#include "report/filter.h"
#include "report/text.h"

enum live_format { LIVE_SCREEN /* LIVE_SCREEN needs a terminal */, LIVE_TEXT, LIVE_JSON };

struct live_args {
	struct capture_args capture;
	enum live_format format;
	uint64_t interval; /* refresh interval in ns; 0: not given */
	uint64_t count;	   /* number of outputs of text or JSON; 0: no limit */
	size_t top;	   /* rows of text and JSON; 0: all */
	enum live_by by;
	enum live_sort sort;
	enum frame_choice which_line;
	struct report_select select; /* filter of the rows */
	enum report_choice colour;
	bool no_mouse;
};

/*
 * Runs the live view until its end, for LIVE_SCREEN without a count and on a suitable terminal.
 * Otherwise prints a block of text or JSON every interval. Prints a summary at the end. Sets
 * args->interval if it is 0. Logs errors. Returns the exit code.
 */
int live__run(struct live_args *args);

/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_LIVE_ARGS_H
#define MT_LIVE_ARGS_H
/* What memtrace-bpf -p PID is asked for. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "capture_args.h"
#include "live/rows.h"
#include "live/state.h"
#include "report_filter.h"
#include "report_text.h"

struct live_args {
	struct capture_args capture;
	uint64_t interval; /* ns */
	bool interval_given, plain;
	size_t top;
	enum report_choice colour;
	enum live_view view;
	enum live_sort sort;
};

struct guard;

/* On a terminal: the view, to the end of it. Exit code, logged. */
int live_view__run(const struct live_args *args, struct guard *g);
/* A block of text every interval, then the summary. Exit code, logged. */
int live_plain__run(const struct live_args *args);

#endif

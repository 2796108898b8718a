/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_LIVE_ARGS_H
#define MT_LIVE_ARGS_H
/* What memtrace-bpf -p PID is asked for. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "follow/capture_args.h"
#include "live/rows.h"
#include "report/filter.h"
#include "report/text.h"

enum live_format { LIVE_SCREEN /* where there is one */, LIVE_TEXT, LIVE_JSON };

struct live_args {
	struct capture_args capture;
	enum live_format format;
	uint64_t interval; /* ns; 0: not given */
	uint64_t count;	   /* intervals, 0: no bound */
	size_t top;	   /* rows of text and JSON, 0: all */
	enum live_by by;
	enum live_sort sort;
	bool innermost;
	struct report_select select;
	enum report_choice colour;
};

struct tty_restore;

/* On a terminal: the view, to the end of it. Exit code, logged. */
int live_view__run(const struct live_args *args, struct tty_restore *g);
/* A block of text every interval, then the summary. Exit code, logged. */
int live_plain__run(const struct live_args *args);

#endif

/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* The live view without a screen. */
#include <stddef.h>
#include <stdio.h>

#include "live/rows/proc.h"

struct live_args;

/* Prints a block of text or JSON every args->interval, and a summary at the end. Logs errors.
 * Returns the exit code. */
int live_plain__run(const struct live_args *args);

/* ---- for tests ---- */

struct live_table {
	enum live_sort sort;
	size_t top; /* number of rows; 0: all */
	const struct report_select *select;
};

/* True if row i is not printed, because t->top rows are. Rows for filtered memory always are. */
static inline bool live_table__cuts(const struct live_table *t, size_t i, const struct live_row *r)
{
	return t->top && i >= t->top && !r->row.filtered;
}

/* Prints the process as one line of JSON, whose keys docs/reference/live.md describes, with the
 * sorted rows of the last refresh. end: reason for the last line, "" if more follow. The caller
 * checks `out` for errors. Returns 0 or -ENOMEM. */
int live_plain__json_line(FILE *out, const struct live_proc *p, const struct live_table *t,
			  const char *end);

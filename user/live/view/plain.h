/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* JSON of a live view, for its test: one object per line and interval. docs/reference/live.md
 * describes the keys. */
#include <stddef.h>
#include <stdio.h>

#include "live/rows/proc.h"

struct live_table {
	enum live_sort sort;
	size_t top; /* number of rows; 0: all */
	const struct report_select *select;
};

/* True if row i is beyond the limit. Rows for filtered memory are always shown. */
static inline bool live_table__cuts(const struct live_table *t, size_t i, const struct live_row *r)
{
	return t->top && i >= t->top && !r->row.filtered;
}

/* Prints the process as JSON, with the sorted rows of the last refresh. end: reason for the last
 * line, "" if more follow. The caller checks `out` for errors. Returns 0 or -ENOMEM. */
int live_plain__json_line(FILE *out, const struct live_proc *p, const struct live_table *t,
			  const char *end);

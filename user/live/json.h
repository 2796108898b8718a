/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_LIVE_JSON_H
#define MT_LIVE_JSON_H
/* A live view for programs: an object on a line of its own every interval. docs/LIVE.md has the
 * keys. */
#include <stddef.h>
#include <stdio.h>

#include "live/proc.h"

struct live_table {
	enum live_sort sort;
	size_t top; /* rows; 0: all */
	const struct report_select *select;
};

/* Is this row, the i-th, beyond those that are wanted? What a filter leaves out is always told of. */
static inline bool live_table__cuts(const struct live_table *t, size_t i, const struct live_row *r)
{
	return t->top && i >= t->top && !r->row.filtered;
}

/*
 * The process as it is now; its rows are those of the last refresh, sorted. end: why no more comes,
 * "" : it goes on. Errors of out are the caller's to check. 0 or -ENOMEM.
 */
int live_json__line(FILE *out, const struct live_proc *p, const struct live_table *t,
		    const char *end);
/* The same for people: two lines, and a table. who: several processes are shown. */
int live_text__block(FILE *out, const struct live_proc *p, const struct live_table *t, bool who,
		     int width);

#endif

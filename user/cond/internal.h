/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_COND_INTERNAL_H
#define MT_COND_INTERNAL_H
/* What parse.c (a condition from its text) and cond.c (what is fed and judged) share. */
#include "cond/cond.h"
#include "cond/growth.h"

#define MOST_TERMS 32

enum op { OP_GT, OP_GE, OP_LT, OP_LE, OP_EQ, OP_NE };
#define OP_NR (OP_NE + 1)
extern const char *const cond_ops[OP_NR]; /* ">=" */

struct cond_figure_info {
	const char *name;
	enum cond_unit unit;
	enum cond_figure of; /* what the growth is of */
};
extern const struct cond_figure_info cond_figures[COND_NR];

struct term {
	enum cond_figure figure;
	enum op op;
	bool percent;
	uint64_t limit; /* bytes, ns, a count; with percent: over den */
	uint64_t den;
	bool ends;		       /* of those that "and" joins, it is the last one */
	struct growth_window window;   /* of growth */
	struct growth_series **series; /* as they come up, COND_SERIES at most */
	size_t nseries;
};

struct cond {
	char *text;
	struct term terms[MOST_TERMS];
	size_t n;
};

static inline bool is_growth(enum cond_figure f)
{
	return f >= COND_GROWTH;
}

#endif

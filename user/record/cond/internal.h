/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Declarations shared by parse.c (parsing) and cond.c (feeding and judging). */
#include "record/cond.h"
#include "record/cond/growth.h"

#define MOST_TERMS 32

enum op { OP_GT, OP_GE, OP_LT, OP_LE, OP_EQ, OP_NE };
#define OP_NR (OP_NE + 1)
extern const char *const cond_ops[OP_NR]; /* text of each operator, such as ">=" */

struct cond_figure_info {
	const char *name;
	enum cond_unit unit;
	enum cond_figure of; /* figure whose growth this one is */
};
extern const struct cond_figure_info cond_figures[COND_NR];

struct term {
	enum cond_figure figure;
	enum op op;
	bool percent;
	uint64_t limit; /* bytes, ns or a count; with percent, limit / den is the percentage */
	uint64_t den;
	bool ends;		     /* true for the last term of a group joined by "and" */
	struct growth_window window; /* window of a growth figure */
	/* Series by number, created on demand, at most COND_SERIES. */
	struct growth_series **series;
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

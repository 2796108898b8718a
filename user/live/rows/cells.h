/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Columns and cell texts of a live table, for screen and text output. */
#include <stdbool.h>

#include "live/rows/rows.h"

struct facts;
struct growth_summary;

enum live_col {
	COL_LIVE,
	COL_SHARE,
	COL_PEAK,
	COL_GROWTH,
	COL_ALLOCS,
	COL_CHURN,
	COL_CATEGORY,
	COL_NR
};

struct live_column {
	const char *title;
	int width;
	int sort; /* enum live_sort that the column shows; -1: not sortable */
	bool left;
};
extern const struct live_column live_columns[COL_NR];

/* True if a table of this width shows the column: it fits, and rows of this grouping have values
 * for it. The column that the table is sorted by is always shown. */
bool live_cells__shown(enum live_by by, enum live_sort sort, int width, enum live_col c);
int live_cells__module_width(enum live_by by, int width); /* 0: no module column */
/* Title of a column. r may be NULL, if there are no rows yet. */
const char *live_cells__title(enum live_col c, const struct live_rows *r);
/* Text of a cell: static, or in buf, which has 24 bytes. */
const char *live_cells__text(char *buf, enum live_col c, const struct live_row *r,
			     const struct live_rows *all);
/* Writes the name of a row (line, function, module or category), clean and cut to width columns.
 * tree: indents it below its parent. growth: the device's growth, so that a growing line gets a
 * mark; may be NULL. buf has REPORT_TEXT bytes. Returns buf. */
char *live_cells__where(char *buf, enum live_by by, const struct facts *f, const struct live_row *r,
			const struct growth_summary *growth, int width, bool tree);
const char *live_cells__where_title(enum live_by by);

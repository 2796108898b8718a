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

/* True if the column fits into width and has values in such rows. The sort column is always
 * shown. */
bool live_cells__shown(enum live_by by, enum live_sort sort, int width, enum live_col c);
int live_cells__module_width(enum live_by by, int width); /* 0: no module column */
/* Title of a column; NULL: no rows yet. */
const char *live_cells__title(enum live_col c, const struct live_rows *r);
/* Text of a cell: static, or written to buf of 24 bytes. */
const char *live_cells__text(char *buf, enum live_col c, const struct live_row *r,
			     const struct live_rows *all);
/* Cleaned name of a row (line, function, module or category), cut to width columns. tree:
 * indented below its parent. growth: of the device; a growing line gets a mark; NULL: none. buf of
 * REPORT_TEXT bytes. */
char *live_cells__where(char *buf, enum live_by by, const struct facts *f, const struct live_row *r,
			const struct growth_summary *growth, int width, bool tree);
const char *live_cells__where_title(enum live_by by);

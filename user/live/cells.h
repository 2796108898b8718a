/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_LIVE_CELLS_H
#define MT_LIVE_CELLS_H
/* The columns of a live table and what stands in them, on a screen and as text alike. */
#include <stdbool.h>
#include <stddef.h>

#include "live/rows.h"

struct facts;

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
	int sort; /* enum live_sort, -1: by none */
	bool left;
};
extern const struct live_column live_columns[COL_NR];

/* Is there room for it, and has it anything to say? What is sorted by is always there. */
bool live_cells__shown(enum live_by by, enum live_sort sort, int width, enum live_col c);
int live_cells__module_width(enum live_by by, int width); /* 0: no column for it */
/* buf of 24; or static. */
const char *live_cells__text(char *buf, enum live_col c, const struct live_row *r,
			     const struct live_rows *all);
/* What the row is of, cleaned, in at most so many columns; tree: it stands under what it is in. buf
 * of REPORT_TEXT. */
char *live_cells__where(char *buf, enum live_by by, const struct facts *f, const struct live_row *r,
			int width, bool tree);
const char *live_cells__where_title(enum live_by by);

#endif

/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "live/rows/cells.h"

#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "live/rows/words.h"
#include "model/growth_summary.h"
#include "model/words.h"

/* Titles, widths in columns of the screen, and what a click on the title sorts by; -1: nothing. */
const struct live_column live_columns[COL_NR] = {
	[COL_LIVE] = { "LIVE", 9, SORT_LIVE, false },
	[COL_SHARE] = { "%LIVE", 5, -1, false },
	[COL_PEAK] = { "AT PEAK", 9, SORT_PEAK, false },
	[COL_GROWTH] = { "GROWTH/STEP", 11, SORT_GROWTH, false },
	[COL_ALLOCS] = { "ALLOCS/S", 8, SORT_ALLOCS, false },
	[COL_CHURN] = { "BYTES/S", 9, SORT_CHURN, false },
	[COL_CATEGORY] = { "ROLE", 15, -1, true },
};

/* The column that the rows are sorted by is always shown. Others need a screen of min_width
 * columns. */
bool live_cells__shown(enum live_by by, enum live_sort sort, int width, enum live_col c)
{
	static const int min_width[COL_NR] = {
		[COL_SHARE] = 48, [COL_PEAK] = 72, [COL_ALLOCS] = 92, [COL_CHURN] = 110, [COL_CATEGORY] = 96
	};

	if (live_columns[c].sort == (int)sort)
		return true;
	/* The category of freed blocks is not known, so category rows have no rates. A module
	 * row covers several categories. */
	if (by == LIVE_CATEGORY && (c == COL_CATEGORY || c == COL_ALLOCS || c == COL_CHURN))
		return false;
	if (by == LIVE_LAYER && c == COL_CATEGORY)
		return false;
	/* Sorted by bytes per second, a narrow screen shows these in place of the allocations. */
	if (c == COL_ALLOCS && sort == SORT_CHURN && width < min_width[COL_CHURN])
		return false;
	return width >= min_width[c];
}

/* Narrow screens have no column for the module: the line of code is more useful. */
int live_cells__module_width(enum live_by by, int width)
{
	if ((by != LIVE_LINE && by != LIVE_FUNCTION) || width < 128)
		return 0;
	return width >= 150 ? 36 : 26;
}

const char *live_cells__text(char *buf, enum live_col c, const struct live_row *r,
			     const struct live_rows *all)
{
	bool has_rates = r->rates_known && !r->row.before_attach;

	switch (c) {
	case COL_LIVE:
		return live__bytes(buf, r->row.bytes);
	case COL_SHARE:
		return live__share(buf, r->row.bytes, all->total);
	case COL_PEAK:
		return r->at_peak ? live__bytes(buf, r->at_peak) : "0";
	case COL_GROWTH:
		return r->pace_known ? live__change(buf, r->pace) : "-";
	case COL_ALLOCS:
		return has_rates ? live__rate(buf, r->allocs) : "-";
	case COL_CHURN:
		return has_rates ? live__bytes(buf, (uint64_t)r->churn) : "-";
	default:
		return r->row.bytes ? words__role(r->row.category) : "";
	}
}

const char *live_cells__title(enum live_col c, const struct live_rows *r)
{
	return c == COL_GROWTH && r && r->growth_known && !r->by_steps ? "GROWTH/MIN"
								       : live_columns[c].title;
}

/* Writes "forward (model.py)", cut at the front to width characters. Returns buf. */
static char *function_words(char *buf, const struct row *r, int width)
{
	char name[REPORT_TEXT / 4], file[REPORT_TEXT / 4];
	const char *base = strrchr(r->file, '/');

	base = base ? base + 1 : r->file;
	text__clean(name, sizeof(name), r->func, strlen(r->func));
	text__clean(file, sizeof(file), base, strlen(base));
	snprintf(buf, REPORT_TEXT, "%s (%s)", name, file);
	return words__cut_front(buf, (size_t)width);
}

#define INDENT_DEEPEST 32 /* deeper modules are not indented more */
#define NAME_LEAST 4	  /* characters of a module's name, at least */

/* Writes "- attn (Attention)", indented below its parent. "-": unfolded, "+": folded. buf:
 * REPORT_TEXT bytes. Returns buf. */
static char *tree_words(char *buf, const struct live_row *r, int width)
{
	int indent = 2 * (int)(r->depth < INDENT_DEEPEST ? r->depth : INDENT_DEEPEST);

	int room; /* characters for the name, after the mark and a space */
	char mark = r->open ? '-' : '+';

	/* Bytes of the parent's name at the beginning of the module's name. */
	size_t skip = r->under && *r->under ? strlen(r->under) + 1 : 0;
	struct row row = r->row;
	char name[REPORT_TEXT];

	indent = indent > width / 2 ? width / 2 : indent;
	if (row.module && strlen(row.module) > skip)
		row.module += skip;
	room = width - indent - 2;
	words__where(name, &row, BY_LAYER, /*cwd=*/NULL,
		     (size_t)(room > NAME_LEAST ? room : NAME_LEAST));
	snprintf(buf, REPORT_TEXT, "%*s%c %.*s", indent, "", r->has_inside ? mark : ' ',
		 REPORT_TEXT - 80, name);
	return buf;
}

#define MARK_SHORT 10 /* columns of "  <- grows" */
#define MARKED_MIN 12 /* minimum columns of a line before a mark */

/* Writes the row's line of code and, if the line grows, a mark such as "  <- grows". buf:
 * REPORT_TEXT bytes. Returns buf. */
static char *line_words(char *buf, const struct facts *f, const struct live_row *r,
			const struct growth_summary *growth, int width)
{
	const struct growth_line *line = growth ? growth_summary__line(growth, &r->row) : NULL;
	bool marked = line && width >= MARKED_MIN + MARK_SHORT;
	char mark[GROWTH_SUMMARY_MARK];
	size_t used;

	words__where(buf, &r->row, BY_LINE, facts__get(f, "cwd"),
		     (size_t)width - (marked ? MARK_SHORT : 0));
	if (!marked)
		return buf;
	used = text__width(buf) + 2;
	growth_summary__mark(growth, line, (size_t)width - used, mark);
	snprintf(buf + strlen(buf), REPORT_TEXT - strlen(buf), "  %s", mark);
	return buf;
}

char *live_cells__where(char *buf, enum live_by by, const struct facts *f, const struct live_row *r,
			const struct growth_summary *growth, int width, bool tree)
{
	static const enum group groups[LIVE_BY_NR] = { [LIVE_LINE] = BY_LINE,
						       [LIVE_FUNCTION] = BY_LINE,
						       [LIVE_MODULE] = BY_MODULE,
						       [LIVE_CATEGORY] = BY_CATEGORY,
						       [LIVE_LAYER] = BY_LAYER };

	if (r->row.filtered)
		return words__cut(strcpy(buf, "(what the filter leaves out)"), (size_t)width);
	if (by == LIVE_FUNCTION && r->row.file)
		return function_words(buf, &r->row, width);
	if (by == LIVE_LAYER && tree)
		return tree_words(buf, r, width);
	if (by == LIVE_LINE && r->holders) {
		snprintf(buf, REPORT_TEXT, "before attach: %s", r->holders);
		return words__cut(buf, (size_t)width);
	}
	if (by == LIVE_LINE)
		return line_words(buf, f, r, growth, width);
	return words__where(buf, &r->row, groups[by], facts__get(f, "cwd"), (size_t)width);
}

const char *live_cells__where_title(enum live_by by)
{
	static const char *const titles[LIVE_BY_NR] = { [LIVE_LINE] = "LINE",
							[LIVE_FUNCTION] = "FUNCTION",
							[LIVE_MODULE] = "MODULE",
							[LIVE_CATEGORY] = "ROLE",
							[LIVE_LAYER] = "MODULE, WITH ALL INSIDE" };

	return titles[by];
}

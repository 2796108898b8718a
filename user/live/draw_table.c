/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The table of lines, functions, modules, categories: what lives, what share, how it grew, how much comes a second. */
#include "live/paint.h"

#include <stdio.h>
#include <string.h>

#include "lib/text.h"
#include "live/state.h"
#include "live/words.h"
#include "report_words.h"

enum { COL_LIVE, COL_SHARE, COL_PEAK, COL_GROWTH, COL_ALLOCS, COL_CHURN, COL_CATEGORY, COL_NR };

static const struct {
	const char *title;
	int width, least; /* least: columns of the screen */
	int sort;	  /* -1: by none */
	bool left;
} columns[COL_NR] = {
	[COL_LIVE] = { "LIVE", 9, 0, SORT_LIVE, false },
	[COL_SHARE] = { "%LIVE", 5, 0, -1, false },
	[COL_PEAK] = { "AT PEAK", 9, 72, SORT_PEAK, false },
	[COL_GROWTH] = { "GROWTH", 10, 0, SORT_GROWTH, false },
	[COL_ALLOCS] = { "ALLOCS/S", 8, 64, SORT_ALLOCS, false },
	[COL_CHURN] = { "BYTES/S", 9, 100, SORT_CHURN, false },
	[COL_CATEGORY] = { "CATEGORY", 15, 96, -1, true },
};

#define MODULE_FROM 128 /* columns of the screen that there is one for the module from */

/* Where rows say so themselves, or for want of room, a column is left out. What is sorted by is always there. */
static bool is_shown(const struct paint *p, const struct live_state *s, int c)
{
	if (columns[c].sort == (int)s->sort)
		return true;
	if (s->view == VIEW_CATEGORIES && (c == COL_CATEGORY || c == COL_ALLOCS || c == COL_CHURN))
		return false;
	if (s->view == VIEW_TREE && c == COL_CATEGORY)
		return false;
	if (c == COL_ALLOCS && s->sort == SORT_CHURN && p->columns < columns[COL_CHURN].least)
		return false;
	return p->columns >= columns[c].least;
}

static const char *title(const struct live_state *s)
{
	static const char *const titles[VIEW_NR] = { [VIEW_LINES] = "LINE", [VIEW_MODULES] = "MODULE",
						     [VIEW_CATEGORIES] = "CATEGORY", [VIEW_TREE] = "MODULE, WITH ALL INSIDE" };

	return s->view == VIEW_LINES && s->by_function ? "FUNCTION" : titles[s->view];
}

static int module_width(const struct paint *p, const struct live_state *s)
{
	return s->view != VIEW_LINES || p->columns < MODULE_FROM ? 0 : p->columns >= 150 ? 36 : 26;
}

static void draw_titles(struct paint *p, const struct live_state *s, int y)
{
	int x = 0, module = module_width(p, s);

	paint__fill(p, y, 0, p->columns, INK_BAR);
	for (int c = 0; c < COL_NR; c++) {
		enum ink ink = columns[c].sort == (int)s->sort ? INK_BAR_ON : INK_BAR;

		if (!is_shown(p, s, c))
			continue;
		(columns[c].left ? (void)paint__put(p, y, x, columns[c].width, ink, columns[c].title) :
				   paint__right(p, y, x, columns[c].width, ink, columns[c].title));
		x += columns[c].width + 1;
	}
	if (module) {
		paint__put(p, y, x + 1, module, INK_BAR, "MODULE");
		x += module + 1;
	}
	paint__put(p, y, x + 1, p->columns - x - 1, INK_BAR, title(s));
}

static enum ink growth_ink(const struct live_row *r, int64_t most)
{
	if (!r->growth_known || !r->growth)
		return INK_PLAIN;
	if (r->growth < 0)
		return INK_SHRANK;
	return r->growth == most ? INK_GREW_MOST : INK_GREW;
}

static const char *cell(char *buf, int c, const struct live_row *r, const struct live_rows *all)
{
	switch (c) {
	case COL_LIVE:
		return live__bytes(buf, r->row.bytes);
	case COL_SHARE:
		return live__share(buf, r->row.bytes, all->total);
	case COL_PEAK:
		return r->at_peak ? live__bytes(buf, r->at_peak) : "0";
	case COL_GROWTH:
		return r->growth_known ? live__change(buf, r->growth) : "-";
	case COL_ALLOCS:
		return r->rates_known && !r->row.before_attach ? live__rate(buf, r->allocs) : "-";
	case COL_CHURN:
		return r->rates_known && !r->row.before_attach ? live__bytes(buf, (uint64_t)r->churn) : "-";
	default:
		return r->row.before_attach && !r->row.category ? "" : r->row.category ? r->row.category :
		       r->row.bytes					    ? "(several)" : "";
	}
}

static void where(char *buf, const struct live_state *s, const struct live_proc *proc, const struct live_row *r, int width)
{
	static const enum group by[VIEW_NR] = { [VIEW_LINES] = BY_LINE, [VIEW_MODULES] = BY_MODULE,
						[VIEW_CATEGORIES] = BY_CATEGORY, [VIEW_TREE] = BY_LAYER };
	char name[REPORT_TEXT / 4], file[REPORT_TEXT / 4];

	if (r->row.filtered) {
		snprintf(buf, REPORT_TEXT, "(what the filter leaves out)");
		return;
	}
	if (s->view == VIEW_LINES && s->by_function && r->row.file) {
		const char *base = strrchr(r->row.file, '/');

		base = base ? base + 1 : r->row.file;
		text__clean(name, sizeof(name), r->row.func, strlen(r->row.func));
		text__clean(file, sizeof(file), base, strlen(base));
		snprintf(buf, REPORT_TEXT, "%s (%s)", name, file);
		report__cut_front(buf, (size_t)width);
		return;
	}
	report__where(buf, &r->row, by[s->view], facts__get(proc->facts, "cwd"), (size_t)width);
}

static void draw_row(struct paint *p, const struct live_state *s, const struct live_proc *proc, const struct live_row *r, int y,
		     bool selected, int64_t most)
{
	int x = 0, module = module_width(p, s);
	char buf[24], text[REPORT_TEXT];

	if (selected)
		paint__fill(p, y, 0, p->columns, INK_SELECTED);
	for (int c = 0; c < COL_NR; c++) {
		enum ink ink = selected		 ? INK_SELECTED :
			       c == COL_GROWTH	 ? growth_ink(r, most) :
			       c == COL_LIVE	 ? INK_BOLD : INK_PLAIN;

		if (!is_shown(p, s, c))
			continue;
		if (columns[c].left)
			paint__put(p, y, x, columns[c].width, ink, cell(buf, c, r, &proc->rows));
		else
			paint__right(p, y, x, columns[c].width, ink, cell(buf, c, r, &proc->rows));
		x += columns[c].width + 1;
	}
	if (module) {
		report__cut_front(report__module(text, &r->row), (size_t)module);
		paint__put(p, y, x + 1, module, selected ? INK_SELECTED : INK_DIM, text);
		x += module + 1;
	}
	if (p->columns - x - 1 < 4)
		return;
	where(text, s, proc, r, p->columns - x - 1);
	paint__put(p, y, x + 1, p->columns - x - 1, selected ? INK_SELECTED : INK_PLAIN, text);
}

static int64_t most_growth(const struct live_rows *r)
{
	int64_t most = 0;

	for (size_t i = 0; i < r->n; i++)
		most = r->all[i].growth_known && r->all[i].growth > most ? r->all[i].growth : most;
	return most;
}

void draw_table(struct paint *p, struct live_state *s, int y, int rows)
{
	const struct live_proc *proc = live_state__proc(s);
	size_t page = rows > 1 ? (size_t)rows - 1 : 0;
	int64_t most;

	p->table_rows = (int)page;
	draw_titles(p, s, y++);
	if (!proc || !page)
		return;
	most = most_growth(&proc->rows);
	if (s->selected < s->first)
		s->first = s->selected;
	else if (s->selected >= s->first + page)
		s->first = s->selected - page + 1;
	for (size_t i = s->first; i < proc->rows.n && i < s->first + page; i++)
		draw_row(p, s, proc, &proc->rows.all[i], y++, i == s->selected, most);
}

/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The table of lines, functions, modules or categories with bytes, share, growth and rate. */
#include "live/screen/paint.h"

#include "live/rows/cells.h"
#include "live/rows/state.h"
#include "model/words.h"

static void put(struct paint *p, int y, int x, enum live_col c, enum ink ink, const char *text)
{
	if (live_columns[c].left)
		paint__put(p, y, x, live_columns[c].width, ink, text);
	else
		paint__right(p, y, x, live_columns[c].width, ink, text);
}

static void draw_titles(struct paint *p, const struct live_state *s, enum live_by by, int y)
{
	static const int keys[SORT_NR] = { [SORT_LIVE] = 't',
					   [SORT_PEAK] = 'p',
					   [SORT_GROWTH] = 'd',
					   [SORT_CHURN] = 'c',
					   [SORT_ALLOCS] = 'a' };
	int x = 0, module = live_cells__module_width(by, p->columns);

	paint__fill(p, y, INK_BAR);
	for (int c = 0; c < COL_NR; c++) {
		if (!live_cells__shown(by, s->sort, p->columns, c))
			continue;
		put(p, y, x, c, live_columns[c].sort == (int)s->sort ? INK_BAR_ON : INK_BAR,
		    live_cells__title(c, live_state__table(s)));
		if (live_columns[c].sort >= 0 && !s->typing)
			paint__hit(p, y, x, live_columns[c].width, keys[live_columns[c].sort]);
		x += live_columns[c].width + 1;
	}
	if (module) {
		paint__put(p, y, x + 1, module, INK_BAR, "MODULE");
		x += module + 1;
	}
	paint__put(p, y, x + 1, p->columns - x - 1, INK_BAR, live_cells__where_title(by));
}

static enum ink cell_ink(enum live_col c, const struct live_row *r, int64_t most)
{
	if (c == COL_LIVE)
		return r->row.bytes ? INK_BOLD : INK_DIM;
	if (c != COL_GROWTH || !r->pace_known || !r->pace)
		return INK_PLAIN;
	return r->pace < 0 ? INK_SHRANK : r->growth == most ? INK_GREW_MOST : INK_GREW;
}

static void draw_row(struct paint *p, const struct live_state *s, const struct live_proc *proc,
		     const struct live_row *r, int y, bool selected, int64_t most)
{
	const struct growth_summary *growth = live_proc__growth(proc, live_state__table(s)->device);
	enum live_by by = live_state__by(s);
	int x = 0, module = live_cells__module_width(by, p->columns);
	char buf[24], text[REPORT_TEXT];

	if (selected)
		paint__fill(p, y, INK_SELECTED);
	for (int c = 0; c < COL_NR; c++) {
		if (!live_cells__shown(by, s->sort, p->columns, c))
			continue;
		put(p, y, x, c, selected ? INK_SELECTED : cell_ink(c, r, most),
		    live_cells__text(buf, c, r, live_state__table(s)));
		x += live_columns[c].width + 1;
	}
	if (module) {
		words__cut_front(words__module(text, &r->row), (size_t)module - 1);
		paint__put(p, y, x + 1, module - 1, selected ? INK_SELECTED : INK_DIM, text);
		x += module + 1;
	}
	if (p->columns - x - 1 < 4)
		return;
	live_cells__where(text, by, proc->facts, r, growth, p->columns - x - 1, true);
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
	const struct live_rows *r;
	int64_t most;

	p->table_rows = (int)page;
	draw_titles(p, s, live_state__by(s), y++);
	if (!proc || !page)
		return;
	r = live_state__table(s);
	most = most_growth(r);
	if (s->selected < s->first)
		s->first = s->selected;
	else if (s->selected >= s->first + page)
		s->first = s->selected - page + 1;
	p->rows_y = y;
	p->rows_n = (int)page;
	for (size_t i = s->first; i < r->shown && i < s->first + page; i++)
		draw_row(p, s, proc, &r->all[i], y++, i == s->selected, most);
}

/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Graph of memory over time. Each column is filled up to its highest allocated bytes, brighter up
 * to its lowest ones, and has a line at the reserved bytes. */
#include "live/screen/paint.h"

#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "live/rows/bands.h"
#include "live/rows/graph.h"
#include "live/rows/state.h"
#include "live/rows/words.h"
#include "model/words.h"

#define AXIS 11 /* columns left of the graph for the axis labels */
#define MOST_COLUMNS 512
#define ROWS_WITH_SCOPES 6	       /* least rows of a graph with a row of scopes */
#define AT_LEAST UINT64_C(30000000000) /* shortest span of the graph, in ns */

/* Height of a value, in eighths of a row, in a graph of rows up to the value top. Not 0 unless v
 * is. */
static uint64_t eighths_of(uint64_t v, uint64_t top, int rows)
{
	uint64_t e = (uint64_t)((unsigned __int128)v * (unsigned)rows * 8 / top);

	return v && !e ? 1 : e;
}

/* Draws column x of the screen, from row y on, in `rows` rows. top: bytes at the upper edge. */
static void draw_column(struct paint *p, int x, int y, int rows, const struct graph_column *c,
			uint64_t top)
{
	static const char *const blocks[] = { "",	"\u2581", "\u2582", "\u2583", "\u2584",
					      "\u2585", "\u2586", "\u2587", "\u2588" };
	uint64_t most = eighths_of(c->most, top, rows);
	uint64_t least = eighths_of(c->least, top, rows);
	int line = c->reserved ? (int)((eighths_of(c->reserved, top, rows) - 1) / 8) : -1;

	for (int r = 0; r < rows; r++) {
		/* here: eighths of this row that are filled; held: all the time */
		uint64_t bottom = (uint64_t)r * 8, here = most > bottom ? most - bottom : 0;
		bool held, full = here >= 8;
		const char *sign;

		here = full ? 8 : here;
		held = least >= bottom + here;
		if (here) {
			sign = held ? "#" : ":";
			if (p->unicode)
				sign = full && !held ? "\u2592" : blocks[here];
			paint__put(p, y + rows - 1 - r, x, /*width=*/1,
				   held ? INK_ALLOCATED : INK_WITHIN, sign);
		} else if (r == line) {
			paint__put(p, y + rows - 1 - r, x, /*width=*/1, INK_RESERVED,
				   p->unicode ? "\u2500" : "-");
		}
	}
}

/* Draws the labels of the graph's left edge: top, its half if there is room, and 0. top 0: only 0. */
static void draw_axis(struct paint *p, int y, int rows, uint64_t top)
{
	char text[24];

	/* A label is the value at the upper edge of its row; the lowest label is 0. */
	for (int r = 0; r < rows; r++) {
		bool half = rows >= 4 && r * 2 == rows, zero = r == rows - 1;
		bool label = zero || (top && (r == 0 || half));
		const char *edge = label ? "\u2524" : "\u2502";

		if (label) {
			live__bytes(text, half ? top / 2 : top);
			paint__right(p, y + r, 0, AXIS - 2, INK_DIM, zero ? "0" : text);
		}
		paint__put(p, y + r, AXIS - 1, /*width=*/1, INK_DIM, p->unicode ? edge : "|");
	}
}

/* Draws the time axis, for columns of `width` ns. With marks it has no legend: their arrows are in
 * the same row. */
static void draw_time(struct paint *p, int y, uint64_t width, size_t columns, bool marks)
{
	char ago[24];
	const char *legend = "# always allocated  : at times  - reserved";

	paint__put(p, y, AXIS, /*width=*/14, INK_DIM, live__ago(ago, width * columns));
	paint__right(p, y, p->columns - 4, /*width=*/4, INK_DIM, "now");
	if (marks)
		return;
	if (p->unicode)
		legend = "\u2588 always allocated  \u2592 at times  \u2500 reserved";
	if ((int)text__width(legend) + AXIS + 20 < p->columns)
		paint__put(p, y, AXIS + (p->columns - AXIS - (int)text__width(legend)) / 2,
			   p->columns, INK_DIM, legend);
}

struct marked { /* what the marks need to know of the graph */
	const struct graph_column *c;
	int columns, y, rows; /* size; row of the screen that it begins at */
	uint64_t top;	      /* bytes at the upper edge of the highest row; 0: nothing is drawn */
	int used_from;	      /* the highest row has names of marks from this column on */
};

/* Whether the highest row is free of memory in n columns from x on. */
static bool has_room(const struct marked *m, int x, int n)
{
	for (int i = x; i < x + n; i++)
		if (m->top && m->c[i].known &&
		    eighths_of(m->c[i].most, m->top, m->rows) > (uint64_t)(m->rows - 1) * 8)
			return false;
	return true;
}

/* Draws the name right of its mark if there is room, or left of it. */
static void draw_mark_name(struct paint *p, struct marked *m, int x, const char *name)
{
	int width = (int)text__width(name) + 2, at = x + 1;
	char text[200];

	if (at + width > m->used_from)
		at = x - width;
	if (at < 0 || at + width > m->used_from || !has_room(m, at, width))
		return;
	snprintf(text, sizeof(text), " %s ", name);
	paint__put(p, m->y, AXIS + at, width, INK_BOLD, text);
	m->used_from = at < x ? at : x;
}

/* Draws a mark in column x of the graph: a dotted line, an arrow below it, and its name. raw: the
 * name, not cleaned. */
static void draw_mark(struct paint *p, struct marked *m, int x, const char *raw)
{
	const struct graph_column *c = &m->c[x];
	uint64_t most = m->top && c->known ? eighths_of(c->most, m->top, m->rows) : 0;
	char name[160];

	/* Skip the highest row where it has the name of a later mark. */
	for (int r = x >= m->used_from; r < m->rows; r++)
		if ((uint64_t)(m->rows - 1 - r) * 8 >= most)
			paint__put(p, m->y + r, AXIS + x, /*width=*/1, INK_BOLD,
				   p->unicode ? "\u250a" : "|");
	paint__put(p, m->y + m->rows, AXIS + x, /*width=*/1, INK_BOLD, p->unicode ? "\u25b2" : "^");
	draw_mark_name(p, m, x, text__clean(name, sizeof(name), raw, strlen(raw)));
}

/* Draws the marks from the last one to the first. width: ns of a column. Returns true if the
 * graph's time has any. */
static bool draw_marks(struct paint *p, struct marked *m, const struct live_proc *proc,
		       const struct graph *g, uint64_t width)
{
	const char *name;
	bool any = false;
	uint64_t time;

	for (size_t i = 0; (name = live_proc__mark(proc, i, &time)); i++) {
		int x = graph__column(g, proc->now, width, (size_t)m->columns, time);

		if (x < 0)
			continue;
		draw_mark(p, m, x, name);
		any = true;
	}
	return any;
}

/* Cuts a name to columns. Bands are often narrow, so there is no "..." if the name is ASCII. */
static void cut_name(char *name, size_t columns)
{
	if (strlen(name) != text__width(name))
		words__cut(name, columns);
	else if (strlen(name) > columns)
		name[columns] = '\0';
}

/* Draws the scopes below the time axis: a band with its name, as far as there is room. What all
 * names begin with goes first. */
static void draw_scopes(struct paint *p, int y, const struct model *m, const size_t *scope,
			int columns)
{
	const char *mark = p->unicode ? "\u258f" : "|";
	size_t prefix = live_bands__prefix(m, scope, (size_t)columns);
	char name[REPORT_TEXT], text[MOST_COLUMNS + REPORT_TEXT];
	int used;
	struct model_scope s;

	paint__right(p, y, 0, AXIS - 2, INK_DIM, "scopes");
	for (int i = 0, n; i < columns; i += n) {
		for (n = 1; i + n < columns && scope[i + n] == scope[i];)
			n++;
		if (scope[i] == BAND_UNKNOWN)
			paint__put(p, y, AXIS + i, n < 3 ? n : 3, INK_DIM, "...");
		if (scope[i] >= BAND_UNKNOWN)
			continue;
		model__scope(m, scope[i], &s);
		text__clean(name, sizeof(name), s.name, strlen(s.name));
		if (text__width(name) > (size_t)n - 1)
			text__clean(name, sizeof(name), s.name + prefix, strlen(s.name + prefix));
		cut_name(name, (size_t)n - 1);
		used = 1 + (int)text__width(name);
		snprintf(text, sizeof(text), "%s%s%*s", mark, name, n > used ? n - used : 0, "");
		paint__put(p, y, AXIS + i, n, INK_BAR, text);
	}
}

void draw_graph(struct paint *p, const struct live_state *s, int y, int rows)
{
	struct graph_column c[MOST_COLUMNS];
	const struct live_proc *proc = live_state__proc(s);
	const struct live_graph *g;
	struct model_device d;
	uint64_t top = 0, span = s->span, width;
	struct marked m;
	size_t scope[MOST_COLUMNS];
	int columns = p->columns - AXIS;

	columns = columns > MOST_COLUMNS ? MOST_COLUMNS : columns;
	if (rows < 3 || columns < 8 || live_state__device(s, &d) < 0)
		return;
	g = live_proc__graph(proc, d.device);
	if (!g)
		return;
	/* A capture shorter than AT_LEAST does not fill the graph. */
	if (!span)
		span = proc->now > AT_LEAST ? proc->now : AT_LEAST;
	width = graph__read(g->graph, proc->now, span, c, (size_t)columns);
	for (int i = 0; i < columns; i++) {
		top = c[i].known && c[i].most > top ? c[i].most : top;
		top = c[i].known && c[i].reserved > top ? c[i].reserved : top;
	}
	if (rows >= ROWS_WITH_SCOPES &&
	    live_bands__read(proc->model, proc->now, width, scope, (size_t)columns)) {
		rows--;
		draw_scopes(p, y + rows, proc->model, scope, columns);
	}
	/* A little room above the highest column. */
	top = top ? live__scale(top + top / 64) : 0;
	rows--;
	draw_axis(p, y, rows, top);
	for (int i = 0; top && i < columns; i++)
		if (c[i].known)
			draw_column(p, AXIS + i, y, rows, &c[i], top);
	m = (struct marked){ c, columns, y, rows, top, columns };
	draw_time(p, y + rows, width, (size_t)columns, draw_marks(p, &m, proc, g->graph, width));
}

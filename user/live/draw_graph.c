/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Graph of memory over time: filled up to the allocated bytes, brighter up to a column's lowest
 * value, with a line at the reserved bytes. */
#include "live/paint.h"

#include <stdio.h>

#include "lib/text.h"
#include "live/graph.h"
#include "live/state.h"
#include "live/words.h"

#define AXIS 11 /* columns left of the graph for the axis labels */
#define MOST_COLUMNS 512
#define AT_LEAST UINT64_C(30000000000) /* shortest span of the graph, in ns */

static uint64_t eighths_of(uint64_t v, uint64_t top, int rows)
{
	uint64_t e = (uint64_t)((unsigned __int128)v * (unsigned)rows * 8 / top);

	return v && !e ? 1 : e;
}

static void draw_column(struct paint *p, int x, int y, int rows, const struct graph_column *c,
			uint64_t top)
{
	static const char *const blocks[] = { "",	"\u2581", "\u2582", "\u2583", "\u2584",
					      "\u2585", "\u2586", "\u2587", "\u2588" };
	uint64_t most = eighths_of(c->most, top, rows), least = eighths_of(c->least, top, rows);
	int line = c->reserved ? (int)((eighths_of(c->reserved, top, rows) - 1) / 8) : -1;

	for (int r = 0; r < rows; r++) {
		uint64_t from = (uint64_t)r * 8;
		unsigned here = most > from ? (unsigned)(most - from > 8 ? 8 : most - from) : 0;
		bool held = least >= from + here;

		if (here && p->unicode)
			paint__put(p, y + rows - 1 - r, x, 1, held ? INK_ALLOCATED : INK_WITHIN,
				   here == 8 && !held ? "\u2592" : blocks[here]);
		else if (here)
			paint__put(p, y + rows - 1 - r, x, 1, held ? INK_ALLOCATED : INK_WITHIN,
				   held ? "#" : ":");
		else if (r == line)
			paint__put(p, y + rows - 1 - r, x, 1, INK_RESERVED,
				   p->unicode ? "\u2500" : "-");
	}
}

static void draw_axis(struct paint *p, int y, int rows, uint64_t top)
{
	char text[24];

	/* A label is the value at the upper edge of its row; the lowest label is 0. */
	for (int r = 0; r < rows; r++) {
		bool half = rows >= 4 && r * 2 == rows, zero = r == rows - 1;
		bool label = zero || (top && (r == 0 || half));

		if (label) {
			live__bytes(text, half ? top / 2 : top);
			paint__right(p, y + r, 0, AXIS - 2, INK_DIM, zero ? "0" : text);
		}
		paint__put(p, y + r, AXIS - 1, 1, INK_DIM,
			   p->unicode ? (label ? "\u2524" : "\u2502") : "|");
	}
}

static void draw_time(struct paint *p, int y, uint64_t width, size_t columns)
{
	char ago[24];
	const char *legend = "# always allocated  : at times  - reserved";

	paint__put(p, y, AXIS, 14, INK_DIM, live__ago(ago, width * columns));
	paint__right(p, y, p->columns - 4, 4, INK_DIM, "now");
	if (p->unicode)
		legend = "\u2588 always allocated  \u2592 at times  \u2500 reserved";
	if ((int)text__width(legend) + AXIS + 20 < p->columns)
		paint__put(p, y, AXIS + (p->columns - AXIS - (int)text__width(legend)) / 2,
			   p->columns, INK_DIM, legend);
}

void draw_graph(struct paint *p, const struct live_state *s, int y, int rows)
{
	struct graph_column c[MOST_COLUMNS];
	const struct live_proc *proc = live_state__proc(s);
	const struct graph *g;
	struct model_device d;
	uint64_t top = 0, span = s->span, width;
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
	width = graph__read(g, proc->now, span, c, (size_t)columns);
	for (int i = 0; i < columns; i++) {
		top = c[i].known && c[i].most > top ? c[i].most : top;
		top = c[i].known && c[i].reserved > top ? c[i].reserved : top;
	}
	top = top ? live__scale(top + top / 64) : 0;
	rows--;
	draw_axis(p, y, rows, top);
	for (int i = 0; top && i < columns; i++)
		if (c[i].known)
			draw_column(p, AXIS + i, y, rows, &c[i], top);
	draw_time(p, y + rows, width, (size_t)columns);
}

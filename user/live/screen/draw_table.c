/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The tables: lines, functions, modules or categories with bytes, share, growth and rate; segments;
 * processes. */
#include "live/screen/paint.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "live/rows/cells.h"
#include "live/rows/state.h"
#include "live/rows/words.h"
#include "model/words.h"
#include "report/text.h"

#define HELD_BY 65 /* column of the line that holds most of a segment */

/* Draws a cell in its column's width and alignment. */
static void put_cell(struct paint *p, int y, int x, enum live_col c, enum ink ink, const char *text)
{
	if (live_columns[c].left)
		paint__put(p, y, x, live_columns[c].width, ink, text);
	else
		paint__right(p, y, x, live_columns[c].width, ink, text);
}

/* Draws the titles of a table. A click on one sorts by it. */
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
		put_cell(p, y, x, c, live_columns[c].sort == (int)s->sort ? INK_BAR_ON : INK_BAR,
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

/* The colour of a cell. most: the growth, in bytes, of the row that grew most. */
static enum ink cell_ink(enum live_col c, const struct live_row *r, int64_t most)
{
	if (c == COL_LIVE)
		return r->row.bytes ? INK_BOLD : INK_DIM;
	if (c != COL_GROWTH || !r->pace_known || !r->pace)
		return INK_PLAIN;
	if (r->pace < 0)
		return INK_SHRANK;
	return r->growth == most ? INK_GREW_MOST : INK_GREW;
}

/* Draws a row of memory. most: as for cell_ink(). */
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
		put_cell(p, y, x, c, selected ? INK_SELECTED : cell_ink(c, r, most),
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
	live_cells__where(text, by, proc->facts, r, growth, p->columns - x - 1, /*tree=*/true);
	paint__put(p, y, x + 1, p->columns - x - 1, selected ? INK_SELECTED : INK_PLAIN, text);
}

/* Bytes by which the row that grew most has grown; 0: none has. */
static int64_t most_growth(const struct live_rows *r)
{
	int64_t most = 0;

	for (size_t i = 0; i < r->n; i++)
		most = r->all[i].growth_known && r->all[i].growth > most ? r->all[i].growth : most;
	return most;
}

/* Scrolls so that the selected row is on the page. Returns the page's first row. */
static size_t scroll_to(struct live_state *s, size_t page)
{
	if (s->selected < s->first)
		s->first = s->selected;
	else if (page && s->selected >= s->first + page)
		s->first = s->selected - page + 1;
	return s->first;
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
	p->rows_y = y;
	p->rows_n = (int)page;
	for (size_t i = scroll_to(s, page); i < r->shown && i < s->first + page; i++)
		draw_row(p, s, proc, &r->all[i], y++, i == s->selected, most);
}

/* ---- segments and processes ---- */

/* Draws a segment, and the line that holds most of it. */
static void draw_segment(struct paint *p, const struct live_proc *proc, const struct segment *g,
			 int y, bool selected)
{
	enum ink ink = selected ? INK_SELECTED : INK_PLAIN;
	char a[24], b[24], c[24], d[24], text[160], where[REPORT_TEXT];
	const char *note = g->expandable ? " expandable" : "";
	int x;

	if (selected)
		paint__fill(p, y, INK_SELECTED);
	snprintf(text, sizeof(text), "%12" PRIx64 " %9s %9s %5s %12s %6" PRIu64 " %-5s%s", g->addr,
		 live__bytes(a, g->size), live__bytes(b, g->allocated),
		 live__share(c, g->allocated, g->size), live__bytes(d, g->stuck), g->blocks,
		 words__segment_kind(g), g->foreign ? " foreign" : note);
	x = paint__put(p, y, 0, p->columns, ink, text) + 2;
	x = x < HELD_BY ? HELD_BY : x;
	if (p->columns - x < 8)
		return;
	if (g->npins)
		words__location(where, &g->pins[0], facts__get(proc->facts, "cwd"),
				(size_t)(p->columns - x));
	else
		strcpy(where, "(no block in it)");
	paint__put(p, y, x, p->columns - x, ink, where);
}

void draw_table__segments(struct paint *p, struct live_state *s, int y, int rows)
{
	const struct live_proc *proc = live_state__proc(s);
	const struct model_segments *g = &s->segments;
	uint64_t private = g->private[PRIVATE_GRAPH].free + g->private[PRIVATE_MEMPOOL].free;
	char a[24], b[24], c[24], d[24], text[200], pools[48] = "";
	size_t page = rows > 2 ? (size_t)rows - 2 : 0;

	p->table_rows = (int)page;
	if (!s->has_segments || !g->n) {
		paint__put(p, y, 0, p->columns, INK_DIM,
			   s->segments_err == -EINVAL ? "the CPU allocator has no segments"
						      : "no segment is known so far");
		return;
	}
	if (private)
		snprintf(pools, sizeof(pools), "  for private pools %s", live__bytes(a, private));
	snprintf(text, sizeof(text),
		 "%zu segments  reserved %s  returnable %s  unreturnable %s  largest gap %s%s",
		 g->n, live__bytes(a, g->known), live__bytes(b, g->releasable),
		 live__bytes(c, g->stuck), live__bytes(d, g->largest_gap), pools);
	paint__put(p, y++, 0, p->columns, INK_PLAIN, text);
	paint__fill(p, y, INK_BAR);
	snprintf(text, sizeof(text), "%12s %9s %9s %5s %12s %6s %-5s", "ADDRESS", "SIZE",
		 "ALLOCATED", "USED", "UNRETURNABLE", "BLOCKS", "POOL");
	paint__put(p, y, 0, p->columns, INK_BAR, text);
	paint__put(p, y++, HELD_BY, p->columns - HELD_BY, INK_BAR, "HELD BY");
	p->rows_y = y;
	p->rows_n = (int)page;
	for (size_t i = scroll_to(s, page); i < g->n && i < s->first + page; i++)
		draw_segment(p, proc, &g->all[i], y++, i == s->selected);
}

struct sums { /* over all processes */
	uint64_t allocated, reserved;
	bool reserves, grows; /* reserved, pace: known for at least one process */
	int64_t pace;
	double rate;
};

/* Writes the process's command and its pod or container; or its end. */
static void describe_process(char *buf, size_t size, const struct live_proc *proc, int width)
{
	static const char *const facts[] = { "pod", "container.name", "container" };
	const char *s = NULL;
	char clean[128];

	for (size_t i = 0; i < 3 && (!s || !*s); i++)
		s = facts__get(proc->facts, facts[i]);
	if (proc->ended) {
		snprintf(buf, size, "%s",
			 width < (int)text__width(proc->end) ? "ended" : proc->end);
	} else if (s && *s && width >= 24) {
		words__cut(text__clean(clean, sizeof(clean), s, strlen(s)), /*columns=*/20);
		report_text__command(buf, size, proc->facts,
				     (size_t)width - text__width(clean) - 1);
		snprintf(buf + strlen(buf), size - strlen(buf), " %s", clean);
	} else {
		report_text__command(buf, size, proc->facts, (size_t)width);
	}
}

/* Width of the device column, and of its text; 0 on narrow screens. */
#define DEVICE(p) ((p)->columns < 96 ? 0 : 7)
#define DEVICE_TEXT(p) ((p)->columns < 96 ? 0 : 6)

/* Format of a row of the table of processes, and of its titles. */
#define PROCESS "%c%7s %4s %-*.*s%9s %9s %9s %11s %7s %6s"
#define BEFORE_GROWTH 44 /* columns of a row before GROWTH/STEP, without the device */

/* Draws a process and adds its figures to sums. y: -1 to add only. */
static void draw_process(struct paint *p, const struct live_proc *proc, int y, bool selected,
			 bool chosen, struct sums *sums)
{
	enum ink unselected = proc->ended ? INK_DIM : INK_PLAIN;
	enum ink ink = selected ? INK_SELECTED : unselected;
	const char *rank = facts__get(proc->facts, "rank");
	char allocated[24], reserved[24] = "-", peak[24], growth[24] = "-", rate[24], step[32];
	char pid[16], rank_text[16] = "-", cmd[1024], text[256];
	struct model_device d = { .name = "-" };
	uint64_t steps = proc->ends - proc->base_end;
	bool paced = proc->growth_known && steps;
	int64_t pace = paced ? proc->growth / (int64_t)steps : 0;
	int device = model__main_device(proc->model), x;

	if (device >= 0)
		model__device(proc->model, (size_t)device, &d);
	if (rank)
		text__clean(rank_text, sizeof(rank_text), rank, strnlen(rank, 4));
	sums->allocated += d.allocated;
	sums->reserved += d.reserved;
	sums->reserves |= d.has_totals;
	sums->grows |= paced;
	sums->pace += pace;
	sums->rate += proc->rate;
	snprintf(pid, sizeof(pid), "%d", (int)proc->pid);
	if (selected)
		paint__fill(p, y, INK_SELECTED);
	if (d.has_totals)
		live__bytes(reserved, d.reserved);
	if (paced)
		live__change(growth, pace);
	snprintf(text, sizeof(text), PROCESS, chosen ? '>' : ' ', pid, rank_text, DEVICE(p),
		 DEVICE_TEXT(p), d.name, live__bytes(allocated, d.allocated), reserved,
		 live__bytes(peak, d.peak_allocated), growth,
		 text__count(step, sizeof(step), model__whole_steps(proc->model)),
		 live__rate(rate, proc->rate));
	x = paint__put(p, y, 0, p->columns, ink, text) + 1;
	if (!selected && pace)
		paint__right(p, y, BEFORE_GROWTH + DEVICE(p), /*width=*/11,
			     pace > 0 ? INK_GREW : INK_SHRANK, growth);
	if (p->columns - x < 3)
		return;
	describe_process(cmd, sizeof(cmd), proc, p->columns - x);
	paint__put(p, y, x, p->columns - x, ink, cmd);
}

void draw_table__processes(struct paint *p, struct live_state *s, int y, int rows)
{
	size_t page = rows > 2 ? (size_t)rows - 2 : 0, first;
	struct sums sums = { 0 };
	char allocated[24], reserved[24] = "-", growth[24] = "-", rate[24], text[256];

	p->table_rows = (int)page;
	paint__fill(p, y, INK_BAR);
	snprintf(text, sizeof(text), PROCESS " %s", ' ', "PID", "RANK", DEVICE(p), DEVICE_TEXT(p),
		 "DEVICE", "ALLOCATED", "RESERVED", "PEAK", "GROWTH/STEP", "STEP", "EV/S",
		 "COMMAND");
	paint__put(p, y++, 0, p->columns, INK_BAR, text);
	first = scroll_to(s, page);
	p->rows_y = y;
	p->rows_n = (int)page;
	for (size_t i = 0; i < s->nprocs; i++) {
		if (i >= first && i < first + page)
			draw_process(p, s->procs[i], y++, i == s->selected, i == s->chosen, &sums);
		else
			draw_process(p, s->procs[i], /*y=*/-1, /*selected=*/false, /*chosen=*/false,
				     &sums);
	}
	if (sums.reserves)
		live__bytes(reserved, sums.reserved);
	if (sums.grows)
		live__change(growth, sums.pace);
	snprintf(text, sizeof(text), PROCESS, ' ', "all", "", DEVICE(p), 0, "",
		 live__bytes(allocated, sums.allocated), reserved, "", growth, "",
		 live__rate(rate, sums.rate));
	paint__put(p, y, 0, p->columns, INK_BOLD, text);
}

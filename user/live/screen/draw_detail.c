/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The detail page of a row: stacks, sizes and ages. */
#include "live/screen/paint.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "live/rows/cells.h"
#include "live/rows/detail.h"
#include "live/rows/state.h"
#include "live/rows/words.h"
#include "model/words.h"
#include "record/dict.h"

#define FRAMES 200	 /* frames shown per stack */
#define STACKS 50	 /* stacks shown */
#define AROUND_HOLDER 37 /* columns of a holder's line without its name: 36 before it, 1 after it */
#define HOLDER_LEAST 13	 /* columns of that name, at least */

struct page { /* a page of text lines that can be scrolled */
	struct paint *p;
	int y, end;	/* next row on the screen; row after the last one */
	size_t skip, n; /* lines scrolled off the top; lines so far, with those not shown */
};

static void print_line(struct page *g, int indent, enum ink ink, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
/* Adds a line to the page. Draws it unless it is scrolled off or below the end. */
static void print_line(struct page *g, int indent, enum ink ink, const char *fmt, ...)
{
	char text[1024];
	va_list ap;

	if (g->n++ < g->skip || g->y >= g->end)
		return;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	paint__put(g->p, g->y++, indent, g->p->columns - indent, ink, text);
}

/* Draws two lines with the figures of the row. all: the table that it is in. */
static void draw_figures(struct page *g, const struct live_row *r, const struct live_rows *all)
{
	char live[24], share[24], median[24] = "-", peak[24], growth[24] = "-", pace[24],
				  rate[40] = "", allocs[24] = "-", churn[24] = "-", asked[24],
				  requested[40] = "", count[32] = "?";

	if (r->row.count)
		text__count(count, sizeof(count), r->row.count);
	if (r->row.median)
		live__bytes(median, r->row.median);
	print_line(g, 0, INK_PLAIN, "%s live (%s) in %s blocks, median %s; %s at the peak",
		   live__bytes(live, r->row.bytes), live__share(share, r->row.bytes, all->total),
		   count, median, live__bytes(peak, r->at_peak));
	if (r->pace_known && r->growth)
		snprintf(rate, sizeof(rate), " (%s/%s)", live__change(pace, r->pace),
			 all->by_steps ? "step" : "min");
	if (r->growth_known)
		live__change(growth, r->growth);
	if (r->rates_known) {
		live__rate(allocs, r->allocs);
		live__bytes(churn, (uint64_t)r->churn);
	}
	if (r->row.requested)
		snprintf(requested, sizeof(requested), "; asked for %s",
			 live__bytes(asked, r->row.requested));
	print_line(g, 0, INK_PLAIN, "growth %s%s; %s allocations and %s a second%s", growth, rate,
		   allocs, churn, requested);
}

_Static_assert(AGE_NR <= DETAIL_SIZES + 1, "the column of ages is not longer than that of sizes");

/* Draws two columns: the block sizes with most bytes, and the ages that blocks have. */
static void draw_sizes_and_ages(struct page *g, const struct live_detail *x)
{
	static const char *const ages[AGE_NR] = {
		[AGE_SECOND] = "under 1 s",    [AGE_TEN] = "under 10 s",
		[AGE_MINUTE] = "under 1 min",  [AGE_TEN_MINUTES] = "under 10 min",
		[AGE_HOUR] = "under 1 h",      [AGE_MORE] = "older",
		[AGE_BEFORE] = "before attach"
	};
	size_t shown = x->nsizes < DETAIL_SIZES ? x->nsizes : DETAIL_SIZES, age = 0;

	print_line(g, 0, INK_BOLD, "%-36s%s", "SIZES, those that make most of it", "AGES");
	for (size_t i = 0; i < DETAIL_SIZES + 1; i++) {
		char left[64] = "", right[64] = "", a[24], b[24], c[32];

		if (i < shown)
			snprintf(left, sizeof(left), "%9s x %-10s = %9s",
				 live__bytes(a, x->sizes[i].size),
				 text__count(c, sizeof(c), x->sizes[i].count),
				 live__bytes(b, x->sizes[i].bytes));
		else if (i == shown && x->nsizes > shown)
			snprintf(left, sizeof(left), "and %zu other sizes", x->nsizes - shown);
		while (age < AGE_NR && !x->ages[age].count)
			age++;
		if (age < AGE_NR) {
			snprintf(right, sizeof(right), "%-18s %9s in %s blocks", ages[age],
				 live__bytes(a, x->ages[age].bytes),
				 text__count(c, sizeof(c), x->ages[age].count));
			age++;
		}
		if (*left || *right)
			print_line(g, 0, INK_PLAIN, "%-36s%s", left, right);
	}
}

/* Draws a frame of a stack. The frame that the row is charged to is bold, after ">". */
static void draw_frame(struct page *g, const struct dict *d, struct dict_frame f,
		       const struct row *r)
{
	struct dict_loc loc = dict__get_loc(d, f.loc);
	char raw[REPORT_TEXT], text[REPORT_TEXT], clean[256], module[264] = "";
	const char *name = dict__str(d, dict__get_module(d, f.module).name);
	bool charged = f.loc && r->file && loc.line == r->line &&
		       !strcmp(dict__str(d, loc.file), r->file);

	words__frame(raw, d, f);
	text__clean(text, sizeof(text), raw, strlen(raw));
	if (f.module && *name)
		snprintf(module, sizeof(module), "  in %.200s",
			 text__clean(clean, sizeof(clean), name, strlen(name)));
	if (charged)
		print_line(g, 2, INK_BOLD, "> %.700s%.210s", text, module);
	else
		print_line(g, 2, INK_PLAIN, "  %.700s%.210s", text, module);
}

/* Draws stack i of n of the row: its figures, then its frames. */
static void draw_stack(struct page *g, const struct live_proc *proc, const struct row *r, size_t i,
		       size_t n)
{
	struct dict_stack s = dict__get_stack(proc->dict, r->stack);
	char bytes[24], count[32] = "?", module[REPORT_TEXT], cls[128], text[1024];
	const char *phase = r->before_attach ? "before attach" : words__phase(r->phase);
	size_t len;

	print_line(g, 0, INK_PLAIN, "%s", "");
	words__module(module, r);
	if (r->count)
		text__count(count, sizeof(count), r->count);
	len = (size_t)snprintf(text, sizeof(text), "STACK %zu of %zu: %s in %s blocks, %s", i + 1,
			       n, live__bytes(bytes, r->bytes), count, phase);
	if (r->category)
		len += (size_t)snprintf(text + len, sizeof(text) - len, ", %s",
					words__role(r->category));
	if (*module)
		len += (size_t)snprintf(text + len, sizeof(text) - len, ", %.200s", module);
	if (r->node_class && *r->node_class)
		snprintf(text + len, sizeof(text) - len, ", by %s",
			 text__clean(cls, sizeof(cls), r->node_class, strlen(r->node_class)));
	print_line(g, 0, INK_BOLD, "%s", text);
	if (!s.n)
		print_line(g, /*indent=*/2, INK_DIM, "%s",
			   r->before_attach ? "allocated before attach: no stack was recorded"
					    : "no Python frames");
	for (uint32_t k = 0; k < s.n && k < FRAMES; k++)
		draw_frame(g, proc->dict, s.frames[k], r);
	if (s.n > FRAMES)
		print_line(g, /*indent=*/2, INK_DIM, "+ %u more frames", s.n - FRAMES);
}

/* Lists the objects that hold the row's memory from before attach. */
static void draw_holders(struct page *g, const struct live_proc *proc, const struct live_detail *x)
{
	const char *cwd = facts__get(proc->facts, "cwd");
	char bytes[24], count[32], where[REPORT_TEXT];
	int width = g->p->columns - AROUND_HOLDER;

	print_line(g, 0, INK_PLAIN, "%s", "");
	print_line(g, 0, INK_BOLD, "HELD BY (allocated before attach, so no stack was recorded)");
	for (size_t i = 0; i < x->held.n; i++) {
		const struct row *r = &x->held.all[i];

		words__location(where, r, cwd,
				(size_t)(width > HOLDER_LEAST ? width : HOLDER_LEAST));
		*count = '\0';
		if (r->count)
			text__count(count, sizeof(count), r->count);
		print_line(g, 0, INK_PLAIN, "%9s %7s  %-15s  %.900s", live__bytes(bytes, r->bytes),
			   count, words__role(r->category), r->name ? where : WORDS_UNHELD);
	}
}

/* Lists the holders of the blocks of a growing line. */
static void draw_names(struct page *g, struct live_state *s, const struct live_row *r)
{
	const struct growth_summary *growth = live_proc__growth(live_state__proc(s),
								live_state__table(s)->device);
	const struct growth_line *l = growth && live_state__by(s) == LIVE_LINE
					      ? growth_summary__line(growth, &r->row)
					      : NULL;
	char bytes[24], count[32], name[512];

	for (size_t i = 0; l && i < l->nnames; i++) {
		const struct growth_name *n = &l->names[i];

		if (!i) {
			print_line(g, 0, INK_PLAIN, "%s", "");
			print_line(g, 0, INK_BOLD, "HELD BY (names are read now and then)");
		}
		print_line(g, 0, INK_PLAIN, "%9s %7s  %s", live__bytes(bytes, n->bytes),
			   text__count(count, sizeof(count), n->count),
			   text__clean(name, sizeof(name), n->text, strlen(n->text)));
	}
}

/* Draws the details of a row of memory. */
static void draw_all(struct page *g, struct live_state *s, const struct live_row *r)
{
	const struct live_proc *proc = live_state__proc(s);
	const struct live_detail *x = &s->detailed;
	char where[REPORT_TEXT];

	print_line(g, 0, INK_BOLD, "%.900s",
		   live_cells__where(where, live_state__by(s), proc->facts, r, /*growth=*/NULL,
				     g->p->columns,
				     /*tree=*/false));
	draw_figures(g, r, live_state__table(s));
	if (r->row.before_attach) {
		draw_holders(g, proc, x);
		print_line(g, 0, INK_PLAIN, "%s", "");
		draw_sizes_and_ages(g, x);
		return;
	}
	draw_names(g, s, r);
	draw_sizes_and_ages(g, x);
	for (size_t i = 0; i < x->nstacks && i < STACKS; i++)
		draw_stack(g, proc, &x->stacks[i], i, x->nstacks);
	if (x->nstacks > STACKS)
		print_line(g, 0, INK_DIM, "+ %zu more stacks", x->nstacks - STACKS);
}

/* Draws the details of a segment: its figures, who took it, and which lines hold memory in it. */
static void draw_segment(struct page *g, const struct live_state *s, const struct segment *x)
{
	const struct live_proc *proc = live_state__proc(s);
	const char *cwd = facts__get(proc->facts, "cwd");
	char a[24], b[24], c[24], where[REPORT_TEXT];
	const char *expandable = x->expandable ? ", expandable" : "";
	const char *foreign = x->foreign ? ", taken by other code than the allocator" : "";

	print_line(g, 0, INK_BOLD, "segment at 0x%" PRIx64 ", %s, %s%s%s", x->addr,
		   live__bytes(a, x->size), words__segment_kind(x), expandable, foreign);
	print_line(g, 0, INK_PLAIN, "%s allocated in %" PRIu64 " blocks, median %s",
		   live__bytes(a, x->allocated), x->blocks, live__bytes(b, x->median));
	print_line(g, 0, INK_PLAIN,
		   "%s free: %s can be returned to CUDA, %s cannot; the largest of %" PRIu64
		   " gaps is %s",
		   live__bytes(a, x->free), live__bytes(b, x->releasable), live__bytes(c, x->stuck),
		   x->gaps, live__bytes(where, x->largest_gap));
	if (x->seen) {
		words__location(where, &x->taken, cwd, (size_t)g->p->columns - 14);
		print_line(g, 0, INK_PLAIN, "taken at %s by %.900s",
			   text__time(a, sizeof(a), x->time), where);
	}
	print_line(g, 0, INK_PLAIN, "%s", "");
	print_line(g, 0, INK_BOLD, "HELD BY");
	for (size_t i = 0; i < x->npins; i++) {
		words__location(where, &x->pins[i], cwd, (size_t)g->p->columns - 24);
		print_line(g, 0, INK_PLAIN, "%9s in %-6" PRIu64 " %.900s",
			   live__bytes(a, x->pins[i].bytes), x->pins[i].count, where);
	}
	if (x->more_pins)
		print_line(g, 0, INK_DIM, "%9s by %" PRIu64 " other lines",
			   live__bytes(a, x->more_pinned), x->more_pins);
}

void draw_detail(struct paint *p, struct live_state *s, int y, int rows)
{
	struct page g = { .p = p, .y = y, .end = y + rows, .skip = s->detail_first };
	const struct live_row *r = live_state__row(s);
	size_t most;

	p->table_rows = rows;
	if (s->view == VIEW_SEGMENTS && s->has_segments && s->selected < s->segments.n)
		draw_segment(&g, s, &s->segments.all[s->selected]);
	else if (r)
		draw_all(&g, s, r);
	else
		print_line(&g, 0, INK_DIM, "this row has no memory any more");
	/* Do not scroll past the last line. */
	most = g.n > (size_t)rows ? g.n - (size_t)rows : 0;
	if (s->detail_first > most) {
		s->detail_first = most;
		draw_detail(p, s, y, rows);
	}
}

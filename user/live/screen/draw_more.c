/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The views of segments and of processes. */
#include "live/screen/paint.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "live/rows/state.h"
#include "live/rows/words.h"
#include "model/words.h"
#include "report/text.h"

#define HELD_BY 65 /* column of the lines that hold a segment */

static size_t scroll_to(struct live_state *s, size_t page)
{
	if (s->selected < s->first)
		s->first = s->selected;
	else if (page && s->selected >= s->first + page)
		s->first = s->selected - page + 1;
	return s->first;
}

static void draw_segment(struct paint *p, const struct live_proc *proc, const struct segment *g,
			 int y, bool selected)
{
	enum ink ink = selected ? INK_SELECTED : INK_PLAIN;
	char a[24], b[24], c[24], d[24], text[160], where[REPORT_TEXT];
	int x;

	if (selected)
		paint__fill(p, y, INK_SELECTED);
	snprintf(text, sizeof(text), "%12" PRIx64 " %9s %9s %5s %12s %6" PRIu64 " %-5s%s", g->addr,
		 live__bytes(a, g->size), live__bytes(b, g->allocated),
		 live__share(c, g->allocated, g->size), live__bytes(d, g->stuck), g->blocks,
		 words__segment_kind(g),
		 g->foreign	 ? " foreign"
		 : g->expandable ? " expandable"
				 : "");
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

void draw_more__segments(struct paint *p, struct live_state *s, int y, int rows)
{
	const struct live_proc *proc = live_state__proc(s);
	const struct model_segments *g = &s->segments;
	uint64_t private = g->private[PRIVATE_GRAPH].free + g->private[PRIVATE_MEMPOOL].free;
	char a[24], b[24], c[24], d[24], e[24], text[200];
	size_t page = rows > 2 ? (size_t)rows - 2 : 0;

	p->table_rows = (int)page;
	if (!s->has_segments || !g->n) {
		paint__put(p, y, 0, p->columns, INK_DIM,
			   s->segments_err == -EINVAL ? "the CPU allocator has no segments"
						      : "no segment is known so far");
		return;
	}
	snprintf(text, sizeof(text),
		 "%zu segments  reserved %s  returnable %s  unreturnable %s  largest gap %s%s%s",
		 g->n, live__bytes(a, g->known), live__bytes(b, g->releasable),
		 live__bytes(c, g->stuck), live__bytes(d, g->largest_gap),
		 private ? "  for private pools " : "", private ? live__bytes(e, private) : "");
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

struct sums {
	uint64_t allocated, reserved;
	bool reserves, grows; /* known for some process */
	int64_t pace;
	double rate;
};

/* The process's name: its pod, container or command. */
static void process_words(char *buf, size_t size, const struct live_proc *proc, int width)
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
		words__cut(text__clean(clean, sizeof(clean), s, strlen(s)), 20);
		report_text__command(buf, size, proc->facts,
				     (size_t)width - text__width(clean) - 1);
		snprintf(buf + strlen(buf), size - strlen(buf), " %s", clean);
	} else {
		report_text__command(buf, size, proc->facts, (size_t)width);
	}
}

/* Width of the device column; 0 on narrow screens. */
#define DEVICE(p) ((p)->columns < 96 ? 0 : 7)
#define PROCESS "%c%7s %4s %-*.*s%9s %9s %9s %11s %7s %6s"

static void draw_process(struct paint *p, const struct live_proc *proc, int y, bool selected,
			 bool chosen, struct sums *sums)
{
	enum ink ink = selected ? INK_SELECTED : proc->ended ? INK_DIM : INK_PLAIN;
	const char *rank = facts__get(proc->facts, "rank");
	char a[24], b[24], c[24], g[24], r[24], step[32], pid[16], rank_text[16] = "-", cmd[1024],
								   text[256];
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
	snprintf(text, sizeof(text), PROCESS, chosen ? '>' : ' ', pid, rank_text, DEVICE(p),
		 DEVICE(p) ? 6 : 0, d.name, live__bytes(a, d.allocated),
		 d.has_totals ? live__bytes(b, d.reserved) : "-", live__bytes(c, d.peak_allocated),
		 paced ? live__change(g, pace) : "-",
		 text__count(step, sizeof(step), model__whole_steps(proc->model)),
		 live__rate(r, proc->rate));
	x = paint__put(p, y, 0, p->columns, ink, text) + 1;
	if (!selected && pace)
		paint__right(p, y, 44 + DEVICE(p), 11, pace > 0 ? INK_GREW : INK_SHRANK,
			     live__change(g, pace));
	if (p->columns - x < 3)
		return;
	process_words(cmd, sizeof(cmd), proc, p->columns - x);
	paint__put(p, y, x, p->columns - x, ink, cmd);
}

void draw_more__processes(struct paint *p, struct live_state *s, int y, int rows)
{
	size_t page = rows > 2 ? (size_t)rows - 2 : 0, first;
	struct sums sums = { 0 };
	char a[24], b[24], g[24], r[24], text[256];

	p->table_rows = (int)page;
	paint__fill(p, y, INK_BAR);
	snprintf(text, sizeof(text), PROCESS " %s", ' ', "PID", "RANK", DEVICE(p),
		 DEVICE(p) ? 6 : 0, "DEVICE", "ALLOCATED", "RESERVED", "PEAK", "GROWTH/STEP",
		 "STEP", "EV/S", "COMMAND");
	paint__put(p, y++, 0, p->columns, INK_BAR, text);
	first = scroll_to(s, page);
	p->rows_y = y;
	p->rows_n = (int)page;
	for (size_t i = 0; i < s->nprocs; i++) {
		if (i >= first && i < first + page)
			draw_process(p, s->procs[i], y++, i == s->selected, i == s->chosen, &sums);
		else
			draw_process(p, s->procs[i], -1, false, false, &sums);
	}
	snprintf(text, sizeof(text), PROCESS, ' ', "all", "", DEVICE(p), 0, "",
		 live__bytes(a, sums.allocated),
		 sums.reserves ? live__bytes(b, sums.reserved) : "-", "",
		 sums.grows ? live__change(g, sums.pace) : "-", "", live__rate(r, sums.rate));
	paint__put(p, y, 0, p->columns, INK_BOLD, text);
}

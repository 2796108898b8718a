/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Top and bottom lines of the screen: process, device, memory, views, events and losses, keys. */
#include "live/screen/paint.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "live/rows/state.h"
#include "live/rows/words.h"
#include "live/screen/keys.h"
#include "model/words.h"
#include "record/detail.h"
#include "report/text.h"

#define HOST_LEAST 30		   /* columns that the host memory needs */
#define RANK_DIGITS 6		   /* characters of a rank that are shown */
#define FIGURE_COLUMNS 9	   /* columns of a figure, such as "999.9 MiB" */
#define FRESH UINT64_C(8000000000) /* time that a message is shown, in ns */

/* Writes "cuda:0 (1 of 2) NVIDIA H200 80.0 GiB"; the number only if there are several devices. */
static void describe_device(char *buf, size_t size, const struct live_proc *p,
			    const struct model_device *d, int i)
{
	const char *name = words__device_fact(p->facts, d, "name");
	uint64_t total = words__device_total(p->facts, d);
	size_t n = model__devices(p->model);
	size_t len = strlen(d->name);
	char clean[48], bytes[24];

	snprintf(buf, size, "%s", d->name);
	if (n > 1)
		len += (size_t)snprintf(buf + len, size - len, " (%d of %zu)", i + 1, n);
	if (name && *name)
		len += (size_t)snprintf(buf + len, size - len, " %s",
					text__clean(clean, sizeof(clean), name, strlen(name)));
	if (total)
		snprintf(buf + len, size - len, " %s", live__bytes(bytes, total));
}

/* Draws row 0: process and command, device, time. device: index of the device d; negative: none. */
static void draw_bar(struct paint *p, const struct live_state *s, const struct live_proc *proc,
		     const struct model_device *d, int device)
{
	char right[200] = "", device_text[160] = "", clock[24], cmd[1024] = "", text[1200];
	char details[80] = ""; /* rank, number and end of the process */
	char rank_text[RANK_DIGITS + 2];
	const char *rank = proc ? facts__get(proc->facts, "rank") : NULL;
	int room;

	paint__fill(p, 0, INK_BAR);
	if (!proc) {
		paint__put(p, 0, 0, p->columns, INK_BAR, " memtrace-bpf  waiting for PyTorch");
		return;
	}
	if (device >= 0)
		describe_device(device_text, sizeof(device_text), proc, d, device);
	live__clock(clock, proc->now);
	/* On a narrow screen, the process needs the room more than the device's size. */
	if (device >= 0 && (int)(text__width(device_text) + strlen(clock)) > p->columns / 2)
		snprintf(device_text, sizeof(device_text), "%s", d->name);
	snprintf(right, sizeof(right), "%s%s%s ", device_text, *device_text ? "  " : "", clock);
	room = p->columns - (int)text__width(right) - 2;
	if (rank && *rank)
		snprintf(details, sizeof(details), " rank %s",
			 text__clean(rank_text, sizeof(rank_text), rank,
				     strnlen(rank, RANK_DIGITS)));
	if (s->nprocs > 1)
		snprintf(details + strlen(details), sizeof(details) - strlen(details),
			 " (%zu of %zu)", s->chosen + 1, s->nprocs);
	report_text__command(cmd, sizeof(cmd), proc->facts, /*columns=*/200);
	if (proc->ended)
		strcat(details, " ENDED");
	snprintf(text, sizeof(text), " %sPID %d%s  %.1000s", room > 60 ? "memtrace-bpf  " : "",
		 (int)proc->pid, details, cmd);
	paint__put(p, 0, 0, room, INK_BAR, text);
	paint__right(p, 0, p->columns - (int)text__width(right), (int)text__width(right), INK_BAR,
		     right);
}

/* Draws "name value  " in row y, with the value in a field of FIGURE_COLUMNS, unless it does not
 * fit. Returns the next x. */
static int put_figure(struct paint *p, int y, int x, const char *name, const char *value,
		      enum ink ink)
{
	int n = (int)strlen(name) + 1;
	int len = (int)text__width(value);
	int field = len > FIGURE_COLUMNS ? len : FIGURE_COLUMNS;

	if (x + n + field > p->columns)
		return x;
	paint__put(p, y, x, n, INK_PLAIN, name);
	paint__right(p, y, x + n, field, ink, value);
	return x + n + field + 2;
}

/* Draws the memory of tensors in row 1. While steps run, the current value changes all the time:
 * then the bytes at the last step's end and its peak tell more. Returns the next x. */
static int draw_allocated(struct paint *p, const struct live_proc *proc,
			  const struct model_device *d, int device)
{
	struct model_step step;
	char buf[24];
	int x = 0;

	if (!live_proc__last_step(proc, (size_t)device, &step))
		return put_figure(p, 1, x, "allocated", live__bytes(buf, d->allocated),
				  INK_ALLOCATED);
	x = put_figure(p, 1, x, "live", live__bytes(buf, step.end_allocated), INK_ALLOCATED);
	return put_figure(p, 1, x, model__steps_are_calls(proc->model) ? "call peak" : "step peak",
			  live__bytes(buf, step.peak), INK_WITHIN);
}

/* Draws row 1: memory of tensors, reserved, peak, driver, RSS and before attach, as far as they are
 * known. */
static void draw_figures(struct paint *p, const struct live_proc *proc,
			 const struct model_device *d, int device)
{
	char buf[24], about[40];
	const struct live_graph *graph = live_proc__graph(proc, d->device);
	int x = draw_allocated(p, proc, d, device);

	if (d->has_totals)
		x = put_figure(p, 1, x, "reserved", live__bytes(buf, d->reserved), INK_RESERVED);
	snprintf(about, sizeof(about), "%s%s", words__about(d->peak_is),
		 live__bytes(buf, d->peak_allocated));
	x = put_figure(p, 1, x, "peak", about, INK_PEAK);
	if (graph && graph->used_known)
		x = put_figure(p, 1, x, "driver", live__bytes(buf, graph->used), INK_PLAIN);
	if (proc->rss)
		x = put_figure(p, 1, x, "RSS", live__bytes(buf, proc->rss), INK_PLAIN);
	if (d->before_known)
		x = put_figure(p, 1, x, "before attach", live__bytes(buf, d->before_attach_start),
			       INK_PLAIN);
}

/* Draws a part of row 2, if there is room. Returns the x of the next part. */
static int put_part(struct paint *p, int x, enum ink ink, const char *text)
{
	int width = (int)text__width(text);

	if (!width || x + width > p->columns)
		return x;
	paint__put(p, /*y=*/2, x, width, ink, text);
	return x + width + 2;
}

/* The parts of the host memory, as far as there is room. */
static void draw_host(struct paint *p, const struct live_proc *proc, int x)
{
	const struct model_host *host = model__host(proc->model);
	char parts[1024], text[1040];
	int room = p->columns - x - (int)strlen("RSS: ");

	if (!host || room < HOST_LEAST)
		return;
	host_words__line(parts, sizeof(parts), &host->last.sheet, (size_t)room);
	if (!*parts)
		return;
	snprintf(text, sizeof(text), "RSS: %s", parts);
	put_part(p, x, INK_DIM, text);
}

/* Writes the number of steps and their time; "": there are none, or growth has no room next to
 * them. Returns buf. */
static const char *say_steps(const struct live_proc *proc, const struct growth_summary *growth,
			     int columns, char *buf, size_t size)
{
	const char *step = model__steps_are_calls(proc->model) ? "call" : "step";
	char time[24], count[32], said[GROWTH_SUMMARY_TEXT];
	int room;

	*buf = '\0';
	if (!model__whole_steps(proc->model))
		return buf;
	snprintf(buf, size, "%s %-6s %8s a %s", step,
		 text__count(count, sizeof(count), model__whole_steps(proc->model)),
		 text__time(time, sizeof(time), model__step_time(proc->model)), step);
	room = columns - (int)text__width(buf) - 2;
	if (growth && growth->verdict == GROWTH_VERDICT_GROWS &&
	    (room < 0 || !*growth_summary__brief(growth, (size_t)room, said)))
		*buf = '\0';
	return buf;
}

/* Draws row 2: steps, growth, cached memory, the peak's time, out-of-memory errors, host memory. */
static void draw_row_2(struct paint *p, const struct live_proc *proc, const struct model_device *d)
{
	char text[96], time[24], count[32], said[GROWTH_SUMMARY_TEXT];
	const struct growth_summary *growth = live_proc__growth(proc, d->device);
	int x = put_part(p, 0, INK_BOLD, say_steps(proc, growth, p->columns, text, sizeof(text)));

	if (growth && x < p->columns) {
		growth_summary__brief(growth, (size_t)(p->columns - x), said);
		x = put_part(p, x, growth->verdict == GROWTH_VERDICT_GROWS ? INK_BOLD : INK_PLAIN,
			     said);
	}
	if (d->has_totals) {
		snprintf(text, sizeof(text), "cached %4.1f %%",
			 100 * words__fragmentation(d->allocated, d->reserved));
		x = put_part(p, x, INK_PLAIN, text);
	}
	if (d->peak_allocated) {
		char at_step[48] = "";

		if (model__steps(proc->model))
			strcat(text__step(at_step, d->peak_step), ", ");
		snprintf(text, sizeof(text), "peak at %s (%s%s)",
			 text__time(time, sizeof(time), d->peak_time), at_step,
			 words__phase(d->peak_phase));
		if (x + (int)strlen(text) > p->columns)
			snprintf(text, sizeof(text), "peak in %s%s", at_step,
				 words__phase(d->peak_phase));
		x = put_part(p, x, INK_PLAIN, text);
	}
	if (d->ooms) {
		snprintf(text, sizeof(text), "%s OUT OF MEMORY",
			 text__count(count, sizeof(count), d->ooms));
		x = put_part(p, x, INK_WARN, text);
	}
	draw_host(p, proc, x);
}

void draw_head(struct paint *p, const struct live_state *s)
{
	const struct live_proc *proc = live_state__proc(s);
	struct model_device d;
	int device = live_state__device(s, &d);

	draw_bar(p, s, proc, &d, device);
	if (device < 0) {
		paint__put(p, /*y=*/1, 0, p->columns, INK_DIM,
			   proc ? "no tensor has been allocated or freed so far" : "");
		return;
	}
	draw_figures(p, proc, &d, device);
	draw_row_2(p, proc, &d);
}

static const char *view_name(const struct live_state *s, enum live_view v)
{
	static const char *const names[VIEW_NR] = {
		[VIEW_FINDINGS] = "Findings",	[VIEW_LINES] = "Lines",
		[VIEW_MODULES] = "Modules",	[VIEW_CATEGORIES] = "Roles",
		[VIEW_TREE] = "Tree",		[VIEW_SEGMENTS] = "Segments",
		[VIEW_PROCESSES] = "Processes",
	};

	return v == VIEW_LINES && s->by_function ? "Functions" : names[v];
}

void draw_head__tabs(struct paint *p, const struct live_state *s, int y)
{
	const struct live_rows *r = live_state__table(s);
	char text[LIVE_TYPED + 80], clock[24];
	enum ink ink = INK_DIM;
	int x = 0;

	paint__fill(p, y, INK_PLAIN);
	if (s->typing) {
		snprintf(text, sizeof(text), "%s%s_",
			 s->typing == TYPING_FILTER ? "/" : "name: ", s->typed);
		paint__put(p, y, 0, p->columns, INK_WARN,
			   words__cut_front(text, (size_t)p->columns));
		return;
	}
	for (int v = 0; v < VIEW_NR; v++) {
		bool on = (int)s->view == v;

		if (!live_state__offers(s, v))
			continue;
		snprintf(text, sizeof(text), "%d %s", v, view_name(s, v));
		paint__hit(p, y, x, (int)text__width(text), '0' + v);
		x += paint__put(p, y, x, p->columns - x, on ? INK_BAR_ON : INK_PLAIN, text) + 2;
	}
	if (x >= p->columns)
		return;
	if (s->filter[0]) {
		ink = s->paused ? INK_WARN : INK_BOLD;
		snprintf(text, sizeof(text), "/%s%s", s->filter, s->paused ? "  PAUSED" : "");
	} else if (s->paused) {
		ink = INK_WARN;
		strcpy(text, "PAUSED");
	} else if (r && r->growth_known && s->view > VIEW_FINDINGS && s->view < VIEW_SEGMENTS) {
		live__clock(clock, r->since);
		snprintf(text, sizeof(text), "growth since %s", clock);
		if ((int)text__width(text) > p->columns - x)
			snprintf(text, sizeof(text), "since %s", clock);
	} else {
		return;
	}
	paint__right(p, y, x, p->columns - x, ink, text);
}

/* Draws a message in row y, and its first line in the row above if it needs both. */
static void draw_message(struct paint *p, int y, enum ink ink, const char *message)
{
	char *text = NULL, *rest;
	size_t size;
	FILE *mem;

	mem = (int)text__width(message) > p->columns ? open_memstream(&text, &size) : NULL;
	if (!mem) {
		paint__put(p, y, 0, p->columns, ink, message);
		return;
	}
	text__paragraph(mem, (size_t)p->columns, "", "", "%s", message);
	if (!fclose(mem)) {
		rest = strchr(text, '\n');
		*rest++ = '\0';
		paint__fill(p, y - 1, INK_PLAIN);
		paint__put(p, y - 1, 0, p->columns, ink, text);
		rest[strcspn(rest, "\n")] = '\0';
		paint__put(p, y, 0, p->columns, ink, rest);
	}
	free(text);
}

/* Draws row y: the last message while it is recent, otherwise counts of events and losses. */
static void draw_events(struct paint *p, const struct live_state *s, int y)
{
	const struct live_message *m = live_state__message(s, 0);
	const struct live_proc *proc = live_state__proc(s);
	char events[32], rate[24], lost[32], drift[24], stretched[24], text[256],
		detail[DETAIL_TEXT];
	struct report_stacks stacks;
	struct model_device d;
	int x;

	if (m && (s->now - m->time < FRESH || !proc)) {
		draw_message(p, y, m->level <= LOG_WARN ? INK_WARN : INK_BOLD, m->text);
		return;
	}
	if (!proc)
		return;
	words__stacks(proc->model, &stacks);
	snprintf(text, sizeof(text), "events %s  %6s/s",
		 text__count(events, sizeof(events), proc->events), live__rate(rate, proc->rate));
	x = paint__put(p, y, 0, p->columns, INK_PLAIN, text);
	snprintf(text, sizeof(text), "  lost %s", text__count(lost, sizeof(lost), proc->lost));
	x += paint__put(p, y, x, p->columns - x, proc->lost ? INK_WARN : INK_PLAIN, text);
	if (*detail__reduced(detail, sizeof(detail), proc->facts))
		x += paint__put(p, y, x, p->columns - x, INK_WARN, "  reduced detail");
	if (live_state__device(s, &d) >= 0 && d.has_totals) {
		snprintf(text, sizeof(text), "  drift %s", live__bytes(drift, d.drift));
		x += paint__put(p, y, x, p->columns - x, d.drift ? INK_WARN : INK_PLAIN, text);
	}
	if (stacks.all) {
		snprintf(text, sizeof(text), "  unresolved %s",
			 live__share(rate, stacks.failed + stacks.truncated, stacks.all));
		x += paint__put(p, y, x, p->columns - x, INK_PLAIN, text);
	}
	if (s->stretched) {
		snprintf(text, sizeof(text), "table every %s (1%% of a core)",
			 text__time(stretched, sizeof(stretched), s->stretched));
		paint__right(p, y, x + 2, p->columns - x - 2, INK_DIM, text);
	} else if (proc->ended) {
		paint__right(p, y, x + 2, p->columns - x - 2, INK_WARN, proc->end);
	}
}

/* The key that a name in the footer stands for; 0: the name stands for several keys. */
static int key_of(const char *name)
{
	static const struct {
		const char *name;
		int key;
	} all[] = { { "Tab", '\t' },
		    { "Enter", KEY_LIVE_ENTER },
		    { "Esc", KEY_LIVE_ESCAPE },
		    { "Space", ' ' },
		    { "Ctrl-U", 'U' - '@' } };

	for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
		if (!strcmp(name, all[i].name))
			return all[i].key;
	return name[1] ? 0 : name[0];
}

/* Draws a key and what it does in the footer, for clicks as well. Returns the next x, or the
 * screen's width if there is no room. */
static int put_key(struct paint *p, int x, const char *name, const char *does)
{
	int y = p->rows - 1, width = (int)(strlen(name) + strlen(does)) + 2;

	if (x + width > p->columns)
		return p->columns;
	if (key_of(name))
		paint__hit(p, y, x, width - 1, key_of(name));
	x += paint__put(p, y, x, width, INK_BAR, name);
	paint__put(p, y, x + 1, width, INK_PLAIN, does);
	return x + (int)strlen(does) + 2;
}

void draw_head__foot(struct paint *p, const struct live_state *s)
{
	const struct live_proc *proc = live_state__proc(s);
	int x = 0;

	draw_events(p, s, p->rows - 2);
	if (s->typing) {
		x = put_key(p, x, "Enter", s->typing == TYPING_FILTER ? "Filter" : "Mark");
		x = put_key(p, x, "Esc", "Cancel");
		put_key(p, x, "Ctrl-U", "Clear");
		return;
	}
	x = put_key(p, x, "q", s->help || s->log ? "Back" : "Quit");
	if (s->help || s->log) {
		put_key(p, x, "arrows", "Scroll");
		return;
	}
	x = put_key(p, x, "?", "Help");
	x = put_key(p, x, "Tab", "View");
	if (s->detail)
		x = put_key(p, x, "Esc", "Back");
	else if (s->view == VIEW_FINDINGS)
		x = put_key(p, x, "arrows", "Scroll");
	else if (s->view != VIEW_SEGMENTS)
		x = put_key(p, x, "Enter", s->view == VIEW_PROCESSES ? "Choose" : "Detail");
	if (!s->over)
		x = put_key(p, x, "Space", s->paused ? "Resume" : "Pause");
	if (s->view == VIEW_TREE && !s->detail)
		x = put_key(p, x, "Left Right", "Fold");
	x = put_key(p, x, "/", "Filter");
	if (s->view != VIEW_FINDINGS)
		x = put_key(p, x, "tpdca", "Sort");
	if (proc && model__devices(proc->model) > 1)
		x = put_key(p, x, "g", "Device");
	if (s->nprocs > 1)
		x = put_key(p, x, "n", "Process");
	x = put_key(p, x, "r", "Reset growth");
	x = put_key(p, x, "w", "Save");
	x = put_key(p, x, "e", "Export");
	put_key(p, x, "m", "Mark");
}

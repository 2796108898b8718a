/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "report/recording/blame.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/strings.h"
#include "base/text.h"
#include "model/holders.h"
#include "model/words.h"
#include "record/stream.h"

const char *blame__kind(enum blame_kind k)
{
	static const char *const names[] = {
		[BLAME_NONE] = NULL,	   [BLAME_LARGEST] = "largest",
		[BLAME_GREW] = "grew",	   [BLAME_HOLDS_BACK] = "holds_back",
		[BLAME_OTHERS] = "others",
	};

	return names[k];
}

static int keep_words(struct strings *words, struct row *r)
{
	const char **own[] = { &r->file,	&r->func,     &r->module, &r->module_class,
			       &r->module_root, &r->category, &r->name,	  &r->source,
			       &r->node_class,	&r->thread };

	for (size_t i = 0; i < sizeof(own) / sizeof(*own); i++)
		if (strings__keep(words, own[i]))
			return -ENOMEM;
	return 0;
}

/* Adds the row if it is one of the largest. */
static int add(struct blame *b, const struct row *r, struct strings *words)
{
	size_t i = b->n < BLAME_ROWS ? b->n : BLAME_ROWS - 1;
	struct row own = *r;

	if (!r->bytes || (b->n == BLAME_ROWS && b->rows[i].bytes >= r->bytes))
		return 0;
	if (keep_words(words, &own))
		return -ENOMEM;
	b->n = i + 1;
	for (; i && b->rows[i - 1].bytes < own.bytes; i--)
		b->rows[i] = b->rows[i - 1];
	b->rows[i] = own;
	return 0;
}

/* ---- the largest lines ---- */

static int add_largest(struct blame *b, const struct model *m, size_t device,
		       enum frame_choice which_line, struct strings *words)
{
	/* One row for each line, over all modules, as in the text report. */
	const struct row_opts o = { .by = BY_LINE,
				    .when = ROWS_AT_MARK,
				    .which_line = which_line,
				    .any_module = true,
				    .any_phase = true };
	struct holder_rows rows;
	int err = holder_rows__of(m, device, &o, true, &rows);

	if (err)
		return err == -ENOENT ? 0 : err;
	b->kind = BLAME_LARGEST;
	for (size_t i = 0; i < rows.n && i < BLAME_ROWS && !err; i++)
		err = add(b, &rows.all[i], words);
	holder_rows__free(&rows);
	return err;
}

/* Reads the recording again for another moment. Errors are hidden: the first run logged them. */
static int add_largest_at(struct blame *b, const struct analysis *a, const char *device,
			  enum frame_choice which_line, struct strings *words)
{
	const struct model_opts at = { .at = b->at };
	struct analysis *again;
	int found, err = 0;

	if (!strcmp(a->path, "-")) {
		snprintf(b->note, sizeof(b->note),
			 "the lines at the %s are unknown: standard input can be read only once, "
			 "for --at",
			 b->at == AT_PEAK ? "peak" : "first out of memory");
		return 0;
	}
	log__hush(LOG_ERROR);
	if (!analysis__open(a->path, &at, &again)) {
		again->doing = b->at == AT_PEAK ? "looking for the peak in"
						: "looking for the out of memory in";
		if (!analysis__run(again, NULL, NULL)) {
			found = model__find_device(again->model, device);
			err = found < 0 ? 0
					: add_largest(b, again->model, (size_t)found, which_line,
						      words);
		}
		analysis__free(again);
	}
	log__hush(LOG_DEBUG);
	return err;
}

static int find_largest(struct blame *b, const struct analysis *a, size_t device,
			const struct model_opts *at, enum frame_choice which_line,
			struct strings *words)
{
	struct model_device d;

	if (b->at == at->at)
		return add_largest(b, a->model, device, which_line, words);
	model__device(a->model, device, &d);
	return add_largest_at(b, a, d.name, which_line, words);
}

static void say_oom(struct blame *b, const struct analysis *a, size_t device,
		    enum frame_choice which_line)
{
	char where[REPORT_TEXT], size[24], time[24], path[512];
	struct row_frame line;
	struct model_oom o;

	if (!model__oom(a->model, device, 0, &o))
		return;
	snprintf(where, sizeof(where), "unknown code");
	if (model__stack_line(a->model, o.stack, which_line, &line))
		snprintf(where, sizeof(where), "%s:%u",
			 text__clean(path, sizeof(path), line.file, strlen(line.file)), line.line);
	snprintf(b->note, sizeof(b->note), "the first request was %s at %.160s (%s, at %s)",
		 text__bytes(size, sizeof(size), o.size), where, words__phase(o.phase),
		 text__time(time, sizeof(time), o.time));
}

/* ---- lines that grew ---- */

static int blame_growth(const struct growth *g, struct strings *words, struct blame *ret)
{
	int err = 0;

	ret->kind = BLAME_GREW;
	for (size_t i = 0; i < g->n && !err; i++) {
		const struct growth_line *l = &g->lines[i];
		struct row r = l->row;

		/* A line that rose and fell again leaves nothing. */
		r.bytes = l->trend.last > l->trend.first ? l->trend.last - l->trend.first : 0;
		if (l->trend.verdict == TREND_FLAT || l->trend.verdict == TREND_RELEASED)
			continue;
		err = add(ret, &r, words);
	}
	if (!err && !ret->n)
		snprintf(ret->note, sizeof(ret->note),
			 "no line grows from step to step; the growth may last a few steps only");
	return err;
}

struct between { /* two moments, each by the number of events before it */
	struct model *m;
	uint64_t seen, from, to;
};

static int note_moments(void *ctx, const struct event *e)
{
	struct between *b = ctx;

	if (b->seen == b->from)
		model__note(b->m, ROWS_AT_BASE, e->time);
	if (b->seen == b->to)
		model__note(b->m, ROWS_AT_STEP, e->time);
	b->seen++;
	return 0;
}

static int compare_text(const char *a, const char *b)
{
	return strcmp(a ? a : "", b ? b : "");
}

static int compare_lines(const void *x, const void *y)
{
	const struct row *a = x, *b = y;
	int c = (int)a->before_attach - (int)b->before_attach;

	c = c ? c : compare_text(a->file, b->file);
	c = c ? c : (a->line > b->line) - (a->line < b->line);
	c = c ? c : compare_text(a->func, b->func);
	return c ? c : compare_text(a->source, b->source);
}

/* Gets the rows of a moment by line, in the order of compare_lines(). */
static int take_lines(const struct model *m, size_t device, enum row_when when,
		      enum frame_choice which_line, struct row **rows, size_t *n)
{
	const struct row_opts o = { .split = 1U << BY_LINE,
				    .when = when,
				    .which_line = which_line };
	int err = model__rows(m, device, &o, rows, n);

	if (!err && *n)
		qsort(*rows, *n, sizeof(**rows), compare_lines);
	return err;
}

/* Adds each line's growth between the two moments. */
static int add_grown(struct blame *b, const struct model *m, size_t device,
		     enum frame_choice which_line, struct strings *words)
{
	struct row *old = NULL, *new = NULL;
	size_t nold = 0, nnew = 0, k = 0;
	int err = take_lines(m, device, ROWS_AT_BASE, which_line, &old, &nold);

	if (!err)
		err = take_lines(m, device, ROWS_AT_STEP, which_line, &new, &nnew);
	for (size_t i = 0; i < nnew && !err; i++) {
		struct row r = new[i];

		while (k < nold && compare_lines(&old[k], &r) < 0)
			k++;
		if (k < nold && !compare_lines(&old[k], &r))
			r.bytes -= old[k].bytes < r.bytes ? old[k].bytes : r.bytes;
		err = add(b, &r, words);
	}
	free(old);
	free(new);
	return err;
}

/* Reads the recording again for the two moments of the growth. */
static int find_grown(struct blame *b, const struct analysis *a, size_t device,
		      const struct cond_result *of, enum frame_choice which_line,
		      const struct growth *g, struct strings *words)
{
	const struct model_opts end = { .at = AT_END };
	struct between at = { .from = of->from, .to = of->to };
	struct analysis *again;
	struct model_device d;
	int found, err = 0;

	b->kind = BLAME_GREW;
	if (!of->lows_known || !strcmp(a->path, "-")) {
		err = g ? blame_growth(g, words, b) : 0;
		if (!err && !*b->note)
			snprintf(b->note, sizeof(b->note),
				 "the lines are of the whole recording: standard input can be read "
				 "only once");
		return err;
	}
	model__device(a->model, device, &d);
	log__hush(LOG_ERROR);
	if (!analysis__open(a->path, &end, &again)) {
		again->doing = "looking for what grew in";
		at.m = again->model;
		if (!analysis__run(again, note_moments, &at)) {
			if (!model__noted(at.m, ROWS_AT_STEP, NULL))
				model__note(at.m, ROWS_AT_STEP, again->duration);
			found = model__find_device(at.m, d.name);
			err = found < 0 ? 0 : add_grown(b, at.m, (size_t)found, which_line, words);
		}
		analysis__free(again);
	}
	log__hush(LOG_DEBUG);
	return err;
}

/* ---- segments and other memory ---- */

/* Compares file and line. All rows from before attach count as one. */
static bool is_same(const struct row *a, const struct row *b)
{
	if (a->before_attach || b->before_attach)
		return a->before_attach && b->before_attach;
	return a->line == b->line && a->file && b->file && !strcmp(a->file, b->file);
}

/* Charges the stuck bytes of each segment to the line with most bytes in it. */
static int find_holders(struct blame *b, const struct model *m, size_t device,
			enum frame_choice which_line, struct strings *words)
{
	struct model_segments s;
	int err = model__segments(m, device, ROWS_AT_MARK, which_line, &s);

	if (err)
		return err == -ENOMEM ? err : 0;
	b->kind = BLAME_HOLDS_BACK;
	for (size_t i = 0; i < s.n && !err; i++) {
		struct row r, *same = NULL;

		if (!s.all[i].stuck || !s.all[i].npins)
			continue;
		r = s.all[i].pins[0];
		r.bytes = s.all[i].stuck;
		r.count = 1;
		for (size_t k = 0; k < b->n; k++)
			if (is_same(&b->rows[k], &r))
				same = &b->rows[k];
		if (same) {
			same->bytes += r.bytes;
			same->count++;
		} else {
			err = add(b, &r, words);
		}
	}
	if (!err)
		qsort(b->rows, b->n, sizeof(*b->rows), row__compare);
	model__free_segments(&s);
	return err;
}

static int find_others(struct blame *b, const struct model *m, size_t device,
		       enum frame_choice which_line, struct strings *words)
{
	struct model_segments s;
	int err = model__segments(m, device, ROWS_AT_MARK, which_line, &s);

	if (err)
		return err == -ENOMEM ? err : 0;
	b->kind = BLAME_OTHERS;
	for (size_t i = 0; i < s.nothers && !err; i++)
		err = add(b, &s.others[i].row, words);
	if (!err && s.used_known && s.used > s.used_below + s.used_others) {
		char size[24];

		snprintf(b->note, sizeof(b->note),
			 "the driver counts %s more for the process: CUDA's own memory, or memory "
			 "from before attach",
			 text__bytes(size, sizeof(size), s.used - s.used_below - s.used_others));
	}
	model__free_segments(&s);
	return err;
}

static void say_lost(struct blame *b, const struct analysis *a)
{
	char n[32];

	snprintf(b->note, sizeof(b->note),
		 "%s lost: peaks and lines lack them. If the buffer was full, a larger --ring-size "
		 "helps",
		 text__counted(n, sizeof(n), words__lost(a->model, a->facts), "event"));
}

int blame__find(struct analysis *a, size_t device, const struct cond_result *of,
		const struct model_opts *at, enum frame_choice which_line, const struct growth *g,
		struct strings *words, struct blame *ret)
{
	ret->at = at->at;
	switch (of->figure) {
	case COND_PEAK:
		ret->at = AT_PEAK;
		return find_largest(ret, a, device, at, which_line, words);
	case COND_OOMS:
		ret->at = AT_OOM;
		say_oom(ret, a, device, which_line);
		return find_largest(ret, a, device, at, which_line, words);
	case COND_ALLOCATED:
	case COND_RESERVED:
	case COND_USED:
	case COND_PEAK_RESERVED:
		return find_largest(ret, a, device, at, which_line, words);
	case COND_UNUSED:
	case COND_FRAGMENTATION:
		return find_holders(ret, a->model, device, which_line, words);
	case COND_OTHER:
	case COND_OTHER_GROWTH:
		return find_others(ret, a->model, device, which_line, words);
	case COND_GROWTH:
	case COND_RESERVED_GROWTH:
		return find_grown(ret, a, device, of, which_line, g, words);
	case COND_LEAKS:
	case COND_USED_GROWTH:
		return g ? blame_growth(g, words, ret) : 0;
	case COND_LOST:
		say_lost(ret, a);
		return 0;
	default:
		return 0;
	}
}

/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Writes growing lines of one recording, and of several, as JSON: docs/reference/leaks.md has the
 * keys. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "model/growth_summary.h"
#include "model/words.h"
#include "record/detail.h"
#include "report/doc.h"
#include "report/leaks/internal.h"

/* Writes the figures of a trend. values: t->values of them, written if `figures` is true. */
static void put_trend(struct json *j, const struct growth *g, const struct trend *t,
		      double per_step, const uint64_t *values, bool figures)
{
	json__string(j, "verdict", trend__verdict(t->verdict));
	json__string(j, "confidence", trend__confidence(t->confidence));
	json__double(j, "p", t->p, /*decimals=*/9);
	json__double(j, "sorted", t->sorted, /*decimals=*/4);
	json__double(j, growth_summary__rate_key(g->clock), per_step, /*decimals=*/3);
	json__uint(j, "grown", t->grown);
	json__uint(j, "rises", t->rises);
	json__uint(j, "falls", t->falls);
	json__uint(j, "intervals", t->intervals);
	json__uint(j, "values", t->values);
	json__uint(j, "warmup", t->warmup);
	json__uint(j, "range", t->range);
	json__uint(j, "largest_fall", t->fall);
	json__double(j, "spread", t->spread, /*decimals=*/1);
	json__open_array(j, "share");
	for (int i = 0; i < TREND_PARTS; i++)
		json__double(j, NULL, t->share[i], /*decimals=*/4);
	json__close_array(j);
	if (!figures)
		return;
	json__open_array(j, "live");
	for (uint32_t i = 0; i < t->values; i++)
		json__uint(j, NULL, values[i]);
	json__close_array(j);
}

/* Writes what counts as a request, if the clock is requests. */
static void put_request(struct json *j, const struct growth *g)
{
	if (g->clock != GROWTH_REQUESTS)
		return;
	json__open_object(j, "request");
	json__string(j, "file", g->request.file);
	json__uint(j, "line", g->request.line);
	json__string(j, "device", *g->request.device ? g->request.device : NULL);
	json__double(j, "seconds", g->request.seconds, /*decimals=*/9);
	json__close_object(j);
}

/* Writes a line's growth, how long its blocks stay, and what holds them. */
static void put_figures(struct json *j, const struct growth *g, const struct growth_line *l,
			bool figures)
{
	put_trend(j, g, &l->trend, l->per_step, l->values, figures);
	json__string(j, "kind", growth__kind(l->kind));
	json__uint(j, "bytes", l->row.bytes);
	json__uint(j, "count", l->row.count);
	json__uint(j, "old", l->old);
	json__uint(j, "total_allocated", l->allocated);
	json__uint(j, "allocations", l->allocations);
	json__double(j, "stays_per_allocation", l->per_block, /*decimals=*/3);
	json__open_array(j, "survives");
	for (unsigned i = 0; i < l->ages; i++) {
		json__open_object(j, NULL);
		json__uint(j, "age", UINT64_C(1) << i);
		json__double(j, "share", l->survives[i], /*decimals=*/6);
		json__close_object(j);
	}
	json__close_array(j);
	json__open_array(j, "held_by");
	for (size_t i = 0; i < l->nnames; i++) {
		json__open_object(j, NULL);
		json__string(j, "name", l->names[i].text);
		json__uint(j, "bytes", l->names[i].bytes);
		json__uint(j, "count", l->names[i].count);
		json__close_object(j);
	}
	json__close_array(j);
	json__uint(j, "held_unknown", l->row.bytes > l->named ? l->row.bytes - l->named : 0);
}

static void put_module(struct json *j, const struct row *r)
{
	json__string(j, "module", r->module);
	json__string(j, "module_class", r->module_class);
	json__string(j, "module_root", r->module_root);
}

/* Writes the place of a row of --by. */
static void put_where(struct json *j, enum group by, const struct dict *d, const struct row *r)
{
	if (by == BY_LINE || by == BY_STACK)
		report_json__line(j, r);
	if (by == BY_STACK)
		report_json__stack(j, d, r);
	if (by == BY_MODULE)
		put_module(j, r);
	if (by != BY_CATEGORY && r->modules)
		json__uint(j, "modules", r->modules);
	json__string(j, "category", r->category);
}

/* Writes the growing lines if leaks is true, otherwise the lines with another verdict. Returns how
 * many --top left out. */
static size_t put_lines(struct json *j, const char *key, const struct leaks_doc *doc,
			const struct leaks_opts *o, const struct growth *g, bool leaks)
{
	size_t n_lines = 0;

	json__open_array(j, key);
	for (size_t i = 0; i < g->n; i++) {
		if (trend__counts(&g->lines[i].trend, o->min_confidence) != leaks)
			continue;
		n_lines++;
		if (o->top && n_lines > o->top)
			continue;
		json__open_object(j, NULL);
		put_where(j, o->by, doc->dict, &g->lines[i].row);
		put_figures(j, g, &g->lines[i], o->figures);
		json__close_object(j);
	}
	json__close_array(j);
	return o->top && n_lines > o->top ? n_lines - o->top : 0;
}

/* Writes the growth of a sum over all lines; null if it is not known. */
static void put_sum(struct json *j, const char *key, const struct growth *g,
		    const struct growth_sum *sum, bool known, bool figures)
{
	if (!known) {
		json__null(j, key);
		return;
	}
	json__open_object(j, key);
	put_trend(j, g, &sum->trend, sum->per_step, sum->values, figures);
	json__close_object(j);
}

/* Writes "line", a line by file and number whatever --by is. */
static void put_main_line(struct json *j, const struct growth_line *l)
{
	json__open_object(j, "line");
	put_where(j, BY_LINE, NULL, &l->row);
	json__uint(j, "bytes", l->row.bytes);
	json__string(j, "held_by", l->nnames ? l->names[0].text : NULL);
	json__close_object(j);
}

/* Writes the growth of the peaks of steps, and the line and input that it comes from. */
static void put_peaks(struct json *j, const struct growth *g)
{
	if (!g->peaks.known) {
		json__null(j, "peaks");
		return;
	}
	json__open_object(j, "peaks");
	json__open_object(j, "trend");
	put_trend(j, g, &g->peaks.trend, g->peaks.per_step, /*values=*/NULL, /*figures=*/false);
	json__close_object(j);
	if (g->peaks.line)
		put_main_line(j, g->peaks.line);
	else
		json__null(j, "line");
	growth_summary__put_input(j, &g->peaks);
	json__close_object(j);
}

/* Writes the growth from call to call of the model within one step; null without such growth. */
static void put_inside(struct json *j, const struct growth *g, enum trend_confidence least)
{
	const struct growth_inside *in = &g->inside;
	struct growth by_call = { .clock = GROWTH_CALLS };

	if (!growth__inside_grows(g, least)) {
		json__null(j, "inside_step");
		return;
	}
	json__open_object(j, "inside_step");
	json__uint(j, "step", in->step);
	json__uint(j, "step_number", in->step + 1);
	json__uint(j, "calls", in->calls);
	json__bool(j, "open", in->open);
	json__uint(j, "grown_on_device", in->grown);
	json__uint(j, "lines", in->lines);
	json__double(j, "lines_per_call", in->lines_per_call, /*decimals=*/3);
	put_main_line(j, in->line);
	json__open_object(j, "trend");
	put_trend(j, &by_call, &in->line->trend, in->line->per_step, /*values=*/NULL,
		  /*figures=*/false);
	json__close_object(j);
	json__close_object(j);
}

/* Writes a device with all its growth. Sets *found if anything grows. Returns 0 or -ENOMEM. */
static int put_device(struct json *j, const struct leaks_doc *doc, const struct leaks_opts *o,
		      size_t device, bool *found)
{
	struct model_device dev;
	struct leaks_host host = { 0 };
	struct growth growth;
	size_t left;
	int err = growth__judge(doc->model, device, o->min_growth, &growth);

	if (err)
		return err;
	model__device(doc->model, device, &dev);
	*found |= growth__count(&growth, o->min_confidence) ||
		  growth__pool_grows(&growth, o->min_confidence) ||
		  growth__peaks_grow(&growth, o->min_confidence) ||
		  (growth.inside.open && growth__inside_grows(&growth, o->min_confidence)) ||
		  growth__others_grow(&growth, o->min_confidence);
	if (!strcmp(dev.name, "host"))
		leaks_host__judge(doc->model, o, &host);
	*found |= host.copies || host.pinned;
	json__open_object(j, NULL);
	json__string(j, "device", dev.name);
	json__string(j, "clock", growth__clock(growth.clock));
	json__uint(j, growth_summary__steps_key(growth.clock), growth.steps);
	if (growth.after_steps)
		json__uint(j, "after_steps", growth.after_steps);
	if (growth.recorded)
		json__uint(j, "recorded", growth.recorded);
	put_request(j, &growth);
	json__uint(j, "stride", growth.stride);
	if (growth.clock == GROWTH_TIME)
		json__double(j, "seconds_per_value", growth.slice, /*decimals=*/3);
	json__uint(j, "observed", growth.observed);
	json__uint(j, "tested", growth.tested);
	json__bool(j, "coarse", growth.coarse);
	left = put_lines(j, "leaks", doc, o, &growth, /*leaks=*/true);
	left += put_lines(j, "no_leaks", doc, o, &growth, /*leaks=*/false);
	if (left)
		json__uint(j, "lines_left_out", left);
	json__bool(j, "pool_grows", growth__pool_grows(&growth, o->min_confidence));
	json__bool(j, "others_grow", growth__others_grow(&growth, o->min_confidence));
	leaks_host__json(j, &host);
	json__bool(j, "peaks_grow", growth__peaks_grow(&growth, o->min_confidence));
	put_peaks(j, &growth);
	put_inside(j, &growth, o->min_confidence);
	put_sum(j, "allocated", &growth, &growth.allocated, /*known=*/true, o->figures);
	put_sum(j, "reserved", &growth, &growth.reserved, growth.has_reserved, o->figures);
	put_sum(j, "others", &growth, &growth.others, growth.has_others, o->figures);
	err = growth_summary__device_json(j, doc->model, doc->facts, device, doc->duration);
	json__close_object(j);
	growth__free(&growth);
	return err;
}

int leaks_json__devices(struct json *j, const struct leaks_doc *doc, const struct leaks_opts *o,
			bool *found)
{
	int err = 0;

	json__open_array(j, "devices");
	for (size_t i = 0; !err && i < model__devices(doc->model); i++)
		if (leaks__wants(o, doc->model, i))
			err = put_device(j, doc, o, i, found);
	json__close_array(j);
	return err;
}

int leaks__json(struct json *j, const struct leaks_doc *doc, const struct leaks_opts *o,
		bool *found)
{
	char models[WORDS_MODELS];
	int err;

	if (o->device && model__find_device(doc->model, o->device) < 0)
		return -ENOENT;
	json__open_object(j, NULL);
	json__open_object(j, "memtrace");
	json__string(j, "version", MEMTRACE_VERSION);
	if (doc->format)
		json__uint(j, "recording_format", doc->format);
	json__close_object(j);
	json__string(j, "name", doc->name);
	json__seconds(j, "duration", doc->duration, /*decimals=*/6);
	words__put_window(j, doc->model);
	json__uint(j, "events", model__events(doc->model));
	json__uint(j, "lost", words__lost(doc->model, doc->facts));
	json__bool(j, "complete", doc->complete);
	detail__put(j, doc->facts);
	if (*words__models(models, sizeof(models), doc->facts))
		json__string(j, "models", models);
	json__string(j, "by", group_names[o->by]);
	json__string(j, "min_confidence", trend__confidence(o->min_confidence));
	json__uint(j, "min_growth", o->min_growth);
	err = leaks_json__devices(j, doc, o, found);
	json__close_object(j);
	return err;
}

/* ---- several recordings ---- */

/* Writes a recording: which rank it is, and its events. */
static void put_recording(struct json *j, const struct rank *rank)
{
	json__open_object(j, NULL);
	ranks_json__who(j, rank);
	json__uint(j, "events", rank->events);
	json__uint(j, "lost", rank->lost);
	json__string(j, "detail", *rank->detail ? rank->detail : NULL);
	json__bool(j, "complete", rank->complete);
	json__close_object(j);
}

/* Writes a device of a recording; its lines are in the list of all recordings. */
static void put_rank_device(struct json *j, const struct leaks_device *d)
{
	const struct growth *growth = &d->growth;

	json__open_object(j, NULL);
	json__uint(j, "recording", d->recording);
	json__string(j, "device", d->name);
	json__string(j, "clock", growth__clock(growth->clock));
	json__uint(j, growth_summary__steps_key(growth->clock), growth->steps);
	put_request(j, growth);
	json__uint(j, "stride", growth->stride);
	if (growth->clock == GROWTH_TIME)
		json__double(j, "seconds_per_value", growth->slice, /*decimals=*/3);
	json__uint(j, "tested", growth->tested);
	json__bool(j, "coarse", growth->coarse);
	json__uint(j, "leaks", d->counted);
	json__bool(j, "pool_grows", d->pool);
	json__bool(j, "others_grow", d->others);
	leaks_host__json(j, &d->host);
	put_sum(j, "allocated", growth, &growth->allocated, /*known=*/true, /*figures=*/false);
	put_sum(j, "reserved", growth, &growth->reserved, growth->has_reserved, /*figures=*/false);
	put_sum(j, "others", growth, &growth->others, growth->has_others, /*figures=*/false);
	json__close_object(j);
}

/* As put_where(), for several recordings. */
static void put_rank_where(struct json *j, enum group by, const struct leaks_line *l,
			   const struct row *r)
{
	if (by == BY_LINE || by == BY_STACK)
		report_json__line(j, r);
	if (l->stack) {
		json__open_array(j, "stack");
		for (const char **s = l->stack; *s; s++)
			json__string(j, NULL, *s);
		json__close_array(j);
	}
	if (by == BY_MODULE)
		put_module(j, r);
	json__string(j, "category", r->category);
}

/* Writes a line: where it grows, and its figures in each recording. */
static void put_rank_line(struct json *j, const struct leaks_ranks *r,
			  const struct leaks_line *line)
{
	const struct leaks_cell *cells = &r->cells[line->first];

	json__open_object(j, NULL);
	json__string(j, "kind_of_device", line->kind);
	put_rank_where(j, r->opts->by, line, &r->cells[line->most].at.row);
	json__open_array(j, "grows_in");
	for (uint32_t i = 0; i < line->n; i++)
		if (cells[i].counts)
			json__uint(j, NULL, r->devices[cells[i].device].recording);
	json__close_array(j);
	json__open_array(j, "recordings");
	for (uint32_t i = 0; i < line->n; i++) {
		const struct leaks_device *d = &r->devices[cells[i].device];
		const struct rank *rank = &r->ranks->all[d->recording];

		json__open_object(j, NULL);
		json__uint(j, "recording", d->recording);
		if (rank->has_number)
			json__uint(j, "rank", rank->number);
		json__string(j, "device", d->name);
		put_figures(j, &d->growth, &cells[i].at, r->opts->figures);
		json__close_object(j);
	}
	json__close_array(j);
	json__close_object(j);
}

/* As put_lines(), for several recordings. */
static size_t put_rank_lines(struct json *j, const char *key, const struct leaks_ranks *r,
			     bool leaks)
{
	size_t top = r->opts->top, n_lines = 0;

	json__open_array(j, key);
	for (size_t i = 0; i < r->nlines; i++) {
		if (!r->lines[i].counted == leaks)
			continue;
		if (!top || n_lines < top)
			put_rank_line(j, r, &r->lines[i]);
		n_lines++;
	}
	json__close_array(j);
	return top && n_lines > top ? n_lines - top : 0;
}

void leaks_ranks__json(struct json *j, const struct leaks_ranks *r)
{
	const struct leaks_opts *opts = r->opts;
	const struct ranks *ranks = r->ranks;
	size_t left;

	json__open_object(j, NULL);
	json__open_object(j, "memtrace");
	json__string(j, "version", MEMTRACE_VERSION);
	json__close_object(j);
	json__bool(j, "together", true);
	json__bool(j, "one_job", ranks__one_job(ranks));
	json__open_array(j, "recordings");
	for (size_t i = 0; i < ranks->n; i++)
		put_recording(j, &ranks->all[i]);
	json__close_array(j);
	json__uint(j, "recordings_without_events", ranks->empty);
	json__string(j, "by", group_names[opts->by]);
	json__string(j, "min_confidence", trend__confidence(opts->min_confidence));
	json__uint(j, "min_growth", opts->min_growth);
	json__open_array(j, "devices");
	for (size_t i = 0; i < r->ndevices; i++)
		put_rank_device(j, &r->devices[i]);
	json__close_array(j);
	left = put_rank_lines(j, "leaks", r, /*leaks=*/true);
	left += put_rank_lines(j, "no_leaks", r, /*leaks=*/false);
	if (left)
		json__uint(j, "lines_left_out", left);
	json__close_object(j);
}

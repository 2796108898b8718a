/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Writes growing lines as JSON: docs/reference/leaks.md has the keys. */
#include "report/leaks.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "model/growth_summary.h"
#include "model/words.h"
#include "record/detail.h"
#include "report/doc.h"
#include "report/leaks/host.h"

bool leaks__wants(const struct leaks_opts *o, const struct leaks_doc *doc, size_t i)
{
	return !o->device || model__find_device(doc->model, o->device) == (int)i;
}

void leaks_json__trend(struct json *j, const struct growth *g, const struct trend *t,
		       double per_step, const uint64_t *values, bool figures)
{
	json__string(j, "verdict", trend__verdict(t->verdict));
	json__string(j, "confidence", trend__confidence(t->confidence));
	json__double(j, "p", t->p, 9);
	json__double(j, "sorted", t->sorted, 4);
	json__double(j, growth_summary__rate_key(g->clock), per_step, 3);
	json__uint(j, "grown", t->grown);
	json__uint(j, "rises", t->rises);
	json__uint(j, "falls", t->falls);
	json__uint(j, "intervals", t->intervals);
	json__uint(j, "values", t->values);
	json__uint(j, "warmup", t->warmup);
	json__uint(j, "range", t->range);
	json__uint(j, "largest_fall", t->fall);
	json__double(j, "spread", t->spread, 1);
	json__open_array(j, "share");
	for (int i = 0; i < TREND_PARTS; i++)
		json__double(j, NULL, t->share[i], 4);
	json__close_array(j);
	if (!figures)
		return;
	json__open_array(j, "live");
	for (uint32_t i = 0; i < t->values; i++)
		json__uint(j, NULL, values[i]);
	json__close_array(j);
}

void leaks_json__request(struct json *j, const struct growth *g)
{
	if (g->clock != GROWTH_REQUESTS)
		return;
	json__open_object(j, "request");
	json__string(j, "file", g->request.file);
	json__uint(j, "line", g->request.line);
	json__string(j, "device", *g->request.device ? g->request.device : NULL);
	json__double(j, "seconds", g->request.seconds, 9);
	json__close_object(j);
}

void leaks_json__figures(struct json *j, const struct growth *g, const struct growth_line *l,
			 bool figures)
{
	leaks_json__trend(j, g, &l->trend, l->per_step, l->values, figures);
	json__string(j, "kind", growth__kind(l->kind));
	json__uint(j, "bytes", l->row.bytes);
	json__uint(j, "count", l->row.count);
	json__uint(j, "old", l->old);
	json__uint(j, "total_allocated", l->allocated);
	json__uint(j, "allocations", l->allocations);
	json__double(j, "stays_per_allocation", l->per_block, 3);
	json__open_array(j, "survives");
	for (unsigned i = 0; i < l->ages; i++) {
		json__open_object(j, NULL);
		json__uint(j, "age", UINT64_C(1) << i);
		json__double(j, "share", l->survives[i], 6);
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

static void put_where(struct json *j, const struct leaks_doc *doc, const struct leaks_opts *o,
		      const struct row *r, char *buf)
{
	if (o->by == BY_LINE || o->by == BY_STACK)
		report_json__line(j, r);
	if (o->by == BY_STACK)
		report_json__stack(j, doc->dict, r, buf);
	if (o->by == BY_MODULE) {
		json__string(j, "module", r->module);
		json__string(j, "module_class", r->module_class);
		json__string(j, "module_root", r->module_root);
	}
	if (o->by != BY_CATEGORY && r->modules)
		json__uint(j, "modules", r->modules);
	json__string(j, "category", r->category);
}

static void put_line(struct json *j, const struct leaks_doc *doc, const struct leaks_opts *o,
		     const struct growth *g, const struct growth_line *l, char *buf)
{
	json__open_object(j, NULL);
	put_where(j, doc, o, &l->row, buf);
	leaks_json__figures(j, g, l, o->figures);
	json__close_object(j);
}

/* Writes the lines that count (leaks), or the others with a verdict. Returns how many were left
 * out. */
static size_t put_lines(struct json *j, const char *key, const struct leaks_doc *doc,
			const struct leaks_opts *o, const struct growth *g, bool leaks, char *buf)
{
	size_t k = 0;

	json__open_array(j, key);
	for (size_t i = 0; i < g->n; i++) {
		if (trend__counts(&g->lines[i].trend, o->min_confidence) != leaks)
			continue;
		if (!o->top || k < o->top)
			put_line(j, doc, o, g, &g->lines[i], buf);
		k++;
	}
	json__close_array(j);
	return o->top && k > o->top ? k - o->top : 0;
}

static void put_sum(struct json *j, const char *key, const struct growth *g,
		    const struct growth_sum *s, bool known, const struct leaks_opts *o)
{
	if (!known) {
		json__null(j, key);
		return;
	}
	json__open_object(j, key);
	leaks_json__trend(j, g, &s->trend, s->per_step, s->values, o->figures);
	json__close_object(j);
}

/* A line that is always given by file and line. */
static void put_driver(struct json *j, const char *key, const struct leaks_doc *doc,
		       const struct leaks_opts *o, const struct growth_line *l, char *buf)
{
	struct leaks_opts by_line = *o;

	by_line.by = BY_LINE;
	json__open_object(j, key);
	put_where(j, doc, &by_line, &l->row, buf);
	json__uint(j, "bytes", l->row.bytes);
	json__string(j, "held_by", l->nnames ? l->names[0].text : NULL);
	json__close_object(j);
}

static void put_peaks(struct json *j, const struct leaks_doc *doc, const struct leaks_opts *o,
		      const struct growth *g, char *buf)
{
	if (!g->peaks.known) {
		json__null(j, "peaks");
		return;
	}
	json__open_object(j, "peaks");
	json__open_object(j, "trend");
	leaks_json__trend(j, g, &g->peaks.trend, g->peaks.per_step, NULL, false);
	json__close_object(j);
	if (g->peaks.line)
		put_driver(j, "line", doc, o, g->peaks.line, buf);
	else
		json__null(j, "line");
	growth_summary__put_input(j, &g->peaks);
	json__close_object(j);
}

static void put_inside(struct json *j, const struct leaks_doc *doc, const struct leaks_opts *o,
		       const struct growth *g, char *buf)
{
	const struct growth_inside *in = &g->inside;
	struct growth by_call = { .clock = GROWTH_CALLS };

	if (!growth__inside_grows(g, o->min_confidence)) {
		json__null(j, "inside_step");
		return;
	}
	json__open_object(j, "inside_step");
	json__uint(j, "step", in->step);
	json__uint(j, "calls", in->calls);
	json__bool(j, "open", in->open);
	json__uint(j, "grown_on_device", in->grown);
	json__uint(j, "lines", in->lines);
	json__double(j, "lines_per_call", in->lines_per_call, 3);
	put_driver(j, "line", doc, o, in->line, buf);
	json__open_object(j, "trend");
	leaks_json__trend(j, &by_call, &in->line->trend, in->line->per_step, NULL, false);
	json__close_object(j);
	json__close_object(j);
}

static int put_device(struct json *j, const struct leaks_doc *doc, const struct leaks_opts *o,
		      size_t device, bool *found, char *buf)
{
	struct model_device d;
	struct leaks_host host = { 0 };
	struct growth g;
	size_t left;
	int err = growth__judge(doc->model, device, o->min_growth, &g);

	if (err)
		return err;
	model__device(doc->model, device, &d);
	*found |= growth__count(&g, o->min_confidence) ||
		  growth__pool_grows(&g, o->min_confidence) ||
		  growth__peaks_grow(&g, o->min_confidence) ||
		  (g.inside.open && growth__inside_grows(&g, o->min_confidence)) ||
		  growth__others_grow(&g, o->min_confidence);
	if (!strcmp(d.name, "host"))
		leaks_host__judge(doc->model, o, &host);
	*found |= host.copies || host.pinned;
	json__open_object(j, NULL);
	json__string(j, "device", d.name);
	json__string(j, "clock", growth__clock(g.clock));
	json__uint(j, growth_summary__steps_key(g.clock), g.steps);
	if (g.after_steps)
		json__uint(j, "after_steps", g.after_steps);
	leaks_json__request(j, &g);
	json__uint(j, "stride", g.stride);
	if (g.clock == GROWTH_TIME)
		json__double(j, "seconds_per_value", g.slice, 3);
	json__uint(j, "observed", g.observed);
	json__uint(j, "tested", g.tested);
	json__bool(j, "coarse", g.coarse);
	left = put_lines(j, "leaks", doc, o, &g, true, buf);
	left += put_lines(j, "no_leaks", doc, o, &g, false, buf);
	if (left)
		json__uint(j, "lines_left_out", left);
	json__bool(j, "pool_grows", growth__pool_grows(&g, o->min_confidence));
	json__bool(j, "others_grow", growth__others_grow(&g, o->min_confidence));
	leaks_host__json(j, &host);
	json__bool(j, "peaks_grow", growth__peaks_grow(&g, o->min_confidence));
	put_peaks(j, doc, o, &g, buf);
	put_inside(j, doc, o, &g, buf);
	put_sum(j, "allocated", &g, &g.allocated, true, o);
	put_sum(j, "reserved", &g, &g.reserved, g.has_reserved, o);
	put_sum(j, "others", &g, &g.others, g.has_others, o);
	err = growth_summary__device_json(j, doc->model, doc->facts, device, doc->duration);
	json__close_object(j);
	growth__free(&g);
	return err;
}

int leaks_json__devices(struct json *j, const struct leaks_doc *doc, const struct leaks_opts *o,
			bool *found)
{
	size_t n = model__devices(doc->model);
	char *buf = malloc(REPORT_TEXT);
	int err = buf ? 0 : -ENOMEM;

	json__open_array(j, "devices");
	for (size_t i = 0; !err && i < n; i++)
		if (leaks__wants(o, doc, i))
			err = put_device(j, doc, o, i, found, buf);
	json__close_array(j);
	free(buf);
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
	json__seconds(j, "duration", doc->duration, 6);
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

/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Writes growing lines of several recordings as JSON: docs/reference/leaks.md has the keys. */
#include "base/json.h"
#include "model/growth_summary.h"
#include "report/doc.h"
#include "report/leaks.h"

static void put_recording(struct json *j, const struct rank *k)
{
	json__open_object(j, NULL);
	ranks_json__who(j, k);
	json__uint(j, "events", k->events);
	json__uint(j, "lost", k->lost);
	json__bool(j, "complete", k->complete);
	json__close_object(j);
}

static void put_sum(struct json *j, const char *key, const struct growth *g,
		    const struct growth_sum *s, bool known)
{
	if (!known) {
		json__null(j, key);
		return;
	}
	json__open_object(j, key);
	leaks_json__trend(j, g, &s->trend, s->per_step, NULL, false);
	json__close_object(j);
}

static void put_device(struct json *j, const struct leaks_device *d)
{
	const struct growth *g = &d->of;

	json__open_object(j, NULL);
	json__uint(j, "recording", d->recording);
	json__string(j, "device", d->name);
	json__string(j, "clock", growth__clock(g->clock));
	json__uint(j, growth_summary__steps_key(g->clock), g->steps);
	leaks_json__request(j, g);
	json__uint(j, "stride", g->stride);
	if (g->clock == GROWTH_TIME)
		json__double(j, "seconds_per_value", g->slice, 3);
	json__uint(j, "tested", g->tested);
	json__bool(j, "coarse", g->coarse);
	json__uint(j, "leaks", d->counted);
	json__bool(j, "pool_grows", d->pool);
	json__bool(j, "others_grow", d->others);
	leaks_host__json(j, &d->host);
	put_sum(j, "allocated", g, &g->allocated, true);
	put_sum(j, "reserved", g, &g->reserved, g->has_reserved);
	put_sum(j, "others", g, &g->others, g->has_others);
	json__close_object(j);
}

static void put_place(struct json *j, const struct leaks_opts *o, const struct leaks_line *l,
		      const struct row *r)
{
	if (o->by == BY_LINE || o->by == BY_STACK)
		report_json__line(j, r);
	if (l->stack) {
		json__open_array(j, "stack");
		for (const char **s = l->stack; *s; s++)
			json__string(j, NULL, *s);
		json__close_array(j);
	}
	if (o->by == BY_MODULE) {
		json__string(j, "module", r->module);
		json__string(j, "module_class", r->module_class);
		json__string(j, "module_root", r->module_root);
	}
	json__string(j, "category", r->category);
}

static void put_line(struct json *j, const struct leaks_ranks *r, const struct leaks_line *l)
{
	const struct leaks_cell *cells = leaks_ranks__cells(r, l),
				*most = cells + (l->most - l->first);
	const struct ranks *ranks = leaks_ranks__ranks(r);
	const struct leaks_opts *o = leaks_ranks__opts(r);
	const struct leaks_device *devices;

	leaks_ranks__devices(r, &devices);
	json__open_object(j, NULL);
	json__string(j, "kind_of_device", l->kind);
	put_place(j, o, l, &most->at.row);
	json__open_array(j, "grows_in");
	for (uint32_t i = 0; i < l->n; i++)
		if (cells[i].counts)
			json__uint(j, NULL, devices[cells[i].device].recording);
	json__close_array(j);
	json__open_array(j, "recordings");
	for (uint32_t i = 0; i < l->n; i++) {
		const struct leaks_device *d = &devices[cells[i].device];
		const struct rank *k = ranks__at(ranks, d->recording);

		json__open_object(j, NULL);
		json__uint(j, "recording", d->recording);
		if (k->has_number)
			json__uint(j, "rank", k->number);
		json__string(j, "device", d->name);
		leaks_json__figures(j, &d->of, &cells[i].at, o->figures);
		json__close_object(j);
	}
	json__close_array(j);
	json__close_object(j);
}

/* Returns how many lines were left out. */
static size_t put_lines(struct json *j, const char *key, const struct leaks_ranks *r, bool leaks)
{
	size_t top = leaks_ranks__opts(r)->top, k = 0;
	const struct leaks_line *lines;
	size_t n = leaks_ranks__lines(r, &lines);

	json__open_array(j, key);
	for (size_t i = 0; i < n; i++) {
		if (!lines[i].counted == leaks)
			continue;
		if (!top || k < top)
			put_line(j, r, &lines[i]);
		k++;
	}
	json__close_array(j);
	return top && k > top ? k - top : 0;
}

void leaks_ranks__json(struct json *j, const struct leaks_ranks *r)
{
	const struct leaks_opts *o = leaks_ranks__opts(r);
	const struct ranks *ranks = leaks_ranks__ranks(r);
	const struct leaks_device *devices;
	size_t n = leaks_ranks__devices(r, &devices), left;

	json__open_object(j, NULL);
	json__open_object(j, "memtrace");
	json__string(j, "version", MEMTRACE_VERSION);
	json__close_object(j);
	json__bool(j, "together", true);
	json__bool(j, "one_job", ranks__one_job(ranks));
	json__open_array(j, "recordings");
	for (size_t i = 0; i < ranks__count(ranks); i++)
		put_recording(j, ranks__at(ranks, i));
	json__close_array(j);
	json__uint(j, "recordings_without_events", ranks__empty(ranks));
	json__string(j, "by", group_names[o->by]);
	json__string(j, "min_confidence", trend__confidence(o->min_confidence));
	json__uint(j, "min_growth", o->min_growth);
	json__open_array(j, "devices");
	for (size_t i = 0; i < n; i++)
		put_device(j, &devices[i]);
	json__close_array(j);
	left = put_lines(j, "leaks", r, true);
	left += put_lines(j, "no_leaks", r, false);
	if (left)
		json__uint(j, "lines_left_out", left);
	json__close_object(j);
}

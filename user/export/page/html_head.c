/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Data shown before the payload is read; small for any recording. */
#include <errno.h>
#include <stdlib.h>

#include "base/json.h"
#include "export/page/html.h"
#include "model/growth_summary.h"
#include "model/words.h"
#include "report/doc.h"
#include "report/leaks.h"

#define BUCKETS 1600	/* buckets of the first chart, for all devices together */
#define BUCKETS_MIN 200 /* smallest number of buckets per device */
#define ROWS_FIRST 30
#define STRETCHES_FIRST 2500
#define GROWTH_LINES 100 /* lines that grow, and as many that do not, with their curves */

int html_head__put_device(const struct page_data *p, size_t i)
{
	if (p->c->device < 0)
		return (int)i;
	return (size_t)p->c->device == i ? 0 : -1;
}

struct picture {
	uint64_t min, max, reserved;
};

static void put_picture(struct json *j, const char *key, const struct picture *b, size_t n,
			int which)
{
	json__open_array(j, key);
	for (size_t i = 0; i < n; i++)
		json__uint(j, NULL, which == 0 ? b[i].min : which == 1 ? b[i].max : b[i].reserved);
	json__close_array(j);
}

static void widen(struct picture *b, uint64_t min, uint64_t max, uint64_t reserved)
{
	b->min = min < b->min ? min : b->min;
	b->max = max > b->max ? max : b->max;
	b->reserved = reserved > b->reserved ? reserved : b->reserved;
}

/* Each bucket covers some intervals of the curve and includes the value at its start. The first one
 * is that of the window's start. */
static int put_series(struct json *j, const struct page_data *p, const struct page_device *d)
{
	uint64_t width = d->curve.width ? d->curve.width : p->c->duration + 1, start = 0;
	size_t wanted = BUCKETS / model__devices(p->c->model);
	uint64_t since, all, each, held, reserved;
	struct picture *b;
	struct model_now first;
	size_t n, k = 0;

	model__window(p->c->model, &start);
	since = (start < p->c->duration ? start : p->c->duration) / width;
	all = p->c->duration / width - since;
	each = all / (wanted > BUCKETS_MIN ? wanted : BUCKETS_MIN) + 1;
	n = all / each + 1;
	b = calloc(n, sizeof(*b));
	if (!b)
		return -ENOMEM;
	model__first(p->c->model, d->number, &first);
	held = html_moments__allocated(d, (int64_t)first.allocated);
	reserved = first.reserved;
	for (size_t i = 0; i < n; i++) {
		b[i] = (struct picture){ .min = held, .max = held, .reserved = reserved };
		for (; k < d->curve.n && d->curve.parts[k].number < since + (i + 1) * each; k++) {
			const struct curve_part *v = &d->curve.parts[k];

			widen(&b[i], html_moments__allocated(d, v->min),
			      html_moments__allocated(d, v->max), v->reserved_max);
			held = html_moments__allocated(d, v->last);
			reserved = v->reserved;
		}
	}
	json__open_object(j, "series");
	json__open_array(j, "t");
	for (size_t i = 0; i < n; i++)
		json__seconds(j, NULL, (since + i * each) * width, 6);
	json__close_array(j);
	put_picture(j, "allocated_min", b, n, 0);
	put_picture(j, "allocated_max", b, n, 1);
	put_picture(j, "reserved_max", b, n, 2);
	json__close_object(j);
	free(b);
	return 0;
}

/* Index of the moment that the user requested, on this device. */
static int64_t requested_moment(const struct page_data *p, const struct page_device *d)
{
	struct model_opts o = model__opts(p->c->model);
	size_t lo = 0;

	if (o.at == AT_PEAK)
		return html_moments__of(d, d->last.peak_seq);
	if (o.at == AT_END)
		return (int64_t)d->n - 1;
	if (o.at == AT_TIME) {
		while (lo < d->n && d->moments[lo].time <= o.at_time)
			lo++;
		return (int64_t)lo - 1;
	}
	while (lo < d->n && !(d->moments[lo].keep & KEEP_OOM))
		lo++;
	return lo < d->n ? (int64_t)lo : (int64_t)d->n - 1;
}

static int put_device(struct json *j, const struct page_data *p, const struct report_doc *doc,
		      size_t i)
{
	const struct page_device *d = &p->devices[model__number(p->c->model, i)];
	struct model_device info;
	int err;

	model__device(p->c->model, i, &info);
	json__open_object(j, NULL);
	json__string(j, "name", info.name);
	err = report_json__device(j, doc, i);
	json__bool(j, "has_totals", info.has_totals);
	json__uint(j, "moments", d->n);
	json__int(j, "peak_moment", html_moments__of(d, d->last.peak_seq));
	json__int(j, "at_moment", requested_moment(p, d));
	json__seconds(j, "at", doc->at == AT_TIME ? doc->at_time : info.mark_time, 9);
	if (!err)
		err = put_series(j, p, d);
	json__close_object(j);
	return err;
}

static void put_steps(struct json *j, const struct model *m)
{
	struct model_step s;
	size_t n = 0;

	while (model__step(m, n, &s))
		n++;
	json__uint(j, "first_step", model__steps(m) - n);
	json__open_array(j, "steps");
	for (size_t i = 0; i < n && model__step(m, i, &s); i++) {
		json__open_array(j, NULL);
		json__seconds(j, NULL, s.start, 9);
		json__seconds(j, NULL, s.end, 9);
		json__close_array(j);
	}
	json__close_array(j);
}

static void put_ooms(struct json *j, const struct page_data *p)
{
	struct model_device d;
	struct row_frame line;
	struct model_oom o;

	json__open_array(j, "ooms");
	for (size_t i = 0; i < model__devices(p->c->model); i++) {
		if (html_head__put_device(p, i) < 0)
			continue;
		model__device(p->c->model, i, &d);
		for (size_t k = 0; model__oom(p->c->model, i, k, &o); k++) {
			bool known = model__stack_line(p->c->model, o.stack, false, &line);

			json__open_object(j, NULL);
			json__string(j, "device", d.name);
			json__uint(j, "number", o.number);
			json__seconds(j, "time", o.time, 9);
			json__uint(j, "asked", o.size);
			json__uint(j, "allocated", o.allocated);
			json__uint(j, "reserved", o.reserved);
			json__string(j, "file", known ? line.file : NULL);
			json__uint(j, "line", known ? line.line : 0);
			json__string(j, "function", known ? line.func : NULL);
			json__close_object(j);
		}
	}
	json__close_array(j);
}

/* Phases of the main device. If there are too many, only the longer ones. */
static void put_phases(struct json *j, const struct page_data *p, const struct page_device *d)
{
	uint64_t least = 0, longest = p->c->duration;
	size_t n = d ? d->nstretches : 0;

	while (n > STRETCHES_FIRST) {
		least = least ? least * 2 : longest / (1 << 20) + 1;
		n = 0;
		for (size_t i = 0; i < d->nstretches; i++)
			n += d->stretches[i].end - d->stretches[i].start >= least;
	}
	json__open_array(j, "phases");
	for (size_t i = 0; d && i < d->nstretches; i++) {
		const struct stretch *s = &d->stretches[i];

		if (s->end - s->start < least)
			continue;
		json__open_array(j, NULL);
		json__seconds(j, NULL, s->start, 9);
		json__seconds(j, NULL, s->end, 9);
		json__string(j, NULL, phase__name(s->phase));
		json__close_array(j);
	}
	json__close_array(j);
	json__seconds(j, "phases_over", least, 9);
}

static int put_devices(struct json *j, const struct page_data *p, const struct report_doc *doc)
{
	int err = 0;

	json__open_array(j, "devices");
	for (size_t i = 0; i < model__devices(p->c->model) && !err; i++)
		if (html_head__put_device(p, i) >= 0)
			err = put_device(j, p, doc, i);
	json__close_array(j);
	return err;
}

/* What `leaks` says of the recording, with each line's curve. */
static int put_leaks(struct json *j, const struct page_data *p)
{
	const struct export_ctx *c = p->c;
	struct model_device d = { .name = "" };
	const struct leaks_doc doc = { .model = c->model,
				       .dict = c->dict,
				       .facts = c->facts,
				       .name = c->name,
				       .duration = c->duration,
				       .complete = c->complete };
	struct leaks_opts o = { .by = BY_LINE,
				.top = GROWTH_LINES,
				.min_confidence = GROWTH_SUMMARY_CONFIDENCE,
				.min_growth = GROWTH_SUMMARY_LEAST,
				.figures = true };
	bool found = false;
	int err;

	if (c->device >= 0) {
		model__device(c->model, c->device, &d);
		o.device = d.name;
	}
	json__open_object(j, "leaks");
	json__seconds(j, "duration", c->duration, 6);
	words__put_window(j, c->model);
	err = leaks_json__devices(j, &doc, &o, &found);
	json__close_object(j);
	return err;
}

int html_head__put(struct page_data *p)
{
	const struct export_ctx *c = p->c;
	struct model_opts asked = model__opts(c->model);
	struct report_doc doc = {
		.model = c->model,
		.dict = c->dict,
		.facts = c->facts,
		.name = c->name,
		.duration = c->duration,
		.complete = c->complete,
		.device = c->device >= 0 ? c->device : model__main_device(c->model),
		.at = asked.at,
		.at_time = asked.at_time,
		.by = BY_LINE,
		.top = ROWS_FIRST,
	};
	struct json *j = json__new(c->out, false);
	struct model_device main;
	uint32_t number = model__number(c->model, doc.device);
	int err;

	if (!j)
		return -ENOMEM;
	model__device(c->model, doc.device, &main);
	json__open_object(j, NULL);
	json__string(j, "version", facts__get(c->facts, "version"));
	json__string(j, "name", c->name);
	report_json__target(j, &doc);
	report_json__capture(j, &doc);
	report_json__host(j, c->model);
	json__seconds(j, "duration", c->duration, 9);
	json__string(j, "moments", p->chosen ? "chosen" : "every");
	json__seconds(j, "bucket", p->chosen ? p->bucket : 0, 9);
	json__seconds(j, "at", asked.at == AT_TIME ? asked.at_time : main.mark_time, 9);
	json__string(j, "at_name", c->moment);
	json__int(j, "main", html_head__put_device(p, doc.device));
	err = put_devices(j, p, &doc);
	put_steps(j, c->model);
	put_ooms(j, p);
	put_phases(j, p, number < p->n ? &p->devices[number] : NULL);
	json__open_array(j, "categories");
	for (int i = 0; i < CATEGORY_NR; i++)
		json__string(j, NULL, category__name(i));
	json__close_array(j);
	if (!err)
		err = put_leaks(j, p);
	if (!err)
		err = report_json__rows(j, &doc);
	json__close_object(j);
	json__free(j);
	return err;
}

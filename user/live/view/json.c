/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "live/view/json.h"

#include <errno.h>

#include "base/json.h"
#include "model/words.h"
#include "report/doc.h"

static void fact_if(struct json *j, const struct facts *f, const char *name)
{
	const char *s = facts__get(f, name);

	if (s && *s)
		json__string(j, name, s);
}

static void number_if(struct json *j, const struct facts *f, const char *name)
{
	uint64_t number;

	if (facts__number(f, name, &number))
		json__uint(j, name, number);
}

static void put_head(struct json *j, const struct live_proc *p)
{
	json__seconds(j, "time", p->now, 6);
	json__int(j, "pid", p->pid);
	number_if(j, p->facts, "rank");
	fact_if(j, p->facts, "comm");
	fact_if(j, p->facts, "container");
	fact_if(j, p->facts, "pod");
	json__uint(j, "events", p->events);
	json__double(j, "events_per_second", p->rate, 1);
	json__uint(j, "lost", p->lost);
	json__uint(j, "steps", model__whole_steps(p->model));
	if (model__step_time(p->model))
		json__seconds(j, "step_time", model__step_time(p->model), 9);
	else
		json__null(j, "step_time");
}

static void put_devices(struct json *j, const struct live_proc *p)
{
	const struct growth_summary *growth;

	json__open_array(j, "devices");
	for (size_t i = 0; i < model__devices(p->model); i++) {
		struct model_device d;

		model__device(p->model, i, &d);
		json__open_object(j, NULL);
		report_json__figures(j, &d);
		growth = live_proc__growth(p, d.device);
		if (growth)
			growth_summary__json(j, growth);
		json__close_object(j);
	}
	json__close_array(j);
}

static void put_words(struct json *j, enum live_by by, const struct row *r)
{
	if (by == LIVE_LINE || by == LIVE_FUNCTION) {
		json__string(j, "file", r->file);
		json__uint_or_null(j, "line", by == LIVE_LINE && r->file && r->line, r->line);
		json__string(j, "function", r->func);
		json__string(j, "source", r->source);
	}
	if (by != LIVE_CATEGORY) {
		json__string(j, "module", r->module);
		json__uint(j, "modules", r->modules);
	}
	if (by == LIVE_MODULE || by == LIVE_LAYER)
		json__string(j, "module_class", r->module_class);
	if (by != LIVE_LAYER)
		json__string(j, "category", r->bytes ? r->category : NULL);
	if (r->before_attach)
		json__bool(j, "before_attach", true);
	if (r->filtered)
		json__bool(j, "filtered", true);
}

static void put_row(struct json *j, enum live_by by, const struct live_row *r)
{
	json__open_object(j, NULL);
	json__uint(j, "bytes", r->row.bytes);
	json__uint(j, "count", r->row.count);
	json__uint(j, "at_peak", r->at_peak);
	if (r->growth_known)
		json__int(j, "growth", r->growth);
	else
		json__null(j, "growth");
	if (r->rates_known) {
		json__double(j, "allocs_per_second", r->allocs, 3);
		json__uint(j, "bytes_per_second", (uint64_t)r->churn);
	} else {
		json__null(j, "allocs_per_second");
		json__null(j, "bytes_per_second");
	}
	put_words(j, by, &r->row);
	json__close_object(j);
}

static void put_table(struct json *j, const struct live_proc *p, const struct live_rows *rows,
		      const struct live_table *t, const char *names[3])
{
	uint64_t rest = 0;
	size_t more = 0;

	json__open_array(j, names[0]);
	for (size_t i = 0; i < rows->n; i++) {
		const struct live_row *r = &rows->all[i];

		if (!live_table__cuts(t, i, r)) {
			put_row(j, p->by, r);
			continue;
		}
		rest += r->row.bytes;
		more++;
	}
	json__close_array(j);
	json__uint(j, names[1], more);
	if (p->by != LIVE_LAYER) /* inclusive rows overlap, so their sum has no meaning */
		json__uint(j, names[2], rest);
}

static void put_rows(struct json *j, const struct live_proc *p, const struct live_table *t)
{
	static const char *main_names[] = { "rows", "more_rows", "more_bytes" },
			  *host_names[] = { "host_rows", "more_host_rows", "more_host_bytes" };
	int device = model__main_device(p->model);
	struct model_device d;

	if (device < 0)
		return;
	model__device(p->model, (size_t)device, &d);
	json__string(j, "device", d.name);
	json__string(j, "by", live_by_names[p->by]);
	json__string(j, "sort", live_sort_names[t->sort]);
	report_json__select(j, t->select);
	put_table(j, p, &p->rows[p->by], t, main_names);
	if (p->host.n)
		put_table(j, p, &p->host, t, host_names);
}

int live_json__line(FILE *out, const struct live_proc *p, const struct live_table *t,
		    const char *end)
{
	struct json *j = json__new(out, false);

	if (!j)
		return -ENOMEM;
	json__open_object(j, NULL);
	put_head(j, p);
	if (*end)
		json__string(j, "end", end);
	put_devices(j, p);
	if (model__host(p->model))
		report_json__host(j, p->model);
	put_rows(j, p, t);
	json__close_object(j);
	json__free(j);
	return 0;
}

/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Parts of JSON that several outputs have. */
#include "base/json.h"
#include "model/model.h"
#include "model/words.h"
#include "report/doc.h"

/* ---- a layer (calls of a module): the same keys in report, page and timeline ---- */

/* Writes null for calls and reserved memory that are not known. */
static void put_layer_sums(struct json *j, const struct model_layer_sums *l, bool calls,
			   bool reserved)
{
	json__uint(j, "peak_allocated", l->peak_allocated);
	json__uint_or_null(j, "peak_reserved", reserved, l->peak_reserved);
	json__uint(j, "total_allocations", l->allocs);
	json__uint(j, "total_deallocations", l->frees);
	if (reserved)
		json__double(j, "avg_fragmentation", l->avg_fragmentation, /*decimals=*/6);
	else
		json__null(j, "avg_fragmentation");
	json__double(j, "duration_ms", (double)l->duration / 1e6, /*decimals=*/6);
	json__uint_or_null(j, "calls", calls, l->calls);
}

void report_json__layer(struct json *j, const struct model_layer *l, bool reserved)
{
	put_layer_sums(j, &l->all, l->calls_known, reserved);
	json__open_object(j, "forward");
	put_layer_sums(j, &l->forward, l->calls_known, reserved);
	json__close_object(j);
	json__open_object(j, "backward");
	put_layer_sums(j, &l->backward, l->calls_known, reserved);
	json__close_object(j);
}

/* ---- host memory ---- */

/* Writes a reading of host memory. */
static void point_json(struct json *j, const char *key, const struct host_point *p)
{
	json__open_object(j, key);
	json__seconds(j, "time", p->time, /*decimals=*/9);
	json__uint(j, "rss", p->sheet.part[HOST_TOTAL].bytes);
	host_words__json(j, &p->sheet);
	json__close_object(j);
}

int report_json__host(struct json *j, const struct model *m, const struct facts *f,
		      uint64_t duration)
{
	const struct model_host *host = model__host(m);
	struct host_verdict verdict;
	int err;

	if (!host) {
		json__null(j, "host");
		return 0;
	}
	err = host_verdict__of_model(m, f, duration, &verdict);
	if (err)
		return err;
	json__open_object(j, "host");
	json__uint(j, "readings", host->readings);
	host_verdict__json(j, &verdict);
	point_json(j, "moment", &host->at_moment);
	point_json(j, "first", &host->first);
	point_json(j, "highest", &host->highest);
	point_json(j, "last", &host->last);
	json__close_object(j);
	return 0;
}

/* ---- a row's place ---- */

void report_json__line(struct json *j, const struct row *r)
{
	json__string(j, "file", r->file);
	json__uint_or_null(j, "line", r->file && r->line, r->line);
	json__string(j, "function", r->func);
	json__string(j, "module", r->module);
	json__string(j, "module_class", r->module_class);
	if (!r->before_attach)
		json__string(j, "phase", phase__name(r->phase));
	json__string(j, "source", r->source);
	if (r->before_attach)
		json__bool(j, "before_attach", true);
}

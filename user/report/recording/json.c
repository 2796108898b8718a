/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "memtrace.h"
#include "model/analysis.h"
#include "model/device_values.h"
#include "model/growth_summary.h"
#include "model/holders.h"
#include "model/inputs.h"
#include "model/row_fields.h"
#include "model/words.h"
#include "record/detail.h"
#include "record/ending.h"
#include "report/advice.h"
#include "report/doc.h"
#include "report/fail.h"
#include "report/filter.h"

static void fact(struct json *j, const char *key, const struct facts *f, const char *name)
{
	const char *s = facts__get(f, name);

	json__string(j, key, s && *s ? s : NULL);
}

/* Writes a fact, or no key if the recording has no such fact. */
static void fact_if(struct json *j, const struct facts *f, const char *name)
{
	if (facts__get(f, name))
		fact(j, name, f, name);
}

/* Writes a fact under another key. */
static void place_if(struct json *j, const char *key, const struct facts *f, const char *name)
{
	if (facts__get(f, name))
		fact(j, key, f, name);
}

static void uint_if(struct json *j, const struct facts *f, const char *key)
{
	uint64_t number;

	if (facts__number(f, key, &number))
		json__uint(j, key, number);
}

static void uint_or_null(struct json *j, const struct facts *f, const char *key)
{
	uint64_t number;
	bool known = facts__number(f, key, &number);

	json__uint_or_null(j, key, known, number);
}

void report_json__target(struct json *j, const struct report_doc *doc)
{
	char **argv = words__cmdline(doc->facts);
	const struct facts *f = doc->facts;

	json__open_object(j, "target");
	uint_or_null(j, f, "pid");
	uint_if(j, f, "parent");
	uint_if(j, f, "rank");
	uint_if(j, f, "local_rank");
	uint_if(j, f, "world_size");
	fact_if(j, f, "comm");
	json__open_array(j, "cmdline");
	for (char **a = argv; a && *a; a++)
		json__string(j, NULL, *a);
	json__close_array(j);
	fact(j, "python", f, "python");
	fact(j, "torch", f, "torch");
	fact_if(j, f, "cuda_runtime");
	fact_if(j, f, "allocator");
	fact_if(j, f, "exe");
	fact_if(j, f, "cwd");
	place_if(j, "cgroup", f, "cgroup");
	place_if(j, "container", f, "container");
	place_if(j, "container_name", f, "container.name");
	place_if(j, "container_runtime", f, "container.runtime");
	place_if(j, "pod", f, "pod");
	place_if(j, "pod_uid", f, "pod.uid");
	place_if(j, "pod_namespace", f, "pod.namespace");
	json__close_object(j);
	words__free_cmdline(argv);
}

static void put_stacks(struct json *j, const struct model *m)
{
	struct report_stacks s;

	words__stacks(m, &s);
	json__open_object(j, "stacks");
	json__uint(j, "full", s.full);
	json__uint(j, "truncated", s.truncated);
	json__uint(j, "none", s.none);
	json__open_object(j, "failed");
	for (unsigned i = 0; i < MT_WALK_NR; i++)
		if (words__walk_failed(i) && model__walks(m, i))
			json__uint(j, facts__walk_name(i), model__walks(m, i));
	json__close_object(j);
	json__close_object(j);
}

static void put_marks(struct json *j, const struct model *m)
{
	size_t n = model__marks(m);
	uint64_t time;

	if (!n)
		return;
	json__open_array(j, "marks");
	for (size_t i = 0; i < n && i < MODEL_MARKS; i++) {
		const char *name = model__mark(m, i, &time);

		json__open_object(j, NULL);
		json__seconds(j, "time", time, 9);
		json__string(j, "name", name);
		json__close_object(j);
	}
	json__close_array(j);
	if (n > MODEL_MARKS)
		json__uint(j, "marks_left_out", n - MODEL_MARKS);
}

void report_json__capture(struct json *j, const struct report_doc *doc)
{
	const struct facts *f = doc->facts;
	uint64_t first = 0;
	bool known = model__job_step(doc->model, &first);
	char models[WORDS_MODELS];

	json__open_object(j, "capture");
	fact(j, "start", f, "start");
	json__seconds(j, "duration", doc->duration, 9);
	words__put_window(j, doc->model);
	json__uint(j, "events", model__events(doc->model));
	json__uint(j, "lost", words__lost(doc->model, f));
	json__uint(j, "steps", model__whole_steps(doc->model));
	if (model__step_time(doc->model))
		json__seconds(j, "step_time", model__step_time(doc->model), 9);
	json__uint_or_null(j, "first_job_step", known, first);
	if (!known && facts__get(f, "job_step_unknown"))
		fact(j, "first_job_step_unknown", f, "job_step_unknown");
	fact(j, "attached_at", f, "attached_at");
	if (facts__get(f, "host")) {
		fact(j, "host", f, "host");
		uint_or_null(j, f, "host_rss");
		uint_if(j, f, "host_worked_out");
	}
	json__uint(j, "children", words__fact_number(f, "children"));
	put_stacks(j, doc->model);
	json__bool(j, "complete", doc->complete);
	fact_if(j, f, "stop_reason");
	uint_if(j, f, "dropped_events");
	if (facts__get(f, "driver_bypassed"))
		json__bool(j, "driver_bypassed", true);
	if (facts__get(f, "torch_came"))
		json__bool(j, "torch_came", true);
	detail__put(j, f);
	put_marks(j, doc->model);
	fact_if(j, f, "census_problem");
	if (*words__models(models, sizeof(models), f))
		json__string(j, "models", models);
	uint_if(j, f, "allocator_block");
	uint_if(j, f, "allocator_tensors");
	fact_if(j, f, "kernel");
	fact_if(j, f, "hostname");
	json__open_object(j, "counters");
	for (size_t i = 0; i < facts__count(f); i++) {
		const char *key, *value;
		uint64_t n;

		facts__at(f, i, &key, &value);
		if (!strncmp(key, "counter.", 8) && facts__number(f, key, &n))
			json__uint(j, key + 8, n);
	}
	json__close_object(j);
	json__close_object(j);
}

static void put_share(struct json *j, const char *key, const struct model_device *d, double share)
{
	if (d->has_totals)
		json__double(j, key, share, 6);
	else
		json__null(j, key);
}

/* allocated, reserved and fragmentation are those of the end. The document has those of the
 * moment. */
void report_json__figures(struct json *j, const struct model_device *d)
{
	uint64_t value;

	json__string(j, "device", d->name);
	json__string(j, "state", device__on_host(d->device) ? NULL : state__name(d->state));
	for (size_t i = 0; i < device_values_n; i++) {
		const struct device_value *v = &device_values[i];

		if (!v->key)
			continue;
		if (device_value__get(v, d, &value))
			json__uint(j, v->key, value);
		else if (!(v->flags & VALUE_LEFT_OUT))
			json__null(j, v->key);
	}
	json__string(j, "allocated_is", figure__name(d->allocated_is));
	json__string(j, "peak_is", figure__name(d->peak_is));
	json__seconds(j, "peak_time", d->peak_time, 9);
	json__string(j, "peak_phase", phase__name(d->peak_phase));
	put_share(j, "fragmentation", d, words__fragmentation(d->allocated, d->reserved));
	put_share(j, "avg_fragmentation", d, d->avg_fragmentation);
	json__bool(j, "before_attach_known", d->before_known);
}

static void put_all(struct json *j, const struct model *m)
{
	struct model_all all;

	model__all(m, &all);
	json__open_object(j, "all");
	json__uint(j, "devices", all.devices);
	json__uint(j, "peak_allocated", all.peak_allocated);
	json__seconds(j, "peak_allocated_time", all.peak_allocated_time, 9);
	json__uint(j, "peak_reserved", all.peak_reserved);
	json__seconds(j, "peak_reserved_time", all.peak_reserved_time, 9);
	json__close_object(j);
}

int report_json__device(struct json *j, const struct report_doc *doc, size_t device)
{
	struct model_device d;
	int err;

	model__device(doc->model, device, &d);
	report_json__figures(j, &d);
	if (d.ooms)
		report_json__ooms(j, doc, device);
	err = growth_summary__device_json(j, doc->model, doc->facts, device, doc->duration);
	return !err && !device__on_host(d.device) ? report_json__below(j, doc, device) : err;
}

static int put_devices(struct json *j, const struct report_doc *doc)
{
	int err = 0;

	json__open_array(j, "devices");
	for (size_t i = 0; i < model__devices(doc->model) && !err; i++) {
		json__open_object(j, NULL);
		err = report_json__device(j, doc, i);
		json__close_object(j);
	}
	json__close_array(j);
	put_all(j, doc->model);
	return err;
}

void report_json__select(struct json *j, const struct report_select *s)
{
	if (!s || (!s->filter && !s->nhide))
		return;
	json__string(j, "filter", s->expr);
	json__open_array(j, "hide");
	for (size_t i = 0; i < s->nhide; i++)
		json__string(j, NULL, s->hide[i]);
	json__close_array(j);
}

static void put_moment(struct json *j, const struct report_doc *doc)
{
	struct model_device d;
	char by[64];

	model__device(doc->model, doc->device < 0 ? SIZE_MAX : (size_t)doc->device, &d);
	json__string(j, "device", doc->device < 0 ? NULL : d.name);
	json__string(j, "at", moment_names[doc->at]);
	json__seconds(j, "time", doc->at == AT_TIME ? doc->at_time : d.mark_time, 9);
	json__string(j, "by", doc->segments ? "segment" : words__groups(by, doc->by, doc->split));
	report_json__select(j, doc->select);
	json__uint(j, "allocated", d.mark_allocated);
	json__string(j, "allocated_is", figure__name(d.mark_is));
	json__uint_or_null(j, "reserved", d.has_totals, d.mark_reserved);
	put_share(j, "fragmentation", &d, words__fragmentation(d.mark_allocated, d.mark_reserved));
	json__uint_or_null(j, "before_attach", d.before_known, d.mark_before_attach);
}

struct report_doc report_doc__of(const struct analysis *a, int device)
{
	return (struct report_doc){
		.model = a->model,
		.dict = a->dict,
		.facts = a->facts,
		.name = a->name,
		.format = mtr_reader__version(a->reader),
		.duration = a->duration,
		.complete = a->complete,
		.device = device,
	};
}

void report_json__stack(struct json *j, const struct dict *d, const struct row *r, char *buf)
{
	struct dict_stack s = dict__get_stack(d, r->stack);

	json__open_array(j, "stack");
	for (uint32_t i = s.n; i-- > 0;)
		json__string(j, NULL, words__frame(buf, d, s.frames[i]));
	if (row__has_leaf(r))
		json__string(j, NULL, r->node_class);
	json__close_array(j);
}

static void put_field(struct json *j, enum row_field f, const struct row *r, unsigned of)
{
	struct row_value v = row_field__get(f, r, of);

	if (!v.is_of || (v.optional && !v.known))
		return;
	if (v.known && !v.text)
		json__uint(j, row_field__name(f), v.number);
	else
		json__string(j, row_field__name(f), v.text);
}

static void put_row_share(struct json *j, const struct row *r, uint64_t all)
{
	json__double(j, "share", all ? (double)r->bytes / (double)all : 0, 6);
	if (r->sampled.high == r->bytes && r->sampled.low == r->bytes)
		return;
	json__open_object(j, "sampled");
	json__uint(j, "estimate", r->sampled.bytes);
	json__uint(j, "low", r->sampled.low);
	json__uint(j, "high", r->sampled.high);
	json__close_object(j);
}

static void put_row(struct json *j, const struct report_doc *doc, const struct row *r, uint64_t all,
		    char *buf)
{
	unsigned of = words__speaks_of(doc->by, doc->split);

	json__open_object(j, NULL);
	for (enum row_field f = 0; f < ROW_FIELDS; f++) {
		put_field(j, f, r, of);
		if (f == ROW_REQUESTED)
			put_row_share(j, r, all);
		if (f == ROW_FUNCTION && (of & 1U << BY_STACK))
			report_json__stack(j, doc->dict, r, buf);
	}
	if (r->before_attach) {
		json__bool(j, "before_attach", true);
		json__uint(j, "anonymous", r->anonymous);
	}
	json__close_object(j);
}

static void put_left_out(struct json *j, const struct report_doc *doc, const char *key, size_t rows,
			 uint64_t bytes)
{
	json__open_object(j, key);
	json__uint(j, "rows", rows);
	if (doc->split || doc->by != BY_LAYER)
		json__uint(j, "bytes", bytes);
	json__close_object(j);
}

int report_json__rows(struct json *j, const struct report_doc *doc)
{
	struct row_opts o = { .by = doc->by,
			      .split = doc->split,
			      .when = ROWS_AT_MARK,
			      .which_line = doc->which_line };
	size_t n = 0, kept, shown;
	struct row *rows = NULL;
	struct model_device d;
	char *buf = malloc(REPORT_TEXT);
	uint64_t left = 0, out, count;
	int err = buf ? 0 : -ENOMEM;

	report_select__apply(doc->select, &o);
	if (!err && doc->device >= 0) {
		model__device(doc->model, doc->device, &d);
		err = model__rows(doc->model, doc->device, &o, &rows, &n);
	}
	kept = report_select__kept(rows, n, &out, &count);
	shown = doc->top && doc->top < kept ? doc->top : kept;
	json__open_array(j, "rows");
	for (size_t i = 0; i < shown; i++)
		put_row(j, doc, &rows[i], d.mark_allocated, buf);
	json__close_array(j);
	for (size_t i = shown; i < kept; i++)
		left += rows[i].bytes;
	if (shown < kept)
		put_left_out(j, doc, "rows_left_out", kept - shown, left);
	if (doc->select && doc->select->filter)
		put_left_out(j, doc, "rows_filtered_out", n - kept, out);
	free(rows);
	free(buf);
	return err;
}

static void put_holder(struct json *j, const struct holder *h)
{
	json__open_object(j, NULL);
	json__string(j, "holder", *h->name ? h->name : NULL);
	json__uint(j, "bytes", h->bytes);
	json__uint(j, "count", h->count);
	json__uint_or_null(j, "size", h->size, h->size);
	json__string(j, "category", h->category);
	json__string(j, "module", h->module);
	json__string(j, "module_class", h->module_class);
	json__string(j, "module_root", h->module_root);
	json__uint(j, "modules", h->modules);
	json__close_object(j);
}

/* Writes the moment's memory from before attach by what holds it. */
static int put_holders(struct json *j, const struct report_doc *doc)
{
	struct row_opts o = { .by = BY_LINE, .when = ROWS_AT_MARK };
	struct holders h = { 0 };
	struct row *rows = NULL;
	size_t n = 0;
	int err = doc->device < 0 ? 0 : model__rows(doc->model, doc->device, &o, &rows, &n);

	if (!err)
		err = holders__of_rows(rows, n, false, &h);
	json__open_array(j, "before_attach_holders");
	for (size_t i = 0; i < h.n; i++)
		put_holder(j, &h.all[i]);
	json__close_array(j);
	holders__free(&h);
	free(rows);
	return err;
}

/* Writes the moment's bytes by category. */
static int put_categories(struct json *j, const struct report_doc *doc)
{
	struct row_opts o = { .by = BY_CATEGORY, .when = ROWS_AT_MARK };
	uint64_t bytes[CATEGORY_NR] = { 0 }, before = 0;
	struct row *rows = NULL;
	size_t n = 0;
	int err = doc->device < 0 ? 0 : model__rows(doc->model, doc->device, &o, &rows, &n);

	if (err)
		return err;
	json__open_object(j, "categories");
	for (size_t i = 0; i < n; i++)
		for (int c = 0; c < CATEGORY_NR; c++)
			if (rows[i].before_attach)
				before = rows[i].bytes;
			else if (!strcmp(rows[i].category, category__name(c)))
				bytes[c] = rows[i].bytes;
	for (int c = 0; c < CATEGORY_NR; c++)
		json__uint(j, category__name(c), bytes[c]);
	/* memory from before attach without a known category */
	json__uint(j, "before_attach", before);
	json__close_object(j);
	free(rows);
	return 0;
}

struct named_layer {
	struct model_layer l;
	/* true if another model has this name; the key then begins with the root's class */
	bool twice;
};

static int cmp_layer(const void *a, const void *b)
{
	const struct named_layer *x = a, *y = b;
	int c = strcmp(x->l.name, y->l.name);

	return c ? c : strcmp(x->l.root, y->l.root);
}

static void put_layer(struct json *j, const struct named_layer *n, bool reserved)
{
	const struct model_layer *l = &n->l;
	char key[2 * REPORT_TEXT];

	snprintf(key, sizeof(key), "%s%s%s", n->twice ? l->root : "", n->twice ? ":" : "", l->name);
	json__open_object(j, key);
	json__string(j, "layer_name", l->name);
	json__string(j, "layer_class", l->cls);
	json__string(j, "root_class", l->root);
	report_json__layer(j, l, reserved);
	json__close_object(j);
}

static int put_layers(struct json *j, const struct model *m)
{
	size_t n = model__layers(m);
	struct named_layer *all = calloc(n + 1, sizeof(*all));

	json__open_object(j, "layers");
	for (size_t i = 0; all && i < n; i++)
		model__layer(m, i, &all[i].l);
	if (all)
		qsort(all, n, sizeof(*all), cmp_layer);
	for (size_t i = 0; all && i < n; i++)
		all[i].twice = (i && !strcmp(all[i - 1].l.name, all[i].l.name)) ||
			       (i + 1 < n && !strcmp(all[i + 1].l.name, all[i].l.name));
	for (size_t i = 0; all && i < n; i++)
		put_layer(j, &all[i], model__reserves(m));
	json__close_object(j);
	free(all);
	return all ? 0 : -ENOMEM;
}

static void put_phases(struct json *j, const struct model *m)
{
	json__open_object(j, "phases");
	for (int p = 0; p < PHASE_NR; p++) {
		struct model_phase s;

		model__phase(m, p, &s);
		if (!s.count)
			continue;
		json__open_object(j, phase__name(p));
		json__uint(j, "peak_allocated", s.peak_allocated);
		json__seconds(j, "peak_time", s.peak_time, 9);
		json__uint_or_null(j, "peak_reserved", model__reserves(m), s.peak_reserved);
		json__int(j, "allocated_delta", s.allocated_delta);
		json__double(j, "duration_ms", (double)s.duration / 1e6, 6);
		json__uint(j, "count", s.count);
		json__close_object(j);
	}
	json__close_object(j);
}

int report_json__document(struct json *j, const char *key, const struct report_doc *doc)
{
	int err, err2, err3, err4, err5;

	json__open_object(j, key);
	json__open_object(j, "memtrace");
	fact(j, "version", doc->facts, "version");
	json__uint(j, "recording_format", doc->format);
	json__string(j, "recording", doc->name);
	json__close_object(j);
	report_json__target(j, doc);
	report_json__capture(j, doc);
	ending__json(j, doc->facts);
	err3 = put_devices(j, doc);
	report_json__host(j, doc->model);
	put_moment(j, doc);
	err4 = put_categories(j, doc);
	err5 = put_holders(j, doc);
	err = doc->segments ? report_json__segments(j, doc) : report_json__rows(j, doc);
	err2 = put_layers(j, doc->model);
	put_phases(j, doc->model);
	if (doc->advice)
		advice__json(j, doc->advice);
	if (doc->fail)
		report_fail__json(j, doc->fail, doc->fail_from);
	if (doc->rolling)
		rolling_view__json(doc->rolling, j);
	json__close_object(j);
	return err ?: err2 ?: err3 ?: err4 ?: err5;
}

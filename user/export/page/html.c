/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The html format: one page with the whole history. The template is made from page/ at build
 * time; two parts are filled in here. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "assets/page.html.h"
#include "base/array.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/map64.h"
#include "export/formats/frames.h"
#include "export/formats/gzip.h"
#include "export/formats/template.h"
#include "export/page/html.h"
#include "model/growth.h"
#include "model/growth_summary.h"
#include "model/holders.h"
#include "model/fields.h"
#include "model/words.h"
#include "record/varint.h"
#include "report/doc.h"
#include "report/leaks.h"

/* ---- the head: data that the page shows at once ---- */

#define BUCKETS 1600	/* buckets of the first chart, for all devices together */
#define BUCKETS_MIN 200 /* smallest number of buckets per device */
#define ROWS_FIRST 30
#define STRETCHES_FIRST 2500
#define GROWTH_LINES 100 /* lines that grow, and as many that do not, with their curves */

/* Index in the page of the model's device i; -1: left out. */
static int page_index(const struct page_data *p, size_t i)
{
	if (p->c->device < 0)
		return (int)i;
	return (size_t)p->c->device == i ? 0 : -1;
}

struct picture {
	uint64_t min, max, reserved;
};

/* Writes the field at an offset of struct picture, of each bucket. */
static void put_picture(struct json *j, const char *key, const struct picture *b, size_t n,
			size_t field)
{
	json__open_array(j, key);
	for (size_t i = 0; i < n; i++)
		json__uint(j, NULL, *(const uint64_t *)((const char *)&b[i] + field));
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
	put_picture(j, "allocated_min", b, n, offsetof(struct picture, min));
	put_picture(j, "allocated_max", b, n, offsetof(struct picture, max));
	put_picture(j, "reserved_max", b, n, offsetof(struct picture, reserved));
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
		if (page_index(p, i) < 0)
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
		if (page_index(p, i) >= 0)
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

/* Writes the data that the page shows at once. */
static int put_head(struct page_data *p)
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
	json__int(j, "main", page_index(p, doc.device));
	err = put_devices(j, p, &doc);
	put_steps(j, c->model);
	put_ooms(j, p);
	put_phases(j, p, number < p->n ? &p->devices[number] : NULL);
	json__open_array(j, "categories");
	for (int i = 0; i < CATEGORY_NR; i++)
		json__string(j, NULL, category__name(i));
	json__close_array(j);
	if (err)
		goto out;
	err = put_leaks(j, p);
	if (!err)
		err = report_json__rows(j, &doc);
out:
	json__close_object(j);
	json__free(j);
	return err;
}

/* ---- the payload: gzip of a JSON directory and columns ---- */

/* The payload, compressed with gzip: the length of the JSON directory (4 bytes, little-endian),
 * the directory, and columns of numbers as LEB128, partly as differences. page/data.js reads it. */

#define NODES_MAX 400000 /* limit of the stack tree; further stacks share one frame */

/* Columns of numbers, each named in the directory. */
struct page_columns {
	struct page_column {
		char name[24];
		struct bytes bytes;
		uint64_t n;
		bool zigzag;
	} * all;
	size_t n, cap;
	bool failed;
};

void bytes__free(struct bytes *b)
{
	free(b->p);
	*b = (struct bytes){ 0 };
}

static bool room(struct bytes *b, size_t n)
{
	if (!b->failed && array__grow(&b->p, &b->cap, b->n + n, 1))
		b->failed = true;
	return !b->failed;
}

static void put_varint(struct bytes *b, uint64_t v)
{
	if (room(b, VARINT_MAX))
		b->n = varint__put(b->p + b->n, v) - b->p;
}

/* Adds a column for a device of the page (-1: none). Fill it before adding the next one. */
static struct page_column *add_column(struct page_columns *c, const char *name, int device,
				      bool zigzag)
{
	/* dummy result; nothing is written, because it is marked as failed */
	static struct page_column nowhere;
	struct page_column *col;

	nowhere.bytes.failed = true;
	if (c->failed || array__grow(&c->all, &c->cap, c->n + 1, sizeof(*c->all))) {
		c->failed = true;
		return &nowhere;
	}
	col = &c->all[c->n++];
	*col = (struct page_column){ .zigzag = zigzag };
	if (device < 0)
		snprintf(col->name, sizeof(col->name), "%s", name);
	else
		snprintf(col->name, sizeof(col->name), "%d.%s", device, name);
	return col;
}

static void put(struct page_column *c, uint64_t v)
{
	put_varint(&c->bytes, c->zigzag ? zigzag(v) : v);
	c->n++;
}

/* --- attribution of blocks: rows, strings by number, and stacks as one tree of frames */

/* Fields of a row of the page: those of struct row, and its own. */
enum { PAGE_DEVICE = ROW_FIELDS, PAGE_STACK, PAGE_BEFORE, PAGE_HOLDER, PAGE_FIELDS };

static const struct {
	const char *column;
	unsigned field;
} page_fields[] = {
	{ "row.file", ROW_FILE },	 { "row.function", ROW_FUNCTION },
	{ "row.module", ROW_MODULE },	 { "row.class", ROW_MODULE_CLASS },
	{ "row.root", ROW_MODULE_ROOT }, { "row.category", ROW_CATEGORY },
	{ "row.source", ROW_SOURCE },	 { "row.name", ROW_NAME },
	{ "row.thread", ROW_THREAD },	 { "row.node", ROW_NODE_CLASS },
	{ "row.phase", ROW_PHASE },	 { "row.line", ROW_LINE },
	{ "row.tid", ROW_TID },		 { "row.device", PAGE_DEVICE },
	{ "row.stack", PAGE_STACK },	 { "row.before", PAGE_BEFORE },
	{ "row.holder", PAGE_HOLDER }, /* of memory from before attach (model/holders.h) */
};

#define N_PAGE_FIELDS (sizeof(page_fields) / sizeof(*page_fields))

struct page_row {
	uint32_t f[PAGE_FIELDS]; /* texts by their number; 0: none */
};

struct stack_node {
	uint32_t frame, parent_no;
};

struct page_rows {
	struct frames *frames;
	struct map64 *children; /* (parent_no, frame) -> node */
	struct stack_node *nodes;
	size_t nnodes, capnodes;
	uint32_t smaller;	 /* node for stacks over the limit */
	struct map64 *string_at; /* address -> number; the dict stores equal strings once */
	const char **strings;
	size_t nstrings, capstrings;
	struct map64 *row_at; /* hash -> row */
	struct page_row *rows;
	size_t n, cap;
	uint32_t *row_of_class;
	struct holders *holders; /* of each device */
	size_t nholders;
};

/* *ret: the string's number in the page, from 1. */
static int number_string(struct page_rows *r, const char *s, uint32_t *ret)
{
	uint64_t at;
	int err;

	if (map64__get(r->string_at, (uintptr_t)s, &at)) {
		*ret = at + 1;
		return 0;
	}
	if (array__grow(&r->strings, &r->capstrings, r->nstrings + 1, sizeof(*r->strings)))
		return -ENOMEM;
	err = map64__set(r->string_at, (uintptr_t)s, r->nstrings);
	r->strings[r->nstrings++] = s;
	*ret = r->nstrings;
	return err;
}

/* The node of a stack; r->smaller if the tree is full. */
static int find_node(struct page_rows *r, const uint32_t *frames, uint32_t n, uint32_t *ret)
{
	uint32_t parent_no = 0;

	for (uint32_t i = 0; i < n; i++) {
		uint64_t key = (uint64_t)parent_no << 32 | frames[i], at;
		int err;

		if (!map64__get(r->children, key, &at)) {
			if (r->nnodes >= NODES_MAX) {
				*ret = r->smaller;
				return 0;
			}
			if (array__grow(&r->nodes, &r->capnodes, r->nnodes + 1, sizeof(*r->nodes)))
				return -ENOMEM;
			at = r->nnodes;
			r->nodes[r->nnodes++] = (struct stack_node){ .frame = frames[i],
								     .parent_no = parent_no };
			err = map64__set(r->children, key, at);
			if (err)
				return err;
		}
		parent_no = at + 1;
	}
	*ret = parent_no - 1;
	return 0;
}

static int find_row(struct page_rows *r, const struct page_row *row, uint32_t *ret)
{
	uint64_t hash = hash__bytes(hash__seed(), row, sizeof(*row)), at;

	for (; map64__get(r->row_at, hash, &at); hash++) {
		if (!memcmp(&r->rows[at], row, sizeof(*row))) {
			*ret = at;
			return 0;
		}
	}
	if (r->n >= UINT32_MAX || array__grow(&r->rows, &r->cap, r->n + 1, sizeof(*r->rows)))
		return -ENOMEM;
	r->rows[r->n] = *row;
	*ret = r->n;
	return map64__set(r->row_at, hash, r->n++);
}

static int add_block_class(struct page_rows *r, const struct page_data *p, uint32_t block_class,
			   int device)
{
	struct row row;
	struct page_row out = { 0 };
	struct row_value v;
	const uint32_t *frames;
	uint32_t n;
	int err;

	model__block_class(p->c->model, block_class, &row);
	out.f[PAGE_DEVICE] = (uint32_t)device;
	out.f[PAGE_BEFORE] = row.before_attach;
	err = frames__of_row(r->frames, &row, &frames, &n);
	if (!err)
		err = find_node(r, frames, n, &out.f[PAGE_STACK]);
	for (size_t i = 0; i < N_PAGE_FIELDS && !err; i++) {
		unsigned f = page_fields[i].field;

		if (f >= ROW_FIELDS)
			continue;
		v = row_field__get(f, &row, 0);
		out.f[f] = (uint32_t)v.number;
		if (v.text)
			err = number_string(r, v.text, &out.f[f]);
	}
	if (!row.file)
		out.f[ROW_LINE] = 0;
	if (!row.thread)
		out.f[ROW_TID] = 0;
	return err ? err : find_row(r, &out, &r->row_of_class[block_class]);
}

/* Rows in the order of their first block, so that similar recordings give similar pages. */
static int add_device(struct page_rows *r, const struct page_data *p, const struct page_device *d,
		      int device)
{
	int err = 0;

	for (size_t i = 0; i < d->nblocks && !err; i++)
		if (r->row_of_class[d->blocks[i].block_class] == UINT32_MAX)
			err = add_block_class(r, p, d->blocks[i].block_class, device);
	for (size_t i = 0; i < d->npassed && !err; i++)
		if (r->row_of_class[d->passed[i].block_class] == UINT32_MAX)
			err = add_block_class(r, p, d->passed[i].block_class, device);
	return err;
}

static const char *string_at(const struct page_rows *r, uint32_t string_no)
{
	return string_no ? r->strings[string_no - 1] : NULL;
}

struct before { /* a row of memory from before attach, with the sum of its sizes of blocks */
	uint64_t size;
	uint32_t row;
};

static int cmp_before(const void *a, const void *b)
{
	const struct before *x = a, *y = b;

	if (x->size != y->size)
		return x->size > y->size ? -1 : 1;
	return x->row < y->row ? -1 : x->row > y->row;
}

static struct held held_of(const struct page_rows *r, uint32_t row)
{
	const uint32_t *f = r->rows[row].f;

	return (struct held){ .name = string_at(r, f[ROW_NAME]),
			      .category = string_at(r, f[ROW_CATEGORY]),
			      .module = string_at(r, f[ROW_MODULE]),
			      .module_class = string_at(r, f[ROW_MODULE_CLASS]),
			      .module_root = string_at(r, f[ROW_MODULE_ROOT]) };
}

/* Names the holders of a device's memory from before attach: n rows, the largest first. */
static int name_holders(struct page_rows *r, const struct before *before, size_t n)
{
	struct holders *h = &r->holders[r->nholders++];
	struct held *held = calloc(n, sizeof(*held));
	int err = held ? 0 : -ENOMEM;

	for (size_t i = 0; i < n && !err; i++)
		held[i] = held_of(r, before[i].row);
	if (!err)
		err = holders__group(held, n, false, h);
	for (size_t i = 0; i < n && !err; i++) {
		const char *name = h->all[h->of[i]].name;

		if (*name)
			err = number_string(r, name, &r->rows[before[i].row].f[PAGE_HOLDER]);
	}
	free(held);
	return err;
}

/* Over the whole recording, so that a holder has one name at all moments. */
static int add_holders(struct page_rows *r, const struct model *m)
{
	struct before *before = calloc(r->n + 1, sizeof(*before));
	uint64_t *sizes = calloc(r->n + 1, sizeof(*sizes));
	int err = before && sizes ? 0 : -ENOMEM;
	struct row unused;

	r->holders = calloc(model__devices(m) + 1, sizeof(*r->holders));
	if (!r->holders)
		err = -ENOMEM;
	for (uint32_t i = 0; i < model__block_classes(m) && !err; i++)
		if (r->row_of_class[i] != UINT32_MAX)
			sizes[r->row_of_class[i]] += model__block_class(m, i, &unused);
	for (size_t d = 0; d < model__devices(m) && !err; d++) {
		size_t n = 0;

		for (uint32_t i = 0; i < r->n; i++)
			if (r->rows[i].f[PAGE_BEFORE] && r->rows[i].f[PAGE_DEVICE] == d)
				before[n++] = (struct before){ .size = sizes[i], .row = i };
		if (!n)
			continue;
		qsort(before, n, sizeof(*before), cmp_before);
		err = name_holders(r, before, n);
	}
	free(before);
	free(sizes);
	return err;
}

static int make_rows(const struct page_data *p, struct page_rows **ret)
{
	struct page_rows *r = calloc(1, sizeof(*r));
	uint32_t classes = model__block_classes(p->c->model), smaller;
	int err = 0;

	*ret = r;
	if (!r)
		return -ENOMEM;
	r->frames = frames__new(p->c->dict, p->c->facts, 0);
	r->children = map64__new();
	r->string_at = map64__new();
	r->row_at = map64__new();
	r->row_of_class = malloc(((size_t)classes + 1) * sizeof(*r->row_of_class));
	if (!r->frames || !r->children || !r->string_at || !r->row_at || !r->row_of_class)
		return -ENOMEM;
	memset(r->row_of_class, 0xff, ((size_t)classes + 1) * sizeof(*r->row_of_class));
	err = frames__smaller(r->frames, &smaller);
	if (!err)
		err = find_node(r, &smaller, 1, &r->smaller);
	for (size_t i = 0; i < model__devices(p->c->model) && !err; i++) {
		uint32_t number = model__number(p->c->model, i);
		int device = page_index(p, i);

		if (device >= 0 && number < p->n)
			err = add_device(r, p, &p->devices[number], device);
	}
	return err ? err : add_holders(r, p->c->model);
}

static void free_rows(struct page_rows *r)
{
	if (!r)
		return;
	frames__free(r->frames);
	map64__free(r->children);
	map64__free(r->string_at);
	map64__free(r->row_at);
	free(r->nodes);
	free(r->strings);
	free(r->rows);
	free(r->row_of_class);
	for (size_t i = 0; i < r->nholders; i++)
		holders__free(&r->holders[i]);
	free(r->holders);
	free(r);
}

/* Writes strings and frames into the open JSON object, and the rows as columns. */
static void put_words(const struct page_rows *r, struct json *j)
{
	static const char *const kinds[] = {
		[FRAME_USER] = "user",	     [FRAME_MODULE] = "module", [FRAME_TORCH] = "torch",
		[FRAME_LIBRARY] = "library", [FRAME_STDLIB] = "stdlib", [FRAME_NOTE] = "note",
	};

	json__open_array(j, "strings");
	for (size_t i = 0; i < r->nstrings; i++)
		json__string(j, NULL, r->strings[i]);
	json__close_array(j);
	json__open_array(j, "kinds");
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		json__string(j, NULL, kinds[i]);
	json__close_array(j);
	json__open_array(j, "frames"); /* name, file, line and kind of each frame */
	for (size_t i = 0; i < frames__count(r->frames); i++) {
		const struct frame *f = frames__at(r->frames, i);

		json__string(j, NULL, f->name);
		json__string(j, NULL, f->file);
		json__uint(j, NULL, f->line);
		json__uint(j, NULL, f->kind);
	}
	json__close_array(j);
}

static void put_row_columns(const struct page_rows *r, struct page_columns *c)
{
	struct page_column *col = add_column(c, "node.frame", -1, false);

	for (size_t i = 0; i < r->nnodes; i++)
		put(col, r->nodes[i].frame);
	/* distance back to the parent; 0: none */
	col = add_column(c, "node.parent", -1, false);
	for (size_t i = 0; i < r->nnodes; i++)
		put(col, r->nodes[i].parent_no ? i + 1 - r->nodes[i].parent_no : 0);
	for (size_t k = 0; k < N_PAGE_FIELDS; k++) {
		col = add_column(c, page_fields[k].column, -1, false);
		for (size_t i = 0; i < r->n; i++)
			put(col, r->rows[i].f[page_fields[k].field]);
	}
}

/* --- columns of a device */

/* A column of rarely changing values, stored as pairs: distance to the next change and the
 * difference. */
struct changes {
	struct bytes at, by;
	uint64_t n, since, last;
};

static void changes__put(struct changes *s, uint64_t v)
{
	if (v != s->last) {
		put_varint(&s->at, s->since);
		put_varint(&s->by, zigzag(v - s->last));
		s->n++;
		s->since = 0;
		s->last = v;
	}
	s->since++;
}

static void changes__end(struct changes *s, struct page_columns *c, const char *at, const char *by,
			 int device)
{
	struct page_column *col = add_column(c, at, device, false);

	col->bytes = s->at;
	col->n = s->n;
	col = add_column(c, by, device, true);
	col->bytes = s->by;
	col->n = s->n;
}

static void put_moments(struct page_columns *c, const struct page_data *p,
			const struct page_device *d, int i)
{
	struct page_column *col = add_column(c, "time", i, false);
	struct changes reserved = { 0 };
	struct model_now first;
	uint64_t last = 0;

	for (size_t k = 0; k < d->n; k++) {
		put(col, d->moments[k].time - last);
		last = d->moments[k].time;
	}
	model__first(p->c->model, d->number, &first);
	for (size_t k = 0; k <= d->n; k++)
		changes__put(&reserved, k ? d->moments[k - 1].reserved : first.reserved);
	changes__end(&reserved, c, "reserved.at", "reserved.by", i);
}

/* Not needed if every event is a moment. */
static void put_curve(struct page_columns *c, const struct page_device *d, int i)
{
	struct page_column *number = add_column(c, "curve.number", i, false), *col;
	const struct curve *v = &d->curve;
	uint64_t last = 0;

	for (size_t k = 0; k < v->n; k++) {
		put(number, v->parts[k].number - last);
		last = v->parts[k].number;
	}
	col = add_column(c, "curve.last", i, true);
	last = 0;
	for (size_t k = 0; k < v->n; k++) {
		put(col, html_moments__allocated(d, v->parts[k].last) - last);
		last = html_moments__allocated(d, v->parts[k].last);
	}
	/* distances below and above the last value */
	col = add_column(c, "curve.min", i, false);
	for (size_t k = 0; k < v->n; k++)
		put(col, html_moments__allocated(d, v->parts[k].last) -
				 html_moments__allocated(d, v->parts[k].min));
	col = add_column(c, "curve.max", i, false);
	for (size_t k = 0; k < v->n; k++)
		put(col, html_moments__allocated(d, v->parts[k].max) -
				 html_moments__allocated(d, v->parts[k].last));
	col = add_column(c, "curve.reserved", i, false); /* highest value and last value */
	for (size_t k = 0; k < v->n; k++)
		put(col, v->parts[k].reserved_max);
	col = add_column(c, "curve.rlast", i, false);
	for (size_t k = 0; k < v->n; k++)
		put(col, v->parts[k].reserved);
	col = add_column(c, "curve.width", i, false);
	put(col, v->width);
}

static uint64_t unknown_of(const struct page_device *d, int64_t value)
{
	uint64_t sum = (uint64_t)value + d->last.late - d->last.known;

	return (int64_t)sum > 0 ? sum : 0;
}

/* Allocated bytes normally equal live blocks plus unknown bytes, so they are not stored. If
 * records were lost, the difference is stored as a column. */
static int put_rest(struct page_columns *c, const struct page_data *p, const struct page_device *d,
		    int i)
{
	uint64_t *sums = calloc(d->n + 2, sizeof(*sums)), live = 0;
	struct changes unknown = { 0 }, rest = { 0 };
	struct model_now first;

	if (!sums)
		return -ENOMEM;
	for (size_t k = 0; k < d->nblocks; k++) {
		const struct page_block *b = &d->blocks[k];
		struct row row;
		uint64_t size = model__block_class(p->c->model, b->block_class, &row);

		sums[b->born_no] += size;
		if (b->gone_no)
			sums[b->gone_no] -= size;
	}
	model__first(p->c->model, d->number, &first);
	for (size_t k = 0; k <= d->n; k++) {
		uint64_t allocated = html_moments__allocated(d, k ? d->moments[k - 1].allocated
								  : (int64_t)first.allocated);
		uint64_t unknown_bytes = unknown_of(d, k ? d->moments[k - 1].unknown
							 : (int64_t)first.unknown);

		live += sums[k];
		changes__put(&unknown, unknown_bytes);
		changes__put(&rest, allocated - live - unknown_bytes);
	}
	changes__end(&unknown, c, "unknown.at", "unknown.by", i);
	changes__end(&rest, c, "rest.at", "rest.by", i);
	free(sums);
	return 0;
}

static int cmp_block(const void *a, const void *b)
{
	const struct page_block *x = a, *y = b;

	if (x->born_no != y->born_no)
		return x->born_no < y->born_no ? -1 : 1;
	if (x->block_class != y->block_class)
		return x->block_class < y->block_class ? -1 : 1;
	if (x->gone_no != y->gone_no)
		return x->gone_no < y->gone_no ? -1 : 1;
	return x->addr < y->addr ? -1 : x->addr > y->addr;
}

/* Addresses as numbers in order of first use, because allocators reuse addresses often. */
static int put_addresses(struct page_columns *c, const struct page_device *d, int i)
{
	struct map64 *numbers = map64__new();
	struct page_column *col = add_column(c, "addr", i, false);
	uint64_t *all = malloc((d->nblocks + 1) * sizeof(*all)), n = 0, number;
	int err = numbers && all ? 0 : -ENOMEM;

	for (size_t k = 0; k < d->nblocks && !err; k++) {
		if (!map64__get(numbers, d->blocks[k].addr, &number)) {
			err = map64__set(numbers, d->blocks[k].addr, n);
			all[n] = d->blocks[k].addr;
			number = n++;
		}
		put(col, number);
	}
	col = add_column(c, "addr.of", i, true);
	for (size_t k = 0; k < n; k++)
		put(col, all[k] - (k ? all[k - 1] : 0));
	map64__free(numbers);
	free(all);
	return err;
}

static void put_blocks(struct page_columns *c, struct page_device *d, int i)
{
	struct page_column *col = add_column(c, "born", i, false);
	uint64_t last = 0;

	if (d->nblocks)
		qsort(d->blocks, d->nblocks, sizeof(*d->blocks), cmp_block);
	for (size_t k = 0; k < d->nblocks; k++) {
		put(col, d->blocks[k].born_no - last);
		last = d->blocks[k].born_no;
	}
	col = add_column(c, "kin", i, false);
	for (size_t k = 0; k < d->nblocks; k++)
		put(col, d->blocks[k].block_class);
	col = add_column(c, "life", i, false); /* moments until the free; 0: live until the end */
	for (size_t k = 0; k < d->nblocks; k++)
		put(col, d->blocks[k].gone_no ? d->blocks[k].gone_no - d->blocks[k].born_no : 0);
}

static void put_passed(struct page_columns *c, const struct page_device *d, int i)
{
	struct page_column *col = add_column(c, "pmoment", i, false);
	uint64_t last = 0;

	for (size_t k = 0; k < d->npassed; k++) {
		put(col, d->passed[k].moment - last);
		last = d->passed[k].moment;
	}
	col = add_column(c, "pkin", i, false);
	for (size_t k = 0; k < d->npassed; k++)
		put(col, d->passed[k].block_class);
	col = add_column(c, "pn", i, false);
	for (size_t k = 0; k < d->npassed; k++)
		put(col, d->passed[k].n);
}

/* addr, size, born_no, gone_no, range, flags (1: listed, 2: expandable, 4: small, 8: large), stream
 * and pool of each segment. */
static void put_segments(struct page_columns *c, const struct page_device *d, int i)
{
	struct page_column *col = add_column(c, "segments", i, false);

	for (size_t k = 0; k < d->nsegments; k++) {
		const struct page_segment *s = &d->segments[k];

		if (!s->x.there)
			continue;
		put(col, s->x.addr);
		put(col, s->x.size);
		put(col, s->born_no);
		put(col, s->gone_no);
		put(col, s->x.range);
		put(col, s->x.listed | s->x.expandable << 1 | (s->x.kind == SEGMENT_OF_SMALL) << 2 |
				 (s->x.kind == SEGMENT_OF_LARGE) << 3);
		put(col, s->x.cuda_stream);
		put(col, s->x.pool[0]);
		put(col, s->x.pool[1]);
	}
}

static void put_block_classes(struct page_columns *c, const struct page_data *p,
			      const struct page_rows *r)
{
	struct page_column *row = add_column(c, "kin.row", -1, false), *size;
	uint32_t n = model__block_classes(p->c->model);
	struct row words;

	for (uint32_t k = 0; k < n; k++)
		put(row, r->row_of_class[k] == UINT32_MAX ? 0 : r->row_of_class[k]);
	size = add_column(c, "kin.size", -1, false);
	for (uint32_t k = 0; k < n; k++)
		put(size, model__block_class(p->c->model, k, &words));
}

/* --- complete payload */

static int put_columns(struct page_columns *c, struct page_data *p, const struct page_rows *r)
{
	int err = 0;

	for (size_t i = 0; i < model__devices(p->c->model) && !err; i++) {
		uint32_t number = model__number(p->c->model, i);
		int k = page_index(p, i);

		if (k < 0 || number >= p->n)
			continue;
		put_moments(c, p, &p->devices[number], k);
		if (p->chosen)
			put_curve(c, &p->devices[number], k);
		err = put_rest(c, p, &p->devices[number], k);
		put_blocks(c, &p->devices[number], k);
		if (!err && p->devices[number].nsegments && !p->no_addresses)
			err = put_addresses(c, &p->devices[number], k);
		put_passed(c, &p->devices[number], k);
		put_segments(c, &p->devices[number], k);
	}
	put_block_classes(c, p, r);
	put_row_columns(r, c);
	for (size_t i = 0; i < c->n; i++)
		c->failed |= c->all[i].bytes.failed;
	if (!err && c->failed)
		err = -ENOMEM;
	return err;
}

static void put_layers(struct json *j, const struct model *m)
{
	json__open_array(j, "layers");
	for (size_t i = 0; i < model__layers(m); i++) {
		struct model_layer l;

		model__layer(m, i, &l);
		json__open_object(j, NULL);
		json__string(j, "name", l.name);
		json__string(j, "class", l.cls);
		json__string(j, "root", l.root);
		report_json__layer(j, &l, true);
		json__close_object(j);
	}
	json__close_array(j);
}

/* Writes the directory to memory that the caller frees, also after an error. */
static int put_directory(char **ret, size_t *n, const struct page_data *p,
			 const struct page_rows *r, const struct page_columns *c)
{
	FILE *out = open_memstream(ret, n);
	struct json *j = out ? json__new(out, false) : NULL;

	if (!j) {
		if (out)
			fclose(out);
		return -ENOMEM;
	}
	json__open_object(j, NULL);
	json__open_array(j, "columns"); /* name, bytes, count of numbers, zigzag */
	for (size_t i = 0; i < c->n; i++) {
		json__open_array(j, NULL);
		json__string(j, NULL, c->all[i].name);
		json__uint(j, NULL, c->all[i].bytes.n);
		json__uint(j, NULL, c->all[i].n);
		json__uint(j, NULL, c->all[i].zigzag);
		json__close_array(j);
	}
	json__close_array(j);
	put_words(r, j);
	put_layers(j, p->c->model);
	json__close_object(j);
	json__free(j);
	if (fclose(out))
		return -ENOMEM;
	return *n > UINT32_MAX ? -EFBIG : 0;
}

static int compress_all(const char *directory, size_t n, const struct page_columns *c,
			struct bytes *ret)
{
	uint8_t length[4] = { n, n >> 8, n >> 16, n >> 24 };
	char *data = NULL;
	size_t size = 0;
	FILE *out = open_memstream(&data, &size);
	struct gzip *z = out ? gzip__new(out) : NULL;
	bool failed = !z;

	if (z) {
		gzip__write(z, length, sizeof(length));
		gzip__write(z, directory, n);
		for (size_t i = 0; i < c->n; i++)
			gzip__write(z, c->all[i].bytes.p, c->all[i].bytes.n);
		gzip__end(z);
		failed = ferror(out);
	}
	if (out)
		failed |= fclose(out) != 0;
	*ret = (struct bytes){ .p = (uint8_t *)data, .n = size, .cap = size };
	if (failed)
		bytes__free(ret);
	return failed ? -ENOMEM : 0;
}

int html_payload__make(struct page_data *p, struct bytes *ret)
{
	struct page_rows *r = NULL;
	struct page_columns c = { 0 };
	char *directory = NULL;
	size_t n = 0;
	int err = make_rows(p, &r);

	if (err)
		goto out;
	err = put_columns(&c, p, r);
	if (err)
		goto out;
	err = put_directory(&directory, &n, p, r, &c);
	if (!err)
		err = compress_all(directory, n, &c, ret);
out:
	for (size_t i = 0; i < c.n; i++)
		bytes__free(&c.all[i].bytes);
	free(c.all);
	free(directory);
	free_rows(r);
	return err;
}

void html_payload__base64(FILE *out, const struct bytes *b)
{
	static const char digits[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	char text[4096];
	size_t n = 0;

	for (size_t i = 0; i < b->n; i += 3) {
		size_t left = b->n - i;
		uint32_t v = (uint32_t)b->p[i] << 16;

		if (left > 1)
			v |= b->p[i + 1] << 8;
		if (left > 2)
			v |= b->p[i + 2];
		text[n++] = digits[v >> 18];
		text[n++] = digits[v >> 12 & 63];
		text[n++] = left > 1 ? digits[v >> 6 & 63] : '=';
		text[n++] = left > 2 ? digits[v & 63] : '=';
		if (n == sizeof(text) || left <= 3) {
			fwrite(text, 1, n, out);
			n = 0;
		}
	}
}

/* ---- the format ---- */

static int html_begin(struct export_ctx *c, void **state)
{
	struct page_data *p = malloc(sizeof(*p));

	*state = p;
	if (!p)
		return -ENOMEM;
	html_moments__init(p, c);
	return growth__watch(c->model, BY_LINE);
}

static int html_event(struct export_ctx *c, void *state, const struct event *e)
{
	(void)c;
	return html_moments__event(state, e);
}

/* Reduces moments chosen during streaming to the final number. */
static int drop_to_final_number(struct page_data *p)
{
	int err = 0;

	while (!err && p->chosen) {
		size_t moments = 0;

		for (size_t i = 0; i < p->n; i++)
			moments += p->devices[i].n;
		if (moments <= 2 * MOMENTS_CHOSEN)
			break;
		err = html_moments__thin(p);
	}
	return err == -EFBIG ? 0 : err;
}

/* Makes the payload, as complete as the size limit allows: first without addresses, then with
 * fewer moments. */
static int make_payload(struct page_data *p, struct bytes *payload)
{
	int err = drop_to_final_number(p);

	while (!err) {
		err = html_payload__make(p, payload);
		if (err || payload->n <= p->limits.payload)
			break;
		bytes__free(payload);
		if (!p->no_addresses)
			p->no_addresses = true;
		else
			err = html_moments__thin(p);
	}
	return err;
}

static int html_end(struct export_ctx *c, void *state)
{
	const char *html = packed__unpack(&asset_page_html), *end;
	struct bytes payload = { 0 };
	struct page_data *p = state;
	struct model_device d;
	bool marked = false;
	int err = model__watched(c->model);

	for (size_t i = 0; i < model__devices(c->model); i++) {
		model__device(c->model, i, &d);
		marked |= d.marked && (c->device < 0 || (size_t)c->device == i);
	}
	if (!html)
		return -ENOMEM;
	end = html + asset_page_html.full;
	if (!model__devices(c->model))
		return -ENODATA;
	if (!marked)
		return -ENOENT;
	if (!err)
		err = html_moments__end(p);
	if (err)
		return err;
	err = make_payload(p, &payload);
	if (err)
		goto out;
	html = template__until(c->out, html, end, "<!--HEAD-->");
	err = put_head(p);
	html = template__until(c->out, html, end, "<!--DATA-->");
	html_payload__base64(c->out, &payload);
	fwrite(html, 1, end - html, c->out);
out:
	bytes__free(&payload);
	return err;
}

static void html_release(void *state)
{
	if (state)
		html_moments__free(state);
	free(state);
}

const struct export_format export_html = {
	.name = "html",
	.suffix = ".html",
	.help = "one page with the whole history (timeline, table, flame graph, segments), for any "
		"browser, offline",
	.next = "any browser opens it, without a network",
	.begin = html_begin,
	.event = html_event,
	.end = html_end,
	.release = html_release,
};

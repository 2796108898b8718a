/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Attribution of blocks: rows, strings by number, and stacks as one tree of frames. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/map64.h"
#include "export/formats/frames.h"
#include "export/page/html.h"
#include "model/holders.h"

#define NODES_MAX 400000 /* limit of the stack tree; further stacks share one frame */

enum {
	ROW_DEVICE,
	ROW_STACK,
	ROW_FILE, /* strings are 1 + number; 0: none */
	ROW_LINE,
	ROW_FUNCTION,
	ROW_MODULE,
	ROW_CLASS,
	ROW_ROOT,
	ROW_PHASE,
	ROW_CATEGORY,
	ROW_SOURCE,
	ROW_NAME,
	ROW_THREAD,
	ROW_TID,
	ROW_BEFORE,
	ROW_NODE,
	ROW_HOLDER, /* of memory from before attach: what holds it (model/holders.h) */
	ROW_FIELDS,
};

static const char *const fields[] = {
	[ROW_DEVICE] = "row.device",	 [ROW_STACK] = "row.stack",
	[ROW_FILE] = "row.file",	 [ROW_LINE] = "row.line",
	[ROW_FUNCTION] = "row.function", [ROW_MODULE] = "row.module",
	[ROW_CLASS] = "row.class",	 [ROW_ROOT] = "row.root",
	[ROW_PHASE] = "row.phase",	 [ROW_CATEGORY] = "row.category",
	[ROW_SOURCE] = "row.source",	 [ROW_NAME] = "row.name",
	[ROW_THREAD] = "row.thread",	 [ROW_TID] = "row.tid",
	[ROW_BEFORE] = "row.before",	 [ROW_NODE] = "row.node",
	[ROW_HOLDER] = "row.holder",
};

struct page_row {
	uint32_t f[ROW_FIELDS];
};

struct stack_node {
	uint32_t frame, parent1;
};

struct page_rows {
	struct frames *frames;
	struct map64 *children; /* (parent1, frame) -> node */
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

static int string1(struct page_rows *r, const char *s, uint32_t *ret)
{
	uint64_t at;
	int err;

	*ret = 0;
	if (!s)
		return 0;
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
	uint32_t parent1 = 0;

	for (uint32_t i = 0; i < n; i++) {
		uint64_t key = (uint64_t)parent1 << 32 | frames[i], at;
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
								     .parent1 = parent1 };
			err = map64__set(r->children, key, at);
			if (err)
				return err;
		}
		parent1 = at + 1;
	}
	*ret = parent1 - 1;
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
	struct page_row out = { .f = { [ROW_DEVICE] = device } };
	const uint32_t *frames;
	uint32_t n;
	int err;

	model__block_class(p->c->model, block_class, &row);
	err = frames__of_row(r->frames, &row, &frames, &n);
	if (!err)
		err = find_node(r, frames, n, &out.f[ROW_STACK]);
	out.f[ROW_LINE] = row.file ? row.line : 0;
	out.f[ROW_TID] = row.thread ? row.tid : 0;
	out.f[ROW_BEFORE] = row.before_attach;
	if (!err)
		err = string1(r, row.file, &out.f[ROW_FILE]) ?: string1(r, row.func, &out.f[ROW_FUNCTION]) ?:
		      string1(r, row.module, &out.f[ROW_MODULE]) ?: string1(r, row.module_class, &out.f[ROW_CLASS]) ?:
		      string1(r, row.module_root, &out.f[ROW_ROOT]) ?: string1(r, row.category, &out.f[ROW_CATEGORY]) ?:
		      string1(r, row.source, &out.f[ROW_SOURCE]) ?: string1(r, row.name, &out.f[ROW_NAME]) ?:
		      string1(r, row.thread, &out.f[ROW_THREAD]) ?: string1(r, row.node_class, &out.f[ROW_NODE]);
	if (!err && !row.before_attach)
		err = string1(r, phase__name(row.phase), &out.f[ROW_PHASE]);
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

static const char *string_at(const struct page_rows *r, uint32_t number1)
{
	return number1 ? r->strings[number1 - 1] : NULL;
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
			      .module_class = string_at(r, f[ROW_CLASS]),
			      .module_root = string_at(r, f[ROW_ROOT]) };
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

		err = string1(r, *name ? name : NULL, &r->rows[before[i].row].f[ROW_HOLDER]);
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
			if (r->rows[i].f[ROW_BEFORE] && r->rows[i].f[ROW_DEVICE] == d)
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

int page_rows__make(const struct page_data *p, struct page_rows **ret)
{
	struct page_rows *r = calloc(1, sizeof(*r));
	uint32_t classes = model__block_classes(p->c->model), smaller;
	int err = 0;

	*ret = r;
	if (!r)
		return -ENOMEM;
	r->frames = frames__new(p->c->dict, p->c->facts);
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
		int device = html_head__put_device(p, i);

		if (device >= 0 && number < p->n)
			err = add_device(r, p, &p->devices[number], device);
	}
	return err ? err : add_holders(r, p->c->model);
}

void page_rows__free(struct page_rows *r)
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

uint32_t page_rows__of_class(const struct page_rows *r, uint32_t block_class)
{
	return r->row_of_class[block_class] == UINT32_MAX ? 0 : r->row_of_class[block_class];
}

void page_rows__put_words(const struct page_rows *r, struct json *j)
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

void page_rows__put_columns(const struct page_rows *r, struct page_columns *c)
{
	struct page_column *col = page_columns__add(c, "node.frame", -1, false);

	for (size_t i = 0; i < r->nnodes; i++)
		html_payload__put(col, r->nodes[i].frame);
	/* distance back to the parent; 0: none */
	col = page_columns__add(c, "node.parent", -1, false);
	for (size_t i = 0; i < r->nnodes; i++)
		html_payload__put(col, r->nodes[i].parent1 ? i + 1 - r->nodes[i].parent1 : 0);
	for (size_t k = 0; k < ROW_FIELDS; k++) {
		col = page_columns__add(c, fields[k], -1, false);
		for (size_t i = 0; i < r->n; i++)
			html_payload__put(col, r->rows[i].f[k]);
	}
}

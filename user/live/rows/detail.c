/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "live/rows/detail.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/map64.h"
#include "memtrace.h"
#include "record/dict.h"

/* The row whose details are collected, for the callbacks of model__rows(). */
struct match {
	const struct live_rows *r;
	const struct live_row *row;
	const struct model *m;
	const struct dict *d;
	struct map64 *stacks; /* stacks of the row's blocks */
};

/* True if the module with this root, name and class is the row's module or, with LIVE_LAYER, inside
 * it. */
static bool matches_module(const struct match *x, const char *root, const char *name,
			   const char *cls)
{
	const struct row *row = &x->row->row;
	const char *own_root = row->module_root ?: "";
	size_t len = strlen(row->module);

	if (strcmp(own_root, root ?: "") != 0)
		return false;
	if (x->r->by == LIVE_MODULE)
		return !strcmp(row->module, name) && !strcmp(row->module_class, cls);
	/* The root itself has all modules inside. Without a root, "" means memory of no module. */
	if (!len)
		return *own_root || !*name;
	return !strncmp(row->module, name, len) && (!name[len] || name[len] == '.');
}

static bool is_by_module(const struct match *x)
{
	return x->r->by == LIVE_MODULE || x->r->by == LIVE_LAYER;
}

/* True for memory with an unknown category and, in rows by module, without a module. If it is from
 * before attach, it is in the row "before attach". */
static bool is_unattributed(const struct match *x, const char *module, const char *category)
{
	return (x->r->by == LIVE_CATEGORY || !*module) &&
	       (!category || !strcmp(category, "unknown"));
}

/* Whether blocks with these properties are in the row; see row_opts.keep. */
static bool keep(void *ctx, const struct row *r)
{
	const struct match *x = ctx;

	if (x->r->keep && !x->r->keep(x->r->ctx, r))
		return false;
	if (x->r->by == LIVE_LINE || x->r->by == LIVE_FUNCTION)
		return live_rows__key(x->r->by, r) == x->row->key;
	if (x->row->row.before_attach ||
	    (r->before_attach && is_unattributed(x, r->module, r->category)))
		return x->row->row.before_attach && r->before_attach &&
		       is_unattributed(x, r->module, r->category);
	if (x->r->by == LIVE_CATEGORY)
		return x->row->row.category && r->category &&
		       !strcmp(x->row->row.category, r->category);
	return matches_module(x, r->module_root, r->module, r->module_class);
}

/* Hands row_opts.hide on to that of the table. */
static bool hide(void *ctx, const char *file)
{
	const struct match *x = ctx;

	return x->r->hide(x->r->ctx, file);
}

/* Sets the stacks of the row's blocks, largest first, and x->stacks. Returns 0 or a negative error.
 */
static int take_stacks(struct match *x, size_t device, struct live_detail *ret)
{
	struct row_opts o = { .by = BY_STACK,
			      .when = ROWS_NOW,
			      .which_line = x->r->which_line,
			      .keep = keep,
			      .hide = x->r->hide ? hide : NULL,
			      .ctx = x };
	int err = model__rows(x->m, device, &o, &ret->stacks, &ret->nstacks);

	if (err)
		return err;
	/* The last rows have what keep() left out. */
	while (ret->nstacks && ret->stacks[ret->nstacks - 1].filtered)
		ret->nstacks--;
	for (size_t i = 0; i < ret->nstacks && !err; i++)
		err = map64__set(x->stacks, ret->stacks[i].stack, 1);
	return err;
}

/* Sets the objects that hold the row's memory: memory from before attach has no stacks. Returns 0
 * or a negative error. */
static int take_holders(struct match *x, size_t device, struct live_detail *ret)
{
	const struct row_opts o = { .by = BY_LINE, .when = ROWS_NOW, .keep = keep, .ctx = x };
	int err = holder_rows__of(x->m, device, &o, /*names=*/true, &ret->held);

	while (!err && ret->held.n && ret->held.all[ret->held.n - 1].filtered)
		ret->held.n--;
	return err;
}

/* Whether a block is in the row. Goes by the same rules as keep(), which sees rows in place of
 * blocks. */
static bool is_of_row(const struct match *x, const struct live_block *b)
{
	const struct row *row = &x->row->row;
	struct dict_module mod = dict__get_module(x->d, b->module);
	uint64_t ignored;

	if ((is_by_module(x) || x->r->by == LIVE_CATEGORY) && b->before_attach &&
	    is_unattributed(x, dict__str(x->d, mod.name), category__name(b->category)))
		return row->before_attach;
	if (x->r->by == LIVE_CATEGORY)
		return !row->before_attach && row->category &&
		       !strcmp(row->category, category__name(b->category));
	if (is_by_module(x))
		return !row->before_attach &&
		       matches_module(x, dict__str(x->d, mod.root), dict__str(x->d, mod.name),
				      dict__str(x->d, mod.cls));
	if (b->before_attach || row->before_attach)
		return b->before_attach && row->before_attach;
	if (!b->stack && (b->walk == MT_WALK_NO_THREAD) != !strcmp(row->source, "native"))
		return false;
	return map64__get(x->stacks, b->stack, &ignored);
}

/* The AGE_* of a block. */
static int age_of(const struct live_block *b, uint64_t now)
{
	static const uint64_t limits[] = { 1, 10, 60, 600, 3600 }; /* s */
	uint64_t age = now > b->time ? (now - b->time) / UINT64_C(1000000000) : 0;
	int i;

	if (b->before_attach)
		return AGE_BEFORE;
	for (i = AGE_SECOND; i < AGE_MORE && age >= limits[i]; i++)
		;
	return i;
}

static int by_size(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

/* Sets ret->sizes to the block sizes with most bytes, at most DETAIL_SIZES of them, in descending
 * order of bytes. Adds the number of all block sizes to ret->nsizes, which is 0 before. sizes: the
 * sizes of n blocks, in bytes, which it sorts. */
static void take_sizes(uint64_t *sizes, size_t n, struct live_detail *ret)
{
	qsort(sizes, n, sizeof(*sizes), by_size);
	for (size_t i = 0, end; i < n; i = end) {
		struct detail_sum s = { .size = sizes[i] };
		size_t at;

		for (end = i; end < n && sizes[end] == sizes[i]; end++)
			s.count++;
		s.bytes = s.size * s.count;
		/* Insert s into the sorted list; the last entry of a full list drops out. */
		at = ret->nsizes < DETAIL_SIZES ? ret->nsizes : DETAIL_SIZES;
		while (at && ret->sizes[at - 1].bytes < s.bytes) {
			if (at < DETAIL_SIZES)
				ret->sizes[at] = ret->sizes[at - 1];
			at--;
		}
		if (at < DETAIL_SIZES)
			ret->sizes[at] = s;
		ret->nsizes++;
	}
}

/* Sets sizes, ages and bytes of the row's blocks. now: ns since the start of the capture. Returns 0
 * or a negative error. */
static int take_blocks(struct match *x, size_t device, uint64_t now, struct live_detail *ret)
{
	struct live_block *all;
	uint64_t *sizes;
	size_t n, k = 0;
	int err = model__live_blocks(x->m, device, ROWS_NOW, &all, &n);

	if (err)
		return err;
	sizes = calloc(n + 1, sizeof(*sizes));
	for (size_t i = 0; sizes && i < n; i++) {
		struct detail_sum *age = &ret->ages[age_of(&all[i], now)];

		if (!is_of_row(x, &all[i]))
			continue;
		age->count++;
		age->bytes += all[i].size;
		ret->bytes += all[i].size;
		sizes[k++] = all[i].size;
	}
	if (sizes && k)
		take_sizes(sizes, k, ret);
	err = sizes ? 0 : -ENOMEM;
	free(sizes);
	free(all);
	return err;
}

int live_detail__take(const struct live_rows *r, const struct live_row *row, const struct model *m,
		      size_t device, const struct dict *d, uint64_t now, struct live_detail *ret)
{
	struct match x = { .r = r, .row = row, .m = m, .d = d, .stacks = map64__new() };
	int err;

	*ret = (struct live_detail){ 0 };
	if (!x.stacks)
		return -ENOMEM;
	err = take_stacks(&x, device, ret);
	if (!err && row->row.before_attach)
		err = take_holders(&x, device, ret);
	err = err ?: take_blocks(&x, device, now, ret);
	map64__free(x.stacks);
	if (err)
		live_detail__release(ret);
	return err;
}

void live_detail__release(struct live_detail *x)
{
	free(x->stacks);
	holder_rows__free(&x->held);
	*x = (struct live_detail){ 0 };
}

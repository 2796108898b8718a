/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Makes segments and sorted blocks from the Blocks of a pass, and checks them against the
 * totals. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "inspect/torch/cudaalloc_internal.h"

/* A run of adjacent blocks: order[first, first + n). */
struct stretch {
	uint64_t addr, end;
	const struct pool *pool;
	size_t first, n;
	uint32_t segment; /* index of its segment */
	bool whole, expandable;
};

struct build {
	struct pass *s;
	uint32_t *order; /* indexes of blocks */
	size_t norder;
	struct stretch *v;
	size_t n;
	const char *torn;
};

static void torn(struct build *b, const char *why)
{
	if (!b->torn)
		b->torn = why;
}

/* ---- stretches ---- */

static void add_block(struct build *b, struct stretch *st, uint32_t i)
{
	struct raw *r = &b->s->v[i];

	r->reached = true;
	b->order[b->norder++] = i;
	st->n++;
	if (r->ptr + r->size > st->end)
		st->end = r->ptr + r->size;
}

static struct stretch *begin_stretch(struct build *b, uint32_t i)
{
	struct stretch *st = &b->v[b->n++];
	const struct raw *r = &b->s->v[i];

	*st = (struct stretch){ .addr = r->ptr, .end = r->ptr, .pool = r->pool, .first = b->norder };
	add_block(b, st, i);
	return st;
}

/* Whether the block is the first of a segment: no previous block, or an unmapped one. */
static bool is_head(const struct pass *s, uint32_t i)
{
	const struct raw *r = &s->v[i], *prev;

	if (!r->prev)
		return true;
	if (r->previ == NO_BLOCK)
		return false;
	prev = &s->v[r->previ];
	return prev->valid && !prev->mapped && prev->nexti == i && prev->ptr + prev->size == r->ptr;
}

/* Follows the links from the head of a segment while both neighbours agree. */
static void walk_segment(struct build *b, uint32_t head)
{
	struct stretch *st = begin_stretch(b, head);
	struct raw *v = b->s->v;
	uint32_t i = head, next;

	st->expandable = v[head].prev != 0;
	for (;;) {
		if (!v[i].next) {
			st->whole = true;
			return;
		}
		next = v[i].nexti;
		if (next == NO_BLOCK || !v[next].valid || v[next].previ != i ||
		    v[next].ptr != st->end || v[next].pool != st->pool ||
		    v[next].stream != v[i].stream)
			return;
		if (!v[next].mapped) {
			st->whole = st->expandable = true;
			return;
		}
		if (v[next].reached)
			return;
		add_block(b, st, next);
		i = next;
	}
}

static int by_ptr(const void *x, const void *y, void *arg)
{
	const struct raw *v = arg;
	const struct raw *a = &v[*(const uint32_t *)x], *c = &v[*(const uint32_t *)y];

	if (a->ptr != c->ptr)
		return a->ptr < c->ptr ? -1 : 1;
	return (a->at > c->at) - (a->at < c->at);
}

/* Groups the blocks that no head leads to, by address. */
static int group_unreached(struct build *b)
{
	uint32_t *rest = malloc(b->s->n * sizeof(*rest) + 1);
	struct stretch *st = NULL;
	struct raw *v = b->s->v;
	size_t n = 0;

	if (!rest)
		return -ENOMEM;
	for (size_t i = 0; i < b->s->n; i++) {
		if (v[i].valid && v[i].mapped && !v[i].reached)
			rest[n++] = (uint32_t)i;
	}
	if (n) {
		torn(b, "links between blocks were changing");
		qsort_r(rest, n, sizeof(*rest), by_ptr, v);
	}
	for (size_t i = 0; i < n; i++) {
		if (st && st->pool == v[rest[i]].pool && v[rest[i]].ptr <= st->end)
			add_block(b, st, rest[i]);
		else
			st = begin_stretch(b, rest[i]);
	}
	free(rest);
	return 0;
}

static int by_addr(const void *x, const void *y)
{
	const struct stretch *a = x, *b = y;

	if (a->addr != b->addr)
		return a->addr < b->addr ? -1 : 1;
	return (a->first > b->first) - (a->first < b->first);
}

static int make_stretches(struct build *b)
{
	int err;

	for (uint32_t i = 0; i < b->s->n; i++) {
		const struct raw *r = &b->s->v[i];

		if (r->valid && r->mapped && !r->reached && is_head(b->s, i))
			walk_segment(b, i);
	}
	for (size_t i = 0; i < b->n; i++) {
		if (!b->v[i].whole)
			torn(b, "links between blocks were changing");
	}
	err = group_unreached(b);
	if (!err && b->n)
		qsort(b->v, b->n, sizeof(*b->v), by_addr);
	return err;
}

/* ---- segments ---- */

/* Merges overlapping stretches: their parts were read at different times. */
static void make_segments(struct build *b, struct cudaalloc_state *ret)
{
	struct cuda_segment *last = NULL;
	const struct pool *pool = NULL;

	for (size_t i = 0; i < b->n; i++) {
		struct stretch *st = &b->v[i];

		if (last && st->addr < last->addr + last->size) {
			torn(b, "segments were changing");
			st->segment = NO_BLOCK;
			if (st->pool != pool)
				continue; /* one of the two no longer exists; the other keeps its
					     place */
			if (st->end > last->addr + last->size)
				last->size = st->end - last->addr;
			last->whole = false;
			st->segment = (uint32_t)(last - ret->segments);
			continue;
		}
		st->segment = (uint32_t)ret->nsegments;
		pool = st->pool;
		last = &ret->segments[ret->nsegments++];
		*last = (struct cuda_segment){ .addr = st->addr,
					       .size = st->end - st->addr,
					       .device = pool->device,
					       .pool = { pool->id[0], pool->id[1] },
					       .small = pool->small,
					       .stream = b->s->v[b->order[st->first]].stream,
					       .expandable = st->expandable,
					       .whole = st->whole };
	}
}

/* ---- blocks ---- */

static bool live(const struct raw *r)
{
	return r->allocated && r->mapkey;
}

/* Drops overlapping blocks in a segment whose parts were read at different times. A live block wins
 * over others; two live blocks are both dropped. */
static size_t drop_overlaps(const struct raw *v, uint32_t *order, size_t n)
{
	bool *drop = calloc(n + 1, sizeof(*drop));
	size_t kept = 0, last = 0;

	if (!drop)
		return 0; /* without memory, dropping all is still correct */
	for (size_t i = 1; i < n; i++) {
		const struct raw *a = &v[order[last]], *c = &v[order[i]];

		if (c->ptr < a->ptr + a->size) {
			if (live(c) && live(a))
				drop[i] = drop[last] = true;
			else
				drop[live(c) ? last : i] = true;
		}
		if (c->ptr + c->size > a->ptr + a->size || (drop[last] && !drop[i]))
			last = i;
	}
	for (size_t i = 0; i < n; i++) {
		if (!drop[i])
			order[kept++] = order[i];
	}
	free(drop);
	return kept;
}

static void emit(struct build *b, const struct raw *r, uint32_t segment,
		 struct cudaalloc_state *ret)
{
	struct cuda_block *out;

	if (r->allocated && !r->mapkey) {
		torn(b, "a block was being handed out");
		return; /* allocated, but not in the map: uncertain */
	}
	if (r->allocated != (r->active && r->mapkey))
		torn(b, "a block was being handed out or freed");
	out = &ret->blocks[ret->nblocks++];
	*out = (struct cuda_block){ .addr = r->ptr,
				    .size = r->size,
				    .stream = r->stream,
				    .segment = segment,
				    .device = r->device };
	if (r->allocated)
		out->state = CUDA_BLOCK_LIVE;
	else
		out->state = r->active ? CUDA_BLOCK_PENDING : CUDA_BLOCK_CACHED;
	if (out->state != CUDA_BLOCK_CACHED)
		out->requested = r->requested <= r->size ? r->requested : r->size;
}

/* Adds the blocks of each segment; its stretches are adjacent in v. */
static void make_blocks(struct build *b, struct cudaalloc_state *ret)
{
	uint32_t *sorted = malloc(b->norder * sizeof(*sorted) + 1);
	size_t i = 0, n, first;

	if (!sorted) {
		torn(b, "out of memory");
		return;
	}
	while (i < b->n) {
		uint32_t segment = b->v[i].segment;
		struct cuda_segment *seg;

		if (segment == NO_BLOCK) {
			i++;
			continue;
		}
		seg = &ret->segments[segment];
		for (n = 0; i < b->n && (b->v[i].segment == segment || b->v[i].segment == NO_BLOCK);
		     i++) {
			if (b->v[i].segment == NO_BLOCK)
				continue;
			memcpy(sorted + n, b->order + b->v[i].first, b->v[i].n * sizeof(*sorted));
			n += b->v[i].n;
		}
		if (!seg->whole) {
			qsort_r(sorted, n, sizeof(*sorted), by_ptr, b->s->v);
			n = drop_overlaps(b->s->v, sorted, n);
		}
		first = ret->nblocks;
		for (size_t k = 0; k < n; k++)
			emit(b, &b->s->v[sorted[k]], segment, ret);
		seg->first = (uint32_t)first;
		seg->nblocks = (uint32_t)(ret->nblocks - first);
	}
	free(sorted);
}

/* ---- check against the totals ---- */

struct sums {
	uint64_t live, count, active, requested, mapped;
};

static void add_up(const struct cudaalloc_state *st, struct sums *sums)
{
	for (size_t i = 0; i < st->nblocks; i++) {
		const struct cuda_block *b = &st->blocks[i];
		struct sums *d = &sums[b->device];

		if (b->state == CUDA_BLOCK_LIVE) {
			d->live += b->size;
			d->count++;
		}
		if (b->state != CUDA_BLOCK_CACHED) {
			d->active += b->size;
			d->requested += b->requested;
		}
		d->mapped += b->size;
	}
}

static const char *find_mismatch(const struct cuda_device_state *d, const struct sums *sum)
{
	const struct cuda_totals *t = &d->after;

	if (memcmp(&d->before, t, sizeof(*t)))
		return "the allocator's totals moved";
	if (sum->live != t->allocated || sum->count != t->count)
		return "the blocks do not add up to the allocated total";
	if (sum->mapped != t->reserved)
		return "the segments do not add up to the reserved total";
	if (d->more_known && (sum->active != t->active || sum->requested != t->requested))
		return "the blocks do not add up to the requested total";
	return "";
}

static void set_consistency(struct build *b, struct cudaalloc_state *st)
{
	struct sums sums[MAX_DEVICES] = { { 0 } };

	add_up(st, sums);
	st->consistent = true;
	st->why = "";
	for (size_t i = 0; i < st->ndevices; i++) {
		struct cuda_device_state *d = &st->devices[i];

		d->why = find_mismatch(d, &sums[i]);
		if (!d->why[0] && b->torn)
			d->why = b->torn;
		d->consistent = !d->why[0];
		if (st->consistent && !d->consistent) {
			st->consistent = false;
			st->why = d->why;
		}
	}
}

int cudaalloc_state__build(struct cudaalloc *a, struct pass *s, struct cudaalloc_state *ret)
{
	struct build b = { .s = s, .torn = s->torn };
	struct cudaalloc_state st = { 0 };
	int err = -ENOMEM;

	(void)a;
	b.order = malloc(s->n * sizeof(*b.order) + 1);
	b.v = malloc(s->n * sizeof(*b.v) + 1);
	if (!b.order || !b.v)
		goto out;
	for (size_t i = 0; i < s->n; i++) {
		if (!s->v[i].valid)
			torn(&b, "a block could not be read");
	}
	err = make_stretches(&b);
	if (err)
		goto out;
	err = -ENOMEM;
	st.segments = malloc(b.n * sizeof(*st.segments) + 1);
	st.blocks = malloc(b.norder * sizeof(*st.blocks) + 1);
	if (!st.segments || !st.blocks)
		goto out;
	make_segments(&b, &st);
	make_blocks(&b, &st);
	st.devices = s->state;
	st.ndevices = s->devices.n;
	s->state = NULL;
	set_consistency(&b, &st);
	*ret = st;
	memset(&st, 0, sizeof(st));
	err = 0;
out:
	cudaalloc_state__free(&st);
	free(b.order);
	free(b.v);
	return err;
}

void cudaalloc_state__free(struct cudaalloc_state *s)
{
	free(s->devices);
	free(s->segments);
	free(s->blocks);
	memset(s, 0, sizeof(*s));
}

/* Finds the StatArrays that equal the blocks' sums: active_bytes, then requested_bytes. */
void cudaalloc_state__find_more_stats(struct cudaalloc *a, const struct pass *s,
				      const struct cudaalloc_state *st)
{
	struct sums sums[MAX_DEVICES] = { { 0 } };
	const int *f = a->layout.field;
	struct stat_array array;
	int active = -1;

	add_up(st, sums);
	for (int off = f[F_STATS] + 6 * (int)STAT_ARRAY; off + (int)STAT_ARRAY <= f[F_LARGE];
	     off += 8) {
		bool fits = true, any = false;

		for (size_t d = 0; d < s->devices.n && fits; d++) {
			uint64_t want = active < 0 ? sums[d].active : sums[d].requested;

			stat_array__parse(s->devices.v[d].window + off, &array);
			fits = array.current[0] == want &&
			       array.current[1] + array.current[2] == want && array.peak[0] >= want;
			any = any || want;
		}
		if (!fits || !any)
			continue;
		if (active >= 0) {
			a->active_bytes = active;
			a->requested_bytes = off;
			return;
		}
		active = off;
		off += (int)STAT_ARRAY - 8;
	}
}

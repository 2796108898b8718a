/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "inspect/hostmem/host_ranges.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"

#define PAGE 4096ULL

void host_ranges__init(struct host_ranges *h, host_ranges_fn fn, void *ctx)
{
	*h = (struct host_ranges){ .fn = fn, .ctx = ctx };
}

void host_ranges__free(struct host_ranges *h)
{
	for (size_t i = 0; i < h->n; i++)
		free(h->v[i]);
	free(h->v);
	h->v = NULL;
	h->n = h->cap = 0;
}

size_t host_ranges__find(const struct host_ranges *h, uint64_t addr)
{
	size_t low = 0, high = h->n;

	while (low < high) {
		size_t mid = low + (high - low) / 2;

		if (h->v[mid]->end <= addr)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

/* ---- the blocks of a range ---- */

static int push_block(struct host_ranges *h, struct host_range *r, uint64_t size)
{
	int err = h->fn(h->ctx, &r->owner, r->start + r->resident, size, true);

	if (err)
		return err;
	r->piece[r->n++] = size;
	r->resident += size;
	return 0;
}

static int pop_block(struct host_ranges *h, struct host_range *r)
{
	uint64_t size = r->piece[r->n - 1];
	int err = h->fn(h->ctx, &r->owner, r->start + r->resident - size, size, false);

	r->n--;
	r->resident -= size;
	return err;
}

/* Makes room for a block: joins the two neighbours that are smallest together. */
static int join_two(struct host_ranges *h, struct host_range *r)
{
	uint64_t addr = r->start, sum, at = 0, least = UINT64_MAX;
	size_t which = 0, i;
	int err;

	for (i = 0; i + 1 < r->n; i++) {
		sum = r->piece[i] + r->piece[i + 1];
		if (sum < least) {
			least = sum;
			which = i;
			at = addr;
		}
		addr += r->piece[i];
	}
	err = h->fn(h->ctx, &r->owner, at, r->piece[which], false)
		      ?: h->fn(h->ctx, &r->owner, at + r->piece[which], r->piece[which + 1], false);
	err = err ?: h->fn(h->ctx, &r->owner, at, least, true);
	r->piece[which] = least;
	memmove(&r->piece[which + 1], &r->piece[which + 2], (r->n - which - 2) * sizeof(*r->piece));
	r->n--;
	return err;
}

int host_ranges__set(struct host_ranges *h, struct host_range *r, uint64_t resident)
{
	int err = 0;

	if (resident > r->end - r->start)
		resident = r->end - r->start;
	/* Blocks above the new end go; so does one that it is in, which a smaller one replaces. */
	while (!err && r->n && r->resident > resident)
		err = pop_block(h, r);
	if (err || r->resident == resident)
		return err;
	if (r->n == HOST_PIECES)
		err = join_two(h, r);
	return err ?: push_block(h, r, resident - r->resident);
}

static int newest_first(const void *a, const void *b)
{
	const struct host_range *const *x = a, *const *y = b;

	return (*x)->id > (*y)->id ? -1 : (*x)->id < (*y)->id;
}

/* The part of a range that may have become resident since the last reading. */
static uint64_t room_of(const struct host_range *r)
{
	uint64_t room = r->end - r->start - r->resident;

	return room < r->fresh ? room : r->fresh;
}

int host_ranges__fill(struct host_ranges *h, uint64_t bytes, uint64_t *ret)
{
	struct host_range **fresh = calloc(h->n + 1, sizeof(*fresh));
	size_t n = 0;
	int err = 0;

	*ret = 0;
	if (!fresh)
		return -ENOMEM;
	for (size_t i = 0; i < h->n; i++)
		if (room_of(h->v[i]))
			fresh[n++] = h->v[i];
	if (n)
		qsort(fresh, n, sizeof(*fresh), newest_first);
	for (size_t i = 0; i < n && !err; i++) {
		uint64_t room = room_of(fresh[i]), add = bytes - *ret;

		add = (room < add ? room : add) / PAGE * PAGE;
		err = host_ranges__set(h, fresh[i], fresh[i]->resident + add);
		fresh[i]->fresh -= add;
		*ret += add;
	}
	free(fresh);
	return err;
}

/* ---- ranges ---- */

static int insert_range(struct host_ranges *h, size_t at, const struct host_range *r)
{
	struct host_range *copy;

	if (h->n >= HOST_RANGES_MAX) {
		h->dropped++;
		return 0;
	}
	if (array__grow(&h->v, &h->cap, h->n + 1, sizeof(*h->v)))
		return -ENOMEM;
	copy = malloc(sizeof(*copy));
	if (!copy)
		return -ENOMEM;
	*copy = *r;
	copy->id = ++h->last_id;
	copy->born = copy->born ?: copy->id;
	memmove(&h->v[at + 1], &h->v[at], (h->n - at) * sizeof(*h->v));
	h->v[at] = copy;
	h->n++;
	return 0;
}

static void take_out(struct host_ranges *h, size_t at)
{
	free(h->v[at]);
	h->n--;
	memmove(&h->v[at], &h->v[at + 1], (h->n - at) * sizeof(*h->v));
}

/* The part of `bytes` of a range that a part of it has, if they are spread evenly. */
static uint64_t share_of(uint64_t bytes, uint64_t part, uint64_t of)
{
	uint64_t v = (uint64_t)((double)bytes * ((double)part / (double)of)) / PAGE * PAGE;

	return v < part ? v : part;
}

/* Makes addr a bound, if it is inside a range. */
static int split_range(struct host_ranges *h, uint64_t addr)
{
	size_t at = host_ranges__find(h, addr);
	struct host_range *r = at < h->n ? h->v[at] : NULL, upper;
	uint64_t low;
	int err;

	if (!r || r->start >= addr)
		return 0;
	upper = *r;
	upper.start = addr;
	upper.n = 0;
	upper.resident = 0;
	upper.fresh = share_of(r->fresh, r->end - addr, r->end - r->start);
	low = share_of(r->resident, addr - r->start, r->end - r->start);
	upper.piece[0] = r->resident - low;
	if (upper.piece[0] > upper.end - upper.start)
		upper.piece[0] = upper.end - upper.start;
	r->fresh -= upper.fresh;
	if (r->fresh > addr - r->start)
		r->fresh = addr - r->start;
	err = host_ranges__set(h, r, low) ?: insert_range(h, at + 1, &upper);
	if (err)
		return err;
	r->end = addr;
	r->id = ++h->last_id;
	if (at + 1 < h->n && h->v[at + 1]->start == addr)
		return host_ranges__set(h, h->v[at + 1], upper.piece[0]);
	return 0;
}

static int cut_out(struct host_ranges *h, uint64_t start, uint64_t end)
{
	return split_range(h, start) ?: split_range(h, end);
}

int host_ranges__unmap(struct host_ranges *h, uint64_t start, uint64_t end)
{
	size_t at;
	int err;

	if (start >= end)
		return 0;
	err = cut_out(h, start, end);
	at = host_ranges__find(h, start);
	while (!err && at < h->n && h->v[at]->start < end) {
		err = host_ranges__set(h, h->v[at], 0);
		take_out(h, at);
	}
	return err;
}

static bool same_owner(const struct host_range *a, const struct host_range *b)
{
	return a->owner.stack == b->owner.stack && a->owner.thread == b->owner.thread &&
	       a->owner.walk == b->owner.walk && a->writable == b->writable && !a->named &&
	       !b->named;
}

/* True if the new range became a part of the one below it. */
static bool joins(struct host_ranges *h, size_t at, const struct host_range *r)
{
	struct host_range *below = at ? h->v[at - 1] : NULL;

	if (!below || below->end != r->start || !same_owner(below, r) || !r->owner.stack ||
	    r->end - r->start >= HOST_MERGE_BELOW || r->end - below->start > HOST_MERGED_MAX)
		return false;
	below->owner.grain = (uint64_t)(((double)below->owner.grain *
						 (double)(r->start - below->start) +
					 (double)r->owner.grain * (double)(r->end - r->start)) /
					(double)(r->end - below->start));
	below->end = r->end;
	below->fresh += r->fresh;
	below->id = ++h->last_id;
	return true;
}

int host_ranges__map(struct host_ranges *h, uint64_t start, uint64_t end,
		     const struct host_range *like, uint64_t resident)
{
	struct host_range r = *like;
	size_t at;
	int err;

	if (start >= end)
		return 0;
	err = host_ranges__unmap(h, start, end);
	if (err)
		return err;
	r.start = start;
	r.end = end;
	r.n = 0;
	r.resident = 0;
	if (r.fresh > end - start)
		r.fresh = end - start;
	at = host_ranges__find(h, start);
	if (!resident && joins(h, at, &r))
		return 0;
	err = insert_range(h, at, &r);
	if (err || at >= h->n || h->v[at]->start != start)
		return err;
	return host_ranges__set(h, h->v[at], resident);
}

/* Copies the ranges in [start, end). *n 0, and NULL: no range is there. */
static int copy_of(const struct host_ranges *h, uint64_t start, uint64_t end,
		   struct host_range **ret, size_t *n)
{
	size_t at = host_ranges__find(h, start), last = at;

	while (last < h->n && h->v[last]->start < end)
		last++;
	*n = last - at;
	*ret = *n ? calloc(*n, sizeof(**ret)) : NULL;
	for (size_t i = 0; *ret && i < *n; i++)
		(*ret)[i] = *h->v[at + i];
	return *n && !*ret ? -ENOMEM : 0;
}

int host_ranges__move(struct host_ranges *h, uint64_t from, uint64_t len, uint64_t to,
		      uint64_t to_len, const struct host_range *like)
{
	uint64_t end, to_end, kept = len < to_len ? len : to_len;
	struct host_range *old;
	size_t n, i;
	int err;

	if (__builtin_add_overflow(from, len, &end) || __builtin_add_overflow(to, to_len, &to_end))
		return 0;
	if (from == to) {
		err = to_len < len ? host_ranges__unmap(h, to_end, end) : 0;
		return err ?: host_ranges__map(h, from + kept, to_end, like, 0);
	}
	err = cut_out(h, from, from + kept) ?: copy_of(h, from, from + kept, &old, &n);
	if (err)
		return err;
	err = host_ranges__unmap(h, from, end) ?: host_ranges__unmap(h, to, to_end);
	for (i = 0; i < n && !err; i++)
		err = host_ranges__map(h, old[i].start - from + to, old[i].end - from + to, &old[i],
				       old[i].resident);
	free(old);
	return err ?: host_ranges__map(h, to + kept, to_end, like, 0);
}

int host_ranges__open(struct host_ranges *h, uint64_t start, uint64_t end,
		      const struct host_range *like)
{
	uint64_t addr = start;
	size_t at;
	int err = 0;

	while (!err && addr < end && (at = host_ranges__find(h, addr)) < h->n &&
	       h->v[at]->start < end) {
		uint64_t from = h->v[at]->start > start ? h->v[at]->start : start;
		uint64_t to = h->v[at]->end < end ? h->v[at]->end : end;

		if (!h->v[at]->writable && !h->v[at]->resident)
			err = host_ranges__map(h, from, to, like, 0);
		addr = to;
	}
	return err;
}

/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Segments by address, and whose they are. A segment serves the blocks of one stream and one pool.
 * When it is taken nobody says of which; readings of the allocator's tables do later, and
 * allocations whose EVENT_REQUESTED was recorded name their stream. So blocks refer to segments by
 * number, and what these are is settled at the end.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/array.h"
#include "replay/plan_internal.h"

#define MAX_NUMBERS (1u << 24)
#define MAX_SEGMENTS (1u << 17)	 /* at once; jobs have some 10,000 */
#define SMALL_BLOCK (1ULL << 20) /* the largest of the pool for small blocks */

int plan_pools__init(struct plan_pools *p)
{
	p->n_pools = 1; /* the default stream, outside of all private pools */
	if (array__grow(&p->owners, &p->cap_owners, 1, sizeof(*p->owners)))
		return -ENOMEM;
	p->owners[p->n_owners++] = (struct plan_owner){ 0 };
	return 0;
}

void plan_pools__free(struct plan_pools *p)
{
	free(p->segments);
	free(p->owners);
}

/* The first that ends above addr. */
static size_t above(const struct plan_pools *p, uint64_t addr)
{
	size_t low = 0, high = p->n;

	while (low < high) {
		size_t mid = low + (high - low) / 2;

		if (p->segments[mid].addr + p->segments[mid].size > addr)
			high = mid;
		else
			low = mid + 1;
	}
	return low;
}

int plan_pools__add(struct plan_pools *p, uint64_t addr, uint64_t size, bool range)
{
	size_t from = above(p, addr), to = from;
	uint32_t number = 0;

	if (!size || addr > UINT64_MAX - size || p->n >= MAX_SEGMENTS)
		return 0;
	while (to < p->n && p->segments[to].addr < addr + size)
		to++;
	if (p->n_owners < MAX_NUMBERS) {
		if (array__grow(&p->owners, &p->cap_owners, p->n_owners + 1, sizeof(*p->owners)))
			return -ENOMEM;
		number = (uint32_t)p->n_owners;
		p->owners[p->n_owners++] = (struct plan_owner){ .range = range };
	}
	if (array__grow(&p->segments, &p->cap, p->n + 1, sizeof(*p->segments)))
		return -ENOMEM;
	memmove(&p->segments[from + 1], &p->segments[to], (p->n - to) * sizeof(*p->segments));
	p->n += 1 + from - to;
	p->segments[from] = (struct plan_segment){ addr, size, number };
	return 0;
}

void plan_pools__extend(struct plan_pools *p, uint64_t addr, uint64_t size)
{
	size_t next = above(p, addr);
	struct plan_segment *s = next ? &p->segments[next - 1] : NULL;

	if (s && s->addr + s->size == addr && addr <= UINT64_MAX - size &&
	    (next == p->n || p->segments[next].addr >= addr + size))
		s->size += size;
}

bool plan_pools__remove(struct plan_pools *p, uint64_t addr)
{
	size_t i = above(p, addr);

	if (i == p->n || p->segments[i].addr != addr)
		return false;
	memmove(&p->segments[i], &p->segments[i + 1], (p->n - i - 1) * sizeof(*p->segments));
	p->n--;
	return true;
}

struct plan_segment *plan_pools__find(struct plan_pools *p, uint64_t addr)
{
	size_t i = above(p, addr);

	return i < p->n && p->segments[i].addr <= addr ? &p->segments[i] : NULL;
}

static uint32_t pool_of(struct plan_pools *p, uint64_t stream, uint64_t id0, uint64_t id1)
{
	struct plan_pool want = { stream, { id0, id1 } };

	for (uint32_t i = 0; i < p->n_pools; i++)
		if (!memcmp(&p->pools[i], &want, sizeof(want)))
			return i;
	if (p->n_pools == REPLAY_MAX_POOLS)
		return 0;
	p->pools[p->n_pools] = want;
	return p->n_pools++;
}

void plan_pools__is_of(struct plan_pools *p, uint32_t number, uint64_t stream, const uint64_t id[2])
{
	if (number)
		p->owners[number].pool1 = 1 + pool_of(p, stream, id[0], id[1]);
}

void plan_pools__asked_of(struct plan_pools *p, uint32_t number, uint64_t stream)
{
	if (number) {
		p->owners[number].has_asked = true;
		p->owners[number].asked = stream;
	}
}

void plan_pools__has(struct plan_pools *p, uint32_t number, uint64_t size)
{
	if (number && !p->owners[number].size)
		p->owners[number].size = size <= SMALL_BLOCK ? PLAN_SMALL : PLAN_LARGE;
}

/*
 * Ranges of expandable segments of which nobody said whose they are: none of two for blocks of the
 * same size is of the same pool. Which stream that is does not matter.
 */
static unsigned tell_ranges_apart(struct plan_pools *p)
{
	bool used[PLAN_SIZES][REPLAY_MAX_POOLS] = { 0 };
	uint32_t next[PLAN_SIZES] = { 0 };
	unsigned told = 0;

	for (size_t i = 1; i < p->n_owners; i++)
		if (p->owners[i].range && p->owners[i].pool1)
			used[p->owners[i].size][p->owners[i].pool1 - 1] = true;
	for (size_t i = 1; i < p->n_owners; i++) {
		struct plan_owner *o = &p->owners[i];
		uint32_t *n = &next[o->size];

		if (!o->range || o->pool1)
			continue;
		while (*n < p->n_pools && used[o->size][*n])
			++*n;
		if (*n == p->n_pools)
			pool_of(p, UINT64_MAX - *n, 0, 0);
		if (*n == p->n_pools)
			break; /* so many there are not */
		o->pool1 = 1 + (*n)++;
		told++;
	}
	return told;
}

/*
 * Streams by the name that allocations have for them: the pool of a segment of which both are
 * known, else one of its own. names: what has been found out so far.
 */
static bool pool_asked(struct plan_pools *p, struct map64 *names, uint64_t stream, uint32_t *ret)
{
	uint64_t pool;

	if (!map64__get(names, stream, &pool)) {
		pool = pool_of(p, stream, 0, 0);
		if (map64__set(names, stream, pool))
			return false;
	}
	*ret = (uint32_t)pool;
	return true;
}

static int settle_asked(struct plan_pools *p, unsigned *unknown)
{
	struct map64 *names = map64__new();
	uint32_t pool;
	int err = names ? 0 : -ENOMEM;

	for (size_t i = 1; i < p->n_owners && !err; i++)
		if (p->owners[i].pool1 && p->owners[i].has_asked)
			err = map64__set(names, p->owners[i].asked, p->owners[i].pool1 - 1);
	for (size_t i = 1; i < p->n_owners && !err; i++) {
		struct plan_owner *o = &p->owners[i];

		if (o->pool1)
			continue;
		if (!o->has_asked)
			++*unknown;
		else if (pool_asked(p, names, o->asked, &pool))
			o->pool1 = 1 + pool;
		else
			err = -ENOMEM;
	}
	map64__free(names);
	return err;
}

int plan_pools__settle(struct plan_pools *p, unsigned *unknown)
{
	int err;

	*unknown = 0;
	err = settle_asked(p, unknown);
	if (err)
		return err;
	*unknown -= tell_ranges_apart(p);
	for (size_t i = 0; i < p->n_owners; i++)
		if (!p->owners[i].pool1)
			p->owners[i].pool1 = 1;
	return 0;
}

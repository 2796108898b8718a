/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Segments by address, and their pools. A segment serves the blocks of one stream and one pool. The
 * call that takes it does not tell which. Later readings of the allocator's tables do, and an
 * EVENT_REQUESTED names the stream of its allocation. So blocks refer to segments by number, and
 * plan_pools__settle() chooses the pools at the end.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "estimate/replay/plan_internal.h"

#define MAX_NUMBERS (1u << 24)
#define MAX_SEGMENTS (1u << 17)	 /* present at one time; jobs have about 10,000 */
#define SMALL_BLOCK (1ULL << 20) /* largest block in the pool for small blocks */

int plan_pools__init(struct plan_pools *p)
{
	p->n_pools = 1; /* pool 0: the default stream without a private pool */
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

/* Returns the index of the first segment that ends above addr. */
static size_t find_above(const struct plan_pools *p, uint64_t addr)
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
	size_t from = find_above(p, addr), to = from;
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
	size_t next = find_above(p, addr);
	struct plan_segment *s = next ? &p->segments[next - 1] : NULL;

	if (s && s->addr + s->size == addr && addr <= UINT64_MAX - size &&
	    (next == p->n || p->segments[next].addr >= addr + size))
		s->size += size;
}

bool plan_pools__remove(struct plan_pools *p, uint64_t addr)
{
	size_t i = find_above(p, addr);

	if (i == p->n || p->segments[i].addr != addr)
		return false;
	memmove(&p->segments[i], &p->segments[i + 1], (p->n - i - 1) * sizeof(*p->segments));
	p->n--;
	return true;
}

struct plan_segment *plan_pools__find(struct plan_pools *p, uint64_t addr)
{
	size_t i = find_above(p, addr);

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

void plan_pools__set_pool(struct plan_pools *p, uint32_t number, uint64_t stream,
			  const uint64_t id[2])
{
	if (number)
		p->owners[number].pool1 = 1 + pool_of(p, stream, id[0], id[1]);
}

void plan_pools__set_stream(struct plan_pools *p, uint32_t number, uint64_t stream)
{
	if (number) {
		p->owners[number].has_stream = true;
		p->owners[number].stream = stream;
	}
}

void plan_pools__note_block(struct plan_pools *p, uint32_t number, uint64_t size)
{
	if (number && !p->owners[number].size)
		p->owners[number].size = size <= SMALL_BLOCK ? PLAN_SMALL : PLAN_LARGE;
}

/* Gives unknown ranges of expandable segments distinct pools. Two ranges for blocks of the same
 * size never share a pool. The choice of the stream does not affect the replay. */
static unsigned separate_ranges(struct plan_pools *p)
{
	bool used[PLAN_SIZES][REPLAY_MAX_POOLS] = { 0 };
	uint32_t next[PLAN_SIZES] = { 0 };
	unsigned separated = 0;

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
			break; /* no more pools */
		o->pool1 = 1 + (*n)++;
		separated++;
	}
	return separated;
}

/* Returns the pool of a stream named by allocations. A segment with both a name and a pool defines
 * it; otherwise the stream gets a new pool. names: streams defined so far. */
static bool pool_of_stream(struct plan_pools *p, struct map64 *names, uint64_t stream,
			   uint32_t *ret)
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

static int settle_streams(struct plan_pools *p, unsigned *unknown)
{
	struct map64 *names = map64__new();
	uint32_t pool;
	int err = names ? 0 : -ENOMEM;

	for (size_t i = 1; i < p->n_owners && !err; i++)
		if (p->owners[i].pool1 && p->owners[i].has_stream)
			err = map64__set(names, p->owners[i].stream, p->owners[i].pool1 - 1);
	for (size_t i = 1; i < p->n_owners && !err; i++) {
		struct plan_owner *o = &p->owners[i];

		if (o->pool1)
			continue;
		if (!o->has_stream)
			++*unknown;
		else if (pool_of_stream(p, names, o->stream, &pool))
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
	err = settle_streams(p, unknown);
	if (err)
		return err;
	*unknown -= separate_ranges(p);
	for (size_t i = 0; i < p->n_owners; i++)
		if (!p->owners[i].pool1)
			p->owners[i].pool1 = 1;
	return 0;
}

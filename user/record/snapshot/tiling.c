/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "record/snapshot/tiling.h"

#include <errno.h>
#include <stdlib.h>

#include "base/map64.h"

#define SMALLEST 512u	 /* kMinBlockSize */
#define SMALL (1u << 20) /* kSmallSize: up to this size, a block is in the pool for small blocks */
#define SEARCH_WORK (1u << 26) /* most ranges looked at by all searches */

struct tiling {
	const struct snapshot_settings *settings;
	bool expandable;
	struct map64 *blocks;	/* address -> bytes * 2, + 1 for a block that waits for a stream */
	struct map64 *free_at;	/* address of a free range -> bytes */
	struct map64 *free_end; /* its end -> its address */
	/* Begins and ends of segments: free ranges never join there. */
	struct map64 *begins, *ends;
	uint64_t searched;
	size_t most; /* largest number of free ranges: searches pass as many places */
};

struct tiling *tiling__new(const struct snapshot_settings *settings)
{
	struct tiling *t = calloc(1, sizeof(*t));

	if (!t)
		return NULL;
	t->settings = settings;
	t->expandable = settings->expandable;
	t->blocks = map64__new();
	t->free_at = map64__new();
	t->free_end = map64__new();
	t->begins = map64__new();
	t->ends = map64__new();
	if (t->blocks && t->free_at && t->free_end && t->begins && t->ends)
		return t;
	tiling__free(t);
	return NULL;
}

void tiling__free(struct tiling *t)
{
	if (!t)
		return;
	map64__free(t->blocks);
	map64__free(t->free_at);
	map64__free(t->free_end);
	map64__free(t->begins);
	map64__free(t->ends);
	free(t);
}

void tiling__set_expandable(struct tiling *t)
{
	t->expandable = true;
}

/* ---- free ranges ---- */

/* Forgets a free range. */
static void remove_range(struct tiling *t, uint64_t addr, uint64_t size)
{
	map64__del(t->free_at, addr, /*old=*/NULL);
	map64__del(t->free_end, addr + size, /*old=*/NULL);
}

/* Adds a free range, unless it is empty. Returns 0 or -ENOMEM. */
static int put_range(struct tiling *t, uint64_t addr, uint64_t size)
{
	if (!size)
		return 0;
	if (map64__set(t->free_at, addr, size) || map64__set(t->free_end, addr + size, addr))
		return -ENOMEM; /* the tiling is not used any more */
	if (map64__count(t->free_at) > t->most)
		t->most = map64__count(t->free_at);
	return 0;
}

/* True if a segment begins or ends at the address. */
static bool is_border(const struct tiling *t, uint64_t addr)
{
	uint64_t unused;

	return map64__get(t->begins, addr, &unused) || map64__get(t->ends, addr, &unused);
}

/* Adds a free range, and joins it with its neighbours. Returns 0 or -ENOMEM. */
static int add_range(struct tiling *t, uint64_t addr, uint64_t size)
{
	uint64_t before, bytes;

	if (!is_border(t, addr + size) && map64__get(t->free_at, addr + size, &bytes)) {
		remove_range(t, addr + size, bytes);
		size += bytes;
	}
	if (!is_border(t, addr) && map64__get(t->free_end, addr, &before)) {
		bytes = addr - before;
		remove_range(t, before, bytes);
		addr = before;
		size += bytes;
	}
	return put_range(t, addr, size);
}

/* Finds the free range with the address in it: *start, and its bytes. False: none, or the searches
 * took too long. */
static bool find_range(struct tiling *t, uint64_t addr, uint64_t *start, uint64_t *bytes)
{
	size_t pos = 0;

	*start = addr;
	if (map64__get(t->free_at, addr, bytes))
		return true;
	if (!map64__count(t->free_at))
		return false;
	t->searched += t->most;
	while (t->searched < SEARCH_WORK && map64__next(t->free_at, &pos, start, bytes))
		if (addr - *start < *bytes)
			return true;
	return false;
}

/* Removes the part of a free range from addr on. Bytes outside the range stay. Returns 0 or
 * -ENOMEM. */
static int cut_range(struct tiling *t, uint64_t addr, uint64_t size)
{
	uint64_t start, bytes, end = addr + size;

	if (!find_range(t, addr, &start, &bytes))
		return 0;
	remove_range(t, start, bytes);
	if (put_range(t, start, addr - start))
		return -ENOMEM;
	return start + bytes > end ? put_range(t, end, start + bytes - end) : 0;
}

/* ---- segments ---- */

/* True for an empty range, or one that wraps. */
static bool bad_range(uint64_t addr, uint64_t size)
{
	return !size || size > UINT64_MAX - addr;
}

int tiling__add_borders(struct tiling *t, uint64_t addr, uint64_t size, bool mapped)
{
	if (mapped || bad_range(addr, size))
		return 0;
	return map64__set(t->begins, addr, 0) | map64__set(t->ends, addr + size, 0) ? -ENOMEM : 0;
}

int tiling__add_gap(struct tiling *t, uint64_t addr, uint64_t size)
{
	return bad_range(addr, size) ? 0 : add_range(t, addr, size);
}

int tiling__add_segment(struct tiling *t, uint64_t addr, uint64_t size, bool mapped)
{
	return tiling__add_borders(t, addr, size, mapped) | tiling__add_gap(t, addr, size) ? -ENOMEM
											   : 0;
}

int tiling__drop_segment(struct tiling *t, uint64_t addr, uint64_t size, bool mapped)
{
	if (bad_range(addr, size))
		return 0;
	if (!mapped) {
		map64__del(t->begins, addr, /*old=*/NULL);
		map64__del(t->ends, addr + size, /*old=*/NULL);
	}
	return cut_range(t, addr, size);
}

/* ---- blocks ---- */

/* Rounds up to one of `divisions` parts between two powers of two. */
static uint64_t round_to_division(uint64_t size, uint64_t divisions)
{
	uint64_t floor = UINT64_C(1) << (63 - __builtin_clzll(size)), part;

	if (!(size & (size - 1)))
		return size;
	part = floor >> (63 - __builtin_clzll(divisions));
	if (!part)
		return floor << 1;
	return (size + part - 1) & ~(part - 1);
}

uint64_t tiling__round(const struct snapshot_settings *s, uint64_t requested)
{
	int log2, i;

	if (requested < SMALLEST)
		return SMALLEST;
	if (requested > UINT64_C(1) << 62)
		return requested;
	log2 = 63 - __builtin_clzll(requested);
	i = log2 > 20 ? log2 - 20 : 0;
	if (i > 15)
		i = 15;
	if (s->divisions[i] > 1 && requested > (uint64_t)SMALLEST * s->divisions[i])
		return round_to_division(requested, s->divisions[i]);
	return (requested + SMALLEST - 1) / SMALLEST * SMALLEST;
}

/* True if a block of `size` bytes leaves `rest` bytes of a free range to others. */
static bool splits(const struct tiling *t, uint64_t size, uint64_t rest)
{
	if (size <= SMALL || t->expandable)
		return rest >= SMALLEST;
	if (t->settings->max_split_size && size >= t->settings->max_split_size)
		return false;
	return rest > SMALL;
}

int tiling__know_block(struct tiling *t, uint64_t addr, uint64_t size, bool waits)
{
	return map64__set(t->blocks, addr, size << 1 | waits);
}

int tiling__add_block(struct tiling *t, uint64_t addr, uint64_t requested, uint64_t *size,
		      uint64_t *before)
{
	uint64_t bytes, wanted = *size ?: tiling__round(t->settings, requested);
	int err = tiling__free_block(t, addr, before) ?: tiling__reuse_block(t, addr);

	if (err)
		return err;
	if (bad_range(addr, wanted) || wanted > INT64_MAX)
		wanted = 0;
	/* A known size is certain. Otherwise the rest of the range may be too small to be split. */
	if (!*size && wanted && map64__get(t->free_at, addr, &bytes) && bytes > wanted &&
	    !splits(t, wanted, bytes - wanted))
		wanted = bytes;
	*size = wanted;
	if (wanted && cut_range(t, addr, wanted))
		return -ENOMEM;
	return tiling__know_block(t, addr, wanted, /*waits=*/false);
}

int tiling__free_block(struct tiling *t, uint64_t addr, uint64_t *size)
{
	uint64_t old;

	*size = 0;
	if (!map64__get(t->blocks, addr, &old) || old & 1)
		return 0;
	*size = old >> 1;
	return map64__set(t->blocks, addr, old | 1);
}

int tiling__reuse_block(struct tiling *t, uint64_t addr)
{
	uint64_t old;

	if (!map64__del(t->blocks, addr, &old) || old < 2)
		return 0;
	return add_range(t, addr, old >> 1);
}

bool tiling__guessed(const struct tiling *t)
{
	return t->searched >= SEARCH_WORK;
}

bool tiling__next_waiting(const struct tiling *t, size_t *pos, uint64_t *addr, uint64_t *size)
{
	while (map64__next(t->blocks, pos, addr, size)) {
		bool waits = *size & 1;

		*size >>= 1;
		if (waits && *size)
			return true;
	}
	return false;
}

/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Finds the fields of a Block from the Blocks in the allocator's memory. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "inspect/torch/cudaalloc_internal.h"

#define SAMPLES 2048u  /* maximum of live samples, and of cached ones */
#define LINKED 256u    /* samples whose neighbours are read */
#define LINK_SPAN 0x40 /* prev and next are within this many bytes after ptr */
#define SIZE_ALIGN 512 /* kMinBlockSize, of which sums are multiples */
#define FIRST_STATS 40 /* DeviceStats are not before this offset in a device allocator */
/* A StatArray has a Stat for all blocks, for those of the small pool and for those of the large
 * one. Offsets in a Stat, after the current value. */
#define STAT 32
#define STAT_PEAK 8
#define STAT_ALLOCATED 16
#define STAT_FREED 24

struct sample {		  /* a Block, read while its fields are searched */
	uint64_t at, key; /* at: address of the Block; key: its ptr by the map, 0: a cached block */
	uint64_t ptr;
	uint64_t next_ptr; /* ptr of the next block; 0: not known */
	const struct pool *pool;
	bool read;
	uint8_t w[BLOCK_WINDOW];
};

struct search {
	struct cudaalloc *alloc;
	struct layout *layout;
	struct devices devices;
	struct pools pools;
	struct sample *live, *cached;
	size_t nlive, ncached;
};

/* ---- samples ---- */

/* entry_fn: keeps a live block as a sample. Returns 1, which ends the reading, after SAMPLES. */
static int on_live(void *ctx, const uint8_t *entry)
{
	struct search *search = ctx;
	uint64_t key = proc__word(entry + ENTRY_VALUE);
	uint64_t at = proc__word(entry + 16);

	if (!key || !pointer_like(at))
		return 0;
	search->live[search->nlive++] = (struct sample){ .at = at, .key = key };
	return search->nlive == SAMPLES; /* ends the reading */
}

/* Samples live blocks from the allocator's maps of addresses to blocks. 0 or -errno. */
static int sample_live(struct search *search, const uint8_t *object)
{
	const int *field = search->layout->field;
	struct table table;
	uint64_t seen;
	int err = 0;

	for (int i = 0; i < field[F_NMAPS] && !err; i++) {
		if (!table__parse(object + field[F_MAPS] + i * (int)TABLE_HEADER, &table))
			continue;
		err = table__each(search->alloc->proc, &table, MAP_ENTRY, on_live, search, &seen);
		if (err == -EFAULT)
			err = 0;
	}
	return err < 0 ? err : 0;
}

/* Samples cached blocks from the sets of the pools. */
static int sample_cached(struct search *search)
{
	struct addrs found = { 0 };
	bool torn = false;
	int err;

	err = cudaalloc_mem__tree_values(search->alloc->proc, search->pools.trees,
					 search->pools.ntrees, SAMPLES, &found, &torn);
	addrs__sort(&found);
	for (size_t i = 0; !err && i < found.n && search->ncached < SAMPLES; i++)
		search->cached[search->ncached++] = (struct sample){ .at = found.v[i] };
	addrs__free(&found);
	return err;
}

/* Keeps a copy of a sample's memory; NULL: unreadable. */
static int on_block(void *ctx, size_t i, const uint8_t *data)
{
	struct sample *s = (struct sample *)ctx + i;

	if (data) {
		memcpy(s->w, data, sizeof(s->w));
		s->read = true;
	}
	return 0;
}

/* Reads the samples' memory and drops unreadable ones. */
static int read_samples(const struct search *search, struct sample *samples, size_t *n)
{
	uint64_t *at = malloc(*n * sizeof(*at) + 1);
	size_t kept = 0;
	int err;

	if (!at)
		return -ENOMEM;
	for (size_t i = 0; i < *n; i++)
		at[i] = samples[i].at;
	err = cudaalloc_mem__read_items(search->alloc->proc, at, *n, BLOCK_WINDOW, on_block,
					samples);
	free(at);
	for (size_t i = 0; i < *n; i++) {
		if (samples[i].read)
			samples[kept++] = samples[i];
	}
	*n = kept;
	return err;
}

/* ---- ptr, pool, allocated ---- */

/* True if nearly all samples confirm a field: the program runs on and changes some of them. */
static bool nearly_all(size_t yes, size_t all)
{
	return yes && yes * 10 >= all * 9;
}

/* Drops the samples that are not good, and sets *n to the number of the others. */
static void keep_good(struct sample *samples, size_t *n, const bool *good)
{
	size_t kept = 0;

	for (size_t i = 0; i < *n; i++) {
		if (good[i])
			samples[kept++] = samples[i];
	}
	*n = kept;
}

/* Finds F_PTR: the word that is the block's key in the map. */
static void find_ptr(struct search *search)
{
	size_t best = 0, yes;
	bool good[SAMPLES];
	int at = -1;

	for (size_t off = 0; off < BLOCK_WINDOW; off += 8) {
		yes = 0;
		for (size_t i = 0; i < search->nlive; i++)
			yes += proc__word(search->live[i].w + off) == search->live[i].key;
		if (yes > best) {
			best = yes;
			at = (int)off;
		}
	}
	if (!nearly_all(best, search->nlive))
		return;
	search->layout->field[F_PTR] = at;
	for (size_t i = 0; i < search->nlive; i++) {
		search->live[i].ptr = proc__word(search->live[i].w + at);
		good[i] = search->live[i].ptr == search->live[i].key;
	}
	keep_good(search->live, &search->nlive, good);
	for (size_t i = 0; i < search->ncached; i++)
		search->cached[i].ptr = proc__word(search->cached[i].w + at);
}

/* Sets the samples' pools and drops samples of unknown pools. */
static void keep_known_pools(struct search *search, struct sample *samples, size_t *n)
{
	bool good[SAMPLES];

	for (size_t i = 0; i < *n; i++) {
		samples[i].pool = pools__find(
			&search->pools, proc__word(samples[i].w + search->layout->field[F_POOL]));
		good[i] = samples[i].pool && samples[i].ptr;
	}
	keep_good(samples, n, good);
}

/* Finds F_POOL: the word that points to a known pool. */
static void find_pool(struct search *search)
{
	size_t best = 0, yes;
	int at = -1;

	for (size_t off = 0; off < BLOCK_WINDOW; off += 8) {
		yes = 0;
		for (size_t i = 0; i < search->nlive; i++)
			yes += pools__find(&search->pools, proc__word(search->live[i].w + off)) !=
			       NULL;
		if (yes > best) {
			best = yes;
			at = (int)off;
		}
	}
	/* blocks of a private pool under construction have an unknown pool */
	if (best * 2 < search->nlive || !best)
		return;
	search->layout->field[F_POOL] = at;
	keep_known_pools(search, search->live, &search->nlive);
	keep_known_pools(search, search->cached, &search->ncached);
}

/* Finds F_ALLOCATED: the byte that is 1 in live blocks and 0 in cached ones. The next byte is
 * `mapped`: 1, except in unmapped blocks. */
static void find_allocated(struct search *search)
{
	size_t yes, no;

	for (int off = search->layout->field[F_PTR] + 8;
	     off < search->layout->field[F_PTR] + LINK_SPAN; off++) {
		yes = no = 0;
		for (size_t i = 0; i < search->nlive; i++)
			yes += search->live[i].w[off] == 1 && search->live[i].w[off + 1] == 1;
		for (size_t i = 0; i < search->ncached; i++)
			no += search->cached[i].w[off] == 0 && search->cached[i].w[off + 1] <= 1;
		if (nearly_all(yes, search->nlive) &&
		    (!search->ncached || nearly_all(no, search->ncached))) {
			search->layout->field[F_ALLOCATED] = off;
			return;
		}
	}
}

/* ---- prev and next ---- */

struct neighbour { /* a Block that a word of a sample points to */
	struct sample *sample;
	int off; /* offset in the sample where the neighbour's address is */
	bool read;
	uint64_t ptr;
	uint8_t w[BLOCK_WINDOW];
};

/* Keeps a copy of a neighbour's memory; NULL: unreadable. */
static int on_neighbour(void *ctx, size_t i, const uint8_t *data)
{
	struct neighbour *n = (struct neighbour *)ctx + i;

	if (data) {
		memcpy(n->w, data, sizeof(n->w));
		n->read = true;
	}
	return 0;
}

/* Reads all Blocks that samples point to from the range of the links. Keeps those in the same pool,
 * *nret in number. */
static int read_neighbours(struct search *search, struct neighbour **ret, size_t *nret)
{
	size_t from_live = search->nlive < LINKED ? search->nlive : LINKED;
	size_t from_cached = search->ncached < LINKED ? search->ncached : LINKED;
	size_t n = 0, kept = 0, cap = (from_live + from_cached) * (LINK_SPAN / 8);
	struct neighbour *neighbours = calloc(cap + 1, sizeof(*neighbours));
	uint64_t *at = calloc(cap + 1, sizeof(*at));
	const int *field = search->layout->field;
	int err = neighbours && at ? 0 : -ENOMEM;

	for (size_t i = 0; !err && i < from_live + from_cached; i++) {
		struct sample *s = i < from_live ? &search->live[i]
						 : &search->cached[i - from_live];

		for (int off = field[F_PTR] + 8; off < field[F_PTR] + LINK_SPAN; off += 8) {
			uint64_t to = proc__word(s->w + off);

			if (!pointer_like(to))
				continue;
			neighbours[n] = (struct neighbour){ .sample = s, .off = off };
			at[n++] = to;
		}
	}
	if (!err)
		err = cudaalloc_mem__read_items(search->alloc->proc, at, n, BLOCK_WINDOW,
						on_neighbour, neighbours);
	for (size_t i = 0; !err && i < n; i++) {
		neighbours[i].ptr = proc__word(neighbours[i].w + field[F_PTR]);
		if (neighbours[i].read && neighbours[i].ptr &&
		    pools__find(&search->pools, proc__word(neighbours[i].w + field[F_POOL])) ==
			    neighbours[i].sample->pool)
			neighbours[kept++] = neighbours[i];
	}
	free(at);
	if (err) {
		free(neighbours);
		return err;
	}
	*ret = neighbours;
	*nret = kept;
	return 0;
}

/* Finds F_NEXT and F_PREV by votes: next points to a block with a higher ptr, whose prev points
 * back. */
static void find_links(struct search *search, const struct neighbour *neighbours, size_t n)
{
	/* by the words at which next and prev may be */
	unsigned votes[LINK_SPAN / 8][LINK_SPAN / 8] = { { 0 } }, best = 0;
	int *field = search->layout->field, base = field[F_PTR];

	for (size_t i = 0; i < n; i++) {
		int here = (neighbours[i].off - base) / 8;

		for (int back = 1; back < LINK_SPAN / 8; back++) {
			if (back == here || proc__word(neighbours[i].w + base + back * 8) !=
						    neighbours[i].sample->at)
				continue;
			if (neighbours[i].ptr > neighbours[i].sample->ptr)
				votes[here][back]++;
			else
				votes[back][here]++;
		}
	}
	for (int next = 1; next < LINK_SPAN / 8; next++) {
		for (int prev = 1; prev < LINK_SPAN / 8; prev++) {
			if (votes[next][prev] > best) {
				best = votes[next][prev];
				field[F_NEXT] = base + next * 8;
				field[F_PREV] = base + prev * 8;
			}
		}
	}
	for (size_t i = 0; best && i < n; i++) {
		if (neighbours[i].off == field[F_NEXT] &&
		    proc__word(neighbours[i].w + field[F_PREV]) == neighbours[i].sample->at)
			neighbours[i].sample->next_ptr = neighbours[i].ptr;
	}
}

/* Without split blocks there are no links to find. Then prev and next are the first two words after
 * the flags, if they are 0 in all samples. */
static void guess_links(struct search *search)
{
	/* prev: the first multiple of 8 after the flags */
	int *field = search->layout->field, prev = (field[F_ALLOCATED] + 8) & ~7;

	for (size_t i = 0; i < search->nlive; i++) {
		if (proc__word(search->live[i].w + prev) ||
		    proc__word(search->live[i].w + prev + 8))
			return;
	}
	field[F_PREV] = prev;
	field[F_NEXT] = prev + 8;
}

/* ---- size, requested, device, stream ---- */

/* True if v can be the size of a block. No device has 16 TiB, and pointers that are multiples of
 * 512 lie above that, except in programs loaded at a fixed address. */
static bool size_like(uint64_t v)
{
	return v && !(v % 512) && v < UINT64_C(1) << 44;
}

/* Finds F_SIZE: a word that can be a size, and best leads from ptr to the next block's. F_REQUESTED
 * is the first word after it that is not larger. */
static void find_size(struct search *search)
{
	size_t ok, fits, best = 0;
	int *field = search->layout->field;

	for (int off = 8; off < field[F_POOL]; off += 8) {
		ok = fits = 0;
		for (size_t i = 0; i < search->nlive; i++) {
			uint64_t v = proc__word(search->live[i].w + off);

			ok += size_like(v);
			fits += search->live[i].next_ptr &&
				search->live[i].ptr + v == search->live[i].next_ptr;
		}
		if (nearly_all(ok, search->nlive) && fits + 1 > best) {
			best = fits + 1; /* the first of equal candidates stays */
			field[F_SIZE] = off;
		}
	}
	for (int off = field[F_SIZE] + 8; field[F_SIZE] >= 0 && off < field[F_POOL]; off += 8) {
		ok = 0;
		for (size_t i = 0; i < search->nlive; i++) {
			uint64_t v = proc__word(search->live[i].w + off);

			ok += v && v <= proc__word(search->live[i].w + field[F_SIZE]);
		}
		if (nearly_all(ok, search->nlive)) {
			field[F_REQUESTED] = off;
			return;
		}
	}
}

/* Finds F_DEVICE: the first byte that is the index of the pool's device. */
static void find_device(struct search *search)
{
	size_t ok;

	for (int off = 0; off < search->layout->field[F_SIZE]; off++) {
		ok = 0;
		for (size_t i = 0; i < search->nlive; i++)
			ok += search->live[i].w[off] == search->live[i].pool->device;
		if (nearly_all(ok, search->nlive)) {
			search->layout->field[F_DEVICE] = off;
			return;
		}
	}
}

/* Finds the first word after device that is equal in all blocks of a segment. */
static void find_stream(struct search *search, const struct neighbour *neighbours, size_t n)
{
	const int *field = search->layout->field;
	size_t ok, all;

	for (int off = (field[F_DEVICE] + 8) & ~7; field[F_DEVICE] >= 0 && off < field[F_SIZE];
	     off += 8) {
		ok = all = 0;
		for (size_t i = 0; i < n; i++) {
			if (neighbours[i].off != field[F_NEXT] &&
			    neighbours[i].off != field[F_PREV])
				continue;
			all++;
			ok += proc__word(neighbours[i].w + off) ==
			      proc__word(neighbours[i].sample->w + off);
		}
		if (!all || nearly_all(ok, all)) {
			search->layout->field[F_STREAM] = off;
			return;
		}
	}
}

/* ---- active_blocks and DeviceStats ---- */

struct matches {
	const uint64_t *at; /* addresses of live samples, sorted */
	size_t n, found;
};

/* Counts an entry that is one of the live samples. */
static int on_active(void *ctx, const uint8_t *entry)
{
	struct matches *matches = ctx;
	uint64_t at = proc__word(entry + ENTRY_VALUE);

	if (bsearch(&at, matches->at, matches->n, sizeof(at), array__compare_u64))
		matches->found++;
	return 0;
}

/* Finds F_ACTIVE: the device's table that has most of the live samples. */
static int find_active(struct search *search)
{
	struct matches matches = { .n = search->nlive };
	uint64_t *at = malloc(search->nlive * sizeof(*at) + 1), seen;
	int *field = search->layout->field, err = at ? 0 : -ENOMEM;
	size_t best = 0;
	struct table table;

	for (size_t i = 0; !err && i < search->nlive; i++)
		at[i] = search->live[i].at;
	if (!err)
		qsort(at, search->nlive, sizeof(*at), array__compare_u64);
	matches.at = at;
	for (size_t d = 0; !err && d < search->devices.n; d++) {
		const struct device *dev = &search->devices.v[d];
		size_t off = (size_t)field[F_SMALL] + (size_t)field[F_SETS] * TREE_HEADER;

		for (; !err && off + TABLE_HEADER <= dev->len; off += 8) {
			if (!table__parse(dev->window + off, &table) || !table.count)
				continue;
			matches.found = 0;
			err = table__each(search->alloc->proc, &table, SET_ENTRY, on_active,
					  &matches, &seen);
			if (err == -EFAULT)
				err = 0;
			if (matches.found > best) {
				best = matches.found;
				field[F_ACTIVE] = (int)off;
			}
		}
	}
	free(at);
	return err;
}

void stat_array__parse(const uint8_t *p, struct stat_array *ret)
{
	for (int i = 0; i < 3; i++, p += STAT) {
		ret->current[i] = proc__word(p);
		ret->peak[i] = proc__word(p + STAT_PEAK);
		ret->allocated[i] = proc__word(p + STAT_ALLOCATED);
		ret->freed[i] = proc__word(p + STAT_FREED);
	}
}

bool stat_array__like(const struct stat_array *s)
{
	for (int i = 0; i < 3; i++) {
		if (s->current[i] >> 62 || s->peak[i] >> 62 || s->current[i] > s->peak[i])
			return false;
	}
	/* The first is the sum of the two pools'. */
	return s->current[0] == s->current[1] + s->current[2] &&
	       s->allocated[0] == s->allocated[1] + s->allocated[2] &&
	       s->freed[0] == s->freed[1] + s->freed[2];
}

/* True if `bytes` can be DeviceStats, with about these live samples or more: each array must add
 * up, and they must agree with one another. */
static bool stats_like(const uint8_t *bytes, uint64_t some_live, uint64_t some_bytes)
{
	struct stat_array stats[STATS_NR];
	const struct stat_array *allocated = &stats[STATS_ALLOCATED],
				*reserved = &stats[STATS_RESERVED];
	uint64_t blocks;

	for (int i = 0; i < STATS_NR; i++) {
		stat_array__parse(bytes + i * (int)STAT_ARRAY, &stats[i]);
		if (!stat_array__like(&stats[i]))
			return false;
	}
	blocks = stats[STATS_BLOCKS].current[0];
	return blocks >= some_live - some_live / 4 && stats[STATS_ACTIVE].current[0] >= blocks &&
	       allocated->current[0] >= some_bytes - some_bytes / 4 &&
	       !(allocated->current[0] % SIZE_ALIGN) && !(reserved->current[0] % SIZE_ALIGN) &&
	       allocated->current[0] / SIZE_ALIGN >= blocks &&
	       reserved->current[0] >= allocated->current[0] &&
	       reserved->peak[0] >= allocated->peak[0];
}

/* Finds F_STATS: DeviceStats before the pools, which agree with the samples on every device that
 * has any. */
static void find_stats(struct search *search)
{
	int *field = search->layout->field;

	for (int off = FIRST_STATS; off + STATS_NR * (int)STAT_ARRAY <= field[F_LARGE]; off += 8) {
		unsigned yes = 0, no = 0;

		for (size_t d = 0; d < search->devices.n; d++) {
			uint64_t n = 0, bytes = 0;

			for (size_t i = 0; i < search->nlive; i++) {
				if (search->live[i].pool->device == d) {
					n++;
					bytes += proc__word(search->live[i].w + field[F_SIZE]);
				}
			}
			if (!n)
				continue;
			if (stats_like(search->devices.v[d].window + off, n, bytes))
				yes++;
			else
				no++;
		}
		if (yes && !no) {
			field[F_STATS] = off;
			return;
		}
	}
}

/* Finds the fields in turn; each needs those before it. 0 also if some are not found. */
static int find_fields(struct search *search)
{
	struct neighbour *near = NULL;
	int *field = search->layout->field, err;
	size_t nnear = 0;

	find_ptr(search);
	if (field[F_PTR] >= 0)
		find_pool(search);
	if (field[F_POOL] < 0 || field[F_PTR] + LINK_SPAN + 8 > (int)BLOCK_WINDOW)
		return 0;
	find_allocated(search);
	if (field[F_ALLOCATED] < 0)
		return 0;
	err = read_neighbours(search, &near, &nnear);
	if (err)
		return err;
	find_links(search, near, nnear);
	if (field[F_NEXT] < 0)
		guess_links(search);
	find_size(search);
	if (field[F_SIZE] >= 0) {
		find_device(search);
		find_stream(search, near, nnear);
		find_stats(search);
	}
	free(near);
	return find_active(search);
}

/* Collects samples and finds the fields. object: len bytes of the allocator object. */
static int search_object(struct search *search, const uint8_t *object, size_t len)
{
	struct cudaalloc *alloc = search->alloc;
	int err;

	err = layout__find_devices(alloc, object, len, search->layout);
	if (err)
		return err;
	err = devices__read(alloc, search->layout, &search->devices);
	if (err)
		goto unreadable;
	err = devices__pools(alloc, search->layout, &search->devices, &search->pools);
	if (err >= 0)
		err = sample_live(search, object);
	if (err)
		goto unreadable;
	if (!search->nlive) {
		snprintf(alloc->why, sizeof(alloc->why),
			 "nothing is allocated through PyTorch's allocator yet");
		return -EAGAIN;
	}
	err = read_samples(search, search->live, &search->nlive) ?: sample_cached(search);
	if (err)
		goto unreadable;
	err = read_samples(search, search->cached, &search->ncached) ?: find_fields(search);
	if (!err)
		return 0;
unreadable:
	snprintf(alloc->why, sizeof(alloc->why), "the allocator's structures cannot be read: %s",
		 strerror(-err));
	return err == -ESTALE ? -EAGAIN : err;
}

int layout__find_fields(struct cudaalloc *alloc, struct layout *layout)
{
	struct search search = { .alloc = alloc, .layout = layout };
	uint8_t *object = malloc(OBJECT_WINDOW);
	int err = -ENOMEM;
	long len;

	for (int i = 0; i < F_NR; i++)
		layout->field[i] = -1;
	search.live = calloc(SAMPLES, sizeof(*search.live));
	search.cached = calloc(SAMPLES, sizeof(*search.cached));
	if (object && search.live && search.cached) {
		len = cudaalloc_mem__read_window(alloc->proc, alloc->object, object, OBJECT_WINDOW);
		err = len < 0 ? (int)len : search_object(&search, object, (size_t)len);
	}
	free(search.live);
	free(search.cached);
	free(object);
	devices__free(&search.devices);
	pools__free(&search.pools);
	return err;
}

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

struct sample {		  /* a Block, read while its fields are searched */
	uint64_t at, key; /* at: address of the Block; key: its ptr by the map, 0: a cached block */
	uint64_t ptr;
	uint64_t next_ptr; /* ptr of the next block; 0: not known */
	const struct pool *pool;
	bool read;
	uint8_t w[BLOCK_WINDOW];
};

struct search {
	struct cudaalloc *a;
	struct layout *l;
	struct devices devices;
	struct pools pools;
	struct sample *live, *cached;
	size_t nlive, ncached;
};

/* ---- samples ---- */

static int on_live(void *ctx, const uint8_t *entry)
{
	struct search *k = ctx;
	uint64_t key = proc__word(entry + ENTRY_VALUE);
	uint64_t at = proc__word(entry + 16);

	if (!key || !pointer_like(at))
		return 0;
	k->live[k->nlive++] = (struct sample){ .at = at, .key = key };
	return k->nlive == SAMPLES; /* ends the reading */
}

/* Samples live blocks from the allocator's maps of addresses to blocks. */
static int sample_live(struct search *k, const uint8_t *object)
{
	const int *f = k->l->field;
	struct table t;
	uint64_t seen;
	int err = 0;

	for (int i = 0; i < f[F_NMAPS] && !err; i++) {
		if (!table__parse(object + f[F_MAPS] + i * (int)TABLE_HEADER, &t))
			continue;
		err = table__each(k->a->proc, &t, MAP_ENTRY, on_live, k, &seen);
		if (err == -EFAULT)
			err = 0;
	}
	return err < 0 ? err : 0;
}

/* Samples cached blocks from the sets of the pools. */
static int sample_cached(struct search *k)
{
	struct addrs found = { 0 };
	bool torn = false;
	int err;

	err = cudaalloc_mem__tree_values(k->a->proc, k->pools.trees, k->pools.ntrees, SAMPLES,
					 &found, &torn);
	addrs__sort(&found);
	for (size_t i = 0; !err && i < found.n && k->ncached < SAMPLES; i++)
		k->cached[k->ncached++] = (struct sample){ .at = found.v[i] };
	addrs__free(&found);
	return err;
}

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
static int read_samples(const struct search *k, struct sample *v, size_t *n)
{
	uint64_t *at = malloc(*n * sizeof(*at) + 1);
	size_t kept = 0;
	int err;

	if (!at)
		return -ENOMEM;
	for (size_t i = 0; i < *n; i++)
		at[i] = v[i].at;
	err = cudaalloc_mem__read_items(k->a->proc, at, *n, BLOCK_WINDOW, on_block, v);
	free(at);
	for (size_t i = 0; i < *n; i++) {
		if (v[i].read)
			v[kept++] = v[i];
	}
	*n = kept;
	return err;
}

/* ---- ptr, pool, allocated ---- */

/* Whether nearly all samples confirm a field: the program runs on and changes some of them. */
static bool nearly_all(size_t yes, size_t all)
{
	return yes && yes * 10 >= all * 9;
}

/* Drops the samples that are not good. */
static void keep_good(struct sample *v, size_t *n, const bool *good)
{
	size_t kept = 0;

	for (size_t i = 0; i < *n; i++) {
		if (good[i])
			v[kept++] = v[i];
	}
	*n = kept;
}

/* Finds F_PTR: the word that is the block's key in the map. */
static void find_ptr(struct search *k)
{
	size_t best = 0, yes;
	bool good[SAMPLES];
	int at = -1;

	for (size_t off = 0; off < BLOCK_WINDOW; off += 8) {
		yes = 0;
		for (size_t i = 0; i < k->nlive; i++)
			yes += proc__word(k->live[i].w + off) == k->live[i].key;
		if (yes > best) {
			best = yes;
			at = (int)off;
		}
	}
	if (!nearly_all(best, k->nlive))
		return;
	k->l->field[F_PTR] = at;
	for (size_t i = 0; i < k->nlive; i++) {
		k->live[i].ptr = proc__word(k->live[i].w + at);
		good[i] = k->live[i].ptr == k->live[i].key;
	}
	keep_good(k->live, &k->nlive, good);
	for (size_t i = 0; i < k->ncached; i++)
		k->cached[i].ptr = proc__word(k->cached[i].w + at);
}

/* Sets the samples' pools and drops samples of unknown pools. */
static void keep_known_pools(struct search *k, struct sample *v, size_t *n)
{
	bool good[SAMPLES];

	for (size_t i = 0; i < *n; i++) {
		v[i].pool = pools__find(&k->pools, proc__word(v[i].w + k->l->field[F_POOL]));
		good[i] = v[i].pool && v[i].ptr;
	}
	keep_good(v, n, good);
}

/* Finds F_POOL: the word that points to a known pool. */
static void find_pool(struct search *k)
{
	size_t best = 0, yes;
	int at = -1;

	for (size_t off = 0; off < BLOCK_WINDOW; off += 8) {
		yes = 0;
		for (size_t i = 0; i < k->nlive; i++)
			yes += pools__find(&k->pools, proc__word(k->live[i].w + off)) != NULL;
		if (yes > best) {
			best = yes;
			at = (int)off;
		}
	}
	/* blocks of a private pool under construction have an unknown pool */
	if (best * 2 < k->nlive || !best)
		return;
	k->l->field[F_POOL] = at;
	keep_known_pools(k, k->live, &k->nlive);
	keep_known_pools(k, k->cached, &k->ncached);
}

/* Finds F_ALLOCATED: the byte that is 1 in live blocks and 0 in cached ones. The next byte is
 * `mapped`: 1, except in unmapped blocks. */
static void find_allocated(struct search *k)
{
	size_t yes, no;

	for (int off = k->l->field[F_PTR] + 8; off < k->l->field[F_PTR] + LINK_SPAN; off++) {
		yes = no = 0;
		for (size_t i = 0; i < k->nlive; i++)
			yes += k->live[i].w[off] == 1 && k->live[i].w[off + 1] == 1;
		for (size_t i = 0; i < k->ncached; i++)
			no += k->cached[i].w[off] == 0 && k->cached[i].w[off + 1] <= 1;
		if (nearly_all(yes, k->nlive) && (!k->ncached || nearly_all(no, k->ncached))) {
			k->l->field[F_ALLOCATED] = off;
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

static int on_neighbour(void *ctx, size_t i, const uint8_t *data)
{
	struct neighbour *n = (struct neighbour *)ctx + i;

	if (data) {
		memcpy(n->w, data, sizeof(n->w));
		n->read = true;
	}
	return 0;
}

/* Reads all Blocks that samples point to from the range of the links. Keeps those in the same
 * pool. */
static int read_neighbours(struct search *k, struct neighbour **ret, size_t *nret)
{
	size_t from_live = k->nlive < LINKED ? k->nlive : LINKED;
	size_t from_cached = k->ncached < LINKED ? k->ncached : LINKED;
	size_t n = 0, kept = 0, cap = (from_live + from_cached) * (LINK_SPAN / 8);
	struct neighbour *v = calloc(cap + 1, sizeof(*v));
	uint64_t *at = calloc(cap + 1, sizeof(*at));
	const int *f = k->l->field;
	int err = v && at ? 0 : -ENOMEM;

	for (size_t i = 0; !err && i < from_live + from_cached; i++) {
		struct sample *s = i < from_live ? &k->live[i] : &k->cached[i - from_live];

		for (int off = f[F_PTR] + 8; off < f[F_PTR] + LINK_SPAN; off += 8) {
			uint64_t to = proc__word(s->w + off);

			if (!pointer_like(to))
				continue;
			v[n] = (struct neighbour){ .sample = s, .off = off };
			at[n++] = to;
		}
	}
	if (!err)
		err = cudaalloc_mem__read_items(k->a->proc, at, n, BLOCK_WINDOW, on_neighbour, v);
	for (size_t i = 0; !err && i < n; i++) {
		v[i].ptr = proc__word(v[i].w + f[F_PTR]);
		if (v[i].read && v[i].ptr &&
		    pools__find(&k->pools, proc__word(v[i].w + f[F_POOL])) == v[i].sample->pool)
			v[kept++] = v[i];
	}
	free(at);
	if (err) {
		free(v);
		return err;
	}
	*ret = v;
	*nret = kept;
	return 0;
}

/* Finds F_NEXT and F_PREV by votes: next points to a block with a higher ptr, whose prev points
 * back. */
static void find_links(struct search *k, const struct neighbour *v, size_t n)
{
	unsigned votes[LINK_SPAN / 8][LINK_SPAN / 8] = { { 0 } }, best = 0;
	int *f = k->l->field, base = f[F_PTR];

	for (size_t i = 0; i < n; i++) {
		int here = (v[i].off - base) / 8;

		for (int back = 1; back < LINK_SPAN / 8; back++) {
			if (back == here || proc__word(v[i].w + base + back * 8) != v[i].sample->at)
				continue;
			if (v[i].ptr > v[i].sample->ptr)
				votes[here][back]++;
			else
				votes[back][here]++;
		}
	}
	for (int next = 1; next < LINK_SPAN / 8; next++) {
		for (int prev = 1; prev < LINK_SPAN / 8; prev++) {
			if (votes[next][prev] > best) {
				best = votes[next][prev];
				f[F_NEXT] = base + next * 8;
				f[F_PREV] = base + prev * 8;
			}
		}
	}
	for (size_t i = 0; best && i < n; i++) {
		if (v[i].off == f[F_NEXT] && proc__word(v[i].w + f[F_PREV]) == v[i].sample->at)
			v[i].sample->next_ptr = v[i].ptr;
	}
}

/* Without split blocks there are no links to find. Then prev and next are the first two words after
 * the flags, if they are 0 in all samples. */
static void guess_links(struct search *k)
{
	int *f = k->l->field, prev = (f[F_ALLOCATED] + 8) & ~7;

	for (size_t i = 0; i < k->nlive; i++) {
		if (proc__word(k->live[i].w + prev) || proc__word(k->live[i].w + prev + 8))
			return;
	}
	f[F_PREV] = prev;
	f[F_NEXT] = prev + 8;
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
static void find_size(struct search *k)
{
	size_t ok, fits, best = 0;
	int *f = k->l->field;

	for (int off = 8; off < f[F_POOL]; off += 8) {
		ok = fits = 0;
		for (size_t i = 0; i < k->nlive; i++) {
			uint64_t v = proc__word(k->live[i].w + off);

			ok += size_like(v);
			fits += k->live[i].next_ptr && k->live[i].ptr + v == k->live[i].next_ptr;
		}
		if (nearly_all(ok, k->nlive) && fits + 1 > best) {
			best = fits + 1; /* the first of equal candidates stays */
			f[F_SIZE] = off;
		}
	}
	for (int off = f[F_SIZE] + 8; f[F_SIZE] >= 0 && off < f[F_POOL]; off += 8) {
		ok = 0;
		for (size_t i = 0; i < k->nlive; i++) {
			uint64_t v = proc__word(k->live[i].w + off);

			ok += v && v <= proc__word(k->live[i].w + f[F_SIZE]);
		}
		if (nearly_all(ok, k->nlive)) {
			f[F_REQUESTED] = off;
			return;
		}
	}
}

/* Finds F_DEVICE: the first byte that is the index of the pool's device. */
static void find_device(struct search *k)
{
	size_t ok;

	for (int off = 0; off < k->l->field[F_SIZE]; off++) {
		ok = 0;
		for (size_t i = 0; i < k->nlive; i++)
			ok += k->live[i].w[off] == k->live[i].pool->device;
		if (nearly_all(ok, k->nlive)) {
			k->l->field[F_DEVICE] = off;
			return;
		}
	}
}

/* Finds the first word after device that is equal in all blocks of a segment. */
static void find_stream(struct search *k, const struct neighbour *v, size_t n)
{
	const int *f = k->l->field;
	size_t ok, all;

	for (int off = (f[F_DEVICE] + 8) & ~7; f[F_DEVICE] >= 0 && off < f[F_SIZE]; off += 8) {
		ok = all = 0;
		for (size_t i = 0; i < n; i++) {
			if (v[i].off != f[F_NEXT] && v[i].off != f[F_PREV])
				continue;
			all++;
			ok += proc__word(v[i].w + off) == proc__word(v[i].sample->w + off);
		}
		if (!all || nearly_all(ok, all)) {
			k->l->field[F_STREAM] = off;
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
	struct matches *m = ctx;
	uint64_t at = proc__word(entry + ENTRY_VALUE);

	if (bsearch(&at, m->at, m->n, sizeof(at), array__compare_u64))
		m->found++;
	return 0;
}

/* Finds F_ACTIVE: the device's table that has most of the live samples. */
static int find_active(struct search *k)
{
	struct matches m = { .n = k->nlive };
	uint64_t *at = malloc(k->nlive * sizeof(*at) + 1), seen;
	int *f = k->l->field, err = at ? 0 : -ENOMEM;
	size_t best = 0;
	struct table t;

	for (size_t i = 0; !err && i < k->nlive; i++)
		at[i] = k->live[i].at;
	if (!err)
		qsort(at, k->nlive, sizeof(*at), array__compare_u64);
	m.at = at;
	for (size_t d = 0; !err && d < k->devices.n; d++) {
		const struct device *dev = &k->devices.v[d];
		size_t off = (size_t)f[F_SMALL] + (size_t)f[F_SETS] * TREE_HEADER;

		for (; !err && off + TABLE_HEADER <= dev->len; off += 8) {
			if (!table__parse(dev->window + off, &t) || !t.count)
				continue;
			m.found = 0;
			err = table__each(k->a->proc, &t, SET_ENTRY, on_active, &m, &seen);
			if (err == -EFAULT)
				err = 0;
			if (m.found > best) {
				best = m.found;
				f[F_ACTIVE] = (int)off;
			}
		}
	}
	free(at);
	return err;
}

void stat_array__parse(const uint8_t *p, struct stat_array *ret)
{
	for (int i = 0; i < 3; i++, p += 32) {
		ret->current[i] = proc__word(p);
		ret->peak[i] = proc__word(p + 8);
		ret->allocated[i] = proc__word(p + 16);
		ret->freed[i] = proc__word(p + 24);
	}
}

bool stat_array__like(const struct stat_array *s)
{
	for (int i = 0; i < 3; i++) {
		if (s->current[i] >> 62 || s->peak[i] >> 62 || s->current[i] > s->peak[i])
			return false;
	}
	return s->current[0] == s->current[1] + s->current[2] &&
	       s->allocated[0] == s->allocated[1] + s->allocated[2] &&
	       s->freed[0] == s->freed[1] + s->freed[2];
}

/* True if DeviceStats can be at p, with about these live samples or more: each array must add up,
 * and they must agree with one another. */
static bool stats_like(const uint8_t *p, uint64_t some_live, uint64_t some_bytes)
{
	struct stat_array s[STATS_NR];
	const struct stat_array *allocated = &s[STATS_ALLOCATED], *reserved = &s[STATS_RESERVED];
	uint64_t blocks;

	for (int i = 0; i < STATS_NR; i++) {
		stat_array__parse(p + i * (int)STAT_ARRAY, &s[i]);
		if (!stat_array__like(&s[i]))
			return false;
	}
	blocks = s[STATS_BLOCKS].current[0];
	return blocks >= some_live - some_live / 4 && s[STATS_ACTIVE].current[0] >= blocks &&
	       allocated->current[0] >= some_bytes - some_bytes / 4 &&
	       !(allocated->current[0] % 512) && !(reserved->current[0] % 512) &&
	       allocated->current[0] / 512 >= blocks &&
	       reserved->current[0] >= allocated->current[0] &&
	       reserved->peak[0] >= allocated->peak[0];
}

/* Finds F_STATS: DeviceStats before the pools, which agree with the samples on every device that
 * has any. */
static void find_stats(struct search *k)
{
	int *f = k->l->field;

	for (int off = 40; off + STATS_NR * (int)STAT_ARRAY <= f[F_LARGE]; off += 8) {
		unsigned yes = 0, no = 0;

		for (size_t d = 0; d < k->devices.n; d++) {
			uint64_t n = 0, bytes = 0;

			for (size_t i = 0; i < k->nlive; i++) {
				if (k->live[i].pool->device == d) {
					n++;
					bytes += proc__word(k->live[i].w + f[F_SIZE]);
				}
			}
			if (!n)
				continue;
			if (stats_like(k->devices.v[d].window + off, n, bytes))
				yes++;
			else
				no++;
		}
		if (yes && !no) {
			f[F_STATS] = off;
			return;
		}
	}
}

/* Finds the fields in turn; each needs those before it. 0 also if some are not found. */
static int find_fields(struct search *k)
{
	struct neighbour *near = NULL;
	int *f = k->l->field, err;
	size_t nnear = 0;

	find_ptr(k);
	if (f[F_PTR] >= 0)
		find_pool(k);
	if (f[F_POOL] < 0 || f[F_PTR] + LINK_SPAN + 8 > (int)BLOCK_WINDOW)
		return 0;
	find_allocated(k);
	if (f[F_ALLOCATED] < 0)
		return 0;
	err = read_neighbours(k, &near, &nnear);
	if (err)
		return err;
	find_links(k, near, nnear);
	if (f[F_NEXT] < 0)
		guess_links(k);
	find_size(k);
	if (f[F_SIZE] >= 0) {
		find_device(k);
		find_stream(k, near, nnear);
		find_stats(k);
	}
	free(near);
	return find_active(k);
}

/* Collects samples and finds the fields. object: len bytes of the allocator object. */
static int search_object(struct search *k, const uint8_t *object, size_t len)
{
	struct cudaalloc *a = k->a;
	int err;

	err = layout__find_devices(a, object, len, k->l);
	if (err)
		return err;
	err = devices__read(a, k->l, &k->devices);
	if (err)
		goto unreadable;
	err = devices__pools(a, k->l, &k->devices, &k->pools);
	if (err >= 0)
		err = sample_live(k, object);
	if (err)
		goto unreadable;
	if (!k->nlive) {
		snprintf(a->why, sizeof(a->why),
			 "nothing is allocated through PyTorch's allocator yet");
		return -EAGAIN;
	}
	err = read_samples(k, k->live, &k->nlive) ?: sample_cached(k);
	if (err)
		goto unreadable;
	err = read_samples(k, k->cached, &k->ncached) ?: find_fields(k);
	if (!err)
		return 0;
unreadable:
	snprintf(a->why, sizeof(a->why), "the allocator's structures cannot be read: %s",
		 strerror(-err));
	return err == -ESTALE ? -EAGAIN : err;
}

int layout__find_fields(struct cudaalloc *a, struct layout *l)
{
	struct search k = { .a = a, .l = l };
	uint8_t *object = malloc(OBJECT_WINDOW);
	int err = -ENOMEM;
	long len;

	for (int i = 0; i < F_NR; i++)
		l->field[i] = -1;
	k.live = calloc(SAMPLES, sizeof(*k.live));
	k.cached = calloc(SAMPLES, sizeof(*k.cached));
	if (object && k.live && k.cached) {
		len = cudaalloc_mem__read_window(a->proc, a->object, object, OBJECT_WINDOW);
		err = len < 0 ? (int)len : search_object(&k, object, (size_t)len);
	}
	free(k.live);
	free(k.cached);
	free(object);
	devices__free(&k.devices);
	pools__free(&k.pools);
	return err;
}

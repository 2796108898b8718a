/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Collects all Blocks that the allocator's maps, sets and pools lead to, and checks each one. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "inspect/proc.h"
#include "inspect/torch/cudaalloc_internal.h"

/* Origin of a Block pointer, in bits that an aligned address does not use. */
#define FROM_MAP 1u
#define FROM_ACTIVE 2u
#define FROM 7u

/* CUDA's alignment of addresses. PyTorch rounds sizes to 512, not a segment's start. */
#define POINTER_ALIGN 256
#define LINK_ROUNDS 4 /* rounds of adding blocks found only through neighbours */

struct gather {
	const struct cudaalloc *a;
	const struct layout *l;
	struct pass *s;
	struct addrs at;   /* Block pointers with their origin */
	struct addrs keys; /* from the maps: device address and Block, alternating */
	size_t block_len;
};

static void torn(struct gather *g, const char *why)
{
	if (!g->s->torn)
		g->s->torn = why;
}

/* ---- totals ---- */

/* stats: len bytes of the device allocator, from F_STATS on. */
static int parse_totals(const struct cudaalloc *a, const struct layout *l, const uint8_t *stats,
			size_t len, struct cuda_device_state *d, struct cuda_totals *ret)
{
	size_t active, requested;

	if (len < 6 * STAT_ARRAY)
		return -ESTALE;
	ret->count = proc__word(stats);
	ret->allocated = proc__word(stats + 4 * STAT_ARRAY);
	ret->reserved = proc__word(stats + 5 * STAT_ARRAY);
	d->more_known = a->active_bytes >= 0 && a->requested_bytes >= 0;
	if (!d->more_known)
		return 0;
	active = (size_t)a->active_bytes - (size_t)l->field[F_STATS];
	requested = (size_t)a->requested_bytes - (size_t)l->field[F_STATS];
	if (active + 8 > len || requested + 8 > len)
		return -ESTALE;
	ret->active = proc__word(stats + active);
	ret->requested = proc__word(stats + requested);
	return 0;
}

/* Totals before the pass, from the windows, which are read first. */
static int totals_before(struct gather *g)
{
	size_t at = (size_t)g->l->field[F_STATS];
	int err = 0;

	for (size_t i = 0; i < g->s->devices.n && !err; i++) {
		const struct device *d = &g->s->devices.v[i];
		struct cuda_device_state *st = &g->s->state[i];

		err = at > d->len ? -ESTALE
				  : parse_totals(g->a, g->l, d->window + at, d->len - at, st,
						 &st->before);
	}
	return err;
}

static int totals_after(struct gather *g)
{
	size_t at = (size_t)g->l->field[F_STATS], len = (size_t)g->l->field[F_LARGE] - at;
	uint8_t *buf = malloc(len);
	int err = buf ? 0 : -ENOMEM;

	for (size_t i = 0; i < g->s->devices.n && !err; i++) {
		struct cuda_device_state *st = &g->s->state[i];

		err = proc__read(g->a->proc, g->s->devices.v[i].addr + at, buf, len);
		if (!err)
			err = parse_totals(g->a, g->l, buf, len, st, &st->after);
	}
	free(buf);
	return err == -EFAULT ? -ESTALE : err;
}

/* ---- Block pointers ---- */

static int on_mapped(void *ctx, const uint8_t *entry)
{
	struct gather *g = ctx;
	uint64_t key = proc__word(entry + 8);
	uint64_t at = proc__word(entry + 16);
	int err;

	if (!key || !pointer_like(at))
		return 0;
	err = addrs__add(&g->at, at | FROM_MAP) ?: addrs__add(&g->keys, key);
	return err ?: addrs__add(&g->keys, at);
}

static int on_active(void *ctx, const uint8_t *entry)
{
	struct gather *g = ctx;
	uint64_t at = proc__word(entry + 8);

	return pointer_like(at) ? addrs__add(&g->at, at | FROM_ACTIVE) : 0;
}

/* Reads a table; if it changes or is freed meanwhile, the pass is torn and goes on. */
static int read_table(struct gather *g, const uint8_t *header, size_t width, entry_fn fn)
{
	struct table t;
	uint64_t seen;
	int err;

	if (!table__parse(header, &t)) {
		torn(g, "a table of blocks was changing");
		return 0;
	}
	err = table__each(g->a->proc, &t, width, fn, g, &seen);
	if (err == -EFAULT || (!err && seen != t.count)) {
		torn(g, "a table of blocks was changing");
		err = 0;
	}
	return err;
}

static int read_maps(struct gather *g)
{
	size_t n = (size_t)g->l->field[F_NMAPS];
	uint8_t *headers = malloc(n * TABLE_HEADER);
	int err;

	if (!headers)
		return -ENOMEM;
	err = proc__read(g->a->proc, g->a->object + (uint64_t)g->l->field[F_MAPS], headers,
			 n * TABLE_HEADER);
	if (err == -EFAULT)
		err = -ESTALE;
	for (size_t i = 0; i < n && !err; i++)
		err = read_table(g, headers + i * TABLE_HEADER, 24, on_mapped);
	free(headers);
	return err;
}

static int read_active(struct gather *g)
{
	size_t off = (size_t)g->l->field[F_ACTIVE];
	int err = 0;

	for (size_t i = 0; i < g->s->devices.n && !err; i++) {
		const struct device *d = &g->s->devices.v[i];

		if (off + TABLE_HEADER > d->len)
			return -ESTALE;
		err = read_table(g, d->window + off, 16, on_active);
	}
	return err;
}

static int read_sets(struct gather *g)
{
	struct addrs found = { 0 };
	bool changing = false;
	int err;

	err = cudaalloc_mem__tree_values(g->a->proc, g->s->pools.trees, g->s->pools.ntrees,
					 MAX_BLOCKS, &found, &changing);
	if (changing)
		torn(g, "a set of blocks was changing");
	for (size_t i = 0; i < found.n && !err; i++)
		err = addrs__add(&g->at, found.v[i]);
	addrs__free(&found);
	return err;
}

/* ---- Blocks ---- */

static void add_raw(struct pass *s, uint64_t met)
{
	struct raw *last = s->n ? &s->v[s->n - 1] : NULL;
	uint64_t at = met & ~(uint64_t)FROM;

	if (!last || last->at != at) {
		last = &s->v[s->n++];
		*last = (struct raw){ .at = at, .previ = NO_BLOCK, .nexti = NO_BLOCK };
	}
	last->active |= (met & FROM_ACTIVE) != 0;
}

static bool in_range(const struct raw *b)
{
	if (!b->ptr || !b->size || b->size % 512 || b->size >> 48 || b->ptr >> 56 ||
	    b->ptr % POINTER_ALIGN)
		return false;
	if (b->allocated > 1 || b->mapped > 1 || b->device != b->pool->device)
		return false;
	if ((b->prev && !pointer_like(b->prev)) || (b->next && !pointer_like(b->next)))
		return false;
	return !b->allocated || (b->mapped && b->requested && b->requested <= b->size);
}

static int on_block(void *ctx, size_t i, const uint8_t *w)
{
	struct gather *g = ctx;
	const int *f = g->l->field;
	struct raw *b = &g->s->v[i];

	if (!w)
		return 0;
	b->ptr = proc__word(w + f[F_PTR]);
	b->size = proc__word(w + f[F_SIZE]);
	b->requested = proc__word(w + f[F_REQUESTED]);
	b->pool_at = proc__word(w + f[F_POOL]);
	b->stream = proc__word(w + f[F_STREAM]);
	b->prev = proc__word(w + f[F_PREV]);
	b->next = proc__word(w + f[F_NEXT]);
	b->device = w[f[F_DEVICE]];
	b->allocated = w[f[F_ALLOCATED]];
	b->mapped = w[f[F_ALLOCATED] + 1];
	b->pool = pools__find(&g->s->pools, b->pool_at);
	b->valid = b->pool && in_range(b);
	return 0;
}

static int read_blocks(struct gather *g)
{
	struct pass *s = g->s;
	uint64_t *at = malloc(s->n * sizeof(*at) + 1);
	int err;

	if (!at)
		return -ENOMEM;
	for (size_t i = 0; i < s->n; i++)
		at[i] = s->v[i].at;
	err = cudaalloc_mem__read_items(g->a->proc, at, s->n, g->block_len, on_block, g);
	free(at);
	return err;
}

/* Index of the Block at an address, or NO_BLOCK. */
static uint32_t find_block(const struct pass *s, uint64_t at)
{
	size_t low = 0, high = s->n;

	while (low < high) {
		size_t mid = low + (high - low) / 2;

		if (s->v[mid].at < at)
			low = mid + 1;
		else
			high = mid;
	}
	return low < s->n && s->v[low].at == at ? (uint32_t)low : NO_BLOCK;
}

/* Adds Blocks that links lead to and that were not found yet. Returns their number, or -errno. */
static long add_linked(struct gather *g)
{
	struct pass *s = g->s;
	size_t before = g->at.n;
	int err = 0;

	for (size_t i = 0; i < s->n && !err; i++) {
		const struct raw *b = &s->v[i];

		if (!b->valid)
			continue;
		if (b->next && find_block(s, b->next) == NO_BLOCK)
			err = addrs__add(&g->at, b->next);
		if (!err && b->prev && find_block(s, b->prev) == NO_BLOCK)
			err = addrs__add(&g->at, b->prev);
	}
	return err ? err : (long)(g->at.n - before);
}

static int make_blocks(struct gather *g)
{
	struct pass *s = g->s;
	long more = 0;
	int err;

	for (int round = 0; round < LINK_ROUNDS; round++) {
		addrs__sort(&g->at);
		free(s->v);
		s->v = calloc(g->at.n + 1, sizeof(*s->v));
		if (!s->v)
			return -ENOMEM;
		s->n = 0;
		for (size_t i = 0; i < g->at.n; i++)
			add_raw(s, g->at.v[i]);
		err = read_blocks(g);
		if (err)
			return err;
		more = add_linked(g);
		if (more <= 0)
			break;
		/* a block is in a set or a table, except while it moves between them */
		torn(g, "a block was in none of the tables");
	}
	return more < 0 ? (int)more : 0;
}

/* Flags the blocks that the map has under their own address. */
static void match_keys(struct gather *g)
{
	struct pass *s = g->s;
	uint32_t i;

	for (size_t k = 0; k + 1 < g->keys.n; k += 2) {
		i = find_block(s, g->keys.v[k + 1] & ~(uint64_t)FROM);
		if (i != NO_BLOCK && s->v[i].valid && s->v[i].ptr == g->keys.v[k])
			s->v[i].mapkey = true;
	}
}

static void link_blocks(struct gather *g)
{
	struct pass *s = g->s;

	for (size_t i = 0; i < s->n; i++) {
		struct raw *b = &s->v[i];

		if (!b->valid)
			continue;
		b->previ = b->prev ? find_block(s, b->prev) : NO_BLOCK;
		b->nexti = b->next ? find_block(s, b->next) : NO_BLOCK;
	}
}

static size_t block_len(const struct layout *l)
{
	int end = 0;

	for (int i = F_DEVICE; i < F_NR; i++)
		end = l->field[i] + 8 > end ? l->field[i] + 8 : end;
	return (size_t)end;
}

static int gather_all(struct gather *g)
{
	int err = totals_before(g) ?: read_maps(g);

	if (err)
		return err;
	err = read_active(g) ?: read_sets(g);
	if (err)
		return err;
	return make_blocks(g) ?: totals_after(g);
}

int pass__run(const struct cudaalloc *a, const struct layout *l, struct pass *ret)
{
	struct gather g = { .a = a, .l = l, .s = ret, .block_len = block_len(l) };
	int err;

	memset(ret, 0, sizeof(*ret));
	err = devices__read(a, l, &ret->devices);
	if (err)
		return err;
	err = devices__pools(a, l, &ret->devices, &ret->pools);
	if (err == 1)
		torn(&g, "a set of blocks was changing");
	if (err >= 0) {
		ret->state = calloc(ret->devices.n, sizeof(*ret->state));
		err = ret->state ? gather_all(&g) : -ENOMEM;
	}
	if (!err) {
		match_keys(&g);
		link_blocks(&g);
	}
	addrs__free(&g.at);
	addrs__free(&g.keys);
	if (err)
		pass__free(ret);
	return err;
}

void pass__free(struct pass *s)
{
	free(s->v);
	free(s->state);
	devices__free(&s->devices);
	pools__free(&s->pools);
	memset(s, 0, sizeof(*s));
}

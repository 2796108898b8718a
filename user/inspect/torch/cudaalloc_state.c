/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The state of the allocator, in one pass: collects all Blocks that its maps, sets and pools lead
 * to, checks each one, makes segments and sorted blocks from them, and checks these against the
 * totals.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "inspect/proc.h"
#include "inspect/torch/cudaalloc_internal.h"

#define NO_BLOCK UINT32_MAX

/* A Block as read. */
struct raw {
	uint64_t at; /* address in the target */
	uint64_t ptr, size, requested, pool_at, stream, prev, next;
	const struct pool *pool;
	uint32_t previ, nexti; /* indexes in pass.v, or NO_BLOCK */
	uint8_t device, allocated, mapped;
	bool valid;   /* all fields are in range and the pool is known */
	bool mapkey;  /* the allocator's map has it under ptr */
	bool active;  /* in active_blocks */
	bool reached; /* the block was added to a segment */
};

struct pass {
	struct raw *v; /* sorted by at */
	size_t n;
	struct devices devices;
	struct pools pools;
	struct cuda_device_state *state; /* one for each device */
	const char *torn;		 /* reason why the whole pass is torn */
};

/* ---- the Blocks of a pass ---- */

/* Origin of a Block pointer, in bits that an aligned address does not use. */
#define FROM_MAP 1u
#define FROM_ACTIVE 2u
#define FROM_MASK 7u

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

/* The pass is torn; keeps the first reason. */
static void mark_torn(struct pass *s, const char *why)
{
	if (!s->torn)
		s->torn = why;
}

/* ---- totals ---- */

/* Parses a device's totals. stats: len bytes of the device allocator, from F_STATS on. */
static int parse_totals(const struct cudaalloc *a, const struct layout *l, const uint8_t *stats,
			size_t len, struct cuda_device_state *d, struct cuda_totals *ret)
{
	size_t active, requested;

	if (len < STATS_NR * STAT_ARRAY)
		return -ESTALE;
	ret->count = proc__word(stats);
	ret->allocated = proc__word(stats + STATS_ALLOCATED * STAT_ARRAY);
	ret->reserved = proc__word(stats + STATS_RESERVED * STAT_ARRAY);
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

/* Reads the totals again after the pass. */
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

/* Takes an entry {distance, device address, Block *} of a map. */
static int on_mapped(void *ctx, const uint8_t *entry)
{
	struct gather *g = ctx;
	uint64_t key = proc__word(entry + ENTRY_VALUE);
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
	uint64_t at = proc__word(entry + ENTRY_VALUE);

	return pointer_like(at) ? addrs__add(&g->at, at | FROM_ACTIVE) : 0;
}

/* Reads a table; if it changes or is freed meanwhile, the pass is torn and goes on. */
static int read_table(struct gather *g, const uint8_t *header, size_t width, entry_fn fn)
{
	struct table t;
	uint64_t seen;
	int err;

	if (!table__parse(header, &t)) {
		mark_torn(g->s, "a table of blocks was changing");
		return 0;
	}
	err = table__each(g->a->proc, &t, width, fn, g, &seen);
	if (err == -EFAULT || (!err && seen != t.count)) {
		mark_torn(g->s, "a table of blocks was changing");
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
		err = read_table(g, headers + i * TABLE_HEADER, MAP_ENTRY, on_mapped);
	free(headers);
	return err;
}

/* Reads the tables of live and pending blocks from the windows, which may be outdated by now. */
static int read_active(struct gather *g)
{
	size_t off = (size_t)g->l->field[F_ACTIVE];
	int err = 0;

	for (size_t i = 0; i < g->s->devices.n && !err; i++) {
		const struct device *d = &g->s->devices.v[i];

		if (off + TABLE_HEADER > d->len)
			return -ESTALE;
		err = read_table(g, d->window + off, SET_ENTRY, on_active);
	}
	return err;
}

/* Reads the cached blocks from the sets of all pools. */
static int read_sets(struct gather *g)
{
	struct addrs found = { 0 };
	bool changing = false;
	int err;

	err = cudaalloc_mem__tree_values(g->a->proc, g->s->pools.trees, g->s->pools.ntrees,
					 MAX_BLOCKS, &found, &changing);
	if (changing)
		mark_torn(g->s, "a set of blocks was changing");
	for (size_t i = 0; i < found.n && !err; i++)
		err = addrs__add(&g->at, found.v[i]);
	addrs__free(&found);
	return err;
}

/* ---- Blocks ---- */

/* Adds a Block, or another origin of the last one. pointer: with its origin in the low bits. */
static void add_raw(struct pass *s, uint64_t pointer)
{
	struct raw *last = s->n ? &s->v[s->n - 1] : NULL;
	uint64_t at = pointer & ~(uint64_t)FROM_MASK;

	if (!last || last->at != at) {
		last = &s->v[s->n++];
		*last = (struct raw){ .at = at, .previ = NO_BLOCK, .nexti = NO_BLOCK };
	}
	last->active |= (pointer & FROM_ACTIVE) != 0;
}

/* Whether the fields of a Block in a known pool are possible. */
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

/* Parses a Block at w; NULL: it is unreadable and stays invalid. */
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

/* Adds the addresses of Blocks that links lead to and that were not found yet. Returns their
 * number, or -errno. */
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

/* Reads all Blocks, then those that only their links lead to. */
static int collect_blocks(struct gather *g)
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
		mark_torn(g->s, "a block was in none of the tables");
	}
	return more < 0 ? (int)more : 0;
}

/* Flags the blocks that the map has under their own address. */
static void match_keys(struct gather *g)
{
	struct pass *s = g->s;
	uint32_t i;

	for (size_t k = 0; k + 1 < g->keys.n; k += 2) {
		i = find_block(s, g->keys.v[k + 1] & ~(uint64_t)FROM_MASK);
		if (i != NO_BLOCK && s->v[i].valid && s->v[i].ptr == g->keys.v[k])
			s->v[i].mapkey = true;
	}
}

/* Finds the indexes of each block's neighbours. */
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

/* Bytes of a Block up to the end of its last field. */
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
	return collect_blocks(g) ?: totals_after(g);
}

static void free_pass(struct pass *s)
{
	free(s->v);
	free(s->state);
	devices__free(&s->devices);
	pools__free(&s->pools);
	memset(s, 0, sizeof(*s));
}

/* Reads the allocator once into *ret; free_pass() must follow on success. */
static int run_pass(const struct cudaalloc *a, const struct layout *l, struct pass *ret)
{
	struct gather g = { .a = a, .l = l, .s = ret, .block_len = block_len(l) };
	int err;

	memset(ret, 0, sizeof(*ret));
	err = devices__read(a, l, &ret->devices);
	if (err)
		return err;
	err = devices__pools(a, l, &ret->devices, &ret->pools);
	if (err == 1)
		mark_torn(ret, "a set of blocks was changing");
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
		free_pass(ret);
	return err;
}

/* ---- segments from the Blocks ---- */

/* A run of adjacent blocks, build.order[first] to [first + n - 1]: a segment, or part of one. */
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
};

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
		mark_torn(b->s, "links between blocks were changing");
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

/* Follows the links from each segment's first block, then groups the rest; sorts by address. */
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
			mark_torn(b->s, "links between blocks were changing");
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
			mark_torn(b->s, "segments were changing");
			st->segment = NO_BLOCK;
			/* Two overlapping segments are of different pools, so one of them no longer
			 * exists. Keep the first one. */
			if (st->pool != pool)
				continue;
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

/* True if the block is allocated, and the allocator's map confirms that. */
static bool is_live(const struct raw *r)
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
		return 0; /* out of memory: drop all, because any block may overlap another */
	for (size_t i = 1; i < n; i++) {
		const struct raw *a = &v[order[last]], *c = &v[order[i]];

		if (c->ptr < a->ptr + a->size) {
			if (is_live(c) && is_live(a))
				drop[i] = drop[last] = true;
			else
				drop[is_live(c) ? last : i] = true;
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

/* Adds a block to the result, unless it is not certain whether it is live. */
static void emit_block(struct build *b, const struct raw *r, uint32_t segment,
		       struct cudaalloc_state *ret)
{
	struct cuda_block *out;

	if (r->allocated && !r->mapkey) {
		mark_torn(b->s, "a block was being handed out");
		return; /* allocated, but not in the map: uncertain */
	}
	if (r->allocated != (r->active && r->mapkey))
		mark_torn(b->s, "a block was being handed out or freed");
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
static void emit_blocks(struct build *b, struct cudaalloc_state *ret)
{
	uint32_t *sorted = malloc(b->norder * sizeof(*sorted) + 1);
	size_t i = 0, n, first;

	if (!sorted) {
		mark_torn(b->s, "out of memory");
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
			emit_block(b, &b->s->v[sorted[k]], segment, ret);
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

/* Reason why a device's blocks do not match its totals; "": they match. */
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

/* Sets for each device, and for all, whether the result is consistent and why not. */
static void set_consistency(struct build *b, struct cudaalloc_state *st)
{
	struct sums sums[MAX_DEVICES] = { { 0 } };

	add_up(st, sums);
	st->consistent = true;
	st->why = "";
	for (size_t i = 0; i < st->ndevices; i++) {
		struct cuda_device_state *d = &st->devices[i];

		d->why = find_mismatch(d, &sums[i]);
		if (!d->why[0] && b->s->torn)
			d->why = b->s->torn;
		d->consistent = !d->why[0];
		if (st->consistent && !d->consistent) {
			st->consistent = false;
			st->why = d->why;
		}
	}
}

/* Makes the result from the Blocks of a pass; it takes over s->state. 0, -ENOMEM. */
static int build_state(struct pass *s, struct cudaalloc_state *ret)
{
	struct build b = { .s = s };
	struct cudaalloc_state st = { 0 };
	int err = -ENOMEM;

	b.order = malloc(s->n * sizeof(*b.order) + 1);
	b.v = malloc(s->n * sizeof(*b.v) + 1);
	if (!b.order || !b.v)
		goto out;
	for (size_t i = 0; i < s->n; i++) {
		if (!s->v[i].valid)
			mark_torn(s, "a block could not be read");
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
	emit_blocks(&b, &st);
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

/* Finds active_bytes, then requested_bytes: the first StatArrays that equal the blocks' sums on all
 * devices. */
static void find_more_stats(struct cudaalloc *a, const struct layout *l, const struct pass *s,
			    const struct cudaalloc_state *st)
{
	struct sums sums[MAX_DEVICES] = { { 0 } };
	const int *f = l->field;
	struct stat_array array;
	int active = -1;

	add_up(st, sums);
	for (int off = f[F_STATS] + STATS_NR * (int)STAT_ARRAY; off + (int)STAT_ARRAY <= f[F_LARGE];
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

int cudaalloc_state__read(struct cudaalloc *a, const struct layout *l, struct cudaalloc_state *ret)
{
	struct pass s;
	int err = run_pass(a, l, &s);

	if (err)
		return err;
	err = build_state(&s, ret);
	if (!err && ret->consistent && a->active_bytes < 0)
		find_more_stats(a, l, &s, ret);
	free_pass(&s);
	return err;
}

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
#define SIZE_ALIGN 512 /* kMinBlockSize */
#define LINK_ROUNDS 4  /* rounds of adding blocks found only through neighbours */

struct gather {
	const struct cudaalloc *alloc;
	const struct layout *layout;
	struct pass *pass;
	struct addrs at;   /* Block pointers with their origin */
	struct addrs keys; /* from the maps: device address and Block, alternating */
	size_t block_len;
};

/* The pass is torn; keeps the first reason. */
static void mark_torn(struct pass *pass, const char *why)
{
	if (!pass->torn)
		pass->torn = why;
}

/* ---- totals ---- */

/* Parses a device's totals. stats: len bytes of the device allocator, from F_STATS on. */
static int parse_totals(const struct cudaalloc *alloc, const struct layout *layout,
			const uint8_t *stats, size_t len, struct cuda_device_state *device,
			struct cuda_totals *ret)
{
	size_t active, requested;

	if (len < STATS_NR * STAT_ARRAY)
		return -ESTALE;
	ret->count = proc__word(stats);
	ret->allocated = proc__word(stats + STATS_ALLOCATED * STAT_ARRAY);
	ret->reserved = proc__word(stats + STATS_RESERVED * STAT_ARRAY);
	device->more_known = alloc->active_bytes >= 0 && alloc->requested_bytes >= 0;
	if (!device->more_known)
		return 0;
	active = (size_t)alloc->active_bytes - (size_t)layout->field[F_STATS];
	requested = (size_t)alloc->requested_bytes - (size_t)layout->field[F_STATS];
	if (active + 8 > len || requested + 8 > len)
		return -ESTALE;
	ret->active = proc__word(stats + active);
	ret->requested = proc__word(stats + requested);
	return 0;
}

/* Totals before the pass, from the windows, which are read first. */
static int totals_before(struct gather *gather)
{
	size_t at = (size_t)gather->layout->field[F_STATS];
	int err = 0;

	for (size_t i = 0; i < gather->pass->devices.n && !err; i++) {
		const struct device *device = &gather->pass->devices.v[i];
		struct cuda_device_state *st = &gather->pass->state[i];

		err = at > device->len
			      ? -ESTALE
			      : parse_totals(gather->alloc, gather->layout, device->window + at,
					     device->len - at, st, &st->before);
	}
	return err;
}

/* Reads the totals again after the pass. */
static int totals_after(struct gather *gather)
{
	size_t at = (size_t)gather->layout->field[F_STATS],
	       len = (size_t)gather->layout->field[F_LARGE] - at;
	uint8_t *buf = malloc(len);
	int err = buf ? 0 : -ENOMEM;

	for (size_t i = 0; i < gather->pass->devices.n && !err; i++) {
		struct cuda_device_state *st = &gather->pass->state[i];

		err = proc__read(gather->alloc->proc, gather->pass->devices.v[i].addr + at, buf,
				 len);
		if (!err)
			err = parse_totals(gather->alloc, gather->layout, buf, len, st, &st->after);
	}
	free(buf);
	return err == -EFAULT ? -ESTALE : err;
}

/* ---- Block pointers ---- */

/* Takes an entry {distance, device address, Block *} of a map. */
static int on_mapped(void *ctx, const uint8_t *entry)
{
	struct gather *gather = ctx;
	uint64_t key = proc__word(entry + ENTRY_VALUE);
	uint64_t at = proc__word(entry + 16);
	int err;

	if (!key || !pointer_like(at))
		return 0;
	err = addrs__add(&gather->at, at | FROM_MAP) ?: addrs__add(&gather->keys, key);
	return err ?: addrs__add(&gather->keys, at);
}

/* entry_fn: notes a block in a table of active blocks. */
static int on_active(void *ctx, const uint8_t *entry)
{
	struct gather *gather = ctx;
	uint64_t at = proc__word(entry + ENTRY_VALUE);

	return pointer_like(at) ? addrs__add(&gather->at, at | FROM_ACTIVE) : 0;
}

/* Reads a table; if it changes or is freed meanwhile, the pass is torn and goes on. */
static int read_table(struct gather *gather, const uint8_t *header, size_t width, entry_fn fn)
{
	struct table table;
	uint64_t seen;
	int err;

	if (!table__parse(header, &table)) {
		mark_torn(gather->pass, "a table of blocks was changing");
		return 0;
	}
	err = table__each(gather->alloc->proc, &table, width, fn, gather, &seen);
	if (err == -EFAULT || (!err && seen != table.count)) {
		mark_torn(gather->pass, "a table of blocks was changing");
		err = 0;
	}
	return err;
}

/* Reads the maps of live blocks. */
static int read_maps(struct gather *gather)
{
	size_t n_maps = (size_t)gather->layout->field[F_NMAPS];
	uint8_t *headers = malloc(n_maps * TABLE_HEADER);
	int err;

	if (!headers)
		return -ENOMEM;
	err = proc__read(gather->alloc->proc,
			 gather->alloc->object + (uint64_t)gather->layout->field[F_MAPS], headers,
			 n_maps * TABLE_HEADER);
	if (err == -EFAULT)
		err = -ESTALE;
	for (size_t i = 0; i < n_maps && !err; i++)
		err = read_table(gather, headers + i * TABLE_HEADER, MAP_ENTRY, on_mapped);
	free(headers);
	return err;
}

/* Reads the tables of live and pending blocks from the windows, which may be outdated by now. */
static int read_active(struct gather *gather)
{
	size_t off = (size_t)gather->layout->field[F_ACTIVE];
	int err = 0;

	for (size_t i = 0; i < gather->pass->devices.n && !err; i++) {
		const struct device *device = &gather->pass->devices.v[i];

		if (off + TABLE_HEADER > device->len)
			return -ESTALE;
		err = read_table(gather, device->window + off, SET_ENTRY, on_active);
	}
	return err;
}

/* Reads the cached blocks from the sets of all pools. */
static int read_sets(struct gather *gather)
{
	struct addrs found = { 0 };
	bool changing = false;
	int err;

	err = cudaalloc_mem__tree_values(gather->alloc->proc, gather->pass->pools.trees,
					 gather->pass->pools.ntrees, MAX_BLOCKS, &found, &changing);
	if (changing)
		mark_torn(gather->pass, "a set of blocks was changing");
	for (size_t i = 0; i < found.n && !err; i++)
		err = addrs__add(&gather->at, found.v[i]);
	addrs__free(&found);
	return err;
}

/* ---- Blocks ---- */

/* Adds a Block, or another origin of the last one. pointer: with its origin in the low bits. */
static void add_raw(struct pass *pass, uint64_t pointer)
{
	struct raw *last = pass->n ? &pass->v[pass->n - 1] : NULL;
	uint64_t at = pointer & ~(uint64_t)FROM_MASK;

	if (!last || last->at != at) {
		last = &pass->v[pass->n++];
		*last = (struct raw){ .at = at, .previ = NO_BLOCK, .nexti = NO_BLOCK };
	}
	last->active |= (pointer & FROM_ACTIVE) != 0;
}

/* True if the fields of a Block in a known pool are possible. No GPU has 2^48 bytes, or addresses
 * from 2^56 on. */
static bool in_range(const struct raw *raw)
{
	if (!raw->ptr || !raw->size || raw->size % SIZE_ALIGN || raw->size >> 48 ||
	    raw->ptr >> 56 || raw->ptr % POINTER_ALIGN)
		return false;
	if (raw->allocated > 1 || raw->mapped > 1 || raw->device != raw->pool->device)
		return false;
	if ((raw->prev && !pointer_like(raw->prev)) || (raw->next && !pointer_like(raw->next)))
		return false;
	/* A block that is allocated is mapped, and as large as was requested. */
	return !raw->allocated || (raw->mapped && raw->requested && raw->requested <= raw->size);
}

/* Parses a Block at words; NULL: it is unreadable and stays invalid. */
static int on_block(void *ctx, size_t i, const uint8_t *words)
{
	struct gather *gather = ctx;
	const int *field = gather->layout->field;
	struct raw *raw = &gather->pass->v[i];

	if (!words)
		return 0;
	raw->ptr = proc__word(words + field[F_PTR]);
	raw->size = proc__word(words + field[F_SIZE]);
	raw->requested = proc__word(words + field[F_REQUESTED]);
	raw->pool_at = proc__word(words + field[F_POOL]);
	raw->stream = proc__word(words + field[F_STREAM]);
	raw->prev = proc__word(words + field[F_PREV]);
	raw->next = proc__word(words + field[F_NEXT]);
	raw->device = words[field[F_DEVICE]];
	raw->allocated = words[field[F_ALLOCATED]];
	raw->mapped = words[field[F_ALLOCATED] + 1];
	raw->pool = pools__find(&gather->pass->pools, raw->pool_at);
	raw->valid = raw->pool && in_range(raw);
	return 0;
}

/* Reads the Blocks at all addresses that were found. */
static int read_blocks(struct gather *gather)
{
	struct pass *pass = gather->pass;
	uint64_t *at = malloc(pass->n * sizeof(*at) + 1);
	int err;

	if (!at)
		return -ENOMEM;
	for (size_t i = 0; i < pass->n; i++)
		at[i] = pass->v[i].at;
	err = cudaalloc_mem__read_items(gather->alloc->proc, at, pass->n, gather->block_len,
					on_block, gather);
	free(at);
	return err;
}

/* Index of the Block at an address, or NO_BLOCK. */
static uint32_t find_block(const struct pass *pass, uint64_t at)
{
	size_t low = 0, high = pass->n;

	while (low < high) {
		size_t mid = low + (high - low) / 2;

		if (pass->v[mid].at < at)
			low = mid + 1;
		else
			high = mid;
	}
	return low < pass->n && pass->v[low].at == at ? (uint32_t)low : NO_BLOCK;
}

/* Adds the addresses of Blocks that links lead to and that were not found yet. Returns their
 * number, or -errno. */
static long add_linked(struct gather *gather)
{
	struct pass *pass = gather->pass;
	size_t before = gather->at.n;
	int err = 0;

	for (size_t i = 0; i < pass->n && !err; i++) {
		const struct raw *raw = &pass->v[i];

		if (!raw->valid)
			continue;
		if (raw->next && find_block(pass, raw->next) == NO_BLOCK)
			err = addrs__add(&gather->at, raw->next);
		if (!err && raw->prev && find_block(pass, raw->prev) == NO_BLOCK)
			err = addrs__add(&gather->at, raw->prev);
	}
	return err ? err : (long)(gather->at.n - before);
}

/* Reads all Blocks, then those that only their links lead to. */
static int collect_blocks(struct gather *gather)
{
	struct pass *pass = gather->pass;
	long more = 0;
	int err;

	for (int round = 0; round < LINK_ROUNDS; round++) {
		addrs__sort(&gather->at);
		free(pass->v);
		pass->v = calloc(gather->at.n + 1, sizeof(*pass->v));
		if (!pass->v)
			return -ENOMEM;
		pass->n = 0;
		for (size_t i = 0; i < gather->at.n; i++)
			add_raw(pass, gather->at.v[i]);
		err = read_blocks(gather);
		if (err)
			return err;
		more = add_linked(gather);
		if (more <= 0)
			break;
		/* a block is in a set or a table, except while it moves between them */
		mark_torn(gather->pass, "a block was in none of the tables");
	}
	return more < 0 ? (int)more : 0;
}

/* Flags the blocks that the map has under their own address. */
static void match_keys(struct gather *gather)
{
	struct pass *pass = gather->pass;
	uint32_t i;

	for (size_t k = 0; k + 1 < gather->keys.n; k += 2) {
		i = find_block(pass, gather->keys.v[k + 1] & ~(uint64_t)FROM_MASK);
		if (i != NO_BLOCK && pass->v[i].valid && pass->v[i].ptr == gather->keys.v[k])
			pass->v[i].mapkey = true;
	}
}

/* Finds the indexes of each block's neighbours. */
static void link_blocks(struct gather *gather)
{
	struct pass *pass = gather->pass;

	for (size_t i = 0; i < pass->n; i++) {
		struct raw *raw = &pass->v[i];

		if (!raw->valid)
			continue;
		raw->previ = raw->prev ? find_block(pass, raw->prev) : NO_BLOCK;
		raw->nexti = raw->next ? find_block(pass, raw->next) : NO_BLOCK;
	}
}

/* Bytes of a Block up to the end of its last field. */
static size_t block_len(const struct layout *layout)
{
	int end = 0;

	for (int i = F_DEVICE; i < F_NR; i++)
		end = layout->field[i] + 8 > end ? layout->field[i] + 8 : end;
	return (size_t)end;
}

/* Reads the allocator's totals before and after all of its tables and Blocks. */
static int gather_all(struct gather *gather)
{
	int err = totals_before(gather) ?: read_maps(gather);

	if (err)
		return err;
	err = read_active(gather) ?: read_sets(gather);
	if (err)
		return err;
	return collect_blocks(gather) ?: totals_after(gather);
}

static void free_pass(struct pass *pass)
{
	free(pass->v);
	free(pass->state);
	devices__free(&pass->devices);
	pools__free(&pass->pools);
	memset(pass, 0, sizeof(*pass));
}

/* Reads the allocator once into *ret; free_pass() must follow on success. */
static int run_pass(const struct cudaalloc *alloc, const struct layout *layout, struct pass *ret)
{
	struct gather gather = {
		.alloc = alloc, .layout = layout, .pass = ret, .block_len = block_len(layout)
	};
	int err;

	memset(ret, 0, sizeof(*ret));
	err = devices__read(alloc, layout, &ret->devices);
	if (err)
		return err;
	err = devices__pools(alloc, layout, &ret->devices, &ret->pools);
	if (err == 1) /* torn */
		mark_torn(ret, "a set of blocks was changing");
	if (err >= 0) {
		ret->state = calloc(ret->devices.n, sizeof(*ret->state));
		err = ret->state ? gather_all(&gather) : -ENOMEM;
	}
	if (!err) {
		match_keys(&gather);
		link_blocks(&gather);
	}
	addrs__free(&gather.at);
	addrs__free(&gather.keys);
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
	struct pass *pass;
	uint32_t *order; /* indexes of blocks */
	size_t norder;
	struct stretch *v;
	size_t n;
};

/* ---- stretches ---- */

/* Adds block i at the end of a stretch. */
static void add_block(struct build *build, struct stretch *stretch, uint32_t i)
{
	struct raw *raw = &build->pass->v[i];

	raw->reached = true;
	build->order[build->norder++] = i;
	stretch->n++;
	if (raw->ptr + raw->size > stretch->end)
		stretch->end = raw->ptr + raw->size;
}

/* Begins a stretch of adjacent blocks with block i. */
static struct stretch *begin_stretch(struct build *build, uint32_t i)
{
	struct stretch *st = &build->v[build->n++];
	const struct raw *raw = &build->pass->v[i];

	*st = (struct stretch){
		.addr = raw->ptr, .end = raw->ptr, .pool = raw->pool, .first = build->norder
	};
	add_block(build, st, i);
	return st;
}

/* True if the block is the first of a segment: no previous block, or an unmapped one. */
static bool is_head(const struct pass *pass, uint32_t i)
{
	const struct raw *raw = &pass->v[i], *prev;

	if (!raw->prev)
		return true;
	if (raw->previ == NO_BLOCK)
		return false;
	prev = &pass->v[raw->previ]; /* its links and addresses must agree with this block's */
	return prev->valid && !prev->mapped && prev->nexti == i &&
	       prev->ptr + prev->size == raw->ptr;
}

/* Follows the links from the head of a segment while both neighbours agree. */
static void walk_segment(struct build *build, uint32_t head)
{
	struct stretch *st = begin_stretch(build, head);
	struct raw *raws = build->pass->v;
	uint32_t i = head, next;

	st->expandable = raws[head].prev != 0;
	for (;;) {
		if (!raws[i].next) {
			st->whole = true;
			return;
		}
		next = raws[i].nexti;
		if (next == NO_BLOCK || !raws[next].valid || raws[next].previ != i ||
		    raws[next].ptr != st->end || raws[next].pool != st->pool ||
		    raws[next].stream != raws[i].stream)
			return;
		/* An expandable segment ends with a block that is not mapped. */
		if (!raws[next].mapped) {
			st->whole = st->expandable = true;
			return;
		}
		if (raws[next].reached)
			return;
		add_block(build, st, next);
		i = next;
	}
}

static int by_ptr(const void *x, const void *y, void *arg)
{
	const struct raw *raws = arg;
	const struct raw *a = &raws[*(const uint32_t *)x], *c = &raws[*(const uint32_t *)y];

	if (a->ptr != c->ptr)
		return a->ptr < c->ptr ? -1 : 1;
	return (a->at > c->at) - (a->at < c->at);
}

/* Groups the blocks that no head leads to, by address. */
static int group_unreached(struct build *build)
{
	uint32_t *rest = malloc(build->pass->n * sizeof(*rest) + 1);
	struct stretch *st = NULL;
	struct raw *raws = build->pass->v;
	size_t n = 0;

	if (!rest)
		return -ENOMEM;
	for (size_t i = 0; i < build->pass->n; i++) {
		if (raws[i].valid && raws[i].mapped && !raws[i].reached)
			rest[n++] = (uint32_t)i;
	}
	if (n) {
		mark_torn(build->pass, "links between blocks were changing");
		qsort_r(rest, n, sizeof(*rest), by_ptr, raws);
	}
	for (size_t i = 0; i < n; i++) {
		if (st && st->pool == raws[rest[i]].pool && raws[rest[i]].ptr <= st->end)
			add_block(build, st, rest[i]);
		else
			st = begin_stretch(build, rest[i]);
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
static int make_stretches(struct build *build)
{
	int err;

	for (uint32_t i = 0; i < build->pass->n; i++) {
		const struct raw *raw = &build->pass->v[i];

		if (raw->valid && raw->mapped && !raw->reached && is_head(build->pass, i))
			walk_segment(build, i);
	}
	for (size_t i = 0; i < build->n; i++) {
		if (!build->v[i].whole)
			mark_torn(build->pass, "links between blocks were changing");
	}
	err = group_unreached(build);
	if (!err && build->n)
		qsort(build->v, build->n, sizeof(*build->v), by_addr);
	return err;
}

/* ---- segments ---- */

/* Merges overlapping stretches: their parts were read at different times. */
static void make_segments(struct build *build, struct cudaalloc_state *ret)
{
	struct cuda_segment *last = NULL;
	const struct pool *pool = NULL;

	for (size_t i = 0; i < build->n; i++) {
		struct stretch *st = &build->v[i];

		if (last && st->addr < last->addr + last->size) {
			mark_torn(build->pass, "segments were changing");
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
		*last = (struct cuda_segment){
			.addr = st->addr,
			.size = st->end - st->addr,
			.device = pool->device,
			.pool = { pool->id[0], pool->id[1] },
			.small = pool->small,
			.stream = build->pass->v[build->order[st->first]].stream,
			.expandable = st->expandable,
			.whole = st->whole
		};
	}
}

/* ---- blocks ---- */

/* True if the block is allocated, and the allocator's map confirms that. */
static bool is_live(const struct raw *raw)
{
	return raw->allocated && raw->mapkey;
}

/* Drops overlapping blocks in a segment whose parts were read at different times. order: their n
 * indices in raws, by address. Returns the number of those that stay, at the front of order. A live
 * block wins over others; two live blocks are both dropped. */
static size_t drop_overlaps(const struct raw *raws, uint32_t *order, size_t n)
{
	bool *drop = calloc(n + 1, sizeof(*drop));
	size_t kept = 0, last = 0;

	if (!drop)
		return 0; /* out of memory: drop all, because any block may overlap another */
	for (size_t i = 1; i < n; i++) {
		const struct raw *kept_block = &raws[order[last]], *block = &raws[order[i]];

		if (block->ptr < kept_block->ptr + kept_block->size) {
			if (is_live(block) && is_live(kept_block))
				drop[i] = drop[last] = true;
			else
				drop[is_live(block) ? last : i] = true;
		}
		if (block->ptr + block->size > kept_block->ptr + kept_block->size ||
		    (drop[last] && !drop[i]))
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
static void emit_block(struct build *build, const struct raw *raw, uint32_t segment,
		       struct cudaalloc_state *ret)
{
	struct cuda_block *out;

	if (raw->allocated && !raw->mapkey) {
		mark_torn(build->pass, "a block was being handed out");
		return; /* allocated, but not in the map: uncertain */
	}
	/* An allocated block is in the map and in active_blocks; a cached one is in neither. */
	if (raw->allocated != (raw->active && raw->mapkey))
		mark_torn(build->pass, "a block was being handed out or freed");
	out = &ret->blocks[ret->nblocks++];
	*out = (struct cuda_block){ .addr = raw->ptr,
				    .size = raw->size,
				    .stream = raw->stream,
				    .segment = segment,
				    .device = raw->device };
	if (raw->allocated)
		out->state = CUDA_BLOCK_LIVE;
	else
		out->state = raw->active ? CUDA_BLOCK_PENDING : CUDA_BLOCK_CACHED;
	if (out->state != CUDA_BLOCK_CACHED)
		out->requested = raw->requested <= raw->size ? raw->requested : raw->size;
}

/* Adds the blocks of each segment; its stretches are adjacent in v. */
static void emit_blocks(struct build *build, struct cudaalloc_state *ret)
{
	uint32_t *sorted = malloc(build->norder * sizeof(*sorted) + 1);
	size_t i = 0, n, first;

	if (!sorted) {
		mark_torn(build->pass, "out of memory");
		return;
	}
	while (i < build->n) {
		uint32_t segment = build->v[i].segment;
		struct cuda_segment *to;

		if (segment == NO_BLOCK) {
			i++;
			continue;
		}
		to = &ret->segments[segment];
		for (n = 0; i < build->n &&
			    (build->v[i].segment == segment || build->v[i].segment == NO_BLOCK);
		     i++) {
			if (build->v[i].segment == NO_BLOCK)
				continue;
			memcpy(sorted + n, build->order + build->v[i].first,
			       build->v[i].n * sizeof(*sorted));
			n += build->v[i].n;
		}
		if (!to->whole) {
			qsort_r(sorted, n, sizeof(*sorted), by_ptr, build->pass->v);
			n = drop_overlaps(build->pass->v, sorted, n);
		}
		first = ret->nblocks;
		for (size_t k = 0; k < n; k++)
			emit_block(build, &build->pass->v[sorted[k]], segment, ret);
		to->first = (uint32_t)first;
		to->nblocks = (uint32_t)(ret->nblocks - first);
	}
	free(sorted);
}

/* ---- check against the totals ---- */

struct sums {
	uint64_t live, count, active, requested, mapped;
};

/* Adds the blocks to the sums of their devices. */
static void add_up(const struct cudaalloc_state *st, struct sums *sums)
{
	for (size_t i = 0; i < st->nblocks; i++) {
		const struct cuda_block *block = &st->blocks[i];
		struct sums *sum = &sums[block->device];

		if (block->state == CUDA_BLOCK_LIVE) {
			sum->live += block->size;
			sum->count++;
		}
		if (block->state != CUDA_BLOCK_CACHED) {
			sum->active += block->size;
			sum->requested += block->requested;
		}
		sum->mapped += block->size;
	}
}

/* Reason why a device's blocks do not match its totals; "": they match. */
static const char *find_mismatch(const struct cuda_device_state *device, const struct sums *sum)
{
	const struct cuda_totals *totals = &device->after;

	if (memcmp(&device->before, totals, sizeof(*totals)))
		return "the allocator's totals moved";
	if (sum->live != totals->allocated || sum->count != totals->count)
		return "the blocks do not add up to the allocated total";
	if (sum->mapped != totals->reserved)
		return "the segments do not add up to the reserved total";
	if (device->more_known &&
	    (sum->active != totals->active || sum->requested != totals->requested))
		return "the blocks do not add up to the requested total";
	return "";
}

/* Sets for each device, and for all, whether the result is consistent and why not. */
static void set_consistency(struct build *build, struct cudaalloc_state *st)
{
	struct sums sums[MAX_DEVICES] = { { 0 } };

	add_up(st, sums);
	st->consistent = true;
	st->why = "";
	for (size_t i = 0; i < st->ndevices; i++) {
		struct cuda_device_state *device = &st->devices[i];

		device->why = find_mismatch(device, &sums[i]);
		if (!device->why[0] && build->pass->torn)
			device->why = build->pass->torn;
		device->consistent = !device->why[0];
		if (st->consistent && !device->consistent) {
			st->consistent = false;
			st->why = device->why;
		}
	}
}

/* Makes the result from the Blocks of a pass; it takes over pass->state. 0, -ENOMEM. */
static int build_state(struct pass *pass, struct cudaalloc_state *ret)
{
	struct build build = { .pass = pass };
	struct cudaalloc_state st = { 0 };
	int err = -ENOMEM;

	build.order = malloc(pass->n * sizeof(*build.order) + 1);
	build.v = malloc(pass->n * sizeof(*build.v) + 1);
	if (!build.order || !build.v)
		goto out;
	for (size_t i = 0; i < pass->n; i++) {
		if (!pass->v[i].valid)
			mark_torn(pass, "a block could not be read");
	}
	err = make_stretches(&build);
	if (err)
		goto out;
	err = -ENOMEM;
	st.segments = malloc(build.n * sizeof(*st.segments) + 1);
	st.blocks = malloc(build.norder * sizeof(*st.blocks) + 1);
	if (!st.segments || !st.blocks)
		goto out;
	make_segments(&build, &st);
	emit_blocks(&build, &st);
	st.devices = pass->state;
	st.ndevices = pass->devices.n;
	pass->state = NULL;
	set_consistency(&build, &st);
	*ret = st;
	memset(&st, 0, sizeof(st));
	err = 0;
out:
	cudaalloc_state__free(&st);
	free(build.order);
	free(build.v);
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
static void find_more_stats(struct cudaalloc *alloc, const struct layout *layout,
			    const struct pass *pass, const struct cudaalloc_state *st)
{
	struct sums sums[MAX_DEVICES] = { { 0 } };
	const int *field = layout->field;
	struct stat_array array;
	int active = -1;

	add_up(st, sums);
	for (int off = field[F_STATS] + STATS_NR * (int)STAT_ARRAY;
	     off + (int)STAT_ARRAY <= field[F_LARGE]; off += 8) {
		bool fits = true, any = false; /* any: a device's sum is not 0 */

		for (size_t d = 0; d < pass->devices.n && fits; d++) {
			uint64_t want = active < 0 ? sums[d].active : sums[d].requested;

			stat_array__parse(pass->devices.v[d].window + off, &array);
			fits = array.current[0] == want &&
			       array.current[1] + array.current[2] == want && array.peak[0] >= want;
			any = any || want;
		}
		if (!fits || !any)
			continue;
		if (active >= 0) {
			alloc->active_bytes = active;
			alloc->requested_bytes = off;
			return;
		}
		active = off;
		off += (int)STAT_ARRAY - 8; /* goes on after this array */
	}
}

int cudaalloc_state__read(struct cudaalloc *alloc, const struct layout *layout,
			  struct cudaalloc_state *ret)
{
	struct pass pass;
	int err = run_pass(alloc, layout, &pass);

	if (err)
		return err;
	err = build_state(&pass, ret);
	if (!err && ret->consistent && alloc->active_bytes < 0)
		find_more_stats(alloc, layout, &pass, ret);
	free_pass(&pass);
	return err;
}

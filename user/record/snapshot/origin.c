/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "record/snapshot/origin.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/map64.h"
#include "record/mtr.h"
#include "record/snapshot/tiling.h"

/* Of PyTorch's allocator: bytes of a segment for small blocks, and of the largest such block. */
#define SMALL_SEGMENT (2u << 20)       /* kSmallBuffer */
#define SMALL (1u << 20)	       /* kSmallSize */
#define MOVED_MOST (UINT64_C(1) << 31) /* segments moved in all, some seconds */

#define CHECK_EVERY (1u << 16) /* entries between two calls of room__check() */

/* The next use of an address in the rest of the trace. */
enum later { LATER_LIVE, LATER_WAITS, LATER_FREED, LATER_REUSED };

struct backwards {
	struct records *r;
	struct map64 *later; /* address -> number << 2 | enum later; number: of a found block (LIVE,
				WAITS), otherwise of an entry */
	struct origin_block *found; /* blocks at the end */
	size_t n_found, cap_found;
	struct origin_segment *segments; /* in order of addresses */
	size_t n_segments, cap_segments;
	uint64_t moved; /* segments that insertions and removals moved */
};

ARRAY_UP_TO(segments_up_to, struct origin_segment, addr)
ARRAY_COMPARE(by_address, struct origin_block, addr)

/* ---- segments ---- */

/* Counts the segments from place i on as moved. -ENOSPC: more than any program's trace moves. */
static int count_moved(struct backwards *b, size_t i)
{
	b->moved += b->n_segments - i;
	return b->moved > MOVED_MOST ? -ENOSPC : 0;
}

/* Inserts a segment at place i. Returns 0, -ENOMEM or -ENOSPC as count_moved(). */
static int insert_segment(struct backwards *b, size_t i, const struct origin_segment *s)
{
	if (count_moved(b, i))
		return -ENOSPC;
	if (array__grow(&b->segments, &b->cap_segments, b->n_segments + 1, sizeof(*b->segments)))
		return -ENOMEM;
	memmove(b->segments + i + 1, b->segments + i, (b->n_segments - i) * sizeof(*b->segments));
	b->segments[i] = *s;
	b->n_segments++;
	return 0;
}

/* Adds a segment, unless it is damaged or overlaps another one. Returns 0, -ENOMEM or -ENOSPC. */
static int add_segment(struct backwards *b, const struct origin_segment *s)
{
	size_t i = segments_up_to(b->segments, b->n_segments, s->addr);

	if (!s->size || s->size > UINT64_MAX - s->addr)
		return 0;
	/* Segments do not overlap. */
	if (i && s->addr - b->segments[i - 1].addr < b->segments[i - 1].size)
		return 0;
	if (i < b->n_segments && b->segments[i].addr - s->addr < s->size)
		return 0;
	return insert_segment(b, i, s);
}

/* Removes the addresses, which may be a part of a segment. Returns 0, -ENOMEM or -ENOSPC. */
static int cut_segment(struct backwards *b, uint64_t addr, uint64_t size)
{
	size_t i = segments_up_to(b->segments, b->n_segments, addr);
	struct origin_segment *s = i ? &b->segments[i - 1] : NULL, rest;

	if (!s || addr - s->addr >= s->size || size > UINT64_MAX - addr)
		return 0;
	rest = *s;
	rest.addr = addr + size;
	rest.size = s->addr + s->size > rest.addr ? s->addr + s->size - rest.addr : 0;
	s->size = addr - s->addr;
	if (!s->size) {
		if (count_moved(b, i))
			return -ENOSPC;
		memmove(s, s + 1, (b->n_segments - i) * sizeof(*s));
		b->n_segments--;
		i--;
	}
	return rest.size ? insert_segment(b, i, &rest) : 0;
}

/* ---- the end ---- */

/* Takes a block of the end, at an address of segment s. Returns 0 or -ENOMEM. */
static int find_block(struct backwards *b, const struct snapshot_segment *s,
		      const struct snapshot_block *block, uint64_t addr)
{
	enum later later = block->state == BLOCK_LIVE ? LATER_LIVE : LATER_WAITS;

	if (block->state == BLOCK_FREE || !block->size || block->size > INT64_MAX)
		return 0;
	if (array__grow(&b->found, &b->cap_found, b->n_found + 1, sizeof(*b->found)) ||
	    map64__set(b->later, addr, (uint64_t)b->n_found << 2 | later))
		return -ENOMEM;
	b->found[b->n_found++] = (struct origin_block){
		.addr = addr,
		.size = block->size,
		.requested = block->requested <= block->size ? block->requested : block->size,
		.stream = s->stream,
		.stack = block->stack,
		.waits = later == LATER_WAITS,
		.metadata = block->metadata,
		.node = block->node,
	};
	return 0;
}

/* Takes a segment of the end with its blocks. Returns 0, -ENOMEM or -ENOSPC. */
static int find_segment(struct backwards *b, const struct snapshot_segment *s)
{
	struct origin_segment segment = {
		.addr = s->addr,
		.size = s->size,
		.stream = s->stream,
		.pool_no = s->pool_no,
		.small = s->small,
		.mapped = s->expandable,
	};
	uint64_t addr = s->addr;
	int err = add_segment(b, &segment);

	for (size_t i = 0; i < s->blocks.n && !err; i++) {
		value v = value_list__at(&s->blocks, i);

		if (value__kind(v) != VALUE_BLOCK)
			continue;
		err = find_block(b, s, &b->r->blocks[value__number(v)], addr);
		addr += b->r->blocks[value__number(v)].size;
	}
	return err;
}

/* Reads the segments and blocks of the device at the end. */
static int find_end(struct backwards *b, uint32_t device)
{
	int err = 0;

	for (size_t i = 0; i < b->r->n_segments && !err; i++)
		if (b->r->segments[i].device == device)
			err = find_segment(b, &b->r->segments[i]);
	return err;
}

/* ---- the trace ---- */

/* Before an allocation, its block was not there. */
static void undo_alloc(struct backwards *b, struct snapshot_entry *e)
{
	uint64_t later, number;

	if (!map64__del(b->later, e->addr, &later))
		return;
	number = later >> 2;
	if ((later & 3) == LATER_LIVE || (later & 3) == LATER_WAITS)
		e->block = b->found[number].size;
	else
		e->block = b->r->entries[number].block;
}

/* Before the program frees a block, it is live. */
static int undo_free(struct backwards *b, struct snapshot_entry *e, uint64_t number)
{
	uint64_t later;

	if (map64__get(b->later, e->addr, &later) && (later & 3) == LATER_WAITS)
		e->block = b->found[later >> 2].size;
	return map64__set(b->later, e->addr, number << 2 | LATER_FREED);
}

/* Before the allocator gave back a segment, it was there. */
static int undo_taken(struct backwards *b, const struct snapshot_entry *e, bool mapped)
{
	struct origin_segment s = {
		.addr = e->addr,
		.size = e->size,
		.stream = e->stream,
		.pool_no = e->pool_no,
		.small = e->size == SMALL_SEGMENT && !mapped,
		.mapped = mapped,
	};

	return add_segment(b, &s);
}

/* Takes back an entry of the trace. number: its number. Returns 0, -ENOMEM or -ENOSPC. */
static int undo_entry(struct backwards *b, uint64_t number)
{
	struct snapshot_entry *e = &b->r->entries[number];

	switch (e->action) {
	case ACTION_ALLOC:
		undo_alloc(b, e);
		return 0;
	case ACTION_FREE_REQUESTED:
		return undo_free(b, e, number);
	case ACTION_FREE_COMPLETED:
		return map64__set(b->later, e->addr, number << 2 | LATER_REUSED);
	case ACTION_SEGMENT_ALLOC:
	case ACTION_SEGMENT_MAP:
		return cut_segment(b, e->addr, e->size);
	case ACTION_SEGMENT_FREE:
	case ACTION_SEGMENT_UNMAP:
		return undo_taken(b, e, e->action == ACTION_SEGMENT_UNMAP);
	}
	return 0;
}

/* ---- the begin ---- */

/* Returns the block of an address at the begin of the trace. later: the value in b->later. Sets
 * *rounded if its size is only what the request was rounded to. */
static struct origin_block begin_block(const struct backwards *b, uint64_t later, bool *rounded)
{
	const struct snapshot_entry *e;
	struct origin_block block;

	if ((later & 3) == LATER_LIVE || (later & 3) == LATER_WAITS)
		return b->found[later >> 2];
	/* The entry's stack is that of the free. */
	e = &b->r->entries[later >> 2];
	block = (struct origin_block){
		.addr = e->addr,
		.size = e->block ?: tiling__round(&b->r->settings, e->size),
		.requested = e->size,
		.stream = e->stream,
		.waits = (later & 3) == LATER_REUSED,
	};
	/* Blocks of at most a MiB are cut off exactly, larger ones may keep a rest of the range. */
	*rounded |= !e->block && block.size > SMALL && !b->r->settings.expandable;
	return block;
}

/* Sums up the bytes of the begin. Sizes that were rounded cannot reach into the next block, so they
 * are cut. */
static void sum_up(struct origin *o)
{
	for (size_t i = 0; i < o->n_blocks; i++) {
		struct origin_block *b = &o->blocks[i];

		if (i + 1 < o->n_blocks && b->size > o->blocks[i + 1].addr - b->addr)
			b->size = o->blocks[i + 1].addr - b->addr;
		if (b->requested > b->size)
			b->requested = b->size;
		o->allocated += b->waits ? 0 : b->size;
	}
	for (size_t i = 0; i < o->n_segments; i++)
		o->reserved += o->segments[i].size;
}

/* Lists the blocks and segments of the begin. Returns 0 or -ENOMEM. */
static int list_begin(struct backwards *b, struct origin *ret)
{
	size_t pos = 0, n = map64__count(b->later);
	uint64_t addr, later;

	ret->blocks = calloc(n + 1, sizeof(*ret->blocks));
	if (!ret->blocks)
		return -ENOMEM;
	while (map64__next(b->later, &pos, &addr, &later))
		ret->blocks[ret->n_blocks++] = begin_block(b, later, &ret->rounded);
	qsort(ret->blocks, ret->n_blocks, sizeof(*ret->blocks), by_address);
	ret->segments = b->segments;
	ret->n_segments = b->n_segments;
	b->segments = NULL;
	sum_up(ret);
	return 0;
}

/* Takes back all entries of the trace, the last one first. */
static int undo_trace(struct backwards *b, const struct value_list *trace)
{
	for (size_t i = trace->n; i > 0; i--) {
		value v = value_list__at(trace, i - 1);
		int err = value__kind(v) == VALUE_ENTRY ? undo_entry(b, value__number(v)) : 0;

		if (err)
			return err;
		err = i % CHECK_EVERY ? 0 : room__check();
		if (err)
			return err;
	}
	return 0;
}

int origin__find(struct records *r, const struct value_list *trace, uint32_t device,
		 struct origin *ret)
{
	struct backwards b = { .r = r, .later = map64__new() };
	int err = b.later ? find_end(&b, device) : -ENOMEM;

	*ret = (struct origin){ 0 };
	if (!err)
		err = undo_trace(&b, trace);
	err = err ? err : list_begin(&b, ret);
	map64__free(b.later);
	free(b.found);
	free(b.segments);
	return err;
}

void origin__free(struct origin *o)
{
	free(o->segments);
	free(o->blocks);
	*o = (struct origin){ 0 };
}

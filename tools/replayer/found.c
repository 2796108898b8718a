/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Builds the blocks that existed before the first event. With REPLAY_AS_FOUND, each segment is
 * allocated as a whole and divided into its blocks and the holes between them, in the order of
 * addresses. A segment is then the only free memory of its pool, so the allocator must use it.
 * After the last segment, the holes are freed. Without REPLAY_AS_FOUND only the blocks are
 * allocated: their segments under other settings cannot be known.
 */
#include "replayer.h"

#include <stdlib.h>

#include "base/array.h"
#include "device.h"

#define SMALL_BLOCK (1ULL << 20)    /* largest request of the pool for small blocks */
#define LARGE_SEGMENT (10ULL << 20) /* from this size on, a segment is as large as the request */
#define GRAIN 512

#define MAX_GAP (256ULL << 30) /* largest gap of addresses within one expandable segment */

static bool keep(struct replayer_blocks *b, void *ptr)
{
	if (array__grow(&b->v, &b->cap, b->n + 1, sizeof(*b->v)))
		return false;
	b->v[b->n++] = ptr;
	return true;
}

static bool free_all(struct replayer *r, struct replayer_blocks *b)
{
	while (b->n)
		if (!allocator__free(&r->allocator, b->v[--b->n]))
			return false;
	return true;
}

/* False: an error, also if memory runs out, because the recorded run had it. */
static bool take(struct replayer *r, uint64_t size, void **ptr)
{
	return allocator__alloc(&r->allocator, size, replayer__stream(r), ptr) == ALLOCATOR_OK;
}

static bool fill(struct replayer *r, struct replayer_blocks *with, uint64_t size, bool small)
{
	while (size) {
		uint64_t n = small && size > SMALL_BLOCK ? SMALL_BLOCK : size;
		void *ptr;

		if (!take(r, n, &ptr) || !keep(with, ptr))
			return false;
		size -= n;
	}
	return true;
}

struct found {
	uint64_t offset, size, asked, slot;
};

static bool read_block(struct replayer *r, struct found *b)
{
	return replayer__number(r, &b->offset) && replayer__number(r, &b->size) &&
	       replayer__number(r, &b->asked) && replayer__number(r, &b->slot);
}

/* Slot 0 is a block that was freed but waits for a stream. It counts as a hole, because the end of
 * its wait is unknown. */
static bool put(struct replayer *r, const struct found *b)
{
	void *ptr;

	if (!take(r, b->size, &ptr))
		return false;
	return b->slot ? replayer__put(r, b->slot - 1, ptr, b->asked) : keep(&r->holes, ptr);
}

/* Divides a segment into its blocks and holes. */
static bool cut(struct replayer *r, uint64_t size, bool small, uint64_t n)
{
	struct found b, next = { 0 };
	uint64_t hole;

	if (!n)
		return fill(r, &r->holes, size, small);
	if (!read_block(r, &b) || b.offset > size || !fill(r, &r->holes, b.offset, small))
		return false;
	for (uint64_t i = 0; i < n; i++, b = next) {
		next.offset = size;
		if (i + 1 < n && !read_block(r, &next))
			return false;
		if (b.size > size || b.offset > size - b.size || next.offset < b.offset + b.size ||
		    next.offset > size)
			return false;
		hole = next.offset - b.offset - b.size;
		/* No request of this size goes to the pool for large blocks: the hole is the rest
		 * of a larger block. */
		if (!small && hole && hole <= SMALL_BLOCK) {
			void *both;

			if (!take(r, b.size + hole, &both) || !allocator__free(&r->allocator, both))
				return false;
			hole = 0;
		}
		if (!put(r, &b) || !fill(r, &r->holes, hole, small))
			return false;
	}
	return true;
}

/*
 * An expandable segment is one range of addresses with memory mapped in parts of it. The recording
 * has the mapped parts. The range grows at its end, so the gaps between the parts are allocated,
 * too, and freed at last.
 */
static bool expandable(struct replayer *r, uint64_t addr, uint64_t size, bool small, uint64_t n)
{
	uint64_t *end = &r->mapped_to[2 * r->pool + small];
	bool ok = true;

	if (*end && addr > *end && addr - *end < MAX_GAP)
		ok = fill(r, &r->gaps, addr - *end, small);
	*end = addr + size;
	return ok && cut(r, size, small, n);
}

static bool as_found(struct replayer *r, uint64_t addr, uint64_t size, bool small, uint64_t n)
{
	void *whole;

	device__place(addr, size);
	if (!small && size >= LARGE_SEGMENT) {
		if (!take(r, size, &whole) || !allocator__free(&r->allocator, whole))
			return false;
	}
	return cut(r, size, small, n);
}

bool replayer__segment(struct replayer *r)
{
	uint64_t segment, addr, size, small, n;

	if (!replayer__number(r, &segment) || !replayer__number(r, &addr) ||
	    !replayer__number(r, &size) || !replayer__number(r, &small) ||
	    !replayer__number(r, &n) || !size || size % GRAIN)
		return false;
	replayer__choose(r, segment);
	if (r->flags & REPLAY_AS_FOUND)
		return r->flags & REPLAY_EXPANDABLE ? expandable(r, addr, size, small, n)
						    : as_found(r, addr, size, small, n);
	for (uint64_t i = 0; i < n; i++) {
		struct found b;

		if (!read_block(r, &b) || (b.slot && !put(r, &b)))
			return false;
	}
	return true;
}

bool replayer__block(struct replayer *r)
{
	struct found b = { 0 };

	return replayer__number(r, &b.size) && replayer__number(r, &b.asked) &&
	       replayer__number(r, &b.slot) && b.slot && put(r, &b);
}

bool replayer__state(struct replayer *r)
{
	uint64_t allocated, reserved;

	if (!replayer__number(r, &allocated) || !replayer__number(r, &reserved))
		return false;
	if (r->gaps.n && (!free_all(r, &r->gaps) || !allocator__empty(&r->allocator)))
		return false;
	if (!free_all(r, &r->holes))
		return false;
	r->allocated = allocator_totals.allocated;
	r->reserved = allocator_totals.reserved;
	/* Exclude the allocations made here from the result. */
	r->answer = (struct replay_answer){
		.peak_allocated = r->allocated,
		.peak_reserved = r->reserved,
		.peak_requested = r->requested,
		.segments = device__segments(),
		.outside = device__used() - r->reserved,
	};
	return true;
}

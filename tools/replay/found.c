/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What was there before the first event. As it was found: each segment is taken whole, and cut into its blocks and the holes
 * between them in the order of their addresses, which is the only free memory of its pool meanwhile, so that the
 * allocator has no choice; when all segments stand, the holes are freed. Under other settings only the blocks: which segments
 * they would lie in then cannot be known.
 */
#include "replayer.h"

#include <stdlib.h>

#include "device.h"

#define SMALL_BLOCK (1ULL << 20) /* the largest that the pool for small blocks gives */
#define LARGE_SEGMENT (10ULL << 20) /* from this size on a segment is as large as what was asked for */
#define GRAIN 512

static bool keep_hole(struct replayer *r, void *ptr)
{
	if (r->n_holes == r->cap_holes) {
		size_t cap = r->cap_holes ? 2 * r->cap_holes : 1024;
		void **v = realloc(r->holes, cap * sizeof(*v));

		if (!v)
			return false;
		r->holes = v;
		r->cap_holes = cap;
	}
	r->holes[r->n_holes++] = ptr;
	return true;
}

/* False: an error. Memory that runs out here is one: the recording had it. */
static bool take(struct replayer *r, uint64_t size, void **ptr)
{
	return allocator__alloc(&r->allocator, size, replayer__stream(r), ptr) == ALLOCATOR_OK;
}

static bool fill(struct replayer *r, uint64_t size, bool small)
{
	while (size) {
		uint64_t n = small && size > SMALL_BLOCK ? SMALL_BLOCK : size;
		void *ptr;

		if (!take(r, n, &ptr) || !keep_hole(r, ptr))
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
	return replayer__number(r, &b->offset) && replayer__number(r, &b->size) && replayer__number(r, &b->asked) &&
	       replayer__number(r, &b->slot);
}

/* slot 0: freed, but waits for a stream. It counts as a hole, since when it ended waiting is not known. */
static bool put(struct replayer *r, const struct found *b)
{
	void *ptr;

	if (!take(r, b->size, &ptr))
		return false;
	return b->slot ? replayer__put(r, b->slot - 1, ptr, b->asked) : keep_hole(r, ptr);
}

static bool as_found(struct replayer *r, uint64_t addr, uint64_t size, bool small, uint64_t n)
{
	struct found b;
	uint64_t at = 0;
	void *whole;

	device__place(addr, size);
	if (!small && size >= LARGE_SEGMENT) {
		if (!take(r, size, &whole) || !allocator__free(&r->allocator, whole))
			return false;
	}
	for (uint64_t i = 0; i < n; i++) {
		if (!read_block(r, &b) || b.offset < at || b.size > size || b.offset > size - b.size)
			return false;
		if (b.offset > at && !fill(r, b.offset - at, small))
			return false;
		if (!put(r, &b))
			return false;
		at = b.offset + b.size;
	}
	return at == size || fill(r, size - at, small);
}

bool replayer__segment(struct replayer *r)
{
	uint64_t segment, addr, size, small, n;

	if (!replayer__number(r, &segment) || !replayer__number(r, &addr) || !replayer__number(r, &size) || !replayer__number(r, &small) ||
	    !replayer__number(r, &n) || !size || size % GRAIN)
		return false;
	replayer__choose(r, segment);
	if (r->flags & REPLAY_AS_FOUND && !(r->flags & REPLAY_EXPANDABLE))
		return as_found(r, addr, size, small, n);
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

	return replayer__number(r, &b.size) && replayer__number(r, &b.asked) && replayer__number(r, &b.slot) && b.slot && put(r, &b);
}

bool replayer__state(struct replayer *r)
{
	uint64_t allocated, reserved;

	if (!replayer__number(r, &allocated) || !replayer__number(r, &reserved))
		return false;
	while (r->n_holes)
		if (!allocator__free(&r->allocator, r->holes[--r->n_holes]))
			return false;
	r->allocated = allocator_totals.allocated;
	r->reserved = allocator_totals.reserved;
	/* What it took to build it is no part of the story. */
	r->answer = (struct replay_answer){
		.peak_allocated = r->allocated,
		.peak_reserved = r->reserved,
		.peak_requested = r->requested,
		.segments = device__segments(),
		.outside = device__used() - r->reserved,
	};
	return true;
}

/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_MODEL_EXTENTS_H
#define MT_MODEL_EXTENTS_H
/*
 * Ranges of addresses that were taken from CUDA, in order, and what they were at the mark. A
 * balanced tree (a treap, so that no order of events makes it slow): O(log n) a change. What
 * changes after a mark is noted with what was there before; a mark forgets the notes, so a mark
 * costs nothing. Notes beyond the first of an address say nothing more and are thrown away as they
 * pile up: memory is bound by the extents there are and the distinct addresses touched since the
 * mark.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "record/stream.h"

enum extent_class {
	EXTENT_MEMORY,	 /* at an address: segments, other allocations, mappings */
	EXTENT_PHYSICAL, /* cuMemCreate: addr is the handle */
	EXTENT_RESERVED, /* addresses without memory */
	EXTENT_HOST,
	EXTENT_CLASSES,
};

/* What extents are added up by. */
enum extent_sum {
	SUM_SEGMENTS, /* the allocator's: memory it took, mappings it made, segments it told of */
	SUM_OTHERS,   /* device memory that somebody else took */
	SUM_MANAGED,
	SUM_HOST,
	SUM_REGISTERED,
	SUM_NONE, /* not memory of its own: addresses, mappings of others, what the allocator maps
		     from */
	SUM_NR,
};

struct extent {
	uint64_t addr, size;
	uint64_t time; /* when it was taken, if how is not 0 */
	uint64_t seq;  /* of the event: later ones are larger */
	uint64_t cuda_stream, pool[2];
	uint32_t stack, thread;
	uint32_t told; /* the round of EVENT_SEGMENTs that spoke of it last, 0: none; then stream,
			  pool and flags are known */
	uint8_t how;   /* enum mem_how; 0: was there when we came */
	uint8_t flags; /* enum event_flag */
	uint8_t walk;
};

struct extents {
	struct extent_node *nodes;
	uint32_t n, cap, free1; /* free1: 1 + first of the unused ones */
	uint32_t root1[EXTENT_CLASSES];
	uint64_t random;
	uint32_t count[EXTENT_CLASSES];
	uint64_t sums[SUM_NR]; /* bytes now */
	bool marked;
	struct extent_note *notes;
	uint32_t nnotes, capnotes, limit;
	uint64_t mark_sums[SUM_NR];
	/* For who wants to know: of EXTENT_MEMORY, what came and what went. NULL: nobody. */
	void (*changed)(void *ctx, const struct extent *e, bool there);
	void *ctx;
};

enum extent_class extent__class(uint8_t how); /* of a take or give */
enum extent_sum extent__sum(const struct extent *e);

void extents__init(struct extents *x, uint64_t random);
void extents__free(struct extents *x);
/* The moment asked for is now. */
void extents__mark(struct extents *x);
/* The extent that starts at addr; that which holds addr. NULL: none. Valid until the next change. */
const struct extent *extents__at(const struct extents *x, enum extent_class c, uint64_t addr);
const struct extent *extents__over(const struct extents *x, enum extent_class c, uint64_t addr);
/* Adds e; one that starts at the same address is replaced. later: it came after the mark. 0 or
 * -ENOMEM. */
int extents__put(struct extents *x, enum extent_class c, const struct extent *e, bool later);
/* Takes away the one that starts at addr. later: as above, false where it is only to live in
 * another table. */
int extents__del(struct extents *x, enum extent_class c, uint64_t addr, bool later);
/* Takes [addr, addr + size) out of whatever lies there: what sticks out on either side stays. 0 or
 * -ENOMEM. */
int extents__cut(struct extents *x, enum extent_class c, uint64_t addr, uint64_t size);
/* All of a class in order of addresses, for free(): now or at the mark. 0 or -ENOMEM. */
int extents__list(const struct extents *x, enum extent_class c, bool at_mark, struct extent **ret,
		  size_t *n);

#endif

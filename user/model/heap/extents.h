/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Address ranges taken from CUDA, in order, now and at the mark. A treap (a randomly balanced tree)
 * keeps them, so each change costs O(log n) whatever the order of events. A change after the mark
 * adds a note with the previous content of the address; setting the mark drops all notes. Only the
 * first note of an address counts, and the others are dropped as they accumulate. So memory is
 * bounded by the number of extents and of addresses that changed since the mark.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "model/model.h"
#include "record/stream.h"

enum extent_class {
	EXTENT_MEMORY,	 /* by address: segments, other allocations, mappings */
	EXTENT_PHYSICAL, /* cuMemCreate: addr is the handle */
	EXTENT_RESERVED, /* reserved addresses, without memory */
	EXTENT_HOST,	 /* pinned host memory */
	EXTENT_UNMAPPED, /* memory that code other than the allocator unmapped; in no sum */
	EXTENT_CLASSES,
};

/* Sum that an extent belongs to. */
enum extent_sum {
	SUM_SEGMENTS, /* the allocator's memory, mappings and segments */
	SUM_OTHERS,   /* device memory taken by other code */
	SUM_MANAGED,
	SUM_HOST,
	SUM_REGISTERED,
	/* In no sum: reserved addresses, mappings of other code, and physical memory that the
	 * allocator maps. */
	SUM_NONE,
	SUM_NR,
};

struct extent {
	uint64_t addr, size;
	uint64_t time; /* when it was taken, ns, if how is not 0 */
	uint64_t seq;  /* number of the event that added it */
	uint64_t cuda_stream, pool[2];
	uint32_t stack, thread;
	/* Last round of EVENT_SEGMENTs that listed it, 0: none. If not 0, stream, pool and flags
	 * are known. */
	uint32_t listed;
	uint8_t how;   /* enum mem_how; 0: from before attach, or EXTENT_UNMAPPED */
	uint8_t flags; /* enum event_flag */
	uint8_t walk;
	bool counted; /* for callers of extents__list(); false in the tree */
};

/* Size of a segment for small blocks, 2 MiB. PyTorch's allocator takes 20 MiB or more from CUDA for
 * large blocks (CUDACachingAllocator.cpp). */
#define SMALL_BUFFER (UINT64_C(2) << 20)

struct extents {
	struct extent_node *nodes;
	size_t cap;
	uint32_t n, free_no; /* free_no: first free node */
	uint32_t root_no[EXTENT_CLASSES];
	uint64_t random; /* state of the generator of the treap's priorities */
	uint32_t count[EXTENT_CLASSES];
	uint64_t sums[SUM_NR]; /* bytes now */
	bool pools;	       /* an extent was in a private pool */
	bool marked;	       /* extents__mark() was called */
	struct extent_note *notes;
	size_t capnotes;
	uint32_t nnotes, limit; /* limit: number of notes that starts a compaction */
	uint64_t mark_sums[SUM_NR];
	/* Optional callback for each EXTENT_MEMORY that is added or removed. */
	void (*changed)(void *ctx, const struct extent *e, bool there);
	void *ctx;
};

enum extent_sum extent__sum(const struct extent *e);
/* Whether the extent is an expandable segment, or belongs to one. */
bool extent__is_expandable(const struct extent *e);
/* Whether the extent is for small or for large blocks. */
enum segment_size extent__kind(const struct extent *e);

void extents__init(struct extents *x, uint64_t random);
void extents__free(struct extents *x);
/* Sets the mark to now. */
void extents__mark(struct extents *x);
/* extents__at() returns the extent that starts at addr, extents__over() the one that contains addr.
 * NULL: none. The result is valid until the next change. */
const struct extent *extents__at(const struct extents *x, enum extent_class c, uint64_t addr);
const struct extent *extents__over(const struct extents *x, enum extent_class c, uint64_t addr);
/* Adds e, and replaces an extent with the same start. later: true if the change came after the
 * mark, so that extents__list() at the mark still returns the extents from before; false if it
 * returns the change, too. Returns 0 or -ENOMEM. */
int extents__put(struct extents *x, enum extent_class c, const struct extent *e, bool later);
/* Removes the extent that starts at addr. later: true if the removal came after the mark, so that
 * extents__list() at the mark still returns the extent; false to remove it there, too, because it
 * moves to another struct extents. Returns 0 or -ENOMEM; cannot fail if later is false. */
int extents__del(struct extents *x, enum extent_class c, uint64_t addr, bool later);
/* Removes [addr, addr + size) from all extents; the rest of each stays. 0 or -ENOMEM. */
int extents__cut(struct extents *x, enum extent_class c, uint64_t addr, uint64_t size);
/* All extents of a class in order of addresses, now or at the mark. The caller frees *ret. 0 or
 * -ENOMEM. */
int extents__list(const struct extents *x, enum extent_class c, bool at_mark, struct extent **ret,
		  size_t *n);

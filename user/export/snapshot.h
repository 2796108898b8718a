/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_EXPORT_SNAPSHOT_H
#define MT_EXPORT_SNAPSHOT_H
/* What the parts of the snapshot export share: events (snapshot.c), segments and their blocks,
 * stacks (snapshot_segments.c). */
#include <stddef.h>
#include <stdint.h>

#include "export/export.h"
#include "lib/pickle.h"
#include "model/model.h"

/* Stacks as lists of frames, innermost first; each frame and each list is written once. */
struct stacks;
struct stacks *stacks__new(const struct export_ctx *c,
			   struct pickle *p);		  /* borrows both. NULL on ENOMEM */
void stacks__free(struct stacks *s);			  /* NULL is fine */
int stacks__put(struct stacks *s, const struct row *row); /* the value of a key. 0 or -ENOMEM */

struct snapshot_sums {		  /* what the segments do not show */
	uint64_t without_address; /* bytes that were there before, of which it is not known where */
	uint64_t outside;	  /* bytes of blocks that lie in no segment that we know */
	uint64_t made_up;	  /* bytes of the segments that stand for those */
	uint64_t cut; /* bytes of blocks beyond the end of their segment or within the next block: a
			 recording gone wrong */
	uint64_t unasked; /* blocks of which it is not known what was asked for: their own size
			     stands for it */
};
struct snapshot_range {
	uint64_t addr, end;
};
struct snapshot_past { /* where the events have blocks and segments of the device; both get sorted
			  and merged */
	struct snapshot_range *blocks, *segments;
	size_t nblocks, nsegments;
};
/*
 * Appends a device's segments at the marked moment to the list that is open, and, since readers
 * want one below every block of the events too, a segment for each stretch of those that lie in
 * none. 0, -ENOMEM, -ENOENT (the moment never came).
 */
int snapshot__segments(struct export_ctx *c, struct pickle *p, struct stacks *s, size_t device,
		       struct snapshot_past *past, struct snapshot_sums *sums);

#endif

/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Shared by the parts of the snapshot export: events (snapshot.c), and segments, blocks and
 * stacks (snapshot_segments.c). */
#include <stddef.h>
#include <stdint.h>

#include "export/export.h"
#include "export/formats/pickle.h"
#include "model/model.h"

/* Writes stacks as lists of frames, innermost first. Each frame and each list is written once. */
struct stacks;
/* Borrows both arguments. NULL: no memory. */
struct stacks *stacks__new(const struct export_ctx *c, struct pickle *p);
void stacks__free(struct stacks *s); /* NULL is fine */
/* writes a stack as the value of a key; 0 or -ENOMEM */
int stacks__put(struct stacks *s, const struct row *row);

struct snapshot_sums {		  /* memory that the segments do not show */
	uint64_t without_address; /* bytes from before attach at unknown addresses */
	uint64_t outside;	  /* bytes of blocks outside known segments */
	uint64_t made_up;	  /* bytes of segments invented for such blocks */
	/* bytes of blocks beyond their segment's end or overlapping the next block, from a
	 * corrupt recording */
	uint64_t cut;
	uint64_t unasked; /* blocks with unknown requested size; their own size is used */
};
struct snapshot_range {
	uint64_t addr, end;
};
/* address ranges of blocks and segments in the events; sorted and merged in place */
struct snapshot_past {
	struct snapshot_range *blocks, *segments;
	size_t nblocks, nsegments;
};
/*
 * Appends the device's segments at the marked moment to the open list. Readers need a segment below
 * every block of the events, so blocks outside known segments get invented ones. Returns 0,
 * -ENOMEM, or -ENOENT if the moment does not exist.
 */
int snapshot__segments(struct export_ctx *c, struct pickle *p, struct stacks *s, size_t device,
		       struct snapshot_past *past, struct snapshot_sums *sums);

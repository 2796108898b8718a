/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Details of a row: its allocation stacks, and sizes and ages of its blocks. */
#include <stddef.h>
#include <stdint.h>

#include "live/rows/rows.h"
#include "model/holders.h"
#include "model/model.h"

struct dict;

#define DETAIL_SIZES 6 /* block sizes that are listed */
/* Ages of blocks: under 1 s, 10 s, 1 min, 10 min, 1 h; older; from before attach. */
enum { AGE_SECOND, AGE_TEN, AGE_MINUTE, AGE_TEN_MINUTES, AGE_HOUR, AGE_MORE, AGE_BEFORE, AGE_NR };

struct detail_sum {
	uint64_t size; /* bytes of each block; 0 in live_detail.ages */
	uint64_t count, bytes;
};

struct live_detail {
	struct row *stacks; /* rows by stack, largest first; strings belong to the dict */
	size_t nstacks;
	struct holder_rows held; /* holders of the memory, for a row of memory from before attach */
	struct detail_sum sizes[DETAIL_SIZES]; /* the block sizes with most bytes in the row */
	size_t nsizes; /* number of different block sizes; may exceed DETAIL_SIZES */
	struct detail_sum ages[AGE_NR];
	/* Bytes of the blocks in sizes and ages. Blocks without a known origin are not in them. */
	uint64_t bytes;
};

/* Collects the details of a row of r at time now (ns). device: the rows' device, an index in the
 * model. d: the model's dict. Returns 0, -ENOMEM or -ENOENT. Release *ret with
 * live_detail__release(). */
int live_detail__take(const struct live_rows *r, const struct live_row *row, const struct model *m,
		      size_t device, const struct dict *d, uint64_t now, struct live_detail *ret);
void live_detail__release(struct live_detail *x);

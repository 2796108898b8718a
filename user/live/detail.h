/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_LIVE_DETAIL_H
#define MT_LIVE_DETAIL_H
/* All there is to know of a row: the stacks that its memory came by, the sizes of its blocks and
 * their ages. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "live/rows.h"
#include "model/model.h"

struct dict;

#define DETAIL_SIZES 6
enum { AGE_SECOND, AGE_TEN, AGE_MINUTE, AGE_TEN_MINUTES, AGE_HOUR, AGE_MORE, AGE_BEFORE, AGE_NR };

struct detail_sum {
	uint64_t size; /* of each; of ages 0 */
	uint64_t count, bytes;
};

struct live_detail {
	struct row *stacks; /* largest first; strings are the dict's */
	size_t nstacks;
	struct detail_sum sizes[DETAIL_SIZES]; /* those that make most of it */
	size_t nsizes; /* there are more than these, where it is more than DETAIL_SIZES */
	struct detail_sum ages[AGE_NR];
	uint64_t bytes; /* of the blocks that sizes and ages are of: what nothing is known of has
			   none */
};

/*
 * Of the blocks of a row of r, which the model has on this device at this time (ns). d: the
 * model's. 0 or -ENOMEM, -ENOENT.
 */
int live_detail__take(const struct live_rows *r, const struct live_row *row, const struct model *m,
		      const struct dict *d, uint64_t now, struct live_detail *ret);
void live_detail__release(struct live_detail *x);
const char *live_detail__age(int age); /* "under 10 s" */

#endif

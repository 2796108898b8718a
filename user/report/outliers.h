/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_REPORT_OUTLIERS_H
#define MT_REPORT_OUTLIERS_H
/* Which of several recordings has more, or less, than the others. */
#include <stddef.h>
#include <stdint.h>

/* One differs from the others if it does from their median by more than both of these. */
#define OUTLIER_PERCENT 10
#define OUTLIER_BYTES (UINT64_C(1) << 20)

struct outlier {
	uint32_t recording;
	uint32_t line1;		/* 1 + the line, 0: what was allocated in all */
	uint64_t bytes, others; /* in it, and the median of the others */
};

struct outliers {
	struct outlier *all; /* for free() */
	size_t n, room;
};

void outliers__sort(uint64_t *values, size_t n);
/* Of two in the middle what lies between them; of none 0. */
uint64_t outliers__median(const uint64_t *sorted, size_t n);
/*
 * values: bytes by recording; sorted: the same, sorted. Adds those that differ, from the nearer one
 * where two of the others are in the middle; of two recordings that differ from each other the one
 * that has more. 0 or -ENOMEM.
 */
int outliers__add(struct outliers *o, const uint64_t *values, const uint64_t *sorted, size_t n,
		  uint32_t line1);
/* Those of what was allocated in all first, then by how much they differ. */
void outliers__order(struct outliers *o);

#endif

/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Recordings that have more or less than the others. */
#include <stddef.h>
#include <stdint.h>

/* A recording differs if its distance from the others' median is above both limits. */
#define OUTLIER_PERCENT 10
#define OUTLIER_BYTES (UINT64_C(1) << 20)

struct outlier {
	uint32_t recording;
	uint32_t line_no;	/* 0: all allocated memory */
	uint64_t bytes, others; /* bytes in the recording, and the median of the others */
};

static inline uint64_t outlier__distance(const struct outlier *o)
{
	return o->bytes > o->others ? o->bytes - o->others : o->others - o->bytes;
}

struct outliers {
	struct outlier *all; /* array, for free() */
	size_t n, room;
};

void outliers__sort(uint64_t *values, size_t n);
/* Returns the mean of the two middle values for an even n, and 0 for n = 0. */
uint64_t outliers__median(const uint64_t *sorted, size_t n);
/* The same for n values: the given ones, and `zeros` values of 0. */
uint64_t outliers__median_with_zeros(const uint64_t *sorted, size_t n, size_t zeros);
/* Adds a recording that has `bytes` where most others have nothing, if that is more than least.
 * Returns 0 or -ENOMEM. */
int outliers__add_to_zeros(struct outliers *o, uint32_t recording, uint64_t bytes, uint64_t least,
			   uint32_t line_no);
/* Adds the recordings that differ. values: bytes by recording; sorted: the same values sorted.
 * least: smallest difference, such as OUTLIER_BYTES. With two middle values among the others, the
 * nearer one counts. If there are only two recordings, the larger one is added. Returns 0 or
 * -ENOMEM. */
int outliers__add(struct outliers *o, const uint64_t *values, const uint64_t *sorted, size_t n,
		  uint64_t least, uint32_t line_no);
/* Sorts: differences of all memory first, then by size. */
void outliers__order(struct outliers *o);

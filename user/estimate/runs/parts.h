/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Splits a job's device memory into parts that add up exactly, and judges whether it fits
 * a device. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "model/model.h"

enum part {
	PART_WEIGHTS, /* parameters and buffers */
	PART_GRADIENTS,
	PART_OPTIMIZER,
	PART_ACTIVATIONS,
	PART_INPUTS,
	PART_TEMPORARY,
	PART_OTHER, /* no role found: mostly workspaces of libraries */
	PART_ALLOCATED_NR,
	PART_CACHED = PART_ALLOCATED_NR, /* peak of reserved bytes minus peak of allocated bytes */
	PART_OUTSIDE, /* device memory taken by other code than PyTorch's allocator, at the peak */
	PART_CONTEXT, /* CUDA context; a given figure, not measured */
	PART_NR,
};

extern const struct part_words {
	const char *name;  /* name in JSON, such as "optimizer_state" */
	const char *title; /* name for people */
} part_words[PART_NR];

struct estimate_parts {
	uint64_t bytes[PART_NR];
	uint64_t allocated; /* allocated bytes at the peak: the sum of bytes[i] below
			       PART_ALLOCATED_NR */
	uint64_t reserved;  /* allocated + bytes[PART_CACHED] */
	uint64_t needs;	    /* sum of all parts */
	/* False if the allocator reports no totals, as other backends do not. bytes[PART_CACHED]
	 * means nothing then. */
	bool reserved_known;
};

/* Fills *ret for a device of a model with AT_PEAK. Returns 0 or -ENOMEM. */
int estimate_parts(const struct model *m, size_t device, uint64_t context,
		   struct estimate_parts *ret);

enum verdict { VERDICT_FITS, VERDICT_DOES_NOT_FIT, VERDICT_UNKNOWN };
/* Judges whether a script fits, by a run with the requested memory. ooms: number of requests that
 * the device refused. whole: the run ended without an error, its steps repeated, or it reached the
 * requested steps; so the script handled the refused requests. A run that was cut off without a
 * refused request is VERDICT_UNKNOWN, because it may still overflow.
 */
enum verdict verdict__of(bool whole, uint64_t ooms);

/* Returns vram - p->needs in bytes; negative: so many bytes are missing. Both must be below 2^63. */
int64_t estimate_parts__left(uint64_t vram, const struct estimate_parts *p);

#define ESTIMATE_GRANULE (2ULL << 20) /* allocation unit of device memory, bytes */
/* Rounds up or down to a whole number of granules. */
static inline uint64_t granule__up(uint64_t bytes)
{
	return (bytes + ESTIMATE_GRANULE - 1) / ESTIMATE_GRANULE * ESTIMATE_GRANULE;
}

static inline uint64_t granule__down(uint64_t bytes)
{
	return bytes / ESTIMATE_GRANULE * ESTIMATE_GRANULE;
}

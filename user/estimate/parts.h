/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_ESTIMATE_PARTS_H
#define MT_ESTIMATE_PARTS_H
/* What a job needs of a device's memory, in parts that add up to the byte, and what that means for
 * a device of some size. */
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
	PART_OTHER, /* of which nothing is known: libraries' workspaces, mostly */
	PART_ALLOCATED_NR,
	PART_CACHED = PART_ALLOCATED_NR, /* the most that was reserved, less the most that was
					    allocated */
	PART_OUTSIDE, /* taken from the device by other code than PyTorch's allocator, when most was
			 allocated */
	PART_CONTEXT, /* not measured: what is said of CUDA's context */
	PART_NR,
};
const char *part__name(enum part p);  /* "optimizer_state" */
const char *part__title(enum part p); /* for people */

struct estimate_parts {
	uint64_t bytes[PART_NR];
	uint64_t allocated;  /* at the peak: the parts up to PART_ALLOCATED_NR */
	uint64_t reserved;   /* that and PART_CACHED */
	uint64_t needs;	     /* all of them */
	bool reserved_known; /* false: no totals are carried (another backend); PART_CACHED is 0 and
				says nothing */
};

/* Of a device of a model that was made AT_PEAK. 0 or -ENOMEM. */
int estimate_parts(const struct model *m, size_t device, uint64_t context,
		   struct estimate_parts *ret);

enum verdict { VERDICT_FITS, VERDICT_DOES_NOT_FIT, VERDICT_UNKNOWN };
const char *verdict__name(enum verdict v); /* "fits", "does_not_fit", "unknown" */

/* What was seen of a run with the memory that is asked about. */
struct verdict_facts {
	bool whole; /* the run ended by itself without an error, its steps repeated, or were as many
		       as were asked for */
	bool failed;   /* it ended by itself, with an error */
	uint64_t ooms; /* requests that were refused */
};
/*
 * A refused request after which the script went on to a whole run was handled by it. A run that was
 * cut off with nothing refused may still overflow.
 */
enum verdict verdict__of(const struct verdict_facts *f);

/* vram - needs; negative: so much is missing. Both below 2^63. */
int64_t estimate_parts__left(uint64_t vram, const struct estimate_parts *p);

#define ESTIMATE_GRANULE (2ULL << 20) /* in which a device's memory is handed out */
/* The next larger, smaller whole number of granules. */
static inline uint64_t granule__up(uint64_t bytes)
{
	return (bytes + ESTIMATE_GRANULE - 1) / ESTIMATE_GRANULE * ESTIMATE_GRANULE;
}

static inline uint64_t granule__down(uint64_t bytes)
{
	return bytes / ESTIMATE_GRANULE * ESTIMATE_GRANULE;
}

#endif

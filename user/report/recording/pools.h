/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Private pools of the CUDA caching allocator: those of CUDA graphs and of torch.cuda.MemPool. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "model/model.h"

struct report_pool {
	uint64_t id[2];
	uint64_t size, allocated, free; /* bytes in all segments of the pool */
	uint64_t empty;			/* bytes in its segments without blocks */
	uint64_t segments;		/* number of its segments */
	enum private_pool kind;
	const struct segment *first; /* its oldest segment */
	const struct row *most;	     /* line with the largest memory in a segment; NULL: none */
};

/* Sums the segments of each private pool, largest first. The result points into s; the caller frees
 * it by free(). Returns 0 or -ENOMEM. */
int report_pools__of(const struct model_segments *s, struct report_pool **ret, size_t *n);
/* Describes the free memory in the private pools of a kind: "cached for MemPools only, 2.00
 * MiB of it in 1 segment without blocks". */
#define REPORT_POOLS_TEXT 128
const char *report_pools__say_free(const struct model_segments *s, enum private_pool kind,
				   char buf[REPORT_POOLS_TEXT]);
/* Prints a table of the memory by pool and stream at an out-of-memory event. Returns 0 or -ENOMEM.
 */
int report_pools__print_oom(FILE *out, const struct model_oom *o, size_t width, bool bold);
/* Prints a table of the private pools, if there are any. Returns 0 or -ENOMEM. */
int report_pools__print(FILE *out, const struct model_segments *s, const char *cwd, size_t width,
			bool bold);

/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_LIVE_GRAPH_H
#define MT_LIVE_GRAPH_H
/*
 * What a device had allocated and reserved over time, in bounded memory: the last four minutes by
 * quarters of a second, what is older by coarser and coarser steps, so that weeks fit. A step keeps
 * the least and the most that was allocated in it, so that no peak is lost however coarse it is.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct graph;

struct graph_column {
	bool known;	      /* false: before the first, or forgotten */
	uint64_t least, most; /* allocated */
	uint64_t reserved;    /* at most; 0 where it is not known */
};

#define GRAPH_STEP UINT64_C(250000000) /* ns, the finest */

struct graph *graph__new(void);	   /* NULL on ENOMEM */
void graph__free(struct graph *g); /* NULL is fine */
/* From time (ns) on so much is allocated and reserved. A time before the last one counts as the
 * last one. */
void graph__add(struct graph *g, uint64_t time, uint64_t allocated, uint64_t reserved);
/* Between the last time and now so much was allocated for a moment: what a device without totals
 * knows of its peak. */
void graph__peak(struct graph *g, uint64_t allocated);
/* Nothing changed until now. False: nothing was added yet. */
bool graph__pass(struct graph *g, uint64_t now);
/*
 * The time until now, so many columns of the same width; the last one is still under way. span: ns,
 * 0: all there is. Returns the columns' width, ns: a whole number of steps, and columns begin at
 * whole numbers of it, so that they do not move about.
 */
uint64_t graph__read(const struct graph *g, uint64_t now, uint64_t span, struct graph_column *ret,
		     size_t columns);

#endif

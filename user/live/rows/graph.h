/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * History of a device's allocated and reserved bytes in bounded memory. The last four minutes have
 * a resolution of 0.25 s; older history is coarser, so that weeks fit. Each step of time keeps the
 * lowest and highest allocated bytes, so that no peak is lost.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct graph;

struct graph_column {
	bool known;	      /* values are known; false: before the first value, or too old */
	uint64_t least, most; /* lowest and highest allocated bytes */
	uint64_t reserved;    /* highest reserved bytes; 0: not known */
};

#define GRAPH_STEP UINT64_C(250000000) /* finest step, in ns */

struct graph *graph__new(void);	   /* NULL: no memory */
void graph__free(struct graph *g); /* NULL is fine */
/* Sets the allocated and reserved bytes from time (ns) on. A time before the last one counts as the
 * last one. */
void graph__add(struct graph *g, uint64_t time, uint64_t allocated, uint64_t reserved);
/* Adds a peak between the last two values, for devices without allocator totals. */
void graph__peak(struct graph *g, uint64_t allocated);
/* Extends the last values until now (ns). False: no values were added yet. */
bool graph__extend(struct graph *g, uint64_t now);
/*
 * Reads the last span ns (0: all) into columns of equal width; the last column is incomplete.
 * Returns the width in ns, a multiple of the step. Columns begin at multiples of the width, so that
 * they do not move between reads.
 */
uint64_t graph__read(const struct graph *g, uint64_t now, uint64_t span, struct graph_column *ret,
		     size_t columns);
/* Index of the column that has a time (ns), for the columns of a graph__read() with the same now,
 * which returned width. -1: no column has it. */
int graph__column(const struct graph *g, uint64_t now, uint64_t width, size_t columns,
		  uint64_t time);

/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * History of a device's allocated and reserved bytes in bounded memory. The last four minutes have
 * a resolution of 0.25 s; older history is coarser, so that weeks fit. Each step keeps the lowest
 * and highest allocated bytes, so that no peak is lost.
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
/* Sets the allocated and reserved bytes from time (ns) on. An earlier time counts as the last
 * one. */
void graph__add(struct graph *g, uint64_t time, uint64_t allocated, uint64_t reserved);
/* Adds a momentary peak between the last time and now, for devices without allocator totals. */
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
/* The column of a time (ns) after a graph__read() with the same now and columns, which returned
 * width. -1: none of them. */
int graph__column(const struct graph *g, uint64_t now, uint64_t width, size_t columns,
		  uint64_t time);

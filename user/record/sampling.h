/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Estimates from allocations whose stacks are a sample. While the bound is T, an allocation of n <
 * T bytes has a stack with probability n / T (mt_detail.sample_below). So each one that has a stack
 * stands for T bytes.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "record/detail.h"

#define SAMPLING_BOUNDS 8 /* different bounds: see sampling__bound() */

/* The bound over the time of a recording. */
struct sampling {
	bool loaded;
	size_t n;
	struct {
		uint64_t time; /* ns since start */
		uint8_t of;    /* number of the bound, from 1; 0: none */
	} at[DETAIL_MAX];
};

/* Takes the changes that the facts know, once. */
void sampling__load(struct sampling *s, const struct facts *f);
/* Takes a change that a mark in the stream names: detail__mark(). Other marks change nothing. */
void sampling__mark(struct sampling *s, const char *name, uint64_t time);
/* Number of the bound that applied to an allocation, from 1; 0: its stack was read for sure. */
uint8_t sampling__of(const struct sampling *s, uint64_t time, uint64_t size);
uint64_t sampling__bound(uint8_t of); /* bytes */

/* Blocks of a row that were below a bound: those that were drawn, and those without a stack, which
 * may be of this row. */
struct drawn {
	uint64_t count, bytes;
	uint64_t others; /* bytes of all blocks without a stack */
};

/* Bytes that a row would have if all stacks had been read. */
struct sampled {
	uint64_t bytes;	    /* the expected value */
	uint64_t low, high; /* the true value is between them in 95 of 100 recordings or more */
};

/* bytes: of all blocks of the row that have a stack. drawn: by number of the bound - 1. */
struct sampled sampling__estimate(uint64_t bytes, const struct drawn drawn[SAMPLING_BOUNDS]);

/*
 * The same for a row of host memory, of which an allocator of small objects took pieces. A piece is
 * charged to the object that needed it, and has objects of other rows, too. The interval is for the
 * row's share of all pieces, if the objects of rows do not come in step with the pieces.
 */
struct pieces {
	uint64_t bytes;	 /* of the row's pieces */
	double squares;	 /* sum of the squares of their sizes */
	uint64_t others; /* bytes of other rows' pieces */
};
/* bytes: of all blocks of the row. */
struct sampled sampling__pieces(uint64_t bytes, const struct pieces *p);

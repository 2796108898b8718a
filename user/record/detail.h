/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * The detail of a recording over its time, as the fact "cost.changes" has it:
 *
 *   TIME:OFF:BELOW:SHARE ...
 *
 * One entry a change, in the order of time: ns since start, mt_detail.off and .sample_below from
 * then on, and the share of the target's time that the capture added before it, in millionths.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "record/stream.h"

struct json;

#define DETAIL_MAX 512 /* changes */
/* File and function of the one frame on the stack of allocations that were not drawn. */
#define DETAIL_FILE "not sampled"
#define DETAIL_FUNCTION "small blocks"

struct detail_change {
	uint64_t time;	/* ns since start */
	uint64_t below; /* bytes; 0: all allocations are walked */
	uint32_t off;	/* enum mt_off */
	uint32_t share; /* millionths */
};

struct detail {
	size_t n;
	struct detail_change at[DETAIL_MAX];
	double limit; /* the share that was asked for; 0: no limit */
	double share; /* mean over the whole capture; negative: unknown */
};

/* Adds a change to the fact. Without effect once there are DETAIL_MAX. 0 or -errno. */
int detail__add(struct facts *f, const struct detail_change *c);
/* Reads the facts. False: the capture had no limit. Damaged entries end the list. */
bool detail__read(const struct facts *f, struct detail *ret);
/*
 * Writes what a recording with a limit lacks, for people: "tracing took 33.4 % of the target's
 * time, 1 % was the limit. Not recorded: backward nodes (from 1.52 s), ...". "": it had no limit,
 * or it kept the limit and lacks nothing. DETAIL_TEXT bytes suffice. Returns buf.
 */
#define DETAIL_TEXT 512
char *detail__sentence(char *buf, size_t size, const struct facts *f);
/* Adds the object "detail" to a document; nothing if the recording had no limit:
 * docs/reference/report.md. */
void detail__put(struct json *j, const struct facts *f);
/* Name of the EVENT_MARK at a change of detail. Returns buf. */
char *detail__mark(char *buf, size_t size, uint32_t off, uint64_t below);
/* Reads mt_detail.sample_below from such a name; false: it is another mark. */
bool detail__from_mark(const char *name, uint64_t *below);
/* Writes what is left out: "backward nodes, module calls, most stacks of blocks below 64.0 KiB"; ""
 * if nothing is. Returns buf. */
char *detail__words(char *buf, size_t size, uint32_t off, uint64_t below);

/*
 * Estimates from allocations whose stacks are a sample. While the bound is T, an allocation of n <
 * T bytes has a stack with probability n / T (mt_detail.sample_below). So each one that has a stack
 * stands for T bytes.
 */

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
uint64_t sampling__bound(uint8_t number); /* bytes; 0: there is none */

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

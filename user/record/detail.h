/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* A capture with a limit on its cost leaves out detail when tracing takes too long, and adds it
 * again later. The fact "cost.changes" lists these changes:
 *
 *   TIME:OFF:BELOW:SHARE ...
 * Each change has the ns since the capture's start, the mt_detail.off and mt_detail.sample_below
 * that apply from then on, and the share of the target's time that tracing took before the change,
 * in millionths. Changes are in the order of time.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "record/stream.h"

struct json;

#define DETAIL_MAX 512 /* largest number of changes in a recording */
/* If only a sample of allocations gets a stack, the others have a stack of one frame, with this
 * file and this function. */
#define DETAIL_FILE "not sampled"
#define DETAIL_FUNCTION "small blocks"
/* If allocations have stacks only in some whole steps, those in other steps have a stack of one
 * frame, with the file DETAIL_FILE and this function. */
#define DETAIL_BETWEEN "other steps"

struct detail_change {
	uint64_t time; /* ns since the capture's start */
	/* From this change on, only a sample of allocations below so many bytes has a stack. 0: all
	 * have one. */
	uint64_t below;
	uint32_t off;	/* flags of enum mt_off: what is not recorded from this change on */
	uint32_t share; /* share of the target's time before this change, millionths */
};

struct detail {
	size_t n;
	struct detail_change at[DETAIL_MAX];
	double limit; /* largest share of the target's time that the user allows; 0: no limit */
	double share; /* share of the target's time over the whole capture; negative: unknown */
	/* All steps, and those whose allocations have stacks. 0, 0: all have. */
	uint64_t steps, whole;
	/* By what share a step took longer on average, and its interval at 95 %. */
	bool longer_known;
	double low, longer, high;
};

/* Adds a change to the fact "cost.changes", unless it has DETAIL_MAX already. Returns 0 or -errno. */
int detail__add(struct facts *f, const struct detail_change *c);
/* Reads the facts of a capture. Returns false if it had no limit. A damaged entry ends the list of
 * changes. */
bool detail__read(const struct facts *f, struct detail *ret);
/*
 * Writes what a recording with a limit lacks, for people: "tracing took 33.4 % of the target's
 * time, the limit was 1 %. Not recorded: backward nodes (from 1.52 s on), ...". Writes "" if there
 * was no limit, or if the capture kept the limit and lacks nothing. DETAIL_TEXT bytes suffice.
 * Returns buf.
 */
#define DETAIL_TEXT 512
char *detail__sentence(char *buf, size_t size, const struct facts *f);
/* The same for outputs that name it "reduced detail": writes "" if nothing is missing, though the
 * capture took too long. */
char *detail__reduced(char *buf, size_t size, const struct facts *f);
/* Writes the member "detail" of docs/reference/report.md. Writes nothing if the recording had no
 * limit. */
void detail__put(struct json *j, const struct facts *f);
/* Writes the name that the EVENT_MARK at a change of detail has. off: flags of enum mt_off; below:
 * see struct detail_change. Returns buf. */
char *detail__mark(char *buf, size_t size, uint32_t off, uint64_t below);
/* Reads struct detail_change.below from the name of an EVENT_MARK. Returns false if the mark is not
 * a change of detail. */
bool detail__from_mark(const char *name, uint64_t *below);
/* Writes what is not recorded: "backward nodes, module calls, most stacks of blocks below 64.0
 * KiB". Writes "" if all is recorded. Returns buf. */
char *detail__words(char *buf, size_t size, uint32_t off, uint64_t below);

/* Estimates for recordings where only a sample of small allocations has a stack. While the bound
 * is T bytes (mt_detail.sample_below), an allocation of n < T bytes gets a stack with probability n
 * / T. So each small allocation with a stack stands for T bytes.
 */

#define SAMPLING_BOUNDS 8 /* number of values that the bound can have: see sampling__bound() */

/* The bounds of a recording, and when they begin to apply. */
struct sampling {
	bool loaded; /* sampling__load() was called */
	size_t n;
	struct {
		uint64_t time;	  /* ns since the capture's start */
		uint8_t bound_no; /* argument for sampling__bound(); 0: no bound */
	} at[DETAIL_MAX];
};

/* Takes over the changes of detail from the facts. Only the first call has an effect. */
void sampling__load(struct sampling *s, const struct facts *f);
/* Takes over the change of detail that an EVENT_MARK names (detail__mark()). Other marks have no
 * effect. */
void sampling__mark(struct sampling *s, const char *name, uint64_t time);
/* Returns the number (from 1) of the bound in force at this time, if an allocation of this size is
 * below the bound: its stack was then read at random. Returns 0 otherwise: its stack was read for
 * sure. */
uint8_t sampling__bound_no(const struct sampling *s, uint64_t time, uint64_t size);
/* Returns the bound with this number (1 to SAMPLING_BOUNDS) in bytes, or 0 for number 0. */
uint64_t sampling__bound(uint8_t bound_no);

/* Data on the blocks below one bound, to estimate the bytes of a row of a report. */
struct drawn {
	uint64_t count, bytes; /* blocks of the row whose stack is in the sample */
	uint64_t others; /* bytes of all blocks without a stack, which may belong to the row */
};

/* Estimate of the bytes that a row of a report would have if all stacks had been read. */
struct sampled {
	uint64_t bytes;	    /* the expected value */
	uint64_t low, high; /* in at least 95 % of recordings the true value is between them */
};

/* Returns the estimate for a row. bytes: sum of all its blocks that have a stack. drawn[i]: blocks
 * below sampling__bound(i + 1). */
struct sampled sampling__estimate(uint64_t bytes, const struct drawn drawn[SAMPLING_BOUNDS]);

/* Data to estimate a row of host memory. An allocator of small objects maps memory in pieces. A
 * piece counts for the row of the object that needed it, but objects of other rows are in it, too.
 * The estimate is for the row's share of all pieces. It holds if the order of the objects does not
 * depend on the pieces.
 */
struct pieces {
	uint64_t bytes;	 /* sum of the sizes of the row's pieces */
	double squares;	 /* sum of the squares of these sizes */
	uint64_t others; /* sum of the sizes of other rows' pieces */
};
/* Returns the estimate for a row of host memory. bytes: sum of all its blocks, pieces included. */
struct sampled sampling__pieces(uint64_t bytes, const struct pieces *p);

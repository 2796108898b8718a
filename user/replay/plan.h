/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_REPLAY_PLAN_H
#define MT_REPLAY_PLAN_H
/*
 * A recording's events of one device as a plan for the replayer (wire.h): which block goes
 * where is decided by the allocator that replays it, so a plan has no addresses but slots; what a
 * recording does not say is worked out here: which stream's pool a block was of, from the segment
 * that it lay in; where the cache was emptied, from what was given back.
 */
#include <stdbool.h>
#include <stdint.h>

#include "record/stream.h"

struct replay_plan_maker;

/* What came out, besides the plan. Bytes. */
struct replay_plan_info {
	uint64_t events; /* allocations and frees of the device */
	uint64_t allocs;
	uint64_t peak_allocated, peak_reserved; /* as recorded; 0: no totals */
	uint64_t before;			/* there before the first event */
	bool before_known;	/* which blocks those were is; else they are left out */
	bool before_exact;	/* and in which segments they lay, to the byte */
	uint64_t unknown_frees; /* of blocks that no event, or reading, told of: left out */
	uint64_t mended; /* blocks whose free was missed: another was handed out at their address */
	uint64_t lost;
	uint64_t asked;	  /* allocations of which it is known what was asked for */
	uint64_t empties; /* times the cache was emptied */
	uint64_t retries; /* times cached memory was given back because the device was full */
	uint64_t ooms;
	uint64_t context; /* what the device had taken from it besides all that the calls say, where
			     the driver's figure was the highest */
	bool context_known;
	bool async; /* blocks are calls of CUDA: another allocator than the native one */
	uint32_t pools;
	unsigned pools_unknown; /* segments of which nobody said whose they are: taken for the
				   default stream's */
};

/* Writes to fd, from its beginning. total: bytes of the device, 0: not known. NULL with errno. */
struct replay_plan_maker *replay_plan__new(int fd, uint8_t device, uint64_t total);
/*
 * The next event of the recording, of whatever device; index: its number. stack: what it is charged
 * to. 0, -ENOMEM, -EFBIG (too many blocks at once), -errno of writing.
 */
int replay_plan__event(struct replay_plan_maker *p, const struct event *e, uint64_t index,
		       uint32_t stack);
/* Writes the rest. 0 or -errno. */
int replay_plan__finish(struct replay_plan_maker *p, struct replay_plan_info *ret);
void replay_plan__free(struct replay_plan_maker *p); /* NULL is fine */

#endif

/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* State and steps of one replay. Sizes in bytes. */
#include "allocator.h"
#include "estimate/replay/wire.h"

struct replay_slot {
	void *ptr; /* NULL: the slot is empty */
	uint64_t asked;
};

struct replayer_blocks {
	void **v;
	size_t n, cap;
};

struct replayer {
	const struct replay_plan *plan;
	const uint8_t *at, *end, *pool_of;
	unsigned flags; /* enum replay_flag */
	struct allocator allocator;
	struct replay_slot *slots;
	void **takes;
	void **streams; /* by pool; the first is the default stream */
	uint32_t pool;
	/* Only while the blocks that existed before the first event are built. */
	struct replayer_blocks holes, gaps; /* gaps: unmapped parts of expandable segments */
	uint64_t *mapped_to; /* end of the pool's expandable segment; per pool for large, small */
	/* The current event. */
	uint64_t event, time, stack, node;
	uint64_t allocated, reserved, requested; /* current values */
	uint64_t expected;			 /* reserved bytes in the recording */
	bool has_expected;
	struct replay_answer answer;
	struct replay_point points[512];
	size_t n_points;
};

/* Replays the plan. False: an error; see allocator.why, "" if the plan is invalid. */
bool replayer__run(struct replayer *r);
/* Adds the current state to the curve. */
void replayer__point(struct replayer *r);
/* REPLAY_SEGMENT, REPLAY_BLOCK and REPLAY_STATE: build the blocks from before the first event. */
bool replayer__segment(struct replayer *r);
bool replayer__block(struct replayer *r);
bool replayer__state(struct replayer *r);

/* For the functions above: reads the plan's next number. */
bool replayer__number(struct replayer *r, uint64_t *ret);
bool replayer__put(struct replayer *r, uint64_t slot, void *ptr, uint64_t asked);
void *replayer__stream(const struct replayer *r);
void replayer__choose(struct replayer *r, uint64_t segment);

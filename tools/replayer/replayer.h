/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* One replay. */
#include "allocator.h"
#include "replay/wire.h"

struct replay_slot {
	void *ptr; /* NULL: nothing is there */
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
	/* While what was there at first is built. */
	struct replayer_blocks holes,
		gaps;	     /* gaps: where nothing is mapped in an expandable segment */
	uint64_t *mapped_to; /* by pool, for large and for small blocks: where its expandable
				segment has come to */
	/* The event that it is at. */
	uint64_t event, time, stack, node;
	uint64_t allocated, reserved, requested; /* now */
	uint64_t expected;			 /* reserved, as recorded */
	bool has_expected;
	struct replay_answer answer;
	struct replay_point points[512];
	size_t n_points;
};

/* 0: false, and allocator.why, "" where the plan is wrong. */
bool replayer__run(struct replayer *r);
/* Hands the state of now on. */
void replayer__point(struct replayer *r);
/* REPLAY_SEGMENT, REPLAY_BLOCK and REPLAY_STATE: what was there before the first event. */
bool replayer__segment(struct replayer *r);
bool replayer__block(struct replayer *r);
bool replayer__state(struct replayer *r);

/* For these: the next number of the plan. */
bool replayer__number(struct replayer *r, uint64_t *ret);
bool replayer__put(struct replayer *r, uint64_t slot, void *ptr, uint64_t asked);
void *replayer__stream(const struct replayer *r);
void replayer__choose(struct replayer *r, uint64_t segment);

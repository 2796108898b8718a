/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Decides how much detail a capture records, so that it adds at most a given share to the target's
 * time. Detail is dropped in levels, the dearest first. Bytes are never dropped: every allocation
 * and free is recorded at every level.
 */
#include <stdbool.h>
#include <stdint.h>

#include "memtrace.h"

#define COST_EVERY 500000000ULL /* ns between two looks */

enum cost_level {
	COST_ALL = 0,
	COST_NO_NODES,	 /* without autograd's nodes */
	COST_NO_MODULES, /* also without calls of modules */
	COST_NO_SCOPES,	 /* also without record_function scopes and NVTX ranges */
	/* Also without the stacks of most allocations below a size: 64 KiB at this level, and four
	 * times as much at each level above it, up to 1 GiB. */
	COST_SAMPLED,
	COST_LAST = COST_SAMPLED + 7,
	/* Not a level of cost_control__look(): between two windows of steps with all detail
	 * (step_cost.h). No nodes, no calls of modules, and nearly no stacks, but scopes: their
	 * runs may be longer than a step. */
	COST_BETWEEN,
};

struct cost_control {
	double limit; /* share of the target's time that may be added; 0: no limit */
	unsigned level;
	unsigned dear; /* looks in a row with a share above the limit */
	bool settling; /* the level has changed: ignore the next look, which measures both levels */
	uint64_t calm; /* since when the share has been low, ns; 0: it is not low */
	uint64_t patience; /* how long the share must be low before detail comes back, ns; 0: not
			      set */
	uint64_t raised;   /* when detail came back the last time, ns; 0: never */
};

/* Detail that a level leaves out: mt_detail.off and .sample_below. */
struct cost_detail {
	uint32_t off;	/* enum mt_off */
	uint64_t below; /* bytes; most smaller allocations have no stack; 0: all have one */
};
struct cost_detail cost_control__detail(unsigned level);

/*
 * Decides about the level. Call it every COST_EVERY. now: ns, not 0. share: time that the capture
 * added since the last look, as a share of the time that the target would have taken without it.
 * walks: share of the hits that walked a stack; with few walks, reading fewer stacks gains
 * nothing, and the level stays. Returns true if the level has changed. A level goes up after two
 * looks above the limit, and down after `patience` below half of it: at first 30 s, and twice as
 * long each time that the level has to go up again.
 */
bool cost_control__look(struct cost_control *control, uint64_t now, double share, double walks);

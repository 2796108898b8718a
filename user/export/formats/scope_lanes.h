/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Runs of scopes as spans, without spans that overlap in part: runs of a thread are nested, but
 * those of its coroutines take turns. Those that do not nest get a further lane. */
#include <stddef.h>
#include <stdint.h>

#include "model/model.h"

struct dict;

#define SCOPE_LANE_DEPTH 64 /* spans in each other in one lane */

struct scope_lanes {
	/* By number of the run, as model__scope_run(): index in all, and spans around it there. */
	uint32_t *lane_of;
	uint8_t *depth_of;
	struct scope_lane {
		uint32_t thread; /* number in the dict */
		uint32_t tid;
		uint32_t nth; /* among the lanes of its thread, from 0 */
		uint64_t ends[SCOPE_LANE_DEPTH];
		size_t depth, deepest; /* spans in each other: now, and at most */
	} * all;
	size_t n, cap;
};

/* Call it after the last event. Returns 0 or -ENOMEM; call scope_lanes__drop() in both cases. */
int scope_lanes__of(const struct model *m, const struct dict *d, struct scope_lanes *ret);
void scope_lanes__drop(struct scope_lanes *l);

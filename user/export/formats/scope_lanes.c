/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "export/formats/scope_lanes.h"

#include <errno.h>
#include <stdlib.h>

#include "base/array.h"
#include "record/dict.h"

/* Adds the span if it is beside or inside all spans of the lane. Returns whether it is. */
static bool lane__take(struct scope_lane *l, const struct model_scope_run *r)
{
	while (l->depth && l->ends[l->depth - 1] <= r->begin)
		l->depth--;
	if (l->depth == SCOPE_LANE_DEPTH || (l->depth && l->ends[l->depth - 1] < r->end))
		return false;
	l->ends[l->depth++] = r->end;
	l->deepest = l->depth > l->deepest ? l->depth : l->deepest;
	return true;
}

/* Finds or adds the first lane of the run's thread that has room for it. Returns 0 or -ENOMEM. */
static int find_lane(struct scope_lanes *l, const struct model_scope_run *r, uint32_t tid,
		     uint32_t *ret)
{
	uint32_t nth = 0;

	for (size_t i = 0; i < l->n; i++) {
		if (l->all[i].tid != tid || (!tid && l->all[i].thread != r->thread))
			continue;
		nth++;
		if (lane__take(&l->all[i], r)) {
			*ret = (uint32_t)i;
			return 0;
		}
	}
	if (array__grow_zero(&l->all, &l->cap, l->n + 1, sizeof(*l->all)))
		return -ENOMEM;
	l->all[l->n] = (struct scope_lane){ .thread = r->thread, .tid = tid, .nth = nth };
	lane__take(&l->all[l->n], r);
	*ret = (uint32_t)l->n++;
	return 0;
}

int scope_lanes__of(const struct model *m, const struct dict *d, struct scope_lanes *ret)
{
	size_t n = model__scope_runs(m);
	struct model_scope_run r;

	*ret = (struct scope_lanes){ .lane_of = calloc(n + 1, sizeof(*ret->lane_of)),
				     .depth_of = calloc(n + 1, sizeof(*ret->depth_of)) };
	if (!ret->lane_of || !ret->depth_of)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++) {
		model__scope_run(m, i, &r);
		if (find_lane(ret, &r, dict__get_thread(d, r.thread).tid, &ret->lane_of[i]))
			return -ENOMEM;
		ret->depth_of[i] = (uint8_t)(ret->all[ret->lane_of[i]].depth - 1);
	}
	return 0;
}

void scope_lanes__drop(struct scope_lanes *l)
{
	free(l->lane_of);
	free(l->depth_of);
	free(l->all);
	*l = (struct scope_lanes){ 0 };
}

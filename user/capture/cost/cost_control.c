/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "capture/cost/cost_control.h"

#define DEAR_LOOKS 2
#define FAR 4.0 /* this many times the limit: skip a level */
#define LOW 0.5 /* of the limit */
#define FEW_WALKS 0.02
#define SECOND 1000000000ULL
#define PATIENCE_MIN (30 * SECOND)
#define PATIENCE_MAX (3600 * SECOND)
#define SAMPLED_MIN 65536ULL /* bytes */

struct cost_detail cost_control__detail(unsigned level)
{
	struct cost_detail d = { 0 };

	if (level >= COST_NO_NODES)
		d.off |= MT_OFF_NODES;
	if (level >= COST_NO_MODULES)
		d.off |= MT_OFF_MODULES;
	if (level >= COST_SAMPLED)
		d.below = SAMPLED_MIN << 2 * (level - COST_SAMPLED);
	return d;
}

static bool drop(struct cost_control *c, uint64_t now, double share, double walks)
{
	unsigned more = share > FAR * c->limit ? 2 : 1;

	c->calm = 0;
	if (++c->dear < DEAR_LOOKS || c->level == COST_LAST ||
	    (c->level >= COST_SAMPLED && walks < FEW_WALKS))
		return false;
	if (c->raised && now - c->raised < c->patience) {
		/* Detail came back too early. */
		c->patience = c->patience > PATIENCE_MAX / 2 ? PATIENCE_MAX : 2 * c->patience;
	}
	c->level = c->level + more > COST_LAST ? COST_LAST : c->level + more;
	return true;
}

static bool give_back(struct cost_control *c, uint64_t now)
{
	c->dear = 0;
	if (!c->level)
		return false;
	if (!c->calm)
		c->calm = now;
	if (now - c->calm < c->patience)
		return false;
	c->level--;
	c->raised = now;
	return true;
}

bool cost_control__look(struct cost_control *c, uint64_t now, double share, double walks)
{
	bool changed = false;

	if (!c->patience)
		c->patience = PATIENCE_MIN;
	if (!c->limit)
		return false;
	if (c->settling) {
		c->settling = false;
		return false;
	}
	if (share > c->limit) {
		changed = drop(c, now, share, walks);
	} else if (share < LOW * c->limit) {
		changed = give_back(c, now);
	} else {
		c->calm = 0;
		c->dear = 0;
	}
	if (changed) {
		c->settling = true;
		c->calm = 0;
		c->dear = 0;
	}
	return changed;
}

/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "capture/cost/cost_control.h"

#define DEAR_LOOKS 2 /* looks in a row above the limit, until detail is dropped */
#define FAR 4.0	     /* a share of more than this many limits drops two levels at once */
#define LOW 0.5	     /* a share below this many limits lets detail come back */
/* If a smaller share of the probes' hits than this walks the stack, reading fewer stacks gains
 * nothing. */
#define FEW_WALKS 0.02
#define SECOND 1000000000ULL /* ns */
#define PATIENCE_MIN (30 * SECOND)
#define PATIENCE_MAX (3600 * SECOND)
#define SAMPLED_MIN 65536ULL /* bytes; cost_detail.below at the level COST_SAMPLED */

struct cost_detail cost_control__detail(unsigned level)
{
	struct cost_detail d = { 0 };

	if (level >= COST_NO_NODES)
		d.off |= MT_OFF_NODES;
	if (level >= COST_NO_MODULES)
		d.off |= MT_OFF_MODULES;
	if (level >= COST_SAMPLED)
		/* four times as much with each level */
		d.below = SAMPLED_MIN << 2 * (level - COST_SAMPLED);
	return d;
}

/* Takes a share above the limit. walks: see FEW_WALKS. True if the level went up, by one or two, so
 * that less is recorded. */
static bool drop_detail(struct cost_control *c, uint64_t now, double share, double walks)
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

/* Takes a share far below the limit. True if the level went down by one, so that more is
 * recorded. */
static bool give_back_detail(struct cost_control *c, uint64_t now)
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

/* Counts looks above the limit, for less detail, and times the looks below LOW of the limit, for
 * more detail. A share in between restarts both. */
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
		changed = drop_detail(c, now, share, walks);
	} else if (share < LOW * c->limit) {
		changed = give_back_detail(c, now);
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

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
#define BETWEEN (1ULL << 31) /* bytes; the largest cost_detail.below */

struct cost_detail cost_control__detail(unsigned level)
{
	struct cost_detail detail = { 0 };

	if (level >= COST_NO_NODES)
		detail.off |= MT_OFF_NODES;
	if (level >= COST_NO_MODULES)
		detail.off |= MT_OFF_MODULES;
	if (level >= COST_NO_SCOPES && level != COST_BETWEEN)
		detail.off |= MT_OFF_SCOPES;
	if (level == COST_BETWEEN)
		detail.below = BETWEEN;
	else if (level >= COST_SAMPLED)
		/* four times as much with each level */
		detail.below = SAMPLED_MIN << 2 * (level - COST_SAMPLED);
	return detail;
}

/* Takes a share of the cost above the limit. walks: share of the probes' hits that walk the stack.
 * True if the level went up, by one or two, so that less is recorded. */
static bool drop_detail(struct cost_control *control, uint64_t now, double share, double walks)
{
	unsigned more = share > FAR * control->limit ? 2 : 1;

	control->calm = 0;
	if (++control->dear < DEAR_LOOKS || control->level == COST_LAST ||
	    (control->level >= COST_SAMPLED && walks < FEW_WALKS))
		return false;
	if (control->raised && now - control->raised < control->patience) {
		/* Detail came back too early. */
		control->patience = control->patience > PATIENCE_MAX / 2 ? PATIENCE_MAX
									 : 2 * control->patience;
	}
	control->level = control->level + more > COST_LAST ? COST_LAST : control->level + more;
	return true;
}

/* Takes a share far below the limit. True if the level went down by one, so that more is
 * recorded. */
static bool give_back_detail(struct cost_control *control, uint64_t now)
{
	control->dear = 0;
	if (!control->level)
		return false;
	if (!control->calm)
		control->calm = now;
	if (now - control->calm < control->patience)
		return false;
	control->level--;
	control->raised = now;
	return true;
}

/* Counts looks above the limit, for less detail, and times the looks below LOW of the limit, for
 * more detail. A share in between restarts both. */
bool cost_control__look(struct cost_control *control, uint64_t now, double share, double walks)
{
	bool changed = false;

	if (!control->patience)
		control->patience = PATIENCE_MIN;
	if (!control->limit)
		return false;
	if (control->settling) {
		control->settling = false;
		return false;
	}
	if (share > control->limit) {
		changed = drop_detail(control, now, share, walks);
	} else if (share < LOW * control->limit) {
		changed = give_back_detail(control, now);
	} else {
		control->calm = 0;
		control->dear = 0;
	}
	if (changed) {
		control->settling = true;
		control->calm = 0;
		control->dear = 0;
	}
	return changed;
}

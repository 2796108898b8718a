/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * The steps that --steps counts: an optimizer's. If none has ended some time after the first call
 * of a model, and the process has no optimizer, calls count.
 */
#include <stdbool.h>
#include <stdint.h>

#include "record/stream.h"

#define STEP_CLOCK_WAIT UINT64_C(10000000000) /* ns of calls without a step until they count */

struct step_clock {
	uint64_t steps; /* that ended; calls, too, with by_calls */
	uint64_t calls; /* that began */
	uint64_t first; /* time of the first call, ns */
	bool by_calls;
};

/* Whether an event ends a step. A call ends when the next one begins: that event is not part of it.
 * f: of the capture; "optimizers" is their number as last read. */
static inline bool step_clock__ended(struct step_clock *c, const struct facts *f,
				     const struct event *e)
{
	uint64_t optimizers;

	if (e->kind == EVENT_STEP && !c->by_calls) {
		c->steps++;
		return true;
	}
	if (e->kind != EVENT_CALL)
		return false;
	if (!c->calls++)
		c->first = e->time;
	if (!c->by_calls)
		c->by_calls = !c->steps && e->time >= c->first + STEP_CLOCK_WAIT &&
			      !(facts__number(f, "optimizers", &optimizers) && optimizers);
	if (c->by_calls)
		c->steps = c->calls - 1;
	return c->by_calls;
}

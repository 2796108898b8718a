/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Counts the steps for --steps: those of an optimizer. If no step has ended some time after the
 * first call of a model, and the process has no optimizer, counts calls of the model instead.
 */
#include <stdbool.h>
#include <stdint.h>

#include "record/stream.h"

#define STEP_CLOCK_WAIT                                                                            \
	UINT64_C(10000000000) /* ns from the first call of a model without an optimizer's step,    \
				 after which calls count */

struct step_clock {
	uint64_t steps; /* steps that ended; with by_calls, calls that ended */
	uint64_t calls; /* calls of the model that began */
	uint64_t first; /* time of the first call, ns */
	bool by_calls;	/* calls count, not steps of an optimizer */
};

/* Counts an event. True if it ends a step. A call ends when the next one begins: that event is not
 * part of it. facts: the capture's facts; its fact "optimizers" is the number of optimizers that
 * the last census found. */
static inline bool step_clock__ended(struct step_clock *c, const struct facts *facts,
				     const struct event *event)
{
	uint64_t optimizers;

	if (event->kind == EVENT_STEP && !c->by_calls) {
		c->steps++;
		return true;
	}
	if (event->kind != EVENT_CALL)
		return false;
	if (!c->calls++)
		c->first = event->time;
	if (!c->by_calls)
		c->by_calls = !c->steps && event->time >= c->first + STEP_CLOCK_WAIT &&
			      !(facts__number(facts, "optimizers", &optimizers) && optimizers);
	if (c->by_calls)
		c->steps = c->calls - 1;
	return c->by_calls;
}

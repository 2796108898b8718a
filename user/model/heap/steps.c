/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Finds the steps of both kinds at the same time: of optimizers and of calls. Queries use the calls
 * only if the recording has no EVENT_STEP. */
#include "model/heap/steps.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "model/heap/attribution.h"
#include "model/heap/category.h"
#include "model/heap/device.h"
#include "model/heap/growth_watch.h"
#include "model/heap/layers.h"
#include "model/heap/state.h"

/* Makes room for another step in the rings, up to STEPS_KEPT. Returns 0 or -ENOMEM. */
static int steps__grow(struct model *m, enum step_kind kind)
{
	struct steps *steps = &m->steps;
	uint32_t cap = steps->cap[kind] ? steps->cap[kind] * 2 : 64;
	void *bigger;

	if (steps->n[kind] < steps->cap[kind] || steps->cap[kind] == STEPS_KEPT)
		return 0;
	bigger = realloc(steps->ring[kind], cap * sizeof(*steps->ring[kind]));
	if (!bigger)
		return -ENOMEM;
	steps->ring[kind] = bigger;
	for (uint32_t i = 0; i < m->ndevs && i < STEP_DEVICES; i++) {
		bigger = realloc(m->devs[i]->step[kind], cap * sizeof(*m->devs[i]->step[kind]));
		if (!bigger)
			return -ENOMEM;
		m->devs[i]->step[kind] = bigger;
	}
	steps->cap[kind] = cap;
	return 0;
}

/* Notes the end of a step. Returns 0 or -ENOMEM. */
static int end_step(struct model *m, enum step_kind kind, uint64_t time)
{
	struct steps *s = &m->steps;
	uint64_t start = s->last_end[kind]; /* 0 for the first step: see span_of() */
	uint32_t slot;
	int err;

	err = steps__grow(m, kind);
	if (err)
		return err;
	slot = s->n[kind]++ % STEPS_KEPT;
	s->ring[kind][slot] = (struct step_span){ .start = start,
						  .end = time > start ? time : start };
	s->last_end[kind] = s->ring[kind][slot].end;
	for (uint32_t d = 0; d < m->ndevs && d < STEP_DEVICES; d++) {
		struct dev *dev = m->devs[d];

		dev->step[kind][slot] = (struct step_level){
			/* without late: it is added to all steps, see model_step */
			.peak = dev->step_peak[kind] - dev->late,
			.end_allocated = dev->pub.allocated - dev->late,
		};
		dev->step_peak[kind] = dev->pub.allocated;
	}
	for (uint32_t d = 0; d < m->ndevs; d++)
		m->devs[d]->phase_over = true;
	category__step(m);
	return 0;
}

int steps__close_call(struct model *m)
{
	m->steps.caller = NULL;
	m->steps.growth_lacks_call = true;
	if (end_step(m, STEP_CALL, m->steps.call_last))
		return -ENOMEM;
	/* model__finish() ends a call that is still open. Frees at the process's exit may have
	 * changed the live bytes meanwhile, so growth does not count that call. */
	return m->growth && !m->finished ? growth__end_call(m) : 0;
}

/* Ends a call that is still open, and gives growth its value from call to call: the bytes that are
 * live when the next call or the optimizer begins. At the end of a call its activations are live,
 * until the backward pass frees them. Returns 0 or -ENOMEM. */
static int settle_call(struct model *m)
{
	if (m->steps.caller && steps__close_call(m))
		return -ENOMEM;
	if (!m->steps.growth_lacks_call || !m->growth)
		return 0;
	m->steps.growth_lacks_call = false;
	return growth__settle_call(m);
}

int steps__optimizer(struct model *m, uint64_t time)
{
	if (settle_call(m) || end_step(m, STEP_OPT, time))
		return -ENOMEM;
	return m->growth ? growth__end_step(m) : 0;
}

/* Handles EVENT_CALL: a call of a root module begins. No event says that a call returns, so the
 * call before ends here at the latest, whichever thread made it: that thread may have ended. */
int steps__call(struct model *m, const struct event *e)
{
	struct thread_state *caller = m->threads.all[e->thread];

	layers__close(m, caller);
	if (settle_call(m))
		return -ENOMEM;
	if (!m->steps.called) {
		m->steps.called = true;
		m->steps.last_end[STEP_CALL] = e->time;
		for (uint32_t d = 0; d < m->ndevs; d++)
			m->devs[d]->step_peak[STEP_CALL] = m->devs[d]->pub.allocated;
	}
	m->steps.begun++;
	m->steps.caller = caller;
	m->steps.call_module = e->module;
	m->steps.call_last = e->time;
	return 0;
}

/* Handles an allocation on the thread of the call under way. Ends the call if the allocation is
 * outside of it. */
int steps__alloc(struct model *m, uint64_t time, uint32_t stack, uint8_t walk)
{
	uint32_t outermost = attribution__stack(m->attribution, stack).outermost;
	uint32_t module = m->steps.call_module;
	/* If the call's module is not known, any root module on the stack matches. */
	bool inside = module ? outermost == module : outermost != 0;

	if (!inside && module)
		inside = attribution__stack_has(m->attribution, stack, module);
	if (inside) {
		if (time > m->steps.call_last)
			m->steps.call_last = time;
		return 0;
	}
	/* Only a complete stack shows that the allocation is outside of the call. */
	return walk == MT_WALK_OK ? steps__close_call(m) : 0;
}

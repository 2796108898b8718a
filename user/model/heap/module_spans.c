/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Calls and time of modules, from EVENT_ENTER and EVENT_LEAVE. A thread is in a layer while it is
 * in any module of it. So containers that are never called have a time, and recursive calls count
 * once.
 */
#include <errno.h>

#include "base/array.h"
#include "base/map64.h"
#include "model/heap/layers.h"
#include "model/heap/state.h"

/* Nested calls on a thread; deeper ones are ignored. */
#define ENTERED_DEPTH 256

static uint64_t key_of(uint32_t thread, uint32_t layer)
{
	return (uint64_t)thread << 32 | layer;
}

/* Starts the time of those layers of the call that the thread was not in. The call's end adds that
 * time. */
static int begin(struct model *m, const struct event *e, struct entered *in)
{
	const struct chain *c = &in->chain;
	uint64_t since;

	for (uint32_t i = 0; i < c->n; i++) {
		uint64_t key = key_of(e->thread, m->layers.pool[c->off + i]);
		struct layer_sums *s = &layer_at(m, c, i)->part[in->part];

		if (map64__get(m->layers.open, key, &since))
			continue;
		if (map64__set(m->layers.open, key, e->time))
			return -ENOMEM;
		in->begun |= UINT64_C(1) << i;
		for (uint32_t d = 0; d < m->ndevs; d++)
			if (m->devs[d]->pub.has_totals &&
			    m->devs[d]->pub.reserved > s->peak_reserved)
				s->peak_reserved = m->devs[d]->pub.reserved;
	}
	return 0;
}

static void end(struct model *m, uint32_t thread, const struct entered *in, uint64_t time)
{
	const struct chain *c = &in->chain;
	uint64_t since;

	for (uint32_t i = 0; i < c->n; i++)
		if (in->begun >> i & 1 &&
		    map64__del(m->layers.open, key_of(thread, m->layers.pool[c->off + i]),
			       &since) &&
		    time > since)
			layer_at(m, c, i)->part[in->part].inside += time - since;
}

/* A wrapper and the module that it wraps have one name and count as one call. */
static bool is_wrapped(const struct model *m, const struct thread_state *t,
		       const struct entered *in)
{
	const struct entered *outer = t->nentered ? &t->entered[t->nentered - 1] : NULL;

	return outer && outer->chain.n && in->chain.n && outer->module != in->module &&
	       m->layers.pool[outer->chain.off + outer->chain.n - 1] ==
		       m->layers.pool[in->chain.off + in->chain.n - 1];
}

int layers__enter(struct model *m, struct thread_state *t, const struct event *e)
{
	const struct entered *outer = t->nentered ? &t->entered[t->nentered - 1] : NULL;
	struct entered in = { .module = e->module, .part = PART_FORWARD };
	int err;

	m->layers.entered = true;
	if (t->nentered == ENTERED_DEPTH)
		return 0;
	if (!m->layers.open)
		m->layers.open = map64__new();
	if (!m->layers.open)
		return -ENOMEM;
	if (e->node || (outer && outer->part == PART_BACKWARD))
		in.part = PART_BACKWARD;
	err = layers__chain(m, e->module, &in.chain);
	if (!err)
		err = begin(m, e, &in);
	if (!err)
		err = array__grow_zero(&t->entered, &t->capentered, (size_t)t->nentered + 1,
				       sizeof(*t->entered));
	if (err)
		return err;
	if (in.chain.n && !is_wrapped(m, t, &in))
		layer_at(m, &in.chain, in.chain.n - 1)->part[in.part].calls++;
	t->entered[t->nentered++] = in;
	return 0;
}

void layers__leave(struct model *m, struct thread_state *t, const struct event *e)
{
	uint32_t i = t->nentered;

	while (i && t->entered[i - 1].module != e->module)
		i--;
	if (!i)
		return; /* entered before the first event */
	while (t->nentered >= i)
		end(m, e->thread, &t->entered[--t->nentered], e->time);
}

void layers__leave_all(struct model *m, struct thread_state *t, uint32_t thread, uint64_t time)
{
	while (t->nentered)
		end(m, thread, &t->entered[--t->nentered], time);
}

bool model__sees_calls(const struct model *m)
{
	return m->layers.entered;
}

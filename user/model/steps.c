/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Finds steps of optimizers and of calls together. If the recording has one EVENT_STEP, the calls
 * do not count. */
#include "model/growth_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int steps__grow(struct model *m, enum step_kind kind)
{
	struct steps *s = &m->steps;
	uint32_t cap = s->cap[kind] ? s->cap[kind] * 2 : 64;
	void *p;

	if (s->n[kind] < s->cap[kind] || s->cap[kind] == STEPS_KEPT)
		return 0;
	p = realloc(s->ring[kind], cap * sizeof(*s->ring[kind]));
	if (!p)
		return -ENOMEM;
	s->ring[kind] = p;
	for (uint32_t i = 0; i < m->ndevs && i < STEP_DEVICES; i++) {
		p = realloc(m->devs[i]->step[kind], cap * sizeof(*m->devs[i]->step[kind]));
		if (!p)
			return -ENOMEM;
		m->devs[i]->step[kind] = p;
	}
	s->cap[kind] = cap;
	return 0;
}

int steps__new_device(struct model *m, struct dev *dev)
{
	for (int k = 0; k < STEP_KINDS; k++) {
		if (!m->steps.cap[k])
			continue;
		/* no memory in earlier steps */
		dev->step[k] = calloc(m->steps.cap[k], sizeof(*dev->step[k]));
		if (!dev->step[k])
			return -ENOMEM;
	}
	return 0;
}

/* A window's start; 0 for other recordings. */
static uint64_t begin_of(const struct model *m)
{
	const char *s = facts__get(m->words->facts, "window_start_ns");

	return s ? strtoull(s, NULL, 10) : 0;
}

bool model__first_step_whole(const struct model *m)
{
	const char *s = facts__get(m->words->facts, "window_begins");

	return s && !strcmp(s, "step");
}

int steps__end(struct model *m, enum step_kind kind, uint64_t time)
{
	struct steps *s = &m->steps;
	uint64_t start = s->n[kind] || s->last_end[kind] ? s->last_end[kind] : begin_of(m);
	uint32_t i;
	int err;

	err = steps__grow(m, kind);
	if (err)
		return err;
	i = s->n[kind]++ % STEPS_KEPT;
	s->ring[kind][i] = (struct step_span){ .start = start, .end = time > start ? time : start };
	s->last_end[kind] = s->ring[kind][i].end;
	for (uint32_t d = 0; d < m->ndevs && d < STEP_DEVICES; d++) {
		struct dev *dev = m->devs[d];

		dev->step[kind][i] = (struct step_level){
			.peak = dev->step_peak[kind] - dev->late,
			.end_allocated = dev->pub.allocated - dev->late,
		};
		dev->step_peak[kind] = dev->pub.allocated;
	}
	category__step(m);
	return m->growth ? growth__step(m, kind) : 0;
}

int steps__close_call(struct model *m, struct thread_state *t)
{
	t->in_call = false;
	return steps__end(m, STEP_CALL, t->call_last);
}

int steps__call(struct model *m, const struct event *e)
{
	struct thread_state *t = m->threads[e->thread];
	int err = 0;

	layers__close(m, t);
	if (t->in_call)
		err = steps__close_call(m, t);
	if (err)
		return err;
	if (!m->steps.called) {
		m->steps.called = true;
		m->steps.last_end[STEP_CALL] = e->time;
		for (uint32_t d = 0; d < m->ndevs; d++)
			m->devs[d]->step_peak[STEP_CALL] = m->devs[d]->pub.allocated;
	}
	t->in_call = true;
	t->call_module = e->module;
	t->call_last = e->time;
	return 0;
}

/* An allocation on a thread that is in a call: ends the call if it is outside. */
int steps__alloc(struct model *m, struct thread_state *t, uint64_t time, uint32_t stack,
		 uint8_t walk)
{
	uint32_t outermost = attribution__stack(m->words, stack).outermost;
	/* A call whose module has no name: any root module matches. */
	bool inside = t->call_module ? outermost == t->call_module : outermost != 0;

	if (!inside && t->call_module)
		inside = attribution__stack_has(m->words, stack, t->call_module);
	if (inside) {
		if (time > t->call_last)
			t->call_last = time;
		return 0;
	}
	/* A truncated stack may lack the module. */
	return walk == MT_WALK_OK ? steps__close_call(m, t) : 0;
}

int steps__finish(struct model *m)
{
	int err = 0;

	for (uint32_t i = 0; i < m->nthreads && !err; i++)
		if (m->threads[i] && m->threads[i]->in_call)
			err = steps__close_call(m, m->threads[i]);
	return err;
}

static enum step_kind steps__kind(const struct model *m)
{
	return m->steps.n[STEP_OPT] ? STEP_OPT : STEP_CALL;
}

bool model__steps_are_calls(const struct model *m)
{
	return steps__kind(m) == STEP_CALL;
}

size_t model__steps(const struct model *m)
{
	return m->steps.n[steps__kind(m)];
}

size_t model__whole_steps(const struct model *m)
{
	const char *at = facts__get(m->words->facts, "attached_at");
	size_t n = model__steps(m);
	bool whole = steps__kind(m) == STEP_CALL || model__first_step_whole(m) ||
		     (at && (!strcmp(at, "start") || !strcmp(at, "fork")));

	return n - (n && !whole);
}

bool model__step(const struct model *m, size_t i, struct model_step *ret)
{
	enum step_kind k = steps__kind(m);
	uint64_t n = m->steps.n[k], kept = n < STEPS_KEPT ? n : STEPS_KEPT;
	int main = model__main_device(m);
	const struct dev *dev = main < 0 ? NULL : m->devs[m->order[main]];
	uint32_t slot;

	if (i >= kept)
		return false;
	slot = (n - kept + i) % STEPS_KEPT;
	*ret = (struct model_step){ .start = m->steps.ring[k][slot].start,
				    .end = m->steps.ring[k][slot].end };
	if (dev && dev->step[k]) {
		ret->peak = dev->step[k][slot].peak + dev->late;
		ret->end_allocated = dev->step[k][slot].end_allocated + dev->late;
	}
	return true;
}

static int cmp_u64(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

uint64_t model__step_time(const struct model *m)
{
	enum step_kind k = steps__kind(m);
	uint64_t n = m->steps.n[k], kept = n < STEPS_KEPT ? n : STEPS_KEPT, *times, ret;
	/* the first step is still kept */
	size_t skip = n == kept && !model__first_step_whole(m);

	if (kept <= skip)
		return 0;
	times = malloc(kept * sizeof(*times));
	if (!times)
		return 0;
	for (size_t i = skip; i < kept; i++) {
		const struct step_span *s = &m->steps.ring[k][(n - kept + i) % STEPS_KEPT];

		times[i - skip] = s->end - s->start;
	}
	kept -= skip;
	qsort(times, kept, sizeof(*times), cmp_u64);
	ret = kept % 2 ? times[kept / 2] : (times[kept / 2 - 1] + times[kept / 2]) / 2;
	free(times);
	return ret;
}

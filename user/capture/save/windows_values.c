/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "capture/save/windows_values.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/map64.h"
#include "record/cond.h"

#define DEVICES 64 /* devices at most */

struct level {
	struct device device;
	bool totals;
	uint64_t allocated, reserved, peak, peak_reserved;
	uint64_t high; /* highest allocated bytes since the last judgement */
	bool used_known;
	uint64_t used;
	struct map64 *sizes; /* sizes of blocks, if the allocator reports no totals */
};

struct values {
	const struct facts *facts;
	struct level levels[DEVICES];
	size_t n;
	uint64_t steps, last_step, step_time; /* step_time: ns of the last whole step */
	uint64_t ooms, lost;
	struct host_sheet host, reading; /* the last reading of host memory; one under way */
	bool host_known;
};

struct values *values__new(const struct facts *f)
{
	struct values *v = calloc(1, sizeof(*v));

	if (v)
		v->facts = f;
	return v;
}

void values__free(struct values *v)
{
	if (!v)
		return;
	for (size_t i = 0; i < v->n; i++)
		map64__free(v->levels[i].sizes);
	free(v);
}

static struct level *level_of(struct values *v, struct device d)
{
	for (size_t i = 0; i < v->n; i++) {
		if (!memcmp(&v->levels[i].device, &d, sizeof(d)))
			return &v->levels[i];
	}
	if (v->n == DEVICES || d.index == DEVICE_UNKNOWN)
		return NULL;
	v->levels[v->n] = (struct level){ .device = d };
	return &v->levels[v->n++];
}

/* Without totals, sums up blocks. */
static int count_block(struct level *l, const struct event *e)
{
	bool comes = e->kind == EVENT_ALLOC || e->kind == EVENT_BLOCK, had = false;
	uint64_t before = 0;
	int err = 0;

	if (e->kind != EVENT_FREE && (!comes || e->flags & BLOCK_PENDING))
		return 0;
	if (!l->sizes && !(l->sizes = map64__new()))
		return -ENOMEM;
	if (comes)
		err = map64__swap(l->sizes, e->addr, e->size, &had, &before);
	else
		had = map64__del(l->sizes, e->addr, &before);
	if (err)
		return err;
	if (comes)
		l->allocated += e->size;
	if (had)
		l->allocated -= before;
	return 0;
}

static int take_level(struct values *v, const struct event *e, bool *news)
{
	struct level *l = level_of(v, e->device);
	int err = 0;

	if (!l)
		return 0;
	if (e->totals) {
		if (l->sizes && !l->totals)
			map64__clear(l->sizes);
		l->totals = true;
		l->allocated = e->allocated;
		l->reserved = e->reserved;
	} else if (!l->totals && device__on_host(e->device)) {
		err = count_block(l, e);
	}
	if (e->kind == EVENT_USED) {
		l->used_known = true;
		l->used = e->size;
	}
	if (l->allocated > l->peak)
		l->peak = l->allocated;
	if (l->reserved > l->peak_reserved)
		l->peak_reserved = l->reserved;
	if (l->allocated > l->high) {
		l->high = l->allocated;
		*news = true;
	}
	return err;
}

int values__event(struct values *v, const struct event *e, bool *news)
{
	*news = false;
	switch (e->kind) {
	case EVENT_STEP:
		v->step_time = v->steps && e->time > v->last_step ? e->time - v->last_step : 0;
		v->last_step = e->time;
		v->steps++;
		*news = true;
		return 0;
	case EVENT_LOST:
		v->lost += e->size;
		*news = true;
		return 0;
	case EVENT_OOM:
		v->ooms++;
		*news = true;
		return take_level(v, e, news);
	case EVENT_HOST:
		if (host_sheet__take(&v->reading, e)) {
			v->host = v->reading;
			v->reading = (struct host_sheet){ 0 };
			*news = v->host_known = true;
		}
		return 0;
	case EVENT_ALLOC:
	case EVENT_FREE:
	case EVENT_BLOCK:
	case EVENT_STATE:
	case EVENT_USED:
		return take_level(v, e, news);
	}
	return 0;
}

static uint64_t device_total(const struct values *v, const struct level *l)
{
	char key[40];
	uint64_t total;

	snprintf(key, sizeof(key), "device.%u.total", l->device.index);
	facts__number(v->facts, key, &total);
	return device__on_host(l->device) ? 0 : total;
}

static void set(struct cond_values *cv, enum cond_figure f, uint64_t value, uint64_t of)
{
	cv->v[f] = (struct cond_value){ .known = true, .value = value, .of = of };
}

static void values_of(const struct values *v, const struct level *l, struct cond_values *cv)
{
	uint64_t total = device_total(v, l),
		 unused = l->reserved > l->allocated ? l->reserved - l->allocated : 0;

	set(cv, COND_ALLOCATED, l->allocated, total);
	set(cv, COND_PEAK, l->peak, total);
	set(cv, COND_OOMS, v->ooms, 0);
	set(cv, COND_LOST, v->lost, 0);
	if (v->step_time)
		set(cv, COND_STEP_TIME, v->step_time, 0);
	else
		cv->why[COND_STEP_TIME] = "no whole step has passed";
	if (l->totals) {
		set(cv, COND_RESERVED, l->reserved, total);
		set(cv, COND_PEAK_RESERVED, l->peak_reserved, total);
		set(cv, COND_UNUSED, unused, total);
		set(cv, COND_FRAGMENTATION, unused, l->reserved);
	}
	if (l->used_known) {
		set(cv, COND_USED, l->used, total);
		if (l->totals && l->used >= l->reserved)
			set(cv, COND_OTHER, l->used - l->reserved, total);
	}
	host_figures__put(cv, v->host_known ? &v->host : NULL, 0,
			  "the host memory was not read yet");
	cv->has_steps = v->steps;
	cv->step = v->steps;
}

/* The CPU counts only if there is no other device, as in reports. The host's memory contains the
 * CPU's. */
static bool is_judged(const struct values *v, const struct level *l)
{
	bool others = false;

	if (l->device.type == DEVICE_HOST)
		return v->n == 1;
	for (size_t i = 0; i < v->n; i++)
		others |= !device__on_host(v->levels[i].device);
	return !others || !device__on_host(l->device);
}

int values__judge(struct values *v, struct cond *c, uint64_t now, struct cond_result *ret)
{
	struct cond_result r = { .verdict = COND_UNKNOWN };
	bool any = false;

	*ret = r;
	for (size_t i = 0; i < v->n; i++) {
		struct cond_values cv = { .time = now, .series = (unsigned int)i };
		int err;

		if (!is_judged(v, &v->levels[i]))
			continue;
		values_of(v, &v->levels[i], &cv);
		err = cond__eval(c, &cv, &r);
		if (err)
			return err;
		/* Returns the result of one device for which it holds, or the first known result. */
		if (!any || (r.verdict == COND_HOLDS && ret->verdict != COND_HOLDS))
			*ret = r;
		any = true;
	}
	return 0;
}

void values__judged(struct values *v)
{
	for (size_t i = 0; i < v->n; i++)
		v->levels[i].high = v->levels[i].allocated;
}

/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Growth by calls of the model within one step. */
#include "base/array.h"
#include "model/heap/device.h"
#include "model/heap/growth_internal.h"
#include "model/heap/state.h"

#define FROM 8	 /* the call whose end is the first value: most steps have fewer calls */
#define LONGER 2 /* buckets of calls above the median step: at least about four times as many */
#define PART 10	 /* the growth is at least a tenth of the device's peak */

int growth_inside__call(struct model *m)
{
	struct growth_watch *w = m->growth;

	if (++w->inside.calls < FROM)
		return 0;
	w->track[TRACK_INSIDE].on = true;
	w->track[TRACK_INSIDE].passed++;
	return growth_values__add(m, TRACK_INSIDE);
}

/* Sets the device's rise until its highest value, and the number of values until then. */
static uint64_t rise(const struct growth_watch *w, uint32_t dev, unsigned track, size_t *n,
		     uint64_t *top)
{
	const struct growth_track *t = &w->track[track];
	const uint64_t *v = w->sums[dev]->v[track][SUM_ALLOCATED];
	uint64_t low = UINT64_MAX;

	*n = *top = 0;
	for (size_t i = 0; i < t->n; i++)
		if (v[i] >= *top) {
			*top = v[i];
			*n = i + 1;
		}
	for (size_t i = 0; i < *n; i++)
		low = v[i] < low ? v[i] : low;
	return *n ? *top - low : 0;
}

/* Judges the units of a device until the top. 0 or -ENOMEM. */
static int judge(struct growth_watch *w, uint32_t dev, unsigned track, size_t n,
		 struct growth_interval *ret)
{
	struct trend_opts o = { .min_growth = ret->grown / 32 };
	double stride = (double)w->track[track].stride;
	struct trend t;
	int err = 0;

	for (uint32_t i = 0; i < w->n && !err; i++) {
		const uint64_t *v;

		if (w->units[i].key.dev != dev + 1)
			continue;
		err = growth_values__fill(w, &w->units[i], track);
		v = growth_values__of(&w->units[i], track);
		o.tests += !err && v[n - 1] > v[0];
	}
	for (uint32_t i = 0; i < w->n && !err; i++) {
		const uint64_t *v = growth_values__of(&w->units[i], track);

		if (w->units[i].key.dev != dev + 1 || v[n - 1] <= v[0] ||
		    v[n - 1] - v[0] < ret->grown / 32)
			continue;
		trend__judge(v, n, &o, &t);
		if (!trend__counts(&t, TREND_MEDIUM))
			continue;
		ret->lines++;
		ret->lines_per_call += t.slope / stride;
		if (t.slope / stride <= ret->per_call)
			continue;
		ret->per_call = t.slope / stride;
		ret->unit1 = i + 1;
		ret->live = v[n - 1];
		ret->trend = t;
	}
	return err;
}

/* The growth of a device in the calls of a track. ret->unit1 is 0 if nothing grew more than least.
 */
static int examine(const struct model *m, uint32_t dev, unsigned track, uint64_t least,
		   struct growth_interval *ret)
{
	struct growth_watch *w = m->growth;
	struct growth_interval now = { .step = m->steps.n[STEP_OPT] };
	size_t n;

	*ret = now;
	if (dev >= w->nsums || !w->sums[dev])
		return 0;
	now.grown = rise(w, dev, track, &n, &now.top);
	if (n < TREND_MIN || now.grown <= least || now.grown < now.top / PART)
		return 0;
	now.calls = (track == TRACK_INSIDE ? FROM - 1 : 0) + n * w->track[track].stride;
	*ret = now;
	return judge(w, dev, track, n, ret);
}

int growth_inside__step(struct model *m, unsigned track)
{
	struct growth_watch *w = m->growth;
	struct growth_inside_watch *s = &w->inside;
	uint64_t calls = track == TRACK_INSIDE ? s->calls : w->track[track].passed;
	struct growth_interval now;
	int err = 0;

	s->steps_of[growth__bucket(calls)]++;
	s->calls = 0;
	if (calls < FROM)
		return 0;
	err = array__grow_zero(&s->best, &s->nbest, m->ndevs, sizeof(*s->best));
	for (uint32_t d = 0; d < m->ndevs && !err; d++) {
		/* This step has ended, and is counted already. */
		err = examine(m, d, track, s->best[d].grown, &now);
		if (!err && now.unit1) {
			now.step -= now.step > 0;
			s->best[d] = now;
		}
	}
	s->round++;
	w->track[TRACK_INSIDE] = (struct growth_track){ .stride = 1 };
	return err;
}

/* Steps with that many calls are longer than most. */
static bool is_long(const struct growth_inside_watch *s, uint64_t calls)
{
	uint64_t all = 0, below = 0;
	unsigned median = 0;

	for (int i = 0; i < GROWTH_AGES; i++)
		all += s->steps_of[i];
	while (all && median < GROWTH_AGES - 1 && (below += s->steps_of[median]) * 2 < all)
		median++;
	return growth__bucket(calls) >= median + LONGER;
}

int growth_inside__judge(const struct model *m, uint32_t dev_nr, struct growth_inside *ret,
			 struct growth_interval *best)
{
	struct growth_watch *w = m->growth;
	const struct growth_track *t = &w->track[TRACK_INSIDE];
	const struct dev *dev = m->devs[dev_nr];
	struct growth_interval now;
	bool open = false;
	int err;

	*best = (struct growth_interval){ .unit1 = 0 };
	*ret = (struct growth_inside){ .known = false };
	if (w->kind != STEP_OPT || w->per.file)
		return 0;
	err = examine(m, dev_nr, TRACK_INSIDE, 0, &now);
	if (err)
		return err;
	if (dev_nr < w->inside.nbest)
		*best = w->inside.best[dev_nr];
	if (now.unit1 && is_long(&w->inside, now.calls)) {
		uint64_t last = w->sums[dev_nr]->v[TRACK_INSIDE][SUM_ALLOCATED][t->n - 1];

		open = now.top - last < now.grown / 2;
		if (open || now.grown > best->grown)
			*best = now;
	}
	if (!best->unit1 || !is_long(&w->inside, best->calls) ||
	    best->grown < dev->pub.peak_allocated / PART ||
	    best->top < dev->pub.peak_allocated / 2) {
		best->unit1 = 0;
		return 0;
	}
	*ret = (struct growth_inside){
		.known = true,
		.open = open,
		.step = best->step,
		.calls = best->calls,
		.grown = best->grown,
		.lines_per_call = best->lines_per_call,
		.lines = best->lines,
	};
	return 0;
}

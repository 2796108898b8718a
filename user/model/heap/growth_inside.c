/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Growth inside steps: by calls of the model within one, and of their peaks. */
#include <string.h>

#include "base/array.h"
#include "model/heap/device.h"
#include "model/heap/growth_internal.h"
#include "model/heap/state.h"
#include "model/rows.h"

#define FROM 8	     /* the call whose end is the first value: most steps have fewer calls */
#define LONGER 2     /* buckets of calls above the median step: at least about four times as many */
#define PART 10	     /* the growth is at least a tenth of the device's peak */
#define WARMUP 3     /* steps that do not count for the slope of a line */
#define FASTER 2     /* than memory from step to step */
#define PEAK_PART 20 /* the growth is at least this part of the highest peak */

/* ---- calls within a step ---- */

void growth_inside__begin(struct growth_watch *w, struct growth_unit *u)
{
	struct growth_series *s = &u->s[TRACK_INSIDE];

	u->round = w->inside.round;
	s->n = 0;
	s->settled = s->settled_allocations = 0;
	memset(u->gone[TRACK_INSIDE], 0, sizeof(u->gone[TRACK_INSIDE]));
	memset(&u->late[TRACK_INSIDE], 0, sizeof(u->late[TRACK_INSIDE]));
}

int growth_inside__call(struct model *m)
{
	struct growth_watch *w = m->growth;

	if (++w->inside.calls < FROM)
		return 0;
	w->track[TRACK_INSIDE].on = true;
	w->track[TRACK_INSIDE].passed++;
	return growth__add_value(m, TRACK_INSIDE);
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
		err = growth__fill(w, &w->units[i], track);
		v = growth__values(&w->units[i], track);
		o.tests += !err && v[n - 1] > v[0];
	}
	for (uint32_t i = 0; i < w->n && !err; i++) {
		const uint64_t *v = growth__values(&w->units[i], track);

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

/* ---- peaks ---- */

static void add_top(struct growth_tops *t, uint64_t step, double top, uint64_t steps)
{
	double first, n;

	if (step + steps <= WARMUP)
		return;
	first = step < WARMUP ? WARMUP : (double)step;
	n = (double)(step + steps) - first;
	t->sum += n * top;
	t->moment += top * n * (2 * first + n - 1) / 2;
}

void growth__touch_peaks(const struct growth_watch *w, struct growth_unit *u)
{
	struct growth_tops *t = &u->tops;
	uint64_t now = w->track[TRACK_STEPS].passed;

	if (t->step >= now)
		return;
	add_top(t, t->step, (double)t->top, 1);
	t->last = now == t->step + 1 ? t->top : u->live;
	add_top(t, t->step + 1, (double)u->live, now - t->step - 1);
	t->step = now;
	t->top = u->live;
}

/* Slope of the tops over the steps that ended (least squares). */
static double slope(const struct growth_watch *w, struct growth_unit *u)
{
	double from = WARMUP, n = (double)w->track[TRACK_STEPS].passed - from, mean, squares;

	growth__touch_peaks(w, u);
	if (n < 2)
		return 0;
	mean = from + (n - 1) / 2;
	squares = n * (n * n - 1) / 12;
	return (u->tops.moment - mean * u->tops.sum) / squares;
}

/* Peaks of the kept steps, of several together if there are many. */
static size_t peaks_of(const struct model *m, const struct dev *dev, uint64_t v[TREND_MAX],
		       uint64_t *stride)
{
	enum step_kind kind = m->growth->kind;
	uint64_t n = m->steps.n[kind], kept = n < STEPS_KEPT ? n : STEPS_KEPT;
	size_t count;

	/* The peak of a step that was under way at attach is not known. */
	if (n == kept && kept && !model__first_step_whole(m))
		kept--;
	*stride = kept / TREND_MAX + 1;
	count = kept / *stride;
	for (size_t i = 0; i < count; i++) {
		v[i] = 0;
		for (uint64_t k = 0; k < *stride; k++) {
			uint64_t step = n - (count - i) * *stride + k;
			uint64_t peak = dev->step[kind][step % STEPS_KEPT].peak + dev->late;

			v[i] = peak > v[i] ? peak : v[i];
		}
	}
	return count;
}

static void set_row(const struct model *m, const struct growth_unit *u, struct row *ret)
{
	const struct site *s = &m->sites.all[u->site];

	rows__line(m, FRAMES_USER, s->stack, s->node, s->thread, s->walk, ret);
	ret->bytes = u->tops.top > u->tops.last ? u->tops.top : u->tops.last;
}

static void find_lines(const struct model *m, uint32_t dev_nr, struct growth_line *ret_line,
		       struct growth_peaks *ret)
{
	struct growth_watch *w = m->growth;
	double most = 0, most_input = 0;
	uint32_t line = 0, input = 0;

	for (uint32_t i = 0; i < w->n; i++) {
		struct growth_unit *u = &w->units[i];
		double grows;

		if (u->key.dev != dev_nr + 1)
			continue;
		grows = slope(w, u);
		if (grows > most) {
			most = grows;
			line = i + 1;
		}
		if (grows > most_input && u->tops.input) {
			most_input = grows;
			input = i + 1;
		}
	}
	if (line) {
		*ret_line = (struct growth_line){ .per_step = most, .trend = ret->trend };
		set_row(m, &w->units[line - 1], &ret_line->row);
		ret->line = ret_line;
	}
	if (input && input != line)
		set_row(m, &w->units[input - 1], &ret->input);
}

void growth__judge_peaks(const struct model *m, uint32_t dev_nr, const struct growth_sum *ends,
			 uint64_t min_growth, struct growth_line *line, struct growth_peaks *ret)
{
	const struct growth_watch *w = m->growth;
	const struct dev *dev = m->devs[dev_nr];
	struct trend_opts o = { .min_growth = min_growth };
	uint64_t v[TREND_MAX], stride, least = dev->pub.peak_allocated / PEAK_PART;
	size_t n;

	*ret = (struct growth_peaks){ .known = false };
	if (w->per.file || dev_nr >= STEP_DEVICES || !dev->step[w->kind] ||
	    dev->pub.device.type == DEVICE_HOST)
		return;
	n = peaks_of(m, dev, v, &stride);
	o.min_growth = least > min_growth ? least : min_growth;
	trend__judge(v, n, &o, &ret->trend);
	ret->known = true;
	ret->per_step = ret->trend.slope / (double)stride;
	if (!trend__counts(&ret->trend, TREND_LOW) || ret->per_step < FASTER * ends->per_step) {
		ret->trend.confidence = TREND_NONE;
		return;
	}
	if (m->lost && ret->trend.confidence > TREND_MEDIUM)
		ret->trend.confidence = TREND_MEDIUM;
	find_lines(m, dev_nr, line, ret);
}

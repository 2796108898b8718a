/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Records live bytes while events pass; growth_judge.c evaluates them. */
#include "model/growth.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/hash.h"
#include "base/map64.h"
#include "model/heap/attribution.h"
#include "model/heap/blocks.h"
#include "model/heap/category.h"
#include "model/heap/device.h"
#include "model/heap/extents.h"
#include "model/heap/growth_internal.h"
#include "model/heap/hash_index.h"
#include "model/heap/heap.h"
#include "model/heap/state.h"
#include "model/heap/steps.h"
#include "record/dict.h"
#include "record/files.h"

/* ---- values of units and devices ---- */

#define CELLS_MAX (UINT64_C(1) << 24) /* values of all units together: 128 MiB */
#define LEAST 32		      /* values kept of each unit, however many units there are */

void growth_values__begin(struct growth_watch *w, struct growth_unit *u)
{
	struct growth_series *s = &u->s[TRACK_INSIDE];

	u->round = w->inside.round;
	s->n = 0;
	s->settled = s->settled_allocations = 0;
	memset(u->gone[TRACK_INSIDE], 0, sizeof(u->gone[TRACK_INSIDE]));
	memset(&u->late[TRACK_INSIDE], 0, sizeof(u->late[TRACK_INSIDE]));
}

int growth_values__fill_in(struct growth_watch *w, struct growth_unit *u, unsigned track)
{
	struct growth_series *s = &u->s[track];
	uint32_t n = w->track[track].n, cap;
	uint64_t *v;

	if (!s->v && !u->live) {
		s->n = n;
		return 0;
	}
	if (n > s->cap) {
		for (cap = s->cap ? s->cap : LEAST; cap < n; cap *= 2)
			;
		v = realloc(s->v, cap * sizeof(*v));
		if (!v)
			return -ENOMEM;
		if (!s->v)
			memset(v, 0, s->n * sizeof(*v));
		w->cells += cap - s->cap;
		s->v = v;
		s->cap = cap;
	}
	while (s->n < n)
		s->v[s->n++] = u->live;
	return 0;
}

/* Keeps every second value. 0 or -ENOMEM. */
static int values_thin(struct growth_watch *w, unsigned track)
{
	struct growth_track *t = &w->track[track];

	for (uint32_t i = 0; i < w->n; i++) {
		struct growth_series *s = &w->units[i].s[track];

		if (growth_values__fill(w, &w->units[i], track))
			return -ENOMEM;
		s->n = t->n / 2;
		for (uint32_t k = 0; s->v && k < s->n; k++)
			s->v[k] = s->v[2 * k + 1];
	}
	for (uint32_t d = 0; d < w->nsums; d++)
		for (int i = 0; w->sums[d] && i < GROWTH_SUMS; i++)
			for (uint32_t k = 0; k < t->n / 2; k++)
				w->sums[d]->v[track][i][k] = w->sums[d]->v[track][i][2 * k + 1];
	for (uint32_t k = 0; track == TRACK_STEPS && k < t->n / 2; k++)
		w->per.times[k] = w->per.times[2 * k + 1];
	t->n /= 2;
	t->stride *= 2;
	return 0;
}

/* Halves the number of values kept of each unit, because there are too many units. */
static int halve_values(struct growth_watch *w)
{
	w->max /= 2;
	for (unsigned t = 0; t < TRACK_NR; t++)
		while (w->track[t].n > w->max)
			if (values_thin(w, t))
				return -ENOMEM;
	for (uint32_t i = 0; i < w->n; i++)
		for (int t = 0; t < TRACK_NR; t++) {
			struct growth_series *s = &w->units[i].s[t];
			uint64_t *v = s->cap > w->max ? realloc(s->v, w->max * sizeof(*v)) : NULL;

			if (!v)
				continue;
			w->cells -= s->cap - w->max;
			s->v = v;
			s->cap = w->max;
		}
	return 0;
}

static int note_sums(struct model *m, unsigned track, uint32_t at)
{
	struct growth_watch *w = m->growth;

	if (array__grow_zero(&w->sums, &w->nsums, m->ndevs, sizeof(*w->sums)))
		return -ENOMEM;
	for (uint32_t d = 0; d < m->ndevs; d++) {
		const struct dev *dev = m->devs[d];

		if (!w->sums[d])
			w->sums[d] = calloc(1, sizeof(*w->sums[d]));
		if (!w->sums[d])
			return -ENOMEM;
		w->sums[d]->v[track][SUM_ALLOCATED][at] = dev->pub.allocated - dev->late;
		w->sums[d]->v[track][SUM_RESERVED][at] = dev->pub.reserved;
		w->sums[d]->v[track][SUM_TAKEN][at] = dev->extents.sums[SUM_OTHERS];
	}
	return 0;
}

/* Adds the live bytes of now as a value. 0 or -ENOMEM. */
static int values_add(struct model *m, unsigned track)
{
	struct growth_watch *w = m->growth;
	struct growth_track *t = &w->track[track];

	if (t->n == w->max && values_thin(w, track))
		return -ENOMEM;
	if (w->cells > CELLS_MAX && w->max > LEAST && halve_values(w))
		return -ENOMEM;
	if (t->passed % t->stride)
		return 0;
	if (track == TRACK_STEPS)
		w->per.times[t->n] = w->now;
	return note_sums(m, track, t->n++);
}

/* Makes a track empty. */
static void values_clear(struct growth_watch *w, unsigned track)
{
	for (uint32_t i = 0; i < w->n; i++) {
		struct growth_series *s = &w->units[i].s[track];

		free(s->v);
		w->cells -= s->cap;
		*s = (struct growth_series){ 0 };
		memset(w->units[i].gone[track], 0, sizeof(w->units[i].gone[track]));
		memset(&w->units[i].late[track], 0, sizeof(w->units[i].late[track]));
		if (track == TRACK_STEPS)
			w->units[i].tops = (struct growth_tops){ .top = w->units[i].live };
	}
	w->track[track] = (struct growth_track){ .stride = 1 };
}

static const uint64_t zeros[TREND_MAX];

const uint64_t *growth_values__of(const struct growth_unit *u, unsigned track)
{
	return u->s[track].v ? u->s[track].v : zeros;
}

const uint64_t *growth_values__of_device(const struct growth_watch *w, uint32_t dev_index,
					 unsigned track, unsigned sum)
{
	return dev_index < w->nsums && w->sums[dev_index] ? w->sums[dev_index]->v[track][sum]
							  : zeros;
}

/* ---- growth inside a step ---- */

#define FROM 8	 /* the call whose end is the first value: most steps have fewer calls */
#define LONGER 2 /* buckets of calls above the median step: at least about four times as many */
#define PART 10	 /* the growth is at least a tenth of the device's peak */

/* A call of the model ended between two optimizer steps. 0 or -ENOMEM. */
static int inside_call(struct model *m)
{
	struct growth_watch *w = m->growth;

	if (++w->inside.calls < FROM)
		return 0;
	w->track[TRACK_INSIDE].on = true;
	w->track[TRACK_INSIDE].passed++;
	return values_add(m, TRACK_INSIDE);
}

/* Sets the device's rise until its highest value, and the number of values until then. */
static uint64_t find_rise(const struct growth_watch *w, uint32_t dev, unsigned track, size_t *n,
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
static int judge_units(struct growth_watch *w, uint32_t dev, unsigned track, size_t n,
		       struct growth_interval *ret)
{
	struct trend_opts o = { .min_growth = ret->grown / 32 };
	double stride = (double)w->track[track].stride;
	struct trend t;

	for (uint32_t i = 0; i < w->n; i++) {
		const uint64_t *v;

		if (w->units[i].key.dev != dev + 1)
			continue;
		if (growth_values__fill(w, &w->units[i], track))
			return -ENOMEM;
		v = growth_values__of(&w->units[i], track);
		o.tests += v[n - 1] > v[0];
	}
	for (uint32_t i = 0; i < w->n; i++) {
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
		ret->unit_no = i + 1;
		ret->live = v[n - 1];
		ret->trend = t;
	}
	return 0;
}

/* The growth of a device in the calls of a track. ret->unit_no is 0 if nothing grew more than least.
 */
static int examine_calls(const struct model *m, uint32_t dev, unsigned track, uint64_t least,
			 struct growth_interval *ret)
{
	struct growth_watch *w = m->growth;
	struct growth_interval now = { .step = m->steps.n[STEP_OPT] };
	size_t n;

	*ret = now;
	if (dev >= w->nsums || !w->sums[dev])
		return 0;
	now.grown = find_rise(w, dev, track, &n, &now.top);
	if (n < TREND_MIN || now.grown <= least || now.grown < now.top / PART)
		return 0;
	now.calls = (track == TRACK_INSIDE ? FROM - 1 : 0) + n * w->track[track].stride;
	*ret = now;
	return judge_units(w, dev, track, n, ret);
}

/* An optimizer step ended; track has the values of the calls before it. 0 or -ENOMEM. */
static int inside_step(struct model *m, unsigned track)
{
	struct growth_watch *w = m->growth;
	struct growth_inside_watch *s = &w->inside;
	uint64_t calls = track == TRACK_INSIDE ? s->calls : w->track[track].passed;
	struct growth_interval now;

	s->steps_of[growth__bucket(calls)]++;
	s->calls = 0;
	if (calls < FROM)
		return 0;
	if (array__grow_zero(&s->best, &s->nbest, m->ndevs, sizeof(*s->best)))
		return -ENOMEM;
	for (uint32_t d = 0; d < m->ndevs; d++) {
		if (examine_calls(m, d, track, s->best[d].grown, &now))
			return -ENOMEM;
		if (now.unit_no) {
			now.step -= now.step > 0; /* it has ended, and is counted already */
			s->best[d] = now;
		}
	}
	s->round++;
	w->track[TRACK_INSIDE] = (struct growth_track){ .stride = 1 };
	return 0;
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

int growth_inside__judge(const struct model *m, uint32_t dev_index, struct growth_inside *ret,
			 struct growth_interval *best)
{
	struct growth_watch *w = m->growth;
	const struct growth_track *t = &w->track[TRACK_INSIDE];
	const struct dev *dev = m->devs[dev_index];
	struct growth_interval now;
	bool open = false;
	int err;

	*best = (struct growth_interval){ .unit_no = 0 };
	*ret = (struct growth_inside){ .known = false };
	if (w->kind != STEP_OPT || w->per.file)
		return 0;
	err = examine_calls(m, dev_index, TRACK_INSIDE, 0, &now);
	if (err)
		return err;
	if (dev_index < w->inside.nbest)
		*best = w->inside.best[dev_index];
	if (now.unit_no && is_long(&w->inside, now.calls)) {
		uint64_t last = w->sums[dev_index]->v[TRACK_INSIDE][SUM_ALLOCATED][t->n - 1];

		open = now.top - last < now.grown / 2;
		if (open || now.grown > best->grown)
			*best = now;
	}
	if (!best->unit_no || !is_long(&w->inside, best->calls) ||
	    best->grown < dev->pub.peak_allocated / PART ||
	    best->top < dev->pub.peak_allocated / 2) {
		best->unit_no = 0;
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

/* ---- units ---- */

#define UNITS_MAX (1u << 20)
#define STEPS_ENOUGH 16 /* enough steps to stop counting slices of time */

int growth__watch(struct model *m, enum group by)
{
	struct growth_watch *w;

	if (by != BY_LINE && by != BY_STACK && by != BY_MODULE && by != BY_CATEGORY)
		return -EINVAL;
	if (m->growth)
		return m->growth->by == by ? 0 : -EINVAL;
	w = calloc(1, sizeof(*w));
	if (!w)
		return -ENOMEM;
	w->by = by;
	w->max = TREND_MAX;
	w->kind = STEP_CALL;
	for (int t = 0; t < TRACK_NR; t++)
		w->track[t] = (struct growth_track){ .on = t != TRACK_INSIDE, .stride = 1 };
	m->growth = w;
	return 0;
}

int growth__per_line(struct model *m, const char *file, uint32_t line)
{
	if (!m->growth)
		return -EINVAL;
	m->growth->per = (struct growth_requests){ .file = file, .line = line };
	return 0;
}

uint64_t growth__requests(const struct model *m)
{
	return m->growth && m->growth->per.file ? m->growth->track[TRACK_STEPS].passed : 0;
}

bool growth__watches(const struct model *m, enum group by)
{
	return m->growth && m->growth->by == by;
}

void growth__unwatch(struct model *m)
{
	struct growth_watch *w = m->growth;

	if (!w)
		return;
	for (uint32_t i = 0; i < w->n; i++)
		for (int t = 0; t < TRACK_NR; t++)
			free(w->units[i].s[t].v);
	for (uint32_t i = 0; i < w->nsums; i++)
		free(w->sums[i]);
	for (int t = 0; t < TRACK_NR; t++)
		growth__free_names(&w->late_names[t].names);
	free(w->sums);
	free(w->inside.best);
	free(w->units);
	free(w->index.slots);
	free(w->of_site);
	free(w->per.locs);
	free(w);
	m->growth = NULL;
}

/* ---- units ---- */

static struct growth_key key_of(const struct model *m, const struct growth_watch *w,
				const struct site *s)
{
	struct growth_key k = { .dev = s->dev + 1 };
	struct stack_words sw;
	struct dict_loc loc;

	if (w->n >= UNITS_MAX)
		return k;
	if (w->by == BY_STACK) {
		k.a = s->stack;
		k.b = s->node;
		k.c = s->walk;
		return k;
	}
	if (w->by == BY_MODULE) {
		k.a = s->module;
		return k;
	}
	sw = attribution__stack(m->words, attribution__line_stack(m->words, s->stack, s->node));
	if (!sw.has_line) {
		k.c = UINT32_MAX - (s->walk == MT_WALK_NO_THREAD);
		return k;
	}
	loc = dict__get_loc(m->dict, sw.user_loc);
	k.a = loc.file;
	k.b = loc.func;
	k.c = loc.line;
	return k;
}

static int new_unit(struct model *m, uint32_t site, uint32_t *ret)
{
	struct growth_watch *w = m->growth;
	struct growth_key k = key_of(m, w, &m->sites.all[site]);
	int err;

	w->coarse |= w->n >= UNITS_MAX;
	err = hash_index__entry(&w->index, m->seed, &k, sizeof(k), &w->units, &w->n, &w->cap,
				sizeof(*w->units), ret);
	if (err == 1)
		w->units[*ret].site = site;
	return err < 0 ? err : 0;
}

static int find_unit(struct model *m, uint32_t site)
{
	struct growth_watch *w = m->growth;
	uint32_t id;

	if (array__grow_zero(&w->of_site, &w->nsites, (size_t)site + 1, sizeof(*w->of_site)) ||
	    new_unit(m, site, &id))
		return -ENOMEM;
	w->of_site[site] = id + 1;
	return 0;
}

static int unit_of(struct model *m, uint32_t site, struct growth_unit **ret)
{
	const struct growth_watch *w = m->growth;

	if ((site >= w->nsites || !w->of_site[site]) && find_unit(m, site))
		return -ENOMEM;
	*ret = &w->units[w->of_site[site] - 1];
	return 0;
}

/* ---- steps and time ---- */

static int end_step(struct model *m)
{
	struct growth_watch *w = m->growth;

	w->per.last = w->now;
	if (++w->track[TRACK_STEPS].passed == STEPS_ENOUGH)
		values_clear(w, TRACK_TIME);
	return values_add(m, TRACK_STEPS);
}

int growth__step(struct model *m, enum step_kind kind)
{
	struct growth_watch *w = m->growth;
	struct growth_track *t = &w->track[TRACK_STEPS];

	if (w->per.file)
		return 0;
	if (kind != w->kind) {
		if (kind == STEP_CALL)
			return inside_call(m);
		/* After the first optimizer step, calls count within a step only. */
		if (inside_step(m, TRACK_STEPS))
			return -ENOMEM;
		if (t->passed)
			values_clear(w, TRACK_STEPS);
		t->on = true;
		w->kind = kind;
	} else if (kind == STEP_OPT && inside_step(m, TRACK_INSIDE)) {
		return -ENOMEM;
	}
	return end_step(m);
}

int growth__time(struct model *m, uint64_t time)
{
	struct growth_watch *w = m->growth;
	struct growth_track *t = &w->track[TRACK_TIME];

	if (!w->begun) {
		w->begun = true;
		w->start = time;
	}
	if (time > w->now)
		w->now = time;
	if (!t->on || w->now <= w->start || w->now < w->due)
		return 0;
	while ((w->now - w->start) / GROWTH_SLICE / t->stride > w->max)
		if (values_thin(w, TRACK_TIME))
			return -ENOMEM;
	while ((w->now - w->start) / GROWTH_SLICE / t->stride > t->n) {
		t->passed = (t->n + 1) * t->stride;
		if (values_add(m, TRACK_TIME))
			return -ENOMEM;
	}
	if (__builtin_mul_overflow((t->n + 1) * t->stride, GROWTH_SLICE, &w->due) ||
	    __builtin_add_overflow(w->due, w->start, &w->due))
		w->due = UINT64_MAX;
	return 0;
}

/* ---- requests ---- */

/* Whether a stack is charged to the line that begins requests. */
static bool is_request_line(const struct model *m, uint32_t stack)
{
	struct growth_requests *r = &m->growth->per;
	struct stack_words sw = attribution__stack(m->words, stack);
	struct dict_loc loc;
	bool is;

	if (!sw.has_line)
		return false;
	if (sw.user_loc < r->nlocs && r->locs[sw.user_loc])
		return r->locs[sw.user_loc] - 1;
	loc = dict__get_loc(m->dict, sw.user_loc);
	is = loc.line == r->line && files__is(dict__str(m->dict, loc.file), r->file);
	/* Without memory for the cache, the next call looks again. */
	if (sw.user_loc < dict__counts(m->dict).locs &&
	    !array__grow_zero(&r->locs, &r->nlocs, (size_t)sw.user_loc + 1, 1))
		r->locs[sw.user_loc] = 1 + is;
	return is;
}

static bool begins_request(const struct model *m, const struct site *s)
{
	const struct growth_requests *r = &m->growth->per;

	if (!r->file || (r->dev_no && r->dev_no != s->dev + 1u) ||
	    m->devs[s->dev]->pub.device.type == DEVICE_HOST)
		return false;
	return is_request_line(m, s->stack) && !attribution__charged(m->words, s->stack, s->node);
}

/* Requests that began after a block of this time. Between values that are kept the number is not
 * known, and the least one is taken. */
static uint64_t requests_since(const struct growth_watch *w, uint64_t time)
{
	const struct growth_track *t = &w->track[TRACK_STEPS];
	uint32_t low = 0, high = t->n;

	while (low < high) {
		uint32_t middle = low + (high - low) / 2;

		if (w->per.times[middle] <= time)
			low = middle + 1;
		else
			high = middle;
	}
	return low < t->n ? t->passed - low * t->stride - (t->stride - 1) : 0;
}

/* ---- names ---- */

int growth__add_name(struct growth_names *s, const struct growth_named *blocks)
{
	uint64_t key = (uint64_t)blocks->unit << 32 | blocks->name, i;

	if (!s->at)
		s->at = map64__new();
	if (!s->at)
		return -ENOMEM;
	if (!map64__get(s->at, key, &i)) {
		i = s->n;
		if (array__grow_zero(&s->all, &s->cap, i + 1, sizeof(*s->all)) ||
		    map64__set(s->at, key, i))
			return -ENOMEM;
		s->all[s->n++] = (struct growth_named){ .unit = blocks->unit,
							.name = blocks->name };
	}
	s->all[i].bytes += blocks->bytes;
	s->all[i].count += blocks->count;
	return 0;
}

static int cmp_named(const void *a, const void *b)
{
	const struct growth_named *x = a, *y = b;

	if (x->unit != y->unit)
		return x->unit < y->unit ? -1 : 1;
	if (x->bytes != y->bytes)
		return x->bytes > y->bytes ? -1 : 1;
	return x->name < y->name ? -1 : x->name > y->name;
}

void growth__sort_names(struct growth_names *s)
{
	if (s->n)
		qsort(s->all, s->n, sizeof(*s->all), cmp_named);
}

void growth__free_names(struct growth_names *s)
{
	map64__free(s->at);
	free(s->all);
	*s = (struct growth_names){ 0 };
}

/* ---- blocks ---- */

uint64_t growth__age(const struct model *m, const struct dev *dev, const struct rec *rec,
		     unsigned track)
{
	const struct growth_watch *w = m->growth;
	const struct stamp *s = &dev->life.stamps[rec->stamp];

	if (track == TRACK_STEPS && w->per.file)
		return requests_since(w, rec->time);
	if (track == TRACK_TIME)
		return w->now > rec->time ? (w->now - rec->time) / GROWTH_SLICE : 0;
	if (track == TRACK_INSIDE || w->kind == STEP_CALL)
		return (uint32_t)m->steps.n[STEP_CALL] - s->calls;
	return (uint32_t)m->steps.n[STEP_OPT] - s->steps;
}

/* Older than two steps and allocated after the warm-up. */
bool growth__is_old(const struct growth_watch *w, const struct rec *rec, unsigned track,
		    uint64_t age)
{
	const struct growth_track *t = &w->track[track];
	uint32_t warmup = 1 + t->n / 10;

	return rec->born && age > 2 && t->n > warmup && age <= (t->n - warmup) * t->stride;
}

/* A value of time is the one of the last allocation, so no block comes after it. */
bool growth__is_after(const struct growth_watch *w, const struct rec *rec, unsigned track,
		      uint64_t age)
{
	if (track == TRACK_TIME)
		return false;
	return w->per.file ? rec->time > w->per.last : !age;
}

static uint64_t epoch(const struct growth_watch *w, unsigned track)
{
	return track == TRACK_TIME ? w->allocs : w->track[track].passed;
}

const struct growth_late *growth__late(const struct growth_watch *w, struct growth_unit *u,
				       unsigned track)
{
	struct growth_late *l = &u->late[track];
	uint64_t now = epoch(w, track);

	if (l->ages && l->epoch == now)
		return l;
	for (; l->ages; l->ages &= l->ages - 1) {
		unsigned i = (unsigned)__builtin_ctz(l->ages);

		u->gone[track][i] += l->by_age[i];
		l->by_age[i] = 0;
	}
	memset(l->of_category, 0, sizeof(l->of_category));
	l->old = l->blocks = l->after = 0;
	l->epoch = now;
	return NULL;
}

const struct growth_names *growth__late_names(struct growth_watch *w, unsigned track)
{
	struct growth_late_names *l = &w->late_names[track];
	uint64_t now = epoch(w, track);

	if (l->epoch != now)
		growth__free_names(&l->names);
	l->epoch = now;
	return &l->names;
}

static int note_name(struct model *m, const struct dev *dev, const struct rec *rec,
		     const struct growth_unit *u, unsigned track)
{
	struct growth_watch *w = m->growth;
	uint32_t name = rec->label_no ? m->labels.all[rec->label_no - 1].name : 0;

	if (!name || growth__is_after(w, rec, track, growth__age(m, dev, rec, track)))
		return 0;
	growth__late_names(w, track);
	return growth__add_name(&w->late_names[track].names,
				&(struct growth_named){ (uint32_t)(u - w->units), name,
							m->sites.all[rec->site].size, 1 });
}

static void note_gone(struct model *m, const struct dev *dev, const struct rec *rec,
		      struct growth_unit *u, unsigned track)
{
	uint64_t size = m->sites.all[rec->site].size, age = growth__age(m, dev, rec, track);
	struct growth_late *l = &u->late[track];
	uint8_t category = category__decide(&m->sites.all[rec->site],
					    category__category(m, dev, rec, false));

	growth__late(m->growth, u, track);
	if (track == TRACK_STEPS && category == CATEGORY_INPUT)
		u->tops.input += size;
	l->by_age[growth__bucket(age)] += size;
	l->ages |= 1u << growth__bucket(age);
	if (growth__is_after(m->growth, rec, track, age)) {
		l->after += size;
		return;
	}
	l->of_category[category < CATEGORY_NR ? category : CATEGORY_UNKNOWN] += size;
	l->old += growth__is_old(m->growth, rec, track, age) ? size : 0;
	l->blocks++;
}

/* ---- peaks ---- */

static void add_top(struct growth_tops *t, uint64_t step, double top, uint64_t steps)
{
	double first, n;

	if (step + steps <= GROWTH_WARMUP)
		return;
	first = step < GROWTH_WARMUP ? GROWTH_WARMUP : (double)step;
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

/* ---- events ---- */

/* Blocks from before attach can only be freed. */
static bool is_followed(const struct site *s)
{
	return s->walk != WALK_CENSUS;
}

int growth__came(struct model *m, uint32_t site)
{
	const struct site *s = &m->sites.all[site];
	struct growth_unit *u;

	if (!is_followed(s))
		return 0;
	if (unit_of(m, site, &u))
		return -ENOMEM;
	for (unsigned t = 0; t < TRACK_NR; t++) {
		struct growth_series *values = &u->s[t];

		if (!m->growth->track[t].on ||
		    (values->n == m->growth->track[t].n &&
		     (t != TRACK_INSIDE || u->round == m->growth->inside.round)))
			continue;
		values->settled = u->live;
		values->settled_allocations = u->allocations;
		if (growth_values__fill(m->growth, u, t))
			return -ENOMEM;
	}
	growth__touch_peaks(m->growth, u);
	m->growth->allocs++;
	m->growth->last_alloc = m->growth->now;
	u->live += s->size;
	if (u->live > u->tops.top)
		u->tops.top = u->live;
	u->allocated += s->size;
	u->allocations++;
	if (!begins_request(m, s))
		return 0;
	m->growth->per.dev_no = s->dev + 1u;
	return end_step(m);
}

int growth__left(struct model *m, const struct dev *dev, const struct rec *rec)
{
	const struct site *s = &m->sites.all[rec->site];
	struct growth_unit *u;

	if (!is_followed(s))
		return 0;
	if (unit_of(m, rec->site, &u))
		return -ENOMEM;
	growth__touch_peaks(m->growth, u);
	for (unsigned t = 0; t < TRACK_NR; t++) {
		if (!m->growth->track[t].on)
			continue;
		if (growth_values__fill(m->growth, u, t))
			return -ENOMEM;
		note_gone(m, dev, rec, u, t);
		if (note_name(m, dev, rec, u, t))
			return -ENOMEM;
	}
	u->live -= s->size;
	return 0;
}

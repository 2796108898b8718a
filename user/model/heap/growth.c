/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Records the live bytes of units while events pass, and judges at the end which of them grew.
 *
 * A unit is a line, stack or module whose blocks are counted together. A value is the unit's live
 * bytes at the end of a step or slice of time. Values are filled in when the unit changes next,
 * since they are equal until then. So a step's end needs no pass over all units. Values are kept by
 * steps and by time (struct growth_track), since the clock is chosen at the end, or once there are
 * many steps.
 */
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
#include "model/heap/growth_watch.h"
#include "model/heap/hash_index.h"
#include "model/heap/heap.h"
#include "model/heap/state.h"
#include "model/heap/steps.h"
#include "record/dict.h"
#include "record/files.h"

/* Series of values: one for each step, for each slice of time, and for each call of the model since
 * the last optimizer step (TRACK_INSIDE). */
enum { TRACK_STEPS, TRACK_TIME, TRACK_INSIDE, TRACK_NR };
/* Sums of a device that are kept next to the units: SUM_TAKEN is memory of code other than the
 * allocator. */
enum { SUM_ALLOCATED, SUM_RESERVED, SUM_TAKEN, GROWTH_SUMS };

/* Number of values of a track so far; it is the same for all units. */
struct growth_track {
	bool on;
	uint64_t passed; /* steps (slices) that ended, without those that lack stacks */
	uint64_t stride; /* steps (slices) between two values */
	uint32_t n;	 /* number of values */
};

struct growth_unit {
	struct growth_key {
		uint32_t dev, a, b, c; /* dev: number of the device plus 1; others: see key_of() */
	} key;
	uint32_t site;	/* first site of the unit */
	bool between;	/* blocks of steps whose stacks were not recorded: site->between */
	uint32_t round; /* values of TRACK_INSIDE from another growth_inside_watch.round are void */
	uint64_t live, allocated, allocations; /* bytes now; bytes and number of all allocations */
	struct growth_series {
		uint64_t *v; /* values; NULL: all 0 */
		uint32_t n, cap;
		/* Live bytes at the last value before the last allocation, and the number of
		 * allocations until then. Frees at the program's end do not change them. */
		uint64_t settled, settled_allocations;
	} s[TRACK_NR];
	uint64_t gone[TRACK_NR][GROWTH_AGES]; /* freed bytes, by the age that they reached */
	/* Blocks freed since the last value. They do not count as gone until another value comes,
	 * since a program frees everything when it ends. */
	struct growth_late {
		/* value_number() of the last value; number of blocks; bytes that is_old(). */
		uint64_t epoch, blocks, old;
		uint64_t after; /* bytes allocated after the last value, counted in by_age only */
		uint32_t ages;	/* bit i: by_age[i] is not 0 */
		uint64_t by_age[GROWTH_AGES], of_category[CATEGORY_NR];
	} late[TRACK_NR];
	/* The unit's top in each step, which is its highest live bytes, for the slope of the tops. */
	struct growth_tops {
		uint64_t step, top; /* number of the current step, and its top so far */
		uint64_t last;	    /* top of the step before */
		double sum, moment; /* sums over earlier steps: tops, and tops times their step */
		uint64_t input;	    /* bytes of freed blocks that were inputs */
	} tops;
};

/* Growth of a device by calls within one step. */
struct growth_interval {
	uint32_t unit_no;     /* unit that grew most; 0: none grew */
	uint64_t step, calls; /* number of the step, and calls until its highest value */
	uint64_t grown, top;  /* the device's bytes: rise until that value, and that value */
	uint64_t live;	      /* the unit's bytes at that value */
	double per_call, lines_per_call;
	size_t lines;
	struct trend trend;
};

/* Blocks of one unit that have the same name. */
struct growth_named {
	uint32_t unit, name; /* index of the unit; number of the text in the dict */
	uint64_t bytes, count;
};

/* Names of blocks, for all units. All fields 0: empty. */
struct growth_names {
	struct growth_named *all; /* owned */
	uint32_t n;
	size_t cap;
	struct map64 *at; /* unit and name -> index in all */
};

struct growth_watch {
	enum group by;
	uint32_t *unit_no_by_site; /* 0: none yet */
	size_t nsites;
	struct growth_unit *units;
	uint32_t n;
	size_t cap;
	struct hash_index index;
	struct growth_track track[TRACK_NR];
	enum step_kind kind; /* the steps of TRACK_STEPS: optimizer steps, or calls */
	uint32_t max;	     /* maximum number of values of a unit */
	uint64_t cells;	     /* number of values allocated for all units together */
	bool coarse;	     /* too many units: later lines share one */
	struct growth_requests {
		const char *file;      /* NULL: steps are not requests */
		uint32_t line, dev_no; /* dev_no: device whose blocks count; 0: none yet */
		/* By dict location, 0: not checked, 1: another line, 2: the line of the requests. */
		uint8_t *locs;
		size_t nlocs;
		uint64_t times[TREND_MAX]; /* times of the values in TRACK_STEPS, ns */
		uint64_t last;		   /* time of the last step or request, ns */
	} requests;
	/*
	 * A recorder with a limit on its cost may record stacks in some whole steps only. Steps
	 * without have no values: a line's bytes grow from one step with stacks to the next as they
	 * would from step to step. `of` has the number of steps of both kinds until each value in
	 * TRACK_STEPS.
	 */
	struct growth_gaps {
		bool now;      /* the step under way lacks stacks */
		uint64_t all;  /* steps without stacks */
		uint64_t last; /* ... since the last value */
		uint64_t of[TREND_MAX];
	} gaps;
	bool begun;	     /* TRACK_TIME: the first event came, at start */
	uint64_t start, now; /* ns */
	uint64_t due;	     /* no slice of time ends before this time, ns */
	/* Number of allocations; time of the last one, ns. Slices of time end with it. */
	uint64_t allocs, last_alloc;
	struct growth_sums {
		uint64_t v[TRACK_NR][GROWTH_SUMS][TREND_MAX];
	} * *sums; /* sums of each device */
	size_t nsums;
	/* Blocks with a name freed since the last value, as in growth_late. */
	struct growth_late_names {
		uint64_t epoch;
		struct growth_names names;
	} late_names[TRACK_NR];
	struct growth_inside_watch {
		uint32_t round;			/* number of steps that were judged */
		uint64_t calls;			/* calls since the last step */
		uint64_t steps_of[GROWTH_AGES]; /* number of steps, by bucket_of() their calls */
		struct growth_interval *best;	/* by device: the step with its largest growth */
		size_t nbest;
	} inside;
};

#define GROWTH_WARMUP 3			/* steps that do not count for the slope of a line */
#define GROWTH_SLICE UINT64_C(10000000) /* a slice of time before thinning, ns */

/* Returns the bucket of an age: 0, 1, 2-3, 4-7 ... go to buckets 0, 1, 2, 3 ...; large ages to the
 * last one. */
static unsigned bucket_of(uint64_t age)
{
	unsigned bits = age ? 64 - (unsigned)__builtin_clzll(age) : 0;

	return bits < GROWTH_AGES - 1 ? bits : GROWTH_AGES - 1;
}

/* ---- values of units and devices ---- */

#define CELLS_MAX (UINT64_C(1) << 24) /* values of all units together: 128 MiB */
#define VALUES_LEAST 32		      /* values kept of each unit, however many units there are */

/* Empties the unit's TRACK_INSIDE for another step. */
static void begin_values(struct growth_watch *w, struct growth_unit *u)
{
	struct growth_series *s = &u->s[TRACK_INSIDE];

	u->round = w->inside.round;
	s->n = 0;
	s->settled = s->settled_allocations = 0;
	memset(u->gone[TRACK_INSIDE], 0, sizeof(u->gone[TRACK_INSIDE]));
	memset(&u->late[TRACK_INSIDE], 0, sizeof(u->late[TRACK_INSIDE]));
}

/* Appends the values that a unit lacks: all equal the live bytes of now. A unit whose values are
 * all 0 has no array. Returns 0 or -ENOMEM. */
static int append_live_bytes(struct growth_watch *w, struct growth_unit *u, unsigned track)
{
	struct growth_series *series = &u->s[track];
	uint32_t wanted = w->track[track].n, cap;
	uint64_t *values;

	if (!series->v && !u->live) {
		series->n = wanted;
		return 0;
	}
	if (wanted > series->cap) {
		for (cap = series->cap ? series->cap : VALUES_LEAST; cap < wanted; cap *= 2)
			;
		values = realloc(series->v, cap * sizeof(*values));
		if (!values)
			return -ENOMEM;
		if (!series->v)
			memset(values, 0, series->n * sizeof(*values));
		w->cells += cap - series->cap;
		series->v = values;
		series->cap = cap;
	}
	while (series->n < wanted)
		series->v[series->n++] = u->live;
	return 0;
}

/* Appends a unit's values up to now. Returns 0 or -ENOMEM. */
static int fill_values(struct growth_watch *w, struct growth_unit *u, unsigned track)
{
	if (track == TRACK_INSIDE && u->round != w->inside.round)
		begin_values(w, u);
	return u->s[track].n == w->track[track].n ? 0 : append_live_bytes(w, u, track);
}

/* Keeps every second value. Returns 0 or -ENOMEM. */
static int thin_values(struct growth_watch *w, unsigned track)
{
	struct growth_track *progress = &w->track[track];

	for (uint32_t i = 0; i < w->n; i++) {
		struct growth_series *s = &w->units[i].s[track];

		if (fill_values(w, &w->units[i], track))
			return -ENOMEM;
		s->n = progress->n / 2;
		for (uint32_t k = 0; s->v && k < s->n; k++)
			s->v[k] = s->v[2 * k + 1];
	}
	for (uint32_t d = 0; d < w->nsums; d++)
		for (int i = 0; w->sums[d] && i < GROWTH_SUMS; i++)
			for (uint32_t k = 0; k < progress->n / 2; k++)
				w->sums[d]->v[track][i][k] = w->sums[d]->v[track][i][2 * k + 1];
	for (uint32_t k = 0; track == TRACK_STEPS && k < progress->n / 2; k++) {
		w->requests.times[k] = w->requests.times[2 * k + 1];
		w->gaps.of[k] = w->gaps.of[2 * k + 1];
	}
	progress->n /= 2;
	progress->stride *= 2;
	return 0;
}

/* Halves the number of values kept of each unit, because there are too many units. Returns 0 or
 * -ENOMEM. */
static int halve_values(struct growth_watch *w)
{
	w->max /= 2;
	for (unsigned t = 0; t < TRACK_NR; t++)
		while (w->track[t].n > w->max)
			if (thin_values(w, t))
				return -ENOMEM;
	for (uint32_t i = 0; i < w->n; i++)
		for (int t = 0; t < TRACK_NR; t++) {
			struct growth_series *s = &w->units[i].s[t];
			uint64_t *smaller = s->cap > w->max
						    ? realloc(s->v, w->max * sizeof(*smaller))
						    : NULL;

			if (!smaller)
				continue;
			w->cells -= s->cap - w->max;
			s->v = smaller;
			s->cap = w->max;
		}
	return 0;
}

/* Sets value `at` of each device's sums. Returns 0 or -ENOMEM. */
static int note_sums(struct model *m, unsigned track, uint32_t at)
{
	struct growth_watch *watch = m->growth;

	if (array__grow_zero(&watch->sums, &watch->nsums, m->ndevs, sizeof(*watch->sums)))
		return -ENOMEM;
	for (uint32_t d = 0; d < m->ndevs; d++) {
		const struct dev *dev = m->devs[d];

		if (!watch->sums[d])
			watch->sums[d] = calloc(1, sizeof(*watch->sums[d]));
		if (!watch->sums[d])
			return -ENOMEM;
		watch->sums[d]->v[track][SUM_ALLOCATED][at] = dev->pub.allocated - dev->late;
		watch->sums[d]->v[track][SUM_RESERVED][at] = dev->pub.reserved;
		watch->sums[d]->v[track][SUM_TAKEN][at] = dev->extents.sums[SUM_OTHERS];
	}
	return 0;
}

/* Adds the live bytes of now as a value of all units, if the track's stride is due. Returns 0 or
 * -ENOMEM. */
static int add_value(struct model *m, unsigned track)
{
	struct growth_watch *w = m->growth;
	struct growth_track *progress = &w->track[track];

	if (progress->n == w->max && thin_values(w, track))
		return -ENOMEM;
	if (w->cells > CELLS_MAX && w->max > VALUES_LEAST && halve_values(w))
		return -ENOMEM;
	if (progress->passed % progress->stride)
		return 0;
	if (track == TRACK_STEPS) {
		w->requests.times[progress->n] = w->now;
		w->gaps.of[progress->n] = progress->passed + w->gaps.all;
	}
	return note_sums(m, track, progress->n++);
}

/* Makes a track empty. */
static void clear_values(struct growth_watch *w, unsigned track)
{
	for (uint32_t i = 0; i < w->n; i++) {
		struct growth_series *series = &w->units[i].s[track];

		free(series->v);
		w->cells -= series->cap;
		*series = (struct growth_series){ 0 };
		memset(w->units[i].gone[track], 0, sizeof(w->units[i].gone[track]));
		memset(&w->units[i].late[track], 0, sizeof(w->units[i].late[track]));
		if (track == TRACK_STEPS)
			w->units[i].tops = (struct growth_tops){ .top = w->units[i].live };
	}
	w->track[track] = (struct growth_track){ .stride = 1 };
	if (track == TRACK_STEPS)
		w->gaps = (struct growth_gaps){ .now = w->gaps.now };
}

static const uint64_t zeros[TREND_MAX];

/* Returns the unit's values in a track; fill_values() makes them complete. */
static const uint64_t *unit_series(const struct growth_unit *u, unsigned track)
{
	return u->s[track].v ? u->s[track].v : zeros;
}

/* Returns the values of a device's sum (SUM_ALLOCATED ...) in a track. */
static const uint64_t *device_series(const struct growth_watch *w, uint32_t dev_index,
				     unsigned track, unsigned sum)
{
	return dev_index < w->nsums && w->sums[dev_index] ? w->sums[dev_index]->v[track][sum]
							  : zeros;
}

/* ---- growth inside a step ---- */

#define INSIDE_FROM 8 /* the call whose end is the first value: most steps have fewer calls */
/* A long step is this many buckets of calls above the median: about four times as many calls. */
#define INSIDE_LONGER 2
#define INSIDE_PART 10	/* growth counts from a tenth of the device's peak on */
#define INSIDE_SHARE 32 /* a unit's growth counts from this part of the device's growth on */

/* Handles the end of a call of the model between two optimizer steps. Returns 0 or -ENOMEM. */
static int end_inner_call(struct model *m)
{
	struct growth_watch *w = m->growth;

	if (++w->inside.calls < INSIDE_FROM)
		return 0;
	w->track[TRACK_INSIDE].on = true;
	w->track[TRACK_INSIDE].passed++;
	return add_value(m, TRACK_INSIDE);
}

/* Returns the device's rise, in bytes, from its lowest value to its highest one after that. *top:
 * the highest value; *n: number of values until then. */
static uint64_t find_rise(const struct growth_watch *w, uint32_t dev, unsigned track, size_t *n,
			  uint64_t *top)
{
	const struct growth_track *t = &w->track[track];
	const uint64_t *values = w->sums[dev]->v[track][SUM_ALLOCATED];
	uint64_t low = UINT64_MAX;

	*n = *top = 0;
	for (size_t i = 0; i < t->n; i++)
		if (values[i] >= *top) {
			*top = values[i];
			*n = i + 1;
		}
	for (size_t i = 0; i < *n; i++)
		low = values[i] < low ? values[i] : low;
	return *n ? *top - low : 0;
}

/* Judges the first n values of a device's units. Sets the number of units that grew in ret, and the
 * one that grew fastest. Returns 0 or -ENOMEM. */
static int judge_units(struct growth_watch *w, uint32_t dev, unsigned track, size_t n,
		       struct growth_interval *ret)
{
	struct trend_opts opts = { .min_growth = ret->grown / INSIDE_SHARE };
	double stride = (double)w->track[track].stride;
	struct trend trend;

	for (uint32_t i = 0; i < w->n; i++) {
		const uint64_t *values;

		if (w->units[i].key.dev != dev + 1)
			continue;
		if (fill_values(w, &w->units[i], track))
			return -ENOMEM;
		values = unit_series(&w->units[i], track);
		opts.tests += values[n - 1] > values[0]; /* only these are tested below */
	}
	for (uint32_t i = 0; i < w->n; i++) {
		const uint64_t *values = unit_series(&w->units[i], track);

		if (w->units[i].key.dev != dev + 1 || values[n - 1] <= values[0] ||
		    values[n - 1] - values[0] < ret->grown / INSIDE_SHARE)
			continue;
		trend__judge(values, n, &opts, &trend);
		if (!trend__counts(&trend, TREND_MEDIUM))
			continue;
		ret->lines++;
		ret->lines_per_call += trend.slope / stride;
		if (trend.slope / stride <= ret->per_call)
			continue;
		ret->per_call = trend.slope / stride;
		ret->unit_no = i + 1;
		ret->live = values[n - 1];
		ret->trend = trend;
	}
	return 0;
}

/* Judges the growth of a device in the calls of a track. ret->unit_no stays 0 if the device grew by
 * at most `least` bytes, or no unit grew. Returns 0 or -ENOMEM. */
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
	if (n < TREND_MIN || now.grown <= least || now.grown < now.top / INSIDE_PART)
		return 0;
	now.calls = (track == TRACK_INSIDE ? INSIDE_FROM - 1 : 0) + n * w->track[track].stride;
	*ret = now;
	return judge_units(w, dev, track, n, ret);
}

/* Handles the end of an optimizer step: judges the growth in its calls, whose values track has.
 * Returns 0 or -ENOMEM. */
static int end_optimizer_step(struct model *m, unsigned track)
{
	struct growth_watch *watch = m->growth;
	struct growth_inside_watch *inside = &watch->inside;
	uint64_t calls = track == TRACK_INSIDE ? inside->calls : watch->track[track].passed;
	struct growth_interval now;

	if (watch->gaps.now) { /* calls of modules were not recorded either */
		inside->calls = 0;
		inside->round++;
		watch->track[TRACK_INSIDE] = (struct growth_track){ .stride = 1 };
		return 0;
	}
	inside->steps_of[bucket_of(calls)]++;
	inside->calls = 0;
	if (calls < INSIDE_FROM)
		return 0;
	if (array__grow_zero(&inside->best, &inside->nbest, m->ndevs, sizeof(*inside->best)))
		return -ENOMEM;
	for (uint32_t d = 0; d < m->ndevs; d++) {
		if (examine_calls(m, d, track, inside->best[d].grown, &now))
			return -ENOMEM;
		if (now.unit_no) {
			now.step -= now.step > 0; /* it has ended, and is counted already */
			inside->best[d] = now;
		}
	}
	inside->round++;
	watch->track[TRACK_INSIDE] = (struct growth_track){ .stride = 1 };
	return 0;
}

/* True if a step with that many calls is longer than most. */
static bool is_long_step(const struct growth_inside_watch *s, uint64_t calls)
{
	uint64_t all = 0, below = 0;
	unsigned median = 0; /* bucket of the median step */

	for (int i = 0; i < GROWTH_AGES; i++)
		all += s->steps_of[i];
	while (all && median < GROWTH_AGES - 1 && (below += s->steps_of[median]) * 2 < all)
		median++;
	return bucket_of(calls) >= median + INSIDE_LONGER;
}

/* Finds the step of a device with the most growth inside: the current one, which is open, or one
 * that ended. ret->known and best->unit_no stay 0 if it does not matter. Returns 0 or -ENOMEM. */
static int find_inside(const struct model *m, uint32_t dev_index, struct growth_inside *ret,
		       struct growth_interval *best)
{
	struct growth_watch *watch = m->growth;
	const struct growth_track *track = &watch->track[TRACK_INSIDE];
	const struct dev *dev = m->devs[dev_index];
	struct growth_interval now;
	bool open = false;
	int err;

	*best = (struct growth_interval){ .unit_no = 0 };
	*ret = (struct growth_inside){ .known = false };
	if (watch->kind != STEP_OPT || watch->requests.file)
		return 0;
	err = examine_calls(m, dev_index, TRACK_INSIDE, 0, &now);
	if (err)
		return err;
	if (dev_index < watch->inside.nbest)
		*best = watch->inside.best[dev_index];
	if (now.unit_no && is_long_step(&watch->inside, now.calls)) {
		/* the allocated bytes after the step's last call */
		uint64_t last = watch->sums[dev_index]->v[TRACK_INSIDE][SUM_ALLOCATED][track->n - 1];

		/* Most of the memory is live still. */
		open = now.top - last < now.grown / 2;
		if (open || now.grown > best->grown)
			*best = now;
	}
	/* Growth in a step like most others, or far below the device's peak, does not matter. */
	if (!best->unit_no || !is_long_step(&watch->inside, best->calls) ||
	    best->grown < dev->pub.peak_allocated / INSIDE_PART ||
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
#define KEY_BETWEEN (UINT32_MAX - 2) /* growth_unit.between: member c of its key */
#define STEPS_ENOUGH 16		     /* enough steps to stop counting slices of time */

int growth__watch(struct model *m, enum group by)
{
	struct growth_watch *watch;

	if (by != BY_LINE && by != BY_STACK && by != BY_MODULE && by != BY_CATEGORY)
		return -EINVAL;
	if (m->growth)
		return m->growth->by == by ? 0 : -EINVAL;
	watch = calloc(1, sizeof(*watch));
	if (!watch)
		return -ENOMEM;
	watch->by = by;
	watch->max = TREND_MAX;
	watch->kind = STEP_CALL;
	for (int t = 0; t < TRACK_NR; t++)
		watch->track[t] = (struct growth_track){ .on = t != TRACK_INSIDE, .stride = 1 };
	m->growth = watch;
	return 0;
}

int growth__use_requests_at(struct model *m, const char *file, uint32_t line)
{
	if (!m->growth)
		return -EINVAL;
	m->growth->requests = (struct growth_requests){ .file = file, .line = line };
	return 0;
}

uint64_t growth__requests(const struct model *m)
{
	return m->growth && m->growth->requests.file ? m->growth->track[TRACK_STEPS].passed : 0;
}

bool growth__watches(const struct model *m, enum group by)
{
	return m->growth && m->growth->by == by;
}

void growth__mark_sites(const struct model *m, uint8_t *used)
{
	for (uint32_t i = 0; i < m->growth->n; i++)
		used[m->growth->units[i].site] = 1;
}

void growth__drop_site(struct model *m, uint32_t site)
{
	if (site < m->growth->nsites)
		m->growth->unit_no_by_site[site] = 0;
}

/* Returns the properties that blocks of one unit share. BY_CATEGORY: those of a line. Beyond
 * UNITS_MAX units, all further blocks of a device share one. */
static struct growth_key key_of(const struct model *m, const struct growth_watch *w,
				const struct site *site)
{
	struct growth_key key = { .dev = site->dev + 1 };
	struct stack_origin origin;
	struct dict_loc loc;

	if (w->n >= UNITS_MAX)
		return key;
	if (site->between) {
		key.c = KEY_BETWEEN;
		return key;
	}
	if (w->by == BY_STACK) {
		key.a = site->stack;
		key.b = site->node;
		key.c = site->walk;
		return key;
	}
	if (w->by == BY_MODULE) {
		key.a = site->module;
		return key;
	}
	origin = attribution__stack(
		m->attribution, attribution__line_stack(m->attribution, site->stack, site->node));
	if (!origin.has_line) {
		/* no line: distinguishes native code from stacks that were not read */
		key.c = UINT32_MAX - (site->walk == MT_WALK_NO_THREAD);
		return key;
	}
	loc = dict__get_loc(m->dict, origin.user_loc);
	key.a = loc.file;
	key.b = loc.func;
	key.c = loc.line;
	return key;
}

/* Finds or adds the unit of a site. Returns 0 or -ENOMEM. */
static int find_or_add_unit(struct model *m, uint32_t site, uint32_t *ret)
{
	struct growth_watch *w = m->growth;
	struct growth_key key = key_of(m, w, &m->sites.all[site]);
	int err;

	w->coarse |= w->n >= UNITS_MAX;
	err = hash_index__entry(&w->index, m->seed, &key, sizeof(key), &w->units, &w->n, &w->cap,
				sizeof(*w->units), ret);
	if (err == 1) {
		w->units[*ret].site = site;
		w->units[*ret].between = key.c == KEY_BETWEEN;
	}
	return err < 0 ? err : 0;
}

/* Keeps the unit of a site. Returns 0 or -ENOMEM. */
static int assign_unit(struct model *m, uint32_t site)
{
	struct growth_watch *w = m->growth;
	uint32_t id;

	if (array__grow_zero(&w->unit_no_by_site, &w->nsites, (size_t)site + 1,
			     sizeof(*w->unit_no_by_site)) ||
	    find_or_add_unit(m, site, &id))
		return -ENOMEM;
	w->unit_no_by_site[site] = id + 1;
	return 0;
}

/* Sets *ret to the unit of a site. Returns 0 or -ENOMEM. */
static int get_unit(struct model *m, uint32_t site, struct growth_unit **ret)
{
	const struct growth_watch *w = m->growth;

	if ((site >= w->nsites || !w->unit_no_by_site[site]) && assign_unit(m, site))
		return -ENOMEM;
	*ret = &w->units[w->unit_no_by_site[site] - 1];
	return 0;
}

/* ---- steps and time ---- */

/* Handles the end of a step, call or request. Returns 0 or -ENOMEM. */
static int end_step(struct model *m)
{
	struct growth_watch *w = m->growth;

	w->requests.last = w->now;
	if (w->gaps.now && !w->requests.file) {
		w->gaps.now = false;
		w->gaps.all++;
		w->gaps.last++;
		return 0;
	}
	w->gaps.last = 0;
	if (++w->track[TRACK_STEPS].passed == STEPS_ENOUGH)
		clear_values(w, TRACK_TIME);
	return add_value(m, TRACK_STEPS);
}

int growth__end_step(struct model *m)
{
	struct growth_watch *watch = m->growth;
	struct growth_track *track = &watch->track[TRACK_STEPS];

	if (watch->requests.file)
		return 0;
	if (watch->kind == STEP_CALL) {
		/* The first optimizer step: until now calls counted as steps; from now on they
		 * count within a step only. */
		if (end_optimizer_step(m, TRACK_STEPS))
			return -ENOMEM;
		if (track->passed)
			clear_values(watch, TRACK_STEPS);
		track->on = true;
		watch->kind = STEP_OPT;
	} else if (end_optimizer_step(m, TRACK_INSIDE)) {
		return -ENOMEM;
	}
	return end_step(m);
}

/* Outside of optimizers' steps, calls themselves are the clock: growth__settle_call(). A server's
 * requests are steps. */
int growth__end_call(struct model *m)
{
	const struct growth_watch *watch = m->growth;

	return watch->kind == STEP_OPT && !watch->requests.file ? end_inner_call(m) : 0;
}

int growth__settle_call(struct model *m)
{
	const struct growth_watch *watch = m->growth;

	return watch->kind == STEP_CALL && !watch->requests.file ? end_step(m) : 0;
}

/* Adds the values of the slices of time that ended until `time`. Each value stands for `stride`
 * slices: the more slices, the larger the stride, so that watch->max values suffice. */
int growth__advance_time(struct model *m, uint64_t time)
{
	struct growth_watch *watch = m->growth;
	struct growth_track *track = &watch->track[TRACK_TIME];

	if (!watch->begun) {
		watch->begun = true;
		watch->start = time;
	}
	if (time > watch->now)
		watch->now = time;
	if (!track->on || watch->now <= watch->start || watch->now < watch->due)
		return 0; /* no slice ended */
	/* First makes room for all values up to now, then adds them. */
	while ((watch->now - watch->start) / GROWTH_SLICE / track->stride > watch->max)
		if (thin_values(watch, TRACK_TIME))
			return -ENOMEM;
	while ((watch->now - watch->start) / GROWTH_SLICE / track->stride > track->n) {
		track->passed = (track->n + 1) * track->stride;
		if (add_value(m, TRACK_TIME))
			return -ENOMEM;
	}
	/* the end of the next value's slices */
	if (__builtin_mul_overflow((track->n + 1) * track->stride, GROWTH_SLICE, &watch->due) ||
	    __builtin_add_overflow(watch->due, watch->start, &watch->due))
		watch->due = UINT64_MAX;
	return 0;
}

/* ---- requests ---- */

/* True if a stack is charged to the line that begins requests. */
static bool is_request_line(const struct model *m, uint32_t stack)
{
	struct growth_requests *requests = &m->growth->requests;
	struct stack_origin origin = attribution__stack(m->attribution, stack);
	struct dict_loc loc;
	bool matches;

	if (!origin.has_line)
		return false;
	if (origin.user_loc < requests->nlocs && requests->locs[origin.user_loc])
		return requests->locs[origin.user_loc] - 1;
	loc = dict__get_loc(m->dict, origin.user_loc);
	matches = loc.line == requests->line &&
		  files__is(dict__str(m->dict, loc.file), requests->file);
	/* Without memory for the cache, the next call looks again. */
	if (origin.user_loc < dict__counts(m->dict).locs &&
	    !array__grow_zero(&requests->locs, &requests->nlocs, (size_t)origin.user_loc + 1, 1))
		requests->locs[origin.user_loc] = 1 + matches;
	return matches;
}

/* True if an allocation of this site begins a request. */
static bool begins_request(const struct model *m, const struct site *s)
{
	const struct growth_requests *r = &m->growth->requests;

	if (!r->file || (r->dev_no && r->dev_no != s->dev + 1u) ||
	    device__in_pieces(m->devs[s->dev]->pub.device))
		return false;
	return is_request_line(m, s->stack) &&
	       !attribution__charged(m->attribution, s->stack, s->node);
}

/* Returns the number of requests that began after this time, ns. Between two kept values the exact
 * number is not known: then the smallest possible one. */
static uint64_t requests_since(const struct growth_watch *w, uint64_t time)
{
	const struct growth_track *progress = &w->track[TRACK_STEPS];
	uint32_t low = 0, high = progress->n;

	while (low < high) {
		uint32_t middle = low + (high - low) / 2;

		if (w->requests.times[middle] <= time)
			low = middle + 1;
		else
			high = middle;
	}
	return low < progress->n
		       ? progress->passed - low * progress->stride - (progress->stride - 1)
		       : 0;
}

/* ---- names ---- */

/* Adds blocks to the entry with their unit and name. Returns 0 or -ENOMEM. */
static int add_name(struct growth_names *s, const struct growth_named *blocks)
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

static void sort_names(struct growth_names *s)
{
	if (s->n)
		qsort(s->all, s->n, sizeof(*s->all), cmp_named);
}

static void free_names(struct growth_names *s)
{
	map64__free(s->at);
	free(s->all);
	*s = (struct growth_names){ 0 };
}

/* ---- blocks ---- */

/* Returns the age of a live block in the track's unit: steps, calls, requests or slices. */
static uint64_t age_of(const struct model *m, const struct dev *dev, const struct rec *rec,
		       unsigned track)
{
	const struct growth_watch *w = m->growth;
	const struct stamp *stamp = &dev->life.stamps[rec->stamp];

	if (track == TRACK_STEPS && w->requests.file)
		return requests_since(w, rec->time);
	if (track == TRACK_TIME)
		return w->now > rec->time ? (w->now - rec->time) / GROWTH_SLICE : 0;
	if (track == TRACK_INSIDE || w->kind == STEP_CALL)
		return (uint32_t)m->steps.n[STEP_CALL] - stamp->calls;
	return (uint32_t)m->steps.n[STEP_OPT] - stamp->steps;
}

/* True if a block is older than two steps and was allocated after the warm-up. */
static bool is_old(const struct growth_watch *w, const struct rec *rec, unsigned track,
		   uint64_t age)
{
	const struct growth_track *progress = &w->track[track];
	uint32_t warmup = 1 + progress->n / 10;

	if (!rec->born || age <= 2 || progress->n <= warmup)
		return false;
	if (track == TRACK_STEPS && w->gaps.all)
		return age <= progress->passed + w->gaps.all - w->gaps.of[warmup - 1];
	return age <= (progress->n - warmup) * progress->stride;
}

/* True if a block was allocated after the track's last value. Slices of time end with the last
 * allocation, so no block comes after them. */
static bool is_after_last_value(const struct growth_watch *w, const struct rec *rec, unsigned track,
				uint64_t age)
{
	if (track == TRACK_TIME)
		return false;
	if (w->requests.file)
		return rec->time > w->requests.last;
	return track == TRACK_STEPS ? age <= w->gaps.last : !age;
}

/* Returns a number that changes when the track gets another value. */
static uint64_t value_number(const struct growth_watch *w, unsigned track)
{
	return track == TRACK_TIME ? w->allocs : w->track[track].passed;
}

/* Returns the blocks freed since the track's last value, or NULL if there are none. Blocks freed
 * before the value now count as gone. */
static const struct growth_late *current_late(const struct growth_watch *w, struct growth_unit *u,
					      unsigned track)
{
	struct growth_late *late = &u->late[track];
	uint64_t now = value_number(w, track);

	if (late->ages && late->epoch == now)
		return late;
	for (; late->ages; late->ages &= late->ages - 1) {
		unsigned i = (unsigned)__builtin_ctz(late->ages);

		u->gone[track][i] += late->by_age[i];
		late->by_age[i] = 0;
	}
	memset(late->of_category, 0, sizeof(late->of_category));
	late->old = late->blocks = late->after = 0;
	late->epoch = now;
	return NULL;
}

/* Returns the names of blocks that were freed since the track's last value; empties the list first
 * if they are from before it. */
static const struct growth_names *current_late_names(struct growth_watch *w, unsigned track)
{
	struct growth_late_names *late = &w->late_names[track];
	uint64_t now = value_number(w, track);

	if (late->epoch != now)
		free_names(&late->names);
	late->epoch = now;
	return &late->names;
}

/* Counts the name of a block that is freed now among the late names: of blocks that lived at the
 * track's last value. Returns 0 or -ENOMEM. */
static int note_name(struct model *m, const struct dev *dev, const struct rec *rec,
		     const struct growth_unit *u, unsigned track)
{
	struct growth_watch *w = m->growth;
	uint32_t name = rec->label_no ? m->labels.all[rec->label_no - 1].name : 0;

	if (!name || is_after_last_value(w, rec, track, age_of(m, dev, rec, track)))
		return 0;
	current_late_names(w, track);
	return add_name(&w->late_names[track].names,
			&(struct growth_named){ (uint32_t)(u - w->units), name,
						m->sites.all[rec->site].size, 1 });
}

/* Counts a block that is freed now in u->late. category: the block's. */
static void note_free(struct model *m, const struct dev *dev, const struct rec *rec,
		      uint8_t category, struct growth_unit *u, unsigned track)
{
	uint64_t size = m->sites.all[rec->site].size, age = age_of(m, dev, rec, track);
	struct growth_late *late = &u->late[track];

	current_late(m->growth, u, track);
	if (track == TRACK_STEPS && category == CATEGORY_INPUT)
		u->tops.input += size;
	late->by_age[bucket_of(age)] += size;
	late->ages |= 1u << bucket_of(age);
	if (is_after_last_value(m->growth, rec, track, age)) {
		late->after += size;
		return;
	}
	late->of_category[category < CATEGORY_NR ? category : CATEGORY_UNKNOWN] += size;
	late->old += is_old(m->growth, rec, track, age) ? size : 0;
	late->blocks++;
}

/* ---- peaks ---- */

/* Adds the same top for a number of steps, from step on. Steps of the warm-up do not count. */
static void add_top(struct growth_tops *t, uint64_t step, double top, uint64_t steps)
{
	double first, n;

	if (step + steps <= GROWTH_WARMUP)
		return;
	first = step < GROWTH_WARMUP ? GROWTH_WARMUP : (double)step;
	n = (double)(step + steps) - first;
	t->sum += n * top;
	t->moment += top * n * (2 * first + n - 1) / 2; /* n * top times the mean step */
}

/* Adds the tops of the steps that ended since the unit's last change. In all of them but the first
 * the live bytes did not change. */
static void update_tops(const struct growth_watch *w, struct growth_unit *u)
{
	struct growth_tops *t = &u->tops;
	uint64_t now = w->track[TRACK_STEPS].passed;

	uint64_t unchanged; /* steps that ended after t->step */

	if (t->step >= now)
		return;
	unchanged = now - t->step - 1;
	add_top(t, t->step, (double)t->top, 1);
	add_top(t, t->step + 1, (double)u->live, unchanged);
	t->last = unchanged ? u->live : t->top;
	t->step = now;
	t->top = u->live;
}

/* ---- events ---- */

/* True if growth counts the site's blocks. Blocks from before attach can only be freed. */
static bool is_counted(const struct site *s)
{
	return s->walk != WALK_CENSUS;
}

int growth__block_allocated(struct model *m, uint32_t site)
{
	const struct site *s = &m->sites.all[site];
	struct growth_unit *unit;

	if (!is_counted(s))
		return 0;
	if (get_unit(m, site, &unit))
		return -ENOMEM;
	for (unsigned t = 0; t < TRACK_NR; t++) {
		struct growth_series *values = &unit->s[t];

		if (!m->growth->track[t].on ||
		    (values->n == m->growth->track[t].n &&
		     (t != TRACK_INSIDE || unit->round == m->growth->inside.round)))
			continue;
		/* The first allocation after a value: the live bytes are still the value's. */
		values->settled = unit->live;
		values->settled_allocations = unit->allocations;
		if (fill_values(m->growth, unit, t))
			return -ENOMEM;
	}
	update_tops(m->growth, unit);
	m->growth->gaps.now |= unit->between;
	m->growth->allocs++;
	m->growth->last_alloc = m->growth->now;
	unit->live += s->size;
	if (unit->live > unit->tops.top)
		unit->tops.top = unit->live;
	unit->allocated += s->size;
	unit->allocations++;
	/* A server that takes requests has no steps: the block that each request allocates ends
	 * one. */
	if (!begins_request(m, s))
		return 0;
	m->growth->requests.dev_no = s->dev + 1u;
	return end_step(m);
}

int growth__block_freed(struct model *m, const struct dev *dev, const struct rec *rec)
{
	const struct site *site = &m->sites.all[rec->site];
	struct growth_unit *unit;
	uint8_t category;

	if (!is_counted(site))
		return 0;
	if (get_unit(m, rec->site, &unit))
		return -ENOMEM;
	update_tops(m->growth, unit);
	category = category__decide(site, category__of_record(m, dev, rec, /*dead=*/false));
	for (unsigned t = 0; t < TRACK_NR; t++) {
		if (!m->growth->track[t].on)
			continue;
		if (fill_values(m->growth, unit, t))
			return -ENOMEM;
		note_free(m, dev, rec, category, unit, t);
		if (note_name(m, dev, rec, unit, t))
			return -ENOMEM;
	}
	unit->live -= site->size;
	return 0;
}

void growth__unwatch(struct model *m)
{
	struct growth_watch *watch = m->growth;

	if (!watch)
		return;
	for (uint32_t i = 0; i < watch->n; i++)
		for (int t = 0; t < TRACK_NR; t++)
			free(watch->units[i].s[t].v);
	for (uint32_t i = 0; i < watch->nsums; i++)
		free(watch->sums[i]);
	for (int t = 0; t < TRACK_NR; t++)
		free_names(&watch->late_names[t].names);
	free(watch->sums);
	free(watch->inside.best);
	free(watch->units);
	free(watch->index.slots);
	free(watch->unit_no_by_site);
	free(watch->requests.locs);
	free(watch);
	m->growth = NULL;
}

/* ---- the judgement ---- */

/* Peaks must grow so many times as fast as memory from step to step: a tensor that is enlarged
 * exists twice for a moment. */
#define PEAKS_FASTER 3
#define PEAK_PART 20 /* growth of peaks counts from a 20th of the highest peak on */

/* Blocks of a unit that were live at the last value. */
struct survey {
	uint64_t young[GROWTH_AGES];  /* bytes, by bucket_of() their age */
	uint64_t old, blocks;	      /* bytes that is_old(); number of blocks */
	uint64_t after, after_blocks; /* allocated after the last value; young has them, too */
	uint8_t category;	      /* category with the most bytes */
	uint64_t of_category[CATEGORY_NR];
};

/* State of growth__judge() for one device. */
struct judge {
	const struct model *m;
	struct growth_watch *w;
	const struct dev *dev;
	uint32_t dev_index;
	unsigned track;
	uint64_t min_growth;
	struct growth *g;
	struct survey *survey;
	struct block *blocks; /* live blocks */
	size_t nblocks;
	uint64_t *by_category; /* BY_CATEGORY: values of each category */
	struct row *rows;      /* rows of live blocks */
	size_t nrows;
	struct growth_names names;
};

/* Memory that the results point to, owned by growth.pool. */
struct growth_pool {
	uint64_t *by_category;
	struct row *rows;
	uint64_t allocated[TREND_MAX]; /* the device's allocated bytes */
	struct growth_line inside, peaks;
};

const char *growth__clock(enum growth_clock c)
{
	static const char *const names[] = { "steps", "calls", "time", "requests" };

	return names[c];
}

const char *growth__kind(enum growth_kind k)
{
	return k == GROWTH_ENLARGED ? "enlarged" : "piles_up";
}

/* Chooses the clock: steps if there are any; time if steps are few and ended long before the
 * recording did. */
static unsigned choose_track(const struct model *m)
{
	const struct growth_watch *watch = m->growth;
	uint64_t last = m->steps.last_end[watch->kind];

	if (watch->requests.file) /* each request counts as a step */
		return TRACK_STEPS;
	/* Few steps, and after them only calls of the model: calls are the clock. */
	if (watch->kind == STEP_OPT && watch->track[TRACK_STEPS].passed < TREND_MIN &&
	    watch->track[TRACK_INSIDE].n >= TREND_MIN)
		return TRACK_INSIDE;
	if (watch->gaps.all) /* slices of time lack the stacks of some steps */
		return TRACK_STEPS;
	if (!watch->track[TRACK_STEPS].passed)
		return TRACK_TIME;
	if (watch->track[TRACK_STEPS].passed >= TREND_MIN || !watch->track[TRACK_TIME].on)
		return TRACK_STEPS;
	return last < watch->start || last - watch->start < (watch->now - watch->start) / 2
		       ? TRACK_TIME
		       : TRACK_STEPS;
}

/* Sets the line and device of the requests, and the seconds from one to the next. */
static void describe_requests(const struct judge *j)
{
	const struct growth_track *progress = &j->w->track[j->track];
	const struct growth_requests *requests = &j->w->requests;
	struct growth *g = j->g;

	g->request.file = requests->file;
	g->request.line = requests->line;
	if (requests->dev_no)
		strcpy(g->request.device, j->m->devs[requests->dev_no - 1]->pub.name);
	if (progress->n > 1)
		g->request.seconds = (double)(requests->times[progress->n - 1] -
					      requests->times[0]) /
				     1e9 / (double)(progress->n - 1) / (double)progress->stride;
}

static enum growth_clock clock_of(const struct judge *j)
{
	if (j->w->requests.file)
		return GROWTH_REQUESTS;
	if (j->track == TRACK_TIME)
		return GROWTH_TIME;
	return j->track == TRACK_STEPS && j->w->kind == STEP_OPT ? GROWTH_STEPS : GROWTH_CALLS;
}

/* Sets the clock, and the number of steps and of values. */
static void describe_values(const struct judge *j)
{
	const struct growth_track *progress = &j->w->track[j->track];
	struct growth *growth = j->g;
	uint64_t values; /* until the last allocation: later slices of time have none */

	growth->clock = clock_of(j);
	growth->steps = progress->passed;
	if (j->track == TRACK_INSIDE) {
		growth->steps = j->w->inside.calls;
		growth->after_steps = j->w->track[TRACK_STEPS].passed;
	} else if (growth->clock == GROWTH_STEPS || growth->clock == GROWTH_CALLS) {
		growth->steps = model__whole_steps(j->m);
	}
	if (j->track == TRACK_STEPS && j->w->gaps.all)
		growth->recorded = progress->passed;
	growth->first_is_partial = growth->steps < progress->passed + j->w->gaps.all;
	if (growth->clock == GROWTH_REQUESTS)
		describe_requests(j);
	growth->stride = progress->stride;
	growth->slice = growth->clock == GROWTH_TIME
				? (double)progress->stride * (double)GROWTH_SLICE / 1e9
				: 0;
	growth->values = progress->n;
	if (growth->clock == GROWTH_TIME && j->w->last_alloc >= j->w->start) {
		values = (j->w->last_alloc - j->w->start) / GROWTH_SLICE / progress->stride;
		if (values < progress->n)
			growth->values = values;
	}
	growth->coarse = j->w->coarse;
}

/* Converts a slope per value to bytes per step with stacks, or per second with GROWTH_TIME. */
static double per_step(const struct growth *g, double slope)
{
	return slope / (g->clock == GROWTH_TIME ? g->slice : (double)g->stride);
}

/* The same for something that also grows in steps without stacks. values: the last ones of the
 * track, by which t was judged. */
static double per_any_step(const struct judge *j, const uint64_t *values, const struct trend *t)
{
	size_t n = t->values > t->warmup ? t->values - t->warmup : 0;

	if (j->track != TRACK_STEPS || !j->w->gaps.all || n < 2 || n > j->g->values)
		return per_step(j->g, t->slope);
	return trend__slope(values + t->warmup, j->w->gaps.of + j->g->values - n, n);
}

/* ---- live blocks ---- */

/* Adds blocks that were live at the last value and have been freed since. If there are any, removes
 * the blocks that were allocated after the last value: they were not live at the same time. */
static void add_late(const struct judge *j, struct growth_unit *u, struct survey *s)
{
	const struct growth_late *late = current_late(j->w, u, j->track);

	if (!late || !late->blocks)
		return;
	s->blocks -= s->after_blocks;
	for (int i = 0; i < GROWTH_AGES; i++)
		s->young[i] += late->by_age[i];
	/* Both sums have those allocated after the last value, at the lowest age. */
	s->young[0] -= s->after + late->after;
	for (int c = 0; c < CATEGORY_NR; c++)
		s->of_category[c] += late->of_category[c];
	s->old += late->old;
	s->blocks += late->blocks;
}

/* Adds a live block. Those allocated after the last value are also counted apart. */
static void add_live(const struct judge *j, const struct rec *rec, struct survey *s)
{
	uint64_t size = j->m->sites.all[rec->site].size, age = age_of(j->m, j->dev, rec, j->track);

	s->blocks++;
	s->young[bucket_of(age)] += size;
	if (is_after_last_value(j->w, rec, j->track, age)) {
		s->after += size;
		s->after_blocks++;
	}
	s->old += is_old(j->w, rec, j->track, age) ? size : 0;
}

/* Sets j->survey, an entry for each unit, from the live blocks. Returns 0 or -ENOMEM. */
static int survey_blocks(struct judge *j)
{
	uint64_t addr, index;
	size_t pos = 0;
	int err;

	j->survey = calloc((size_t)j->w->n + 1, sizeof(*j->survey));
	if (!j->survey)
		return -ENOMEM;
	err = blocks__all(j->m, j->dev, ROWS_NOW, &j->blocks, &j->nblocks);
	if (err)
		return err;
	for (size_t k = 0; k < j->nblocks; k++) {
		const struct block *b = &j->blocks[k];
		uint32_t unit_no = b->site < j->w->nsites ? j->w->unit_no_by_site[b->site] : 0;

		if (unit_no)
			j->survey[unit_no - 1].of_category[b->category] += j->m->sites.all[b->site]
										   .size;
	}
	while (map64__next(j->dev->blocks.at, &pos, &addr, &index)) {
		const struct rec *rec = &j->dev->blocks.recs[index];
		uint32_t unit_no = rec->site < j->w->nsites ? j->w->unit_no_by_site[rec->site] : 0;

		if (unit_no)
			add_live(j, rec, &j->survey[unit_no - 1]);
	}
	for (uint32_t u = 0; u < j->w->n; u++) {
		uint8_t *largest = &j->survey[u].category;

		if (j->w->units[u].key.dev == j->dev_index + 1)
			add_late(j, &j->w->units[u], &j->survey[u]);
		for (int c = 0; c < CATEGORY_NR; c++)
			if (j->survey[u].of_category[c] > j->survey[u].of_category[*largest])
				*largest = c;
	}
	return 0;
}

/* Returns the bytes of the unit's live blocks. */
static uint64_t sum_of_ages(const struct survey *s)
{
	uint64_t sum = 0;

	for (int i = 0; i < GROWTH_AGES; i++)
		sum += s->young[i];
	return sum;
}

/* Sets the share of the bytes that are live after each age (Kaplan-Meier estimator): the product,
 * over all ages until then, of the share that got older among the bytes that reached the age. */
static void set_survival(const struct growth_unit *u, const struct survey *s, unsigned track,
			 struct growth_line *line)
{
	double survives = 1;
	uint64_t older = 0, gone, reached;

	for (int i = 0; i < GROWTH_AGES; i++)
		older += u->gone[track][i] + s->young[i];
	for (int i = 0; i < GROWTH_AGES; i++) {
		gone = u->gone[track][i];
		older -= gone + s->young[i];
		reached = gone + older;
		if (!reached)
			break;
		survives *= (double)older / (double)reached;
		line->survives[line->ages++] = survives;
	}
}

/* ---- texts ---- */

/* Gets the rows of the live blocks, for describe_line(). Returns 0 or -errno. */
static int gather_rows(struct judge *j)
{
	struct row_opts opts = { .by = j->w->by,
				 .when = ROWS_NOW,
				 .any_module = true,
				 .any_phase = true,
				 .any_category = true };
	size_t device;

	/* model__rows() takes the index of model__devices(). */
	for (device = 0; j->m->order[device] != j->dev_index; device++)
		;
	return model__rows(j->m, device, &opts, &j->rows, &j->nrows);
}

/* True if a row of model__rows() is about the same module, stack or line of code as `line`, by what
 * growth is split. Memory from before attach does not grow. */
static bool is_row_of_line(const struct judge *j, const struct row *line, const struct row *row)
{
	if (row->before_attach)
		return false;
	switch (j->w->by) {
	case BY_MODULE:
		return line->module == row->module && line->module_class == row->module_class &&
		       line->module_root == row->module_root;
	case BY_STACK:
		return line->stack == row->stack && line->node_class == row->node_class &&
		       !strcmp(line->source, row->source);
	default:
		return line->file == row->file && line->func == row->func &&
		       line->line == row->line &&
		       (line->file || !strcmp(line->source, row->source));
	}
}

/*
 * Sets line->row: the row of the line's live blocks, or if none is live, a row made from the stack
 * of the line's first block. That block may be temporary, so the made row has no module. bytes,
 * count and category are those of the survey.
 */
static void describe_line(const struct judge *j, const struct growth_unit *u,
			  struct growth_line *line)
{
	const struct site *site = &j->m->sites.all[u->site];
	const struct survey *survey = &j->survey[u - j->w->units];
	bool found = false;

	rows__line(j->m, FRAMES_USER, site->stack, site->node, site->thread, site->walk,
		   &line->row);
	for (size_t i = 0; i < j->nrows && !found; i++) {
		found = is_row_of_line(j, &line->row, &j->rows[i]);
		if (found)
			line->row = j->rows[i];
	}
	if (!found && j->w->by == BY_LINE)
		line->row.module = line->row.module_class = line->row.module_root = "";
	line->row.bytes = sum_of_ages(survey);
	line->row.count = survey->blocks;
	line->row.cumulative = 0;
	line->row.category = category__name(survey->category);
}

/* Counts the names of blocks that were live at the last value. Returns 0 or -ENOMEM. */
static int gather_names(struct judge *j)
{
	const struct growth_names *late = current_late_names(j->w, j->track);

	for (uint32_t i = 0; i < late->n; i++)
		if (add_name(&j->names, &late->all[i]))
			return -ENOMEM;
	for (size_t k = 0; k < j->nblocks; k++) {
		const struct block *b = &j->blocks[k];
		uint32_t unit_no = b->site < j->w->nsites ? j->w->unit_no_by_site[b->site] : 0;
		uint32_t name = b->label_no ? j->m->labels.all[b->label_no - 1].name : 0;
		struct growth_named block = { unit_no - 1, name, j->m->sites.all[b->site].size, 1 };

		if (unit_no && name && add_name(&j->names, &block))
			return -ENOMEM;
	}
	sort_names(&j->names);
	return 0;
}

#define HOST_LEAST (UINT64_C(1) << 20) /* bytes: growth of host memory that always counts */
#define PATTERNS 16		       /* patterns of names of one line; other names are left out */

/* A name of a line's blocks, or the pattern of similar names. */
struct found {
	const char *name;	     /* first of the names */
	char *pattern;		     /* owned by growth.patterns; NULL: only one name so far */
	uint64_t bytes, count, same; /* as in struct growth_name */
};

/* Makes the pattern cover a further name. Without memory the first name stays alone. */
static void cover_name(struct found *found, const char *name, struct growth *g)
{
	if (!found->pattern) {
		if (array__grow(&g->patterns, &g->cappatterns, g->npatterns + 1,
				sizeof(*g->patterns)))
			return;
		found->pattern = strdup(found->name);
		if (!found->pattern)
			return;
		g->patterns[g->npatterns++] = found->pattern;
	}
	pattern__cover(found->pattern, name);
}

/* Adds a name to the first similar entry of *n, or as an entry of its own. */
static void add_found(struct found *found, size_t *n, const struct growth_named *named,
		      const char *name, struct growth *g)
{
	size_t i = 0;

	while (i < *n && !pattern__alike(found[i].name, name))
		i++;
	if (i == PATTERNS)
		return;
	if (i == *n)
		found[(*n)++] = (struct found){ .name = name };
	else
		cover_name(&found[i], name, g);
	found[i].bytes += named->bytes;
	found[i].count += named->count;
	found[i].same = named->count > found[i].same ? named->count : found[i].same;
}

static int cmp_found(const void *a, const void *b)
{
	const struct found *x = a, *y = b;

	if (x->bytes != y->bytes)
		return x->bytes > y->bytes ? -1 : 1;
	return strcmp(x->name, y->name);
}

/* Sets the largest names of a unit's blocks, from j->names, which are sorted by unit. If there are
 * too many to list, combines similar ones in patterns. */
static void set_names(const struct judge *j, uint32_t unit, struct growth_line *line)
{
	const struct growth_names *names = &j->names;
	struct found found[PATTERNS];
	uint32_t low = 0, high = names->n, end;
	size_t n = 0;

	while (low < high) {
		uint32_t middle = low + (high - low) / 2;

		if (names->all[middle].unit < unit)
			low = middle + 1;
		else
			high = middle;
	}
	for (end = low; end < names->n && names->all[end].unit == unit; end++)
		line->named += names->all[end].bytes;
	for (uint32_t i = low; i < end; i++) {
		const char *name = dict__str(j->m->dict, names->all[i].name);

		if (end - low > GROWTH_NAMES)
			add_found(found, &n, &names->all[i], name, j->g);
		else
			found[n++] = (struct found){ .name = name,
						     .bytes = names->all[i].bytes,
						     .count = names->all[i].count,
						     .same = names->all[i].count };
	}
	if (n)
		qsort(found, n, sizeof(*found), cmp_found);
	for (size_t i = 0; i < n && line->nnames < GROWTH_NAMES; i++)
		line->names[line->nnames++] = (struct growth_name){
			found[i].pattern ? found[i].pattern : found[i].name, found[i].bytes,
			found[i].count, found[i].same
		};
}

/* ---- verdicts ---- */

static bool is_constant(const uint64_t *v, size_t n)
{
	for (size_t i = 1; i < n; i++)
		if (v[i] != v[0])
			return false;
	return true;
}

/* Orders growing lines first, then by verdict, then by growth. */
static int cmp_line(const void *a, const void *b)
{
	const struct growth_line *x = a, *y = b;
	bool x_grows = x->trend.verdict == TREND_GROWS, y_grows = y->trend.verdict == TREND_GROWS;

	if (x_grows != y_grows)
		return x_grows ? -1 : 1;
	if (x->trend.verdict != y->trend.verdict)
		return x->trend.verdict > y->trend.verdict ? -1 : 1;
	if (x->per_step != y->per_step)
		return x->per_step > y->per_step ? -1 : 1;
	if (x->row.bytes != y->row.bytes)
		return x->row.bytes > y->row.bytes ? -1 : 1;
	return 0;
}

/* Returns the bytes that stay for each allocated block, see struct growth_line. */
static double per_block(const struct growth_unit *u, unsigned track)
{
	const struct growth_series *series = &u->s[track];

	return series->settled_allocations
		       ? (double)series->settled / (double)series->settled_allocations
		       : 0;
}

/* True if the first of the values ends a step that began before the recording. */
static bool first_value_is_partial(const struct growth *g)
{
	return g->first_is_partial && g->stride == 1;
}

/* Sets kind and per_step, from the line's trend and old blocks. A block that is replaced by a
 * larger one also becomes larger in steps without stacks. */
static void set_kind(const struct judge *j, struct growth_line *line)
{
	line->kind = line->old < line->trend.grown / 2 ? GROWTH_ENLARGED : GROWTH_PILES_UP;
	line->per_step = line->kind == GROWTH_PILES_UP
				 ? per_step(j->g, line->trend.slope)
				 : per_any_step(j, line->values, &line->trend);
}

/* Judges a unit, and adds it to the lines unless it is flat. */
static void add_line(struct judge *j, const struct growth_unit *u)
{
	struct trend_opts opts = { .min_growth = j->min_growth, .tests = j->g->tested };
	struct growth_line line = { .values = unit_series(u, j->track),
				    .allocated = u->allocated,
				    .allocations = u->allocations };
	const struct survey *survey = &j->survey[u - j->w->units];
	struct growth *growth = j->g;
	size_t first = 0;

	/* A line's values begin with the first that is not 0. */
	while (first + 1 < growth->values && !line.values[first])
		first++;
	line.values += first;
	opts.first_is_partial = !first && first_value_is_partial(growth);
	trend__judge(line.values, growth->values - first, &opts, &line.trend);
	if (line.trend.verdict == TREND_FLAT)
		return;
	line.per_block = per_block(u, j->track);
	line.old = survey->old;
	set_kind(j, &line);
	set_survival(u, survey, j->track, &line);
	describe_line(j, u, &line);
	set_names(j, u - j->w->units, &line);
	growth->lines[growth->n++] = line;
}

/* Judges all units of the device. Returns 0 or -errno. */
static int judge_lines(struct judge *j)
{
	struct growth *growth = j->g;
	int err = gather_rows(j);

	if (err)
		return err;
	for (uint32_t i = 0; i < j->w->n; i++) {
		if (j->w->units[i].key.dev != j->dev_index + 1)
			continue;
		if (fill_values(j->w, &j->w->units[i], j->track))
			return -ENOMEM;
		growth->tested += !is_constant(unit_series(&j->w->units[i], j->track),
					       growth->values);
	}
	growth->lines = calloc((size_t)j->w->n + 1, sizeof(*growth->lines));
	if (!growth->lines)
		return -ENOMEM;
	for (uint32_t i = 0; i < j->w->n; i++)
		if (j->w->units[i].key.dev == j->dev_index + 1 && !j->w->units[i].between)
			add_line(j, &j->w->units[i]);
	return 0;
}

/* Adds up the units of one category in sum, all and of_all. A line belongs to the category with
 * most of its bytes at the end; earlier categories are not kept. Returns 0 or -ENOMEM. */
static int add_up_category(struct judge *j, uint8_t category, uint64_t *sum,
			   struct growth_unit *all, struct survey *of_all)
{
	for (uint32_t i = 0; i < j->w->n; i++) {
		struct growth_unit *u = &j->w->units[i];
		const struct survey *s = &j->survey[i];

		if (u->key.dev != j->dev_index + 1 || s->category != category || u->between)
			continue;
		if (fill_values(j->w, u, j->track))
			return -ENOMEM;
		for (size_t k = 0; k < j->g->values; k++)
			sum[k] += unit_series(u, j->track)[k];
		all->allocated += u->allocated;
		all->allocations += u->allocations;
		all->s[j->track].settled += u->s[j->track].settled;
		all->s[j->track].settled_allocations += u->s[j->track].settled_allocations;
		of_all->old += s->old;
		of_all->blocks += s->blocks;
		for (int a = 0; a < GROWTH_AGES; a++) {
			all->gone[j->track][a] += u->gone[j->track][a];
			of_all->young[a] += s->young[a];
		}
	}
	return 0;
}

/* Judges the sum of each category. Returns 0 or -ENOMEM. */
static int judge_categories(struct judge *j)
{
	struct growth *growth = j->g;
	struct trend_opts opts = { .min_growth = j->min_growth,
				   .tests = CATEGORY_NR,
				   .first_is_partial = first_value_is_partial(growth) };

	j->by_category = calloc((size_t)CATEGORY_NR * TREND_MAX, sizeof(*j->by_category));
	growth->lines = calloc(CATEGORY_NR, sizeof(*growth->lines));
	if (!j->by_category || !growth->lines)
		return -ENOMEM;
	growth->tested = CATEGORY_NR;
	for (int c = 0; c < CATEGORY_NR; c++) {
		uint64_t *sum = j->by_category + (size_t)c * TREND_MAX;
		struct growth_line *line = &growth->lines[growth->n];
		struct growth_unit all = { .live = 0 };
		struct survey of_all = { .old = 0 };

		if (add_up_category(j, c, sum, &all, &of_all))
			return -ENOMEM;
		trend__judge(sum, growth->values, &opts, &line->trend);
		if (line->trend.verdict == TREND_FLAT)
			continue;
		line->values = sum;
		line->per_block = per_block(&all, j->track);
		line->old = of_all.old;
		set_kind(j, line);
		line->allocated = all.allocated;
		line->allocations = all.allocations;
		line->row.bytes = sum_of_ages(&of_all);
		line->row.count = of_all.blocks;
		line->row.category = category__name(c);
		set_survival(&all, &of_all, j->track, line);
		growth->n++;
	}
	return 0;
}

/* Returns a copy of the values, with the memory from before attach that was found late, as report
 * --at does. */
static const uint64_t *with_late(const struct judge *j, const uint64_t *values)
{
	struct growth_pool *pool = j->g->pool;

	for (size_t i = 0; i < j->g->values; i++)
		pool->allocated[i] = values[i] + j->dev->late;
	return pool->allocated;
}

/* Judges a sum of the device, SUM_ALLOCATED and the like. */
static void judge_sum(const struct judge *j, unsigned which, struct growth_sum *ret)
{
	struct trend_opts opts = { .min_growth = j->min_growth,
				   .first_is_partial = first_value_is_partial(j->g) };

	ret->values = device_series(j->w, j->dev_index, j->track, which);
	if (which == SUM_ALLOCATED)
		ret->values = with_late(j, ret->values);
	trend__judge(ret->values, j->g->values, &opts, &ret->trend);
	ret->per_step = per_any_step(j, ret->values, &ret->trend);
}

/* Returns the number of values that were measured. Host memory is measured only at readings, which
 * show as changes of its sum. */
static uint32_t count_observed(const struct judge *j)
{
	const struct growth *g = j->g;
	const uint64_t *values = g->allocated.values;
	uint32_t n = 0;

	if (j->dev->pub.device.type != DEVICE_HOST)
		return (uint32_t)g->values;
	for (size_t i = 0; i < g->values; i++)
		n += i ? values[i] != values[i - 1] : values[i] > 0;
	return n;
}

/* Sets growth.inside. j->names are those of the chosen track, so this needs TRACK_STEPS. Returns 0
 * or -ENOMEM. */
static int judge_inside(struct judge *j)
{
	struct growth_pool *pool = j->g->pool;
	struct growth_inside *inside = &j->g->inside;
	struct growth_interval best;
	const struct site *site;
	int err;

	if (j->track != TRACK_STEPS)
		return 0;
	err = find_inside(j->m, j->dev_index, inside, &best);
	if (err || !inside->known)
		return err;
	site = &j->m->sites.all[j->w->units[best.unit_no - 1].site];
	pool->inside = (struct growth_line){ .trend = best.trend, .per_step = best.per_call };
	rows__line(j->m, FRAMES_USER, site->stack, site->node, site->thread, site->walk,
		   &pool->inside.row);
	pool->inside.row.phase = site->phase < PHASE_NR ? site->phase : PHASE_OTHER;
	pool->inside.row.bytes = best.live;
	if (inside->open)
		set_names(j, best.unit_no - 1, &pool->inside);
	inside->line = &pool->inside;
	return 0;
}

/* ---- peaks ---- */

/* Returns the slope of the tops over the steps that ended after the warm-up (least squares), in
 * bytes per step. */
static double slope_of_tops(const struct growth_watch *w, struct growth_unit *u)
{
	double first = GROWTH_WARMUP, n = (double)w->track[TRACK_STEPS].passed - first, mean,
	       squares;

	update_tops(w, u);
	if (n < 2)
		return 0;
	mean = first + (n - 1) / 2;	/* mean of the steps' numbers */
	squares = n * (n * n - 1) / 12; /* sum of their squared distances from the mean */
	return (u->tops.moment - mean * u->tops.sum) / squares * (first + n) /
	       (first + n + (double)w->gaps.all);
}

/* Reads the peaks of the kept steps into peaks; with many steps, the highest of each *stride steps.
 * Returns the number of values. */
static size_t read_step_peaks(const struct model *m, const struct dev *dev,
			      uint64_t peaks[TREND_MAX], uint64_t *stride)
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
		peaks[i] = 0;
		for (uint64_t k = 0; k < *stride; k++) {
			uint64_t step = n - (count - i) * *stride + k;
			uint64_t peak = dev->step[kind][step % STEPS_KEPT].peak + dev->late;

			peaks[i] = peak > peaks[i] ? peak : peaks[i];
		}
	}
	return count;
}

/* Sets the unit's line, with its top in the current or last step. */
static void set_peak_row(const struct model *m, const struct growth_unit *u, struct row *ret)
{
	const struct site *s = &m->sites.all[u->site];

	rows__line(m, FRAMES_USER, s->stack, s->node, s->thread, s->walk, ret);
	ret->bytes = u->tops.top > u->tops.last ? u->tops.top : u->tops.last;
}

/* Finds the line, and the line of inputs, whose highest bytes in a step (tops) grow fastest. */
static void find_peak_lines(const struct model *m, uint32_t dev_index, struct growth_line *ret_line,
			    struct growth_peaks *ret)
{
	struct growth_watch *watch = m->growth;
	double fastest = 0, fastest_input = 0;
	uint32_t line_no = 0, input_no = 0; /* units */

	for (uint32_t i = 0; i < watch->n; i++) {
		struct growth_unit *u = &watch->units[i];
		double slope;

		if (u->key.dev != dev_index + 1 || u->between)
			continue;
		slope = slope_of_tops(watch, u);
		if (slope > fastest) {
			fastest = slope;
			line_no = i + 1;
		}
		if (slope > fastest_input && u->tops.input) {
			fastest_input = slope;
			input_no = i + 1;
		}
	}
	if (line_no) {
		*ret_line = (struct growth_line){ .per_step = fastest, .trend = ret->trend };
		set_peak_row(m, &watch->units[line_no - 1], &ret_line->row);
		ret->line = ret_line;
	}
	if (input_no && input_no != line_no)
		set_peak_row(m, &watch->units[input_no - 1], &ret->input);
}

/* True if the steps' peaks of the device are kept and have a meaning. */
static bool can_judge_peaks(const struct model *m, uint32_t dev_index)
{
	const struct growth_watch *w = m->growth;
	const struct dev *dev = m->devs[dev_index];

	if (w->requests.file) /* peaks are kept by step, not by request */
		return false;
	if (dev_index >= STEP_DEVICES) /* the model keeps no steps of further devices */
		return false;
	if (!dev->step[w->kind]) /* no step of this kind has ended */
		return false;
	return !device__in_pieces(dev->pub.device); /* their peaks are rough */
}

/* Judges whether the peaks of a device's steps grow, and if so finds the lines. *line is memory for
 * ret->line. ends: growth at the steps' ends. min_growth: smallest growth that counts, in bytes. */
static void judge_peaks(const struct model *m, uint32_t dev_index, const struct growth_sum *ends,
			uint64_t min_growth, struct growth_line *line, struct growth_peaks *ret)
{
	const struct dev *dev = m->devs[dev_index];
	struct trend_opts opts = { .min_growth = min_growth };
	uint64_t peaks[TREND_MAX], stride, least = dev->pub.peak_allocated / PEAK_PART;
	size_t n;

	*ret = (struct growth_peaks){ .known = false };
	if (!can_judge_peaks(m, dev_index))
		return;
	n = read_step_peaks(m, dev, peaks, &stride);
	opts.min_growth = least > min_growth ? least : min_growth;
	trend__judge(peaks, n, &opts, &ret->trend);
	ret->known = true;
	ret->stride = stride;
	ret->per_step = ret->trend.slope / (double)stride;
	/* Peaks that only follow the growth at the ends are no finding of their own. */
	if (!trend__counts(&ret->trend, TREND_LOW) ||
	    ret->per_step < PEAKS_FASTER * ends->per_step) {
		ret->trend.confidence = TREND_NONE;
		return;
	}
	if (m->lost && ret->trend.confidence > TREND_MEDIUM)
		ret->trend.confidence = TREND_MEDIUM;
	find_peak_lines(m, dev_index, line, ret);
}

/* ---- a device ---- */

/* Judges everything about the device. Returns 0 or -errno. */
static int judge_all(struct judge *j)
{
	struct growth *growth = j->g;
	int err;

	describe_values(j);
	err = survey_blocks(j);
	if (err)
		return err;
	err = gather_names(j);
	if (err)
		return err;
	err = j->w->by == BY_CATEGORY ? judge_categories(j) : judge_lines(j);
	if (err)
		return err;
	judge_sum(j, SUM_ALLOCATED, &growth->allocated);
	growth->observed = count_observed(j);
	trend__limit(&growth->allocated.trend, growth->observed);
	for (size_t i = 0; i < growth->n; i++) {
		struct trend *t = &growth->lines[i].trend;

		/* A block whose free was lost looks as if it had stayed. */
		if (j->m->lost && t->confidence > TREND_MEDIUM)
			t->confidence = TREND_MEDIUM;
		trend__limit(t, growth->observed);
	}
	growth->pieces = j->dev->pub.device.type == DEVICE_HOST;
	for (size_t i = 0; i < growth->n && growth->pieces; i++) {
		growth->lines[i].ages = 0;
		growth->lines[i].per_block = 0;
	}
	qsort(growth->lines, growth->n, sizeof(*growth->lines), cmp_line);
	judge_sum(j, SUM_RESERVED, &growth->reserved);
	judge_sum(j, SUM_TAKEN, &growth->others);
	if (growth->clock == GROWTH_STEPS ||
	    (growth->clock == GROWTH_CALLS && !growth->after_steps))
		judge_peaks(j->m, j->dev_index, &growth->allocated, j->min_growth,
			    &((struct growth_pool *)growth->pool)->peaks, &growth->peaks);
	growth->has_reserved = j->dev->pub.has_totals;
	growth->has_others = !device__on_host(j->dev->pub.device);
	return judge_inside(j);
}

/* Returns the least growth, in bytes, that counts on a device. Readings of host memory see single
 * pages come and go, so there it is at least a thousandth of the memory, up to HOST_LEAST. */
static uint64_t least_growth(const struct dev *dev, uint64_t min_growth)
{
	uint64_t least = dev->pub.allocated / 1024;

	if (dev->pub.device.type != DEVICE_HOST)
		return min_growth;
	least = least < HOST_LEAST ? least : HOST_LEAST;
	return least > min_growth ? least : min_growth;
}

int growth__judge(const struct model *m, size_t device, uint64_t min_growth, struct growth *ret)
{
	struct growth growth = { .n = 0 };
	struct judge j = { .m = m, .w = m->growth, .min_growth = min_growth, .g = &growth };
	struct growth_pool *pool;
	int err;

	if (!m->growth || device >= m->ndevs)
		return -EINVAL;
	j.dev_index = m->order[device];
	j.dev = m->devs[j.dev_index];
	j.min_growth = least_growth(j.dev, min_growth);
	j.track = choose_track(m);
	growth.pool = pool = calloc(1, sizeof(*pool));
	err = pool ? judge_all(&j) : -ENOMEM;
	if (pool) {
		pool->by_category = j.by_category;
		pool->rows = j.rows;
	}
	free(j.survey);
	free(j.blocks);
	free_names(&j.names);
	if (err)
		growth__free(&growth);
	else
		*ret = growth;
	return err;
}

uint64_t growth__in_all_steps(const struct growth *g, const struct growth_line *line,
			      uint64_t bytes)
{
	if (!g->recorded || g->recorded >= g->steps || line->kind != GROWTH_PILES_UP)
		return bytes;
	return (uint64_t)((double)bytes / (double)g->recorded * (double)g->steps);
}

size_t growth__count(const struct growth *g, enum trend_confidence least)
{
	size_t n = 0;

	for (size_t i = 0; i < g->n; i++)
		n += trend__counts(&g->lines[i].trend, least);
	return n;
}

bool growth__pool_grows(const struct growth *g, enum trend_confidence least)
{
	uint64_t grown = g->allocated.trend.grown;

	/* Peaks that grow enlarge the pool, too. */
	if (growth__peaks_grow(g, TREND_MEDIUM) && g->peaks.trend.grown > grown)
		grown = g->peaks.trend.grown;
	return g->has_reserved && trend__counts(&g->reserved.trend, least) &&
	       grown < g->reserved.trend.grown / 2;
}

bool growth__peaks_grow(const struct growth *g, enum trend_confidence least)
{
	return g->peaks.known && trend__counts(&g->peaks.trend, least);
}

bool growth__inside_grows(const struct growth *g, enum trend_confidence least)
{
	return g->inside.known && trend__counts(&g->inside.line->trend, least);
}

bool growth__sum_grows(const struct growth *g)
{
	const struct growth_sum *all = &g->allocated;

	return all->per_step > 0 &&
	       (all->trend.verdict == TREND_GROWS || all->trend.verdict == TREND_UNSURE);
}

bool growth__others_grow(const struct growth *g, enum trend_confidence least)
{
	return g->has_others && trend__counts(&g->others.trend, least);
}

void growth__free(struct growth *g)
{
	struct growth_pool *pool = g->pool;

	if (pool) {
		free(pool->by_category);
		free(pool->rows);
	}
	free(pool);
	free(g->lines);
	for (size_t i = 0; i < g->npatterns; i++)
		free(g->patterns[i]);
	free(g->patterns);
	memset(g, 0, sizeof(*g));
}

/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "capture/cost/step_cost.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"

#define SECOND UINT64_C(1000000000) /* ns */
#define WINDOW_TIME (SECOND / 4)    /* a window takes at least so long */
#define STEPS_KNOWN 16		    /* steps after which they decide: these have all detail */
#define WINDOW_LEAST 4		    /* steps */
#define STEPS_WAIT (10 * SECOND)    /* ns from the start until the first step must end */
#define PAIRS_LEAST 6		    /* fewer differences have no interval at 95 % */
#define PAIRS_TRY 24		    /* differences after which the median decides */
#define PAIRS_SURE 12		    /* differences that all detail needs to come back */
#define LEAST_PART 100		    /* one step in so many is recorded with all detail at least */
#define WORTH 0.25		    /* detail that saves less of what is too much stays */
#define DEARER 1.5		    /* times as large a share as before is measured anew */
#define KEEP_TIME (600 * SECOND)    /* after this time it is measured anew, too */
#define GONE_STEPS 20		    /* no step for so many steps' time: there are no steps now */
#define GONE_TIME (5 * SECOND)	    /* ... and so much longer */
#define SWITCHES 2		    /* steps that a switch to detail and back takes */
#define SCALE_MAX 20.0		    /* more cannot be told from the difference */
#define RECENT (sizeof(((struct step_cost *)0)->recent) / sizeof(uint64_t))

void step_cost__init(struct step_cost *s, double limit)
{
	*s = (struct step_cost){ .limit = limit, .wanted = true, .on = true, .detailed = true };
}

static int compare_double(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* The median of n > 0 durations. */
static double median(const uint64_t *values, size_t n)
{
	uint64_t sorted[STEP_COST_WINDOW];

	memcpy(sorted, values, n * sizeof(*sorted));
	qsort(sorted, n, sizeof(*sorted), array__compare_u64);
	return ((double)sorted[(n - 1) / 2] + (double)sorted[n / 2]) / 2;
}

/* The usual duration of a step, ns; 0: no step was complete. */
static double usual(const struct step_cost *s)
{
	size_t n = s->all < RECENT ? (size_t)s->all : RECENT;

	return n ? median(s->recent, n) : 0;
}

/* The median of the last window of this stage. */
static double last_window(const struct step_cost *s)
{
	uint64_t values[STEP_COST_WINDOW];

	for (uint64_t i = 0; i < s->window; i++)
		values[i] = s->took[(s->n - s->window + i) % STEP_COST_WINDOW];
	return median(values, s->window);
}

/* Sets the median of the differences and its interval, from the sign test: it has the true median
 * in 95 of 100 cases, however the differences are distributed. */
static bool difference(const struct step_cost *s, struct step_longer *ret)
{
	size_t n = s->pairs < STEP_COST_PAIRS ? (size_t)s->pairs : STEP_COST_PAIRS, rank = 0;
	double sorted[STEP_COST_PAIRS], chance = pow(0.5, (double)n), below = chance;

	if (n < PAIRS_LEAST)
		return false;
	memcpy(sorted, s->added, n * sizeof(*sorted));
	qsort(sorted, n, sizeof(*sorted), compare_double);
	/* below: the chance that at most `rank` differences are below the true median. */
	for (size_t k = 1; k < n; k++) {
		chance *= (double)(n - k + 1) / (double)k;
		if (below + chance > 0.025)
			break;
		below += chance;
		rank = k;
	}
	ret->low = sorted[rank];
	ret->longer = (sorted[(n - 1) / 2] + sorted[n / 2]) / 2;
	ret->high = sorted[n - 1 - rank];
	return true;
}

/* How many times the effect of detail the effect of all of the capture is. */
static double scale(const struct step_cost *s)
{
	double detail = s->shares[1] - s->shares[0];

	if (s->shares[0] <= 0 || s->shares[1] <= 0)
		return 1;
	if (detail <= s->shares[1] / SCALE_MAX)
		return SCALE_MAX;
	return s->shares[1] / detail;
}

/* A step with detail in the part `with` of the time: see the top of step_cost.h. A capture makes no
 * step shorter. */
static bool longer_with(const struct step_cost *s, double with, struct step_longer *ret)
{
	double times = scale(s) - 1 + with;

	if (!difference(s, ret))
		return false;
	ret->low = fmax(ret->low * times, 0);
	ret->longer = fmax(ret->longer * times, 0);
	ret->high = fmax(ret->high * times, 0);
	return true;
}

bool step_cost__longer_with_all(const struct step_cost *s, struct step_longer *ret)
{
	return longer_with(s, 1, ret);
}

bool step_cost__longer(const struct step_cost *s, uint64_t now, struct step_longer *ret)
{
	double lately = now > s->changed ? (double)(now - s->changed) : 0;
	double with = (double)s->spent[1] + (s->on ? lately : 0);
	double all = (double)s->spent[0] + (double)s->spent[1] + lately;

	return longer_with(s, all > 0 ? with / all : 1, ret);
}

/* Records all detail from now on. */
static void keep_all(struct step_cost *s, uint64_t now)
{
	s->mode = STEP_COST_KEEP;
	s->wanted = true;
	s->kept = now;
	s->kept_share = s->shares[1];
}

/* Sets how many steps pass between two windows with detail, so that a step on average takes as much
 * longer as the limit allows. */
static void set_rest(struct step_cost *s, const struct step_longer *all)
{
	double detail = all->longer / scale(s), traps = all->longer - detail, part = 1, rest;

	if (detail > 0)
		part = (s->limit - traps) / detail;
	if (part < 1.0 / LEAST_PART)
		part = 1.0 / LEAST_PART;
	rest = part < 1 ? (double)(s->window + SWITCHES) * (1 - part) / part : 0;
	s->rest = (uint64_t)rest;
	if (s->rest < 2 * s->window)
		s->rest = 2 * s->window;
}

/* Decides about the mode after another difference. */
static void decide(struct step_cost *s, uint64_t now)
{
	uint64_t least = s->mode == STEP_COST_TRY ? PAIRS_LEAST : PAIRS_SURE;
	struct step_longer all;
	double too_much, saves;
	bool undecided;

	if (s->pairs < least || !step_cost__longer_with_all(s, &all))
		return;
	too_much = all.longer - s->limit;
	saves = all.longer / scale(s);
	undecided = s->mode == STEP_COST_TRY && s->pairs >= PAIRS_TRY;
	if (all.high <= s->limit || (undecided && all.longer <= s->limit) ||
	    (all.low > s->limit && saves < WORTH * too_much)) {
		keep_all(s, now);
		return;
	}
	if (s->mode == STEP_COST_TRY && (all.low > s->limit || undecided))
		s->mode = STEP_COST_SAMPLE;
	if (s->mode == STEP_COST_SAMPLE)
		set_rest(s, &all);
}

/* Begins the windows. */
static void try(struct step_cost *s)
{
	double took = usual(s);

	s->mode = STEP_COST_TRY;
	s->window = WINDOW_LEAST;
	while (s->window < STEP_COST_WINDOW && (double)s->window * took < (double)WINDOW_TIME)
		s->window += 2;
	s->stage = STEP_BEFORE;
	s->wanted = false;
	s->n = s->pairs = 0;
}

static void enter(struct step_cost *s, unsigned stage, bool wanted)
{
	s->stage = stage;
	s->wanted = wanted;
	s->n = 0;
}

/* Takes the duration of a step that was whole in the present state. */
static void take(struct step_cost *s, uint64_t took, uint64_t now)
{
	double after;

	s->took[s->n++ % STEP_COST_WINDOW] = took;
	switch (s->stage) {
	case STEP_BEFORE:
		if (s->n < (s->mode == STEP_COST_SAMPLE ? s->rest : s->window))
			return;
		s->before = last_window(s);
		enter(s, STEP_WITH, true);
		return;
	case STEP_WITH:
		if (s->n < s->window)
			return;
		s->with = last_window(s);
		enter(s, STEP_AFTER, false);
		return;
	case STEP_AFTER:
		if (s->n < s->window)
			return;
	}
	after = last_window(s);
	if (s->before + after > 0)
		s->added[s->pairs++ % STEP_COST_PAIRS] = 2 * s->with / (s->before + after) - 1;
	s->before = after;
	decide(s, now);
	if (s->mode == STEP_COST_TRY)
		enter(s, STEP_WITH, true);
	else if (s->mode == STEP_COST_SAMPLE)
		s->stage = STEP_BEFORE;
}

bool step_cost__ended(struct step_cost *s, uint64_t time)
{
	bool alternates = s->mode == STEP_COST_TRY || s->mode == STEP_COST_SAMPLE;

	if (time <= s->last) /* another thread's */
		return s->detailed;
	if (s->last) {
		s->recent[s->all++ % RECENT] = time - s->last;
		s->whole += s->detailed;
		if (alternates && s->wanted == s->on && s->last >= s->changed)
			take(s, time - s->last, time);
	}
	s->last = time;
	s->detailed = s->on && s->wanted && time >= s->changed;
	return s->detailed;
}

void step_cost__switched(struct step_cost *s, uint64_t now)
{
	s->spent[s->on] += now > s->changed ? now - s->changed : 0;
	s->on = s->wanted;
	s->changed = now;
	s->detailed &= s->on;
}

bool step_cost__look(struct step_cost *s, uint64_t now, double share)
{
	double gone = GONE_STEPS * usual(s) + (double)(s->last ? GONE_TIME : STEPS_WAIT);

	if (now > s->last && (double)(now - s->last) > gone) {
		s->mode = STEP_COST_ALL;
		s->wanted = true;
		return false;
	}
	if (s->all < STEPS_KNOWN)
		return true;
	if (s->mode == STEP_COST_ALL && share > s->limit)
		try(s);
	if (s->mode == STEP_COST_KEEP && share > s->limit &&
	    (share > DEARER * s->kept_share || now - s->kept > KEEP_TIME))
		try(s);
	return true;
}

/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Whether a series grows, and how certain that is. The verdict uses two curves. The floor is the
 * minimum from each moment on; the ceiling is the maximum up to it. Memory that is released later
 * does not raise the floor. Memory that stopped growing does not raise the ceiling. See
 * docs/internals/LEAKS.md.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TREND_MAX 256 /* maximum number of values */
#define TREND_MIN 8   /* fewer are too short */
#define TREND_PARTS 4
#define TREND_STEADY 100 /* fewer values do not show that nothing grows */

enum trend_verdict {
	TREND_FLAT,	/* no growth worth reporting */
	TREND_SHORT,	/* too few values to tell */
	TREND_STOPPED,	/* grew, then stopped: a warm-up, or a cache that is full */
	TREND_RELEASED, /* grows and is released, at least once */
	TREND_UNSURE,	/* grew, but too short or too uneven to decide */
	TREND_GROWS,
};

enum trend_confidence { TREND_NONE, TREND_LOW, TREND_MEDIUM, TREND_HIGH };

struct trend {
	enum trend_verdict verdict;
	/* For TREND_GROWS (medium or high) and TREND_UNSURE (low). */
	enum trend_confidence confidence;
	/* Number of values; how many of the first are left out of the fields below (not of rises,
	 * falls). */
	uint32_t values, warmup;
	/* Rises and falls between adjacent values, the first from 0, in so many intervals: one for
	 * each value, but for a first that ends a part of an interval. */
	uint32_t rises, falls, intervals;
	double slope;	      /* per value: the median over all pairs (Theil-Sen) */
	double spread;	      /* median distance from the line with that slope */
	uint64_t first, last; /* the first and the last value counted */
	uint64_t range;	      /* largest value less the smallest */
	uint64_t fall;	      /* largest fall from any value to a later one */
	uint64_t grown;	      /* rise of the floor */
	/* Share of each quarter in the growth: of the floor's rise or the ceiling's, whichever is
	 * less. */
	double share[TREND_PARTS];
	/* Order of the stretches' floors or ceilings, whichever is less (Kendall's tau): 1 all
	 * rising, 0 no order, -1 all falling. */
	double sorted;
	/* Chance of that order in a series without growth, where all orders are equally likely,
	 * times the number of series tested. */
	double p;
};

struct trend_opts {
	uint64_t min_growth; /* bytes; less is flat */
	uint32_t tests; /* number of series tested together, which raises the chance of an error; 0
			   counts as 1 */
	bool partly;	/* the first value ends a part of an interval */
};

/* Judges the last TREND_MAX of n values. */
void trend__judge(const uint64_t *v, size_t n, const struct trend_opts *o, struct trend *ret);
/* The values were observed so many times, and repeat in between: limits verdict and confidence to
 * what so many values can show. */
void trend__limit(struct trend *t, uint32_t observed);
/* Whether the series grows, or may grow, with at least this confidence. */
bool trend__counts(const struct trend *t, enum trend_confidence least);
/*
 * Whether growth is sure enough to be said without being asked for: at least medium confidence, and
 * 48 values, or 24 of training steps that almost all rose. Of shorter series a sequence of
 * generation, or a cache that fills, looks the same. docs/internals/LEAKS.md has the error rates.
 */
bool trend__is_sure(const struct trend *t, bool training);
const char *trend__verdict(enum trend_verdict v);	/* "grows", "flat", "released" ... */
const char *trend__confidence(enum trend_confidence c); /* "high", "medium", "low", "none" */
/* Chance that n values in random order rise as much as these (Mann and Kendall). *tau: Kendall's
 * tau of the values. */
double trend__order_chance(const uint64_t *v, size_t n, double *tau);

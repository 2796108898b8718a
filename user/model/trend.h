/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Judges whether a series grows, and how certain that is. The verdict uses two curves. The floor at
 * a value is the minimum of that value and all later ones; the ceiling is the maximum of that value
 * and all earlier ones. Memory that is released later does not raise the floor. Memory that stopped
 * growing does not raise the ceiling. See
 * docs/internals/LEAKS.md.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TREND_MAX 256 /* maximum number of values */
#define TREND_MIN 8   /* a series with fewer values gets no verdict (TREND_SHORT) */
#define TREND_PARTS 4
#define TREND_STEADY 100 /* values that a series needs to show that nothing grows */

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
	/* Medium or high with TREND_GROWS, low with TREND_UNSURE, otherwise TREND_NONE. */
	enum trend_confidence confidence;
	/* values: number of values. warmup: how many of the first values are left out of the fields
	 * below, except rises, falls and intervals. */
	uint32_t values, warmup;
	/* Number of values above (rises) and below (falls) the one before; the first is compared
	 * with 0. intervals: number of values compared, which is all but a partial first one. */
	uint32_t rises, falls, intervals;
	double slope;	      /* per value: the median over all pairs (Theil-Sen) */
	double spread;	      /* median distance from the line with that slope */
	uint64_t first, last; /* the first and the last value counted */
	uint64_t range;	      /* largest value minus the smallest */
	uint64_t fall;	      /* largest fall from any value to a later one */
	uint64_t grown;	      /* rise of the floor */
	/* Share of each quarter of the series in its growth, which is the rise of the floor or of
	 * the ceiling, whichever is less. */
	double share[TREND_PARTS];
	/* Kendall's tau of the floors, or of the ceilings if that is less: 1 if each stretch of the
	 * series is above the one before, 0 without order, -1 if each is below. */
	double sorted;
	/* Chance of that order in a series without growth, where all orders are equally likely,
	 * times the number of series tested. */
	double p;
};

struct trend_opts {
	uint64_t min_growth; /* bytes; less is flat */
	/* Number of series tested together, which raises the chance of an error; 0 counts as 1. */
	uint32_t tests;
	/* The first value is from the end of an interval that began before the recording. */
	bool first_is_partial;
};

/* Judges the last TREND_MAX of n values. */
void trend__judge(const uint64_t *v, size_t n, const struct trend_opts *o, struct trend *ret);
/* For a series with only `observed` measured values, which its other values repeat: limits verdict
 * and confidence to what a series of `observed` values can show. */
void trend__limit(struct trend *t, uint32_t observed);
/* The slope of n values at these places (increasing): the median over all pairs. at NULL: one after
 * the other. Without memory, that from the first to the last. */
double trend__slope(const uint64_t *v, const uint64_t *at, size_t n);
/* Whether the series grows, or may grow, with at least this confidence. */
bool trend__counts(const struct trend *t, enum trend_confidence least);
/*
 * Whether growth is sure enough that a report mentions it unasked: at least medium confidence, and
 * 48 values, or 24 values of training steps that almost all rose. In shorter series the generation
 * of a long sequence, or a cache that fills, looks the same. docs/internals/LEAKS.md has the error
 * rates.
 */
bool trend__is_sure(const struct trend *t, bool training);
const char *trend__verdict(enum trend_verdict v);	/* "grows", "flat", "released" ... */
const char *trend__confidence(enum trend_confidence c); /* "high", "medium", "low", "none" */
/* Returns the probability that n values in random order rise as much as these (Mann-Kendall test).
 * Sets *tau to Kendall's tau of the values. */
double trend__order_chance(const uint64_t *v, size_t n, double *tau);

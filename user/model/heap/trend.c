/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "model/trend.h"

#include <math.h>
#include <stdlib.h>

#define STRETCHES 16 /* maximum of stretches that values are divided into */
/* Requirements of trend__is_sure(): values; or fewer values of training steps, if this part rose. */
#define SURE_VALUES 48
#define SURE_STEPS 24
#define SURE_RISES 0.9
#define FAIR (1.0 / TREND_PARTS) /* share of each quarter in even growth */
#define RELEASED_PART 4 /* a fall of more than a quarter of the growth counts as a release */

/* Requirements for each confidence: largest p, least share of each quarter, least number of values.
 * docs/internals/LEAKS.md has the error rates. */
static const struct {
	double p, share;
	uint32_t values;
} wanted[] = {
	[TREND_LOW] = { 0.05, 0, TREND_MIN },
	[TREND_MEDIUM] = { 0.01, FAIR / 3, 10 },
	[TREND_HIGH] = { 0.001, FAIR / 2, 32 },
};

bool trend__counts(const struct trend *t, enum trend_confidence least)
{
	return (t->verdict == TREND_GROWS || t->verdict == TREND_UNSURE) && t->confidence >= least;
}

/* True if almost all values are above the one before. A partial first value does not count. */
static bool rises_almost_always(const struct trend *t)
{
	return t->rises + (t->values - t->intervals) >= (t->values - 1) * SURE_RISES;
}

bool trend__is_sure(const struct trend *t, bool training)
{
	return trend__counts(t, TREND_MEDIUM) &&
	       (t->values >= SURE_VALUES ||
		(training && t->values >= SURE_STEPS && rises_almost_always(t)));
}

const char *trend__verdict(enum trend_verdict v)
{
	static const char *const names[] = {
		[TREND_FLAT] = "flat",	     [TREND_SHORT] = "too_short",
		[TREND_STOPPED] = "stopped", [TREND_RELEASED] = "released",
		[TREND_UNSURE] = "unsure",   [TREND_GROWS] = "grows",
	};

	return (unsigned)v < sizeof(names) / sizeof(*names) ? names[v] : "flat";
}

const char *trend__confidence(enum trend_confidence c)
{
	static const char *const names[] = { "none", "low", "medium", "high" };

	return (unsigned)c < sizeof(names) / sizeof(*names) ? names[c] : "none";
}

/* Kendall's test of a trend (Mann-Kendall), with the normal distribution and its correction by
 * 1. */
double trend__order_chance(const uint64_t *v, size_t n, double *tau)
{
	/* sum: rising pairs minus falling ones. ties: correction of the variance for equal values. */
	double pairs = (double)n * (double)(n - 1) / 2, sum = 0, ties = 0, variance;

	*tau = 0;
	if (n < 2)
		return 1;
	for (size_t i = 0; i < n; i++) {
		double same = 1;
		bool first = true;

		for (size_t k = 0; k < i; k++)
			first &= v[k] != v[i];
		for (size_t k = i + 1; k < n; k++) {
			sum += (v[k] > v[i]) - (v[k] < v[i]);
			same += v[k] == v[i];
		}
		if (first) /* same: how often the value occurs */
			ties += same * (same - 1) * (2 * same + 5);
	}
	*tau = sum / pairs;
	variance = ((double)n * (double)(n - 1) * (double)(2 * n + 5) - ties) / 18;
	if (sum <= 0 || variance <= 0)
		return 1;
	return erfc((sum - 1) / sqrt(2 * variance)) / 2;
}

/* Exchanges two values. */
static void swap(double *a, double *b)
{
	double old_a = *a;

	*a = *b;
	*b = old_a;
}

/* Returns the k-th smallest value (quickselect): puts it at values[k], smaller ones before it,
 * larger ones behind. A series has up to 32,640 slopes, and sorting them takes five times as long. */
static double nth(double *values, size_t n, size_t k)
{
	size_t low = 0, high = n - 1;
	uint32_t random = 1;

	while (low < high) {
		size_t i = low, j = high;
		double pivot;

		random = random * 1664525 + 1013904223; /* a linear congruential generator */
		pivot = values[low + random % (high - low + 1)];
		while (i <= j) {
			while (values[i] < pivot)
				i++;
			while (values[j] > pivot)
				j--;
			if (i > j)
				break;
			swap(&values[i++], &values[j]);
			if (!j--)
				break;
		}
		if (j < high && k <= j)
			high = j;
		else if (k >= i)
			low = i;
		else
			break;
	}
	return values[k];
}

/* Returns the median of the values, which it reorders; 0: there is none. */
static double median(double *values, size_t n)
{
	double upper, lower;

	if (!n)
		return 0;
	upper = nth(values, n, n / 2);
	if (n % 2)
		return upper;
	lower = values[0];
	for (size_t i = 1; i < n / 2; i++)
		lower = values[i] > lower ? values[i] : lower;
	return (lower + upper) / 2;
}

double trend__slope(const uint64_t *v, const uint64_t *at, size_t n)
{
	double *slopes, slope;
	size_t n_slopes = 0;

	if (n < 2)
		return 0;
	slopes = malloc(n * (n - 1) / 2 * sizeof(*slopes));
	if (!slopes)
		return ((double)v[n - 1] - (double)v[0]) / (double)(at ? at[n - 1] - at[0] : n - 1);
	for (size_t i = 0; i < n; i++)
		for (size_t j = i + 1; j < n; j++)
			slopes[n_slopes++] = ((double)v[j] - (double)v[i]) /
					     (double)(at ? at[j] - at[i] : j - i);
	slope = median(slopes, n_slopes);
	free(slopes);
	return slope;
}

/* Sets the slope and the spread. */
static void fit_line(const uint64_t *v, size_t n, struct trend *t)
{
	double offset[TREND_MAX], middle;

	t->slope = trend__slope(v, NULL, n);
	for (size_t i = 0; i < n; i++)
		offset[i] = (double)v[i] - t->slope * (double)i;
	middle = median(offset, n);
	for (size_t i = 0; i < n; i++) {
		offset[i] = (double)v[i] - t->slope * (double)i - middle;
		if (offset[i] < 0)
			offset[i] = -offset[i];
	}
	t->spread = median(offset, n);
}

/* Counts the rises and falls. The first value is compared with 0, unless it is partial. */
static void count_changes(const uint64_t *v, size_t n, bool first_is_partial, struct trend *t)
{
	uint64_t previous = first_is_partial && n ? v[0] : 0;

	t->intervals = n - (first_is_partial && n);
	for (size_t i = 0; i < n; i++) {
		t->rises += v[i] > previous;
		t->falls += v[i] < previous;
		previous = v[i];
	}
}

/* Sets the range, the largest fall, and the first and last value. */
static void set_range(const uint64_t *v, size_t n, struct trend *t)
{
	uint64_t low = v[0], high = v[0];

	for (size_t i = 0; i < n; i++) {
		low = v[i] < low ? v[i] : low;
		high = v[i] > high ? v[i] : high;
		t->fall = high - v[i] > t->fall ? high - v[i] : t->fall;
	}
	t->range = high - low;
	t->first = v[0];
	t->last = v[n - 1];
}

/* Sets each quarter's share in the growth, and grown. The floor is used without the last stretch,
 * where it is the minimum of few values and noise may raise it. The ceiling is used without the
 * first stretch, for the same reason. */
static void set_shares(const uint64_t *v, size_t n, struct trend *t)
{
	size_t end = n - 1 - n / STRETCHES;
	uint64_t floor[TREND_MAX], ceiling[TREND_MAX];
	double rise, ceiling_rise;

	for (size_t i = n; i-- > 0;)
		floor[i] = i + 1 < n && floor[i + 1] < v[i] ? floor[i + 1] : v[i];
	for (size_t i = 0; i < n; i++)
		ceiling[i] = i && ceiling[i - 1] > v[i] ? ceiling[i - 1] : v[i];
	t->grown = floor[end] - floor[0];
	rise = (double)t->grown;
	ceiling_rise = (double)(ceiling[n - 1] - ceiling[n / STRETCHES]);
	for (size_t q = 0; q < TREND_PARTS; q++) {
		size_t begin = q * end / TREND_PARTS, to = (q + 1) * end / TREND_PARTS,
		       off = n - 1 - end;
		double of_floor = rise > 0 ? (double)(floor[to] - floor[begin]) / rise : 0;
		double of_ceiling = ceiling_rise > 0
					    ? (double)(ceiling[to + off] - ceiling[begin + off]) /
						      ceiling_rise
					    : 0;

		t->share[q] = of_floor < of_ceiling ? of_floor : of_ceiling;
	}
}

/* Sets sorted and p from the minima and maxima of stretches: the less certain of the two counts.
 * *fell: largest fall from a stretch's minimum to a later one's. */
static void set_order(const uint64_t *v, size_t n, struct trend *t, uint64_t *fell)
{
	uint64_t low[STRETCHES], high[STRETCHES], highest_low = 0;
	uint32_t stretches = n < STRETCHES ? n : STRETCHES; /* number of stretches */
	double floors, ceilings, p_high;

	*fell = 0;
	for (uint32_t s = 0; s < stretches; s++) {
		low[s] = UINT64_MAX;
		high[s] = 0;
		for (size_t i = s * n / stretches; i < (s + 1) * n / stretches; i++) {
			low[s] = v[i] < low[s] ? v[i] : low[s];
			high[s] = v[i] > high[s] ? v[i] : high[s];
		}
		highest_low = low[s] > highest_low ? low[s] : highest_low;
		*fell = highest_low - low[s] > *fell ? highest_low - low[s] : *fell;
	}
	t->p = trend__order_chance(low, stretches, &floors);
	p_high = trend__order_chance(high, stretches, &ceilings);
	t->p = p_high > t->p ? p_high : t->p;
	t->sorted = floors < ceilings ? floors : ceilings;
}

/* True if each quarter, from this one on, has at least this share in the growth. */
static bool is_even(const struct trend *t, double share, unsigned first)
{
	for (unsigned q = first; q < TREND_PARTS; q++)
		if (t->share[q] < share)
			return false;
	return true;
}

/* Sets verdict and confidence: the highest one whose requirements the series meets. fell: as in
 * set_order(). */
static void decide_verdict(struct trend *t, uint64_t fell, uint64_t min_growth)
{
	bool up = t->slope > 0 && t->grown >= min_growth && t->grown;
	int confidence = TREND_NONE;

	while (up && confidence < TREND_HIGH && t->p <= wanted[confidence + 1].p &&
	       t->values >= wanted[confidence + 1].values &&
	       is_even(t, wanted[confidence + 1].share, 0))
		confidence++;
	/* A series that was released once may be released again. */
	if (confidence > TREND_LOW && fell > t->grown / RELEASED_PART)
		confidence = TREND_LOW;
	if (confidence >= TREND_MEDIUM) {
		t->verdict = TREND_GROWS;
	} else if (t->range >= min_growth && t->fall >= t->range / 2 && t->fall) {
		t->verdict = TREND_RELEASED;
		confidence = TREND_NONE;
	} else if (up &&
		   t->share[TREND_PARTS - 1] < FAIR / 3 /* of the growth is in the last part */) {
		t->verdict = TREND_STOPPED;
		confidence = TREND_NONE;
	} else if (up) {
		t->verdict = TREND_UNSURE;
		confidence = TREND_LOW;
	} else if (t->range >= min_growth && t->last > t->first &&
		   t->last - t->first >= t->range / 2) {
		t->verdict = TREND_STOPPED;
	}
	t->confidence = confidence;
}

void trend__limit(struct trend *t, uint32_t observed)
{
	bool grew = t->verdict == TREND_GROWS || t->verdict == TREND_UNSURE;

	if (grew && observed < TREND_MIN) {
		t->verdict = TREND_SHORT;
		t->confidence = TREND_NONE;
	} else if (t->verdict == TREND_STOPPED && observed < TREND_MIN) {
		t->verdict = TREND_SHORT;
	}
	while (t->confidence > TREND_LOW && observed < wanted[t->confidence].values)
		t->confidence--;
	if (t->verdict == TREND_GROWS && t->confidence < TREND_MEDIUM)
		t->verdict = TREND_UNSURE;
}

/* Judges all n values, without the warm-up at their beginning. */
static void judge_values(const uint64_t *v, size_t n, const struct trend_opts *o, struct trend *ret)
{
	struct trend trend = { .p = 1 };
	uint64_t fell;

	trend.values = n;
	count_changes(v, n, o->first_is_partial, &trend);
	trend.warmup = n ? 1 + n / 10 : 0; /* the first value, and a tenth */
	if (trend.warmup < n) {
		v += trend.warmup;
		n -= trend.warmup;
		set_range(v, n, &trend);
	}
	if (trend.values < TREND_MIN) {
		trend.verdict = trend.range >= o->min_growth && trend.last > trend.first
					? TREND_SHORT
					: TREND_FLAT;
		if (trend.verdict == TREND_SHORT)
			fit_line(v, n, &trend);
		*ret = trend;
		return;
	}
	if (trend.range < o->min_growth || !trend.range) {
		*ret = trend;
		return;
	}
	fit_line(v, n, &trend);
	set_shares(v, n, &trend);
	set_order(v, n, &trend, &fell);
	trend.p *= o->tests ? o->tests : 1;
	if (trend.p > 1)
		trend.p = 1;
	decide_verdict(&trend, fell, o->min_growth);
	*ret = trend;
}

/* True if growth in the half that was tested alone is even. That of a cache that fills is not. */
static bool is_steady(const struct trend *half)
{
	return half->verdict == TREND_GROWS && is_even(half, FAIR * 3 / 4, 0) &&
	       rises_almost_always(half);
}

/* Two kinds of growth are not even over all values: growth that began in the middle, and a leak
 * after a larger warm-up, which looks as if it had stopped. So if nothing was released, the second
 * half is tested alone, which counts as one more test. */
void trend__judge(const uint64_t *v, size_t n, const struct trend_opts *o, struct trend *ret)
{
	struct trend_opts two_tests = { .min_growth = o->min_growth,
					.tests = (o->tests ? o->tests : 1) * 2 };
	struct trend half;

	if (n > TREND_MAX) {
		v += n - TREND_MAX;
		n = TREND_MAX;
	}
	judge_values(v, n, o, ret);
	if ((ret->verdict != TREND_UNSURE && ret->verdict != TREND_STOPPED) || n < 4 * TREND_MIN ||
	    ret->fall > ret->grown / RELEASED_PART)
		return;
	judge_values(v + n / 2, n - n / 2, &two_tests, &half);
	if (half.verdict != TREND_GROWS || (ret->verdict == TREND_STOPPED && !is_steady(&half)))
		return;
	half.warmup += n / 2;
	half.values = n;
	half.rises = ret->rises;
	half.falls = ret->falls;
	half.intervals = ret->intervals;
	half.confidence = TREND_MEDIUM;
	*ret = half;
}

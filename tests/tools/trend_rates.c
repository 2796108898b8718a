/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Measures how often verdicts on growth are wrong: trend_rates [ROUNDS]. Random series of jobs with
 * and without leaks, the same ones in each run. Prints the figures of docs/internals/LEAKS.md: for
 * each kind and length, the share reported as growing with high and with at least medium
 * confidence. The second table is about two statements without a question: that it grows, and that
 * nothing grows.
 */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "model/trend.h"

#define MIB (UINT64_C(1) << 20)
#define TESTS 20 /* lines of a job whose bytes change */

static uint64_t state;

static double uniform(void)
{
	state += UINT64_C(0x9e3779b97f4a7c15);
	uint64_t x = state;

	x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
	return (double)((x ^ x >> 31) >> 11) / 9007199254740992.0;
}

static double normal(void)
{
	return sqrt(-2 * log(1 - uniform())) * cos(6.283185307179586 * uniform());
}

static double at_least_0(double x)
{
	return x > 0 ? x : 0;
}

/* ---- series without endless growth ---- */

static void noise(double *v, size_t n)
{
	for (size_t i = 0; i < n; i++)
		v[i] = 100 + 20 * normal();
}

/* One of eight lengths with equal probability. */
static void buckets(double *v, size_t n)
{
	for (size_t i = 0; i < n; i++)
		v[i] = 10 * (1 + floor(uniform() * 8));
}

static void random_walk(double *v, size_t n)
{
	double x = 100;

	for (size_t i = 0; i < n; i++) {
		x += normal();
		v[i] = at_least_0(x);
	}
}

/* The garbage collector runs at random steps. */
static void collected(double *v, size_t n)
{
	double x = 0;

	for (size_t i = 0; i < n; i++) {
		x = uniform() < 0.1 ? 0 : x + 1;
		v[i] = x;
	}
}

/* Emptied regularly, in periods below half of the steps. */
static void sawtooth(double *v, size_t n)
{
	double period = 3 + floor(uniform() * ((double)n / 2 - 3)), at = floor(uniform() * period);

	for (size_t i = 0; i < n; i++)
		v[i] = fmod((double)i + at, period);
}

/* Emptied after 60 to 100 % of the steps: once or never. */
static void slow_sawtooth(double *v, size_t n)
{
	double period = (0.6 + 0.4 * uniform()) * (double)n, at = floor(uniform() * period);

	for (size_t i = 0; i < n; i++)
		v[i] = fmod((double)i + at, period);
}

/* Grows until 5 to 80 % of the steps. */
static void filling(double *v, size_t n)
{
	double full = (0.05 + 0.75 * uniform()) * (double)n;

	for (size_t i = 0; i < n; i++)
		v[i] = (double)i < full ? (double)i : full;
}

/* One entry per key; 4 to 20 keys appear at random. */
static void keyed(double *v, size_t n)
{
	unsigned keys = 4 + (unsigned)(uniform() * 17), seen = 0, count = 0;

	for (size_t i = 0; i < n; i++) {
		unsigned key = (unsigned)(uniform() * keys);

		count += !(seen >> key & 1);
		seen |= 1u << key;
		v[i] = count;
	}
}

/* Sequences of 10 to 40 steps; size is proportional to length. */
static void generation(double *v, size_t n)
{
	double left = 0, x = 0;

	for (size_t i = 0; i < n; i++) {
		if (left-- <= 0) {
			left = 10 + floor(uniform() * 30);
			x = 0;
		}
		v[i] = ++x;
	}
}

/* ---- series with a leak ---- */

static void leak(double *v, size_t n)
{
	for (size_t i = 0; i < n; i++)
		v[i] = (double)i;
}

static void noisy_leak(double *v, size_t n)
{
	for (size_t i = 0; i < n; i++)
		v[i] = 50 + (double)i + 3 * normal();
}

static void very_noisy_leak(double *v, size_t n)
{
	for (size_t i = 0; i < n; i++)
		v[i] = 100 + (double)i + 10 * normal();
}

static void rare_leak(double *v, size_t n)
{
	double x = 0;

	for (size_t i = 0; i < n; i++) {
		x += uniform() < 0.1;
		v[i] = x;
	}
}

static void leak_with_teeth(double *v, size_t n)
{
	double period = 3 + floor(uniform() * 10);

	for (size_t i = 0; i < n; i++)
		v[i] = (double)i + fmod((double)i, period) * 2;
}

static void late_leak(double *v, size_t n)
{
	size_t from = (size_t)((0.1 + 0.3 * uniform()) * (double)n);

	for (size_t i = 0; i < n; i++)
		v[i] = 10 + (i < from ? 0 : (double)(i - from));
}

static const struct {
	const char *name;
	void (*make)(double *v, size_t n);
} kinds[] = {
	{ "noise", noise },
	{ "lengths from buckets", buckets },
	{ "random walk", random_walk },
	{ "cycles, collected now and then", collected },
	{ "emptied, period under half", sawtooth },
	{ "emptied, period 60 to 100 %", slow_sawtooth },
	{ "cache, full after 5 to 80 %", filling },
	{ "cache, keys at random", keyed },
	{ "generation, sequence by sequence", generation },
	{ "LEAK each step", leak },
	{ "LEAK, noise of 3 steps' worth", noisy_leak },
	{ "LEAK, noise of 10 steps' worth", very_noisy_leak },
	{ "LEAK in each tenth step, at random", rare_leak },
	{ "LEAK under a sawtooth", leak_with_teeth },
	{ "LEAK that begins after 10 to 40 %", late_leak },
};

static void judge(size_t kind, size_t length, long round, size_t n, struct trend *ret)
{
	const struct trend_opts o = { .min_growth = 1024, .tests = TESTS };
	double v[TREND_MAX];
	uint64_t bytes[TREND_MAX];

	state = (uint64_t)round << 20 | kind << 8 | length;
	kinds[kind].make(v, n);
	for (size_t i = 0; i < n; i++)
		bytes[i] = (uint64_t)(at_least_0(v[i]) * (double)MIB);
	trend__judge(bytes, n, &o, ret);
}

static void print_asked(long rounds)
{
	static const size_t lengths[] = { 20, 60, 200 };

	printf("| %ld of each: high / at least medium | 20 steps | 60 steps | 200 steps "
	       "|\n|---|---|---|---|\n",
	       rounds);
	for (size_t k = 0; k < sizeof(kinds) / sizeof(*kinds); k++) {
		printf("| %s |", kinds[k].name);
		for (size_t l = 0; l < 3; l++) {
			long grows = 0, high = 0;

			for (long r = 0; r < rounds; r++) {
				struct trend t;

				judge(k, l, r, lengths[l], &t);
				grows += t.verdict == TREND_GROWS;
				high += t.confidence == TREND_HIGH;
			}
			printf(" %.1f / %.1f %% |", 100.0 * (double)high / (double)rounds,
			       100.0 * (double)grows / (double)rounds);
		}
		printf("\n");
	}
}

/* Sequences of generation have calls of a model, all others steps of training. */
static void print_unasked(long rounds)
{
	static const size_t lengths[] = { 20, 30, 60, 100, 200 };

	printf("\n| %ld of each: \"Growth\" / \"no growth\" | 20 steps | 30 steps | 60 steps | 100 "
	       "steps | 200 steps |\n|---|---|---|---|---|---|\n",
	       rounds);
	for (size_t k = 0; k < sizeof(kinds) / sizeof(*kinds); k++) {
		printf("| %s |", kinds[k].name);
		for (size_t l = 0; l < 5; l++) {
			long grows = 0, none = 0;

			for (long r = 0; r < rounds; r++) {
				struct trend t;

				judge(k, l, r, lengths[l], &t);
				grows += trend__is_sure(&t, kinds[k].make != generation);
				none += lengths[l] >= TREND_STEADY && t.verdict != TREND_GROWS &&
					t.verdict != TREND_UNSURE;
			}
			printf(" %.1f / %.1f %% |", 100.0 * (double)grows / (double)rounds,
			       100.0 * (double)none / (double)rounds);
		}
		printf("\n");
	}
}

int main(int argc, char **argv)
{
	long rounds = argc > 1 ? atol(argv[1]) : 2000;

	if (rounds < 1) {
		fprintf(stderr, "usage: trend_rates [ROUNDS]\n");
		return 64;
	}
	print_asked(rounds);
	print_unasked(rounds);
	return 0;
}

/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "record/sampling.h"

#include <math.h>

#define FIRST 65536ULL	/* bytes; each bound is four times the one before */
#define TAIL 0.025	/* probability that the value is below the interval, and above it */
#define NORMAL 1.959964 /* quantile of the normal distribution at 1 - TAIL */
#define EXACT 50	/* larger counts use an approximation within 0.1 % */
#define TURNS 60

static uint8_t number_of(uint64_t below)
{
	for (uint8_t i = 1; i <= SAMPLING_BOUNDS; i++) {
		if (sampling__bound(i) == below)
			return i;
	}
	return 0;
}

uint64_t sampling__bound(uint8_t of)
{
	return of ? FIRST << 2 * (of - 1) : 0;
}

static void add(struct sampling *s, uint64_t time, uint64_t below)
{
	if (s->n == DETAIL_MAX || (s->n && time <= s->at[s->n - 1].time))
		return;
	s->at[s->n].time = time;
	s->at[s->n++].of = number_of(below);
}

void sampling__load(struct sampling *s, const struct facts *f)
{
	struct detail d;

	if (s->loaded)
		return;
	s->loaded = true;
	detail__read(f, &d);
	for (size_t i = 0; i < d.n; i++)
		add(s, d.at[i].time, d.at[i].below);
}

void sampling__mark(struct sampling *s, const char *name, uint64_t time)
{
	uint64_t below;

	if (detail__from_mark(name, &below))
		add(s, time, below);
}

uint8_t sampling__of(const struct sampling *s, uint64_t time, uint64_t size)
{
	size_t i = s->n;

	/* Events come nearly in the order of time. */
	while (i && s->at[i - 1].time > time)
		i--;
	return i && size < sampling__bound(s->at[i - 1].of) ? s->at[i - 1].of : 0;
}

/* Probability of at most n events where `mean` are expected: Poisson's distribution. */
static double at_most(uint64_t n, double mean)
{
	double p = exp(-mean), sum = p;

	for (uint64_t i = 1; i <= n; i++) {
		p *= mean / (double)i;
		sum += p;
	}
	return sum;
}

/* The mean with which at most n events have this probability. */
static double mean_for(uint64_t n, double probability)
{
	double low = 0, high = (double)n + 10 * sqrt((double)n + 1) + 10;

	for (int i = 0; i < TURNS; i++) {
		double middle = (low + high) / 2;

		if (at_most(n, middle) > probability)
			low = middle;
		else
			high = middle;
	}
	return high;
}

/* Wilson and Hilferty's approximation of the same for the quantile z. */
static double approximate(double x, double z)
{
	double root = 1 - 1 / (9 * x) + z / (3 * sqrt(x));

	return x * root * root * root;
}

/*
 * The limits of a Poisson mean after n events, at 95 %. The number of drawn blocks is a sum of
 * independent draws, which varies less than a Poisson number, so the interval is rather too wide.
 */
static double lower(uint64_t n)
{
	return !n ? 0 : n <= EXACT ? mean_for(n - 1, 1 - TAIL) : approximate((double)n, -NORMAL);
}

static double upper(uint64_t n)
{
	return n < EXACT ? mean_for(n, TAIL) : approximate((double)n + 1, NORMAL);
}

static uint64_t within(double v, uint64_t least, uint64_t most)
{
	return v <= (double)least ? least : v >= (double)most ? most : (uint64_t)v;
}

struct sampled sampling__estimate(uint64_t bytes, const struct drawn drawn[SAMPLING_BOUNDS])
{
	struct sampled e = { bytes, bytes, bytes };

	for (uint8_t i = 0; i < SAMPLING_BOUNDS; i++) {
		const struct drawn *d = &drawn[i];
		double bound = (double)sampling__bound(i + 1), low;
		uint64_t most = d->bytes + d->others;

		if (!d->others) /* no block is without a stack: the row has what was drawn */
			continue;
		low = lower(d->count) * bound;
		/* The row has at least what was drawn, and at most all that was not. A low limit
		 * above that is wrong. */
		e.bytes += within((double)d->count * bound, d->bytes, most) - d->bytes;
		e.low += within(low > (double)most ? 0 : low, d->bytes, most) - d->bytes;
		e.high += within(upper(d->count) * bound, d->bytes, most) - d->bytes;
	}
	return e;
}

struct sampled sampling__pieces(uint64_t bytes, const struct pieces *p)
{
	struct sampled e = { bytes, bytes, bytes };
	double size, n, low, high, sure = (double)(bytes - p->bytes);

	if (!p->bytes || p->squares <= 0)
		return e;
	/* As many pieces of equal size as vary by the same. One of which little is resident yet is
	 * a whole one. */
	size = p->squares / (double)p->bytes;
	n = (double)p->bytes / size;
	if (n < 1)
		n = 1;
	low = sure + size * (n <= EXACT ? lower((uint64_t)n) : approximate(n, -NORMAL));
	high = sure + size * (n < EXACT ? upper((uint64_t)ceil(n)) : approximate(n + 1, NORMAL));
	e.low = within(low, bytes - p->bytes, bytes);
	e.high = within(high, bytes, bytes + p->others);
	return e;
}

/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_MODEL_TREND_H
#define MT_MODEL_TREND_H
/*
 * Does a series grow, and how sure is that? What is looked at is not the line through it but its
 * floor, the least that it ever came back to from a moment on, and its ceiling, the most that it
 * had come to: of what is released again, however late, the floor stays; of what has stopped
 * growing the ceiling does. docs/LEAKS.md has it in words.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TREND_MAX 256 /* values */
#define TREND_MIN 8   /* less tell nothing */
#define TREND_PARTS 4

enum trend_verdict {
	TREND_FLAT,	/* nothing that is worth a word */
	TREND_SHORT,	/* too few values to tell */
	TREND_STOPPED,	/* it grew, and then no more: a warm-up, a cache that is full */
	TREND_RELEASED, /* it grows and is given back, again and again or at least once */
	TREND_UNSURE,	/* it grew, and may be one of these: too short or too uneven to tell */
	TREND_GROWS,
};

enum trend_confidence { TREND_NONE, TREND_LOW, TREND_MEDIUM, TREND_HIGH };

struct trend {
	enum trend_verdict verdict;
	enum trend_confidence
		confidence;	 /* of TREND_GROWS (medium or high) and TREND_UNSURE (low) */
	uint32_t values, warmup; /* how many there were; of them, at the beginning, left out of what
				    follows */
	uint32_t rises, falls;	 /* of all values from one to the next, the first from 0 */
	double slope;		 /* per value: the median over all pairs (Theil-Sen) */
	double spread;		 /* median distance from that line */
	uint64_t first, last;	 /* the first and the last value counted */
	uint64_t range;		 /* largest less smallest */
	uint64_t fall;		 /* the largest, from any value to any later one */
	uint64_t grown;		 /* by how much the floor rose */
	double share[TREND_PARTS]; /* of that, of the ceiling's rise if less, in each quarter */
	uint32_t stretches;	   /* that it was parted into, and */
	double sorted; /* how far their floors, or their ceilings if less, are in rising order: 1
			  all, 0 any, -1 falling (Kendall's tau) */
	double p; /* that they are so far, in a series that does not grow, where any order is as
		     likely; times the series looked at */
};

struct trend_opts {
	uint64_t min_growth; /* less is flat */
	uint32_t tests; /* series looked at along with it: each is a chance to be wrong. 0 counts as
			   1 */
};

/* Of n values, at most TREND_MAX of them, the last ones. */
void trend__judge(const uint64_t *v, size_t n, const struct trend_opts *o, struct trend *ret);
/* Does it grow, or may it, with at least this confidence? */
bool trend__counts(const struct trend *t, enum trend_confidence least);
const char *trend__verdict(enum trend_verdict v);	/* "grows", "flat", "released" ... */
const char *trend__confidence(enum trend_confidence c); /* "high", "medium", "low", "none" */
/* P(n values, put in an order at random, are as far in rising order as these): Mann and Kendall.
 * *tau: how far that is. */
double trend__order_chance(const uint64_t *v, size_t n, double *tau);

#endif

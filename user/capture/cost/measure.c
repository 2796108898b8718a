/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "capture/cost/measure.h"

#include <stdbool.h>

#define UNTIMED 500.0	/* ns that a program takes which was not timed yet */
#define SMOOTH 32.0	/* timed hits that the mean remembers */
#define LATELY 5e9	/* ns that the sums of the last seconds have at most */
#define LEAST_ALONE 0.1 /* least share of the time that the target has for itself */

/* Returns the number of the kernel's traps for a hit of a type (enum mt_rec_type). */
static unsigned traps(const struct measure *measure, unsigned type)
{
	switch (type) {
	case MT_REC_STACK:
	case MT_REC_MODULE_LEAVE:
	case MT_REC_NATIVE:
	case MT_REC_TENSOR:
	case MT_REC_HOST: /* no trap: it runs within a system call, which takes longer */
		return 0; /* no hits of their own: programs of other hits write them */
	case MT_REC_CUDA_CALL:
		return 2; /* at the entry and the return */
	case MT_REC_MALLOC:
		return measure->returns ? 2 : 1;
	default:
		return 1;
	}
}

/* Hits of a type; nodes that run have a counter of their own. */
static uint64_t hits_of(const uint64_t counters[MT_CNT_NR], unsigned type)
{
	return type == MT_REC_NODE ? counters[MT_CNT_NODE_RUN] : counters[MT_CNT_HIT + type];
}

/* True if this measurement is about probes of the type: malloc's are measured apart. */
static bool is_counted(const struct measure *measure, unsigned type)
{
	return measure->malloc == (type == MT_REC_MALLOC || type == MT_REC_MALLOC_FREE);
}

/* Updates the mean time in the program from the hits that were timed since the last look. */
static void update_mean(struct measure *measure, unsigned type, const struct mt_timed *now)
{
	uint64_t hits = now->hits - measure->timed[type].hits,
		 ns = now->ns - measure->timed[type].ns;
	double *mean = &measure->mean[measure->reduced][type];

	if (!hits)
		return;
	*mean += ((double)ns / (double)hits - *mean) *
		 (*mean ? (double)hits / ((double)hits + SMOOTH) : 1);
	measure->timed[type] = *now;
}

/* Time that the hits of one type added since the last look, ns: that of the kernel's traps, and the
 * mean time of the program. */
static double added_by(struct measure *measure, unsigned type, uint64_t hits)
{
	uint64_t new_hits = hits - measure->hits[type];
	double trap = measure->stepped[type] ? measure->hit.stepped : measure->hit.emulated;

	measure->hits[type] = hits;
	measure->new_hits += (double)new_hits * traps(measure, type);
	return (double)new_hits * traps(measure, type) *
	       (trap + (measure->mean[measure->reduced][type] ?: UNTIMED));
}

/* Adds to the sums of the last seconds. */
static void add_lately(double sums[2], double added, double alone)
{
	if (sums[1] > LATELY) {
		sums[0] /= 2;
		sums[1] /= 2;
	}
	sums[0] += added;
	sums[1] += alone;
}

double measure__look(struct measure *measure, const uint64_t counters[MT_CNT_NR],
		     const struct mt_timed *timed, uint64_t wall, uint64_t cpu)
{
	double added = 0, took = (double)(wall - measure->wall), alone;
	bool first = !measure->begun;
	uint64_t walks = 0;

	if ((double)(cpu - measure->cpu) < took)
		took = (double)(cpu - measure->cpu);
	measure->wall = wall;
	measure->cpu = cpu;
	measure->begun = true;
	for (unsigned i = 0; i < MT_WALK_NR; i++)
		walks += counters[MT_CNT_WALK + i];
	measure->new_walks = (double)(walks - measure->walks);
	measure->walks = walks;
	measure->new_hits = 0;
	for (unsigned i = 1; i < MEASURE_TYPES; i++) {
		struct mt_timed now = timed[i]; /* a copy: the programs write the original */

		update_mean(measure, i, &now);
		if (MT_CNT_HIT + i < MT_CNT_WALK && is_counted(measure, i))
			added += added_by(measure, i, hits_of(counters, i));
	}
	if (first || took <= 0)
		return 0;
	alone = took - added > LEAST_ALONE * took ? took - added : LEAST_ALONE * took;
	measure->added += added;
	measure->alone += alone;
	add_lately(measure->lately[measure->reduced], added, alone);
	return added / alone;
}

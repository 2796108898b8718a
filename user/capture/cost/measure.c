/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "capture/cost/measure.h"

#include <string.h>

#define UNTIMED 500.0	/* ns in a program that was not timed yet */
#define SMOOTH 32.0	/* timed hits that the mean remembers */
#define LEAST_ALONE 0.1 /* share of the time: the target does something, too */

/* How often the kernel's trap is taken for a hit of this type. */
static unsigned traps(unsigned type)
{
	switch (type) {
	case MT_REC_STACK:
	case MT_REC_MODULE_LEAVE:
	case MT_REC_NATIVE:
	case MT_REC_HOST: /* no trap: it runs within a system call, which takes longer */
		return 0; /* written by the programs of other hits */
	case MT_REC_CUDA_CALL:
		return 2; /* at the entry and the return */
	default:
		return 1;
	}
}

static uint64_t hits_of(const uint64_t c[MT_CNT_NR], unsigned type)
{
	return type == MT_REC_NODE ? c[MT_CNT_NODE_RUN] : c[MT_CNT_HIT + type];
}

static void update_mean(struct measure *m, unsigned type, const struct mt_timed *now)
{
	uint64_t n = now->hits - m->timed[type].hits, ns = now->ns - m->timed[type].ns;
	double *mean = &m->mean[type];

	if (!n)
		return;
	*mean += ((double)ns / (double)n - *mean) * (*mean ? (double)n / ((double)n + SMOOTH) : 1);
	m->timed[type] = *now;
}

/* Added by hits of one type since the last look, ns. */
static double added_by(struct measure *m, unsigned type, uint64_t hits)
{
	uint64_t n = hits - m->hits[type];
	double trap = m->stepped[type] ? m->hit.stepped : m->hit.emulated;

	m->hits[type] = hits;
	m->new_hits += (double)n * traps(type);
	return (double)n * traps(type) * (trap + (m->mean[type] ?: UNTIMED));
}

double measure__look(struct measure *m, const uint64_t c[MT_CNT_NR], const struct mt_timed *timed,
		     uint64_t wall, uint64_t cpu)
{
	double added = 0, took = (double)(wall - m->wall), alone;
	bool first = !m->begun;
	uint64_t walks = 0;

	if ((double)(cpu - m->cpu) < took)
		took = (double)(cpu - m->cpu);
	m->wall = wall;
	m->cpu = cpu;
	m->begun = true;
	for (unsigned i = 0; i < MT_WALK_NR; i++)
		walks += c[MT_CNT_WALK + i];
	m->new_walks = (double)(walks - m->walks);
	m->walks = walks;
	m->new_hits = 0;
	for (unsigned i = 1; i < MEASURE_TYPES; i++) {
		struct mt_timed now = timed[i]; /* the programs write it meanwhile */

		update_mean(m, i, &now);
		if (MT_CNT_HIT + i < MT_CNT_WALK)
			added += added_by(m, i, hits_of(c, i));
	}
	if (first || took <= 0)
		return 0;
	alone = took - added > LEAST_ALONE * took ? took - added : LEAST_ALONE * took;
	m->added += added;
	m->alone += alone;
	return added / alone;
}

double measure__walks(const struct measure *m)
{
	return m->new_hits > 0 ? m->new_walks / m->new_hits : 0;
}

double measure__share(const struct measure *m)
{
	return m->alone > 0 ? m->added / m->alone : 0;
}
